//! What `trainer compare` says.

use super::*;

fn each(found: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (head, of) in found["comparisons"][0]["heads"].as_object().expect("heads") {
        for (metric, table) in of["metrics"].as_object().expect("metrics") {
            all.push((format!("{head}/{metric}"), table["mean"].clone()));
            for (label, one) in table["labels"].as_object().into_iter().flatten() {
                all.push((format!("{head}/{metric}/{label}"), one.clone()));
            }
        }
    }
    all
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let trained = Trained::runs();
    // From what was saved with the state, and from what was evaluated.
    let out = trained.path("self");
    let out = out.to_str().expect("UTF-8");
    trained.done(&["eval", "tiny", "--out", out]);
    for other in ["tiny/best", out] {
        let found = trained.json(&["compare", "tiny", other]);
        let mut tested = 0;
        for (name, one) in each(&found) {
            assert_eq!(one["first"], one["second"], "{name} beside {other}");
            if one["undefined"].is_null() {
                assert_eq!(
                    (&one["difference"], &one["p_value"]),
                    (&0.0.into(), &1.0.into()),
                    "{name}"
                );
                tested += 1;
            }
        }
        assert!(tested > 8, "{found}");
        assert_eq!(found["runs"][1]["left_out"], 0);
        assert_eq!(found["comparisons"][0]["configuration"], Value::Array(Vec::new()));
    }
}

#[test]
fn values_are_those_of_an_evaluation_and_images_that_one_lacks_are_told() {
    let trained = Trained::runs();
    let arguments = ["compare", "tiny", "other"];
    let told = trained.told(&arguments);
    let found = trained.json(&arguments);
    let left_out = found["runs"][0]["left_out"].as_u64().expect("a number");
    assert!(left_out > 0 && told.contains(&format!("warning: {left_out} image")), "{told}");
    assert_eq!(
        found["comparisons"][0]["configuration"],
        serde_json::json!(["run.seed was 3, is 4"])
    );
    let whole = trained.json(&["compare", "tiny", "tiny"]);
    let warnings = whole["warnings"].as_array().expect("a list");
    let rough =
        |warning: &Value| warning.as_str().is_some_and(|of| of.contains("fewer than 10 patients"));
    assert_eq!(warnings.iter().filter(|warning| rough(warning)).count(), 1, "{warnings:?}");
    let evaluated = trained.json(&["eval", "tiny"]);
    for (name, one) in each(&whole) {
        let parts: Vec<&str> = name.splitn(3, '/').collect();
        let table = &evaluated["heads"][parts[0]][parts[1]];
        let value = match parts[..] {
            ["view", "accuracy"] => &table["value"],
            [_, _, label] => &table["labels"][label]["value"],
            _ => &table["mean"],
        };
        match (one["first"].as_f64(), value.as_f64()) {
            (Some(ours), Some(theirs)) => assert!((ours - theirs).abs() < 1e-12, "{name}"),
            (ours, theirs) => assert_eq!(ours, theirs, "{name}"),
        }
    }
    let text = trained.done(&arguments);
    assert!(text.contains("other less tiny") && text.contains("run.seed was 3, is 4"), "{text}");
}

