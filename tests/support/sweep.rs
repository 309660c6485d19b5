//! A folder in which sweeps run.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A run of a few seconds.
pub const CONFIG: &str = r#"
[run]
name = "tiny"
seed = 3
output = "out"
[device]
use = "cpu"
[data]
image = { size = [32, 32], channels = 1 }
validation = { fraction = 0.3 }
[data.phantom]
root = "data"
patients = 14
size = 32
seed = 1
[model.densenet]
growth = 4
blocks = [1]
stem = 8
[[heads]]
name = "view"
task = "multiclass"
labels = ["PA", "AP", "Lateral"]
[train]
epochs = 3
batch_size = 4
[train.optimizer.adamw]
lr = 3e-3
weight_decay = 0.0
"#;

/// A folder with the configuration `tiny.toml`.
pub struct SweepFolder(pub tempfile::TempDir);

impl SweepFolder {
    pub fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("tiny.toml"), config).expect("is written");
        Self(folder)
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.current_dir(self.0.path()).args(["sweep", "tiny.toml"]).args(arguments);
        // Wide enough for every column.
        command.stdin(Stdio::null()).env_remove("RUST_BACKTRACE").env("COLUMNS", "300");
        command
    }

    pub fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().expect("starts");
        let text = |bytes| String::from_utf8(bytes).expect("is UTF-8");
        (status.code(), text(stdout), text(stderr))
    }

    pub fn sweep(&self) -> PathBuf {
        self.0.path().join("out/tiny-sweep")
    }

    pub fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.sweep().join(name)).expect(name)
    }

    pub fn rows(&self) -> Vec<Value> {
        serde_json::from_str(&self.file("sweep.json")).expect("is JSON")
    }
}
