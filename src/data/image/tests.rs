use std::collections::BTreeMap;

use rand::{Rng, RngExt};
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
    /// Names and files that are valid and not read.
    refused: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    file: String,
    /// As the file has it; 8 and fewer bits are compared as they are, others of 65535.
    depth: u8,
    width: usize,
    height: usize,
    pixels: Vec<u16>,
    tolerance: u16,
}

fn fixture() -> Fixture {
    let text = include_str!("../../../tests/fixtures/data_decode.json");
    serde_json::from_str(text).expect("the fixture reads")
}

fn bytes_of(hex: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("is hexadecimal");
    (0..hex.len()).step_by(2).map(digits).collect()
}

fn file(name: &str) -> Vec<u8> {
    let case = fixture().cases.into_iter().find(|case| case.name == name);
    bytes_of(&case.expect("is in the fixture").file)
}

#[test]
fn files_decode_to_what_pillow_opencv_and_tifffile_decode() {
    let cases = fixture().cases;
    assert!(cases.len() >= 35);
    for case in cases {
        let name = &case.name;
        let image = decode_image(&bytes_of(&case.file), None, Colour::Luma)
            .unwrap_or_else(|reason| panic!("{name}: {reason}"));
        assert_eq!((image.width, image.height), (case.width, case.height), "{name}");
        assert_eq!((image.depth, image.planes), (case.depth, 1), "{name}");
        let ours: Vec<u16> = match image.samples {
            Samples::U8(values) if case.depth <= 8 => values.into_iter().map(u16::from).collect(),
            Samples::U16(values) if case.depth > 8 => values,
            _ => panic!("{name}: the depth is not kept"),
        };
        assert_eq!(ours.len(), case.pixels.len(), "{name}");
        let off = ours.iter().zip(&case.pixels).map(|(a, b)| a.abs_diff(*b)).max().expect("some");
        assert!(off <= case.tolerance, "{name}: {off} off");
    }
}

/// Samples of 8 or 16 bits as numbers of the same kind.
fn wide(samples: &Samples) -> Vec<u32> {
    match samples {
        Samples::U8(values) => values.iter().copied().map(u32::from).collect(),
        Samples::U16(values) => values.iter().copied().map(u32::from).collect(),
        Samples::F32(_) => panic!("files hold no such numbers"),
    }
}

#[derive(Deserialize)]
struct Coloured {
    name: String,
    file: String,
    /// 3 where Pillow's planes differ.
    planes: usize,
    /// Height and width.
    size: [usize; 2],
    /// `[planes, height, width]`.
    pixels: Vec<u32>,
    tolerance: u32,
}

#[test]
fn colours_are_kept_as_pillow_has_them_where_three_channels_are_wanted() {
    let text = include_str!("../../../tests/fixtures/data_colours.json");
    let cases: Vec<Coloured> = serde_json::from_str(text).expect("the fixture reads");
    assert!(cases.len() >= 12);
    for Coloured { name, file, planes, size, pixels, tolerance } in cases {
        let image = decode_image(&bytes_of(&file), None, Colour::Rgb).expect("decodes");
        assert_eq!((image.planes, [image.height, image.width]), (planes, size), "{name}");
        let ours = wide(&image.samples);
        assert_eq!(ours.len(), pixels.len(), "{name}");
        let off = ours.iter().zip(&pixels).map(|(a, b)| a.abs_diff(*b)).max().expect("some");
        assert!(off <= tolerance, "{name}: {off} off");
    }
}

#[test]
fn the_luma_of_the_colours_is_the_one_plane_that_grey_images_have() {
    let mut coloured = 0;
    for case in fixture().cases {
        let [grey, colours] = [Colour::Luma, Colour::Rgb]
            .map(|colour| decode_image(&bytes_of(&case.file), None, colour).expect("decodes"));
        if colours.planes == 1 {
            assert_eq!(grey, colours, "{}", case.name);
            continue;
        }
        coloured += 1;
        let (grey, colours) = (wide(&grey.samples), wide(&colours.samples));
        assert_eq!(colours.len(), 3 * grey.len());
        for (place, grey) in grey.iter().enumerate() {
            let pixel = [0, 1, 2].map(|plane| colours[plane * case.width * case.height + place]);
            // JPEG has its own luma, and three rounded colours another.
            let within = u32::from(case.tolerance);
            assert!(luma(pixel).abs_diff(*grey) <= within, "{}: {pixel:?} {grey}", case.name);
        }
    }
    assert!(coloured >= 6, "{coloured}");
}

