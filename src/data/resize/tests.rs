use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Case {
    fit: Fit,
    bits: u8,
    /// Height and width.
    source: [usize; 2],
    size: [usize; 2],
    /// Every so many pixels of the result are kept.
    step: usize,
    expected: Vec<u16>,
}

/// The pattern that tests/fixtures/data_resize.py draws too.
fn pattern([height, width]: [usize; 2], bits: u8) -> RawImage {
    let value = |place: usize| {
        let (row, column) = ((place / width) as u64, (place % width) as u64);
        (row * 7919 + column * 104_729 + row * column * 31) % 65_536
    };
    let count = height * width;
    let samples = match bits {
        8 => Samples::U8((0..count).map(|place| (value(place) >> 8) as u8).collect()),
        _ => Samples::U16((0..count).map(|place| value(place) as u16).collect()),
    };
    RawImage { width, height, planes: 1, samples, depth: bits }
}

fn wide(samples: &Samples) -> Vec<f64> {
    match samples {
        Samples::U8(values) => values.iter().map(|value| f64::from(*value)).collect(),
        Samples::U16(values) => values.iter().map(|value| f64::from(*value)).collect(),
        Samples::F32(values) => values.iter().map(|value| f64::from(*value)).collect(),
    }
}

#[test]
fn images_are_resized_as_opencv_resizes_them() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("../../../tests/fixtures/data_resize.json"))
            .expect("reads");
    assert!(cases.len() >= 12);
    for case in cases {
        let resized = resize(&pattern(case.source, case.bits), case.size, case.fit);
        assert_eq!(resized.size, case.size);
        let ours = wide(&resized.samples);
        assert_eq!(ours.iter().step_by(case.step).count(), case.expected.len());
        for (ours, theirs) in ours.iter().step_by(case.step).zip(&case.expected) {
            let off = (ours - f64::from(*theirs)).abs();
            assert!(off <= 1.0, "{:?} {:?} {:?}: {off}", case.fit, case.source, case.size);
        }
    }
}

#[test]
fn a_letterbox_keeps_the_shape_and_leaves_the_rest_black() {
    let samples = Samples::U16(vec![65535; 800]);
    let image = RawImage { width: 40, height: 20, planes: 1, samples, depth: 16 };
    let boxed = resize(&image, [32, 32], Fit::Letterbox);
    assert_eq!(boxed.content, Area { top: 8, left: 0, height: 16, width: 32 });
    let boxed = wide(&boxed.samples);
    for (row, line) in boxed.chunks_exact(32).enumerate() {
        let expected = if (8..24).contains(&row) { 65535.0 } else { 0.0 };
        assert!(line.iter().all(|&value| value == expected), "row {row}");
    }
}

#[test]
fn the_size_of_the_image_itself_changes_no_pixel() {
    for fit in [Fit::Letterbox, Fit::Crop, Fit::Stretch] {
        for bits in [8, 16] {
            let image = pattern([33, 35], bits);
            assert_eq!(resize(&image, [33, 35], fit).samples, image.samples);
        }
    }
}

#[test]
fn every_plane_is_resized_by_itself() {
    let [first, second] = [pattern([9, 12], 16), pattern([9, 12], 8)];
    let floats =
        |image: &RawImage| wide(&image.samples).iter().map(|v| *v as f32).collect::<Vec<f32>>();
    let samples = Samples::F32([floats(&first), floats(&second)].concat());
    let both = RawImage { planes: 2, samples, ..first.clone() };
    let Samples::F32(resized) = resize(&both, [5, 7], Fit::Crop).samples else { panic!("floats") };
    for (image, plane) in [first, second].iter().zip(resized.chunks_exact(35)) {
        let alone = wide(&resize(image, [5, 7], Fit::Crop).samples);
        assert!(alone.iter().zip(plane).all(|(a, b)| (a - f64::from(*b)).abs() <= 0.51));
    }
}

#[test]
fn extreme_shapes_give_full_planes_of_the_same_grey() {
    for (width, height) in [(1, 1), (1, 3000), (3000, 1), (2, 5)] {
        let samples = Samples::U16(vec![30000; width * height]);
        let image = RawImage { width, height, planes: 1, samples, depth: 16 };
        for fit in [Fit::Letterbox, Fit::Crop, Fit::Stretch] {
            let plane = wide(&resize(&image, [32, 40], fit).samples);
            assert_eq!(plane.len(), 32 * 40);
            assert!(plane.iter().all(|value| [0.0, 30000.0].contains(value)));
            assert!(fit == Fit::Letterbox || plane.iter().all(|value| *value == 30000.0));
        }
    }
}
