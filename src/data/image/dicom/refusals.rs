//! What is refused, in which words; and that damage costs neither a panic nor memory nor time.

use std::io::Write;
use std::time::{Duration, Instant};

use rand::{Rng, RngExt};

use super::tests::cases;
use super::*;

/// The first case of the fixture whose name begins so.
fn bytes_of(name: &str) -> Vec<u8> {
    let case = cases().into_iter().find(|case| case.name.starts_with(name));
    case.unwrap_or_else(|| panic!("no case {name}")).bytes()
}

/// An explicit little-endian file of 8×6 pixels of 12 bits.
fn plain() -> Vec<u8> {
    bytes_of("explicit 12 of 16 bits unsigned")
}

/// An element of a short representation, explicit and little-endian.
fn element((group, element): dataset::Tag, vr: &[u8; 2], value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("is short");
    [&group.to_le_bytes(), &element.to_le_bytes(), vr, &length.to_le_bytes(), value].concat()
}

/// Where an element begins and, of a short representation, ends.
fn place(bytes: &[u8], (group, element): dataset::Tag) -> (usize, usize) {
    let tag = [group.to_le_bytes(), element.to_le_bytes()].concat();
    let at = bytes.windows(4).position(|four| four == tag).expect("has the element");
    let length = u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]);
    (at, at + 8 + usize::from(length))
}

/// The file with an element's value replaced.
fn with(bytes: &[u8], tag: dataset::Tag, vr: &[u8; 2], value: &[u8]) -> Vec<u8> {
    let (begin, end) = place(bytes, tag);
    [&bytes[..begin], &element(tag, vr, value), &bytes[end..]].concat()
}

fn without(bytes: &[u8], tag: dataset::Tag) -> Vec<u8> {
    let (begin, end) = place(bytes, tag);
    [&bytes[..begin], &bytes[end..]].concat()
}

/// The file with an element before the pixels.
fn and(bytes: &[u8], tag: dataset::Tag, vr: &[u8; 2], value: &[u8]) -> Vec<u8> {
    let (begin, _) = place(bytes, dataset::PIXEL_DATA);
    [&bytes[..begin], &element(tag, vr, value), &bytes[begin..]].concat()
}

/// The file with another transfer syntax; the data set stays as it is.
fn of_syntax(bytes: &[u8], uid: &str) -> Vec<u8> {
    let padded = if uid.len() % 2 == 1 { format!("{uid}\0") } else { uid.to_owned() };
    with(bytes, (2, 0x10), b"UI", padded.as_bytes())
}

fn reason(bytes: &[u8]) -> String {
    decode(bytes, Colour::Luma).expect_err("is refused")
}

const ROWS: dataset::Tag = (0x28, 0x10);
const COLUMNS: dataset::Tag = (0x28, 0x11);
const PIXELS: dataset::Tag = dataset::PIXEL_DATA;

#[test]
fn headers_that_cannot_be_used_are_refused_by_name() {
    let plain = plain();
    let (pixels, _) = place(&plain, PIXELS);
    insta::assert_snapshot!(reason(&plain[..pixels]), @"it is DICOM without pixels: there is no Pixel Data (7FE0,0010)");
    insta::assert_snapshot!(reason(&and(&plain, (0x28, 8), b"IS", b"12")), @"it holds 12 frames; write the one to train on to a file of its own");
    insta::assert_snapshot!(reason(&and(&plain, (0x28, 8), b"IS", b"many")), @"its Number of Frames (0028,0008) is `many`, no number");
    insta::assert_snapshot!(reason(&and(&plain, (0x7FE0, 8), b"FL", &[0; 4])), @"its pixels are floating-point numbers, which are not read");
    insta::assert_snapshot!(reason(&without(&plain, ROWS)), @"its header lacks Rows (0028,0010)");
    insta::assert_snapshot!(reason(&with(&plain, ROWS, b"US", &[0, 0])), @"it has no pixels");
    insta::assert_snapshot!(reason(&with(&plain, (0x28, 2), b"US", &[3, 0])), @"its header contradicts itself: 3 samples per pixel of MONOCHROME2");
    insta::assert_snapshot!(reason(&with(&plain, (0x28, 4), b"CS", b"HSV ")), @"its photometric interpretation `HSV` is not read");
    insta::assert_snapshot!(reason(&with(&plain, (0x28, 0x100), b"US", &[1, 0])), @"it allocates 1 bit per sample; 8 and 16 are read");
    insta::assert_snapshot!(reason(&with(&plain, (0x28, 0x100), b"US", &[32, 0])), @"it allocates 32 bits per sample; 8 and 16 are read");
    insta::assert_snapshot!(reason(&with(&plain, (0x28, 0x101), b"US", &[14, 0])), @"its header contradicts itself: 14 bits stored up to bit 11 of 16 allocated");
}

