//! `trainer sweep`: every combination is a row, whatever becomes of it, and a sweep that was cut
//! off goes on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

#[path = "support/page.rs"]
mod page;
#[path = "support/sweep.rs"]
mod sweep;

use sweep::{CONFIG, SweepFolder};

/// The table without what differs from machine to machine: the figures of rows that were measured.
fn redacted(table: Vec<Vec<String>>) -> String {
    const KEPT: [&str; 5] = ["status", "message", "exit_code", "oversubscribed", "reference"];
    let titles = table[0].clone();
    let status = titles.iter().position(|title| title == "status").expect("a column");
    let line = |row: &Vec<String>| -> String {
        let measured = row[status] == "ok";
        let cells = row.iter().zip(&titles).map(|(cell, title)| {
            let kept = !measured || title.contains('.') || KEPT.contains(&title.as_str());
            if kept { cell.as_str() } else { "…" }
        });
        cells.collect::<Vec<_>>().join(" | ")
    };
    table.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn of_csv(text: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let rows = reader.records().map(|row| row.expect("is CSV").iter().map(str::to_owned).collect());
    rows.collect()
}

fn of_markdown(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
    lines.map(cells).collect()
}

const GRIDS: [&str; 9] = [
    "--grid",
    "train.batch_size=4,1048576",
    "--grid",
    "train.optimizer.adamw.lr=3e-3,1e38",
    "--steps",
    "3",
    "--synthetic",
    "--set",
    "memory.budget=\"1GiB\"",
];

#[test]
fn rows_come_in_the_product_s_order_whatever_becomes_of_them() {
    let place = SweepFolder::new(CONFIG);
    let (code, told, shown) = place.run(&GRIDS);
    // A learning rate without bounds makes a loss that is no number, and a batch of a million images does
    // not fit: each is a row, and the program says at the end that one failed.
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("1 of 4 combinations failed"), "{shown}");
    let rows = place.rows();
    let (batch, lr) = ("train.batch_size", "train.optimizer.adamw.lr");
    let shown = |row: &Value| {
        let set = &row["set"];
        let status = row["status"].as_str().expect("a status").to_owned();
        (set[batch].as_i64().expect("a size"), set[lr].as_f64().expect("a rate"), status)
    };
    let (ok, out) = (|| "ok".to_owned(), || "out_of_memory".to_owned());
    let order = [
        (4, 3e-3, ok()),
        (4, 1e38, "failed".to_owned()),
        (1_048_576, 3e-3, out()),
        (1_048_576, 1e38, out()),
    ];
    assert_eq!(rows.iter().map(shown).collect::<Vec<_>>(), order);
    let reason = rows[2]["message"].as_str().expect("a reason");
    assert!(reason.contains("1.00 GiB: its estimated peak is 34.0 GiB"), "{reason}");
    assert!(rows[0]["loss"].is_number() && rows[0]["ms_per_step"].is_number(), "{}", rows[0]);
    let saved = place.file("sweep.md");
    // What is printed into a pipe is a table for people, not Markdown.
    assert!(told.contains("\n+===") && !told.contains("---:"), "{told}");
    let status = |line: &str| line.contains("| ok ") || line.contains("| failed ");
    assert_eq!(told.lines().filter(|line| status(line)).count(), 2, "{told}");
    insta::assert_snapshot!("markdown", redacted(of_markdown(&saved)));
    insta::assert_snapshot!("csv", redacted(of_csv(&place.file("sweep.csv"))));
    let below = |line: &&str| line.starts_with("- ") || line.starts_with("Percentages");
    let below: Vec<&str> = saved.lines().filter(below).collect();
    insta::assert_snapshot!("reasons", below.join("\n"));

    // Started again, it measures the failed one only.
    let (_, _, shown) = place.run(&[&GRIDS[..], &["--json"]].concat());
    assert_eq!(shown.matches("(from before)").count(), 3, "{shown}");
    assert_eq!(place.rows()[0], rows[0]);
}

