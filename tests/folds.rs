//! Folds: each is a run of its own, all are trained one after another or at once, and together they are a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::Value;

const CONFIG: &str = r#"
[run]
name = "tiny"
seed = 3
output = "out"
[device]
use = "cpu"
[data]
image = { size = [32, 32], channels = 1 }
validation = { folds = 3, by = "patient" }
[data.phantom]
root = "data"
patients = 31
size = 32
seed = 1
[model.densenet]
growth = 4
blocks = [1]
stem = 8
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Support Devices"]
[train]
epochs = 2
batch_size = 4
best_metric = "val/findings/auroc"
[train.optimizer.adamw]
lr = 3e-3
weight_decay = 0.0
"#;

const FOLDS: [usize; 3] = [1, 2, 3];

/// A folder with the configuration.
struct Place(tempfile::TempDir);

impl Place {
    fn new(config: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("tiny.toml"), config).expect("is written");
        Self(folder)
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.current_dir(self.0.path()).args(arguments.split_whitespace());
        command.stdin(Stdio::null()).env_remove("RUST_BACKTRACE").env("COLUMNS", "300");
        command
    }

    /// The exit code, and what went to standard output and standard error.
    fn call(&self, arguments: &str) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().expect("starts");
        let text = |bytes| String::from_utf8(bytes).expect("is UTF-8");
        (status.code(), text(stdout), text(stderr))
    }

    /// What is printed where all goes well.
    fn done(&self, arguments: &str) -> String {
        let (code, told, errors) = self.call(arguments);
        assert_eq!(code, Some(0), "{arguments}: {errors}");
        told
    }

    /// What is said where it does not.
    fn refused(&self, arguments: &str, code: i32) -> String {
        let (found, told, errors) = self.call(arguments);
        assert_eq!(found, Some(code), "{arguments}: {told}{errors}");
        errors
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn fold(&self, fold: usize) -> PathBuf {
        self.path(&format!("out/tiny/fold-{fold}"))
    }
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&read(path)).expect("is JSON")
}

/// The rows of a table of predictions by the image, and the titles.
fn rows(path: &Path) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let mut reader = csv::Reader::from_path(path).expect("is there");
    let fields = |record: &csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<_>>();
    let titles = fields(reader.headers().expect("a header"));
    let rows = reader.records().map(|row| fields(&row.expect("a row")));
    (titles, rows.map(|row| (row[0].clone(), row)).collect())
}

/// All folds trained, one after another.
static TRAINED: LazyLock<Place> = LazyLock::new(|| {
    let place = Place::new(CONFIG);
    place.done("run tiny.toml --fold all");
    place
});

/// The images of a fold's list.
fn images(place: &Place, fold: usize, list: &str) -> BTreeSet<String> {
    let text = String::from_utf8(read(&place.fold(fold).join("split.csv"))).expect("is UTF-8");
    let lines = text.lines().filter(|line| line.ends_with(&format!(",{list}")));
    lines.map(|line| line.split(',').next().expect("an image").to_owned()).collect()
}

#[test]
fn every_image_is_validated_on_in_one_fold_and_trained_on_in_the_others() {
    let place = &*TRAINED;
    let all: BTreeSet<String> =
        FOLDS.iter().flat_map(|fold| images(place, *fold, "validation")).collect();
    let counts = FOLDS.map(|fold| images(place, fold, "validation").len());
    assert_eq!(counts.iter().sum::<usize>(), all.len());
    for fold in FOLDS {
        let (train, validation) = (images(place, fold, "train"), images(place, fold, "validation"));
        assert!(train.is_disjoint(&validation) && !validation.is_empty());
        assert_eq!(train.union(&validation).cloned().collect::<BTreeSet<_>>(), all);
    }
}

#[test]
fn inspecting_counts_the_folds_that_are_trained() {
    let place = &*TRAINED;
    let found: Value =
        serde_json::from_str(&place.done("data inspect tiny.toml --tables-only --json"))
            .expect("JSON");
    let folds = found["folds"].as_array().expect("folds");
    assert_eq!(folds.len(), 3);
    let patients = folds.iter().map(|fold| fold["patients"].as_u64().expect("a count"));
    assert_eq!(patients.clone().sum::<u64>(), 31);
    assert!(patients.clone().max() <= patients.min().map(|least| least + 1));
    for (counts, fold) in folds.iter().zip(FOLDS) {
        assert_eq!(counts["images"], images(place, fold, "validation").len());
    }
}

