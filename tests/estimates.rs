//! The memory estimated for a training step is that which the step takes: what the allocator of this
//! program counts.
#![cfg(feature = "cpu")]

use std::alloc::System;

use burn::tensor::Device;
use trainer::build::Bench;
use trainer::memory::measure::{Counting, Meter};
use trainer::plan::{Machine, Plan};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

const DENSE: &str = "[model.densenet]\ngrowth = 12\nblocks = [3, 4, 3]\nstem = 24\n";
const DENSE_GROUP: &str = "[model.densenet]\ngrowth = 12\nblocks = [3, 4, 3]\nstem = 24\n\
                           norm = \"group\"\ndropout = 0.1\n";
const DENSE_121: &str = "[model.densenet]\ndepth = 121\n";
const RES_18: &str = "[model.resnet]\ndepth = 18\n";
const RES_50: &str = "[model.resnet]\ndepth = 50\n";
/// Nothing is kept of what is frozen.
const RES_18_FROZEN: &str =
    "[model]\nfreeze = [\"stem\", \"layer1\", \"layer2\"]\n[model.resnet]\ndepth = 18\n";
const DENSE_FROZEN: &str = "[model]\nfreeze = [\"stem\", \"denseblock1\"]\n\
                            [model.densenet]\ngrowth = 12\nblocks = [3, 4, 3]\nstem = 24\n";
const CIFAR_20: &str = "[model.resnet]\nform = \"cifar\"\ndepth = 20\n";
const CIFAR_GROUP: &str = "[model.resnet]\nform = \"cifar\"\ndepth = 29\n\
                           block = \"bottleneck\"\nnorm = \"group\"\n";
/// Nearly all of it is the head.
const TINY: &str = "[model.resnet]\nform = \"cifar\"\nblock = \"basic\"\nblocks = [1]\nstem = 8\n";

/// Experiment 11's layers, smaller at the end.
const CNN: &str = "[model.sequential]\nlayers = [{ conv = { channels = 50, kernel = 3, padding = 1 } }, \
                   \"relu\", { conv = { channels = 25, kernel = 3, padding = 1 } }, \"relu\", \
                   { conv = { channels = 10, kernel = 3, padding = 1 } }, \"relu\", \"flatten\", \
                   { linear = { features = 200 } }, \"sigmoid\"]\n";
const BRANCHES: &str = "[model.sequential]\nlayers = [{ conv = { channels = 24, kernel = 5, stride = 2, \
                        padding = 2 } }, \"batch_norm\", \"relu\", { max_pool = { kernel = 2 } }, \
                        { branches = { join = \"concat\", of = [[{ conv = { channels = 16, kernel = 1 } }, \
                        \"relu\"], [{ conv = { channels = 32, kernel = 3, padding = 1 } }, \"batch_norm\"], \
                        []] } }, { mean_pool = { kernel = 2 } }, { dropout = { probability = 0.2 } }, \
                        { branches = { join = \"add\", of = [[], [{ conv = { channels = 72, kernel = 3, \
                        padding = 1 } }, \"relu\"]] } }, \"global_pool\"]\n";

const SQRT: &str = "checkpointing = \"sqrt\"";
const EVERY: &str = "checkpointing = \"every\"";
const TWO: &str = "checkpointing = { sequential = { segments = 2 } }";