#[test]
fn a_combination_above_its_budget_is_a_row() {
    let place = SweepFolder::new(CONFIG);
    let grid = "memory.budget=\"1KiB\",\"1GiB\"";
    let (code, _, shown) = place.run(&["--grid", grid, "--steps", "1", "--synthetic"]);
    assert_eq!(code, Some(0), "{shown}");
    let rows = place.rows();
    let status: Vec<&Value> = rows.iter().map(|row| &row["status"]).collect();
    assert_eq!(status, ["out_of_memory", "ok"]);
    let text = place.file("report.html");
    let page = page::parsed(&text);
    let shown = &page::tables(&page)["What each combination took"];
    assert_eq!(shown[1][..3], ["row\u{a0}1", "1KiB", "out of memory"]);
    assert_eq!(shown[2][..3], ["row\u{a0}2", "1GiB", "ok"]);
    assert!(page::words(page.root_element()).contains("a step does not fit in 1.00 KiB"));
    let message = rows[0]["message"].as_str().expect("says why");
    assert!(
        message.starts_with("a step does not fit in 1.00 KiB: its estimated peak"),
        "{message}"
    );
}

#[test]
fn the_peak_is_that_of_a_full_batch_however_many_steps_were_taken() {
    let place = SweepFolder::new(CONFIG);
    let peaks = ["1", "2", "3", "4"].map(|steps| {
        let all = ["--overwrite", "--steps", steps, "--grid", "train.batch_size=6"];
        // Of several threads the workspaces add up where they happen to work at the same time.
        let sweep = place.command(&all).env("RAYON_NUM_THREADS", "1").output().expect("starts");
        assert!(sweep.status.success(), "{}", String::from_utf8_lossy(&sweep.stderr));
        place.rows()[0]["peak"].as_u64().expect("bytes")
    });
    // An epoch ends with a short batch, the third.
    assert!(peaks.iter().all(|peak| *peak == peaks[0]), "{peaks:?}");
}

#[test]
fn the_steps_are_those_that_a_run_begins_with() {
    let place = SweepFolder::new(CONFIG);
    // One batch an epoch, so that the run tells the loss of each step.
    let same = ["--set=train.batch_size=10", "--set=data.drop_last=true"];
    let grid = ["--grid", "train.optimizer.adamw.lr=3e-3,3e-4", "--steps", "3", "--json"];
    let (code, told, shown) = place.run(&[&same[..], &grid].concat());
    assert_eq!(code, Some(0), "{shown}");
    let rows: Vec<Value> = serde_json::from_str(&told).expect("is JSON");
    let mut last = Vec::new();
    for (row, lr) in rows.iter().zip(["3e-3", "3e-4"]) {
        let log = format!("logs/train.optimizer.adamw.lr={lr}.json");
        let printed: Value = serde_json::from_str(&place.file(&log)).expect("is JSON");
        let run = Command::new(env!("CARGO_BIN_EXE_trainer"))
            .current_dir(place.0.path())
            .args(["run", "tiny.toml", "--set", &format!("run.name=\"run{lr}\"")])
            .args(same)
            .args(["--set", &format!("train.optimizer.adamw.lr={lr}")])
            .output()
            .expect("runs");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        let metrics = place.0.path().join(format!("out/run{lr}/metrics.jsonl"));
        let lines = std::fs::read_to_string(metrics).expect("metrics");
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        let losses: Vec<Value> = events
            .filter(|event| event["event"] == "epoch")
            .map(|epoch| epoch["train"]["loss"].clone())
            .collect();
        assert_eq!(printed["losses"], Value::from(losses.clone()), "{lr}");
        assert_eq!(row["loss"], losses[2], "{lr}");
        last.push(losses[2].clone());
    }
    assert_ne!(last[0], last[1], "the learning rate changes the loss");
}

