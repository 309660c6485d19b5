//! How grey levels become the numbers that the model sees.

use super::config::{ImageConfig, Normalize, NormalizeKind, NormalizeNumbers, PerChannel};
use super::prepare::Resized;
use crate::fault::{Fault, fault};
use crate::screen::counted;

/// What is taken off and multiplied, per channel: the model sees (level − black) · gain.
pub(super) struct Scale {
    /// One pair for all channels, or one for each.
    channels: Vec<[f32; 2]>,
    /// Whether they are the image's own mean and deviation.
    of_image: bool,
}

/// torchxrayvision's models see −1024 to 1024 (its `xrv.datasets.normalize`).
const XRV: f32 = 1024.0;

/// The means and standard deviations of ImageNet's red, green and blue that torchvision's models for
/// it were trained with.
const IMAGENET: [[f64; 3]; 2] = [[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]];

impl Scale {
    /// The scale of this image. For `per_image` mean and deviation are of what the image fills.
    pub fn of(image: &Resized, normalize: &Normalize, channels: usize) -> Self {
        match fixed(normalize, channels) {
            Some(channels) => Self { channels, of_image: false },
            None => Self { channels: vec![per_image(image)], of_image: true },
        }
    }

    /// The level of padding, where that is not black: for `per_image` the image's mean.
    pub fn padding(&self) -> Option<f32> {
        self.of_image.then(|| self.channels[0][0])
    }

    /// `[channels, height, width]`: each channel is its plane, or the only plane.
    pub fn apply(&self, image: Resized, channels: usize) -> Vec<f32> {
        let pixels = image.size[0] * image.size[1];
        let planes = image.levels.len() / pixels;
        if planes == channels && self.channels == [[0.0, 1.0]] {
            return image.levels;
        }
        let mut seen = Vec::with_capacity(channels * pixels);
        for channel in 0..channels {
            let plane = channel.min(planes - 1) * pixels;
            let [black, gain] = self.channels[channel.min(self.channels.len() - 1)];
            let levels = &image.levels[plane..plane + pixels];
            seen.extend(levels.iter().map(|level| (level - black) * gain));
        }
        seen
    }
}

/// What is taken off and multiplied where that is the same for all images.
fn fixed(normalize: &Normalize, channels: usize) -> Option<Vec<[f32; 2]>> {
    match normalize {
        Normalize::Named(NormalizeKind::Unit) => Some(vec![[0.0, 1.0]]),
        Normalize::Named(NormalizeKind::Xrv) => Some(vec![[0.5, 2.0 * XRV]]),
        Normalize::Named(NormalizeKind::Imagenet) => {
            let of_channels = |numbers: [f64; 3]| match channels {
                1 => PerChannel::All(numbers.iter().sum::<f64>() / 3.0),
                _ => PerChannel::Each(numbers.to_vec()),
            };
            let [mean, std] = IMAGENET.map(|numbers| Some(of_channels(numbers)));
            Some(by_numbers(&NormalizeNumbers { mean, std, percentile: None }))
        }
        Normalize::Named(NormalizeKind::PerImage) => None,
        Normalize::Numbers(numbers) => Some(by_numbers(numbers)),
    }
}

/// What is taken off levels and then multiplied, for each channel or once for all, where that is the same
/// for all images and nothing else is done.
pub fn constant_scale(normalize: &Normalize, channels: usize) -> Option<Vec<[f32; 2]>> {
    match normalize {
        Normalize::Numbers(NormalizeNumbers { percentile: Some(_), .. }) => None,
        normalize => fixed(normalize, channels),
    }
}

/// What black and white become in the first channel, where that is the same for all images.
pub(super) fn fixed_levels(normalize: &Normalize, channels: usize) -> Option<[f32; 2]> {
    let [black, gain] = fixed(normalize, channels)?[0];
    Some([-black * gain, (1.0 - black) * gain])
}