/// Model, hidden widths of its head, side, batch, memory.
const CASES: [(&str, &str, &str, usize, usize, &str); 31] = [
    ("small DenseNet", DENSE, "", 96, 8, ""),
    ("small DenseNet", DENSE, "", 96, 8, EVERY),
    ("small DenseNet", DENSE, "", 96, 8, "micro_batch = 4\ncheckpointing = \"sqrt\""),
    ("small DenseNet, groups, dropout", DENSE_GROUP, "", 96, 8, ""),
    ("small DenseNet, groups, dropout", DENSE_GROUP, "", 96, 8, EVERY),
    ("DenseNet-121", DENSE_121, "", 64, 16, ""),
    ("DenseNet-121", DENSE_121, "", 64, 16, SQRT),
    ("DenseNet-121", DENSE_121, "", 64, 8, "micro_batch = 4\ncheckpointing = \"every\""),
    ("DenseNet-121", DENSE_121, "", 64, 16, TWO),
    ("ResNet-18", RES_18, "", 64, 32, ""),
    ("ResNet-18", RES_18, "", 96, 16, SQRT),
    ("ResNet-18", RES_18, "", 64, 32, "micro_batch = 16"),
    ("ResNet-18, half frozen", RES_18_FROZEN, "", 96, 16, ""),
    ("ResNet-18, half frozen", RES_18_FROZEN, "", 96, 16, EVERY),
    ("small DenseNet, a block frozen", DENSE_FROZEN, "", 96, 8, "micro_batch = 4"),
    ("ResNet-50", RES_50, "", 64, 8, EVERY),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, ""),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, SQRT),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, EVERY),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, "micro_batch = 16"),
    ("ResNet-29, CIFAR, groups", CIFAR_GROUP, "", 32, 16, TWO),
    ("list of layers", CNN, "", 48, 32, ""),
    ("list of layers", CNN, "", 48, 32, EVERY),
    ("list with branches", BRANCHES, "", 96, 16, ""),
    ("list with branches", BRANCHES, "", 96, 16, TWO),
    ("small DenseNet", DENSE, "", 96, 8, "precision = \"bf16\""),
    ("ResNet-18", RES_18, "", 96, 16, "precision = \"fp16\"\ncheckpointing = \"sqrt\""),
    ("list of layers", CNN, "", 96, 32, "precision = \"bf16\""),
    ("list with branches", BRANCHES, "", 192, 16, "precision = \"fp16\""),
    ("heads 4096, 4096", TINY, "hidden = [4096, 4096]", 32, 8, ""),
    ("heads 2048, 2048", TINY, "hidden = [2048, 2048]\ndropout = 0.5", 32, 64, EVERY),
];

fn plan(model: &str, head: &str, side: usize, batch: usize, memory: &str) -> Plan {
    let text = format!(
        "[run]\nname = \"prediction\"\nseed = 1\n[device]\nuse = \"cpu\"\n\
         [data]\nimage = {{ size = [{side}, {side}], channels = 3 }}\n\
         [data.chexpert]\nroot = \"none\"\n{model}\
         [[heads]]\nname = \"findings\"\ntask = \"multilabel\"\n\
         labels = [\"Edema\", \"Fracture\"]\n{head}\n\
         [train]\nepochs = 1\nbatch_size = {batch}\n[train.optimizer.adamw]\nlr = 1e-3\n\
         [memory]\n{memory}\n"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prediction.toml");
    std::fs::write(&path, text).expect("is written");
    let loaded = trainer::config::load(&path, &[]).expect("a right configuration");
    trainer::plan::plan(loaded.config).expect("a right plan")
}

/// The most bytes in use in a step. Threads seldom hold their tiles all at the same moment on a busy
/// machine, so where the first step takes less than `predicted`, the most of some more counts.
fn measured(plan: &Plan, meter: &Meter, predicted: u64) -> u64 {
    let mut steps = Bench::new(plan).expect("opens");
    // The optimizer's state is made in the first step.
    steps.step().expect("takes a step");
    meter.reset_peak();
    let mut peak = 0;
    for _ in 0..8 {
        steps.step().expect("takes a step");
        peak = meter.read().peak.expect("the allocator counts");
        if peak as f64 > 0.95 * predicted as f64 {
            break;
        }
    }
    peak
}

// One test: all of a process share one allocator.
#[test]
#[expect(clippy::print_stdout, reason = "the table of docs/estimates.md")]
fn a_step_takes_the_memory_that_was_predicted() {
    println!("| model | image | batch | `[memory]` | predicted, MiB | measured, MiB | off by |");
    println!("|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    // Before the first model: the packing buffers that threads keep count once for all cases.
    let meter = trainer::build::meter(&Device::flex());
    let machine = Machine { cuda: false, cpu: trainer::build::cpu(), ..Machine::ASSUMED };
    let threads = machine.cpu.threads;
    println!("{threads} threads, packing buffers of {} bytes", machine.cpu.packing_buffers);
    let crowded = std::thread::available_parallelism().is_ok_and(|cores| threads > cores.get());
    for (name, model, head, side, batch, memory) in CASES {
        let plan = plan(model, head, side, batch, memory);
        let predicted = plan.simulate(&plan.memory, machine).expect("a right policy").peak;
        let measured = measured(&plan, &meter, predicted);
        let off = predicted as f64 / measured as f64 - 1.0;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "| {name} | {side}² | {batch} | {} | {:.1} | {:.1} | {:+.1}% |",
            memory.replace('\n', ", "),
            mebibytes(predicted),
            mebibytes(measured),
            100.0 * off
        );
        // Threads that share a core seldom hold their tiles at the same moment.
        let above = if crowded { f64::INFINITY } else { 0.15 };
        if !(-0.15..above).contains(&off) {
            wrong.push(format!("{name}, {memory:?}: {:+.1}%", 100.0 * off));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
