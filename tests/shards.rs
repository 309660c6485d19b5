//! Devices that share out the optimizer's state save the memory that was estimated: what the allocator of this program
//! counts of all of them.
#![cfg(feature = "cpu")]

use std::alloc::System;

use burn::tensor::Device;
use trainer::build::Bench;
use trainer::memory::measure::{Counting, Meter};
use trainer::parallel::OptimizerPlacement;
use trainer::plan::{Machine, Plan};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting::new(System);

/// Nearly all of it is weights.
const CONFIG: &str = r#"
[run]
name = "shards"
[device]
use = [DEVICES]
[parallel.data]
optimizer = "sharded"
[data]
image = { size = [32, 32], channels = 3 }
[data.chexpert]
root = "none"
[model.resnet]
form = "cifar"
block = "basic"
blocks = [1]
stem = 8
norm = "group"
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Edema", "Fracture"]
hidden = [2048, 2048, 2048]
[train]
epochs = 1
batch_size = 8
[train.optimizer.adamw]
lr = 1e-3
"#;

fn plan(devices: usize, placement: OptimizerPlacement, average: bool) -> Plan {
    let names: Vec<String> = (0..devices).map(|number| format!("\"cpu:{number}\"")).collect();
    let text = CONFIG.replace("DEVICES", &names.join(", "));
    let average = if average { "[train.ema]\ndecay = 0.9\n" } else { "" };
    let config = toml::from_str(&format!("{text}{average}")).expect("a configuration");
    Plan { placement, ..trainer::plan::plan(config).expect("a plan") }
}

/// Bytes in use between steps, the most in a step, and the trained numbers of a copy.
fn measured(plan: &Plan, meter: &Meter) -> [u64; 3] {
    let mut steps = Bench::new(plan).expect("opens");
    // The optimizer's state is made in the first step.
    steps.step().expect("takes a step");
    let live = meter.read().live.expect("the allocator counts");
    meter.reset_peak();
    for _ in 0..3 {
        steps.step().expect("takes a step");
    }
    let trained = steps.trainer.parameters().into_iter().filter(|parameter| parameter.trained);
    let numbers: usize = trained.map(|parameter| parameter.shape.iter().product::<usize>()).sum();
    [live, meter.read().peak.expect("the allocator counts"), numbers as u64]
}

// One test: all of a process share one allocator.
#[test]
#[expect(clippy::print_stdout, reason = "the figures of docs/parallel.md")]
fn shards_save_what_is_predicted() {
    let meter = trainer::build::meter(&Device::flex());
    let machine = Machine { cuda: false, cpu: trainer::build::cpu(), ..Machine::ASSUMED };
    for (devices, average) in [(2, false), (3, false), (4, true)] {
        let [whole, parts] = [OptimizerPlacement::Replicated, OptimizerPlacement::Sharded].map(|placement| {
            let plan = plan(devices, placement, average);
            let each = plan.simulate(&plan.memory, machine).expect("a right policy").peak;
            // The devices are of one process, whose threads have packing buffers once.
            let once = (devices as u64 - 1) * machine.cpu.packing_buffers;
            let predicted = devices as u64 * each - once;
            let [live, peak, numbers] = measured(&plan, &meter);
            let off = predicted as f64 / peak as f64 - 1.0;
            println!(
                "{devices} devices, {placement:?}, average {average}: estimated {:.1} MiB, measured {:.1} MiB, {:+.1}%; \
                 {:.1} MiB between steps",
                mebibytes(predicted),
                mebibytes(peak),
                100.0 * off,
                mebibytes(live)
            );
            assert!(off.abs() < 0.15, "{devices} devices, {placement:?}: {predicted} for {peak}");
            (live, numbers)
        });
        // AdamW's two moments, and the average: one copy of them in place of one for each device.
        let kept = 4 * whole.1 * if average { 3 } else { 2 };
        let (saved, expected) = (whole.0 - parts.0, (devices as u64 - 1) * kept);
        let off = saved as f64 / expected as f64 - 1.0;
        assert!(off.abs() < 0.01, "{devices} devices save {saved} bytes of {expected}");
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
