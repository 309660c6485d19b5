//! `trainer sweep --epochs`: every combination is trained in a run folder of its own, and goes on where
//! the sweep was stopped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "support/page.rs"]
#[expect(dead_code, reason = "pages of runs have no links")]
mod page;
#[path = "support/sweep.rs"]
mod sweep;

use sweep::{CONFIG, SweepFolder};

/// Longer runs.
fn config() -> String {
    CONFIG.replace("epochs = 3", "epochs = 50\nbest_metric = \"val/view/auroc\"")
}

/// The run folder of a row.
fn run_folder(place: &SweepFolder, row: &Value) -> PathBuf {
    place.0.path().join(row["run"].as_str().expect("a run folder"))
}

/// The events of one kind in a run folder.
fn events(run: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("has metrics");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("is JSON"));
    events.filter(|event| event["event"] == kind).collect()
}

#[test]
fn each_combination_is_trained_and_its_row_has_what_validation_said() {
    let place = SweepFolder::new(&config());
    let grid = ["--epochs", "2", "--grid", "train.optimizer.adamw.lr=3e-3,1e38"];
    let (code, told, shown) = place.run(&grid);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("1 of 2 combinations failed"), "{shown}");
    let rows = place.rows();
    assert_eq!((&rows[0]["status"], &rows[1]["status"]), (&"ok".into(), &"failed".into()));
    assert!(rows[1]["message"].as_str().expect("says why").contains("not a finite number"));

    let run = run_folder(&place, &rows[0]);
    let (epochs, end) = (events(&run, "epoch"), events(&run, "end"));
    assert_eq!((epochs.len(), end.len()), (2, 1));
    assert_eq!(rows[0]["metric"], "val/view/auroc");
    assert_eq!(rows[0]["last"], epochs[1]["val"]["view/auroc"]);
    assert_eq!(rows[0]["best"], end[0]["best"]["value"]);
    assert_eq!(rows[0]["best_epoch"], end[0]["best"]["epoch"]);
    assert_eq!((&rows[0]["epochs"], &rows[0]["seconds"]), (&2.into(), &end[0]["seconds"]));
    let peaks = epochs.iter().map(|epoch| epoch["memory"]["peak"].as_u64().expect("bytes"));
    assert_eq!(rows[0]["peak"].as_u64(), peaks.max());
    assert!(rows[0]["images_per_second"].as_f64() > Some(0.0), "{}", rows[0]);
    assert!(run.join("best/weights.safetensors").is_file());

    let best = rows[0]["best"].as_f64().expect("a number");
    assert!(told.contains(&format!("The best val/view/auroc is {best:.4}, of ")), "{told}");
    assert!(told.lines().any(|line| line.starts_with('|') && line.contains("best")), "{told}");
}

#[test]
fn how_long_to_train_is_said_once() {
    let place = SweepFolder::new(&config());
    let refused = |arguments: &[&str]| {
        let (code, told, shown) = place.run(arguments);
        assert_eq!((code, told.as_str()), (Some(2), ""), "{shown}");
        assert!(!place.sweep().exists());
        shown
    };
    insta::assert_snapshot!(refused(&["--epochs", "2", "--grid", "train.epochs=1,3"]), @r"
    error: --epochs 2 and --grid train.epochs=1,3 both say how long to train
      = help: leave train.epochs out of the grid: --epochs is the same for all combinations
    ");
    for other in [&["--steps", "5"][..], &["--synthetic"]] {
        let grid = ["--epochs", "2", "--grid", "train.batch_size=4,2"];
        assert!(refused(&[&grid[..], other].concat()).contains("cannot be used with"));
    }
}

#[test]
fn a_fold_is_swept_in_the_folder_of_its_combination() {
    let place = SweepFolder::new(&config().replace("fraction = 0.3", "folds = 2"));
    let (code, _, shown) = place.run(&["--epochs", "1", "--grid", "data.validation.fold=2,1"]);
    assert_eq!(code, Some(0), "{shown}");
    for (row, fold) in place.rows().iter().zip(["fold-2", "fold-1"]) {
        assert_eq!((&row["status"], &row["epochs"]), (&"ok".into(), &1.into()));
        assert!(run_folder(&place, row).ends_with(fold), "{row}");
    }
    let text = place.file("report.html");
    let page = page::parsed_with_links(&text, |link| place.sweep().join(link).is_file());
    let links = page.descendants().filter_map(|node| node.attribute("href"));
    assert_eq!(links.filter(|link| link.ends_with("/report.html")).count(), 2);
}

/// Waits until `done` of the sweep's folder.
fn wait(what: &str, done: impl Fn() -> bool) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(300) {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what} did not come");
}

