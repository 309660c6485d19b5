//! Small pictures of an image, and of a heatmap over it, for pages.

use jpeg_encoder::{ColorType, Encoder, EncodingError};

use super::config::{Fit, ImageConfig};
use super::dataset::Sample;
use super::image::{Colour, RawImage, Samples, read_image};
use super::overlay::{Heat, covered, grey};
use super::resize::resize;

/// The quality of the JPEG files, of 100: at this size its artefacts are not seen.
const QUALITY: u8 = 80;

/// An image in grey and small, and the same under a heatmap, as JPEG files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thumbnail {
    /// The image.
    pub image: Vec<u8>,
    /// The image under the heat, where there is some.
    pub heatmap: Option<Vec<u8>>,
}

/// The image of `sample` in grey, its longer side of at most `side` pixels. `heat`, numbers of
/// `[height, width]` with that size, lies over it as [`overlay`](super::overlay) draws it.
///
/// # Errors
/// The reason why the image cannot be read, in words that follow "image `…`: ".
pub fn thumbnail(
    sample: &Sample,
    config: &ImageConfig,
    heat: Option<(&[f32], [usize; 2])>,
    side: usize,
) -> Result<Thumbnail, String> {
    let image = read_image(&sample.path, sample.item, None, Colour::Luma)?;
    let (width, height) = (image.width, image.height);
    let factor = (side as f64 / width.max(height) as f64).min(1.0);
    let small = |length: usize| ((length as f64 * factor).round() as usize).max(1);
    let size = [small(height), small(width)];
    let planes = |values: Vec<u8>, planes: usize| {
        let samples = Samples::U8(values);
        let image = RawImage { width, height, planes, samples, depth: 8 };
        match resize(&image, size, Fit::Stretch).samples {
            Samples::U8(values) => values,
            Samples::U16(_) | Samples::F32(_) => Vec::new(),
        }
    };
    let failed = |error: EncodingError| format!("its thumbnail cannot be encoded: {error}");
    let over = |(heat, of): (&[f32], [usize; 2])| {
        let pixels = covered(&image, &[Heat { config, values: heat, size: of }]);
        let colour = |part: usize| pixels.iter().map(move |pixel| pixel[part]);
        let small = planes((0..3).flat_map(colour).collect(), 3);
        let count = size[0] * size[1];
        let pixels = (0..count).flat_map(|at| [0, 1, 2].map(|part| small[part * count + at]));
        encoded(&pixels.collect::<Vec<u8>>(), size, ColorType::Rgb)
    };
    Ok(Thumbnail {
        image: encoded(&planes(grey(&image), 1), size, ColorType::Luma).map_err(failed)?,
        heatmap: heat.map(over).transpose().map_err(failed)?,
    })
}

fn encoded(pixels: &[u8], size: [usize; 2], colour: ColorType) -> Result<Vec<u8>, EncodingError> {
    let mut bytes = Vec::new();
    // No side is longer than was asked for, so that it fits.
    let [height, width] = size.map(|length| u16::try_from(length).unwrap_or(u16::MAX));
    Encoder::new(&mut bytes, QUALITY).encode(pixels, width, height, colour)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::decode_image;
    use crate::data::image::png::encode;

    /// An image that is black on the left and white on the right, and its thumbnail.
    fn drawn(heat: Option<(&[f32], [usize; 2])>, side: usize) -> Thumbnail {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("image.png");
        let halves: Vec<u8> = (0..40 * 80).map(|at| if at % 80 < 40 { 0 } else { 255 }).collect();
        std::fs::write(&path, encode(&halves, [40, 80]).expect("encodes")).expect("writes");
        let table = path.as_path().into();
        let sample =
            Sample { path, item: None, table, line: 1, patient: "1".to_owned(), source: 0 };
        let config: ImageConfig = toml::from_str("size = [16, 16]").expect("reads");
        thumbnail(&sample, &config, heat, side).expect("draws")
    }

    fn read(jpeg: &[u8], colour: Colour) -> (usize, usize, Vec<u8>) {
        let image = decode_image(jpeg, None, colour).expect("decodes");
        let Samples::U8(values) = image.samples else { panic!("8 bits") };
        (image.width, image.height, values)
    }

    #[test]
    fn a_thumbnail_is_the_image_made_small_and_never_large() {
        let (width, height, values) = read(&drawn(None, 20).image, Colour::Luma);
        assert_eq!((width, height), (20, 10));
        assert!(values[5 * 20 + 2] < 20 && values[5 * 20 + 17] > 235, "{values:?}");
        let (width, height, _) = read(&drawn(None, 500).image, Colour::Luma);
        assert_eq!((width, height), (80, 40));
        assert_eq!(drawn(None, 20).heatmap, None);
    }

    #[test]
    fn heat_colours_what_it_is_of() {
        // All of it in the right half, which is white without.
        let heat = [0.0, 1.0, 0.0, 1.0];
        let drawn = drawn(Some((&heat, [2, 2])), 20);
        let (_, _, values) = read(&drawn.heatmap.expect("is drawn"), Colour::Rgb);
        let pixel = |at: usize| [0, 1, 2].map(|part| values[part * 200 + at]);
        let [_, _, blue] = pixel(5 * 20 + 18);
        assert!(blue < 225, "inferno's last colour has less blue: {blue}");
        assert!(pixel(5 * 20 + 1).iter().all(|part| *part < 20), "{:?}", pixel(101));
    }
}
