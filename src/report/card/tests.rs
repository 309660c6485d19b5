use std::fs;

use serde_json::json;

use super::*;
use crate::evaluate::{Criterion, Fitted, FittedHead, FittedPoint};
use crate::report::Findings;

const CONFIG: &str = r#"
[run]
name = "a|b"
seed = 3
[data]
image = { size = [32, 32], channels = 1 }
validation = { fraction = 0.3 }
[data.csv]
table = "/home/someone/secret.csv"
[model.densenet]
growth = 4
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Edema", "<b>Mass</b>"]
loss = "bce"
[train]
epochs = 3
batch_size = 4
[train.optimizer.adamw]
lr = 0.003
"#;

/// The folder of a run whose second epoch is its best, and which was measured on two lists: on other data
/// as it is, and on the test list in an earlier state.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("is below")).expect("is made");
        fs::write(file, text).expect("is written");
    };
    write("config.toml", CONFIG);
    let split = "image,patient,list\n1.png,Anna,train\n2.png,Anna,train\n3.png,Bo,validation\n";
    write("split.csv", split);
    let labels = |positives: f64| {
        let count = json!({ "positives": positives, "known": 140.0 });
        json!({ "findings": { "Edema": count, "<b>Mass</b>": { "positives": 2.5, "known": 9.0 } } })
    };
    let lines = [
        json!({
            "event": "start", "name": "a|b", "version": "0.1.0", "device": "CPU", "parameters": 12345,
            "epochs": 3, "heads": [{ "name": "findings", "labels": ["Edema", "<b>Mass</b>"] }],
            "data": { "split": "5b", "labels": "1a" },
            "labels": { "train": labels(70.0), "validation": labels(49.0) },
        }),
        json!({
            "event": "epoch", "epoch": 2, "step": 80, "best": true, "memory": { "peak": 1_073_741_824 },
            "watched": { "metric": "val/findings/auroc", "value": 0.75 },
            "undefined": { "findings/auroc/<b>Mass</b>": "one class only: 3 positives of 3" },
        }),
        json!({ "event": "warning", "message": "the table /home/someone/secret.csv is odd" }),
        json!({ "event": "end", "reason": "epochs", "seconds": 61.0, "undefined": {} }),
    ];
    let lines = lines.map(|line| format!("{line}\n"));
    write("metrics.jsonl", &lines.concat());
    let estimate = |value: f64| json!({ "value": value, "low": value - 0.1, "high": value + 0.05 });
    let none = json!({ "value": null, "low": null, "high": null, "undefined": "no known label" });
    let point = json!({
        "threshold": 0.25, "tp": 1, "fp": 2, "tn": 3, "fn": 4, "sensitivity": estimate(0.6),
        "specificity": estimate(0.7), "ppv": none, "npv": estimate(0.5), "f1": estimate(0.4),
    });
    let findings = json!({
        "auroc": {
            "mean": 0.8125, "low": 0.75, "high": 0.875,
            "labels": { "Edema": estimate(0.8125), "<b>Mass</b>": none },
        },
        "operating_points": { "Edema": { "youden": point } },
    });
    let evaluation = |step: u64, data: Option<&str>, split: &str| {
        let group = json!({ "group": "F", "images": 3, "heads": { "findings": findings } });
        json!({
            "models": [{ "run": "a", "state": "a/best", "epoch": 2, "step": step }], "data": data, "split": split,
            "images": 7, "patients": 5, "skipped": 1, "heads": { "findings": findings },
            "subgroups": { "sex": [group] },
        })
    };
    let other = evaluation(80, Some("/home/someone/hospital_b.toml"), "all");
    write("eval-hospital_b/evaluation.json", &other.to_string());
    write("eval-test/evaluation.json", &evaluation(40, None, "test").to_string());
    write("eval-broken/evaluation.json", "{");
    folder
}

fn written(folder: &Path) -> String {
    let record = Record::read(folder).expect("reads");
    write_card(folder, &record, None).expect("writes");
    fs::read_to_string(folder.join(CARD_FILE)).expect("is written")
}

#[test]
fn a_card_tells_what_the_run_folder_holds_and_names_nobody() {
    let folder = folder();
    let card = written(folder.path());
    for private in ["Anna", "1.png", "/home/someone", "secret"] {
        assert!(!card.contains(private), "{private}");
    }
    assert!(!card.contains("<b>"), "labels are text");
    let seal = card.trim_end().rfind('\n').expect("a last line");
    insta::assert_snapshot!(card[..seal].trim_end());
}