/// What a row says that does not depend on the machine's speed.
fn validated(rows: &[Value]) -> Vec<Value> {
    let keys = ["set", "status", "metric", "best", "best_epoch", "last", "epochs"];
    let of = |row: &Value| keys.iter().map(|key| row[key].clone()).collect();
    rows.iter().map(of).collect()
}

/// The sweep's page has a row for each combination, with a link to the page of its run, and curves.
fn has_a_page(place: &SweepFolder, rows: &[Value]) {
    let text = place.file("report.html");
    let page = page::parsed_with_links(&text, |link| place.sweep().join(link).is_file());
    let tables = page::tables(&page);
    let shown = &tables["What each combination took"];
    assert_eq!(
        (shown.len(), &shown[0][..2]),
        (1 + rows.len(), &["run".into(), "batch_size".into()][..])
    );
    let best = shown[0].iter().position(|title| title == "best").expect("a column");
    let curve = &tables["best val/view/auroc by batch_size"];
    for (number, row) in rows.iter().enumerate() {
        let size = row["set"]["train.batch_size"].to_string();
        let value = format!("{:.4}", row["best"].as_f64().expect("a number"));
        assert_eq!(shown[number + 1][0], format!("run\u{a0}{}", number + 1));
        assert_eq!((&shown[number + 1][1], &shown[number + 1][best]), (&size, &value));
        assert!(curve.contains(&vec![size, value]), "{curve:?}");
    }
    let links = page.descendants().filter_map(|node| node.attribute("href"));
    let links = links.filter(|link| link.ends_with("/report.html")).count();
    assert_eq!(links, rows.len());
    // Twelve epochs, of two runs.
    let curves = &tables["Validation view/auroc"];
    assert_eq!(
        (curves.len(), &curves[0][..]),
        (13, &["epoch", "batch_size=4", "batch_size=3"].map(String::from)[..])
    );
}

#[cfg(unix)]
#[test]
fn a_sweep_that_was_stopped_goes_on_inside_the_training_of_a_combination() {
    let grid = ["--epochs", "12", "--grid", "train.batch_size=4,3"];
    let whole = SweepFolder::new(&config());
    let (code, _, shown) = whole.run(&grid);
    assert_eq!(code, Some(0), "{shown}");

    let place = SweepFolder::new(&config());
    let runs = place.sweep().join("runs");
    let saved = |least: usize| {
        let entries = std::fs::read_dir(&runs).into_iter().flatten().flatten();
        let mut epochs = entries.map(|run| {
            let text = std::fs::read_to_string(run.path().join("metrics.jsonl"));
            text.unwrap_or_default().matches("\"reason\":\"epoch_end\"").count()
        });
        epochs.any(|epochs| epochs >= least)
    };
    // A kill in the first combination, then Ctrl-C a few epochs later.
    let cuts: [(&str, usize, Option<i32>); 2] = [("-KILL", 2, None), ("-INT", 5, Some(130))];
    for (signal, least, code) in cuts {
        let mut child = place.command(&grid);
        let mut child = child.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts");
        wait("a saved epoch", || saved(least));
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().expect("is sent").success());
        assert_eq!(child.wait().expect("ends").code(), code, "{signal}");
    }
    let (code, _, shown) = place.run(&grid);
    assert_eq!(code, Some(0), "{shown}");
    let rows = place.rows();
    assert_eq!(validated(&rows), validated(&whole.rows()));
    // It did not start anew.
    assert_eq!(events(&run_folder(&place, &rows[0]), "resumed").len(), 2);

    has_a_page(&place, &rows);

    // Done is done: nothing is trained again, and another number of epochs is another sweep.
    let (code, _, shown) = place.run(&grid);
    assert_eq!((code, shown.matches("(from before)").count()), (Some(0), 2), "{shown}");
    let longer = ["--epochs", "13", "--grid", "train.batch_size=4,3"];
    let (code, _, shown) = place.run(&longer);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("sweep.epochs was 12, is 13"), "{shown}");
    let (code, _, shown) =
        place.run(&["--epochs", "1", "--grid", "train.batch_size=4", "--overwrite"]);
    assert_eq!(code, Some(0), "{shown}");
    let rows = place.rows();
    assert_eq!((rows.len(), &rows[0]["epochs"]), (1, &1.into()));
    assert_eq!(std::fs::read_dir(&runs).expect("is there").count(), 1);
}
