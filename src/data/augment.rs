//! Random changes to training images: one affine warp, drawn from (seed, epoch, image).

use rand::RngExt;

use super::config::AugmentConfig;
use crate::random::stream;

/// A rotation, scaling, shift and perhaps mirroring of an image about its centre.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Warp {
    /// Counter-clockwise as seen.
    pub radians: f64,
    /// Above 1 enlarges.
    pub scale: f64,
    /// To the right and down, as shares of width and height.
    pub shift: [f64; 2],
    /// Left and right exchanged, before all else.
    pub flip: bool,
}

impl Warp {
    /// The warp of image `index` in `epoch`: the same whoever draws it, whenever.
    pub fn draw(config: &AugmentConfig, seed: u64, epoch: u64, index: usize) -> Self {
        let mut random = stream(seed, "augment", &[epoch, index as u64]);
        // All numbers are always drawn, so that one setting does not change what another draws.
        let mut within = |most: f64| most * (2.0 * random.random::<f64>() - 1.0);
        let radians = within(config.rotate_degrees).to_radians();
        let shift = [within(config.translate), within(config.translate)];
        let scale = 1.0 + within(config.scale);
        let flip = random.random::<f64>() < config.horizontal_flip;
        Self { radians, scale, shift, flip }
    }

    /// The warped plane, `[height, width]`: bilinear, black where nothing was.
    pub fn apply(&self, plane: &[f32], [height, width]: [usize; 2]) -> Vec<f32> {
        let (sin, cos) = self.radians.sin_cos();
        let centre = [(width as f64 - 1.0) / 2.0, (height as f64 - 1.0) / 2.0];
        let shift = [self.shift[0] * width as f64, self.shift[1] * height as f64];
        let mirror = if self.flip { -1.0 } else { 1.0 };
        let source = Plane { values: plane, height, width };
        let mut warped = Vec::with_capacity(plane.len());
        for row in 0..height {
            let v = (row as f64 - centre[1] - shift[1]) / self.scale;
            for column in 0..width {
                let u = (column as f64 - centre[0] - shift[0]) / self.scale;
                // Back through the rotation (y points down), then through the mirror.
                let x = mirror * (cos * u - sin * v) + centre[0];
                let y = sin * u + cos * v + centre[1];
                warped.push(source.between(x, y));
            }
        }
        warped
    }
}

struct Plane<'a> {
    values: &'a [f32],
    height: usize,
    width: usize,
}

impl Plane<'_> {
    /// Bilinear interpolation.
    fn between(&self, x: f64, y: f64) -> f32 {
        let (left, top) = (x.floor(), y.floor());
        let (s, t) = ((x - left) as f32, (y - top) as f32);
        let (left, top) = (left as i64, top as i64);
        let upper = self.at(left, top) * (1.0 - s) + self.at(left + 1, top) * s;
        let lower = self.at(left, top + 1) * (1.0 - s) + self.at(left + 1, top + 1) * s;
        upper * (1.0 - t) + lower * t
    }

    fn at(&self, x: i64, y: i64) -> f32 {
        let inside = (0..self.width as i64).contains(&x) && (0..self.height as i64).contains(&y);
        if inside { self.values[y as usize * self.width + x as usize] } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STILL: Warp = Warp { radians: 0.0, scale: 1.0, shift: [0.0, 0.0], flip: false };

    fn numbered(height: usize, width: usize) -> Vec<f32> {
        (0..height * width).map(|place| place as f32).collect()
    }

    #[test]
    fn no_warp_changes_nothing() {
        let plane = numbered(5, 7);
        assert_eq!(STILL.apply(&plane, [5, 7]), plane);
        let none = AugmentConfig::default();
        assert_eq!(Warp::draw(&none, 3, 1, 4), STILL);
    }

    #[test]
    fn a_flip_exchanges_left_and_right() {
        let flipped = Warp { flip: true, ..STILL }.apply(&numbered(2, 3), [2, 3]);
        assert_eq!(flipped, [2.0, 1.0, 0.0, 5.0, 4.0, 3.0]);
    }

    #[test]
    fn a_quarter_turn_is_counter_clockwise() {
        let turned =
            Warp { radians: std::f64::consts::FRAC_PI_2, ..STILL }.apply(&numbered(3, 3), [3, 3]);
        let expected = [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0];
        for (ours, theirs) in turned.iter().zip(expected) {
            assert!((ours - theirs).abs() < 1e-5, "{turned:?}");
        }
    }

    #[test]
    fn a_shift_moves_right_and_down_and_leaves_black() {
        let shifted = Warp { shift: [1.0 / 3.0, 0.5], ..STILL }.apply(&numbered(2, 3), [2, 3]);
        for (ours, theirs) in shifted.iter().zip([0.0, 0.0, 0.0, 0.0, 0.0, 1.0]) {
            assert!((ours - theirs).abs() < 1e-5, "{shifted:?}");
        }
    }

    #[test]
    fn scaling_up_keeps_the_centre_and_spreads_around_it() {
        let mut plane = vec![0.0; 49];
        plane[3 * 7 + 5] = 1.0;
        let scaled = Warp { scale: 1.5, ..STILL }.apply(&plane, [7, 7]);
        let brightest = (0..49).max_by(|&a, &b| scaled[a].total_cmp(&scaled[b]));
        assert_eq!(brightest, Some(3 * 7 + 6));
    }

    #[test]
    fn draws_stay_within_their_settings_and_differ_by_epoch_and_image() {
        let config = AugmentConfig {
            rotate_degrees: 10.0,
            translate: 0.1,
            scale: 0.2,
            horizontal_flip: 0.5,
            ..AugmentConfig::default()
        };
        let warps: Vec<Warp> =
            (0..400).map(|place| Warp::draw(&config, 1, place / 20, place as usize % 20)).collect();
        for (place, warp) in warps.iter().enumerate() {
            assert!(warp.radians.abs() <= 10.0_f64.to_radians());
            assert!(warp.shift.iter().all(|shift| shift.abs() <= 0.1));
            assert!((0.8..=1.2).contains(&warp.scale));
            assert!(warps[..place].iter().all(|other| other != warp));
        }
        let flips = warps.iter().filter(|warp| warp.flip).count();
        assert!((150..250).contains(&flips), "{flips}");
    }

    #[test]
    fn one_setting_does_not_change_what_another_draws() {
        let few = AugmentConfig { rotate_degrees: 10.0, ..AugmentConfig::default() };
        let more = AugmentConfig { translate: 0.1, horizontal_flip: 0.5, ..few };
        let radians = |config| Warp::draw(config, 1, 2, 3).radians;
        assert_eq!(radians(&few), radians(&more));
    }
}