#[test]
fn a_large_colour_jpeg_keeps_its_colours_at_a_reduced_scale() {
    use crate::data::resize::needed;
    let (width, height) = (160, 128);
    let halves = (0..width * height)
        .flat_map(|place| if place % width < width / 2 { [200, 40, 90] } else { [10, 220, 60] });
    let mut jpeg = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut jpeg, 95);
    let pixels: Vec<u8> = halves.collect();
    let kind = jpeg_encoder::ColorType::Rgb;
    encoder.encode(&pixels, width as u16, height as u16, kind).expect("encodes");
    let image = decode_image(&jpeg, Some(needed([16, 20])), Colour::Rgb).expect("decodes");
    assert_eq!((image.planes, image.width, image.height), (3, 40, 32));
    let levels = wide(&image.samples);
    for (plane, [left, right]) in [[200, 10], [40, 220], [90, 60]].into_iter().enumerate() {
        let at = |column: usize| levels[plane * 40 * 32 + 16 * 40 + column];
        assert!(at(5).abs_diff(left) <= 3 && at(35).abs_diff(right) <= 3, "{plane}");
    }
}

#[test]
fn a_large_jpeg_decoded_at_a_reduced_scale_is_the_mean_of_its_pixels() {
    use crate::data::config::Fit;
    use crate::data::resize::{needed, resize};
    let (width, height) = (200, 168);
    let value = |place: usize| {
        let (row, column) = ((place / width) as f64, (place % width) as f64);
        128.0 + 80.0 * (row / 50.0).sin() * (column / 60.0).cos()
    };
    let pixels: Vec<u8> = (0..width * height).map(|place| value(place) as u8).collect();
    let jpeg = jpeg_of(&pixels, [height, width]);
    let whole = decode_image(&jpeg, None, Colour::Luma).expect("decodes");
    for size in [[10, 12], [20, 24], [33, 32], [80, 90], [160, 168]] {
        let reduced = decode_image(&jpeg, Some(needed(size)), Colour::Luma).expect("decodes");
        assert!(reduced.width >= 2 * size[1] || reduced.width == width);
        assert!(reduced.height >= 2 * size[0] || reduced.height == height);
        assert_eq!(reduced.width < width, size[1] * 4 <= width && size[0] * 4 <= height);
        for fit in [Fit::Stretch, Fit::Letterbox, Fit::Crop] {
            let (a, b) = (resize(&reduced, size, fit), resize(&whole, size, fit));
            let (Samples::U8(a), Samples::U8(b)) = (a.samples, b.samples) else { panic!("8 bits") };
            let off = a.iter().zip(&b).map(|(a, b)| a.abs_diff(*b)).max().expect("some");
            assert!(off <= 2, "{size:?} {fit:?}: {off} levels off");
        }
    }
}

/// A baseline JPEG of grey, all its numbers of quality one.
fn jpeg_of(pixels: &[u8], [height, width]: [usize; 2]) -> Vec<u8> {
    let mut jpeg = Vec::new();
    let encoder = jpeg_encoder::Encoder::new(&mut jpeg, 95);
    encoder
        .encode(pixels, width as u16, height as u16, jpeg_encoder::ColorType::Luma)
        .expect("encodes");
    jpeg
}

#[test]
fn damaged_files_are_errors_or_images_and_never_panics() {
    let mut outcomes: BTreeMap<&str, [usize; 2]> = BTreeMap::new();
    for kind in ["png", "jpeg", "tiff"] {
        let cases = fixture().cases.into_iter().filter(|case| case.name.starts_with(kind));
        let sources: Vec<Vec<u8>> = cases.map(|case| bytes_of(&case.file)).collect();
        let counts = outcomes.entry(kind).or_default();
        for trial in 0..1200 {
            let mut random = crate::random::stream(2, kind, &[trial]);
            let mut bytes = sources[trial as usize % sources.len()].clone();
            for _ in 0..random.random_range(1..6) {
                let place = random.random_range(0..bytes.len());
                match random.next_u32() % 4 {
                    0 => bytes.truncate(place.max(1)),
                    1 => bytes.insert(place, random.random()),
                    _ => bytes[place] = random.random(),
                }
            }
            if kind == "png" {
                // Checksums would refuse nearly everything before it is looked at.
                mend_checksums(&mut bytes);
            }
            match decode_image(&bytes, [None, Some([1, 1])][trial as usize % 2], Colour::Luma) {
                Ok(image) => {
                    counts[0] += 1;
                    let held = match &image.samples {
                        Samples::U8(values) => values.len(),
                        Samples::U16(values) => values.len(),
                        Samples::F32(values) => values.len(),
                    };
                    assert_eq!(held, image.width * image.height);
                    assert!(held as u64 <= MOST_PIXEL_BYTES);
                }
                Err(reason) => {
                    counts[1] += 1;
                    assert!(!reason.is_empty());
                }
            }
        }
    }
    for (kind, [read, refused]) in outcomes {
        assert!(refused > 300 && read > 10, "{kind}: {refused} refused, {read} read");
    }
}