#[test]
fn the_summary_has_what_each_run_found_last_with_means_and_deviations() {
    let place = &*TRAINED;
    let found = json(&place.path("out/tiny/folds.json"));
    assert_eq!((&found["folds"], &found["metric"]), (&3.into(), &"val/findings/auroc".into()));
    let mut values = Vec::new();
    for (row, fold) in found["rows"].as_array().expect("rows").iter().zip(FOLDS) {
        let text = String::from_utf8(read(&place.fold(fold).join("metrics.jsonl"))).expect("UTF-8");
        let end: Value = serde_json::from_str(text.lines().last().expect("events")).expect("JSON");
        assert_eq!((&row["fold"], &row["val"]), (&fold.into(), &end["best"]["val"]));
        assert_eq!((&row["epoch"], &row["seconds"]), (&end["best"]["epoch"], &end["seconds"]));
        values.push(row["val"]["findings/auroc"].as_f64().expect("a value"));
    }
    assert_eq!(values.len(), 3);
    let mean = values.iter().sum::<f64>() / 3.0;
    let std = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let auroc = &found["metrics"]["findings/auroc"];
    assert!((auroc["mean"].as_f64().expect("a mean") - mean).abs() < 1e-12);
    assert!((auroc["std"].as_f64().expect("a deviation") - std).abs() < 1e-12);
    // Nothing is left to do, and the table is told again.
    let kept = FOLDS.map(|fold| read(&place.fold(fold).join("metrics.jsonl")));
    let table = place.done("run tiny.toml --fold all --resume");
    assert!(
        table.contains(&format!("{mean:.3}")) && table.contains(&format!("{std:.3}")),
        "{table}"
    );
    let (code, told, errors) = place.call("run tiny.toml --fold all --resume --quiet");
    assert_eq!((code, told.as_str()), (Some(0), ""), "{errors}");
    let line = errors.lines().last().expect("a line");
    assert!(line.contains(&format!("{mean:.3} (std {std:.3})")), "{errors}");
    assert_eq!(FOLDS.map(|fold| read(&place.fold(fold).join("metrics.jsonl"))), kept);
}

/// The share of pairs of a positive and a negative image in which the positive one ranks higher.
fn auroc(rows: &BTreeMap<String, Vec<String>>, value: usize, truth: usize) -> f64 {
    let number = |row: &Vec<String>| row[value].parse::<f64>().expect("a number");
    let of = |class: &str| {
        rows.values().filter(|row| row[truth] == class).map(number).collect::<Vec<_>>()
    };
    let (positives, negatives) = (of("1"), of("0"));
    let pairs = positives.iter().flat_map(|p| negatives.iter().map(move |n| (p, n)));
    let wins = pairs.map(|(p, n)| {
        if p > n {
            1.0
        } else if p < n {
            0.0
        } else {
            0.5
        }
    });
    wins.sum::<f64>() / (positives.len() * negatives.len()) as f64
}

