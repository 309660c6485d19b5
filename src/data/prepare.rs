//! From a resized image to the numbers that the model sees.
//!
//! In this order: percentiles become 0 and 1; random changes; the scale of `data.image.normalize`.
//! What a scale needs to know of an image (percentiles, mean, deviation) is taken from the resized
//! image before it is changed, and only from what the image fills: neither a letterbox's bars nor a
//! random change moves it.
//!
//! Bars, and what a rotation or a shift uncovers, are black. Under `per_image` they have the image's
//! mean instead, which becomes 0: black may lie many standard deviations from the mean of a bright
//! image with little contrast, and the bars would outweigh what it shows.

use super::area::Area;
use super::augment::{self, View};
use super::config::{AugmentConfig, ImageConfig};
use super::image::Samples;
use super::normalize::{self, Scale};
use super::resize::Fitted;
use crate::random::stream;
use rand_chacha::ChaCha8Rng;

/// An image at the model's size.
#[derive(Debug, Clone, PartialEq)]
pub struct Resized {
    /// `[planes, height, width]`.
    pub levels: Vec<f32>,
    /// Height and width.
    pub size: [usize; 2],
    /// What the image fills; the rest is padding.
    pub content: Area,
    /// The level of the padding, and of what a warp uncovers: 0 until [`Resized::pad`] says otherwise.
    pub padding: f32,
    /// What counts as black and as white.
    pub range: [f32; 2],
}

impl Resized {
    /// One plane or more of levels from 0 (black) to 1 (white).
    pub fn unit(levels: Vec<f32>, size: [usize; 2], content: Area) -> Self {
        Self { levels, size, content, padding: 0.0, range: [0.0, 1.0] }
    }

    /// Samples as they were resized or cached: integers become 0 (black) to 1 (white); numbers of
    /// arrays stay as they are, and their least and greatest count as black and white.
    pub fn of(image: Fitted) -> Self {
        let Fitted { size, samples, content, .. } = image;
        let levels = match samples {
            Samples::U8(values) => values.iter().map(|&value| f32::from(value) / 255.0).collect(),
            Samples::U16(values) => {
                values.iter().map(|&value| f32::from(value) / 65535.0).collect()
            }
            Samples::F32(values) => {
                let image = Self::unit(values, size, content);
                let least = image.inside().flatten().copied().fold(f32::INFINITY, f32::min);
                let most = image.inside().flatten().copied().fold(f32::NEG_INFINITY, f32::max);
                return Self { range: [least, most], ..image };
            }
        };
        Self::unit(levels, size, content)
    }

    /// `[height, width]` each.
    pub(super) fn planes_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        self.levels.chunks_exact_mut(self.size[0] * self.size[1])
    }

    /// The rows of the content, of every plane.
    pub(super) fn inside(&self) -> impl Iterator<Item = &[f32]> {
        let (content, width) = (self.content, self.size[1]);
        let planes = self.levels.chunks_exact(self.size[0] * width);
        planes.flat_map(move |plane| content.rows(plane, width))
    }

    /// The rows of the content, of every plane.
    pub(super) fn inside_mut(&mut self) -> impl Iterator<Item = &mut [f32]> {
        let (content, width) = (self.content, self.size[1]);
        let planes = self.levels.chunks_exact_mut(self.size[0] * width);
        planes.flat_map(move |plane| content.rows_mut(plane, width))
    }

    /// Gives everything that the image does not fill this level.
    pub(super) fn pad(&mut self, level: f32) {
        let Area { top, left, height, width } = self.content;
        let across = self.size[1];
        for plane in self.planes_mut() {
            for (row, line) in plane.chunks_exact_mut(across).enumerate() {
                if (top..top + height).contains(&row) {
                    line[..left].fill(level);
                    line[left + width..].fill(level);
                } else {
                    line.fill(level);
                }
            }
        }
        self.padding = level;
    }

    /// Brings the content's levels from one range to another.
    pub(super) fn rescale(&mut self, [from_low, from_high]: [f32; 2], [to_low, to_high]: [f32; 2]) {
        let span = from_high - from_low;
        // A flat image is black.
        let gain = if span > 0.0 { (to_high - to_low) / span } else { 0.0 };
        for row in self.inside_mut() {
            row.iter_mut().for_each(|level| *level = (*level - from_low) * gain + to_low);
        }
    }
}

/// What random changes are drawn from: nothing else, so that neither the number of workers nor a
/// resumed run changes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The run's seed.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// The image in its data set, or the batch in its epoch.
    pub number: usize,
}

impl Place {
    /// The stream of `purpose`: each operation has its own, so that one setting does not change
    /// what another draws.
    pub(super) fn stream(self, purpose: &str) -> ChaCha8Rng {
        stream(self.seed, purpose, &[self.epoch, self.number as u64])
    }
}

