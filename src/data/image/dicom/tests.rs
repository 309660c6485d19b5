//! The fixtures against pydicom, and the messages.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::*;

/// A file of `tests/fixtures/dicom.json` (see `dicom.py` beside it).
#[derive(Deserialize)]
pub(super) struct Case {
    pub(super) name: String,
    file: String,
    width: usize,
    height: usize,
    depth: u8,
    /// Levels that lossy decoders may differ by; 0 for exact.
    tolerance: f64,
    stored: Vec<i32>,
    modality: Option<Vec<f64>>,
    shown: Option<Vec<f64>>,
}

impl Case {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let digits = |at: usize| u8::from_str_radix(&self.file[at..at + 2], 16).expect("is hex");
        let file: Vec<u8> = (0..self.file.len()).step_by(2).map(digits).collect();
        // The fixture leaves out the preamble, which is zeros.
        if file.starts_with(b"DICM") { [&[0; 128], file.as_slice()].concat() } else { file }
    }
}

pub(super) fn cases() -> Vec<Case> {
    let fixture = include_str!("../../../../tests/fixtures/dicom.json");
    serde_json::from_str(fixture).expect("the fixture reads")
}

impl Stored {
    fn values(&self) -> Vec<i32> {
        self.patterns.iter().map(|&bits| self.header.value(bits)).collect()
    }
}

/// The largest distance between samples and greys from 0 to 1, in steps of the samples' depth.
fn distance(samples: &Samples, shown: &[f64]) -> f64 {
    let (ours, most): (Vec<f64>, f64) = match samples {
        Samples::U8(plane) => (plane.iter().map(|&grey| f64::from(grey)).collect(), 255.0),
        Samples::U16(plane) => (plane.iter().map(|&grey| f64::from(grey)).collect(), 65535.0),
        Samples::F32(_) => panic!("DICOM decodes to whole numbers"),
    };
    assert_eq!(ours.len(), shown.len());
    ours.iter().zip(shown).map(|(ours, shown)| (ours - shown * most).abs()).fold(0.0, f64::max)
}