#[test]
fn transforms_that_cannot_be_used_are_refused_by_name() {
    let plain = plain();
    let window = |centre: &[u8], width: &[u8]| {
        and(&and(&plain, (0x28, 0x1050), b"DS", centre), (0x28, 0x1051), b"DS", width)
    };
    insta::assert_snapshot!(reason(&window(b"40", b"0 ")), @"its Window Width (0028,1051) is 0, which shows nothing");
    insta::assert_snapshot!(reason(&window(b"wide", b"9 ")), @"its Window Center is `wide`, no number");
    insta::assert_snapshot!(reason(&window(b"40", b"")), @"it has a Window Center without a Window Width (0028,1051)");
    insta::assert_snapshot!(reason(&window(b"", b"40")), @"it has a Window Width without a Window Center (0028,1050)");
    insta::assert_snapshot!(reason(&and(&window(b"40", b"40"), (0x28, 0x1056), b"CS", b"CUBIC ")), @"its VOI LUT Function `CUBIC` is not read");
    insta::assert_snapshot!(reason(&and(&plain, (0x28, 0x1053), b"DS", b"0 ")), @"its Rescale Slope (0028,1053) is 0, which leaves no image");
    insta::assert_snapshot!(reason(&and(&plain, (0x28, 0x1052), b"DS", b"inf ")), @"its Rescale Intercept is `inf`, no number");
    let table = bytes_of("VOI LUT before a window");
    insta::assert_snapshot!(reason(&with(&table, (0x28, 0x3002), b"US", &[0, 2, 0, 0, 12, 0])), @"its VOI LUT claims 512 entries and holds 1000 bytes");
    insta::assert_snapshot!(reason(&with(&table, (0x28, 0x3002), b"US", &[0, 2, 0, 0, 32, 0])), @"its VOI LUT has entries of 32 bits; 1 to 16 are read");
    let (at, _) = place(&table, (0x28, 0x3002));
    let mut unnamed = table;
    unnamed[at + 2] = 9;
    insta::assert_snapshot!(reason(&unnamed), @"its VOI LUT has no descriptor");
    let palette = bytes_of("palette of 8 bits");
    insta::assert_snapshot!(reason(&without(&palette, (0x28, 0x1102))), @"its green palette has no descriptor");
    insta::assert_snapshot!(reason(&and(&palette, (0x28, 0x1221), b"US", &[0, 0])), @"its palette is segmented, which is not read");
}

#[test]
fn more_pixels_than_rows_and_columns_are_refused() {
    let plain = plain();
    insta::assert_snapshot!(reason(&with(&plain, ROWS, b"US", &[5, 0])));
    insta::assert_snapshot!(reason(&with(&plain, COLUMNS, b"US", &[1, 0])));
}

#[test]
fn what_is_cut_off_or_malformed_is_refused_with_its_place() {
    let plain = plain();
    let (pixels, _) = place(&plain, PIXELS);
    insta::assert_snapshot!(reason(&plain[..plain.len() - 10]), @"it is cut off: it holds 86 of 96 bytes of pixels");
    insta::assert_snapshot!(reason(&plain[..pixels - 3]), @"it is cut off in its header, at byte 436");
    insta::assert_snapshot!(reason(&plain[..132]), @"it holds no DICOM elements");
    let text = [&plain[..pixels], b"not an element"].concat();
    insta::assert_snapshot!(reason(&text), @"its header is malformed at byte 440, in element (6F6E,2074)");
    let zeros = [&plain[..pixels], &[0; 12], b"and more"].concat();
    insta::assert_snapshot!(reason(&zeros), @"its header is malformed at byte 440: there are zeros");
    let long = [&plain[..pixels], &element((0x28, 0x9999), b"OB", &[]), &[0xF0, 0xFF, 0xFF, 0xFF]];
    insta::assert_snapshot!(reason(&long.concat()), @"its header is malformed at byte 440: element (0028,9999) claims 4294967280 bytes, 0 are left");
    let nested = [&element((0x28, 0x9999), b"SQ", &[]), [0xFF; 4].as_slice()].concat();
    let item = [0xFE, 0xFF, 0, 0xE0, 0xFF, 0xFF, 0xFF, 0xFF];
    let deep = [&plain[..pixels], &[nested.as_slice(), &item].concat().repeat(100_000)].concat();
    insta::assert_snapshot!(reason(&deep), @"its header nests more than 32 sequences");
    let wrong = [&plain[..pixels], nested.as_slice(), &element((0x28, 0x10), b"US", &[1, 0])];
    insta::assert_snapshot!(reason(&wrong.concat()), @"its header is malformed at byte 452: element (0028,0010) stands where an item must");
}