#[test]
fn validation_images_are_measured_by_the_fold_that_was_not_trained_on_them() {
    let place = &*TRAINED;
    let shown = place.done("eval out/tiny --by sex");
    assert!(shown.contains("each by the fold that was not trained on it"), "{shown}");
    let found = json(&place.path("out/tiny/eval-validation/evaluation.json"));
    let (titles, pooled) = rows(&place.path("out/tiny/eval-validation/predictions.csv"));
    let images: usize = FOLDS.iter().map(|fold| images(place, *fold, "validation").len()).sum();
    assert_eq!((pooled.len(), &found["images"]), (images, &images.into()));
    assert_eq!(found["out_of_fold"], true);
    let page = read(&place.path("out/tiny/eval-validation/report.html"));
    let page = String::from_utf8(page).expect("is UTF-8");
    assert!(page.contains("each by the fold that was not trained on it"), "{page}");
    assert!(!page.contains("The ensemble"), "{page}");
    let sexes = found["subgroups"]["sex"].as_array().expect("groups");
    let counted = sexes.iter().map(|group| group["images"].as_u64().expect("a count"));
    assert_eq!(counted.sum::<u64>(), images as u64);
    let at = |title: &str| titles.iter().position(|known| known == title).expect("a column");
    for label in ["Cardiomegaly", "Support Devices"] {
        let (value, truth) =
            (at(&format!("findings/{label}")), at(&format!("findings/{label}/truth")));
        let told = &found["heads"]["findings"]["auroc"]["labels"][label]["value"];
        let theirs = auroc(&pooled, value, truth);
        assert!(
            (told.as_f64().expect("a value") - theirs).abs() < 1e-12,
            "{label}: {told}, {theirs}"
        );
        // One calibration for all: an image ranks as the output of its fold does.
        let outputs =
            FOLDS.iter().flat_map(|fold| rows(&place.fold(*fold).join("best/validation.csv")).1);
        let mut pairs: Vec<(f64, f64)> = outputs
            .map(|(path, row)| {
                let output =
                    row[if label == "Cardiomegaly" { 2 } else { 4 }].parse().expect("a number");
                (output, pooled[&path][value].parse().expect("a number"))
            })
            .collect();
        assert_eq!(pairs.len(), images);
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(pairs.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{label}");
    }
}

#[test]
fn other_images_are_predicted_and_measured_by_the_ensemble_of_all_folds() {
    let place = &*TRAINED;
    fs::write(
        place.path("other.toml"),
        "[data.phantom]\nroot = \"other\"\npatients = 9\nsize = 32\nseed = 8\n",
    )
    .expect("is written");
    place.done("eval out/tiny --data other.toml");
    let single = "out/tiny/fold-1 out/tiny/fold-2 out/tiny/fold-3";
    place.done(&format!("eval {single} --data other.toml --out by-name"));
    let both =
        ["out/tiny/eval-other", "by-name"].map(|at| read(&place.path(at).join("predictions.csv")));
    assert_eq!(both[0], both[1]);
    let whole = place.done("predict out/tiny other");
    let named = "out/tiny/fold-1 other --ensemble out/tiny/fold-2 --ensemble out/tiny/fold-3";
    assert_eq!(whole, place.done(&format!("predict {named}")));
    // Each fold was trained on the validation images of the others.
    let errors = place.refused("predict out/tiny other --conformal 0.1", 2);
    assert!(errors.contains("Name one of them: out/tiny/fold-1 has sets"), "{errors}");
    place.done("predict out/tiny other --heatmap maps --label findings/Cardiomegaly");
    let images = whole.lines().count() - 1;
    assert_eq!(fs::read_dir(place.path("maps")).expect("is there").count(), images);
}

#[test]
fn what_has_no_meaning_for_folds_says_what_to_name() {
    let place = &*TRAINED;
    let errors = place.refused("run tiny.toml --resume", 2);
    assert!(
        errors.contains("`trainer run CONFIG --fold 1`") && errors.contains("--fold all"),
        "{errors}"
    );
    let errors = place.refused("run tiny.toml --fold 4", 2);
    assert!(errors.contains("there is no fold 4"), "{errors}");
    let errors = place.refused("run tiny.toml --fold all", 2);
    assert!(
        errors.contains("out/tiny holds a run already") && errors.contains("--resume"),
        "{errors}"
    );
    let errors = place.refused("run tiny.toml --fold all --resume --set train.batch_size=8", 2);
    assert!(errors.contains("train.batch_size was 4, is 8"), "{errors}");
    let errors = place.refused("eval out/tiny --split train", 2);
    assert!(errors.contains("no train images in common"), "{errors}");
    let errors = place.refused("eval out/tiny/fold-1 out/tiny/fold-2", 3);
    assert!(errors.contains("name the folder of the folds"), "{errors}");
    let errors = place.refused("export out/tiny --format onnx --out a.onnx", 2);
    assert!(errors.contains("Name one of them, such as out/tiny/fold-1"), "{errors}");
    let errors = place.refused("sweep tiny.toml --epochs 1 --grid train.batch_size=4,8", 2);
    assert!(errors.contains("--set data.validation.fold=1"), "{errors}");
    let shown = place.done("data inspect tiny.toml --tables-only");
    assert!(shown.contains("validation is fold 1") && shown.contains("[3 folds]"), "{shown}");
    assert!(place.done("check tiny.toml").contains("folds = 3"));
}

#[test]
fn a_fold_is_not_resumed_as_another() {
    let place = Place::new(CONFIG);
    place.done("run tiny.toml --fold 2 --set train.epochs=1");
    assert_eq!(json_fold(&place.fold(2)), Some(2));
    let errors = place.refused("eval out/tiny", 5);
    assert!(errors.contains("no saved state of fold 1, 3 of 3"), "{errors}");
    fs::rename(place.fold(2), place.fold(3)).expect("is renamed");
    let errors = place.refused("run tiny.toml --fold 3 --resume", 2);
    assert!(errors.contains("data.validation.fold was 2, is 3"), "{errors}");
}

/// The fold in the configuration of a run.
fn json_fold(run: &Path) -> Option<i64> {
    let text = String::from_utf8(read(&run.join("config.toml"))).expect("is UTF-8");
    let config: toml::Table = toml::from_str(&text).expect("is TOML");
    config["data"]["validation"].get("fold")?.as_integer()
}

#[test]
fn runs_of_folds_are_compared_image_by_image_and_have_a_page() {
    let place = Place::new(CONFIG);
    place.done("run tiny.toml --fold all");
    place.done("run tiny.toml --fold all --set run.name=other --set train.optimizer.adamw.lr=1e-2");
    let told = place.done("compare out/tiny out/other --json");
    let found: Value = serde_json::from_str(&told).expect("is JSON");
    let images: usize = FOLDS.iter().map(|fold| images(&place, *fold, "validation").len()).sum();
    assert_eq!(found["images"], images);
    let keys = found["comparisons"][0]["configuration"].as_array().expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    // As `eval` measures them, and as it has written them.
    place.done("eval out/tiny");
    let evaluated = json(&place.path("out/tiny/eval-validation/evaluation.json"));
    let first = |found: &Value| {
        found["comparisons"][0]["heads"]["findings"]["metrics"]["brier"]["mean"]["first"].clone()
    };
    assert_eq!(first(&found), evaluated["heads"]["findings"]["brier"]["mean"], "{told}");
    let again: Value =
        serde_json::from_str(&place.done("compare out/tiny out/other --json")).expect("JSON");
    assert!(again["runs"][0]["predictions"].as_str().expect("a path").contains("eval-validation"));
    assert_eq!(again["comparisons"], found["comparisons"]);
    assert_eq!(place.done("report out/tiny").trim(), "out/tiny/report.html");
    let page = String::from_utf8(read(&place.path("out/tiny/report.html"))).expect("is UTF-8");
    assert!(FOLDS.iter().all(|fold| page.contains(&format!("fold-{fold}"))));
    assert_eq!(place.done("list out").matches("done").count(), 6);
    // Of one fold that was begun, the page of the folder is the page of that run.
    for fold in &FOLDS[1..] {
        fs::remove_dir_all(place.path(&format!("out/other/fold-{fold}"))).expect("is removed");
    }
    assert_eq!(place.done("report out/other").trim(), "out/other/report.html");
    let pages = ["out/other/report.html", "out/other/fold-1/report.html"];
    let [one, other] = pages.map(|page| read(&place.path(page)));
    assert!(one == other, "samples and memory over a step are those of the fold");
}

#[cfg(unix)]
#[test]
fn folds_that_were_stopped_go_on_where_they_were() {
    let place = Place::new(CONFIG);
    let epochs = "--set train.epochs=40";
    let mut child = place
        .command(&format!("run tiny.toml --fold all {epochs}"))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let (begin, metrics) = (Instant::now(), place.fold(2).join("metrics.jsonl"));
    let epochs_told =
        |path: &Path| fs::read_to_string(path).unwrap_or_default().matches("\"epoch\",").count();
    while epochs_told(&metrics) < 3 {
        assert!(begin.elapsed() < Duration::from_secs(120), "the second fold does not begin");
        assert_eq!(child.try_wait().expect("is asked"), None, "has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .expect("is sent");
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    assert!(!place.fold(3).exists() && !place.path("out/tiny/fold-2/ended").exists());
    let first = read(&place.fold(1).join("metrics.jsonl"));
    let (code, _, errors) = place.call(&format!("run tiny.toml --fold all --resume {epochs}"));
    assert_eq!(code, Some(0), "{errors}");
    assert!(
        errors.contains("fold-1 has ended before") && errors.contains("resumed from"),
        "{errors}"
    );
    assert_eq!(read(&place.fold(1).join("metrics.jsonl")), first);
    let whole = Place::new(CONFIG);
    whole.done(&format!("run tiny.toml --fold 2 {epochs}"));
    for file in ["last/weights.safetensors", "best/validation.csv"] {
        let (one, other) = (read(&place.fold(2).join(file)), read(&whole.fold(2).join(file)));
        assert!(one == other, "{file} differs");
    }
}

/// `folds.json` without what the clock says.
fn timeless(place: &Place) -> Value {
    let mut found = json(&place.path("out/tiny/folds.json"));
    for row in found["rows"].as_array_mut().expect("rows") {
        row.as_object_mut().expect("a row").remove("seconds");
    }
    found
}

/// Asserts that the folds of both have the same bits.
fn assert_same_folds(one: &Place, other: &Place) {
    for fold in FOLDS {
        let weights = ["last", "best"].map(|state| format!("{state}/weights.safetensors"));
        let tables = ["best/validation.csv", "best/fitted.json", "split.csv"].map(str::to_owned);
        for file in weights.iter().chain(&tables) {
            let [one, other] = [one, other].map(|place| read(&place.fold(fold).join(file)));
            assert!(one == other, "{file} of fold {fold} differs");
        }
    }
    assert_eq!(timeless(one), timeless(other));
}

/// The device that each fold was trained on last.
fn devices(place: &Place) -> [String; 3] {
    FOLDS.map(|fold| {
        let text = fs::read_to_string(place.fold(fold).join("config.toml")).expect("is read");
        let config: toml::Table = toml::from_str(&text).expect("is TOML");
        config["device"]["use"].as_str().expect("one device").to_owned()
    })
}

#[test]
fn folds_on_two_devices_are_what_they_are_one_after_another() {
    let place = Place::new(CONFIG);
    let (code, told, errors) = place.call("run tiny.toml --fold all --devices cpu:0,cpu:1");
    assert_eq!(code, Some(0), "{errors}");
    assert_same_folds(&place, &TRAINED);
    let used: BTreeSet<String> = devices(&place).into();
    assert_eq!(used, BTreeSet::from(["cpu:0".to_owned(), "cpu:1".to_owned()]));
    // The terminal is told of each fold; the files have what the processes said.
    for fold in FOLDS {
        let log = format!("out/tiny/logs/fold-{fold}.log");
        assert!(errors.contains(&format!("fold {fold} of 3 on cpu:")), "{errors}");
        assert!(errors.contains(&format!("told in {log}")), "{errors}");
        assert!(errors.contains(&format!("fold {fold} of 3 is trained: val/findings/auroc 0.")));
        let log = String::from_utf8(read(&place.path(&log))).expect("is UTF-8");
        assert!(log.contains("epoch 2/2"), "{log}");
    }
    assert!(!errors.contains("epoch 2/2") && told.matches("| mean").count() == 1, "{errors}{told}");
    let (_, again, errors) = place.call("run tiny.toml --fold all --resume --devices cpu:0,cpu:1");
    assert_eq!((errors.matches("has ended before").count(), again), (3, told));
    place.done("eval out/tiny");
}

#[test]
fn several_devices_are_for_all_folds_and_a_failing_fold_names_its_log() {
    let place = Place::new(CONFIG);
    for which in ["", "--fold 1 "] {
        let errors = place.refused(&format!("run tiny.toml {which}--devices cpu:0,cpu:1"), 2);
        assert!(errors.contains("needs --fold all"), "{errors}");
    }
    let errors = place.refused("run tiny.toml --fold all --devices cpu,cpu", 2);
    assert!(errors.contains("names cpu twice"), "{errors}");
    let rate = "--set train.optimizer.adamw.lr=1e38";
    let errors =
        place.refused(&format!("run tiny.toml --fold all {rate} --devices cpu:0,cpu:1"), 1);
    let log = "out/tiny/logs/fold-1.log";
    assert!(errors.contains(&format!("told in {log}")) && errors.contains("--resume"), "{errors}");
    assert!(place.path(log).exists() && !place.fold(3).exists(), "{errors}");
}

#[cfg(unix)]
#[test]
fn folds_that_were_stopped_on_two_devices_go_on_on_others() {
    let place = Place::new(CONFIG);
    let all = "run tiny.toml --fold all --set train.epochs=30";
    let mut child = place
        .command(&format!("{all} --devices cpu:0,cpu:1"))
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let begun = |fold: usize| {
        let text = fs::read_to_string(place.fold(fold).join("metrics.jsonl")).unwrap_or_default();
        text.contains("\"event\":\"epoch\"")
    };
    let begin = Instant::now();
    while !(begun(1) && begun(2)) {
        assert!(begin.elapsed() < Duration::from_secs(120), "two folds do not begin");
        assert_eq!(child.try_wait().expect("is asked"), None, "has ended");
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .expect("is sent");
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    assert!(!place.fold(3).exists());
    place.done(&format!("{all} --resume --devices cpu:2,cpu:3"));
    let whole = Place::new(CONFIG);
    whole.done(&format!("{all} --devices cpu:0,cpu:1"));
    assert_same_folds(&place, &whole);
}
