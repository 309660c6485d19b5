//! All operations against torchvision and OpenCV (tests/fixtures/data_augment.py), and what must
//! hold of all of them together.

use std::sync::LazyLock;

use serde::Deserialize;

use super::warp::tests::applied;
use super::*;
use crate::data::area::Area;
use crate::data::config::Clahe;

#[derive(Deserialize, Clone)]
pub(super) struct Fixture {
    size: [usize; 2],
    levels: Vec<f32>,
    affine: Vec<AffineCase>,
    cropped: Vec<CropCase>,
    brightness: Vec<Case>,
    contrast: Vec<Case>,
    gamma: Vec<Case>,
    blur: Vec<Case>,
    clahe: Vec<ClaheCase>,
    pub noise: NoiseCase,
    pub resized_crop: Vec<DrawnCase>,
    pub erasing: Vec<DrawnCase>,
}

#[derive(Deserialize, Clone)]
struct Case {
    by: f64,
    expected: Vec<f32>,
}

#[derive(Deserialize, Clone)]
struct AffineCase {
    degrees: f64,
    shift: [f64; 2],
    scale: f64,
    shear_degrees: f64,
    flip: bool,
    expected: Vec<f32>,
}

#[derive(Deserialize, Clone)]
struct CropCase {
    part: [usize; 4],
    expected: Vec<f32>,
}

#[derive(Deserialize, Clone)]
struct ClaheCase {
    size: [usize; 2],
    levels: Vec<u8>,
    clip_limit: f64,
    tiles: [usize; 2],
    expected: Vec<u8>,
}

#[derive(Deserialize, Clone)]
pub(super) struct NoiseCase {
    pub places: Vec<usize>,
    pub quantiles: Vec<f32>,
}

/// Rectangles drawn by torchvision: how many of the draws had each value.
#[derive(Deserialize, Clone)]
pub(super) struct DrawnCase {
    pub size: [usize; 2],
    pub area: [f64; 2],
    pub ratio: [f64; 2],
    pub draws: usize,
    pub top: Vec<u32>,
    pub left: Vec<u32>,
    pub height: Vec<u32>,
    pub width: Vec<u32>,
}

impl Fixture {
    pub fn read() -> Self {
        static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
            let text = include_str!("../../../tests/fixtures/data_augment.json");
            serde_json::from_str(text).expect("the fixture reads")
        });
        FIXTURE.clone()
    }

    fn image(&self) -> Resized {
        Resized::unit(self.levels.clone(), self.size, Area::whole(self.size))
    }
}

/// Two samples of one distribution: by Kolmogorov and Smirnov's test their cumulative shares differ
/// by more than this in one of 10,000 pairs.
pub(super) fn assert_same_distribution(ours: Vec<usize>, theirs: &[u32]) {
    let count = theirs.iter().sum::<u32>() as f64;
    assert!(ours.len() as f64 == count && count >= 1000.0);
    let mut tally = vec![0_i64; theirs.len().max(ours.iter().max().map_or(0, |most| most + 1))];
    ours.iter().for_each(|&value| tally[value] += 1);
    let mut apart = 0_i64;
    let mut worst = 0;
    for (value, ours) in tally.iter().enumerate() {
        apart += ours - theirs.get(value).map_or(0, |&count| i64::from(count));
        worst = worst.max(apart.abs());
    }
    let allowed = 2.225 * (2.0 / count).sqrt();
    assert!(worst as f64 / count < allowed, "{} apart, {allowed} allowed", worst as f64 / count);
}

fn assert_close(ours: &[f32], theirs: &[f32], within: f32, what: &str) {
    assert_eq!(ours.len(), theirs.len());
    for (place, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        assert!((ours - theirs).abs() <= within, "{what} at {place}: {ours} for {theirs}");
    }
}

#[test]
fn affine_maps_are_those_of_torchvision() {
    let fixture = Fixture::read();
    assert!(fixture.affine.len() >= 6);
    for case in &fixture.affine {
        let affine = Affine {
            radians: case.degrees.to_radians(),
            scale: case.scale,
            shift: case.shift,
            shear: case.shear_degrees.to_radians().tan(),
            flip: case.flip,
        };
        let ours = applied(&Warp::new(&affine, None, fixture.size), &fixture.levels);
        assert_close(&ours, &case.expected, 1e-4, &format!("{affine:?}"));
    }
}

#[test]
fn parts_are_enlarged_as_torchvision_enlarges_them() {
    let fixture = Fixture::read();
    assert!(fixture.cropped.len() >= 3);
    for CropCase { part: [top, left, height, width], expected } in &fixture.cropped {
        let part = Area { top: *top, left: *left, height: *height, width: *width };
        let warp = Warp::new(&Affine::STILL, Some(part), fixture.size);
        assert_close(&applied(&warp, &fixture.levels), expected, 1e-5, &format!("{part:?}"));
    }
}