#[test]
fn all_percentages_are_of_one_row_which_is_named() {
    let place = SweepFolder::new(CONFIG);
    let sweep = |grid: &[&str]| {
        let (code, told, shown) = place.run(&[grid, &["--steps", "2", "--synthetic"]].concat());
        assert_eq!(code, Some(0), "{shown}");
        told
    };
    let size = |row: &Value| row["set"]["train.batch_size"].as_i64().expect("a size");
    // Whatever an earlier start has left, and of whichever row it gave percentages.
    for (grid, reference, sizes) in [
        (&["--grid", "train.batch_size=4,2"][..], 4, &[4, 2][..]),
        (&["--grid", "train.batch_size=2,3", "--reference", "2"], 3, &[2, 3, 4]),
        (&["--grid", "train.batch_size=3,4,2"], 3, &[3, 4, 2]),
        (&["--grid", "train.batch_size=4"], 4, &[4, 3, 2]),
    ] {
        let told = sweep(grid);
        let rows = place.rows();
        assert_eq!(rows.iter().map(size).collect::<Vec<_>>(), sizes);
        let peak = |row: &Value| row["peak"].as_f64().expect("bytes");
        let of = rows.iter().find(|row| size(row) == reference).expect("is measured");
        for row in &rows {
            assert_eq!(row["percent"], Value::from(peak(row) / peak(of) * 100.0), "{grid:?}");
            assert_eq!(row["reference"], Value::from(size(row) == reference), "{grid:?}");
        }
        let named = format!("Percentages are of train.batch_size={reference}.");
        assert!(place.file("sweep.md").contains(&named), "{grid:?}");
        assert!(told.contains(&named), "{told}");
        // In the table, or above it where all rows have the same.
        for title in ["peak %", "predicted MiB", "recomputed %"] {
            assert!(told.contains(title), "{title}: {told}");
        }
    }
}