fn by_numbers(numbers: &NormalizeNumbers) -> Vec<[f32; 2]> {
    let (Some(means), Some(stds)) = (&numbers.mean, &numbers.std) else {
        return vec![[0.0, 1.0]];
    };
    let at = |numbers: &PerChannel, channel: usize| match numbers {
        PerChannel::All(number) => *number,
        PerChannel::Each(each) => each[channel.min(each.len() - 1)],
    };
    let count = |numbers: &PerChannel| match numbers {
        PerChannel::All(_) => 1,
        PerChannel::Each(each) => each.len(),
    };
    let channels = count(means).max(count(stds));
    (0..channels).map(|c| [at(means, c) as f32, (1.0 / at(stds, c)) as f32]).collect()
}

/// Mean 0 and standard deviation 1; a flat image becomes 0.
fn per_image(image: &Resized) -> [f32; 2] {
    let (mut count, mut mean) = (0.0, 0.0);
    for row in image.inside() {
        count += row.len() as f64;
        mean += row.iter().map(|&level| f64::from(level)).sum::<f64>();
    }
    mean /= count;
    let square = |&level: &f32| (f64::from(level) - mean).powi(2);
    let variance = image.inside().flatten().map(square).sum::<f64>() / count;
    // Below this, what varies is the rounding of 32-bit numbers.
    let flat = variance.sqrt() <= 1e-6 * mean.abs();
    [mean as f32, if flat { 1.0 } else { (1.0 / variance.sqrt()) as f32 }]
}

/// With `percentile`, brings the image's two percentiles to 0 and 1 and clips what lies outside.
pub(super) fn stretch(image: &mut Resized, normalize: &Normalize) {
    let Normalize::Numbers(NormalizeNumbers { percentile: Some(percents), .. }) = normalize else {
        return;
    };
    let [low, high] = percentiles(image, *percents);
    image.rescale([low, high], [0.0, 1.0]);
    for row in image.inside_mut() {
        row.iter_mut().for_each(|level| *level = level.clamp(0.0, 1.0));
    }
    image.range = [0.0, 1.0];
}

/// The levels below which these percents of the content lie, between two of its levels in
/// proportion (numpy's `percentile` with its default method).
fn percentiles(image: &Resized, percents: [f64; 2]) -> [f32; 2] {
    // Integers in the order of the floating-point numbers are compared faster.
    let mut keys: Vec<i32> = image.inside().flatten().map(|&level| key(level)).collect();
    percents.map(|percent| {
        let place = percent / 100.0 * (keys.len() - 1) as f64;
        let share = place.fract() as f32;
        let (_, lower, above) = keys.select_nth_unstable(place as usize);
        let lower = level(*lower);
        let upper = above.iter().min().map_or(lower, |&upper| level(upper));
        lower + (upper - lower) * share
    })
}

/// An integer that orders as the level does (as [`f32::total_cmp`]).
fn key(level: f32) -> i32 {
    let bits = level.to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}

fn level(key: i32) -> f32 {
    f32::from_bits((key ^ (((key >> 31) as u32) >> 1) as i32) as u32)
}

