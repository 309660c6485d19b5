//! Protects what `trainer eval` and `trainer compare` say of trained models: that it is what training
//! found, that it follows from what was fitted, and that nothing is left out or made up in silence.

#[path = "eval/card.rs"]
mod card;
#[path = "eval/compare.rs"]
mod compare;
#[path = "eval/ensemble.rs"]
mod ensemble;
#[path = "eval/external.rs"]
mod external;
#[path = "eval/matrix.rs"]
mod matrix;
#[path = "support/page.rs"]
mod read_page;
#[path = "eval/weights.rs"]
mod weights;
#[expect(dead_code, reason = "resumed runs are compared by more of it")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use serde_json::Value;
use trainer::evaluate::{Fitted, Prediction, PredictionReader, PredictionTable};
use trainer::model::HeadConfig;

/// A trained run, which the tests share and none of them changes.
struct Trained {
    folder: tempfile::TempDir,
}

impl Trained {
    /// The run `tiny` of [`support::CONFIG`], and one of another seed, `other`.
    fn runs() -> &'static Self {
        static TRAINED: OnceLock<Trained> = OnceLock::new();
        TRAINED.get_or_init(|| {
            let made = Self { folder: tempfile::tempdir().expect("is made") };
            let config = support::write_config(made.folder.path(), &made.path("data"));
            // So many that every label has both classes among the validation images.
            let text = fs::read_to_string(&config).expect("reads");
            let text = text.replace("patients = 14", "patients = 40");
            fs::write(&config, text).expect("is written");
            let config = config.to_str().expect("UTF-8").to_owned();
            made.done(&["run", &config]);
            made.done(&["run", &config, "--set", "run.name=other", "--set", "run.seed=4"]);
            made
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What the program does with these arguments in the folder of the runs.
    fn trainer(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.current_dir(self.folder.path()).args(arguments).output().expect("starts")
    }

    /// What it prints; it must not fail.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.trainer(arguments);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{told}");
        String::from_utf8(output.stdout).expect("is UTF-8")
    }

    /// What it says to standard error, without a failure.
    fn told(&self, arguments: &[&str]) -> String {
        let output = self.trainer(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        String::from_utf8(output.stderr).expect("is UTF-8")
    }

    /// What it is refused with, and this exit code.
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.trainer(arguments);
        let told = String::from_utf8(output.stderr).expect("is UTF-8");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{told}");
        told
    }

    /// The JSON that it prints.
    fn json(&self, arguments: &[&str]) -> Value {
        let text = self.done(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }

    /// The evaluation of `tiny` with these arguments, written into a folder of this name.
    fn evaluated(&self, name: &str, arguments: &[&str]) -> (Value, PathBuf) {
        let folder = self.path(name);
        let out = folder.to_str().expect("UTF-8");
        let json = self.json(&[&["eval", "tiny", "--out", out], arguments].concat());
        let file = fs::read_to_string(folder.join("evaluation.json")).expect("is written");
        assert_eq!(json, serde_json::from_str::<Value>(&file).expect("JSON"));
        (json, folder)
    }

    /// The file of a saved state of `tiny`.
    fn saved(&self, name: &str) -> Vec<u8> {
        fs::read(self.path("tiny/best").join(name)).expect("is saved")
    }

    /// What training found of the state that is evaluated.
    fn logged(&self) -> Value {
        let text = fs::read_to_string(self.path("tiny/metrics.jsonl")).expect("reads");
        let mut events =
            text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let best = events.rfind(|event| event["event"] == "epoch" && event["best"] == true);
        best.expect("an epoch is best")["val"].clone()
    }
}

fn heads() -> Vec<HeadConfig> {
    let config: toml::Table = support::CONFIG.parse().expect("TOML");
    config["heads"].clone().try_into().expect("heads")
}

fn rows(folder: &Path) -> Vec<Prediction> {
    let path = folder.join("predictions.csv");
    let file = fs::File::open(&path).expect("is written");
    let rows = PredictionReader::new(file, &path).expect("a header");
    rows.collect::<Result<_, _>>().expect("rows")
}

#[test]
fn the_validation_images_have_the_outputs_that_were_saved_bit_for_bit() {
    let trained = Trained::runs();
    let (_, folder) = trained.evaluated("as-saved", &[]);
    let saved = trained.saved("validation.csv");
    let table = PredictionTable::from_csv(&saved, &heads(), Path::new("validation.csv"));
    let fitted = String::from_utf8(trained.saved("fitted.json")).expect("UTF-8");
    let fitted = Fitted::from_json(&fitted, Path::new("fitted.json")).expect("reads");
    let (_, expected) = table.expect("reads").decided(Some(&fitted), true);
    assert!(expected.len() > 4);
    assert_eq!(rows(&folder), expected);
    assert_eq!(fs::read(folder.join("fitted.json")).expect("reads"), fitted.to_json().as_bytes());
    // Neither the batch nor the threads that read images change a bit.
    let set = ["--set", "train.batch_size=3", "--set", "data.workers=0"];
    let (_, other) = trained.evaluated("other-batch", &set);
    let read = |folder: &Path| fs::read(folder.join("predictions.csv")).expect("reads");
    assert!(read(&folder) == read(&other));
}

#[test]
fn figures_are_those_that_training_logged() {
    let trained = Trained::runs();
    let (found, _) = trained.evaluated("as-logged", &[]);
    let logged = trained.logged();
    let mut compared = 0;
    for (name, value) in logged.as_object().expect("an object") {
        let parts: Vec<&str> = name.splitn(3, '/').collect();
        let theirs = match parts[..] {
            [head, metric @ ("auroc" | "auprc")] => &found["heads"][head][metric]["mean"],
            [head, "auroc_low"] => &found["heads"][head]["auroc"]["low"],
            [head, "auroc_high"] => &found["heads"][head]["auroc"]["high"],
            [head, metric @ ("auroc" | "auprc"), label] => {
                &found["heads"][head][metric]["labels"][label]["value"]
            }
            ["view", "accuracy"] => &found["heads"]["view"]["accuracy"]["value"],
            _ => continue,
        };
        assert_eq!(theirs, value, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 2 * (2 + 2 + 3 + 3) + 1, "{logged}");
}

#[test]
fn the_json_has_the_keys_that_scripts_are_written_against() {
    let (found, _) = Trained::runs().evaluated("contract", &["--by", "sex"]);
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    let expected = [
        "data",
        "fitted_on",
        "heads",
        "images",
        "models",
        "out_of_fold",
        "patients",
        "skipped",
        "split",
        "subgroups",
        "tta",
        "warnings",
    ];
    assert_eq!(keys(&found), expected);
    let findings = &found["heads"]["findings"];
    for key in ["auroc", "auprc", "ece", "brier"] {
        let labels = keys(&findings[key]["labels"]);
        assert_eq!(labels, ["Cardiomegaly", "Pleural Effusion", "Support Devices"], "{key}");
        let estimate = &findings[key]["labels"]["Cardiomegaly"];
        for part in ["value", "low", "high"] {
            assert!(estimate.get(part).is_some(), "{key} has no {part}");
        }
    }
    let points = keys(&findings["operating_points"]["Cardiomegaly"]);
    assert_eq!(points, ["sensitivity_0.9", "specificity_0.9", "youden"]);
    let point = &findings["operating_points"]["Cardiomegaly"]["youden"];
    for key in ["threshold", "tp", "fp", "tn", "fn", "sensitivity", "ppv", "f1"] {
        assert!(point.get(key).is_some(), "no {key}: {point}");
    }
    assert_eq!(keys(&found["subgroups"]), ["sex"]);
    assert_eq!(
        (&found["split"], &found["fitted_on"]),
        (&"validation".into(), &"validation".into())
    );
    assert_eq!(found["models"][0]["run"], "tiny");
}

#[test]
fn the_page_has_the_values_of_the_json() {
    let (found, folder) = Trained::runs().evaluated("page", &["--by", "sex"]);
    let text = fs::read_to_string(folder.join("report.html")).expect("is written");
    let page = read_page::parsed(&text);
    let tables = read_page::tables(&page);
    let told = |estimate: &Value| {
        let number = |key: &str| estimate[key].as_f64().expect("a number");
        format!("{:.4} ({:.4} to {:.4})", number("value"), number("low"), number("high"))
    };
    for (head, label) in [("findings", "Cardiomegaly"), ("view", "PA")] {
        let of = &found["heads"][head];
        let measures = &tables[&format!("{head}: measures with 95% intervals")];
        let row = measures.iter().find(|row| row[0] == label).expect("a row");
        assert_eq!(row[1], told(&of["auroc"]["labels"][label]));
        let groups = &tables[&format!("{head}: AUROC by sex, with 95% intervals")];
        let row = groups.iter().find(|row| row[0] == label).expect("a row");
        for (place, group) in
            found["subgroups"]["sex"].as_array().expect("groups").iter().enumerate()
        {
            let of = &group["heads"][head]["auroc"]["labels"][label];
            let title =
                format!("{} (n={})", group["group"].as_str().expect("a name"), group["images"]);
            assert_eq!(groups[0][place + 1], title);
            let told = if of["low"].is_null() { String::new() } else { told(of) };
            assert!(row[place + 1].starts_with(&told), "{row:?}");
        }
    }
    let decisions = &tables["findings: decisions at each threshold, in images"];
    let points = &found["heads"]["findings"]["operating_points"]["Cardiomegaly"];
    for (point, of) in points.as_object().expect("points") {
        let name = point.replace('_', " ");
        let row = decisions.iter().find(|row| row[0] == "Cardiomegaly" && row[1] == name);
        assert_eq!(
            row.expect(point)[8..],
            ["tp", "fp", "tn", "fn"].map(|count| of[count].to_string()),
            "{point}"
        );
    }
    let matrix = found["heads"]["view"]["confusion_matrix"]["counts"].as_array().expect("rows");
    let shown = tables.iter().find(|(caption, _)| caption.starts_with("Confusion matrix"));
    for (counts, row) in matrix.iter().zip(&shown.expect("a matrix").1[1..]) {
        for (count, cell) in counts.as_array().expect("counts").iter().zip(&row[1..]) {
            assert!(cell.starts_with(&format!("{count} (")), "{cell}");
        }
    }
    for warning in found["warnings"].as_array().expect("warnings") {
        let warning = warning.as_str().expect("text");
        assert!(read_page::words(page.root_element()).contains(warning), "{warning}");
    }
}

#[test]
fn an_ensemble_has_a_page_with_each_of_its_models() {
    let trained = Trained::runs();
    let out = trained.path("both-page");
    let out = out.to_str().expect("UTF-8");
    trained.done(&["eval", "tiny", "other", "--each", "--out", out]);
    let text = fs::read_to_string(Path::new(out).join("report.html")).expect("is written");
    let page = read_page::parsed(&text);
    let each = &read_page::tables(&page)["findings: AUROC of each model, with 95% intervals"];
    assert_eq!(each[0], ["label", "tiny", "other"]);
}

#[test]
fn decisions_follow_the_first_threshold_of_each_label() {
    let (found, folder) = Trained::runs().evaluated("decisions", &[]);
    let points = &found["heads"]["findings"]["operating_points"];
    let rows = rows(&folder);
    for (place, label) in ["Cardiomegaly", "Pleural Effusion", "Support Devices"].iter().enumerate()
    {
        let point = &points[label]["youden"];
        let Some(threshold) = point["threshold"].as_f64() else {
            assert!(rows.iter().all(|row| row.labels()[place].decision.is_none()), "{label}");
            continue;
        };
        let decided = |row: &&Prediction| row.labels()[place].decision == Some(true);
        for row in &rows {
            let of = row.labels()[place];
            assert_eq!(of.decision, Some(of.value >= threshold), "{label} of {}", row.path);
        }
        let right =
            rows.iter().filter(decided).filter(|row| row.labels()[place].truth == Some(1.0));
        assert_eq!(point["tp"], right.count(), "{label}");
    }
    for row in &rows {
        let classes = row.labels()[3..].iter().filter(|label| label.decision == Some(true));
        assert_eq!(classes.count(), 1, "one class of {}", row.path);
    }
}

#[test]
fn groups_add_up_to_all_images() {
    let trained = Trained::runs();
    let (found, _) = trained.evaluated("groups", &["--by", "sex,age:40,60", "--by", "source,view"]);
    let groups = found["subgroups"].as_object().expect("groups");
    assert_eq!(groups.keys().collect::<Vec<_>>(), ["age", "sex", "source", "view"]);
    for (by, groups) in groups {
        let groups = groups.as_array().expect("a list");
        let sum = |of: &dyn Fn(&Value) -> Option<u64>| groups.iter().filter_map(of).sum::<u64>();
        assert_eq!(sum(&|group| group["images"].as_u64()), found["images"], "{by}");
        if by == "sex" {
            assert_eq!(sum(&|group| group["patients"].as_u64()), found["patients"]);
        }
        for label in ["Cardiomegaly", "Support Devices"] {
            for count in ["tp", "fp", "tn", "fn"] {
                let of = |head: &Value| {
                    head["findings"]["operating_points"][label]["youden"][count].as_u64()
                };
                let all = of(&found["heads"]).unwrap_or_default();
                assert_eq!(sum(&|group| of(&group["heads"])), all, "{count} of {label} by {by}");
            }
        }
    }
    let sources = &groups["source"];
    assert_eq!(
        (sources[0]["group"].as_str(), sources.as_array().map(Vec::len)),
        (Some("phantom"), Some(1))
    );
}

#[test]
fn the_same_evaluation_gives_the_same_bytes() {
    let trained = Trained::runs();
    let read = |name: &str| {
        let (_, folder) = trained.evaluated(name, &["--by", "sex"]);
        ["evaluation.json", "predictions.csv", "tables.txt"]
            .map(|file| fs::read(folder.join(file)).expect("reads"))
    };
    assert!(read("once") == read("twice"));
}

#[test]
fn what_is_fitted_follows_the_settings() {
    let trained = Trained::runs();
    let set =
        ["--set", "evaluate.calibration=none", "--set", "evaluate.operating_points.youden=false"];
    let (found, folder) = trained.evaluated("uncalibrated", &set);
    let table = PredictionTable::from_csv(
        &trained.saved("validation.csv"),
        &heads(),
        Path::new("validation.csv"),
    );
    let outputs = &table.expect("reads").heads["findings"].outputs;
    for (image, row) in rows(&folder).iter().enumerate() {
        for label in 0..3 {
            let sigmoid = 1.0 / (1.0 + (-f64::from(outputs[image * 3 + label])).exp());
            assert_eq!(row.labels()[label].value, sigmoid, "{}", row.path);
        }
    }
    let points = &found["heads"]["findings"]["operating_points"]["Cardiomegaly"];
    let points = points.as_object().expect("points").keys();
    assert_eq!(points.collect::<Vec<_>>(), ["sensitivity_0.9", "specificity_0.9"]);
}

/// Saved within an epoch, a state knows nothing of validation.
#[test]
fn a_state_without_validation_is_fitted_on_the_validation_images_first() {
    let trained = Trained::runs();
    let steps = fs::read_dir(trained.path("tiny")).expect("lists");
    let mut steps = steps.map(|entry| entry.expect("is read").path());
    let is_bare = |path: &PathBuf| {
        path.join("state.json").is_file() && !path.join("validation.csv").is_file()
    };
    let state = steps.find(is_bare).expect("a state within an epoch");
    let state = state.to_str().expect("UTF-8");
    let out = trained.path("bare");
    let told =
        trained.told(&["eval", state, "--split", "train", "--out", out.to_str().expect("UTF-8")]);
    assert!(told.contains("has no outputs for the validation images"), "{told}");
    assert!(told.contains("warning: the model was trained on these images"), "{told}");
    assert!(out.join("fitted.json").is_file());
}

#[test]
fn a_warning_says_when_figures_flatter() {
    let trained = Trained::runs();
    let told = trained.told(&["eval", "tiny"]);
    assert!(
        told.contains("warning: calibration and thresholds were fitted on these very"),
        "{told}"
    );
    assert!(trained.path("tiny/eval-validation/evaluation.json").is_file());
}

#[test]
fn what_cannot_be_measured_is_refused_with_what_to_do() {
    let trained = Trained::runs();
    let told = trained.refused(3, &["eval", "tiny", "--split", "test"]);
    assert!(told.contains("no test list") && told.contains("--split validation"), "{told}");
    let told = trained.refused(2, &["eval", "tiny", "--by", "sexe"]);
    assert!(told.contains("did you mean `Sex`?"), "{told}");
    let told = trained.refused(2, &["eval", "tiny", "--by", "path", "--split", "train"]);
    assert!(told.contains("too many groups") && told.contains("--by path:40,60"), "{told}");
    let told = trained.refused(2, &["eval", "tiny", "--by", "sex:1"]);
    assert!(told.contains("is no number"), "{told}");
    let told = trained.refused(5, &["eval", "data"]);
    assert!(told.contains("there is no saved state in data"), "{told}");
}

#[test]
fn an_ensemble_of_a_model_with_itself_is_that_model() {
    let trained = Trained::runs();
    let (alone, _) = trained.evaluated("alone", &[]);
    let both = trained.json(&["eval", "tiny", "tiny/best", "--each"]);
    for head in ["findings", "view"] {
        for metric in ["auroc", "auprc"] {
            assert_eq!(both["heads"][head][metric], alone["heads"][head][metric], "{head}");
        }
    }
    assert_eq!(both["models"].as_array().map(Vec::len), Some(2));
    assert_eq!(both["each"][1]["heads"], alone["heads"]);
    // Of another seed, other patients were set aside.
    let told = trained.told(&["eval", "tiny", "other"]);
    assert!(told.contains("the ensemble is measured on the"), "{told}");
    assert!(told.contains("thresholds are the mean of theirs"), "{told}");
}
