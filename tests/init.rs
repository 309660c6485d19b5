//! Protects `trainer init`: what it writes is right for the data, passes `check` and trains, and it
//! replaces nothing.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const NET: &str = "model={densenet={growth=4,blocks=[1,1],stem=4,norm=\"group\"}}";

fn trainer(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    command.output().expect("the program starts")
}

/// What it prints, and with which exit code it ends.
fn told(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = trainer(folder, arguments);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("is UTF-8"))
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let (code, text) = told(folder, arguments);
    assert_eq!(code, Some(0), "{arguments:?}: {text}");
    text
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

/// Begins with the data in `data`, checks the configuration and trains it for an epoch; the
/// configuration with its defaults.
fn begun(data: &Path, more: &[&str]) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("a folder");
    let data = data.display().to_string();
    let flags = ["init", &data, "--yes", "--size", "32", "--batch", "3"];
    done(folder.path(), &[&flags, more].concat());
    let json = done(folder.path(), &["check", "trainer.toml", "--json"]);
    let small = ["--set", NET, "--set", "train.epochs=1", "--set", "memory.budget=\"2GiB\""];
    // Of so few images a tenth is none.
    let small = [&small[..], &["--set", "device.use=cpu"]].concat();
    let config: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let fraction = ["--set", "data.validation={fraction=0.4}"];
    let listed = config["data"]["csv"]["split"].is_string()
        || config["data"]["arrays"]["split"].is_string()
        || ["chexpert", "mimic", "mura"].iter().any(|name| config["data"][name].is_object());
    let fraction = if listed { &[][..] } else { &fraction };
    done(folder.path(), &[&["run", "trainer.toml", "--quiet"], &small[..], fraction].concat());
    assert!(folder.path().join("checkpoints/trainer/last/weights.safetensors").is_file());
    config
}

#[test]
fn every_published_layout_is_begun_checked_and_trained() {
    for name in ["chexpert", "mimic", "nih", "padchest", "vindr", "mura"] {
        let root = fixtures().join("layouts").join(name);
        let config = begun(&root, &[]);
        assert_eq!(config["data"][name]["root"], root.display().to_string(), "{name}");
        let task = if name == "mura" { "binary" } else { "multilabel" };
        assert_eq!(config["heads"][0]["task"], task, "{name}");
        assert_eq!(config["data"]["image"]["size"], serde_json::json!([32, 32]), "{name}");
    }
}

/// What `trainer data phantom` draws is laid out as CheXpert, without its validation list.
#[test]
fn patients_are_set_aside_where_chexperts_validation_list_is_missing() {
    let folder = tempfile::tempdir().expect("a folder");
    let drawn = folder.path().join("drawn");
    let draw = ["data", "phantom", "--out", "drawn", "--patients", "20", "--size", "32"];
    done(folder.path(), &draw);
    let config = begun(&drawn, &[]);
    assert_eq!(config["data"]["validation"]["fraction"], 0.1);
}

/// Twelve grey images `0.png` to `11.png`.
fn images(folder: &Path) {
    fs::create_dir_all(folder).expect("is made");
    for number in 0..12_usize {
        let file = fs::File::create(folder.join(format!("{number}.png"))).expect("is made");
        let mut encoder = png::Encoder::new(file, 40, 36);
        encoder.set_color(png::ColorType::Grayscale);
        let pixels: Vec<u8> = (0..40 * 36).map(|at| (at * 3 + number * 23) as u8).collect();
        let mut writer = encoder.write_header().expect("is written");
        writer.write_image_data(&pixels).expect("is written");
    }
}

