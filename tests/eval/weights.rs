//! Files of weights with a configuration, in place of a run.

use super::*;

/// `tiny` exported into a folder of its own.
fn exported(trained: &Trained) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("tiny.safetensors");
    let file = file.to_str().expect("UTF-8").to_owned();
    trained.done(&["export", "tiny", "--format", "safetensors", "--out", &file]);
    (folder, file)
}

#[test]
fn a_file_of_weights_is_measured_as_the_run_that_it_is_from() {
    let trained = Trained::runs();
    let (folder, file) = exported(trained);
    for split in ["validation", "train"] {
        let (run, of_run) = trained.evaluated(&format!("run-{split}"), &["--split", split]);
        let out = folder.path().join(split);
        let eval = ["eval", &file, "--config", "tiny.toml", "--split", split, "--out"];
        let eval = [&eval[..], &[out.to_str().expect("UTF-8")]].concat();
        let told = trained.told(&eval);
        assert!(!told.contains("are made first"), "the export says what was fitted: {told}");
        let found = trained.json(&eval);
        assert_eq!(found["heads"], run["heads"], "{split}");
        assert_eq!(rows(&out), rows(&of_run), "{split}");
        let fitted = |folder: &Path| fs::read(folder.join("fitted.json")).expect("reads");
        assert_eq!(fitted(&out), fitted(&of_run), "{split}");
        assert_eq!(found["models"][0]["epoch"], Value::Null);
        let files = fs::read_dir(folder.path()).expect("lists").count();
        assert!(files <= 3, "nothing is written beside the weights");
    }
    let both = trained.json(&["eval", &file, &file, "--config", "tiny.toml"]);
    assert_eq!(both["models"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_file_that_is_no_whole_model_of_the_configuration_is_refused() {
    let trained = Trained::runs();
    let (folder, file) = exported(trained);
    let told = trained.refused(2, &["eval", &file]);
    assert!(told.contains("--config"), "{told}");
    let told = trained.refused(2, &["eval", "tiny", "--config", "tiny.toml"]);
    assert!(told.contains("--config is for files of weights"), "{told}");
    let other = fs::read_to_string(trained.path("tiny.toml")).expect("reads");
    let other = other.replace("\"PA\", \"AP\", \"Lateral\"", "\"PA\", \"AP\"");
    let config = folder.path().join("other.toml");
    fs::write(&config, other).expect("is written");
    let config = config.to_str().expect("UTF-8");
    let told = trained.refused(2, &["eval", &file, "--config", config]);
    assert!(told.contains("outputs of that head would be random"), "{told}");
    let whole = fs::read(&file).expect("reads");
    for bytes in [&whole[..40], b"", &[0xff; 64], &whole[..whole.len() - 4]] {
        fs::write(&file, bytes).expect("is written");
        let told = trained.refused(3, &["eval", &file, "--config", "tiny.toml"]);
        assert!(told.contains("tiny.safetensors") && !told.contains("panicked"), "{told}");
    }
}
