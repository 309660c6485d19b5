//! `trainer data`: what it says of data, and what it leaves behind.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

const HEADS: &str = r#"
[run]
name = "example"
[model.densenet]
growth = 4
blocks = [1, 1]
stem = 4
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Edema", "Lung Opacity"]
[[heads]]
name = "view"
task = "multiclass"
labels = ["PA", "AP", "Lateral"]
[train]
epochs = 1
batch_size = 2
optimizer = "adamw"
"#;

/// A copy of the example of CheXpert's layout and a configuration of it.
fn example() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("is made");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts/chexpert");
    copy(&from, &folder.path().join("chexpert"));
    let root = folder.path().join("chexpert");
    let text = format!(
        "{HEADS}[data]\nimage = {{ size = [32, 40] }}\n[data.chexpert]\nroot = {root:?}\n\
         uncertain = 'ones'\n"
    );
    fs::write(folder.path().join("experiment.toml"), text).expect("is written");
    folder
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("is made");
    for entry in fs::read_dir(from).expect("is read") {
        let entry = entry.expect("is read");
        let target = to.join(entry.file_name());
        match entry.file_type().expect("is known").is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).expect("is copied")),
        }
    }
}

fn trainer(folder: &Path, arguments: &[&str]) -> std::process::Output {
    Command::cargo_bin("trainer")
        .expect("the program is built")
        .current_dir(folder)
        .env("COLUMNS", "1000")
        .arg("data")
        .args(arguments)
        .output()
        .expect("the program starts")
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    json_with(0, folder, arguments)
}