#[test]
fn what_is_no_image_is_refused_with_its_reason() {
    let reason = |bytes: &[u8]| decode_image(bytes, None, Colour::Luma).expect_err("is refused");
    let refused = fixture().refused;
    let valid = |name: &str| reason(&bytes_of(&refused[name]));
    let cut = |name: &str, share: f64| {
        let whole = file(name);
        reason(&whole[..(whole.len() as f64 * share) as usize])
    };
    insta::assert_snapshot!(reason(b""), @"the file is empty");
    insta::assert_snapshot!(reason(b"Path,Sex\n"), @"it is neither PNG, JPEG, TIFF nor DICOM");
    insta::assert_snapshot!(reason(b"GIF89a\x01\x00\x01\x00"), @"it is GIF, not PNG, JPEG, TIFF or DICOM");
    insta::assert_snapshot!(reason(b"\x93NUMPY\x01\x00"), @"it is a NumPy array (see `[data.arrays]`), not PNG, JPEG, TIFF or DICOM");
    insta::assert_snapshot!(cut("jpeg", 0.66), @"it does not decode (it is cut off)");
    insta::assert_snapshot!(cut("jpeg", 0.02), @"it does not decode (it is cut off)");
    insta::assert_snapshot!(cut("jpeg 12 bits", 0.66), @"it does not decode (it is cut off)");
    insta::assert_snapshot!(cut("png 16 bits", 0.6), @"it does not decode (unexpected end of file)");
    insta::assert_snapshot!(cut("tiff 16 bits None", 0.3), @"it does not decode (failed to fill whole buffer)");
    insta::assert_snapshot!(cut("tiff strips", 0.5), @"it does not decode (failed to fill whole buffer)");
    insta::assert_snapshot!(valid("several pages"), @"it has several pages; save the one to be used as a file of its own");
    insta::assert_snapshot!(valid("floats"), @"it holds floating-point numbers, whose black and white are not known; save it with 16 bits");
    insta::assert_snapshot!(valid("32 bits"), @"its pixels are Gray(32); grey or RGB of 8 or 16 bits are read");
    insta::assert_snapshot!(valid("signed"), @"it holds signed numbers; save it with 16 bits, unsigned");
    let missing =
        read_image(Path::new("nowhere.png"), None, None, Colour::Luma).expect_err("is refused");
    let here = std::env::current_dir().expect("is there").display().to_string();
    insta::assert_snapshot!(missing.replace(&here, "[here]"), @"the file does not exist (looked in [here])");
    insta::assert_snapshot!(
        read_image(Path::new("src"), None, None, Colour::Luma).expect_err("is refused"), @"the file cannot be read: it is a folder");
    insta::assert_snapshot!(
        read_image(Path::new("nowhere.npy"), Some(0), None, Colour::Luma).expect_err("is refused"), @"the file does not exist");
}

#[test]
fn an_image_that_claims_more_than_it_can_hold_is_refused_before_it_is_allocated() {
    let mut jpeg = file("jpeg");
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).expect("has a frame");
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0x3F, 0xFF, 0x3F, 0xFF]);
    let reason = decode_image(&jpeg, None, Colour::Luma).expect_err("is refused");
    assert!(reason.contains("16383×16383 pixels in"), "{reason}");
    jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xFF, 0xFF, 0xFF]);
    let reason = decode_image(&jpeg, None, Colour::Luma).expect_err("is refused");
    assert!(reason.contains("65535×65535 pixels are more than are read"), "{reason}");

    let mut png = file("png 16 bits");
    for (side, expected) in [(0x1FFF_u32, "pixels in"), (0xFFFF, "more than are read")] {
        png[16..20].copy_from_slice(&side.to_be_bytes());
        png[20..24].copy_from_slice(&side.to_be_bytes());
        // The checksum of the header chunk must fit, or that alone is refused.
        let checksum = crc32(&png[12..29]);
        png[29..33].copy_from_slice(&checksum.to_be_bytes());
        let reason = decode_image(&png, None, Colour::Luma).expect_err("is refused");
        assert!(reason.contains(expected), "{reason}");
    }
}

fn mend_checksums(png: &mut [u8]) {
    let mut at = 8;
    while let Some(length) = png.get(at..).and_then(|rest| rest.first_chunk()) {
        let end = at + 8 + u32::from_be_bytes(*length) as usize;
        if png.get(at + 4..end + 4).is_none() {
            return;
        }
        let checksum = crc32(&png[at + 4..end]);
        png[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
        at = end + 4;
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0_u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 * (crc & 1)))
    })
}
