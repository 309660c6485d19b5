//! The healthy chest, from the front and from the side.

use super::canvas::{Area, Canvas, Relief, soft};
use super::patient::Body;

/// Attenuation of air, lung, flesh, fluid, and what lies below the diaphragm.
const LUNG: f32 = 0.26;
const FLESH: f32 = 0.62;
pub(super) const FLUID: f32 = 0.80;
const ABDOMEN: f32 = 0.86;

/// An ellipse cut off below by the dome of the diaphragm. In a frontal view `side` is −1 or 1; in
/// a lateral view there is one, whose deepest corner lies behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lung {
    pub centre: [f32; 2],
    pub half: [f32; 2],
    /// −1 or 1: where the outer wall (frontal) or the back (lateral) is.
    pub outward: f32,
    /// The diaphragm's height at the outer wall and how far the dome rises inwards.
    pub floor: f32,
    pub rise: f32,
}

impl Lung {
    /// Distance to the border, about: positive inside.
    pub fn depth(&self, x: f32, y: f32) -> f32 {
        (self.floor_at(x) - y).min(self.wall_depth(x, y))
    }

    /// Distance to the ellipse alone.
    pub fn wall_depth(&self, x: f32, y: f32) -> f32 {
        let (u, v) = self.to_place(x, y);
        // Fuller than an ellipse: |u|³ + |v|³.
        (1.0 - (u.abs().powi(3) + v.abs().powi(3)).cbrt()) * self.half[0]
    }

    /// The diaphragm at `x`.
    pub fn floor_at(&self, x: f32) -> f32 {
        let outward = self.outward * (x - self.centre[0]) / self.half[0];
        let inward = (1.0 - outward).clamp(0.0, 2.0) * 0.5;
        self.floor - self.rise * (1.0 - (1.0 - inward) * (1.0 - inward)).sqrt()
    }

    /// The lowest point of the lung: where fluid gathers first.
    pub fn lowest(&self) -> f32 {
        self.floor - 0.1 * self.rise
    }

    pub fn top(&self) -> f32 {
        self.centre[1] - self.half[1]
    }

    /// −1 to 1 in each direction, outwards and down.
    pub fn at(&self, place: [f32; 2]) -> [f32; 2] {
        [
            self.centre[0] + self.outward * place[0] * self.half[0],
            self.centre[1] + place[1] * self.half[1],
        ]
    }

    pub fn area(&self) -> Area {
        Area::around(self.centre[0], self.centre[1], self.half[0] * 1.2, self.half[1] * 1.2)
    }

    fn to_place(self, x: f32, y: f32) -> (f32, f32) {
        ((x - self.centre[0]) / self.half[0], (y - self.centre[1]) / self.half[1])
    }
}

/// The heart's ellipse, its long axis falling to the picture's right (frontal).
#[derive(Debug, Clone, Copy)]
pub(super) struct Heart {
    pub centre: [f32; 2],
    pub half: [f32; 2],
    pub radians: f32,
}

impl Heart {
    fn depth(&self, x: f32, y: f32) -> f32 {
        let (sin, cos) = self.radians.sin_cos();
        let (dx, dy) = (x - self.centre[0], y - self.centre[1]);
        let u = (cos * dx + sin * dy) / self.half[0];
        let v = (cos * dy - sin * dx) / self.half[1];
        (1.0 - (u * u + v * v).sqrt()) * self.half[1]
    }

    fn paint(&self, canvas: &mut Canvas) {
        let reach = self.half[0].max(self.half[1]) * 1.2;
        canvas.paint(Area::around(self.centre[0], self.centre[1], reach, reach), |x, y, value| {
            let share = soft(self.depth(x, y), 0.07);
            value + share * (0.74 - value).max(0.0)
        });
    }
}

/// A frontal chest: two lungs and a heart.
pub(super) struct Frontal {
    pub lungs: [Lung; 2],
    pub heart: Heart,
}

