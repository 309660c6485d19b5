//! A plane of attenuation on which shapes are painted in body coordinates.
//!
//! Body coordinates run from −1 to 1 across the picture (x to the right, y down) whatever its size
//! in pixels, so that the same patient is the same picture at every size.

use rand::{Rng, RngExt};

/// Pictures smaller than this are drawn larger and averaged down, so that thin lines keep their
/// weight.
const FINEST_GRID: usize = 192;

/// How the body stands in the picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pose {
    pub radians: f32,
    pub scale: f32,
    pub shift: [f32; 2],
}

/// The rectangle of body coordinates outside which a shape changes nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Area {
    pub left: f32,
    pub top: f32,
    pub right: f32,
    pub bottom: f32,
}

impl Area {
    /// Larger than any picture.
    pub const ALL: Self = Self { left: -9.0, top: -9.0, right: 9.0, bottom: 9.0 };

    pub fn around(x: f32, y: f32, half_width: f32, half_height: f32) -> Self {
        Self {
            left: x - half_width,
            top: y - half_height,
            right: x + half_width,
            bottom: y + half_height,
        }
    }

    fn holds(&self, x: f32, y: f32) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }
}

/// 0 below −`width`/2, 1 above `width`/2, smooth between: the blurred edge of a shape whose inside
/// has positive `depth`.
pub(super) fn soft(depth: f32, width: f32) -> f32 {
    let t = (depth / width + 0.5).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// The picture while it is drawn.
pub(super) struct Canvas {
    side: usize,
    /// Grid points per pixel in each direction.
    fineness: usize,
    pose: Pose,
    values: Vec<f32>,
}

impl Canvas {
    pub fn new(size: usize, pose: Pose) -> Self {
        let fineness = FINEST_GRID.div_ceil(size);
        let side = size * fineness;
        Self { side, fineness, pose, values: vec![0.0; side * side] }
    }

    /// Sets every point of `area` to `shape(x, y, value there)`.
    pub fn paint(&mut self, area: Area, shape: impl Fn(f32, f32, f32) -> f32) {
        let (sin, cos) = self.pose.radians.sin_cos();
        let step = 2.0 / self.side as f32;
        let [rows, columns] = self.pixels_of(area, sin, cos);
        for row in rows {
            let v = (row as f32 + 0.5) * step - 1.0 - self.pose.shift[1];
            for column in columns.clone() {
                let u = (column as f32 + 0.5) * step - 1.0 - self.pose.shift[0];
                let x = (cos * u + sin * v) / self.pose.scale;
                let y = (cos * v - sin * u) / self.pose.scale;
                if area.holds(x, y) {
                    let value = &mut self.values[row * self.side + column];
                    *value = shape(x, y, *value);
                }
            }
        }
    }

    /// Adds `strength` along a polyline, full in the middle and fading over the outer half.
    pub fn stroke(&mut self, points: &[[f32; 2]], half_width: f32, strength: f32) {
        let bounds = points.iter().fold(
            Area { left: 9.0, top: 9.0, right: -9.0, bottom: -9.0 },
            |area, &[x, y]| Area {
                left: area.left.min(x - half_width),
                top: area.top.min(y - half_width),
                right: area.right.max(x + half_width),
                bottom: area.bottom.max(y + half_width),
            },
        );
        self.paint(bounds, |x, y, value| {
            let distance = points
                .windows(2)
                .map(|ends| distance_to_segment([x, y], ends[0], ends[1]))
                .fold(f32::INFINITY, f32::min);
            value + strength * soft(0.75 * half_width - distance, 0.5 * half_width)
        });
    }

    /// Rows and columns whose centres may lie in `area`.
    fn pixels_of(&self, area: Area, sin: f32, cos: f32) -> [std::ops::Range<usize>; 2] {
        let mut low = [f32::INFINITY; 2];
        let mut high = [f32::NEG_INFINITY; 2];
        for x in [area.left, area.right] {
            for y in [area.top, area.bottom] {
                let (x, y) = (x * self.pose.scale, y * self.pose.scale);
                let corner = [
                    sin * x + cos * y + self.pose.shift[1],
                    cos * x - sin * y + self.pose.shift[0],
                ];
                for axis in 0..2 {
                    low[axis] = low[axis].min(corner[axis]);
                    high[axis] = high[axis].max(corner[axis]);
                }
            }
        }
        let to_pixels = |from: f32, to: f32| {
            let pixel =
                |at: f32| ((at + 1.0) * 0.5 * self.side as f32).clamp(0.0, self.side as f32);
            pixel(from).floor() as usize..pixel(to).ceil() as usize
        };
        [to_pixels(low[0], high[0]), to_pixels(low[1], high[1])]
    }

    /// Turns attenuation into an exposed film.
    pub fn expose(self, exposure: &Exposure, random: &mut impl Rng) -> Vec<u16> {
        let mut film = self.averaged();
        for value in &mut film {
            *value = (value.clamp(0.0, 1.3) / 1.3).powf(exposure.gamma);
        }
        let spread = deviation(&film, mean(&film));
        add_grain(&mut film, exposure.grain * spread, random);
        // Every film has the mean and contrast it drew, so that neither tells what is on it.
        let level = mean(&film);
        let gain = exposure.contrast / deviation(&film, level).max(1e-6);
        film.into_iter()
            .map(|value| {
                let value = (value - level) * gain + exposure.mean;
                (value.clamp(0.0, 1.0) * 65535.0).round() as u16
            })
            .collect()
    }

    /// The mean of the grid points of each pixel.
    fn averaged(self) -> Vec<f32> {
        let fineness = self.fineness;
        if fineness == 1 {
            return self.values;
        }
        let size = self.side / fineness;
        let mut pixels = vec![0.0; size * size];
        for (row, line) in self.values.chunks_exact(self.side).enumerate() {
            for (column, value) in line.iter().enumerate() {
                pixels[row / fineness * size + column / fineness] += value;
            }
        }
        let share = 1.0 / (fineness * fineness) as f32;
        pixels.iter_mut().for_each(|pixel| *pixel *= share);
        pixels
    }
}

/// How attenuation becomes grey values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exposure {
    /// The film's curve: below 1 brightens dark parts.
    pub gamma: f32,
    /// The mean of the film, 0 to 1.
    pub mean: f32,
    /// The standard deviation of the film.
    pub contrast: f32,
    /// The standard deviation of the noise of a pixel, as a share of the film's.
    pub grain: f32,
}