/// Refuses a scale that cannot be or does not fit the channels.
///
/// # Errors
/// The first fault found.
pub fn check(image: &ImageConfig) -> Result<(), Fault> {
    let numbers = match &image.normalize {
        Normalize::Numbers(numbers) => numbers,
        Normalize::Named(NormalizeKind::Imagenet) if ![1, 3].contains(&image.channels) => {
            let message = format!(
                "\"imagenet\" has numbers for 1 or 3 channels, and images have {}",
                image.channels
            );
            let help = "write `{ mean = […], std = […] }` with one number for each channel";
            return Err(at("", message, help).also("data.image.channels"));
        }
        Normalize::Named(_) => return Ok(()),
    };
    let NormalizeNumbers { mean, std, percentile } = numbers;
    let offered = "write \"unit\", \"per_image\", \"imagenet\", \"xrv\", \
                   `{ mean = 0.5, std = 0.25 }` or `{ percentile = [0.5, 99.5] }`";
    let both = "write both, such as `{ mean = 0.5, std = 0.25 }`";
    match (mean, std) {
        (None, None) if percentile.is_none() => {
            return Err(at("", "`normalize` is empty", offered));
        }
        (Some(_), None) => {
            return Err(at(".mean", "`mean` is given without `std`", both));
        }
        (None, Some(_)) => {
            return Err(at(".std", "`std` is given without `mean`", both));
        }
        _ => {}
    }
    if let Some([low, high]) = percentile
        && !(0.0 <= *low && low < high && *high <= 100.0)
    {
        let message = format!("{low} to {high} is not a range of percentiles");
        let help = "write two numbers from 0 to 100, the smaller first: `percentile = [0.5, 99.5]`";
        return Err(at(".percentile", message, help));
    }
    let any = |number: f64| (number as f32).is_finite();
    let above_0 = |number: f64| number as f32 > 0.0 && any(number) && any(1.0 / number);
    per_channel("mean", mean.as_ref(), image.channels, any, "a number such as 0.5")?;
    per_channel("std", std.as_ref(), image.channels, above_0, "a number above 0, such as 0.25")
}

fn per_channel(
    key: &'static str,
    numbers: Option<&PerChannel>,
    channels: usize,
    fits: impl Fn(f64) -> bool,
    wanted: &str,
) -> Result<(), Fault> {
    let (each, of_all) = match numbers {
        None => return Ok(()),
        Some(PerChannel::All(number)) => (std::slice::from_ref(number), true),
        Some(PerChannel::Each(each)) => (each.as_slice(), false),
    };
    if !of_all && each.len() != channels {
        let (given, channels) = (each.len(), counted(channels, "channel", "channels"));
        let message = format!("`{key}` has a length of {given}, but images have {channels}");
        let help = "write one number for each channel, or one without brackets for all";
        return Err(at(&format!(".{key}"), message, help).also("data.image.channels"));
    }
    match each.iter().position(|number| !fits(*number)) {
        None => Ok(()),
        Some(entry) => {
            let message = format!("`{key}` cannot be {}", each[entry]);
            let entry = if of_all { String::new() } else { format!("[{entry}]") };
            Err(at(&format!(".{key}{entry}"), message, format!("write {wanted}")))
        }
    }
}

