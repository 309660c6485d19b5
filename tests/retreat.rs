//! Memory that runs out in a step costs nothing but time.

use std::collections::BTreeMap;

use trainer::build::{Bench, Options, build};
use trainer::memory::fault::strike_after;
use trainer::plan::Plan;
use trainer::run::FolderMode;

const CONFIG: &str = r#"
[run]
name = "retreat"
[device]
use = "cpu"
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
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion"]
dropout = 0.2
[train]
epochs = 1
batch_size = 6
clip_norm = 1.0
[train.optimizer.adamw]
lr = 1e-2
[train.ema]
decay = 0.9
[memory.checkpointing.sequential]
segments = 3
"#;

fn plan(micro: usize) -> Plan {
    let mut config: trainer::config::Config = toml::from_str(CONFIG).expect("a configuration");
    config.memory.micro_batch = Some(trainer::memory::MicroBatch::Images(micro));
    trainer::plan::plan(config).expect("a plan")
}

/// Weights, running statistics, averages and the optimizer's state.
fn state(bench: &Bench) -> BTreeMap<String, Vec<u32>> {
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    let parameters = bench.trainer.ranks[0].replica.inference.chain.parameters().into_iter();
    let weights = parameters.map(|p| (p.name, bits(p.value.into_data().iter().collect())));
    let optimizer = bench.trainer.ranks[0].updater.optimizer.state().expect("is read");
    let kept = optimizer.tensors.into_iter();
    let kept = kept.map(|(name, data)| (format!("optimizer/{name}"), bits(data.iter().collect())));
    let counts = optimizer.scalars.into_iter();
    let counts = counts.map(|(name, count)| (format!("optimizer/{name}"), vec![count as u32]));
    weights.chain(kept).chain(counts).collect()
}

fn started(micro: usize) -> Bench {
    let mut bench = Bench::new(&plan(micro)).expect("opens");
    bench.step().expect("the first step");
    bench
}

/// Operations of a step, its own included.
fn operations(micro: usize) -> usize {
    let mut bench = started(micro);
    let armed = strike_after(usize::MAX);
    bench.step().expect("a step");
    armed.asked()
}

#[test]
fn a_step_that_does_not_fit_is_taken_as_with_fewer_images_at_once() {
    let mut expected = started(6);
    expected.trainer.ranks[0].replica.strategy.micro_batch = 3;
    let loss = expected.step().expect("a step").loss;
    let count = operations(6);
    assert!(count > 10, "{count}");
    for operation in 0..count {
        let mut bench = started(6);
        let armed = strike_after(operation);
        let taken = bench.step().expect("is tried again");
        assert!(armed.has_struck());
        drop(armed);
        assert_eq!(taken.loss.to_bits(), loss.to_bits(), "after {operation} operations");
        assert!(state(&bench) == state(&expected), "after {operation} operations");
        let backoffs = &bench.trainer.backoffs;
        assert_eq!((backoffs[0].from, backoffs[0].to, backoffs.len()), (6, 3, 1));
    }
}

#[test]
fn a_step_that_fits_with_no_number_of_images_changes_nothing() {
    let before = state(&started(1));
    for operation in 0..operations(1) {
        let mut bench = started(1);
        let armed = strike_after(operation);
        let error = bench.step().expect_err("one image does not fit");
        drop(armed);
        assert!(format!("{error:?}").contains("OutOfMemory"), "{error:?}");
        assert!(state(&bench) == before, "after {operation} operations");
        // And memory that is there again is used again.
        bench.step().expect("fits now");
    }
}

/// BatchNorm, which the configuration has, normalises over the images at once.
#[test]
fn a_run_says_whether_fewer_images_at_once_give_other_numbers() {
    for (norm, said) in [
        ("batch", "over which BatchNorm normalises: other numbers than with 6"),
        ("group", "which gives the same gradient"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut plan = plan(6);
        let text = plan.to_toml().expect("is written");
        let text = text.replace("norm = \"batch\"", &format!("norm = {norm:?}"));
        plan = trainer::plan::plan(toml::from_str(&text).expect("reads")).expect("a plan");
        plan.run.output = folder.path().to_owned();
        plan.data.layout.phantom.as_mut().expect("a phantom").root = folder.path().join("phantom");
        let mut run = build(plan, &Options { mode: FolderMode::New }).expect("opens");
        let armed = strike_after(9);
        run.execute().expect("goes on");
        assert!(armed.has_struck());
        let text = std::fs::read_to_string(folder.path().join("retreat/metrics.jsonl"));
        let text = text.expect("is written");
        assert!(text.contains(&format!("going on with 3, {said}")), "{text}");
    }
}
