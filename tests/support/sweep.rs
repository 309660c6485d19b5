//! A folder in which sweeps run.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

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
