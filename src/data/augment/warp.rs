//! All of the geometry in one bilinear warp.

use std::ops::Range;

use super::super::area::Area;
use super::affine::Affine;

/// Where each pixel of the result comes from.
///
/// Position (column, row) of the result is traced back through the affine map to a point of the
/// frame, which has the level of padding beyond its borders; with a crop the frame shows that part of the plane
/// enlarged, else the plane itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Warp {
    size: [usize; 2],
    /// The point of the frame, `[x, y]`, that the first pixel shows, and the steps from there to the
    /// next column and the next row.
    first: [f64; 2],
    across: [f64; 2],
    down: [f64; 2],
    /// The part of the plane that the frame shows, and how its points are found there, per axis:
    /// gain and offset.
    part: Area,
    placed: [[f64; 2]; 2],
}

/// Points are counted in units of 2⁻³², which adding a step thousands of times keeps exact.
const UNIT: f64 = (1_u64 << 32) as f64;
/// Points this close to a border are treated as if they might be beyond it.
const MARGIN: f64 = 1e-4;

impl Warp {
    /// The warp of planes of `size`; `part` is what a crop leaves of them.
    pub fn new(affine: &Affine, part: Option<Area>, size: [usize; 2]) -> Self {
        let [height, width] = size.map(|side| side as f64);
        let centre = [(width - 1.0) / 2.0, (height - 1.0) / 2.0];
        let (sin, cos) = affine.radians.sin_cos();
        // Back through the scaling, the rotation (y points down), the shear and the mirror.
        let back = |u: f64, v: f64| {
            let (u, v) = (u / affine.scale, v / affine.scale);
            let (x, y) = (cos * u - sin * v, sin * u + cos * v);
            let x = x + affine.shear * y;
            [if affine.flip { -x } else { x }, y]
        };
        let [x, y] =
            back(-centre[0] - affine.shift[0] * width, -centre[1] - affine.shift[1] * height);
        let placed = match part {
            Some(part) => [
                [width, part.width as f64, part.left as f64],
                [height, part.height as f64, part.top as f64],
            ]
            // Pixel centres lie at halves: (p + ½)·gain − ½ from the part's corner.
            .map(|[of, to, start]| [to / of, 0.5 * to / of - 0.5 + start]),
            None => [[1.0, 0.0]; 2],
        };
        Self {
            size,
            first: [x + centre[0], y + centre[1]],
            across: back(1.0, 0.0),
            down: back(0.0, 1.0),
            part: part.unwrap_or(Area::whole(size)),
            placed,
        }
    }

    /// Whether every pixel stays where it is.
    pub fn moves_nothing(&self) -> bool {
        *self == Self::new(&Affine::STILL, None, self.size)
    }

    /// Warps a plane, `[height, width]`, into one that has the level `padding` everywhere: bilinear,
    /// `padding` where nothing was.
    pub fn apply(&self, plane: &[f32], warped: &mut [f32], padding: f32) {
        for (row, line) in warped.chunks_exact_mut(self.size[1]).enumerate() {
            let touched = self.frame_columns(row, -1.0, 0.0);
            let inside = self.inner_columns(row);
            let (before, after) = match inside.is_empty() {
                true => (touched.clone(), 0..0),
                false => (touched.start..inside.start, inside.end..touched.end),
            };
            for column in before.chain(after) {
                line[column] = self.at_rim(plane, row, column, padding);
            }
            self.fill(plane, row, inside.start, &mut line[inside]);
        }
    }

    /// For each row of the result, the columns that show `content`, a part of the plane.
    pub fn spans(&self, content: Area) -> Vec<Range<usize>> {
        let borders = [[content.left, content.width], [content.top, content.height]];
        let borders =
            borders.map(|[start, length]| [start as f64 - 0.5, (start + length) as f64 - 0.5]);
        let spans = (0..self.size[0]).map(|row| {
            let frame = self.frame_columns(row, -0.5, -0.5);
            common(frame, self.plane_columns(row, borders))
        });
        spans.collect()
    }

