//! Bringing an image of any shape to the size the model sees.

use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U16;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

use super::area::Area;
use super::config::Fit;
use super::image::GreyImage;

/// Resizes to `size` (height and width) and scales to 0..=1: `[height, width]`, row by row.
///
/// The filter is a triangle as wide as the reduction, as Pillow's `BILINEAR` and torchvision's
/// antialiased `Resize`: no pixel of the source is skipped. `resizer` only keeps its buffers.
///
/// # Errors
/// The reason, for a shape that no filter can work on.
pub fn resize(
    image: &GreyImage,
    size: [usize; 2],
    fit: Fit,
    resizer: &mut Resizer,
) -> Result<Vec<f32>, String> {
    let [height, width] = size;
    let across = width as f64 / image.width as f64;
    let down = height as f64 / image.height as f64;
    let whole = [0.0, 0.0, image.width as f64, image.height as f64];
    match fit {
        Fit::Stretch => scale(image, whole, size, resizer),
        Fit::Crop => {
            let factor = across.max(down);
            let kept = [width as f64 / factor, height as f64 / factor];
            let kept = [kept[0].min(whole[2]), kept[1].min(whole[3])];
            let corner = [(whole[2] - kept[0]) / 2.0, (whole[3] - kept[1]) / 2.0];
            scale(image, [corner[0], corner[1], kept[0], kept[1]], size, resizer)
        }
        Fit::Letterbox => {
            let inner = filled([image.height, image.width], size, fit);
            let scaled = scale(image, whole, [inner.height, inner.width], resizer)?;
            let mut plane = vec![0.0; height * width];
            let rows = inner.rows_mut(&mut plane, width).zip(scaled.chunks_exact(inner.width));
            rows.for_each(|(row, scaled)| row.copy_from_slice(scaled));
            Ok(plane)
        }
    }
}

/// The part of the resized plane that an image of that height and width fills.
pub fn filled(image: [usize; 2], size: [usize; 2], fit: Fit) -> Area {
    if fit != Fit::Letterbox {
        return Area::whole(size);
    }
    let factor = (size[0] as f64 / image[0] as f64).min(size[1] as f64 / image[1] as f64);
    let [height, width] =
        [0, 1].map(|axis| ((image[axis] as f64 * factor).round() as usize).clamp(1, size[axis]));
    let [top, left] = [(size[0] - height) / 2, (size[1] - width) / 2];
    Area { top, left, height, width }
}

/// Scales the part `[left, top, width, height]` of the image.
fn scale(
    image: &GreyImage,
    [left, top, width, height]: [f64; 4],
    size: [usize; 2],
    resizer: &mut Resizer,
) -> Result<Vec<f32>, String> {
    let source: Vec<U16> = image.pixels.iter().map(|&value| U16::new(value)).collect();
    let refused = |error: String| format!("it cannot be resized ({error})");
    let source = TypedImageRef::new(image.width as u32, image.height as u32, &source)
        .map_err(|error| refused(error.to_string()))?;
    let mut scaled = TypedImage::<U16>::new(size[1] as u32, size[0] as u32);
    let options = ResizeOptions::new()
        .resize_alg(ResizeAlg::Convolution(FilterType::Bilinear))
        .crop(left, top, width, height);
    resizer
        .resize_typed(&source, &mut scaled, &options)
        .map_err(|error| refused(error.to_string()))?;
    Ok(scaled.pixels().iter().map(|pixel| f32::from(pixel.0) / 65535.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    struct Fixture {
        width: usize,
        height: usize,
        pixels: Vec<u8>,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        fit: Fit,
        size: [usize; 2],
        expected: Vec<u8>,
    }

    #[test]
    fn images_are_resized_as_pillow_resizes_them() {
        let fixture: Fixture =
            serde_json::from_str(include_str!("../../tests/fixtures/data_resize.json"))
                .expect("the fixture reads");
        let image = GreyImage {
            width: fixture.width,
            height: fixture.height,
            pixels: fixture.pixels.iter().map(|&value| u16::from(value) * 257).collect(),
        };
        assert!(fixture.cases.len() >= 5);
        for case in fixture.cases {
            let plane =
                resize(&image, case.size, case.fit, &mut Resizer::new()).expect("is resized");
            assert_eq!(plane.len(), case.expected.len());
            let worst = plane
                .iter()
                .zip(&case.expected)
                .map(|(ours, &theirs)| (ours * 255.0 - f32::from(theirs)).abs())
                .fold(0.0, f32::max);
            assert!(worst <= 1.0, "{:?} {:?}: {worst} grey levels", case.fit, case.size);
        }
    }

    #[test]
    fn a_letterbox_keeps_the_shape_and_leaves_the_rest_black() {
        let image = GreyImage { width: 40, height: 20, pixels: vec![65535; 800] };
        let plane = resize(&image, [32, 32], Fit::Letterbox, &mut Resizer::new()).expect("resizes");
        for (row, line) in plane.chunks_exact(32).enumerate() {
            let expected = if (8..24).contains(&row) { 1.0 } else { 0.0 };
            assert!(line.iter().all(|&value| value == expected), "row {row}");
        }
    }

    #[test]
    fn the_size_of_the_image_itself_changes_no_pixel() {
        let pixels: Vec<u16> = (0..33 * 35_u32).map(|place| (place * 37 % 65521) as u16).collect();
        let image = GreyImage { width: 35, height: 33, pixels };
        for fit in [Fit::Letterbox, Fit::Crop, Fit::Stretch] {
            let plane = resize(&image, [33, 35], fit, &mut Resizer::new()).expect("resizes");
            let back: Vec<u16> =
                plane.iter().map(|value| (value * 65535.0).round() as u16).collect();
            assert_eq!(back, image.pixels);
        }
    }

    #[test]
    fn extreme_shapes_give_full_planes() {
        for (width, height) in [(1, 1), (1, 3000), (3000, 1), (2, 5)] {
            let image = GreyImage { width, height, pixels: vec![30000; width * height] };
            for fit in [Fit::Letterbox, Fit::Crop, Fit::Stretch] {
                let plane = resize(&image, [32, 40], fit, &mut Resizer::new()).expect("resizes");
                assert_eq!(plane.len(), 32 * 40);
            }
        }
    }
}
