//! The memory predicted for a training step is that which the step takes: what the allocator of this
//! program counts.
#![cfg(feature = "cpu")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use trainer::build::Bench;
use trainer::memory::Speed;
use trainer::plan::Plan;

/// Counts the bytes in use.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn add(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: every call goes on to the system's allocator unchanged.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const DENSE_SMALL: &str = "[model.densenet]\ngrowth = 12\nblocks = [3, 4, 3]\nstem = 24\n";
const DENSE_121: &str = "[model.densenet]\ndepth = 121\n";
const RES_18: &str = "[model.resnet]\ndepth = 18\n";
const RES_50: &str = "[model.resnet]\ndepth = 50\n";
const CIFAR_20: &str = "[model.resnet]\nform = \"cifar\"\ndepth = 20\n";
/// Nearly all of it is the head.
const HEADS: &str = "[model.resnet]\nform = \"cifar\"\nblock = \"basic\"\nblocks = [1]\nstem = 8\n";

/// Model, head's hidden widths, side, batch, memory.
const CASES: [(&str, &str, &str, usize, usize, &str); 16] = [
    ("DenseNet, small", DENSE_SMALL, "", 96, 8, ""),
    ("DenseNet, small", DENSE_SMALL, "", 96, 8, "checkpointing = \"every\""),
    ("DenseNet, small", DENSE_SMALL, "", 96, 8, "checkpointing = \"sqrt\"\nmicro_batch = 4"),
    ("DenseNet-121", DENSE_121, "", 64, 4, ""),
    ("DenseNet-121", DENSE_121, "", 64, 4, "checkpointing = \"sqrt\""),
    ("DenseNet-121", DENSE_121, "", 64, 4, "checkpointing = \"every\"\nmicro_batch = 2"),
    ("ResNet-18", RES_18, "", 64, 8, ""),
    ("ResNet-18", RES_18, "", 96, 4, "checkpointing = \"sqrt\""),
    ("ResNet-18", RES_18, "", 64, 8, "checkpointing = { sequential = { segments = 2 } }"),
    ("ResNet-50", RES_50, "", 64, 4, "checkpointing = \"every\""),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, ""),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, "checkpointing = \"sqrt\""),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, "checkpointing = \"every\""),
    ("ResNet-20, CIFAR", CIFAR_20, "", 32, 64, "micro_batch = 16"),
    ("head of 4096", HEADS, "hidden = [4096, 4096]", 32, 8, ""),
    ("head of 2048", HEADS, "hidden = [2048]", 32, 64, "checkpointing = \"every\""),
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

/// The most bytes in use in a step beyond those before the model was made.
fn measured(plan: &Plan) -> u64 {
    let before = LIVE.load(Ordering::Relaxed);
    let mut steps = Bench::new(plan).expect("opens");
    // The optimizer's state is made in the first step.
    steps.step().expect("takes a step");
    PEAK.store(LIVE.load(Ordering::Relaxed), Ordering::Relaxed);
    steps.step().expect("takes a step");
    (PEAK.load(Ordering::Relaxed) - before) as u64
}

// One test: all of a process share one allocator.
#[test]
#[expect(clippy::print_stdout, reason = "the table of docs/prediction.md")]
fn a_step_takes_the_memory_that_was_predicted() {
    println!("| model | image | batch | `[memory]` | predicted, MiB | measured, MiB | off by |");
    println!("|---|---|---|---|---|---|---|");
    let mut wrong = Vec::new();
    for (name, model, head, side, batch, memory) in CASES {
        let plan = plan(model, head, side, batch, memory);
        let speed = Speed { flops: 1e11, bandwidth: 1e10, link: 1e10 };
        let predicted = plan.simulate(&plan.memory, false, &speed).expect("a right policy").peak;
        let measured = measured(&plan);
        let off = predicted as f64 / measured as f64 - 1.0;
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "| {name} | {side}² | {batch} | {} | {:.1} | {:.1} | {:+.1}% |",
            memory.replace('\n', ", "),
            mebibytes(predicted),
            mebibytes(measured),
            100.0 * off
        );
        if off.abs() > 0.15 {
            wrong.push(format!("{name}, {memory:?}: {:+.1}%", 100.0 * off));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