/// A fault at a key of `[data.image.normalize]`, or at the whole.
fn at(key: &str, message: impl Into<String>, help: impl Into<String>) -> Fault {
    fault(format!("data.image.normalize{key}"), message, help)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::data::area::Area;

    fn normalize(text: &str) -> Normalize {
        #[derive(Deserialize)]
        struct Table {
            normalize: Normalize,
        }
        toml::from_str::<Table>(&format!("normalize = {text}")).expect("reads").normalize
    }

    fn seen(image: &Resized, text: &str, channels: usize) -> Vec<f32> {
        let normalize = normalize(text);
        let mut image = image.clone();
        stretch(&mut image, &normalize);
        Scale::of(&image, &normalize, channels).apply(image, channels)
    }

    #[derive(Deserialize)]
    struct Fixture {
        size: [usize; 2],
        levels: Vec<f32>,
        percentiles: Vec<Percentile>,
        per_image: Vec<f32>,
        xrv: Vec<f32>,
        imagenet: Vec<f32>,
    }

    #[derive(Deserialize)]
    struct Percentile {
        percents: [f64; 2],
        /// From the lower percentile to the upper.
        span: f32,
        expected: Vec<f32>,
    }

    fn fixture() -> (Fixture, Resized) {
        let text = include_str!("../../tests/fixtures/data_normalize.json");
        let fixture: Fixture = serde_json::from_str(text).expect("the fixture reads");
        let whole = Area::whole(fixture.size);
        let image = Resized::unit(fixture.levels.clone(), fixture.size, whole);
        (fixture, image)
    }

    fn assert_close(ours: &[f32], theirs: &[f32], within: f32) {
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours - theirs).abs() <= within, "{ours} for {theirs}");
        }
    }

    #[test]
    fn percentiles_are_those_of_numpy() {
        let (fixture, image) = fixture();
        assert!(fixture.percentiles.len() >= 4);
        for Percentile { percents: [low, high], span, expected } in fixture.percentiles {
            let ours = seen(&image, &format!("{{ percentile = [{low}, {high}] }}"), 1);
            // The last bit of a level of 1, stretched as the level is.
            assert_close(&ours, &expected, f32::EPSILON / span);
        }
    }

    #[test]
    fn every_image_gets_the_mean_and_deviation_that_numpy_gives_it() {
        let (fixture, image) = fixture();
        assert_close(&seen(&image, "'per_image'", 1), &fixture.per_image, 1e-5);
    }

    #[test]
    fn levels_are_scaled_as_torchxrayvision_and_torchvision_scale_them() {
        let (fixture, image) = fixture();
        assert_close(&seen(&image, "'xrv'", 1), &fixture.xrv, 1e-3);
        let text = "{ mean = [0.485, 0.456, 0.406], std = [0.229, 0.224, 0.225] }";
        assert_close(&seen(&image, text, 3), &fixture.imagenet, 1e-5);
        assert_close(&seen(&image, "'imagenet'", 3), &fixture.imagenet, 1e-5);
    }

    #[test]
    fn one_channel_has_the_averages_of_imagenets_three() {
        let (fixture, image) = fixture();
        let grey = seen(&image, "'imagenet'", 1);
        assert_close(&grey, &seen(&image, "{ mean = 0.449, std = 0.226 }", 1), 1e-5);
        let [red, blue] = [0, 2].map(|channel| &fixture.imagenet[channel * grey.len()..]);
        assert!(grey.iter().zip(red.iter().zip(blue)).all(|(g, (r, b))| r < g && g < b));
    }

    #[test]
    fn one_number_stands_for_all_channels() {
        let (_, image) = fixture();
        let each = seen(&image, "{ mean = [0.5, 0.5, 0.5], std = [0.25, 0.25, 0.25] }", 3);
        assert_eq!(seen(&image, "{ mean = 0.5, std = 0.25 }", 3), each);
        assert_eq!(seen(&image, "{ mean = [0.5, 0.5, 0.5], std = 0.25 }", 3), each);
    }

    #[test]
    fn statistics_leave_the_bars_of_a_letterbox_out() {
        let (_, image) = fixture();
        let [height, width] = image.size;
        let mut levels = vec![0.0; 3 * width];
        levels.extend(&image.levels);
        levels.extend(vec![0.0; 5 * width]);
        let content = Area { top: 3, left: 0, height, width };
        let boxed = Resized::unit(levels, [height + 8, width], content);
        for text in ["'per_image'", "{ percentile = [10, 90] }"] {
            let inner = &seen(&boxed, text, 1)[3 * width..(3 + height) * width];
            assert_eq!(inner, seen(&image, text, 1));
        }
    }

    #[test]
    fn a_flat_image_gives_finite_numbers() {
        let flat = Resized::unit(vec![0.3; 64], [8, 8], Area::whole([8, 8]));
        for text in ["'per_image'", "{ percentile = [1, 99] }"] {
            let seen = seen(&flat, text, 1);
            assert!(seen.iter().all(|value| value.abs() < 1e-6), "{text}: {seen:?}");
        }
    }

    #[test]
    fn keys_order_as_their_levels_and_lead_back_to_them() {
        let levels = [-3.5_f32, -0.0, 0.0, 1e-30, 0.25, 7.0];
        let keys = levels.map(key);
        assert!(keys.is_sorted());
        assert!(keys.iter().zip(levels).all(|(&key, l)| level(key).to_bits() == l.to_bits()));
    }
}
