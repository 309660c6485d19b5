//! Steps of a small network on logical devices of the CPU, on batches of several sizes with labels that are
//! not all known.

use trainer::build::Bench;
use trainer::data::Targets;
use trainer::fault::Fault;
use trainer::plan::Plan;
use trainer::train::{HeadLoss, Images, TrainError};

pub const SIDE: usize = 32;
pub const STEPS: usize = 10;

const CONFIG: &str = r#"
[run]
name = "steps"
[data]
image = { size = [32, 32], channels = 1 }
[data.phantom]
root = "unused"
patients = 8
size = 32
[model.densenet]
growth = 4
blocks = [2, 1]
stem = 6
NORM
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion"]
weight = 0.7
HEAD
[[heads]]
name = "edema"
task = "binary"
labels = ["Edema"]
[train]
epochs = 1
batch_size = 8
clip_norm = 1.0
[train.optimizer.sgd]
lr = 0.05
momentum = 0.9
weight_decay = 1e-4
[train.ema]
decay = 0.9
"#;

/// Settings of the network, and of its first head.
pub type Network = [&'static str; 2];

pub const BATCH_NORM: Network = ["", ""];
/// A norm that does not mix images, and dropout in the network and in a head.
pub const GROUP_NORM: Network = ["norm = \"group\"\ndropout = 0.2", "dropout = 0.25\nhidden = [5]"];

/// The plan of `network` on so many devices, with `more` below the configuration.
///
/// # Errors
/// When there is none.
pub fn configured([norm, head]: Network, devices: usize, more: &str) -> Result<Plan, Fault> {
    let names: Vec<String> = (0..devices).map(|number| format!("\"cpu:{number}\"")).collect();
    let text = CONFIG.replace("NORM", norm).replace("HEAD", head);
    let folder = std::env::temp_dir();
    let more = more.replace("FOLDER", folder.to_str().expect("is UTF-8"));
    let text = format!("{text}\n[device]\nuse = [{}]\n{more}", names.join(", "));
    trainer::plan::plan(toml::from_str(&text).expect("a configuration"))
}

/// The images of a step: the last batch of an epoch is smaller than the others, and smaller than the
/// number of devices.
pub fn count(step: usize) -> usize {
    match step % 4 {
        2 => 5,
        3 => 3,
        _ => 8,
    }
}

fn wave(length: usize, speed: f64) -> Vec<f32> {
    (0..length).map(|at| ((at as f64 * speed).sin() * 0.5 + 0.5) as f32).collect()
}

/// Of other images in each step. Of the first head each label is known for some images, and those of the
/// second for every other step only.
pub fn batch(step: usize) -> (Vec<Vec<f32>>, Vec<Targets>) {
    let images = count(step);
    let pixels = wave(images * SIDE * SIDE, 0.37 + 0.01 * step as f64);
    let pixels = pixels.chunks_exact(SIDE * SIDE).map(<[f32]>::to_vec).collect();
    let known = |at: usize| f32::from(u8::from(!(at + step).is_multiple_of(3)));
    let mask: Vec<f32> = (0..2 * images).map(known).collect();
    let values = mask.iter().enumerate().map(|(at, known)| known * (at % 5 % 2) as f32).collect();
    let findings = Targets { values, mask, width: 2 };
    let mask = vec![(step % 2) as f32; images];
    let values = mask.iter().enumerate().map(|(at, known)| known * (at % 2) as f32).collect();
    (pixels, vec![findings, Targets { values, mask, width: 1 }])
}

/// Takes a step.
///
/// # Errors
/// When it cannot be taken.
pub fn try_step(bench: &mut Bench, step: usize) -> Result<Vec<HeadLoss>, TrainError> {
    let (values, targets) = batch(step);
    let images = Images::Host { images: &values, shape: [count(step), 1, SIDE, SIDE] };
    bench.trainer.step(images, &targets, step, 0.05)
}

/// Takes a step.
pub fn step(bench: &mut Bench, number: usize) -> Vec<HeadLoss> {
    try_step(bench, number).expect("a step")
}