#[test]
fn a_table_is_begun_with_its_columns() {
    let folder = tempfile::tempdir().expect("a folder");
    images(&folder.path().join("png"));
    let row = |n: usize| {
        let list = if n < 8 { "train" } else { "valid" };
        format!("{n}.png,{},{list},{},{},{}.5,{}\n", n / 2, n % 2, n / 2 % 2, 40 + n, n % 3)
    };
    let rows: String = (0..12).map(row).collect();
    let text = format!("file,patient,use,Edema,Lung mass,age,grade of it\n{rows}");
    fs::write(folder.path().join("labels.csv"), text).expect("is written");
    let config = begun(folder.path(), &[]);
    let csv = &config["data"]["csv"];
    for (key, value) in [("image", "file"), ("patient", "patient"), ("split", "use")] {
        assert_eq!(csv[key], value);
    }
    assert_eq!(csv["root"], folder.path().join("png").display().to_string());
    assert_eq!(config["heads"][0]["labels"], serde_json::json!(["Edema", "Lung mass"]));
    let table = folder.path().join("labels.csv");
    let config = begun(&table, &["--labels", "grade of it,age,Edema"]);
    let heads = &config["heads"];
    assert_eq!(heads[0]["name"], "grade_of_it");
    assert_eq!(heads[0]["labels"], serde_json::json!(["0", "1", "2"]));
    assert_eq!(config["data"]["csv"]["columns"]["grade_of_it"], "grade of it");
    assert_eq!((&heads[1]["task"], &heads[2]["task"]), (&"regression".into(), &"binary".into()));
    let config = begun(&table, &["--labels", "grade of it", "--task", "regression"]);
    assert_eq!(config["heads"][0]["task"], "regression");
}

#[test]
fn folders_of_classes_become_a_table_and_arrays_heads() {
    let folder = tempfile::tempdir().expect("a folder");
    images(&folder.path().join("train/normal"));
    images(&folder.path().join("train/broken"));
    images(&folder.path().join("val/normal"));
    images(&folder.path().join("val/broken"));
    for (number, name) in ["train/broken", "val/normal", "val/broken"].iter().enumerate() {
        // No image is another's copy.
        for image in 0..12 {
            let path = folder.path().join(name).join(format!("{image}.png"));
            fs::rename(&path, path.with_file_name(format!("{number}_{image}.png"))).expect("moves");
        }
    }
    let config = begun(folder.path(), &[]);
    assert_eq!(config["data"]["csv"]["split"], "split");
    assert_eq!(config["heads"][0]["labels"], serde_json::json!(["broken", "normal"]));

    let arrays = tempfile::tempdir().expect("a folder");
    for name in ["u16.npy", "findings.npy", "kind.npy", "age.npy", "patients.npy", "split.npy"] {
        fs::copy(fixtures().join("arrays").join(name), arrays.path().join(name))
            .expect("is copied");
    }
    let config = begun(arrays.path(), &[]);
    assert_eq!(config["data"]["arrays"]["images"], "u16.npy");
    let heads = config["heads"].as_array().expect("heads");
    let tasks: Vec<_> = heads.iter().map(|head| (&head["name"], &head["task"])).collect();
    let expected = [("age", "regression"), ("findings", "multilabel"), ("kind", "multiclass")];
    let expected = expected.map(|(name, task)| (name.into(), task.into()));
    assert_eq!(tasks, expected.iter().map(|(name, task)| (name, task)).collect::<Vec<_>>());
}

#[test]
fn without_a_terminal_the_missing_flags_are_named_and_nothing_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, text) = told(folder.path(), &["init", "--size", "64"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("missing: DIR, --labels, --budget"), "{text}");
    assert!(text.contains("--yes"), "{text}");
    assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 0);
}

#[test]
fn nothing_is_replaced_without_being_told_and_wrong_answers_write_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = fixtures().join("layouts/nih").display().to_string();
    let begin = ["init", &data, "--yes", "--out", "a.toml"];
    let begin = |more: &[&'static str]| told(folder.path(), &[&begin, more].concat());
    for (wrong, says) in [
        (&["--labels", "Efusion"][..], "the data have no \"Efusion\"; they offer: No Finding, "),
        (&["--budget", "much"], "a.toml:"),
        (&["--size", "0"], "a.toml:"),
        (
            &["--labels", "Mass", "--task", "multiclass", "--size", "64"],
            "the data have no label `0`",
        ),
    ] {
        let (code, text) = begin(wrong);
        assert_eq!(code, Some(2), "{wrong:?}: {text}");
        assert!(text.contains(says), "{wrong:?}: {text}");
        assert!(!folder.path().join("a.toml").exists(), "{wrong:?}");
    }
    fs::write(folder.path().join("a.toml"), "mine").expect("is written");
    let (code, text) = begin(&[]);
    assert_eq!(code, Some(2));
    assert!(text.contains("a.toml is there already") && text.contains("--overwrite"), "{text}");
    assert_eq!(fs::read_to_string(folder.path().join("a.toml")).expect("reads"), "mine");
    assert_eq!(begin(&["--overwrite"]).0, Some(0));
    done(folder.path(), &["check", "a.toml"]);
}