#[test]
fn levels_are_changed_as_torchvision_changes_them() {
    let fixture = Fixture::read();
    type Change = fn(&mut Resized, f64);
    let operations: [(&str, &[Case], Change); 4] = [
        ("brightness", &fixture.brightness, |image, by| brightness::brighten(image, by as f32)),
        ("contrast", &fixture.contrast, |image, by| contrast::stretch(image, by as f32)),
        ("gamma", &fixture.gamma, |image, by| gamma::raise(image, by as f32)),
        ("blur", &fixture.blur, blur::soften),
    ];
    for (name, cases, change) in operations {
        assert!(cases.len() >= 3, "{name}");
        for case in cases {
            let mut image = fixture.image();
            change(&mut image, case.by);
            assert_close(&image.levels, &case.expected, 2e-6, &format!("{name} {}", case.by));
        }
    }
}

#[test]
fn histograms_are_equalised_as_opencv_equalises_them() {
    let fixture = Fixture::read();
    assert!(fixture.clahe.len() >= 5);
    for case in &fixture.clahe {
        let levels = case.levels.iter().map(|&level| f32::from(level) / 255.0).collect();
        let mut image = Resized::unit(levels, case.size, Area::whole(case.size));
        let (clip_limit, tiles) = (case.clip_limit, case.tiles);
        clahe::equalise(&mut image, &Clahe { probability: 1.0, clip_limit, tiles });
        for (ours, &theirs) in image.levels.iter().zip(&case.expected) {
            // OpenCV rounds its mappings, and the result again.
            let apart = (ours * 255.0 - f32::from(theirs)).abs();
            assert!(apart <= 1.01, "{:?}, {clip_limit}: {ours} for {theirs}", case.size);
        }
    }
}

#[test]
fn equalising_keeps_levels_between_those_of_8_bits() {
    let levels: Vec<f32> = (0..4096).map(|place| 0.5 + place as f32 / 65535.0).collect();
    let mut image = Resized::unit(levels, [64, 64], Area::whole([64, 64]));
    let one = Clahe { probability: 1.0, clip_limit: 4.0, tiles: [1, 1] };
    clahe::equalise(&mut image, &one);
    assert!(image.levels.windows(2).all(|pair| pair[0] < pair[1]));
}

/// Everything at once.
fn all() -> AugmentConfig {
    let text = "rotate_degrees = 15\ntranslate = 0.1\nscale = 0.2\nshear_degrees = 5\n\
                horizontal_flip = 0.5\nbrightness = 0.3\ncontrast = 0.3\ngamma = 0.3\nnoise = 0.1\n\
                blur = 2\nrandom_resized_crop = {}\nclahe = {}\nrandom_erasing = {}";
    toml::from_str(text).expect("reads")
}

#[test]
fn all_together_stay_between_black_and_white_in_images_of_every_shape() {
    for (height, width) in [(1, 1), (1, 40), (40, 1), (17, 5), (64, 64)] {
        for number in 0..30 {
            let content = Area { top: 3, left: 2, height, width };
            let mut image = Resized::unit(vec![0.0; 70 * 70 * 2], [70, 70], content);
            for (row, line) in image.inside_mut().enumerate() {
                line.iter_mut().enumerate().for_each(|(column, level)| {
                    *level = ((row * 31 + column * 17) % 101) as f32 / 100.0;
                });
            }
            apply(&mut image, &all(), Place { seed: 3, epoch: 1, number });
            assert_eq!(image.levels.len(), 2 * 70 * 70);
            assert!(image.levels.iter().all(|level| (-1e-6..=1.000_001).contains(level)));
        }
    }
}

#[test]
fn no_setting_changes_what_another_draws() {
    let fixture = Fixture::read();
    let place = Place { seed: 5, epoch: 2, number: 9 };
    let changed = |config: AugmentConfig| {
        let mut image = fixture.image();
        apply(&mut image, &config, place);
        image.levels
    };
    // Noise is drawn last: with any other setting that leaves levels as they are it is the same.
    let noise = AugmentConfig { noise: 0.01, ..AugmentConfig::default() };
    let with = AugmentConfig {
        mixup: 0.2,
        cutmix: 1.0,
        clahe: Some(Clahe { probability: 0.0, ..Clahe::default() }),
        ..noise
    };
    assert_eq!(changed(noise), changed(with));
    // A warp draws the same however strong the brightness: dark and bright images are alike.
    let warp = AugmentConfig { rotate_degrees: 20.0, translate: 0.5, ..AugmentConfig::default() };
    let bright = changed(AugmentConfig { brightness: 1.0, contrast: 1.0, ..warp });
    let plain = changed(warp);
    let black = |levels: &[f32]| levels.iter().map(|level| *level == 0.0).collect::<Vec<_>>();
    assert!(plain.contains(&0.0));
    let beyond = black(&plain).into_iter().zip(black(&bright));
    assert!(beyond.into_iter().all(|(plain, bright)| !plain || bright));
}

#[test]
fn planes_of_an_array_are_moved_together() {
    let fixture = Fixture::read();
    let mut image = fixture.image();
    image.levels.extend_from_within(..);
    let config = AugmentConfig { noise: 0.0, ..all() };
    apply(&mut image, &config, Place { seed: 1, epoch: 1, number: 1 });
    let (one, other) = image.levels.split_at(image.levels.len() / 2);
    assert_eq!(one, other);
}