fn mean(values: &[f32]) -> f32 {
    (values.iter().map(|&value| f64::from(value)).sum::<f64>() / values.len() as f64) as f32
}

fn deviation(values: &[f32], mean: f32) -> f32 {
    let squares: f64 = values.iter().map(|&value| f64::from(value - mean).powi(2)).sum();
    (squares / values.len() as f64).sqrt() as f32
}

/// Adds noise of standard deviation `strength`: the sum of four uniform bytes is close to normal.
fn add_grain(film: &mut [f32], strength: f32, random: &mut impl Rng) {
    // Variance of the sum of four uniform integers 0..=255.
    let deviation = (4.0 * (256.0_f32 * 256.0 - 1.0) / 12.0).sqrt();
    for value in film {
        let sum: u32 = random.next_u32().to_le_bytes().iter().map(|&byte| u32::from(byte)).sum();
        *value += strength * (sum as f32 - 510.0) / deviation;
    }
}

fn distance_to_segment(point: [f32; 2], from: [f32; 2], to: [f32; 2]) -> f32 {
    let along = [to[0] - from[0], to[1] - from[1]];
    let away = [point[0] - from[0], point[1] - from[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let share = ((away[0] * along[0] + away[1] * along[1]) / length.max(1e-12)).clamp(0.0, 1.0);
    let (x, y) = (away[0] - share * along[0], away[1] - share * along[1]);
    (x * x + y * y).sqrt()
}

/// Smooth random relief between −1 and 1 over body coordinates.
pub(super) struct Relief {
    lattice: Vec<f32>,
}

impl Relief {
    const SIDE: usize = 64;

    pub fn new(random: &mut impl Rng) -> Self {
        let lattice = (0..Self::SIDE * Self::SIDE).map(|_| random.random_range(-1.0..1.0));
        Self { lattice: lattice.collect() }
    }

    /// The relief with `frequency` hills per unit of length.
    pub fn at(&self, x: f32, y: f32, frequency: f32) -> f32 {
        // The offset keeps the arguments positive wherever a picture reaches.
        let (x, y) = (x * frequency + 1024.5, y * frequency + 1024.5);
        let (column, row) = (x as usize, y as usize);
        let ease = |t: f32| t * t * (3.0 - 2.0 * t);
        let (s, t) = (ease(x - column as f32), ease(y - row as f32));
        let node = |dx: usize, dy: usize| {
            self.lattice[(row + dy) % Self::SIDE * Self::SIDE + (column + dx) % Self::SIDE]
        };
        let upper = node(0, 0) + (node(1, 0) - node(0, 0)) * s;
        let lower = node(0, 1) + (node(1, 1) - node(0, 1)) * s;
        upper + (lower - upper) * t
    }
}