#[test]
fn transfer_syntaxes_are_refused_by_name() {
    let plain = plain();
    insta::assert_snapshot!(reason(&of_syntax(&plain, "1.2.840.10008.1.2.4.100")), @"its transfer syntax `1.2.840.10008.1.2.4.100` (MPEG video) is not read; convert the file to Explicit VR Little Endian");
    insta::assert_snapshot!(reason(&of_syntax(&plain, "1.2.840.10008.1.2.4.110")), @"its transfer syntax `1.2.840.10008.1.2.4.110` (JPEG XL) is not read; convert the file to Explicit VR Little Endian");
    insta::assert_snapshot!(reason(&of_syntax(&plain, "1.2.840.10008.1.2.4.201")), @"its transfer syntax `1.2.840.10008.1.2.4.201` (High-Throughput JPEG 2000) is not read; convert the file to Explicit VR Little Endian");
    insta::assert_snapshot!(reason(&of_syntax(&plain, "1.2.840.10008.1.2.4.55")), @"its transfer syntax `1.2.840.10008.1.2.4.55` (a retired JPEG process) is not read; convert the file to Explicit VR Little Endian");
    insta::assert_snapshot!(reason(&of_syntax(&plain, "1.2.3.4")), @"its transfer syntax `1.2.3.4` is not read; convert the file to Explicit VR Little Endian");
    insta::assert_snapshot!(reason(&of_syntax(&plain, "1.2.840.10008.1.2.5")), @"its pixels are not compressed, its transfer syntax says they are");
    let rle = bytes_of("RLE 12");
    insta::assert_snapshot!(reason(&of_syntax(&rle, "1.2.840.10008.1.2.1")), @"its pixels are compressed, its transfer syntax says they are not");
    insta::assert_snapshot!(reason(&of_syntax(&rle, "1.2.840.10008.1.2.1.99")), @"it does not inflate (corrupt deflate stream)");
}

#[test]
fn streams_that_are_not_what_the_header_says_are_refused() {
    let rle = bytes_of("RLE 12");
    let jpeg = bytes_of("lossless JPEG 12, predictor 1");
    insta::assert_snapshot!(reason(&with(&rle, ROWS, b"US", &[90, 0])), @"its RLE segment 1 holds 48 of 720 pixels");
    insta::assert_snapshot!(reason(&with(&rle, (0x28, 0x100), b"US", &[8, 0])), @"its header contradicts itself: 12 bits stored up to bit 11 of 8 allocated");
    insta::assert_snapshot!(reason(&with(&jpeg, ROWS, b"US", &[90, 0])), @"its JPEG stream has 8×6 pixels of 1 samples, the header 8×90 of 1");
    insta::assert_snapshot!(reason(&of_syntax(&rle, "1.2.840.10008.1.2.4.70")), @"its JPEG stream does not begin as JPEG does");
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC3]).expect("has a frame");
    let of_process = |marker| {
        let mut jpeg = jpeg.clone();
        jpeg[frame + 1] = marker;
        reason(&jpeg)
    };
    insta::assert_snapshot!(of_process(0xC2), @"its JPEG stream is progressive, which is not read");
    insta::assert_snapshot!(of_process(0xC9), @"its JPEG stream is arithmetic-coded, which is not read");
    insta::assert_snapshot!(of_process(0xC7), @"its JPEG stream is hierarchical, which is not read");
    let (pixels, _) = place(&jpeg, PIXELS);
    // The element's head takes 12 bytes, the offset table 12, and the fragment's tag 4.
    let (head, stream) = (&jpeg[..pixels + 28], &jpeg[pixels + 32..jpeg.len() - 8]);
    assert!(stream.starts_with(&[0xFF, 0xD8]));
    let half = &stream[..stream.len() / 2];
    let length = u32::try_from(half.len()).expect("is short").to_le_bytes();
    let cut = [head, &length, half, &[0xFE, 0xFF, 0xDD, 0xE0, 0, 0, 0, 0]].concat();
    insta::assert_snapshot!(reason(&cut), @"its JPEG stream is cut off");
    insta::assert_snapshot!(reason(&jpeg[..jpeg.len() - 30]), @"it is cut off in its compressed pixels, at byte 466");
    insta::assert_snapshot!(reason(&jpeg[..pixels + 20]), @"it is cut off in its compressed pixels, at byte 454");
}