#[test]
fn a_card_is_written_again_unless_its_author_changed_more_than_their_places() {
    let folder = folder();
    let file = folder.path().join(CARD_FILE);
    let first = written(folder.path());
    assert_eq!(written(folder.path()), first);
    let edited = first.replace("# To be filled in by the author, such as\n", "license: mit\n");
    fs::write(&file, &edited).expect("is written");
    fs::remove_dir_all(folder.path().join("eval-hospital_b")).expect("is removed");
    let second = written(folder.path());
    assert!(second.contains("license: mit") && !second.contains("hospital_b"), "{second}");
    let own = second.replace("## Limitations", "## What it cannot do");
    fs::write(&file, &own).expect("is written");
    let record = Record::read(folder.path()).expect("reads");
    let refused = write_card(folder.path(), &record, None).expect_err("is the author's");
    assert!(refused.contains("left as it is"), "{refused}");
    assert_eq!(fs::read_to_string(&file).expect("reads"), own);
}

#[test]
fn thresholds_are_those_of_the_state_that_was_checked() {
    let folder = folder();
    let file = folder.path().join(CARD_FILE);
    let damaged = refresh_card(folder.path(), |_| Err("fitted.json is damaged".to_owned()));
    assert_eq!(damaged.expect_err("is refused"), "fitted.json is damaged");
    assert!(!file.exists());
    // Nothing is read beside the reader. This state keeps no outputs, as where they are too many.
    let read = |folder: &Path| {
        let (criterion, threshold) = (Criterion::Youden, Some(0.375));
        let point = FittedPoint { criterion, threshold, undefined: None };
        let operating_points = [("Edema".to_owned(), vec![point])].into();
        let head = FittedHead { operating_points, ..FittedHead::default() };
        let fitted = Fitted::new([("findings".to_owned(), head)].into());
        let files = [(Fitted::FILE.to_owned(), fitted.to_json().into_bytes())].into();
        Ok(Some(Findings { folder: folder.join("best"), epoch: 2, step: 80, files }))
    };
    refresh_card(folder.path(), read).expect("writes");
    let card = fs::read_to_string(&file).expect("is written");
    assert!(card.contains("| findings | Edema | youden | 0.3750 |"), "{card}");
}

#[test]
fn a_run_without_a_best_epoch_has_no_card() {
    let folder = folder();
    let record = Record { epochs: Vec::new(), ..Record::read(folder.path()).expect("reads") };
    write_card(folder.path(), &record, None).expect("nothing is wrong");
    assert!(!folder.path().join(CARD_FILE).exists());
}

/// What the checklist of a card tells of the item of this number.
fn item(card: &str, number: usize) -> &str {
    let (_, below) = card.split_once("\n## CLAIM checklist\n").expect("is there");
    let begin = format!("| {number} |");
    let row = below.lines().find(|line| line.starts_with(&begin)).expect("has all items");
    row.trim_end_matches(" |").rsplit_once(" | ").expect("has cells").1
}

#[test]
fn the_checklist_leaves_to_the_author_what_they_have_not_written() {
    let folder = folder();
    let file = folder.path().join(CARD_FILE);
    let first = written(folder.path());
    for number in [5, 8, 44] {
        assert!(item(&first, number).starts_with("to be filled in by the author"), "{number}");
    }
    let begin = |place: &str| format!("<!-- author:{place} -->\n");
    let edited = first
        .replace(&begin("claim"), &format!("{}- Item 44: none.\n- Item 4:\n", begin("claim")))
        .replace(&begin("data"), &format!("{}Children were left out.\n", begin("data")));
    fs::write(&file, edited).expect("is written");
    let second = written(folder.path());
    assert!(second.contains("\n- Item 44: none.\n"), "{second}");
    assert_eq!(item(&second, 44), "see the author's words below");
    assert_eq!(item(&second, 8), "see the author's words under Training data");
    for open in [4, 5] {
        assert_eq!(item(&second, open), "to be filled in by the author");
    }
    assert_eq!(written(folder.path()), second, "nothing changes where nothing new is known");
}

#[test]
fn the_checklist_tells_whether_lists_share_patients_and_where_weights_came_from() {
    let folder = folder();
    let write =
        |file: &str, text: &str| fs::write(folder.path().join(file), text).expect("is written");
    let told = |number: usize| item(&written(folder.path()), number).to_owned();
    assert_eq!(told(20), "patient: none is in two lists");
    assert_eq!(told(24), "random");
    write("split.csv", "image,patient,list\n1.png,Anna,train\n2.png,Bo,train\n3.png,Anna,test\n");
    assert_eq!(told(20), "not disjoint by patient: 1 patient is in more than one list");
    write("split.csv", "image,patient,list\n1.png,1.png,train\n2.png,2.png,validation\n");
    assert_eq!(told(20), "image: each image counts as a patient of its own, and is in one list");
    let init = "[model]\ninit = \"/home/someone/xrv.pt\"\nfreeze = [\"stem\"]\n";
    write("config.toml", &CONFIG.replace("[model.densenet]", &format!("{init}[model.densenet]")));
    assert_eq!(told(24), "those of the file xrv.pt; model.freeze = \\[\"stem\"\\]");
    assert!(!written(folder.path()).contains("/home/someone"), "the card tells of no folder");
}
