//! Protects the pages: they are whole and load nothing, say what the run folder holds, escape what
//! comes from users, and are the same however the run came to its end.

#[path = "support/page.rs"]
mod read_page;
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use read_page::{parsed, tables, words};
use serde_json::{Value, json};
use trainer::build::{Options, build};
use trainer::report::{Event, Judged, Record, Report, ReportError, TracedStep, comparison, page};
use trainer::run::state::{StateStore, StateTag};
use trainer::run::{FolderMode, Run, RunLock, Signal, Stop, best_findings};

fn open(config: &Path, mode: FolderMode) -> Run {
    let loaded = trainer::config::load(config, &[]).expect("a right configuration");
    let plan = trainer::plan::plan(loaded.config).expect("a right plan");
    build(plan, &Options { mode }).expect("opens")
}

fn page_of(run: &Path) -> String {
    let record = Record::read(run).expect("a run");
    page(&record, &Judged::read(run, &record.config, best_findings), TracedStep::read(run).as_ref())
}

/// Asks the run to stop in its second epoch.
struct Stopper(Stop);

impl Report for Stopper {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        if matches!(event, Event::Step { epoch: 2, .. }) {
            self.0.request(Signal::Terminate);
        }
        Ok(())
    }
}

/// The lines of `metrics.jsonl`, without what differs from run to run: times and memory.
fn untimed(run: &Path) {
    let file = run.join("metrics.jsonl");
    let text = fs::read_to_string(&file).expect("metrics");
    let mut lines = String::new();
    for line in text.lines() {
        let mut event: Value = serde_json::from_str(line).expect("JSON");
        for timed in ["seconds", "images_per_second", "devices", "memory"] {
            event.as_object_mut().expect("an object").remove(timed);
        }
        lines += &format!("{event}\n");
    }
    fs::write(file, lines).expect("is written");
}

#[test]
fn a_run_keeps_a_page_that_says_what_its_folder_holds_resumed_or_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, cut) = (folder.path().join("whole"), folder.path().join("cut"));
    let (mut pages, mut results) = (Vec::new(), Vec::new());
    for place in [&whole, &cut] {
        fs::create_dir(place).expect("is made");
        let config = support::write_config(place, &folder.path().join("data"));
        let mut run = open(&config, FolderMode::New);
        if place == &cut {
            run.reports.add(Stopper(run.stop.clone()));
            run.execute().expect("stops");
            drop(run);
            let stopped = fs::read_to_string(place.join("tiny/report.html")).expect("a page");
            assert!(stopped.contains("Stopped by SIGTERM after 1 of 3 epochs"), "{stopped}");
            run = open(&config, FolderMode::Resume);
        }
        run.execute().expect("trains");
        drop(run);
        let run = place.join("tiny");
        let written = fs::read_to_string(run.join("report.html")).expect("a page");
        assert_eq!(written, page_of(&run), "`trainer report` writes the same");
        holds_what_was_told(&run, &written);
        results.push(support::Result::of(&run));
        untimed(&run);
        pages.push(page_of(&run).replace(&place.display().to_string(), "PLACE"));
    }
    results[1].assert_equals(&results[0], "after resuming");
    assert!(pages[0] == pages[1], "the page of a resumed run is another");
}

