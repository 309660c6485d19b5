//! A trained model is exported, and what was exported is imported.

use super::*;

impl Experiment {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    /// Standard output of a command that succeeds.
    fn output(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("starts");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// What a command that ends with exit code 2 says.
    fn not_exported(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().expect("starts");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).expect("UTF-8")
    }
}

#[test]
fn a_run_is_exported_in_every_format_and_its_weights_come_back() {
    let experiment = Experiment::new();
    experiment.trained(&["--set", "train.ema={decay=0.5}"]);
    insta::assert_snapshot!(experiment.output(&["export", "runs/small", "--format", "onnx"]));
    let other = ["export", "runs/small/last", "--format", "torchvision", "--out", "tv.safetensors"];
    // The metadata has numbers of the training, whose digits are as many as they happen to be.
    let told = experiment.output(&other);
    let (before, after) = told.split_once('(').expect("a size");
    let (_, after) = after.split_once(')').expect("a size");
    insta::assert_snapshot!(format!("{before}(SIZE){after}"));
    experiment.output(&["export", "runs/small/last", "--format", "safetensors"]);
    let exported = trainer::model::weights::read(&experiment.path("small.safetensors"));
    let average =
        trainer::model::weights::read(&experiment.path("runs/small/last/average.safetensors"));
    assert_eq!(exported.expect("reads"), average.expect("reads"));

    let import = ["import", "tv.safetensors", "--config", "a.toml", "--out", "w.safetensors"];
    insta::assert_snapshot!(experiment.output(&import));
    let files = ["small", "w"].map(|name| experiment.path(&format!("{name}.safetensors")));
    let [exported, imported] =
        files.map(|path| trainer::model::weights::read(&path).expect("reads"));
    assert_eq!(exported, imported);
    let more = ["--set", "data.image.channels=3", "--set", "heads[0].labels=[\"Edema\"]"];
    insta::assert_snapshot!(experiment.output(&[&import[..4], &more].concat()));
}

#[test]
fn what_cannot_be_exported_is_refused_with_what_to_do() {
    let experiment = Experiment::new();
    experiment.trained(&["--set", "data.image.normalize='per_image'"]);
    let refused = |arguments: &[&str]| {
        experiment.not_exported(&[&["export", "runs/small", "--format"], arguments].concat())
    };
    insta::assert_snapshot!(refused(&["onnx", "--normalize-inside"]));
    insta::assert_snapshot!(refused(&["safetensors", "--normalize-inside"]));
    insta::assert_snapshot!(refused(&["onnx", "--out", "model.pth"]));
    assert!(!experiment.path("small.onnx").exists());
}