#[test]
fn each_step_of_each_file_is_what_pydicom_computes() {
    let mut wrong = Vec::new();
    for case in &cases() {
        if let Err(fault) = compare(case) {
            wrong.push(format!("{}: {fault}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn colours_are_three_planes_whose_luma_is_the_plane_of_grey() {
    let mut coloured = 0;
    for case in &cases() {
        let bytes = case.bytes();
        let [grey, colours] =
            [Colour::Luma, Colour::Rgb].map(|colour| decode(&bytes, colour).expect("decodes"));
        if colours.planes == 1 {
            assert_eq!(grey, colours, "{}", case.name);
            continue;
        }
        coloured += 1;
        let (Samples::U16(grey), Samples::U16(colours)) = (grey.samples, colours.samples) else {
            panic!("colours have 16 bits")
        };
        assert_eq!(colours.len(), 3 * grey.len(), "{}", case.name);
        let pixels = grey.len();
        for (place, grey) in grey.iter().enumerate() {
            let [red, green, blue] =
                [0, 1, 2].map(|plane| f64::from(colours[plane * pixels + place]));
            let luma = 0.299 * red + 0.587 * green + 0.114 * blue;
            assert!((luma - f64::from(*grey)).abs() <= 1.0, "{}: {luma}, {grey}", case.name);
        }
    }
    assert!(coloured >= 5, "{coloured}");
}

fn compare(case: &Case) -> Result<(), String> {
    let bytes = case.bytes();
    assert!(is_dicom(&bytes), "{}", case.name);
    let image = decode(&bytes, Colour::Luma)?;
    let size = (image.width, image.height, image.planes, image.depth);
    if size != (case.width, case.height, 1, case.depth) {
        return Err(format!("{size:?}"));
    }
    let steps = Stored::read(&bytes, Colour::Luma)?;
    if steps.header.samples == 1 && !case.stored.is_empty() {
        let ours = steps.values();
        assert_eq!(ours.len(), case.stored.len());
        let furthest = ours.iter().zip(&case.stored).map(|(a, b)| (a - b).abs()).max();
        if f64::from(furthest.unwrap_or_default()) > case.tolerance {
            return Err(format!("stored values differ by {furthest:?}"));
        }
        if let Some(modality) = &case.modality {
            for (&stored, expected) in ours.iter().zip(modality) {
                let measured = steps.modality.apply(stored);
                if (measured - expected).abs() > 1e-9 * expected.abs().max(1.0) {
                    return Err(format!("the modality's {measured} should be {expected}"));
                }
            }
        }
    }
    let shown = case.shown.as_deref().unwrap_or_default();
    let furthest = if shown.is_empty() { 0.0 } else { distance(&image.samples, shown) };
    // Rounded to the nearest: the fixture's own 7 decimals are what is left.
    let allowed = if case.stored.is_empty() { case.tolerance * 257.0 } else { 0.0 };
    if furthest > allowed + 0.51 {
        return Err(format!("grey differs by {furthest}"));
    }
    Ok(())
}

/// One of the files that pydicom's package carries, as `dicom.py --package` describes it.
#[derive(Deserialize)]
struct PackageFile {
    file: String,
    syntax: String,
    photometric: String,
    width: usize,
    height: usize,
    depth: u8,
    /// Why pydicom itself does not decode it.
    refused: Option<String>,
    mono: Option<bool>,
}

#[test]
#[ignore = "reads the folder that `dicom.py --package` writes"]
fn the_files_of_pydicoms_package_decode_as_pydicom_decodes_them() {
    let folder = std::env::var("TRAINER_DICOM_PACKAGE").expect("TRAINER_DICOM_PACKAGE is set");
    let folder = Path::new(&folder);
    let list = std::fs::read(folder.join("expected.json")).expect("the list reads");
    let files: Vec<PackageFile> = serde_json::from_slice(&list).expect("the list is JSON");
    let mut report = BTreeMap::new();
    for file in &files {
        let bytes = std::fs::read(folder.join(&file.file)).expect("the file reads");
        let line = match (decode(&bytes, Colour::Luma), &file.refused) {
            // What the module's documentation leaves out.
            (Err(reason), None) if reason.contains(" frames; ") => format!("refused: {reason}"),
            (Err(reason), None) if reason.contains("it allocates ") => format!("refused: {reason}"),
            (Err(reason), None) => format!("WRONG, refused: {reason}"),
            (Err(reason), Some(_)) => format!("refused by both: {reason}"),
            (Ok(_), Some(reason)) => format!("READ, pydicom: {reason}"),
            (Ok(image), None) => compared(folder, file, &bytes, &image),
        };
        let about = format!("{} [{}, {}]", file.file, file.syntax, file.photometric);
        report.insert(about, line);
    }
    let lines: Vec<String> = report.iter().map(|(file, line)| format!("{file}: {line}")).collect();
    std::fs::write(folder.join("report.txt"), lines.join("\n")).expect("the report is written");
    assert!(!lines.iter().any(|line| line.contains("WRONG")), "{}", lines.join("\n"));
}

/// What is decoded, against what lies beside the file.
fn compared(folder: &Path, file: &PackageFile, bytes: &[u8], image: &RawImage) -> String {
    let read = |suffix: &str| {
        let path = folder.join(format!("{}.{suffix}", file.file));
        let bytes = std::fs::read(path).expect("pydicom's array reads");
        let words = bytes.chunks_exact(8).map(|eight| eight.try_into().expect("has 8 bytes"));
        words.collect::<Vec<[u8; 8]>>()
    };
    let shown: Vec<f64> = read("shown").into_iter().map(f64::from_le_bytes).collect();
    if (image.width, image.height, image.depth) != (file.width, file.height, file.depth) {
        return "WRONG size".to_owned();
    }
    let grey = distance(&image.samples, &shown);
    if file.mono != Some(true) {
        let verdict = if grey > 257.0 { "WRONG " } else { "" };
        return format!("{verdict}luma within {:.2} of 255 levels", grey / 257.0);
    }
    let stored = read("stored").into_iter().map(i64::from_le_bytes);
    let ours = Stored::read(bytes, Colour::Luma).expect("decodes again").values();
    let furthest = ours.iter().zip(stored).map(|(&a, b)| (i64::from(a) - b).abs()).max();
    let furthest = furthest.unwrap_or_default();
    let verdict = if furthest > 1 { "WRONG " } else { "" };
    // What differs by a level before it is stretched differs by more after.
    let verdict = if furthest == 0 && grey > 0.501 { "WRONG " } else { verdict };
    format!("{verdict}stored values within {furthest}, grey within {grey:.3} of its levels")
}

#[test]
fn every_value_of_every_depth_keeps_a_grey_of_its_own() {
    for stored in 1..=16_u8 {
        let mut header = plain_header();
        (header.stored, header.high) = (stored, stored - 1);
        let patterns: Vec<u16> = (0..=header.mask()).collect();
        let shown = grey::shown(&header, &patterns, &Modality::Identity, &Voi::Absent);
        let greys: Vec<u16> = match shown {
            Samples::U8(plane) => plane.into_iter().map(|grey| u16::from(grey) * 257).collect(),
            Samples::U16(plane) => plane,
            Samples::F32(_) => panic!("DICOM decodes to whole numbers"),
        };
        assert_eq!((greys[0], greys[greys.len() - 1]), (0, u16::MAX));
        assert!(greys.windows(2).all(|pair| pair[0] < pair[1]), "{stored} bits");
        // 8 bits and 16 are what they were.
        let step = 65535 / (patterns.len() - 1);
        let exact = greys.iter().enumerate().all(|(at, &grey)| at * step == usize::from(grey));
        assert!(exact || stored % 8 != 0, "{stored} bits");
    }
}

fn plain_header() -> Header {
    Header {
        width: 1,
        height: 1,
        samples: 1,
        photometric: Photometric::Monochrome2,
        planar: false,
        allocated: 16,
        stored: 16,
        high: 15,
        signed: false,
        padding: None,
    }
}