/// Every value of the best epoch stands in the page as `metrics.jsonl` has it.
fn holds_what_was_told(run: &Path, written: &str) {
    let text = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let epochs: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .filter(|event: &Value| event["event"] == "epoch")
        .collect();
    let best = epochs.iter().rev().find(|epoch| epoch["best"] == true).expect("a best epoch");
    let page = parsed(written);
    let tables = tables(&page);
    let shown =
        |value: &Value| value.as_f64().map_or("undefined".to_owned(), |v| format!("{v:.4}"));
    let mut seen = 0;
    for head in ["findings", "view"] {
        let table = &tables[&format!("{head}: validation metrics")];
        for (row, cells) in table.iter().enumerate().skip(1) {
            for (column, cell) in
                cells.iter().enumerate().skip(1).filter(|(_, cell)| !cell.is_empty())
            {
                let label = if row == 1 { String::new() } else { format!("/{}", cells[0]) };
                let name = format!("{head}/{}{label}", table[0][column]);
                let value = cell.split(" (").next().unwrap_or_default();
                assert_eq!(value, shown(&best["val"][&name]), "{name}");
                seen += 1;
            }
        }
        // Judged from the saved outputs, AUROC is what the run told.
        let measures = &tables[&format!("{head}: measures with 95% intervals")];
        assert_eq!(measures[0][1], "AUROC");
        for row in &measures[1..measures.len() - 1] {
            let told = shown(&best["val"][&format!("{head}/auroc/{}", row[0])]);
            assert!(row[1].starts_with(&told), "{head}/{}: {} and {told}", row[0], row[1]);
        }
    }
    let told = best["val"].as_object().expect("values").keys().filter(|name| {
        !name.ends_with("loss") && !name.ends_with("auroc_low") && !name.ends_with("auroc_high")
    });
    assert_eq!(seen, told.count(), "every value has its cell");
    assert_eq!(tables["Losses"][1][1..], [&best["train"]["loss"], &best["val"]["loss"]].map(shown));
    let peaks = &tables["Peak memory of each epoch"];
    // The allocator that counts is the program's, not that of tests.
    assert_eq!(peaks[0], ["epoch", "estimated peak"]);
    assert_eq!(peaks.len(), 1 + epochs.len());
    let titles: BTreeSet<String> =
        page.descendants().filter(|node| node.has_tag_name("figcaption")).map(words).collect();
    for title in [
        "Loss",
        "findings: auroc",
        "findings: auroc by label",
        "Learning rate",
        "Training speed",
        "findings: ROC",
        "findings: precision and recall",
        "view: reliability",
    ] {
        assert!(titles.contains(title), "{title}: {titles:?}");
    }
    let config = fs::read_to_string(run.join("config.toml")).expect("a configuration");
    let shown =
        page.descendants().find(|node| node.has_tag_name("details") && node.has_attribute("class"));
    assert!(words(shown.expect("the configuration")).contains(config.trim()));
    let version = format!("trainer {}", env!("CARGO_PKG_VERSION"));
    assert!(words(page.root_element()).contains(&version));
}

/// A name that would end an attribute, an element or a script.
const HOSTILE: &str =
    "\"><img src=x onerror='alert(1)'></title></svg></style><script>alert(2)</script> & {{ name }}";

/// A run folder written by hand, of a head `head` with two labels.
fn written(folder: &Path, head: &str, labels: [&str; 2], path: &str, values: &[f64]) {
    fs::create_dir_all(folder).expect("is made");
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let config = format!(
        "[run]\nname = {}\nseed = 1\n[[heads]]\nname = {}\ntask = \"multilabel\"\nlabels = [{}, {}]\n",
        quoted(head),
        quoted(head),
        quoted(labels[0]),
        quoted(labels[1])
    );
    fs::write(folder.join("config.toml"), config).expect("is written");
    let name = |label: &str| format!("{head}/auroc/{label}");
    let image = json!({"path": path, "table": path, "line": 3, "reason": path});
    let mut lines = vec![
        json!({"event": "start", "name": head, "device": path, "epochs": 9, "version": path,
               "heads": [{"name": head, "labels": labels}]}),
        json!({"event": "warning", "message": path}),
        json!({"event": "skipped_images", "images": [image, image]}),
        json!({"event": "skipped_step", "epoch": 1, "step": 2, "reason": path}),
    ];
    for (number, value) in values.iter().enumerate() {
        lines.push(json!({
            "event": "epoch", "epoch": number + 1, "step": 10, "learning_rate": 0.1, "best": true,
            "train": {"loss": value}, "memory": {"peak": 1 << 20, "predicted_peak": 2 << 20},
            "val": {"loss": value, format!("{head}/auroc"): value, name(labels[0]): value, name(labels[1]): null},
            "undefined": {name(labels[1]): path}, "images_per_second": null,
            "watched": {"metric": format!("val/{head}/auroc"), "value": value},
        }));
    }
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(folder.join("metrics.jsonl"), lines).expect("is written");
    let cell = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
    let columns = labels.map(|label| {
        format!("{},{}", cell(&format!("{head}/{label}")), cell(&format!("{head}/{label}/truth")))
    });
    let rows = (0..6).map(|image| {
        format!(
            "{},{},{}.5,{},{image},0\n",
            cell(&format!("{path}{image}")),
            cell(path),
            image - 3,
            image % 2
        )
    });
    let table = format!("path,patient,{}\n{}", columns.join(","), rows.collect::<String>());
    let lock = RunLock::acquire(folder).expect("no one has it");
    let tag = StateTag { epoch: 1, step: 10, batch: 0, reason: "epoch_end".to_owned() };
    let mut store = StateStore::open(&lock, 1).expect("opens");
    store.save(&tag, &[("validation.csv".to_owned(), table.into_bytes())], true).expect("is saved");
}