impl Frontal {
    /// `enlarged` is the factor of an enlarged heart. In an AP view the beam comes from the front
    /// and the patient mostly lies: the heart is a little larger, the lungs lower.
    pub fn new(body: &Body, ap: bool, enlarged: Option<f32>) -> Self {
        let breath = if ap { 0.94 } else { 1.0 };
        let lung = |outward: f32| {
            // The liver lifts the right half of the diaphragm, at the picture's left.
            let lift = if outward < 0.0 { 0.05 } else { 0.0 };
            let height = 0.74 * body.lung_height * breath;
            Lung {
                centre: [outward * 0.44 * body.width + body.scoliosis, -0.06],
                half: [0.35 * body.width, height],
                outward,
                floor: -0.06 + 0.80 * height - lift,
                rise: 0.2,
            }
        };
        let lungs = [lung(-1.0), lung(1.0)];
        let factor = body.heart * enlarged.unwrap_or(1.0) * if ap { 1.05 } else { 1.0 };
        let base = lungs[1].floor - 0.1;
        let heart = Heart {
            centre: [0.09 + 0.12 * (factor - 1.0), base - 0.2 * factor],
            half: [0.29 * factor, 0.235 * factor.sqrt()],
            radians: 0.55,
        };
        Self { lungs, heart }
    }

    pub fn paint(&self, canvas: &mut Canvas, body: &Body, ap: bool, relief: &Relief) {
        paint_torso(canvas, body);
        for lung in &self.lungs {
            paint_lung(canvas, lung, relief);
            paint_vessels(canvas, lung, relief);
        }
        self.paint_abdomen(canvas, body);
        self.paint_mediastinum(canvas, body);
        self.heart.paint(canvas);
        let bone = 0.125 - 0.0009 * body.age as f32;
        for lung in &self.lungs {
            paint_ribs(canvas, lung, body, bone);
            paint_clavicle(canvas, lung, ap, 1.3 * bone);
            if ap {
                // Arms at the sides leave the shoulder blades over the lungs.
                let x = lung.outward;
                let blade = [[0.66 * x, -0.62], [0.60 * x, -0.3], [0.74 * x, 0.02]];
                canvas.stroke(&blade, 0.05, 0.09);
            }
            if body.female {
                paint_breast(canvas, lung.outward);
            }
        }
    }

    fn paint_abdomen(&self, canvas: &mut Canvas, body: &Body) {
        let area = Area { top: 0.0, ..Area::ALL };
        canvas.paint(area, |x, y, value| {
            let lung = &self.lungs[usize::from(x > 0.0)];
            let share = soft(y - lung.floor_at(x), 0.03) * soft(torso_depth(body, x, y), 0.16);
            value + share * (ABDOMEN - value).max(0.0)
        });
        // Air in the stomach, below the left half of the diaphragm.
        let [x, y] = [self.lungs[1].centre[0] * 0.8, self.lungs[1].floor + 0.12];
        canvas.paint(Area::around(x, y, 0.2, 0.12), |px, py, value| {
            let (u, v) = ((px - x) / 0.16, (py - y) / 0.09);
            value - 0.12 * soft(1.0 - (u * u + v * v).sqrt(), 0.5)
        });
    }

    fn paint_mediastinum(&self, canvas: &mut Canvas, body: &Body) {
        let centre = body.scoliosis;
        let column = Area { left: -0.35, top: -1.6, right: 0.35, bottom: 1.6 };
        canvas.paint(column, |x, y, value| {
            let x = x - centre * (1.0 + (y * 1.6).cos());
            let band = soft(0.13 + 0.03 * soft(y, 1.0) - x.abs(), 0.06);
            let value = value + band * (0.70 - value).max(0.0);
            // Vertebrae: bodies and the gaps between them.
            let disc = 0.5 + 0.5 * (y * 38.0 / body.rib_spacing).cos();
            let spine = soft(0.085 - x.abs(), 0.03) * (0.07 + 0.04 * disc);
            let trachea = soft(0.035 - x.abs(), 0.03) * soft(-0.24 - y, 0.1) * 0.13;
            value + spine - trachea
        });
        // The aortic arch grows with age.
        let radius = 0.05 + 0.0006 * body.age as f32;
        let [x, y] = [centre + 0.12, -0.27];
        canvas.paint(Area::around(x, y, 0.16, 0.16), |px, py, value| {
            let distance = ((px - x).powi(2) + (py - y).powi(2)).sqrt();
            value + soft(radius - distance, 0.04) * (0.74 - value).max(0.0)
        });
    }
}

/// Distance to the skin: the neck, the slope of the shoulders, then the chest wall.
fn torso_depth(body: &Body, x: f32, y: f32) -> f32 {
    0.26 + (0.70 * body.width - 0.02 * y) * soft(y + 0.80, 0.34) - x.abs()
}

