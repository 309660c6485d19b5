//! Rotation, translation, scaling, shearing and mirroring.

use rand::RngExt;

use super::super::config::AugmentConfig;
use super::super::prepare::Place;
use super::within;

/// A mirroring, shear, scaling, rotation and shift of an image about its centre, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Affine {
    /// Counter-clockwise as seen.
    pub radians: f64,
    /// Above 1 enlarges.
    pub scale: f64,
    /// To the right and down, as shares of width and height.
    pub shift: [f64; 2],
    /// Rows above the centre move right by this many pixels per pixel, those below left.
    pub shear: f64,
    /// Left and right exchanged, before all else.
    pub flip: bool,
}

impl Affine {
    /// Changes nothing.
    pub const STILL: Self =
        Self { radians: 0.0, scale: 1.0, shift: [0.0; 2], shear: 0.0, flip: false };

    pub fn draw(config: &AugmentConfig, place: Place) -> Self {
        let mut random = place.stream("augment");
        // All numbers are always drawn, so that one setting does not change what another draws.
        let radians = within(&mut random, config.rotate_degrees).to_radians();
        let mut shift = || within(&mut random, config.translate);
        let shift = [shift(), shift()];
        let scale = 1.0 + within(&mut random, config.scale);
        let flip = random.random::<f64>() < config.horizontal_flip;
        let shear = within(&mut place.stream("augment/shear"), config.shear_degrees);
        Self { radians, scale, shift, shear: shear.to_radians().tan(), flip }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(config: &AugmentConfig, epoch: u64, number: usize) -> Affine {
        Affine::draw(config, Place { seed: 1, epoch, number })
    }

    #[test]
    fn no_settings_change_nothing() {
        assert_eq!(draw(&AugmentConfig::default(), 3, 4), Affine::STILL);
    }

    #[test]
    fn draws_stay_within_their_settings_and_differ_by_epoch_and_image() {
        let config = AugmentConfig {
            rotate_degrees: 10.0,
            translate: 0.1,
            scale: 0.2,
            shear_degrees: 5.0,
            horizontal_flip: 0.5,
            ..AugmentConfig::default()
        };
        let drawn: Vec<Affine> =
            (0..400).map(|place| draw(&config, place / 20, place as usize % 20)).collect();
        for (place, affine) in drawn.iter().enumerate() {
            assert!(affine.radians.abs() <= 10.0_f64.to_radians());
            assert!(affine.shift.iter().all(|shift| shift.abs() <= 0.1));
            assert!((0.8..=1.2).contains(&affine.scale));
            assert!(affine.shear.abs() <= 5.0_f64.to_radians().tan());
            assert!(drawn[..place].iter().all(|other| other != affine));
        }
        let flips = drawn.iter().filter(|affine| affine.flip).count();
        assert!((150..250).contains(&flips), "{flips}");
    }

    #[test]
    fn one_setting_does_not_change_what_another_draws() {
        let few = AugmentConfig { rotate_degrees: 10.0, ..AugmentConfig::default() };
        let more =
            AugmentConfig { translate: 0.1, shear_degrees: 3.0, horizontal_flip: 0.5, ..few };
        assert_eq!(draw(&few, 2, 3).radians, draw(&more, 2, 3).radians);
    }
}
