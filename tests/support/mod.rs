//! A run small enough for tests, and what is compared of two runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// A configuration with everything that has state: shuffling, augmentation, mixing, dropout, BatchNorm,
/// AdamW, clipping, an average of the weights, a schedule that watches a metric, two heads.
pub const CONFIG: &str = r#"
[run]
name = "tiny"
seed = 3
log_every = 2
save = { every_steps = 2, every_minutes = 0.0, keep = 2 }
[device]
use = "cpu"
[data]
image = { size = [32, 32], channels = 1 }
validation = { fraction = 0.3 }
augment = { rotate_degrees = 10.0, translate = 0.1, horizontal_flip = 0.5, noise = 0.02, mixup = 0.5, cutmix = 1.0 }
[data.phantom]
root = "data"
patients = 14
size = 32
seed = 1
[model.densenet]
growth = 4
blocks = [2, 2]
stem = 8
dropout = 0.1
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion", "Support Devices"]
dropout = 0.1
loss = { bce = { pos_weight = "balanced" } }
[[heads]]
name = "view"
task = "multiclass"
labels = ["PA", "AP", "Lateral"]
weight = 0.1
[train]
epochs = 3
batch_size = 4
clip_norm = 1.0
ema = { decay = 0.9 }
[train.optimizer.adamw]
lr = 3e-3
[train.schedule.plateau]
metric = "val/loss"
patience = 0
min_delta = 0.01
"#;

/// Writes [`CONFIG`] into `folder`, its data below `data` and its runs below `folder`; returns the
/// configuration's path.
pub fn write_config(folder: &Path, data: &Path) -> PathBuf {
    write_config_with(folder, data, "")
}

/// As [`write_config`], with `more` below it.
pub fn write_config_with(folder: &Path, data: &Path, more: &str) -> PathBuf {
    let path = folder.join("tiny.toml");
    let quoted = |path: &Path| format!("{:?}", path.to_str().expect("UTF-8"));
    let text = CONFIG
        .replace("root = \"data\"", &format!("root = {}", quoted(data)))
        .replace("seed = 3", &format!("seed = 3\noutput = {}", quoted(folder)));
    let text = format!("{text}{more}");
    std::fs::write(&path, text).expect("is written");
    path
}

/// Everything that must be equal, bit for bit, in a run that was interrupted and one that was not.
#[derive(Debug, PartialEq)]
pub struct Result {
    files: BTreeMap<String, Vec<u8>>,
    position: Value,
    told: Vec<Value>,
}

impl Result {
    /// Reads the run folder of an ended run.
    pub fn of(run: &Path) -> Self {
        let mut files = BTreeMap::new();
        for state in ["last", "best"] {
            for file in ["weights", "average", "optimizer"] {
                let name = format!("{state}/{file}.safetensors");
                files.insert(name.clone(), std::fs::read(run.join(&name)).expect(&name));
            }
        }
        let position = std::fs::read(run.join("last/state.json")).expect("a position");
        let mut position: Value = serde_json::from_slice(&position).expect("JSON");
        // Neither time nor how steps are made to fit in memory is what they come to.
        for other in ["seconds", "epoch_seconds", "metrics_bytes", "memory", "memory_config"] {
            position.as_object_mut().expect("an object").remove(other);
        }
        let lines = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
        let events = lines.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        let lasting = |event: &Value| event["event"] == "epoch" || event["event"] == "step";
        let mut told: Vec<Value> = events.filter(lasting).collect();
        assert!(told.iter().any(|event| event["event"] == "step"), "no step is told");
        for event in &mut told {
            for timed in ["seconds", "images_per_second", "devices", "memory"] {
                event.as_object_mut().expect("an object").remove(timed);
            }
        }
        Self { files, position, told }
    }

    /// Asserts that `self` is `expected`, naming what differs.
    pub fn assert_equals(&self, expected: &Self, case: &str) {
        assert_eq!(self.told, expected.told, "{case}: metrics");
        assert_eq!(self.position, expected.position, "{case}: position");
        for (name, bytes) in &expected.files {
            assert!(&self.files[name] == bytes, "{case}: {name} differs");
        }
    }
}