fn paint_torso(canvas: &mut Canvas, body: &Body) {
    canvas.paint(Area::ALL, |x, y, _| {
        let depth = torso_depth(body, x, y);
        let thickness = FLESH * body.flesh * (0.88 + 0.12 * soft(depth - 0.2, 0.6));
        thickness * soft(depth, 0.05) + 0.03
    });
}

/// Air takes the place of flesh; more of it in the middle of the lung.
fn paint_lung(canvas: &mut Canvas, lung: &Lung, relief: &Relief) {
    canvas.paint(lung.area(), |x, y, value| {
        let depth = lung.depth(x, y);
        let share = soft(depth, 0.05) * (0.75 + 0.25 * soft(depth - 0.08, 0.2));
        let texture = 0.035 * relief.at(x, y, 9.0) + 0.025 * relief.at(y, x, 21.0);
        value + share * (LUNG + texture - value)
    });
}

/// Vessels fan out from the root of the lung and thin out.
fn paint_vessels(canvas: &mut Canvas, lung: &Lung, relief: &Relief) {
    let root = lung.at([-0.72, 0.02]);
    canvas.paint(Area::around(root[0], root[1], 0.16, 0.2), |x, y, value| {
        let (u, v) = ((x - root[0]) / 0.11, (y - root[1]) / 0.17);
        value + 0.12 * soft(0.7 - (u * u + v * v).sqrt(), 0.9)
    });
    for branch in 0..7 {
        let turn = -1.25 + 0.42 * branch as f32 + 0.2 * relief.at(branch as f32, lung.outward, 3.7);
        let mut point = [root[0] + lung.outward * 0.05 * turn.cos(), root[1] + 0.09 * turn.sin()];
        for piece in 0..4 {
            let bend = turn + 0.25 * relief.at(piece as f32, branch as f32 * lung.outward, 2.3);
            let length = 0.13 * lung.half[1] / 0.74;
            let next = [
                point[0] + lung.outward * length * bend.cos(),
                point[1] + length * 1.15 * bend.sin(),
            ];
            if lung.depth(next[0], next[1]) > 0.03 {
                let fading = 1.0 - 0.22 * piece as f32;
                canvas.stroke(&[point, next], 0.020 * fading, 0.085 * fading);
            }
            point = next;
        }
    }
}

/// Ribs run from the spine outwards, turn at the wall and fall.
fn paint_ribs(canvas: &mut Canvas, lung: &Lung, body: &Body, strength: f32) {
    let reach = lung.half[0] * 2.08;
    for rib in 0..9 {
        let start = -0.74 + 0.142 * body.rib_spacing * rib as f32;
        let slope = body.rib_slope * (0.10 + 0.018 * rib as f32);
        let curve = |t: f32| start - 0.30 * slope * t * (1.0 - t) * 4.0 + slope * 1.2 * t * t;
        let thickness = 0.030;
        let area = Area {
            left: if lung.outward < 0.0 { -reach - 0.08 } else { 0.06 },
            top: start - 0.16,
            right: if lung.outward < 0.0 { -0.06 } else { reach + 0.08 },
            bottom: start + 1.4 * slope + 0.1,
        };
        canvas.paint(area, |x, y, value| {
            let t = (x * lung.outward - 0.07) / reach;
            let away = (y - curve(t.clamp(0.0, 1.0))).abs();
            // Hard rims, spongy inside; outside the lung hardly seen.
            let rim = 0.75 + 0.25 * soft(away - 0.5 * thickness, 0.5 * thickness);
            let seen = soft(lung.wall_depth(x, y) + 0.05, 0.06);
            let ends = soft(t, 0.05);
            value + strength * rim * seen * ends * soft(thickness - away, 0.014)
        });
    }
}

fn paint_clavicle(canvas: &mut Canvas, lung: &Lung, ap: bool, strength: f32) {
    let x = lung.outward;
    let lift = if ap { 0.10 } else { 0.0 };
    let line = [
        [0.08 * x, -0.54 - lift],
        [0.3 * x, -0.57 - lift],
        [0.5 * x, -0.65 - lift],
        [0.78 * x, -0.68 - lift],
    ];
    canvas.stroke(&line, 0.035, strength);
}

