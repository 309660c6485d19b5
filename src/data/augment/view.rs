//! Fixed changes: the ways in which an image is looked at to predict it more than once.

use super::super::config::AugmentConfig;
use super::super::prepare::Resized;
use super::affine::Affine;
use super::move_by;

/// A way to look at an image.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct View {
    /// Left and right exchanged.
    pub flip: bool,
    /// To the right and down, as shares of width and height.
    pub shift: [f64; 2],
}

impl View {
    /// The image as it is, and the ways in which training has changed it and that hardly change what
    /// it shows: mirrored, where `horizontal_flip` is above 0, and shifted to the four sides by half of
    /// `translate`, where that is.
    pub fn all(config: &AugmentConfig) -> Vec<Self> {
        let flipped =
            (config.horizontal_flip > 0.0).then(|| Self { flip: true, ..Self::default() });
        let by = config.translate / 2.0;
        let shifts = [[by, 0.0], [-by, 0.0], [0.0, by], [0.0, -by]];
        let shifted = shifts.into_iter().filter(|_| by > 0.0);
        let shifted = shifted.map(|shift| Self { shift, ..Self::default() });
        [Self::default()].into_iter().chain(flipped).chain(shifted).collect()
    }

    /// Changes an image so.
    pub(in super::super) fn apply(self, image: &mut Resized) {
        let Self { flip, shift } = self;
        move_by(image, &Affine { flip, shift, ..Affine::STILL }, None);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::area::Area;
    use super::*;

    fn config(text: &str) -> AugmentConfig {
        toml::from_str(text).expect("reads")
    }

    #[test]
    fn an_image_is_looked_at_as_training_has_changed_it() {
        assert_eq!(View::all(&config("rotate_degrees = 5.0\nnoise = 0.1")), [View::default()]);
        assert_eq!(View::all(&config("horizontal_flip = 0.5")).len(), 2);
        let all = View::all(&config("horizontal_flip = 0.5\ntranslate = 0.1"));
        assert_eq!(all.len(), 6);
        assert!(all.iter().all(|view| view.shift.iter().all(|by| by.abs() <= 0.05)));
    }

    #[test]
    fn views_move_pixels_and_change_none() {
        let levels: Vec<f32> = (0..32).map(|place| place as f32 / 32.0).collect();
        let look = |view: View| {
            let mut image = Resized::unit(levels.clone(), [4, 8], Area::whole([4, 8]));
            view.apply(&mut image);
            image.levels
        };
        assert_eq!(look(View::default()), levels);
        let flipped = look(View { flip: true, ..View::default() });
        for (row, flipped) in levels.chunks(8).zip(flipped.chunks(8)) {
            assert!(row.iter().rev().zip(flipped).all(|(a, b)| (a - b).abs() < 1e-6));
        }
        // An eighth of the width is one pixel; what is uncovered has the level of padding.
        let shifted = look(View { shift: [0.125, 0.0], ..View::default() });
        for (row, shifted) in levels.chunks(8).zip(shifted.chunks(8)) {
            assert_eq!(shifted[0], 0.0);
            assert!(row[..7].iter().zip(&shifted[1..]).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}
