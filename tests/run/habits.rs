//! A run as scripts and the list of runs see it.

use serde_json::Value;

use super::Experiment;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
fn a_quiet_run_tells_one_line_and_prints_nothing() {
    let experiment = Experiment::new();
    let told = experiment.trained(&["--quiet"]);
    assert_eq!(told.printed, "");
    let lines: Vec<&str> = told.text.lines().collect();
    assert_eq!(lines.len(), 1, "{}", told.text);
    assert!(lines[0].starts_with("done after 2 epochs and 4 steps in "), "{}", lines[0]);
    let weights = "weights in runs/small/best/weights.safetensors";
    assert!(lines[0].contains(": best loss ") && lines[0].ends_with(weights), "{}", lines[0]);
    // The flag stands before and behind the command, and warnings and errors are still said.
    let again = experiment.told(&["-q", "run", "a.toml"]);
    assert_eq!(again.code, Some(2));
    assert!(again.text.contains("holds a run already"), "{}", again.text);
    let ended = experiment.trained(&["-q", "--resume"]);
    assert!(!ended.warnings().is_empty(), "{}", ended.text);
}

#[test]
fn a_run_ends_with_its_last_event_where_json_is_asked_for() {
    let experiment = Experiment::new();
    for flags in [&["--json"][..], &["--json", "--quiet", "--overwrite"]] {
        let told = experiment.trained(flags);
        assert_eq!(vec![json(&told.printed)], experiment.events("end"));
    }
}

#[test]
fn a_list_shows_a_run_that_is_done_and_one_that_is_interrupted_and_changes_nothing() {
    let experiment = Experiment::new();
    experiment.trained(&[]);
    let before = experiment.files("runs");
    let told = experiment.told(&["list", "runs", "--json"]);
    assert_eq!(told.code, Some(0), "{}", told.text);
    let (runs, end) = (json(&told.printed), experiment.events("end").remove(0));
    assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
    let run = &runs[0];
    assert_eq!(run["folder"], "runs/small");
    assert_eq!((&run["name"], &run["state"]), (&"small".into(), &"done".into()));
    assert_eq!((&run["epochs_done"], &run["epochs"]), (&2.into(), &2.into()));
    assert_eq!(run["metric"], end["best"]["metric"]);
    assert_eq!(run["best"], end["best"]["value"]);
    assert_eq!(run["best_epoch"], end["best"]["epoch"]);
    assert_eq!(run["problem"], Value::Null);
    let shown = experiment.told(&["list", "runs"]).printed;
    assert!(shown.contains("runs/small") && shown.contains("2/2"), "{shown}");
    assert_eq!(experiment.files("runs"), before);
    let nothing = experiment.told(&["list"]);
    assert_eq!(nothing.code, Some(0), "{}", nothing.text);
    assert!(nothing.printed.starts_with("no runs in checkpoints (looked in "), "{shown}");
    assert_eq!(experiment.told(&["list", "--json"]).printed, "[]\n");
    let wrong = experiment.told(&["list", "nowhere"]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.text.contains("cannot list the runs in nowhere (looked in "), "{}", wrong.text);
}

#[test]
fn that_there_is_no_best_state_is_said_at_the_end() {
    let experiment = Experiment::new();
    // One class only in validation: the AUROC is never defined.
    let rows = experiment.rows().into_iter().map(|row| match row.contains("valid") {
        true => {
            format!("{},0,0", row.split(",valid,").next().unwrap_or_default().to_owned() + ",valid")
        }
        false => row,
    });
    experiment.write_rows(&rows.collect::<Vec<_>>());
    let watch = ["--set", "train.best_metric=val/findings/auroc"];
    let said = "no best state: val/findings/auroc had no value in any epoch";
    let told = experiment.trained(&watch);
    // The page may break the line.
    let printed = told.printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(printed.contains(said), "{}", told.printed);
    assert!(!experiment.path("runs/small/best").exists());
    let quiet = experiment.trained(&[&watch[..], &["--overwrite", "--quiet"]].concat());
    assert!(quiet.text.contains(said), "{}", quiet.text);
}
