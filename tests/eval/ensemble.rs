//! Several models as one: `trainer eval` and `trainer predict` decide by one rule.

use std::collections::BTreeMap;

use super::*;

type Row = BTreeMap<String, String>;

fn table(bytes: &[u8]) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(bytes);
    reader.deserialize().collect::<Result<_, _>>().expect("a table")
}

/// What `eval` and `predict` say of the validation images by these runs, which must be the same, each with
/// what it warns of.
fn both(trained: &Trained, name: &str, runs: &[&str], options: &[&str]) -> (Vec<Row>, [String; 2]) {
    let out = trained.path(name);
    let out = out.to_str().expect("UTF-8");
    let eval = [&["eval", "--out", out], runs, options].concat();
    let measured = trained.told(&eval);
    let file = fs::read(Path::new(out).join("predictions.csv")).expect("is written");
    let evaluated = table(&file);
    let list = trained.path(&format!("{name}.csv"));
    let paths: Vec<&str> = evaluated.iter().map(|row| row["path"].as_str()).collect();
    fs::write(&list, format!("path\n{}\n", paths.join("\n"))).expect("is written");
    let list = list.to_str().expect("UTF-8");
    let others = runs[1..].iter().flat_map(|run| ["--ensemble", run]);
    let predict = [&["predict", runs[0], list], &others.collect::<Vec<_>>()[..], options].concat();
    let predicted = trained.trainer(&predict);
    let told = String::from_utf8(predicted.stderr).expect("UTF-8");
    assert_eq!(predicted.status.code(), Some(0), "{told}");
    let predicted = table(&predicted.stdout);
    assert_eq!(predicted.len(), evaluated.len());
    let mut compared = 0;
    for (ours, theirs) in predicted.iter().zip(&evaluated) {
        let columns = theirs.keys().filter(|name| *name != "patient" && !name.ends_with("/truth"));
        for column in columns {
            assert_eq!(ours[column], theirs[column], "{column} of {}", theirs["path"]);
            compared += 1;
        }
    }
    assert_eq!(compared, evaluated.len() * (1 + 2 * 6));
    (evaluated, [measured, told])
}

/// How often each decision is made about the findings.
fn decided(rows: &[Row]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for (column, field) in rows.iter().flatten() {
        if column.starts_with("findings/") && column.ends_with("/decision") {
            *counts.entry(field.as_str()).or_default() += 1;
        }
    }
    counts
}

#[test]
fn an_ensemble_validated_on_the_same_images_predicts_what_is_measured_bit_for_bit() {
    let trained = Trained::runs();
    let runs = ["tiny/best", "tiny/last"];
    let (rows, [_, told]) = both(trained, "same-validation", &runs, &[]);
    assert_eq!(told, "", "nothing is to be warned of");
    assert!(decided(&rows)["0"] > 0 && decided(&rows)["1"] > 0, "{:?}", decided(&rows));
    // The thresholds are those of the ensemble's own fit.
    let fitted = fs::read_to_string(trained.path("same-validation/fitted.json")).expect("reads");
    let fitted = Fitted::from_json(&fitted, Path::new("fitted.json")).expect("reads");
    let head = &fitted.heads["findings"];
    assert!(head.calibration.is_some());
    for row in &rows {
        for (label, points) in &head.operating_points {
            let value: f64 = row[&format!("findings/{label}")].parse().expect("a number");
            let decision = points[0].threshold.map(|cut| value >= cut);
            let expected = decision.map_or("", |is| if is { "1" } else { "0" });
            assert_eq!(row[&format!("findings/{label}/decision")], expected, "{label}");
        }
    }
    let platt = ["--set", "evaluate.calibration=platt"];
    let (scaled, _) = both(trained, "same-validation-platt", &runs, &platt);
    assert_ne!(scaled, rows);
}

#[test]
fn an_ensemble_validated_on_other_images_decides_at_the_mean_of_the_thresholds_and_says_so() {
    let trained = Trained::runs();
    let (rows, told) = both(trained, "other-validation", &["tiny", "other"], &[]);
    for told in told {
        assert!(told.contains("warning: the runs were not validated on the same images"), "{told}");
    }
    let fitted = |run: &str| {
        let text = fs::read_to_string(trained.path(run).join("best/fitted.json")).expect("reads");
        Fitted::from_json(&text, Path::new("fitted.json")).expect("reads")
    };
    let fitted = ["tiny", "other"].map(fitted);
    for label in ["Cardiomegaly", "Pleural Effusion", "Support Devices"] {
        let of = |of: &Fitted| of.heads["findings"].operating_points[label][0].threshold;
        let [ours, theirs] = [&fitted[0], &fitted[1]].map(of);
        let mean = ours.zip(theirs).map(|(ours, theirs)| (ours + theirs) / 2.0);
        for row in &rows {
            let value: f64 = row[&format!("findings/{label}")].parse().expect("a number");
            let expected = mean.map_or("", |mean| if value >= mean { "1" } else { "0" });
            assert_eq!(row[&format!("findings/{label}/decision")], expected, "{label}");
        }
    }
}

#[test]
fn several_views_are_measured_as_they_are_predicted() {
    let trained = Trained::runs();
    let tta = ["--tta"];
    let (plain, _) = both(trained, "one-view", &["tiny"], &[]);
    let (views, _) = both(trained, "views", &["tiny"], &tta);
    assert_ne!(plain, views);
    // An ensemble of views: the mean of each run's views, then of the runs.
    both(trained, "views-of-two", &["tiny/best", "tiny/last"], &tta);
    both(trained, "views-of-others", &["tiny", "other"], &tta);
    // Thresholds are those that were fitted on the images as they are.
    let found = |name: &str| -> Value {
        let text = fs::read_to_string(trained.path(name).join("evaluation.json")).expect("reads");
        serde_json::from_str(&text).expect("JSON")
    };
    let (plain, views) = (found("one-view"), found("views"));
    assert_eq!((&plain["tta"], &views["tta"]), (&false.into(), &true.into()));
    let threshold = |found: &Value| {
        found["heads"]["findings"]["operating_points"]["Cardiomegaly"]["youden"]["threshold"]
            .clone()
    };
    assert_eq!(threshold(&plain), threshold(&views));
    let none = ["eval", "tiny", "--tta", "--set", "data.augment={rotate_degrees=5.0}"];
    let told = trained.refused(2, &none);
    assert!(told.contains("`horizontal_flip`"), "{told}");
}

#[test]
fn runs_on_other_data_have_no_ensemble_and_the_commands_that_measure_them_are_named() {
    let trained = Trained::runs();
    let place = tempfile::tempdir().expect("is made");
    let at = |name: &str| place.path().join(name).display().to_string();
    let [output, data] =
        [format!("run.output={}", at("runs")), format!("data.phantom.root={}", at("data"))];
    trained.done(&["run", "tiny.toml", "--set", &output, "--set", &data]);
    let elsewhere = at("runs/tiny");
    let told = trained.refused(3, &["eval", "tiny", &elsewhere]);
    assert!(told.contains("no image in common") && told.contains("--matrix"), "{told}");
    let told = trained.refused(3, &["compare", "tiny", &elsewhere]);
    assert!(
        told.contains("no image in common") && told.contains("trainer eval RUN --data"),
        "{told}"
    );
}
