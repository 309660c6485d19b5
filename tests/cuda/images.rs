//! Images that are copied to the GPU while it computes those before them.

use std::sync::Arc;

use trainer::build::Bench;
use trainer::data::{Batch, Targets};
use trainer::memory::Precision;

const SIDE: usize = 48;
/// The last batch is smaller, as that of an epoch.
const COUNTS: [usize; 6] = [8, 8, 5, 8, 8, 3];

const CONFIG: &str = r#"
device = { use = "cuda" }
run = { name = "ahead" }
heads = [{ name = "findings", task = "multilabel", labels = ["Cardiomegaly", "Edema"] }]
model = { densenet = { growth = 16, blocks = [2, 2], stem = 16 } }
train = { epochs = 1, batch_size = 8, optimizer = { sgd = { lr = 0.05, momentum = 0.9 } } }
[data]
image = { size = [48, 48], channels = 3 }
phantom = { root = "unused", patients = 8, size = 48 }
[memory]
"#;

fn batch(step: usize) -> Arc<Batch> {
    let count = COUNTS[step % COUNTS.len()];
    let image = |image: usize| {
        let speed = 0.3 + 0.01 * (step * 8 + image) as f64;
        (0..3 * SIDE * SIDE).map(|at| (at as f64 * speed).sin() as f32).collect()
    };
    let values = (0..2 * count).map(|at| ((at + step) % 2) as f32).collect();
    let targets = vec![Targets { values, mask: vec![1.0; 2 * count], width: 2 }];
    let (images, shape) = ((0..count).map(image).collect(), [count, 3, SIDE, SIDE]);
    Arc::new(Batch { images, shape, targets, indices: (0..count).collect(), skipped: Vec::new() })
}

/// The losses of some steps and an evaluation, and the weights after them. `announced` says which batch is
/// told to come after that of a step.
fn taken(memory: &str, announced: impl Fn(&[Arc<Batch>], usize) -> Option<Arc<Batch>>) -> Vec<u64> {
    let config = toml::from_str(&format!("{CONFIG}{memory}")).expect("a configuration");
    let mut bench = Bench::new(&trainer::plan::plan(config).expect("a plan")).expect("opens");
    let batches: Vec<Arc<Batch>> = (0..2 * COUNTS.len()).map(batch).collect();
    let mut found = Vec::new();
    for (step, batch) in batches.iter().enumerate() {
        bench.trainer.upcoming = announced(&batches, step);
        let losses = bench.trainer.step(batch.into(), &batch.targets, step, 0.05);
        found.extend(losses.expect("a step").iter().map(|loss| loss.sum.to_bits()));
    }
    for (step, batch) in batches.iter().enumerate() {
        bench.trainer.upcoming = announced(&batches, step);
        let evaluated = bench.trainer.evaluate(batch.into(), &batch.targets);
        let (rows, _) = evaluated.expect("evaluates");
        found.extend(rows.concat().iter().map(|output| u64::from(output.to_bits())));
    }
    for parameter in bench.trainer.first().replica.inference.chain.parameters() {
        let values = parameter.value.into_data();
        found.extend(values.iter::<f32>().map(|value| u64::from(value.to_bits())));
    }
    found
}

#[test]
fn steps_are_the_same_whether_or_not_images_were_copied_ahead() {
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp16] {
        for more in ["", "micro_batch = 3", "offload = \"host\"\ncheckpointing = \"every\""] {
            let name = toml::Value::try_from(precision).expect("has a name");
            let memory = format!("precision = {name}\n{more}");
            let alone = taken(&memory, |_, _| None);
            let ahead = taken(&memory, |batches, step| batches.get(step + 1).cloned());
            assert!(ahead == alone, "{memory}");
            // Another batch comes than was told.
            let wrong = taken(&memory, |batches, step| batches.get(step + 2).cloned());
            assert!(wrong == alone, "{memory}, with other batches than were told");
        }
    }
}