#[test]
fn what_this_machine_lacks_is_found_before_the_first_row() {
    let place = SweepFolder::new(CONFIG);
    let refused = |grid: &str, more: &[&str]| {
        let (code, told, shown) = place.run(&[&["--grid", grid], more].concat());
        assert_eq!((code, told.as_str()), (Some(2), ""), "{shown}");
        assert!(!place.sweep().exists() && !place.0.path().join("data").exists());
        shown
    };
    insta::assert_snapshot!(refused("memory.offload=none,{disk={path=\"absent\"}}", &[]), @r#"
    error: no file can be made in `absent`: No such file or directory (os error 2)
     |
     | --grid memory.offload=none,{disk={path="absent"}}
     |                                        ^^^^^^^^
     |
     = note: in the combination memory.offload={disk={path="absent"}}
     = help: write an existing folder on a fast disk that this program may write into
    "#);
    // There may be a GPU.
    if !cfg!(feature = "cuda") {
        let auto = ["--set", "device.use=auto"];
        insta::assert_snapshot!(refused("memory.precision=fp32,tf32", &auto), @r#"
        error: the precision "tf32" needs a GPU, and this runs on the CPU
         |
         | --grid memory.precision=fp32,tf32
         |                              ^^^^
         |
         = note: in the combination memory.precision=tf32
         = help: write "fp32" (or "bf16"), or use a GPU
        "#);
    }
}

#[test]
fn a_wrong_combination_is_found_before_anything_runs() {
    let place = SweepFolder::new(CONFIG);
    let (code, told, shown) = place.run(&["--grid", "train.batch_size=4,2,0"]);
    assert_eq!((code, told.as_str()), (Some(2), ""));
    assert!(shown.contains("--grid train.batch_size=4,2,0"), "{shown}");
    assert!(shown.contains("in the combination train.batch_size=0"), "{shown}");
    assert!(!place.sweep().exists());
    let (code, _, shown) = place.run(&["--grid", "train.batch_size=4,2", "--reference", "3"]);
    assert_eq!(code, Some(2), "{shown}");
}

/// Waits until the sweep has saved `rows` rows.
fn wait_for(place: &SweepFolder, rows: usize, file: &Path) {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(300) {
        if file.exists() && place.rows().len() >= rows {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{rows} rows were not saved");
}

#[cfg(unix)]
#[test]
fn a_sweep_that_was_cut_off_goes_on_and_another_is_refused() {
    let place = SweepFolder::new(CONFIG);
    // Enough steps that the sweep is still at work when the signal comes.
    let grid = "train.batch_size=4,2,3,5,6";
    let arguments = ["--grid", grid, "--steps", "200", "--synthetic", "--json"];
    let signals: [(&str, Option<i32>); 2] = [("-INT", Some(130)), ("-KILL", None)];
    for (cut, (signal, code)) in signals.into_iter().enumerate() {
        let mut child = place
            .command(&arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        wait_for(&place, cut + 1, &place.sweep().join("sweep.json"));
        let id = child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("is sent");
        assert!(sent.success());
        assert_eq!(child.wait().expect("ends").code(), code, "{signal}");
    }
    let before = place.rows();
    let (code, told, shown) = place.run(&arguments);
    assert_eq!(code, Some(0), "{shown}");
    let rows: Vec<Value> = serde_json::from_str(&told).expect("is JSON");
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[..before.len()], before[..], "rows of before are kept");
    assert_eq!(shown.matches("(from before)").count(), before.len(), "{shown}");

    let other = [&arguments[..3], &["5"], &arguments[4..], &["--set", "train.epochs=7"]].concat();
    let (code, _, shown) = place.run(&other);
    assert_eq!(code, Some(2), "{shown}");
    for changed in ["sweep.steps was 200, is 5", "train.epochs was 3, is 7", "--overwrite", "--out"]
    {
        assert!(shown.contains(changed), "{changed} in {shown}");
    }
    let (code, _, shown) = place.run(&[&other[..], &["--overwrite"]].concat());
    assert_eq!(code, Some(0), "{shown}");
    assert!(!shown.contains("(from before)"), "{shown}");
}

/// What a row says, but for its times and how much memory was in use.
fn lasting(rows: &[Value]) -> Vec<[Value; 5]> {
    let keys = ["set", "status", "loss", "best", "best_epoch"];
    rows.iter().map(|row| keys.map(|key| row[key].clone())).collect()
}

#[test]
fn two_devices_measure_the_same_rows_in_the_same_order() {
    let grid = ["--grid", "train.batch_size=6,4", "--grid", "train.optimizer.adamw.lr=3e-3,1e38"];
    let (queue, whole) = (SweepFolder::new(CONFIG), SweepFolder::new(CONFIG));
    let devices = ["--devices", "cpu:0,cpu:1"];
    let same = [&grid[..], &["--steps", "3"]].concat();
    // A learning rate without bounds fails, and does not stop the others.
    let (code, told, shown) = queue.run(&[&same[..], &devices].concat());
    assert_eq!(code, Some(1), "{told}{shown}");
    assert_eq!(whole.run(&same).0, Some(1));
    assert_eq!(lasting(&queue.rows()), lasting(&whole.rows()));
    let configs = std::fs::read_dir(queue.sweep().join("logs")).expect("logs");
    let configs = configs.map(|entry| entry.expect("an entry").path());
    let configs = configs.filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
    let used: Vec<String> = configs
        .map(|path| std::fs::read_to_string(path).expect("is read"))
        .map(|text| text.lines().find(|line| line.starts_with("use = ")).expect("a device").into())
        .collect();
    for device in ["use = \"cpu:0\"", "use = \"cpu:1\""] {
        assert!(used.iter().any(|line| line == device), "{used:?}");
    }
    // It goes on on other devices.
    let (_, _, shown) = queue.run(&[&same[..], &["--devices", "cpu:2"]].concat());
    assert_eq!(shown.matches("(from before)").count(), 2, "{shown}");
    let (code, _, shown) = queue.run(&[&same[..], &["--devices", "cpu,cpu"]].concat());
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("--devices names cpu twice"), "{shown}");
}

#[cfg(unix)]
#[test]
fn trainings_on_two_devices_are_all_saved_when_stopped_and_go_on() {
    let place = SweepFolder::new(CONFIG);
    let grid = "train.optimizer.adamw.lr=3e-3,2e-3,1e-3";
    let arguments = ["--grid", grid, "--epochs", "30", "--devices", "cpu:0,cpu:1"];
    let mut child = place
        .command(&arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    // How many runs have ended an epoch.
    let begun = || {
        let runs = std::fs::read_dir(place.sweep().join("runs")).into_iter().flatten().flatten();
        let metrics = runs.map(|run| run.path().join("metrics.jsonl"));
        let text = metrics.map(|path| std::fs::read_to_string(path).unwrap_or_default());
        text.filter(|text| text.contains("\"event\":\"epoch\"")).count()
    };
    let begin = Instant::now();
    while begun() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(300), "two runs do not begin");
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("is sent").success());
    assert_eq!(child.wait().expect("ends").code(), Some(143));
    let (code, _, shown) = place.run(&arguments);
    assert_eq!(code, Some(0), "{shown}");
    let whole = SweepFolder::new(CONFIG);
    assert_eq!(whole.run(&arguments[..4]).0, Some(0));
    assert_eq!(lasting(&place.rows()), lasting(&whole.rows()));
}

/// The files below `folder` with what is in them, but for locks.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.path() {
            path if path.is_dir() => found.extend(files(&path)),
            path if path.ends_with(".lock") => {}
            path => drop(found.insert(path.clone(), std::fs::read(&path).expect("is read"))),
        }
    }
    found
}

