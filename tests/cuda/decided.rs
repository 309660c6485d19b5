//! Steps about which the GPU decides by itself, so that the next one begins before the host knows of them.

use std::sync::Arc;

use trainer::build::Bench;
use trainer::data::{Batch, Targets};
use trainer::run::BegunStep;
use trainer::train::{HeadLoss, TrainError};

use super::state::{bits, on_device};

const SIDE: usize = 32;
const COUNT: usize = 4;
const STEPS: usize = 100;

const CONFIG: &str = r#"
device = { use = "cuda" }
run = { name = "decided" }
model = { densenet = { growth = 16, blocks = [2, 2], stem = 16 } }
[data]
image = { size = [32, 32], channels = 3 }
phantom = { root = "unused", patients = 8, size = 32 }
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion"]
weight = 0.7
[[heads]]
name = "edema"
task = "binary"
labels = ["Edema"]
[train]
epochs = 1
batch_size = 4
clip_norm = 0.3
ema = { decay = 0.9 }
"#;

const OPTIMIZERS: [&str; 3] = [
    "sgd = { lr = 0.05, momentum = 0.9, weight_decay = 1e-4 }",
    "sgd = { lr = 0.05 }",
    "adamw = { lr = 1e-3, weight_decay = 0.02 }",
];

fn open(optimizer: &str, memory: &str) -> Bench {
    let text = format!("{CONFIG}optimizer.{optimizer}\n[memory]\n{memory}");
    let config = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    Bench::new(&trainer::plan::plan(config).expect("a plan")).expect("opens")
}

/// Of the second head no label is known in every other step. The image at `broken` has a pixel that is no number.
fn batch(step: usize, broken: Option<usize>) -> Arc<Batch> {
    let image = |image: usize| {
        let speed = 0.3 + 0.01 * (step * COUNT + image) as f64;
        let pixel = |at: usize| (at as f64 * speed).sin() as f32;
        let mut pixels: Vec<f32> = (0..3 * SIDE * SIDE).map(pixel).collect();
        if broken == Some(image) {
            pixels[SIDE] = f32::NAN;
        }
        pixels
    };
    let values = |width: usize| (0..width * COUNT).map(|at| ((at + step) % 2) as f32).collect();
    let targets = |width: usize, known: f32| Targets {
        values: values(width),
        mask: vec![known; width * COUNT],
        width,
    };
    Arc::new(Batch {
        images: (0..COUNT).map(image).collect(),
        shape: [COUNT, 3, SIDE, SIDE],
        targets: vec![targets(2, 1.0), targets(1, (step % 2) as f32)],
        indices: (0..COUNT).collect(),
        skipped: Vec::new(),
    })
}

fn rate(step: usize) -> f64 {
    0.05 * 0.97_f64.powi(step as i32)
}

fn begin(
    bench: &mut Bench,
    batch: &Arc<Batch>,
    step: usize,
    before: Option<&BegunStep>,
) -> Result<BegunStep, TrainError> {
    bench.trainer.begin_step(batch.into(), &batch.targets, step, rate(step), before)
}

fn end(
    bench: &mut Bench,
    begun: BegunStep,
    batch: &Arc<Batch>,
) -> Result<Vec<HeadLoss>, TrainError> {
    bench.trainer.end_step(begun, batch.into(), &batch.targets)
}

/// Who decides about a step, and when the next one begins.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// The host, as where there are several devices.
    Host,
    /// The GPU, and the host waits for it.
    Gpu,
    /// The GPU, while the next step has begun.
    Ahead,
}

/// The losses of the steps, and everything that they have changed, bit by bit.
fn trained(way: Way, optimizer: &str, memory: &str) -> (Vec<HeadLoss>, Vec<(String, Vec<u32>)>) {
    let mut bench = open(optimizer, memory);
    if way == Way::Host {
        bench.trainer.courses = Some(Vec::new());
    }
    assert_eq!(bench.trainer.runs_ahead(), way != Way::Host, "{optimizer}, {memory}");
    let mut losses = Vec::new();
    let mut before: Option<(BegunStep, Arc<Batch>)> = None;
    for step in 0..STEPS {
        let batch = batch(step, None);
        let begun = begin(&mut bench, &batch, step, before.as_ref().map(|(begun, _)| begun));
        if let Some((begun, batch)) = before.take() {
            losses.extend(end(&mut bench, begun, &batch).expect("ends"));
        }
        before = Some((begun.expect("begins"), batch));
        if way != Way::Ahead
            && let Some((begun, batch)) = before.take()
        {
            losses.extend(end(&mut bench, begun, &batch).expect("ends"));
        }
    }
    if let Some((begun, batch)) = before {
        losses.extend(end(&mut bench, begun, &batch).expect("ends"));
    }
    let values = on_device(bench.trainer.first());
    let found = bits(&values).into_iter().map(|(name, bits)| (name.to_owned(), bits)).collect();
    (losses, found)
}

#[test]
fn steps_that_the_gpu_decides_about_are_those_of_the_host() {
    for memory in ["", "precision = \"bf16\"", "precision = \"bf16\"\nmicro_batch = 2"] {
        for optimizer in OPTIMIZERS {
            let host = trained(Way::Host, optimizer, memory);
            assert!(host.0.iter().any(|loss| loss.normalizer == 0.0), "no label of a head");
            for way in [Way::Gpu, Way::Ahead] {
                let found = trained(way, optimizer, memory);
                assert!(found.0 == host.0, "{way:?}, {optimizer}, {memory}: losses");
                assert!(found.1 == host.1, "{way:?}, {optimizer}, {memory}");
            }
        }
    }
}

#[test]
fn a_step_that_is_not_finite_is_told_as_the_host_tells_it_and_changes_nothing() {
    const BROKEN: usize = 3;
    for optimizer in OPTIMIZERS {
        let steps: Vec<_> =
            (0..=BROKEN + 1).map(|step| batch(step, (step == BROKEN).then_some(2))).collect();
        // The count of the optimizer's steps too.
        let all = |bench: &Bench| {
            let rank = bench.trainer.first();
            let values = on_device(rank);
            let owned = bits(&values).into_iter().map(|(name, bits)| (name.to_owned(), bits));
            let state = rank.updater.optimizer.state().expect("is read");
            (owned.collect::<Vec<_>>(), state.scalars)
        };
        let mut host = open(optimizer, "");
        host.trainer.courses = Some(Vec::new());
        for (step, batch) in steps[..BROKEN].iter().enumerate() {
            begin(&mut host, batch, step, None).expect("begins");
        }
        let before = all(&host);
        let told = begin(&mut host, &steps[BROKEN], BROKEN, None).expect_err("is refused");
        assert!(told.to_string().contains("image"), "{told}");

        let mut bench = open(optimizer, "");
        for (step, batch) in steps[..BROKEN].iter().enumerate() {
            let begun = begin(&mut bench, batch, step, None).expect("begins");
            end(&mut bench, begun, batch).expect("ends");
        }
        let broken = begin(&mut bench, &steps[BROKEN], BROKEN, None).expect("begins");
        let next = begin(&mut bench, &steps[BROKEN + 1], BROKEN + 1, Some(&broken));
        let next = next.expect("begins");
        let found = end(&mut bench, broken, &steps[BROKEN]).expect_err("is not finite");
        assert_eq!(found.to_string(), told.to_string(), "{optimizer}");
        assert!(end(&mut bench, next, &steps[BROKEN + 1]).is_err(), "{optimizer}");
        assert!(all(&bench) == before, "{optimizer}");
    }
}
