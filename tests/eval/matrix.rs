//! Several runs on several data sets.

use super::external::Other;
use super::*;

/// Data with the labels under names of their own, which the configuration tells.
fn third(trained: &Trained, known: bool) -> (Other, String) {
    let other = Other::new(trained, |rows| {
        if !known {
            rows.iter_mut().for_each(|row| row[2..4].iter_mut().for_each(String::clear));
        }
    });
    let config = fs::read_to_string(other.path("other.toml")).expect("reads");
    let columns = "columns = { Cardiomegaly = \"heart\", \"Support Devices\" = \"devices\" }\n";
    let file = other.path("third.toml");
    fs::write(&file, config + columns).expect("is written");
    let file = file.to_str().expect("UTF-8").to_owned();
    (other, file)
}

fn cell<'a>(found: &'a Value, trained_on: &str, tested_on: &str) -> &'a Value {
    let cells = found["matrix"].as_array().expect("cells");
    let is = |cell: &&Value| cell["trained_on"] == trained_on && cell["tested_on"] == tested_on;
    cells.iter().find(is).expect("a cell")
}

#[test]
fn each_cell_is_the_evaluation_of_that_run_on_these_data() {
    let trained = Trained::runs();
    let (_kept, third) = third(trained, true);
    let out = trained.path("matrix");
    let out = out.to_str().expect("UTF-8");
    let matrix = ["eval", "tiny", "other", "--matrix", "--data", &third, "--out", out];
    let found = trained.json(&matrix);
    assert_eq!(found["matrix"].as_array().map(Vec::len), Some(2 * 3));
    let alone = [
        ("tiny", "tiny", vec!["eval", "tiny"]),
        ("other", "other", vec!["eval", "other"]),
        (
            "tiny",
            "other",
            vec!["eval", "tiny", "--data", "other/config.toml", "--split", "validation"],
        ),
        ("other", "third", vec!["eval", "other", "--data", &third]),
    ];
    for (trained_on, tested_on, command) in alone {
        let alone = trained.json(&[&command[..], &["--out", out]].concat());
        let evaluation = &cell(&found, trained_on, tested_on)["evaluation"];
        for key in ["heads", "images", "patients", "split", "warnings"] {
            assert_eq!(evaluation[key], alone[key], "{key} of {trained_on} on {tested_on}");
        }
    }
    let warnings = cell(&found, "tiny", "other")["evaluation"]["warnings"].to_string();
    assert!(warnings.contains("of these data are training images of the run"), "{warnings}");
    let mut reader = csv::Reader::from_path(trained.path("matrix/matrix.csv")).expect("a table");
    let mut compared = 0;
    for row in reader.records() {
        let row = row.expect("a row");
        let evaluation = &cell(&found, &row[0], &row[1])["evaluation"];
        let table = &evaluation["heads"][&row[5]][&row[6]];
        let (of, key) = match &row[7] {
            "" => (table, "mean"),
            label => (&table["labels"][label], "value"),
        };
        for (field, value) in
            [&row[8], &row[9], &row[10]].iter().zip([&of[key], &of["low"], &of["high"]])
        {
            assert_eq!(field.parse::<f64>().ok(), value.as_f64(), "{row:?}");
        }
        assert_eq!(row[11] == *"", of["undefined"].is_null(), "{row:?}");
        assert_eq!(row[3].parse().ok(), evaluation["images"].as_u64());
        compared += 1;
    }
    assert!(compared >= 6 * 4 * 4, "{compared}");
    let text = fs::read_to_string(trained.path("matrix/matrix.txt")).expect("is written");
    let mean = |trained_on, tested_on| {
        let auroc =
            &cell(&found, trained_on, tested_on)["evaluation"]["heads"]["findings"]["auroc"];
        format!("{:.3} (", auroc["mean"].as_f64().expect("a number"))
    };
    let row = text.lines().find(|line| line.starts_with("| other ")).expect("a row");
    for tested_on in ["tiny", "other", "third"] {
        assert!(row.contains(&mean("other", tested_on)), "{text}");
    }
}

#[test]
fn a_cell_that_cannot_be_had_says_why_and_takes_no_other_away() {
    let trained = Trained::runs();
    let (_kept, third) = third(trained, false);
    let found = trained.json(&["eval", "tiny", "--matrix", "--data", &third]);
    assert!(cell(&found, "tiny", "tiny")["evaluation"]["heads"]["findings"].is_object());
    let none = cell(&found, "tiny", "third");
    let why = none["error"].as_str().expect("a reason");
    assert!(none["evaluation"].is_null() && why.contains("no label is known"), "{why}");
    let several = ["eval", "tiny", "--data", &third, "--data", &third];
    assert!(trained.refused(2, &several).contains("--matrix"));
}