#[test]
fn shards_at_once_write_files_of_their_own_and_are_gathered() {
    let grid = ["--grid", "train.batch_size=6,4,3", "--grid", "train.optimizer.adamw.lr=3e-3,1e38"];
    let same = [&grid[..], &["--epochs", "1"]].concat();
    let (place, whole) = (SweepFolder::new(CONFIG), SweepFolder::new(CONFIG));
    assert_eq!(whole.run(&same).0, Some(1));
    let start = |shard| {
        let mut command = place.command(&[&same[..], &["--shard", shard]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("starts")
    };
    let shards = ["1/4", "2/4", "3/4", "4/4"];
    let mut children = shards.map(start);
    // Those of a learning rate without bounds fail; each has an even number.
    let codes = children.each_mut().map(|child| child.wait().expect("ends").code());
    assert_eq!(codes, [Some(0), Some(1), Some(0), Some(1)]);
    assert!(
        !place.sweep().join("sweep.json").exists() && !place.sweep().join("sweep.toml").exists()
    );
    let folder = |shard: &str| place.sweep().join("shards").join(shard.replace('/', "-of-"));
    let rows = |shard: &str| -> Vec<Value> {
        let text = std::fs::read(folder(shard).join("sweep.json")).expect("is read");
        serde_json::from_slice(&text).expect("is JSON")
    };
    for (at, shard) in shards.into_iter().enumerate() {
        let own = lasting(&whole.rows()).into_iter().skip(at).step_by(4);
        assert_eq!(lasting(&rows(shard)), own.collect::<Vec<_>>(), "{shard}");
    }
    let text = std::fs::read_to_string(folder("1/4").join("report.html")).expect("is read");
    assert!(text.contains("href=\"../../runs/train.batch_size-6-train.optimizer.adamw.lr-3e-3-"));

    // A shard that is started anew touches no file of another one.
    let before = files(&place.sweep());
    assert_eq!(start("3/4").wait().expect("ends").code(), Some(0));
    let (_, _, shown) = place.run(&[&same[..], &["--shard", "1/4", "--overwrite"]].concat());
    assert!(shown.contains("1/6") && shown.contains("5/6"), "{shown}");
    let own = |path: &Path| {
        let name = path.strip_prefix(place.sweep()).expect("is below").display().to_string();
        let of_it = ["-6-train.optimizer.adamw.lr-3e-3", "-3-train.optimizer.adamw.lr-3e-3"];
        let of_it = of_it.iter().any(|of_it| name.replace(['=', '+'], "-").contains(of_it));
        of_it || name.starts_with("shards/1-of-4") || name.starts_with("shards/3-of-4")
    };
    for (path, bytes) in files(&place.sweep()) {
        assert!(own(&path) || before[&path] == bytes, "{} was changed", path.display());
    }

    let (code, _, shown) = place.run(&same);
    assert_eq!(code, Some(1), "{shown}");
    assert_eq!(shown.matches("(from before)").count(), 3, "{shown}");
    assert_eq!(lasting(&place.rows()), lasting(&whole.rows()));
    // Shards of another division begin with what there is.
    let (code, _, shown) = place.run(&[&same[..], &["--shard", "1/3"]].concat());
    assert_eq!((code, shown.matches("(from before)").count()), (Some(1), 1), "{shown}");
    let (code, told, shown) = place.run(&[&same[..], &["--shard", "7/7", "--json"]].concat());
    assert_eq!((code, told.trim()), (Some(0), "[]"), "{shown}");
    assert!(shown.contains("shard 7 of 7 has none of 6 combinations"), "{shown}");
}

#[test]
fn a_combination_is_not_done_by_two_divisions_of_a_sweep_at_once() {
    let place = SweepFolder::new(CONFIG);
    let grid = ["--grid", "train.batch_size=4,2,6", "--steps", "1", "--synthetic"];
    let run = |more: &[&str]| place.run(&[&grid[..], more].concat());
    let lock = |folder: &str| {
        let file =
            std::fs::File::create(place.sweep().join(folder).join(".lock")).expect("is made");
        file.lock().expect("locks");
        file
    };
    assert_eq!(run(&["--shard", "1/2"]).0, Some(0));
    let held = lock("shards/1-of-2");
    for more in [&[][..], &["--overwrite"], &["--shard", "1/2"], &["--shard", "1/3"]] {
        let (code, _, shown) = run(more);
        assert_eq!(code, Some(1), "{more:?}: {shown}");
        assert!(shown.contains("out/tiny-sweep/shards/1-of-2 is in use by"), "{more:?}: {shown}");
    }
    assert_eq!(run(&["--shard", "2/2"]).0, Some(0));
    drop(held);
    let held = lock("");
    let (code, _, shown) = run(&["--shard", "1/2"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("out/tiny-sweep is in use by"), "{shown}");
    drop(held);
    // What differs from the shards is refused as what differs from the sweep is.
    for more in [&["--set", "train.epochs=7"][..], &["--set", "train.epochs=7", "--shard", "1/3"]] {
        let (code, _, shown) = run(more);
        assert_eq!(code, Some(2), "{shown}");
        assert!(shown.contains("shards/1-of-2 holds another sweep"), "{shown}");
    }
    assert_eq!(run(&[]).0, Some(0));
    let (code, _, shown) = run(&["--set", "train.epochs=7", "--shard", "1/2", "--overwrite"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("with --overwrite and without --shard"), "{shown}");
    assert_eq!(run(&["--set", "train.epochs=7", "--overwrite"]).0, Some(0));
    assert!(!place.sweep().join("shards").exists());
    let (code, _, shown) = run(&["--shard", "0/2"]);
    assert!(code == Some(2) && shown.contains("counted from 1"), "{shown}");
}

/// A child of a sweep that was killed must not measure beside those of the next one.
#[cfg(target_os = "linux")]
#[test]
fn a_child_whose_parent_has_ended_measures_nothing() {
    let place = SweepFolder::new(CONFIG);
    let another = (std::process::id() + 1).to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.current_dir(place.0.path()).args(["bench", "tiny.toml", "--with-parent", &another]);
    let output = command.stdin(Stdio::null()).output().expect("starts");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains("which started this one, has ended"), "{shown}");
    assert!(output.stdout.is_empty());
}