/// The JSON of a command that ends with that exit code.
fn json_with(code: i32, folder: &Path, arguments: &[&str]) -> Value {
    let output = trainer(folder, arguments);
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{shown}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// Counted from the table by this test itself: 1, 0, −1 and blank.
fn counted(table: &Path, column: &str) -> [usize; 4] {
    let text = fs::read_to_string(table).expect("reads");
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let header = lines.next().expect("has a header");
    let place = header.iter().position(|name| *name == column).expect("is there");
    let mut counts = [0; 4];
    for row in lines {
        let kind = match row[place] {
            "" => 3,
            value => match value.parse::<f32>().expect("a number") {
                1.0 => 0,
                0.0 => 1,
                _ => 2,
            },
        };
        counts[kind] += 1;
    }
    counts
}

#[test]
fn inspecting_counts_labels_patients_and_images() {
    let folder = example();
    let root = folder.path().join("chexpert");
    let found = json(folder.path(), &["inspect", "experiment.toml", "--json"]);
    for (split, table) in [("train", "train.csv"), ("validation", "valid.csv")] {
        let splits = found["splits"].as_array().expect("a list");
        let ours = splits.iter().find(|one| one["split"] == split).expect("is there");
        for label in ["Edema", "Lung Opacity"] {
            let counts = &ours["heads"]["findings"][label];
            let [positive, negative, uncertain, missing] = counted(&root.join(table), label);
            assert_eq!(counts["positive"], positive, "{split} {label}");
            assert_eq!(counts["negative"], negative, "{split} {label}");
            assert_eq!(counts["uncertain"], uncertain, "{split} {label}");
            assert_eq!(counts["missing"], missing, "{split} {label}");
            let used = if split == "train" { positive + uncertain } else { positive };
            assert_eq!(counts["used_positive"], used as f64, "{split} {label}");
        }
        let rows = fs::read_to_string(root.join(table)).expect("reads").lines().count() - 1;
        assert_eq!(ours["images"], rows);
    }
    let images = &found["images"];
    let sizes = images["sizes"].as_array().expect("a list");
    let total: u64 = sizes.iter().filter_map(|size| size["images"].as_u64()).sum();
    let rows: u64 = found["splits"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|s| s["images"].as_u64())
        .sum();
    assert_eq!(total, rows);
    assert_eq!(images["depths"][0]["bits"], 8);
    assert_eq!(found["run"]["batch"], serde_json::json!([2, 1, 32, 40]));
}

#[test]
fn inspecting_names_damaged_files_and_the_same_image_in_two_splits() {
    let folder = example();
    let root = folder.path().join("chexpert");
    let image = |name: &str| root.join(name).join("study1/view1_frontal.jpg");
    fs::write(image("train/patient00001"), b"not an image").expect("is written");
    fs::copy(image("train/patient00004"), image("valid/patient64541")).expect("is copied");
    let found = json_with(3, folder.path(), &["inspect", "experiment.toml", "--json"]);
    let unreadable = found["images"]["unreadable"].as_array().expect("a list");
    assert_eq!(unreadable.len(), 1);
    assert_eq!(unreadable[0]["reason"], "it is neither PNG, JPEG, TIFF nor DICOM");
    assert_eq!(unreadable[0]["split"], "train");
    assert_eq!(unreadable[0]["line"], 2);
    let across = |group: &&Value| group["across_splits"] == true;
    let duplicates = found["images"]["duplicates"].as_array().expect("a list");
    let group = duplicates.iter().find(across).expect("is found");
    let splits: Vec<&str> = group["images"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|i| i["split"].as_str())
        .collect();
    assert!(splits.contains(&"train") && splits.contains(&"validation"));
    let shown = trainer(folder.path(), &["inspect", "experiment.toml"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("missing or unreadable: 1\n") && shown.contains("(1 across splits)"),
        "{shown}"
    );
    let tables = json(folder.path(), &["inspect", "experiment.toml", "--tables-only", "--json"]);
    assert!(tables["images"].is_null());
}

#[test]
fn copies_of_an_image_on_both_sides_are_warned_of_with_patients_and_labels() {
    let folder = example();
    let warned = || {
        let shown = trainer(folder.path(), &["inspect", "experiment.toml"]);
        assert_eq!(shown.status.code(), Some(0));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let of_copies = |line: &&str| line.starts_with("warning: copies") || line.contains(" = ");
        let lines = shown.lines().filter(of_copies).collect::<Vec<_>>().join("\n");
        lines.replace(&folder.path().display().to_string(), "HERE")
    };
    let before = warned();
    let root = folder.path().join("chexpert");
    let image = |name: &str| root.join(name).join("study1/view1_frontal.jpg");
    fs::copy(image("train/patient00004"), image("valid/patient64541")).expect("is copied");
    assert_ne!(before, warned());
    insta::assert_snapshot!(warned());
    // Of another view, and with an edema.
    fs::copy(image("train/patient00003"), image("valid/patient64541")).expect("is copied");
    insta::assert_snapshot!(warned());
    let found = json(folder.path(), &["inspect", "experiment.toml", "--json"]);
    let groups = found["images"]["duplicates"].as_array().expect("a list");
    let across = groups.iter().find(|group| group["across_splits"] == true).expect("is found");
    let patients: Vec<&str> = across["images"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|image| image["patient"].as_str())
        .collect();
    assert!(patients.contains(&"patient00003") && patients.contains(&"patient64541"), "{across}");
}

/// What `inspect` warns of, and its exit code with what it says on standard error.
fn inspected(arguments: &[&str]) -> (String, Option<i32>, String) {
    let folder = example();
    let output = trainer(folder.path(), &[&["inspect", "experiment.toml"], arguments].concat());
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    let warnings: Vec<&str> = shown.lines().filter(|line| line.starts_with("warning")).collect();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (warnings.join("\n"), output.status.code(), said)
}

#[test]
fn inspecting_warns_of_what_a_run_warns_of() {
    let metric = "train.best_metric=\"val/view/auroc/Lateral\"";
    let (warnings, code, _) = inspected(&["--set", metric]);
    assert_eq!(code, Some(0));
    insta::assert_snapshot!(warnings);
    let (warnings, ..) = inspected(&["--set", "data.validation.fraction=0.3", "--tables-only"]);
    insta::assert_snapshot!(warnings);
}

#[test]
fn inspecting_ends_with_what_a_run_refuses() {
    let too_many = ["--set", "data.drop_last=true", "--set", "train.batch_size=64"];
    let (_, code, said) = inspected(&too_many);
    assert_eq!(code, Some(3));
    insta::assert_snapshot!(said);
    let labels = "heads[0].labels=[\"Lung Lesion\"]";
    let (_, code, said) =
        inspected(&["--set", labels, "--set", "data.chexpert.uncertain=\"ignore\""]);
    insta::assert_snapshot!(format!("{code:?} {said}"));
}

#[test]
fn a_cache_is_filled_once_and_names_what_cannot_be_cached() {
    let folder = example();
    let fill = || {
        let output = trainer(folder.path(), &["cache", "experiment.toml"]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let first = fill();
    assert!(first.contains("images in the cache at datasets/cache: 0 were there"), "{first}");
    let again = fill();
    assert!(again.contains(", 0 added"), "{again}");
    let image = folder.path().join("chexpert/train/patient00001/study1/view1_frontal.jpg");
    fs::write(&image, b"not an image").expect("is written");
    let damaged = fill();
    assert!(damaged.contains("not cached: image `"), "{damaged}");
    assert!(damaged.contains("neither PNG, JPEG, TIFF nor DICOM"), "{damaged}");
}

#[test]
fn a_run_from_the_cache_is_bit_equal_to_one_without() {
    let folder = example();
    let run = |name: &str, cache: &str, scale: &str| {
        let name_is = format!("run.name={name:?}");
        let cache_is = format!("data.cache={cache}");
        let scale_is = format!("data.image.normalize={scale:?}");
        let output = Command::cargo_bin("trainer")
            .expect("the program is built")
            .current_dir(folder.path())
            .args(["run", "experiment.toml", "--set", &name_is, "--set", &cache_is])
            .args(["--set", "device.use=\"cpu\"", "--set", "train.epochs=2", "--set", &scale_is])
            .output()
            .expect("the program starts");
        let shown = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{shown}");
        let weights = folder.path().join("checkpoints").join(name).join("last/weights.safetensors");
        fs::read(weights).expect("reads")
    };
    let plain = run("plain", "\"off\"", "unit");
    assert!(run("memory", "\"memory\"", "unit") == plain);
    assert!(run("disk", "\"disk\"", "unit") == plain);
    assert!(run("again", "\"disk\"", "unit") == plain, "from a cache that is full");
    // The images are letterboxed, and the level of the bars is found after the cache.
    let own = run("own", "\"off\"", "per_image");
    assert!(own != plain);
    assert!(run("own_disk", "\"disk\"", "per_image") == own);
}

#[test]
fn the_loader_is_timed_stage_by_stage() {
    let folder = example();
    let rates = json(folder.path(), &["bench", "experiment.toml", "--seconds", "0.05", "--json"]);
    for stage in ["read", "decode", "resize", "prepare", "cold", "cached"] {
        assert!(rates[stage].as_f64().is_some_and(|rate| rate > 0.0), "{stage}");
    }
    let shown = trainer(folder.path(), &["bench", "experiment.toml", "--seconds", "0.02"]);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("cached (memory)"), "{shown}");
}