#[test]
fn sizes_that_a_file_cannot_hold_are_refused_before_they_are_allocated() {
    let vast = |bytes: &[u8], side: u16| {
        let side = side.to_le_bytes();
        reason(&with(&with(bytes, ROWS, b"US", &side), COLUMNS, b"US", &side))
    };
    let (rle, jpeg) = (bytes_of("RLE 12"), bytes_of("extended JPEG"));
    insta::assert_snapshot!(vast(&plain(), u16::MAX), @"it claims 65535×65535 pixels, more than are read");
    insta::assert_snapshot!(vast(&plain(), 11_000), @"it is cut off: it holds 96 of 242000000 bytes of pixels");
    insta::assert_snapshot!(vast(&rle, 11_000), @"its RLE segments hold no 121000000 pixels in 146 bytes");
    // The stream must agree before it is believed.
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC1]).expect("has a frame");
    let mut vast_jpeg = jpeg;
    vast_jpeg[frame + 5..frame + 9].copy_from_slice(&[0x2A, 0xF8, 0x2A, 0xF8]);
    insta::assert_snapshot!(vast(&vast_jpeg, 11_000), @"its JPEG stream claims 11000×11000 pixels in 592 bytes");
}

#[test]
fn a_stream_that_inflates_without_end_is_stopped() {
    let deflated = bytes_of("deflated");
    let file = [meta_of(&deflated), deflate(&[0; 1 << 20], 400)].concat();
    assert!(file.len() < 1 << 20, "{} bytes", file.len());
    insta::assert_snapshot!(reason(&file), @"it inflates to more than 320 MiB");
}

/// A file up to the end of its meta information, whose length its first element gives.
fn meta_of(file: &[u8]) -> Vec<u8> {
    let length = u32::from_le_bytes([file[140], file[141], file[142], file[143]]);
    file[..144 + length as usize].to_vec()
}

fn deflate(block: &[u8], times: usize) -> Vec<u8> {
    let mut encoder =
        flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    for _ in 0..times {
        encoder.write_all(block).expect("compresses");
    }
    encoder.finish().expect("compresses")
}

/// Overwrites, cuts, inserts and repeats a few bytes; every other time within the compressed pixels
/// or the elements that say how they lie, where damage gets furthest.
fn damage(bytes: &mut Vec<u8>, random: &mut impl Rng) {
    let from = bytes.windows(2).position(|pair| pair == [0x28, 0]).unwrap_or(0);
    for _ in 0..random.random_range(1..6) {
        let begin = if random.random() { from.min(bytes.len() - 1) } else { 0 };
        let place = random.random_range(begin..bytes.len());
        match random.next_u32() % 16 {
            0 => bytes.truncate(place.max(1)),
            1 => bytes.insert(place, random.random()),
            2 => drop(bytes.remove(place)),
            3 => bytes[place] = 0xFF,
            4 => bytes[place] = 0,
            5 => bytes[place] ^= 1 << random.random_range(0..8),
            6 => {
                let end = (place + random.random_range(1..9)).min(bytes.len());
                bytes[place..end].fill(0xFF);
            }
            _ => bytes[place] = random.random(),
        }
        if bytes.is_empty() {
            bytes.push(0);
        }
    }
}

#[test]
fn damaged_files_are_errors_or_images_within_the_limits_and_never_panics() {
    const GROUPS: [&str; 12] = [
        "explicit",
        "implicit",
        "big endian",
        "deflated",
        "RLE",
        "lossless JPEG",
        "extended JPEG",
        "baseline JPEG",
        "JPEG-LS",
        "JPEG 2000",
        "VOI LUT",
        "palette",
    ];
    let cases = cases();
    for (number, group) in GROUPS.iter().enumerate() {
        let of_group = cases.iter().filter(|case| case.name.starts_with(group));
        let sources: Vec<Vec<u8>> = of_group.map(|case| case.bytes()).collect();
        let (mut refused, mut read) = (0, 0);
        for trial in 0..1000 {
            let mut random = crate::random::stream(3, "test", &[number as u64, trial]);
            let mut bytes = sources[trial as usize % sources.len()].clone();
            damage(&mut bytes, &mut random);
            let started = Instant::now();
            match decode(&bytes, Colour::Luma) {
                Ok(image) => {
                    read += 1;
                    let samples = match image.samples {
                        Samples::U8(plane) => plane.len(),
                        Samples::U16(plane) => plane.len(),
                        Samples::F32(_) => panic!("DICOM decodes to whole numbers"),
                    };
                    assert_eq!(samples, image.width * image.height);
                    assert!(samples as u64 * 2 <= MOST_PIXEL_BYTES);
                }
                Err(fault) => {
                    refused += 1;
                    // Nothing of ours panics even under damage; a foreign decoder may, contained.
                    assert!(
                        !fault.contains("the decoder failed") || *group == "JPEG 2000",
                        "{fault}"
                    );
                }
            }
            // The sources take a millisecond; this leaves room for a loaded machine.
            assert!(started.elapsed() < Duration::from_secs(5), "{group}, trial {trial}");
        }
        assert!(refused > 50 && read > 5, "{group}: {refused} refused, {read} read");
    }
}