#[test]
fn names_that_users_write_are_text_wherever_they_stand() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = format!("other {HOSTILE}");
    let head = HOSTILE.replace('/', "");
    written(folder.path(), &head, [HOSTILE, &other], HOSTILE, &[0.7, 0.8]);
    let text = page_of(folder.path());
    let page = parsed(&text);
    let tables = tables(&page);
    assert_eq!(tables[&format!("{head}: validation metrics")][2], [HOSTILE, "0.8000"]);
    assert_eq!(tables["Images that could not be read"].len(), 2, "each image once");
    assert_eq!(tables["Steps that were left out"][1][2], HOSTILE);
    assert_eq!(tables[&format!("{head}: measures with 95% intervals")][1][0], HOSTILE);
    assert!(tables[&format!("{head}: wrong, or right and least sure")][1][0].starts_with(HOSTILE));
    assert!(words(page.root_element()).contains("{{ name }}"));

    let runs =
        [HOSTILE, "b"].map(|name| (name.to_owned(), Record::read(folder.path()).expect("a run")));
    parsed(&comparison(&runs, None));
}

#[test]
fn a_comparison_shows_values_curves_and_differences_side_by_side() {
    let folder = tempfile::tempdir().expect("a folder");
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    written(&a, "findings", ["Edema", "Mass"], "x.png", &[0.6, 0.75]);
    written(&b, "findings", ["Edema", "Effusion"], "x.png", &[0.5, 0.7, 0.8]);
    let out = folder.path().join("both.html");
    let done = Command::new(env!("CARGO_BIN_EXE_trainer"))
        .arg("report")
        .args([&a, &b])
        .arg("--out")
        .arg(&out)
        .output()
        .expect("starts");
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), out.display().to_string());
    let text = fs::read_to_string(out).expect("a page");
    let page = parsed(&text);
    let tables = tables(&page);
    let row = |table: &str, name: &str| {
        tables[table].iter().find(|row| row[0] == name).map(|row| row[1..].to_vec()).expect(name)
    };
    let values = "Validation metrics of each run's best epoch";
    assert_eq!(row(values, "findings/auroc"), ["0.7500", "0.8000"]);
    assert_eq!(row(values, "findings/auroc/Mass"), ["undefined", ""]);
    let differences = &tables["Where the configurations differ"];
    assert_eq!(differences.len(), 2, "{differences:?}");
    assert_eq!(
        differences[1],
        ["heads[0].labels", r#"["Edema", "Mass"]"#, r#"["Edema", "Effusion"]"#]
    );
    assert_eq!(tables["Validation loss"][3], ["3", "", "0.8000"]);
}

#[test]
fn what_no_page_can_be_made_of_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = |run: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        let output = command.arg("report").arg(run).output().expect("starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, text) = told(&folder.path().join("absent"));
    assert_eq!(code, Some(2));
    assert!(text.contains("there is no run folder"), "{text}");
    let (code, text) = told(folder.path());
    assert_eq!(code, Some(2));
    assert!(text.contains("config.toml") && text.contains("<run.output>/<run.name>"), "{text}");
    let run = folder.path().join("run");
    written(&run, "findings", ["Edema", "Mass"], "x.png", &[0.6]);
    let file = run.join("metrics.jsonl");
    let lines = fs::read_to_string(&file).expect("metrics");
    // A line that is being written is no fault.
    fs::write(&file, format!("{lines}{{\"event\":\"epo")).expect("is written");
    assert_eq!(told(&run).0, Some(0));
    fs::write(&file, format!("{lines}{{\"event\":7}}\n")).expect("is written");
    let (code, text) = told(&run);
    assert_eq!(code, Some(3));
    assert!(text.contains("metrics.jsonl, line 6"), "{text}");
    // Outputs that cannot be used are said in the page.
    fs::write(&file, lines).expect("is written");
    let outputs = run.join("best/validation.csv");
    let mut bytes = fs::read(&outputs).expect("is there");
    // One digit of a figure: only the hash tells.
    let last = bytes.len() - 2;
    bytes[last] ^= 1;
    fs::write(&outputs, bytes).expect("is written");
    assert_eq!(told(&run).0, Some(0));
    let page = fs::read_to_string(run.join("report.html")).expect("a page");
    assert!(
        page.contains("cannot be shown") && page.contains("validation.csv is damaged"),
        "{page}"
    );
}

#[test]
fn a_page_that_cannot_be_written_is_one_warning_and_ends_no_run() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    let mut run = open(&config, FolderMode::New);
    let place = folder.path().join("tiny/report.html");
    fs::remove_file(&place).expect("the page of the start");
    fs::create_dir(&place).expect("is made");
    run.execute().expect("trains on");
    let told = fs::read_to_string(folder.path().join("tiny/metrics.jsonl")).expect("metrics");
    let warnings: Vec<&str> = told.lines().filter(|line| line.contains("not up to date")).collect();
    assert_eq!(warnings.len(), 1, "{told}");
    assert!(warnings[0].contains("trainer report"), "{warnings:?}");
    assert!(told.contains("\"event\":\"end\""), "{told}");
}