#[test]
fn predictions_that_are_none_are_refused_with_line_and_column() {
    let trained = Trained::runs();
    let (_, folder) = trained.evaluated("hostile", &[]);
    let path = folder.join("predictions.csv");
    let right = fs::read_to_string(&path).expect("reads");
    let lines: Vec<&str> = right.lines().collect();
    let fields =
        |line: usize| -> Vec<String> { lines[line].split(',').map(str::to_owned).collect() };
    let with = |line: usize, place: usize, text: &str| {
        let mut all: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        let mut changed = fields(line);
        changed[place] = text.to_owned();
        all[line] = changed.join(",");
        all.join("\n")
    };
    let cases = [
        (with(2, 2, "NaN"), ["line 3", "findings/Cardiomegaly"]),
        (with(1, 3, "yes"), ["line 2", "findings/Cardiomegaly/decision"]),
        (with(3, 0, ""), ["line 4", "path"]),
        (with(0, 1, "person"), ["line 1", "patient"]),
        (with(0, 2, "findings"), ["line 1", "findings"]),
        (with(2, 2, "-inf"), ["line 3", "findings/Cardiomegaly"]),
        (with(2, 2, "\"0.5\" \"\""), ["line 3", "findings/Cardiomegaly"]),
        (with(2, 2, &"9".repeat(20_000_000)), ["line 3", "findings/Cardiomegaly"]),
        (with(1, 3, &"\0".repeat(1000)), ["line 2", "findings/Cardiomegaly/decision"]),
        (format!("{right}\"a.png,p1"), ["line", "columns"]),
        (String::new(), ["line 1", "path"]),
    ];
    for (text, said) in cases {
        fs::write(&path, &text).expect("is written");
        let told = trained.refused(3, &["compare", "tiny", folder.to_str().expect("UTF-8")]);
        assert!(said.iter().all(|part| told.contains(part)), "{said:?}\n{told}");
        assert!(!told.contains("panicked"), "{told}");
    }
    fs::write(&path, [b"path,patient,findings/a\n".as_slice(), &[0xff, 0xfe, b',']].concat())
        .expect("is written");
    trained.refused(3, &["compare", "tiny", folder.to_str().expect("UTF-8")]);
    fs::write(&path, &right).expect("is written");
    fs::write(folder.join("evaluation.json"), "{\"heads\": 3}").expect("is written");
    let told = trained.refused(3, &["compare", "tiny", folder.to_str().expect("UTF-8")]);
    assert!(told.contains("line 1") && told.contains("evaluation.json"), "{told}");
}

#[test]
fn a_list_that_was_not_evaluated_is_asked_for_by_the_command_that_makes_it() {
    let told = Trained::runs().refused(3, &["compare", "tiny", "other", "--split", "test"]);
    assert!(told.contains("`trainer eval tiny --split test` makes them"), "{told}");
}

#[test]
fn the_page_of_several_runs_has_what_is_found_or_why_there_is_nothing() {
    let trained = Trained::runs();
    let folder = tempfile::tempdir().expect("a folder");
    let page = |runs: &[&str]| {
        let file = folder.path().join("page.html");
        let file = file.to_str().expect("UTF-8");
        trained.done(&[&["report"][..], runs, &["--out", file]].concat());
        fs::read_to_string(file).expect("reads")
    };
    let text = page(&["tiny", "other"]);
    let parsed = read_page::parsed(&text);
    let shown = &read_page::tables(&parsed)["other less tiny"];
    let found = trained.json(&["compare", "tiny", "other"]);
    let images = found["images"].as_u64().expect("a number");
    assert!(text.contains(&format!("On {images} validation images of")), "{text}");
    let mut held = 0;
    for (name, one) in each(&found) {
        // Of a single label the mean stands for it.
        let parts: Vec<&str> = name.splitn(3, '/').collect();
        let Some(row) = shown.iter().find(|row| row.iter().zip(&parts).all(|(a, b)| a == b)) else {
            continue;
        };
        let first = one["first"].as_f64();
        match first {
            Some(value) => {
                let told: f64 = row[3].parse().expect("a number");
                assert!((told - value).abs() < 6e-3 * value.abs().max(1.0), "{name}: {row:?}");
                held += 1;
            }
            None => assert_eq!(row[3], "undefined", "{name}"),
        }
        if let Some(p) = one["p_value"].as_f64().filter(|p| *p >= 0.001) {
            assert_eq!(row[6], format!("{p:.3}"), "{name}");
        }
    }
    assert!(held > 8, "{shown:?}");
    // A run without a state to compare has curves all the same.
    let bare = folder.path().join("bare");
    fs::create_dir(&bare).expect("is made");
    for file in ["config.toml", "metrics.jsonl"] {
        fs::copy(trained.path("tiny").join(file), bare.join(file)).expect("is copied");
    }
    let text = page(&["tiny", bare.to_str().expect("UTF-8")]);
    assert!(
        text.contains("The runs are not tested: ") && text.contains("Learning curves"),
        "{text}"
    );
}