    /// The columns of the row whose points lie in the frame, from `low` on and to `length + high`.
    fn frame_columns(&self, row: usize, low: f64, high: f64) -> Range<usize> {
        let [height, width] = self.size;
        let columns = |axis: usize, length: usize| {
            let start = self.first[axis] + self.down[axis] * row as f64;
            between(start, self.across[axis], [low, length as f64 + high], width)
        };
        common(columns(0, width), columns(1, height))
    }

    /// The columns of the row whose points in the plane lie within the borders of each axis.
    fn plane_columns(&self, row: usize, borders: [[f64; 2]; 2]) -> Range<usize> {
        let columns = |axis: usize| {
            let (start, step) = self.in_plane(row, axis);
            between(start, step, borders[axis], self.size[1])
        };
        common(columns(0), columns(1))
    }

    /// The columns whose four neighbours in the plane can be read without looking at borders.
    fn inner_columns(&self, row: usize) -> Range<usize> {
        let Area { top, left, height, width } = self.part;
        let borders = [[left, width], [top, height]]
            .map(|[start, length]| [start as f64 + MARGIN, (start + length - 1) as f64 - MARGIN]);
        common(self.frame_columns(row, MARGIN, -1.0 - MARGIN), self.plane_columns(row, borders))
    }

    /// The point of the plane that the row's first pixel shows, and the step to the next, along an
    /// axis.
    fn in_plane(&self, row: usize, axis: usize) -> (f64, f64) {
        let [gain, offset] = self.placed[axis];
        let start = self.first[axis] + self.down[axis] * row as f64;
        (start * gain + offset, self.across[axis] * gain)
    }

    /// Interpolates the pixels of a row from column `start` on, all of them inner ones.
    fn fill(&self, plane: &[f32], row: usize, start: usize, line: &mut [f32]) {
        let point = |axis: usize| {
            let (first, step) = self.in_plane(row, axis);
            (((first + step * start as f64) * UNIT) as i64, (step * UNIT) as i64)
        };
        let ((mut x, step_x), (mut y, step_y)) = (point(0), point(1));
        let width = self.size[1];
        for value in line {
            let at = (y >> 32) as usize * width + (x >> 32) as usize;
            let (s, t) = (share(x), share(y));
            let (upper, lower) = (&plane[at..at + 2], &plane[at + width..at + width + 2]);
            let upper = upper[0] + (upper[1] - upper[0]) * s;
            let lower = lower[0] + (lower[1] - lower[0]) * s;
            *value = upper + (lower - upper) * t;
            x += step_x;
            y += step_y;
        }
    }

    /// A pixel near a border of the frame or of the part: it fades to `padding` over the pixel beyond
    /// the frame, and goes on as the outermost pixel of the part where the frame does not end.
    fn at_rim(&self, plane: &[f32], row: usize, column: usize, padding: f32) -> f32 {
        let ends = [
            (self.part.left, self.part.width, self.size[1]),
            (self.part.top, self.part.height, self.size[0]),
        ];
        let mut covered = 1.0;
        let mut places = [(0, 0, 0.0); 2];
        for (axis, (start, length, of)) in ends.into_iter().enumerate() {
            let point =
                self.first[axis] + self.down[axis] * row as f64 + self.across[axis] * column as f64;
            covered *= (point + 1.0).min(of as f64 - point).clamp(0.0, 1.0);
            let [gain, offset] = self.placed[axis];
            let last = (start + length - 1) as f64;
            let place = (point * gain + offset).clamp(start as f64, last);
            let next = (place as usize + 1).min(start + length - 1);
            places[axis] = (place as usize, next, place.fract() as f32);
        }
        let [(left, right, s), (top, bottom, t)] = places;
        let width = self.size[1];
        let of_row = |row: usize| {
            let (near, far) = (plane[row * width + left], plane[row * width + right]);
            near + (far - near) * s
        };
        let (upper, lower) = (of_row(top), of_row(bottom));
        let covered = covered as f32;
        (upper + (lower - upper) * t) * covered + padding * (1.0 - covered)
    }
}