/// What the model sees of an image: `[channels, height, width]`. `augment` is absent in validation.
///
/// `config` and `augment` must have passed [`check_normalize`](super::check_normalize) and
/// [`check_augment`](super::check_augment).
///
/// # Panics
/// If the levels are not whole planes of the image's size, or the content lies outside.
pub fn prepare(
    image: Resized,
    config: &ImageConfig,
    augment: Option<&AugmentConfig>,
    place: Place,
) -> Vec<f32> {
    changed(image, config, |image| {
        if let Some(augment) = augment {
            augment::apply(image, augment, place);
        }
    })
}

/// [`prepare`] without random changes, of an image that is looked at in another way.
pub(super) fn prepare_view(image: Resized, config: &ImageConfig, view: View) -> Vec<f32> {
    changed(image, config, |image| view.apply(image))
}

fn changed(
    mut image: Resized,
    config: &ImageConfig,
    change: impl FnOnce(&mut Resized),
) -> Vec<f32> {
    normalize::stretch(&mut image, &config.normalize);
    let scale = Scale::of(&image, &config.normalize, config.channels);
    if let Some(level) = scale.padding() {
        image.pad(level);
    }
    change(&mut image);
    scale.apply(image, config.channels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> ImageConfig {
        toml::from_str(text).expect("reads")
    }

    fn fitted(samples: Samples, planes: usize) -> Resized {
        let content = Area::whole([32, 32]);
        Resized::of(Fitted { size: [32, 32], planes, samples, content })
    }

    const PLACE: Place = Place { seed: 1, epoch: 2, number: 3 };

    /// Wide, so that a letterbox leaves bars above and below.
    fn letterboxed() -> Resized {
        let content = Area { top: 8, left: 0, height: 16, width: 32 };
        let mut image = Resized::unit(vec![0.0; 32 * 32], [32, 32], content);
        for (row, line) in image.inside_mut().enumerate() {
            for (column, level) in line.iter_mut().enumerate() {
                *level = 0.2 + 0.02 * row as f32 + 0.01 * column as f32;
            }
        }
        image
    }

    #[test]
    fn the_bars_of_a_letterbox_stay_black_whatever_happens_to_the_image() {
        let all = "brightness = 0.5\ncontrast = 0.9\ngamma = 0.5\nnoise = 0.3\nblur = 3.0\n\
                   clahe = { probability = 1.0 }";
        let augment: AugmentConfig = toml::from_str(all).expect("reads");
        for (normalize, black) in [
            ("'unit'", 0.0),
            ("'xrv'", -1024.0),
            ("{ mean = 0.4, std = 0.5 }", -0.8),
            ("{ percentile = [5, 95] }", 0.0),
        ] {
            let config = config(&format!("size = [32, 32]\nnormalize = {normalize}"));
            for number in 0..20 {
                let place = Place { number, ..PLACE };
                let seen = prepare(letterboxed(), &config, Some(&augment), place);
                let changed = seen[8 * 32..24 * 32].iter().any(|&value| value != black);
                assert!(changed, "{normalize}");
                for bar in [&seen[..8 * 32], &seen[24 * 32..]] {
                    assert!(bar.iter().all(|&value| value == black), "{normalize}");
                }
            }
        }
    }

    /// Bright and of little contrast, so that black lies 17 deviations below the mean.
    fn bright() -> Resized {
        let content = Area { top: 8, left: 0, height: 16, width: 32 };
        let mut image = Resized::unit(vec![0.0; 32 * 32], [32, 32], content);
        for (row, line) in image.inside_mut().enumerate() {
            for (column, level) in line.iter_mut().enumerate() {
                *level = if (row + column) % 2 == 0 { 0.8 } else { 0.9 };
            }
        }
        image
    }

    #[test]
    fn the_bars_of_a_letterbox_have_the_mean_of_an_image_that_is_standardised() {
        let config = config("size = [32, 32]\nnormalize = 'per_image'");
        let black = (0.0 - 0.85) / 0.05;
        assert_eq!(f32::round(black), -17.0);
        let seen = prepare(bright(), &config, None, PLACE);
        let (bars, inside) = ([&seen[..8 * 32], &seen[24 * 32..]].concat(), &seen[8 * 32..24 * 32]);
        assert!(bars.iter().all(|&value| value == 0.0));
        assert!(inside.iter().all(|value| (value.abs() - 1.0).abs() < 1e-4), "{inside:?}");
    }

    #[test]
    fn what_a_warp_uncovers_of_a_standardised_image_is_its_mean_and_nothing_is_darker_than_it() {
        let config = config("size = [32, 32]\nnormalize = 'per_image'");
        let augment = "rotate_degrees = 45\ntranslate = 0.3\nscale = 0.3\nshear_degrees = 10";
        let augment: AugmentConfig = toml::from_str(augment).expect("reads");
        for number in 0..50 {
            let place = Place { number, ..PLACE };
            let seen = prepare(bright(), &config, Some(&augment), place);
            // What is interpolated lies between the image's own levels and the mean.
            assert!(seen.iter().all(|value| value.abs() < 1.001), "{number}");
            let uncovered = seen.iter().filter(|&&value| value == 0.0).count();
            assert!(uncovered > 32 * 32 / 4, "{number}: {uncovered}");
        }
        let levels = "brightness = 0.2\ncontrast = 0.2\nnoise = 0.01\nblur = 1.0\n\
                      clahe = { probability = 1.0 }";
        let augment: AugmentConfig = toml::from_str(levels).expect("reads");
        let seen = prepare(bright(), &config, Some(&augment), PLACE);
        let bars = [&seen[..8 * 32], &seen[24 * 32..]].concat();
        assert!(bars.iter().all(|&value| value == 0.0));
    }

    #[test]
    fn arrays_are_moved_alike_whether_their_levels_are_changed_or_not() {
        // Numbers far from 0, so that a border blended on another scale would show.
        let content = Area { top: 8, left: 0, height: 16, width: 32 };
        let inside = |place: usize| (8 * 32..24 * 32).contains(&place);
        let level = |place| if inside(place) { 1000.0 + (place % 7) as f32 } else { 0.0 };
        let samples = Samples::F32((0..32 * 32).map(level).collect());
        let array = Fitted { size: [32, 32], planes: 1, samples, content };
        let seen = |augment: &str, number| {
            let augment: AugmentConfig = toml::from_str(augment).expect("reads");
            let grey = config("size = [32, 32]");
            prepare(Resized::of(array.clone()), &grey, Some(&augment), Place { number, ..PLACE })
        };
        for number in 0..20 {
            let moved = seen("rotate_degrees = 30", number);
            // So little that no level changes by more than rounding.
            let changed = seen("rotate_degrees = 30\nbrightness = 1e-7", number);
            assert!(moved.iter().any(|value| (100.0..900.0).contains(value)), "{number}");
            for (moved, changed) in moved.iter().zip(&changed) {
                assert!((moved - changed).abs() < 0.01, "{number}: {moved} and {changed}");
            }
        }
    }

    #[test]
    fn eight_and_sixteen_bits_reach_the_model_with_all_their_levels() {
        let grey = config("size = [32, 32]");
        let eight: Vec<u8> = (0..1024).map(|place| (place % 256) as u8).collect();
        let image = fitted(Samples::U8(eight.clone()), 1);
        let seen = prepare(image, &grey, None, PLACE);
        assert!(seen.iter().zip(eight).all(|(&x, value)| (x * 255.0).round() == f32::from(value)));
        let sixteen: Vec<u16> = (0..1024).map(|place| 64000 + place as u16).collect();
        let image = fitted(Samples::U16(sixteen.clone()), 1);
        let seen = prepare(image, &grey, None, PLACE);
        assert!(
            seen.iter().zip(sixteen).all(|(&x, value)| (x * 65535.0).round() == f32::from(value))
        );
    }

    #[test]
    fn arrays_keep_their_numbers_and_are_changed_within_their_own_range() {
        let numbers: Vec<f32> = (0..2048).map(|place| place as f32 - 500.0).collect();
        let image = || fitted(Samples::F32(numbers.clone()), 2);
        let two = config("size = [32, 32]\nchannels = 2");
        assert_eq!(prepare(image(), &two, None, PLACE), numbers);
        let augment: AugmentConfig = toml::from_str("gamma = 0.5").expect("reads");
        let changed = prepare(image(), &two, Some(&augment), PLACE);
        assert_ne!(changed, numbers);
        // A power keeps black, white and the order of all between.
        let close = |ours: f32, theirs: f32| (ours - theirs).abs() < 0.01;
        assert!(close(changed[0], -500.0) && close(changed[2047], 1547.0), "{:?}", &changed[..3]);
        assert!(changed.is_sorted());
    }

    #[test]
    fn the_same_place_gives_the_same_image_and_another_epoch_another() {
        let augment: AugmentConfig =
            toml::from_str("noise = 0.1\nrotate_degrees = 10").expect("reads");
        let grey = config("size = [32, 32]");
        let at = |place| prepare(letterboxed(), &grey, Some(&augment), place);
        assert_eq!(at(PLACE), at(PLACE));
        assert_ne!(at(PLACE), at(Place { epoch: 3, ..PLACE }));
        assert_ne!(at(PLACE), at(Place { number: 4, ..PLACE }));
        assert_ne!(at(PLACE), at(Place { seed: 2, ..PLACE }));
    }
}
