//! A heatmap over the image that it is of.

use super::config::ImageConfig;
use super::dataset::Sample;
use super::image::png::encode_rgb;
use super::image::{Colour, RawImage, Samples, read_image};
use super::resize::placed;

/// How much of the colour covers the image where the heat is greatest.
const MOST_COVER: f64 = 0.65;
/// Where in the colours those of heat begin.
const DARKEST: f64 = 0.3;

/// What a model finds of an image, place by place.
#[derive(Debug, Clone, Copy)]
pub struct Heat<'a> {
    /// What the model sees of the image.
    pub config: &'a ImageConfig,
    /// `[height, width]`, 0 or more, over all that it sees.
    pub values: &'a [f32],
    /// Height and width, whatever those of the image are.
    pub size: [usize; 2],
}

/// The image of `sample`, in grey and in its own size, with the heat of a model, or the mean of several,
/// over it, as a PNG. Heat is interpolated bilinearly between its numbers and counts as a share of the
/// greatest of them. Where all models have their greatest, the picture has the last colour (inferno: van
/// der Walt and Smith 2015, evenly spaced to the eye). The less heat, the less colour covers the image,
/// which is not coloured at all where there is none or where no model sees it.
///
/// # Errors
/// The reason why the image cannot be read, in words that follow "image `…`: ".
pub fn overlay(sample: &Sample, heats: &[Heat<'_>]) -> Result<Vec<u8>, String> {
    let image = read_image(&sample.path, sample.item, None, Colour::Luma)?;
    encode_rgb(&covered(&image, heats), [image.height, image.width])
        .map_err(|error| format!("its heatmap cannot be encoded: {error}"))
}

/// The pixels of `image` in grey with the mean of `heats` over it, as in [`overlay`].
pub(super) fn covered(image: &RawImage, heats: &[Heat<'_>]) -> Vec<[u8; 3]> {
    let mut sums = vec![0.0; image.width * image.height];
    for heat in heats {
        sums.iter_mut().zip(shares(image, heat)).for_each(|(sum, share)| *sum += share);
    }
    let count = heats.len().max(1) as f64;
    grey(image).into_iter().zip(sums).map(|(grey, sum)| blended(grey, sum / count)).collect()
}

/// The heat of each pixel of `image`, as a share of the greatest: from 0 to 1.
fn shares(image: &RawImage, heat: &Heat<'_>) -> Vec<f64> {
    let greatest = heat.values.iter().copied().fold(0.0, f32::max);
    let gain = if greatest > 0.0 { 1.0 / f64::from(greatest) } else { 0.0 };
    let (rows, columns) = places(image, heat.config, heat.size);
    let share = |(row, column): (&Option<Place>, &Option<Place>)| match (row, column) {
        (Some(row), Some(column)) => {
            (gain * between(heat.values, heat.size[1], *row, *column)).clamp(0.0, 1.0)
        }
        _ => 0.0,
    };
    let columns = &columns;
    rows.iter().flat_map(|row| columns.iter().map(move |column| share((row, column)))).collect()
}

/// `[height, width]` of the first plane, from 0 (black) to 255 (white).
pub(super) fn grey(image: &RawImage) -> Vec<u8> {
    let pixels = image.width * image.height;
    match &image.samples {
        Samples::U8(values) => values[..pixels].to_vec(),
        Samples::U16(values) => values[..pixels].iter().map(|value| (value >> 8) as u8).collect(),
        Samples::F32(values) => {
            let [low, high] = image.samples.range().unwrap_or([0.0, 1.0]);
            let gain = if high > low { 255.0 / (high - low) } else { 0.0 };
            values[..pixels].iter().map(|value| ((value - low) * gain) as u8).collect()
        }
    }
}

/// Two numbers of an axis, and the share of the second.
type Place = (usize, usize, f64);

/// Where the heat of each row and of each column of the image lies; none where the model does not see it.
fn places(
    image: &RawImage,
    config: &ImageConfig,
    heat: [usize; 2],
) -> (Vec<Option<Place>>, Vec<Option<Place>>) {
    let ([left, top, width, height], content) = placed(image, config.size, config.fit);
    let rows = Axis {
        part: [top, height],
        content: [content.top, content.height],
        side: config.size[0],
        heat: heat[0],
    };
    let columns = Axis {
        part: [left, width],
        content: [content.left, content.width],
        side: config.size[1],
        heat: heat[1],
    };
    let all = |axis: Axis, count| (0..count).map(|pixel| axis.place(pixel)).collect();
    (all(rows, image.height), all(columns, image.width))
}

/// How the pixels of an image, of what the model sees and of the heat lie over each other, along an axis.
struct Axis {
    /// What is seen of the image: where it begins, and its length.
    part: [f64; 2],
    /// What that fills of what the model sees: where it begins, and its length.
    content: [usize; 2],
    /// The pixels that the model sees.
    side: usize,
    /// The numbers of the heat.
    heat: usize,
}

impl Axis {
    fn place(&self, pixel: usize) -> Option<Place> {
        let within = (pixel as f64 + 0.5 - self.part[0]) / self.part[1];
        if !(0.0..=1.0).contains(&within) {
            return None;
        }
        let seen = self.content[0] as f64 + within * self.content[1] as f64;
        // The centres of pixels lie at halves, and the outermost numbers reach to the border.
        let last = (self.heat - 1) as f64;
        let place = (seen / self.side as f64 * self.heat as f64 - 0.5).clamp(0.0, last);
        let first = place as usize;
        Some((first, (first + 1).min(self.heat - 1), place.fract()))
    }
}

/// The heat at a row and a column.
fn between(heat: &[f32], width: usize, row: Place, column: Place) -> f64 {
    let at = |row: usize, column: usize| f64::from(heat[row * width + column]);
    let along = |row: usize| {
        let (left, right, share) = column;
        at(row, left) * (1.0 - share) + at(row, right) * share
    };
    let (upper, lower, share) = row;
    along(upper) * (1.0 - share) + along(lower) * share
}

/// A grey pixel under the colour of so much heat, from 0 to 1.
fn blended(grey: u8, heat: f64) -> [u8; 3] {
    let cover = MOST_COVER * heat;
    // What is darker hides what is below more than it colours it.
    let colour = colorous::INFERNO.eval_continuous(DARKEST + (1.0 - DARKEST) * heat).into_array();
    colour.map(|part| ((1.0 - cover) * f64::from(grey) + cover * f64::from(part)).round() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::decode_image;
    use crate::data::image::png::encode;

    const WIDTH: usize = 40;
    const HEIGHT: usize = 20;

    /// The pixels of an image of one grey with `heat` over it.
    fn drawn(image: &str, heat: &[f32], size: [usize; 2]) -> Vec<[u8; 3]> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image.png");
        let grey = encode(&[100; WIDTH * HEIGHT], [HEIGHT, WIDTH]).expect("encodes");
        std::fs::write(&path, grey).expect("writes");
        let table = path.as_path().into();
        let sample =
            Sample { path, item: None, table, line: 1, patient: "1".to_owned(), source: 0 };
        let config: ImageConfig = toml::from_str(image).expect("reads");
        let heat = Heat { config: &config, values: heat, size };
        let png = overlay(&sample, &[heat]).expect("draws");
        let read = decode_image(&png, None, Colour::Rgb).expect("decodes");
        assert_eq!((read.width, read.height), (WIDTH, HEIGHT));
        let Samples::U8(values) = read.samples else { panic!("8 bits") };
        let plane = WIDTH * HEIGHT;
        let of = |plane_: usize, at: usize| values[(plane_ * plane + at) % values.len()];
        (0..plane).map(|at| [of(0, at), of(1, at), of(2, at)]).collect()
    }

    fn coloured(pixels: &[[u8; 3]]) -> Vec<bool> {
        pixels.iter().map(|pixel| *pixel != [100; 3]).collect()
    }

    #[test]
    fn heat_lies_over_the_part_of_the_image_that_it_is_of() {
        // All heat in the left half of what the model sees.
        let half: Vec<f32> = (0..64).map(|at| f32::from(u8::from(at % 8 < 4))).collect();
        let columns = |image: &str| -> [bool; 4] {
            let pixels = coloured(&drawn(image, &half, [8, 8]));
            [1, 11, 25, 38].map(|column| pixels[10 * WIDTH + column])
        };
        assert_eq!(columns("size = [16, 16]\nfit = 'stretch'"), [true, true, false, false]);
        // The model sees columns 10 to 29 only.
        assert_eq!(columns("size = [16, 16]\nfit = 'crop'"), [false, true, false, false]);
        // Upper half of what it sees: rows 4 to 12 of 16 are the image.
        let upper: Vec<f32> = (0..64).map(|at| f32::from(u8::from(at < 32))).collect();
        let pixels = coloured(&drawn("size = [16, 16]\nfit = 'letterbox'", &upper, [8, 8]));
        let rows = [1, 8, 13, 18].map(|row| pixels[row * WIDTH + 20]);
        assert_eq!(rows, [true, true, false, false]);
    }

    #[test]
    fn the_greatest_heat_has_the_last_colour_and_no_heat_none() {
        let image = "size = [16, 16]\nfit = 'stretch'";
        let none = drawn(image, &[0.0; 64], [8, 8]);
        assert!(none.iter().all(|pixel| *pixel == [100; 3]));
        let all = drawn(image, &[3.0; 64], [8, 8]);
        // matplotlib's inferno ends in (252, 255, 164).
        let blend = |part: f64| (0.35 * 100.0 + 0.65 * part).round() as u8;
        let last = [252.0, 255.0, 164.0].map(blend);
        let near = |a: u8, b: u8| a.abs_diff(b) <= 1;
        assert!(
            all.iter().all(|pixel| pixel.iter().zip(last).all(|(&a, b)| near(a, b))),
            "{last:?}"
        );
    }

    #[test]
    fn heat_is_interpolated_between_its_numbers() {
        let ramp: Vec<f32> = (0..4).map(|at| at as f32).collect();
        let pixels = drawn("size = [16, 16]\nfit = 'stretch'", &ramp, [1, 4]);
        let row: Vec<u32> = pixels[..WIDTH].iter().map(|pixel| u32::from(pixel[0])).collect();
        // Number k lies over pixel 10 k + 4.5. Every step between changes the colour, in which red grows
        // with the heat, and beyond the outermost it stays.
        assert!(row[10..35].is_sorted() && row[15] < row[25] && row[25] < row[34], "{row:?}");
        assert!(row[35..].iter().all(|&red| red == row[39]), "{row:?}");
        assert!(pixels[..5].iter().all(|pixel| *pixel == [100; 3]), "no heat, no colour");
    }

    #[test]
    fn the_heat_of_several_models_is_the_mean_of_their_shares() {
        let samples = Samples::U8((0..16).map(|at| at * 16).collect());
        let image = RawImage { width: 4, height: 4, planes: 1, samples, depth: 8 };
        let config = |text: &str| toml::from_str::<ImageConfig>(text).expect("reads");
        let whole = config("size = [4, 4]\nfit = 'stretch'");
        // The second model sees another size, has another map and much greater numbers.
        let other = config("size = [8, 8]\nfit = 'stretch'");
        let ramp: Vec<f32> = (0..16).map(|at| at as f32).collect();
        let corner = [4000.0, 0.0, 0.0, 1000.0];
        let heats = [
            Heat { config: &whole, values: &ramp, size: [4, 4] },
            Heat { config: &other, values: &corner, size: [2, 2] },
        ];
        let [one, two] = heats.map(|heat| shares(&image, &heat));
        assert_eq!(one[15], 1.0);
        assert_eq!([two[0], two[15], two[3]], [1.0, 0.25, 0.0]);
        let mean = grey(&image).into_iter().zip(one.iter().zip(&two));
        let mean = mean.map(|(grey, (one, two))| blended(grey, (one + two) / 2.0));
        assert_eq!(covered(&image, &heats), mean.collect::<Vec<_>>());
        assert_eq!(
            covered(&image, &[heats[1]; 2]),
            covered(&image, &heats[1..]),
            "of one with itself"
        );
        // A model that sees nothing for the label halves what the other sees.
        let none = Heat { values: &[0.0; 4], ..heats[1] };
        let halved = grey(&image).into_iter().zip(&one).map(|(grey, one)| blended(grey, one / 2.0));
        assert_eq!(covered(&image, &[heats[0], none]), halved.collect::<Vec<_>>());
    }
}