/// What lies beyond the whole number, of 32 bits 24, as a 32-bit number holds.
fn share(point: i64) -> f32 {
    ((point as u32) >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// The whole numbers c below `count` for which start + step·c is in `low..high`.
fn between(start: f64, step: f64, [low, high]: [f64; 2], count: usize) -> Range<usize> {
    if step.abs() < 1e-12 {
        return if (low..high).contains(&start) { 0..count } else { 0..0 };
    }
    let (to_low, to_high) = ((low - start) / step, (high - start) / step);
    let whole = |number: f64| number.clamp(0.0, count as f64) as usize;
    let columns = match step > 0.0 {
        true => whole(to_low.ceil())..whole(to_high.ceil()),
        false => whole(to_high.floor() + 1.0)..whole(to_low.floor() + 1.0),
    };
    if columns.is_empty() { 0..0 } else { columns }
}

fn common(one: Range<usize>, other: Range<usize>) -> Range<usize> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    if both.is_empty() { 0..0 } else { both }
}

#[cfg(test)]
pub(super) mod tests {
    use std::f64::consts::FRAC_PI_2;

    use proptest::prelude::*;

    use super::*;

    const STILL: Affine = Affine::STILL;

    fn numbered(height: usize, width: usize) -> Vec<f32> {
        (0..height * width).map(|place| place as f32).collect()
    }

    fn warped(affine: Affine, plane: &[f32], size: [usize; 2]) -> Vec<f32> {
        applied(&Warp::new(&affine, None, size), plane)
    }

    pub fn applied(warp: &Warp, plane: &[f32]) -> Vec<f32> {
        let mut warped = vec![0.0; plane.len()];
        warp.apply(plane, &mut warped, 0.0);
        warped
    }

    #[test]
    fn no_warp_changes_nothing() {
        let warp = Warp::new(&STILL, None, [5, 7]);
        assert_eq!(applied(&warp, &numbered(5, 7)), numbered(5, 7));
        assert!(warp.moves_nothing());
        assert_eq!(warp.spans(Area::whole([5, 7])), vec![0..7; 5]);
    }

    #[test]
    fn a_flip_exchanges_left_and_right() {
        let flipped = warped(Affine { flip: true, ..STILL }, &numbered(2, 3), [2, 3]);
        assert_eq!(flipped, [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
    }

    #[test]
    fn a_quarter_turn_is_counter_clockwise() {
        let turned = warped(Affine { radians: FRAC_PI_2, ..STILL }, &numbered(3, 3), [3, 3]);
        let expected = [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0];
        for (ours, theirs) in turned.iter().zip(expected) {
            assert!((ours - theirs).abs() < 1e-5, "{turned:?}");
        }
    }

    #[test]
    fn a_shift_moves_right_and_down_and_leaves_black() {
        let shifted = warped(Affine { shift: [1.0 / 3.0, 0.5], ..STILL }, &numbered(2, 3), [2, 3]);
        for (ours, theirs) in shifted.iter().zip([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]) {
            assert!((ours - theirs).abs() < 1e-5, "{shifted:?}");
        }
    }

    #[test]
    fn scaling_up_keeps_the_centre_and_spreads_around_it() {
        let mut plane = vec![0.0; 49];
        plane[3 * 7 + 5] = 1.0;
        let scaled = warped(Affine { scale: 1.5, ..STILL }, &plane, [7, 7]);
        let brightest = (0..49).max_by(|&a, &b| scaled[a].total_cmp(&scaled[b]));
        assert_eq!(brightest, Some(3 * 7 + 6));
    }

    /// Every pixel by itself, in 64 bits: bilinear on the plane with black around it.
    fn one_by_one(affine: &Affine, plane: &[f32], [height, width]: [usize; 2]) -> Vec<f64> {
        let at = |x: i64, y: i64| {
            let inside = (0..width as i64).contains(&x) && (0..height as i64).contains(&y);
            if inside { f64::from(plane[y as usize * width + x as usize]) } else { 0.0 }
        };
        let (sin, cos) = affine.radians.sin_cos();
        let centre = [(width as f64 - 1.0) / 2.0, (height as f64 - 1.0) / 2.0];
        let pixels = (0..height).flat_map(|row| (0..width).map(move |column| (row, column)));
        pixels
            .map(|(row, column)| {
                let u = column as f64 - centre[0] - affine.shift[0] * width as f64;
                let v = row as f64 - centre[1] - affine.shift[1] * height as f64;
                let (u, v) = (u / affine.scale, v / affine.scale);
                let (x, y) = (cos * u - sin * v, sin * u + cos * v);
                let x = (x + affine.shear * y) * if affine.flip { -1.0 } else { 1.0 };
                let (x, y) = (x + centre[0], y + centre[1]);
                let (s, t) = (x - x.floor(), y - y.floor());
                let (left, top) = (x.floor() as i64, y.floor() as i64);
                let upper = at(left, top) * (1.0 - s) + at(left + 1, top) * s;
                let lower = at(left, top + 1) * (1.0 - s) + at(left + 1, top + 1) * s;
                upper * (1.0 - t) + lower * t
            })
            .collect()
    }

    proptest! {
        #[test]
        fn whole_rows_are_what_each_pixel_is_by_itself(
            height in 1_usize..40, width in 1_usize..40,
            turns in -4_i32..5, radians in -3.2..3.2f64, straight: bool,
            scale in 0.5..1.5f64, shift in proptest::array::uniform2(-0.5..0.5f64),
            shear in -1.0..1.0f64, flip: bool,
        ) {
            let radians = if straight { f64::from(turns) * FRAC_PI_2 } else { radians };
            let shear = if straight { 0.0 } else { shear };
            let affine = Affine { radians, scale, shift, shear, flip };
            let plane: Vec<f32> =
                (0..height * width).map(|place| (place * 37 % 101) as f32 / 101.0).collect();
            let ours = warped(affine, &plane, [height, width]);
            let theirs = one_by_one(&affine, &plane, [height, width]);
            for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                prop_assert!((f64::from(*ours) - theirs).abs() < 1e-5, "{place}: {ours} {theirs}");
            }
        }

        #[test]
        fn spans_are_where_a_white_image_shows(
            height in 8_usize..40, width in 8_usize..40, radians in -3.2..3.2f64,
            scale in 0.5..1.5f64, shift in proptest::array::uniform2(-0.5..0.5f64),
            top in 0_usize..3, left in 0_usize..3, cropped: bool,
        ) {
            let affine = Affine { radians, scale, shift, ..STILL };
            let content =
                Area { top, left, height: height - 2 * top, width: width - 2 * left };
            let part = Area {
                top: top + 1, left, height: content.height - 2, width: content.width - 1,
            };
            let mut plane = vec![0.0; height * width];
            content.rows_mut(&mut plane, width).for_each(|row| row.fill(1.0));
            let warp = Warp::new(&affine, cropped.then_some(part), [height, width]);
            let shown = applied(&warp, &plane);
            for (row, span) in warp.spans(content).into_iter().enumerate() {
                for column in 0..width {
                    let level = shown[row * width + column];
                    // Each border takes at most half of what a pixel on it shows.
                    match span.contains(&column) {
                        true => prop_assert!(level >= 0.2499, "{row} {column}: {level}"),
                        false => prop_assert!(level <= 0.7501, "{row} {column}: {level}"),
                    }
                }
            }
        }
    }
}