fn paint_breast(canvas: &mut Canvas, outward: f32) {
    let [x, y] = [0.47 * outward, 0.22];
    canvas.paint(Area::around(x, y, 0.4, 0.42), |px, py, value| {
        let (u, v) = ((px - x) / 0.36, (py - y) / 0.33);
        // The lower fold is sharp, the upper border is not.
        let width = if v > 0.0 { 0.12 } else { 0.9 };
        value + 0.085 * soft(0.9 - (u * u + v * v).sqrt(), width)
    });
}

/// A lateral chest, the back at the picture's right.
pub(super) struct Lateral {
    pub lung: Lung,
    pub heart: Heart,
}

impl Lateral {
    pub fn new(body: &Body, enlarged: Option<f32>) -> Self {
        let height = 0.74 * body.lung_height;
        let lung = Lung {
            centre: [0.0, -0.06],
            half: [0.60 * body.width, height],
            outward: 1.0,
            floor: -0.06 + 0.86 * height,
            rise: 0.36,
        };
        let factor = body.heart * enlarged.unwrap_or(1.0);
        let heart = Heart {
            centre: [-0.30 + 0.22 * (factor - 1.0), 0.19 - 0.05 * (factor - 1.0)],
            half: [0.27 * factor, 0.19 * factor],
            radians: 0.9,
        };
        Self { lung, heart }
    }

    pub fn paint(&self, canvas: &mut Canvas, body: &Body, relief: &Relief) {
        let torso_depth = |x: f32, y: f32| {
            0.30 + (0.50 * body.width + 0.05 * y) * soft(y + 0.85, 0.3) - (x - 0.04).abs()
        };
        canvas
            .paint(Area::ALL, |x, y, _| FLESH * body.flesh * soft(torso_depth(x, y), 0.06) + 0.03);
        paint_lung(canvas, &self.lung, relief);
        let lung = &self.lung;
        canvas.paint(Area { top: -0.2, ..Area::ALL }, |x, y, value| {
            let below = soft(y - lung.floor_at(x), 0.04) * soft(torso_depth(x, y), 0.16);
            value + below * (ABDOMEN - value).max(0.0)
        });
        self.paint_shoulders_and_roots(canvas);
        self.heart.paint(canvas);
        self.paint_bones(canvas, body);
    }

    fn paint_shoulders_and_roots(&self, canvas: &mut Canvas) {
        canvas.paint(Area { left: -0.7, top: -1.6, right: 0.8, bottom: -0.3 }, |x, y, value| {
            let arms = soft(-0.52 - y - 0.25 * x.abs(), 0.3);
            value + arms * (0.66 - value).max(0.0) * 0.8
        });
        canvas.paint(Area::around(0.05, -0.08, 0.2, 0.2), |x, y, value| {
            let (u, v) = ((x - 0.05) / 0.15, (y + 0.08) / 0.13);
            value + 0.13 * soft(0.8 - (u * u + v * v).sqrt(), 0.8)
        });
        canvas.stroke(&[[0.10, -0.9], [0.12, -0.5], [0.08, -0.15]], 0.045, -0.10);
    }

    fn paint_bones(&self, canvas: &mut Canvas, body: &Body) {
        let bone = 0.125 - 0.0009 * body.age as f32;
        let bend = 0.06 + 0.001 * body.age as f32;
        let column = Area { left: 0.3, top: -1.2, right: 0.85, bottom: 1.2 };
        canvas.paint(column, |x, y, value| {
            let x = x - (0.55 * body.width - bend * y * y);
            let disc = 0.5 + 0.5 * (y * 38.0 / body.rib_spacing).cos();
            value + soft(0.085 - x.abs(), 0.03) * bone * (0.9 + 0.5 * disc)
        });
        for rib in 0..8 {
            let start = -0.62 + 0.15 * body.rib_spacing * rib as f32;
            let fall = body.rib_slope * 0.32;
            let line = [
                [0.52 * body.width, start],
                [0.1, start + 0.4 * fall],
                [-0.35 * body.width, start + fall],
            ];
            canvas.stroke(&line, 0.03, 0.5 * bone);
        }
        let front = -0.60 * body.width;
        canvas.stroke(&[[front + 0.08, -0.55], [front, -0.1], [front + 0.02, 0.25]], 0.035, bone);
    }
}
