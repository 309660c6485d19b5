//! How long an image takes between the resized plane and the batch, on one core, by operation.
//!
//!     cargo bench --no-default-features --features cpu --bench augment

#![expect(clippy::print_stdout, clippy::unwrap_used, reason = "a program that measures")]

use std::time::Instant;

use trainer::data::{Area, AugmentConfig, ImageConfig, Place, Resized, prepare};

/// A name, `[data.augment]` and `normalize`.
const CASES: [(&str, &str, &str); 18] = [
    ("nothing", "", "'unit'"),
    ("warp", "rotate_degrees = 15\ntranslate = 0.1\nscale = 0.1\nshear_degrees = 5", "'unit'"),
    ("flip", "horizontal_flip = 1.0", "'unit'"),
    ("random resized crop", "random_resized_crop = {}", "'unit'"),
    ("brightness", "brightness = 0.2", "'unit'"),
    ("contrast", "contrast = 0.2", "'unit'"),
    ("gamma", "gamma = 0.2", "'unit'"),
    ("noise", "noise = 0.05", "'unit'"),
    ("random erasing", "random_erasing = { probability = 1 }", "'unit'"),
    (
        "all pointwise",
        "brightness = 0.2\ncontrast = 0.2\ngamma = 0.2\nnoise = 0.05\nrandom_erasing = {}",
        "'unit'",
    ),
    ("blur, up to 2 pixels", "blur = 2", "'unit'"),
    ("blur, up to 10 pixels", "blur = 10", "'unit'"),
    ("CLAHE", "clahe = { probability = 1 }", "'unit'"),
    ("mean and std", "", "{ mean = 0.5, std = 0.25 }"),
    ("per_image", "", "'per_image'"),
    ("percentile", "", "{ percentile = [0.5, 99.5] }"),
    (
        "usual training",
        "rotate_degrees = 10\ntranslate = 0.05\nscale = 0.1\nbrightness = 0.1\ncontrast = 0.1",
        "'unit'",
    ),
    (
        "all at once",
        "rotate_degrees = 10\ntranslate = 0.05\nscale = 0.1\nrandom_resized_crop = {}\n\
         brightness = 0.1\ncontrast = 0.1\ngamma = 0.2\nnoise = 0.05\nblur = 1\n\
         clahe = { probability = 1 }\nrandom_erasing = {}",
        "'xrv'",
    ),
];

const REPEATS: usize = 40;

fn main() {
    println!("{:<24}{:>14}{:>14}", "ms an image, one core", "320×320", "1024×1024");
    for (name, augment, normalize) in CASES {
        let [small, large] = [320, 1024].map(|side| milliseconds(augment, normalize, side));
        println!("{name:<24}{small:>14.3}{large:>14.3}");
    }
}

/// The median over different draws.
fn milliseconds(augment: &str, normalize: &str, side: usize) -> f64 {
    let augment: AugmentConfig = toml::from_str(augment).unwrap();
    let image = format!("size = [{side}, {side}]\nnormalize = {normalize}");
    let config: ImageConfig = toml::from_str(&image).unwrap();
    let levels: Vec<f32> = (0..side * side)
        .map(|place| {
            let (row, column) = (place / side, place % side);
            (row * 3 % 200 + column * 7 % 150 + place * 31 % 17) as f32 / 380.0
        })
        .collect();
    let mut times: Vec<f64> = (0..REPEATS)
        .map(|number| {
            let whole = Area::whole([side, side]);
            let image = Resized::unit(levels.clone(), [side, side], whole);
            let begin = Instant::now();
            let seen = prepare(image, &config, Some(&augment), Place { seed: 1, epoch: 0, number });
            let time = begin.elapsed().as_secs_f64() * 1e3;
            assert!(std::hint::black_box(seen).len() == side * side);
            time
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[REPEATS / 2]
}
