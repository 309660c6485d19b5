//! Memory that runs out in a step costs nothing but time, and numbers that are none change nothing.

#[path = "support/harm.rs"]
mod harm;

use harm::{break_each, refuse_each, started as started_with, state};
use trainer::build::{Bench, Options, build};
use trainer::data::Targets;
use trainer::memory::fault::strike_after;
use trainer::plan::{BackOff, Plan};
use trainer::run::{Backoff, FolderMode, Trainer};
use trainer::train::Images;

const CONFIG: &str = r#"
[run]
name = "back-off"
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
    plan_of(CONFIG, micro)
}

fn plan_of(text: &str, micro: usize) -> Plan {
    let mut config: trainer::config::Config = toml::from_str(text).expect("a configuration");
    config.memory.micro_batch = Some(trainer::memory::MicroBatch::Images(micro));
    trainer::plan::plan(config).expect("a plan")
}

fn started(micro: usize) -> Bench {
    started_with(&plan(micro))
}

/// A network that keeps much, all of it, for all images at once.
fn keeping() -> Plan {
    let (before, _) = CONFIG.split_once("[memory").expect("is there");
    let deep = before.replace(
        "densenet]\ngrowth = 4\nblocks = [2, 1]\nstem = 6",
        "resnet]\nform = \"cifar\"\ndepth = 14",
    );
    plan_of(&deep, 6)
}

/// The same where nothing is left that would keep less of `micro` images: fewer come next.
fn at_the_least(micro: usize) -> Bench {
    let mut bench = started(micro);
    exhaust(&mut bench.trainer, micro);
    bench
}

fn exhaust(trainer: &mut Trainer, micro: usize) {
    while trainer.planner.clone().back_off(micro) == Some(BackOff::Again) {
        trainer.planner.back_off(micro);
    }
    trainer.begin_epoch(1);
}

/// Operations of a step, its own included.
fn operations(mut bench: Bench) -> usize {
    let armed = strike_after(usize::MAX);
    bench.step().expect("a step");
    armed.asked()
}

#[test]
fn a_step_that_does_not_fit_is_taken_with_more_computed_again_and_the_same_bits() {
    assert!(refuse_each(&keeping(), usize::MAX) > 10);
}

/// A plan of two heads, of which the second has one class of several.
fn two_heads(norm: &str) -> Plan {
    let (before, after) = CONFIG.split_once("[train]").expect("is there");
    let second = "[[heads]]\nname = \"view\"\ntask = \"multiclass\"\nlabels = [\"PA\", \"AP\"]\n";
    let text = format!("{before}{second}[train]{after}");
    plan_of(&text.replace("stem = 6", &format!("stem = 6\nnorm = \"{norm}\"")), 6)
}

#[test]
fn a_number_that_is_none_is_named_in_whichever_layer_or_head_it_is_and_changes_nothing() {
    for plan in [two_heads("batch"), two_heads("group")] {
        assert!(break_each(&plan) > 10);
    }
}

#[test]
fn a_step_of_which_no_more_can_be_computed_again_is_taken_as_with_fewer_images_at_once() {
    let mut expected = started(6);
    expected.trainer.ranks[0].replica.strategy.micro_batch = 3;
    let loss = expected.step().expect("a step").loss;
    let count = operations(at_the_least(6));
    assert!(count > 10, "{count}");
    for operation in 0..count {
        let mut bench = at_the_least(6);
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
    for operation in 0..operations(at_the_least(1)) {
        let mut bench = at_the_least(1);
        let armed = strike_after(operation);
        let error = bench.step().expect_err("one image does not fit");
        drop(armed);
        assert!(format!("{error:?}").contains("OutOfMemory"), "{error:?}");
        assert!(state(&bench) == before, "after {operation} operations");
        // And memory that is there again is used again.
        bench.step().expect("fits now");
    }
}

/// Running statistics do not depend on how many images are evaluated at once.
#[test]
fn an_evaluation_that_does_not_fit_takes_fewer_images_and_steps_stay_as_they_were() {
    let pixels: Vec<f32> = (0..6 * 32 * 32).map(|at| (at as f32 * 0.37).sin()).collect();
    let pixels: Vec<Vec<f32>> = pixels.chunks_exact(32 * 32).map(<[f32]>::to_vec).collect();
    let images = Images::Host { images: &pixels, shape: [6, 1, 32, 32] };
    let targets = [Targets { values: vec![1.0; 12], mask: vec![1.0; 12], width: 2 }];
    let (rows, _) = started(6).trainer.evaluate(images, &targets).expect("evaluates");
    let mut bench = started(6);
    let armed = strike_after(3);
    let (found, _) = bench.trainer.evaluate(images, &targets).expect("is tried again");
    assert!(armed.has_struck());
    assert_eq!(found, rows);
    let Backoff { from, to, evaluating, .. } = bench.trainer.backoffs[0];
    assert!(evaluating && (from, to) == (6, 3), "{from} {to}");
    assert_eq!(bench.trainer.planner.settings().micro_batch, 6);
    bench.trainer.begin_epoch(2);
    assert_eq!(bench.trainer.first().replica.strategy.micro_batch, 6);
}

/// BatchNorm, which the configuration has, normalises over the images at once.
#[test]
fn a_run_says_whether_it_goes_on_with_other_numbers_and_a_saved_state_knows_how() {
    for (norm, exhausted, said, chosen) in [
        ("batch", false, "going on with more recomputation: the same results", 6),
        ("batch", true, "over which BatchNorm normalises: other results than with 6", 3),
        ("group", true, "going on with 3, which gives the same gradient", 3),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut plan = keeping();
        let text = plan.to_toml().expect("is written");
        let text = text.replace("norm = \"batch\"", &format!("norm = {norm:?}"));
        plan = trainer::plan::plan(toml::from_str(&text).expect("reads")).expect("a plan");
        plan.run.output = folder.path().to_owned();
        plan.data.layout.phantom.as_mut().expect("a phantom").root = folder.path().join("phantom");
        let mut run = build(plan, &Options { mode: FolderMode::New }).expect("opens");
        if exhausted {
            exhaust(&mut run.trainer, 6);
        }
        let armed = strike_after(9);
        run.execute().expect("goes on");
        assert!(armed.has_struck());
        let text = std::fs::read_to_string(folder.path().join("back-off/metrics.jsonl"));
        let text = text.expect("is written");
        assert!(text.contains(said), "{text}");
        let saved = std::fs::read_to_string(folder.path().join("back-off/last/state.json"));
        let saved: serde_json::Value =
            serde_json::from_str(&saved.expect("is saved")).expect("JSON");
        let way = &saved["memory"]["way"];
        assert_eq!(way["micro_batch"], chosen, "{norm}: {way}");
        assert!(norm == "group" || way["checkpointing"]["budget"].is_object(), "{norm}: {way}");
    }
}
