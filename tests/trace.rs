//! `trainer trace`: the lines of a step are in order, balanced and add up, whatever the strategy.
#![cfg(feature = "cpu")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

const HEAD: &str = r#"
[run]
name = "tiny"
output = "out"
[device]
use = "cpu"
[data]
image = { size = [32, 32], channels = 1 }
[data.chexpert]
root = "none"
[[heads]]
name = "view"
task = "multiclass"
labels = ["PA", "AP", "Lateral"]
[train]
epochs = 1
batch_size = 4
[train.optimizer.adamw]
lr = 1e-3
"#;

const RESNET: &str = "[model.resnet]\nblock = \"basic\"\nblocks = [1, 1]\nstem = 8\n";
const DENSENET: &str = "[model.densenet]\ngrowth = 4\nblocks = [2, 1]\nstem = 8\n";
const SEQUENTIAL: &str = r#"
[model.sequential]
layers = [
    { conv = { channels = 4, kernel = 3 } },
    "relu",
    "global_pool",
    { linear = { features = 5 } },
]
"#;

/// A folder with a configuration, in which steps are traced.
struct Place(tempfile::TempDir);

impl Place {
    fn new(model: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("tiny.toml"), format!("{HEAD}{model}")).expect("written");
        Self(folder)
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.current_dir(self.0.path()).args(["trace", "tiny.toml"]).args(arguments);
        let output = command.stdin(Stdio::null()).output().expect("starts");
        let text = |bytes| String::from_utf8(bytes).expect("is UTF-8");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join("out/tiny-trace").join(name)
    }

    fn json(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.file("trace.json")).expect("trace.json");
        let whole: Value = serde_json::from_str(&text).expect("is JSON");
        whole["strategies"].as_array().expect("a list").clone()
    }
}

fn marks(trace: &Value) -> &Vec<Value> {
    trace["marks"].as_array().expect("a list")
}

fn label(mark: &Value) -> &str {
    mark["label"].as_str().expect("text")
}

/// Everything that begins ends, the innermost first, as deep as it began.
fn assert_balanced(trace: &Value) {
    let mut open: Vec<(String, u64)> = Vec::new();
    let mut pairs = 0;
    for mark in marks(trace) {
        let depth = mark["depth"].as_u64().expect("a number");
        if let Some((path, work)) = label(mark).split_once(" before ") {
            assert_eq!(open.len() as u64 + 1, depth, "{path}");
            open.push((format!("{path} after {work}"), depth));
        } else if open.last().is_some_and(|(awaited, _)| awaited == label(mark)) {
            assert_eq!(open.pop().map(|(_, depth)| depth), Some(depth));
            pairs += 1;
        } else if depth > 0 {
            // Of a module in a stage, only the end of its backward pass is known.
            assert!(label(mark).ends_with(" after backward"), "{}", label(mark));
            assert!(depth as usize > open.len(), "{}", label(mark));
        }
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(pairs > 8, "{pairs}");
}

fn assert_adds_up(trace: &Value) {
    let marks = marks(trace);
    let live = |mark: &Value| mark["live"].as_i64().expect("the program counts");
    let changes: i64 = marks.iter().filter_map(|mark| mark["change"].as_i64()).sum();
    assert_eq!(changes, live(marks.last().expect("a mark")) - live(&marks[0]));
    assert_eq!(marks.iter().filter(|mark| mark["change"].is_null()).count(), 1, "but the first");
    let most = marks.iter().map(live).max().expect("a mark");
    let peak = trace["peak"].as_i64().expect("the program counts");
    assert!(most <= peak, "{most} of {peak}");
    let seconds: Vec<f64> = marks.iter().filter_map(|mark| mark["seconds"].as_f64()).collect();
    assert!(seconds.is_sorted() && seconds.len() == marks.len());
}

#[test]
fn lines_of_every_model_are_balanced_and_add_up() {
    for model in [RESNET, DENSENET, SEQUENTIAL] {
        let place = Place::new(model);
        let (code, told, shown) = place.run(&[]);
        assert_eq!(code, Some(0), "{shown}");
        let traces = place.json();
        assert_eq!(traces.len(), 1);
        assert_eq!(traces[0]["status"], "ok");
        assert_balanced(&traces[0]);
        assert_adds_up(&traces[0]);
        let log = std::fs::read_to_string(place.file("trace.log")).expect("trace.log");
        assert_eq!(log, told);
        let lines = log.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for (line, mark) in lines.zip(marks(&traces[0])) {
            assert!(line.trim_start().starts_with(label(mark)), "{line}");
        }
        let svg = std::fs::read_to_string(place.file("trace.svg")).expect("trace.svg");
        let title = "\ntiny: memory over a training step\n";
        assert!(svg.starts_with("<svg") && svg.contains(title), "{svg}");
    }
}

#[test]
fn a_step_s_lines_name_every_module_in_the_order_it_runs() {
    let place = Place::new(RESNET);
    let (code, told, shown) = place.run(&[]);
    assert_eq!(code, Some(0), "{shown}");
    let structure = |line: &str| line.split("  +").next().unwrap_or(line).to_owned();
    let number = |line: &str| line.find(" MiB").map_or(line.len(), |end| end);
    let lines = told.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let upto = &line[..number(line)];
        let label = upto.trim_end_matches(|sign: char| "0123456789.+-? ".contains(sign));
        structure(label)
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn each_strategy_has_its_log_and_its_curve_and_computes_again_what_it_did_not_keep() {
    let place = Place::new(RESNET);
    let grid = "memory.checkpointing=none,every";
    let (code, told, shown) = place.run(&["--grid", grid, "--json"]);
    assert_eq!(code, Some(0), "{shown}");
    let traces = place.json();
    let whole: Value = serde_json::from_str(&told).expect("is JSON");
    assert_eq!(whole["strategies"].as_array(), Some(&traces));
    // Of whole stages: within a stage, layers between convolutions are always computed again.
    let again = |trace: &Value| {
        let whole = |mark: &&Value| mark["depth"] == 1;
        let marks = marks(trace).iter().filter(whole);
        marks.filter(|mark| label(mark).ends_with(" after recomputation")).count()
    };
    assert_eq!(traces[0]["set"]["memory.checkpointing"], "none");
    assert_eq!(traces[1]["strategy"], "checkpointing=every");
    assert_eq!(again(&traces[0]), 0);
    assert!(again(&traces[1]) >= 3);
    traces.iter().for_each(|trace| {
        assert_balanced(trace);
        assert_adds_up(trace);
    });
    for name in ["trace-1-checkpointing-none.log", "trace-2-checkpointing-every.log"] {
        assert!(place.file(name).is_file(), "{name}");
    }
    let svg = std::fs::read_to_string(place.file("trace.svg")).expect("trace.svg");
    assert!(svg.contains("checkpointing=none") && svg.contains("checkpointing=every"));
}

#[test]
fn what_is_wrong_is_said_as_elsewhere() {
    let place = Place::new(RESNET);
    let (code, _, shown) = place.run(&["--set", "train.batch_sise=3"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("batch_size"), "{shown}");
    let (code, _, shown) = place.run(&["--grid", "train.batch_size=0,1"]);
    assert_eq!(code, Some(2), "{shown}");
    assert!(shown.contains("in the combination train.batch_size=0"), "{shown}");
    let (code, _, shown) = place.run(&["--out", "tiny.toml"]);
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("tiny.toml") && shown.contains("--out"), "{shown}");
}

/// Whether the line `label` is of the module at `path`, alone or with others: `layer1.0.bn2, relu` is
/// of `layer1.0.bn2` and `layer1.0.relu`.
#[cfg(feature = "cuda-tests")]
fn is_of(label: &str, path: &str) -> bool {
    let among = |dot| {
        let (stage, module) = path.split_at(dot + 1);
        label.strip_prefix(stage).is_some_and(|rest| rest.split(", ").any(|name| name == module))
    };
    label == path || path.match_indices('.').any(|(dot, _)| among(dot))
}

/// Of widths that fused stages need.
#[cfg(feature = "cuda-tests")]
const WIDE_DENSENET: &str = "[model.densenet]\ngrowth = 8\nblocks = [2, 1]\nstem = 16\n";

/// `cargo test --features cuda-tests --test trace fused`.
#[cfg(feature = "cuda-tests")]
#[test]
fn fused_stages_have_lines_for_all_modules_that_their_definition_has() {
    let small = "[model.resnet]\nform = \"cifar\"\nblock = \"basic\"\nblocks = [1, 1]\nstem = 16\n";
    let bottleneck = RESNET.replace("basic", "bottleneck");
    for model in [RESNET, small, &bottleneck, WIDE_DENSENET] {
        let place = Place::new(model);
        let traced = |device: &str| {
            let (code, _, shown) = place.run(&["--set", &format!("device.use={device}")]);
            assert_eq!(code, Some(0), "{shown}");
            place.json().remove(0)
        };
        let (definition, fused) = (traced("cpu"), traced("cuda"));
        assert_balanced(&fused);
        assert_adds_up(&fused);
        let ends = |trace: &Value| -> Vec<(String, String)> {
            let split = |mark| label(mark).split_once(" after ");
            let owned = |(path, work): (&str, &str)| (path.to_owned(), work.to_owned());
            marks(trace).iter().filter_map(split).map(owned).collect()
        };
        let lines = ends(&fused);
        assert!(lines.iter().any(|(path, _)| path.contains(", ")), "nothing ran fused: {lines:?}");
        for (path, work) in ends(&definition) {
            let told = lines.iter().any(|(line, during)| *during == work && is_of(line, &path));
            assert!(told, "{path} after {work}: {lines:?}");
        }
    }
}

/// What the first step of a process leaves for good must not show in the first trace alone.
#[test]
fn a_strategy_begins_with_the_same_memory_whatever_was_traced_before_it() {
    let begins = |grid: &str| {
        let place = Place::new(DENSENET);
        let (code, _, error) = place.run(&["--grid", grid]);
        assert_eq!(code, Some(0), "{error}");
        let number = |value: &Value| value.as_u64().expect("bytes");
        let found = |trace: &Value| {
            let name = trace["strategy"].as_str().expect("a name").to_owned();
            (name, number(&marks(trace)[0]["live"]), number(&trace["peak"]))
        };
        let mut found: Vec<(String, u64, u64)> = place.json().iter().map(found).collect();
        found.sort();
        found
    };
    let one = begins("memory.checkpointing=none,every");
    let other = begins("memory.checkpointing=every,none");
    // Blocks of a few kilobytes come and go with the threads.
    for ((name, begin, peak), (_, other_begin, other_peak)) in one.iter().zip(&other) {
        assert!(begin.abs_diff(*other_begin) < 256 << 10, "{name}: {begin} {other_begin}");
        assert!(peak.abs_diff(*other_peak) < 256 << 10, "{name}: {peak} {other_peak}");
    }
}

/// What each device does is in the order of its schedule, and nothing is received before it is sent.
#[test]
fn the_course_of_every_device_is_that_of_its_schedule() {
    let place = Place::new(DENSENET);
    let (code, _, shown) = place.run(&[
        "--set=device.use=['cpu:0','cpu:1','cpu:2','cpu:3']",
        "--set=parallel.pipeline={ schedule = '1f1b', copies = 2 }",
        "--set=train.batch_size=8",
        "--set=memory.micro_batch=1",
    ]);
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("devices.svg shows what each device of the pipeline does"), "{shown}");
    let trace = place.json().swap_remove(0);
    let devices = trace["devices"].as_array().expect("a list");
    let names: Vec<&str> = devices.iter().filter_map(|one| one["device"].as_str()).collect();
    assert_eq!(names, ["cpu:0", "cpu:1", "cpu:2", "cpu:3"]);
    let spans = |device: usize, doing: &str| -> Vec<Value> {
        let all = devices[device]["spans"].as_array().expect("a list").iter();
        all.filter(|span| span["doing"] == doing).cloned().collect()
    };
    let time = |span: &Value, key: &str| span[key].as_f64().expect("a number");
    for copy in [0, 2] {
        // Four micro-batches; the first device is one ahead (Narayanan et al. 2021, figure 4).
        let expected = [
            "forward 0, forward 1, backward 0, forward 2, backward 1, forward 3, backward 2, backward 3",
            "forward 0, backward 0, forward 1, backward 1, forward 2, backward 2, forward 3, backward 3",
        ];
        for (stage, expected) in expected.into_iter().enumerate() {
            let mut all =
                [spans(copy + stage, "forward"), spans(copy + stage, "backward")].concat();
            all.sort_by(|a, b| time(a, "begin").total_cmp(&time(b, "begin")));
            let mut told: Vec<String> = all
                .iter()
                .map(|span| format!("{} {}", span["doing"].as_str().expect("text"), span["micro"]))
                .collect();
            told.dedup();
            assert_eq!(told.join(", "), expected);
            assert!(all.windows(2).all(|two| time(&two[0], "end") <= time(&two[1], "begin")));
            assert_eq!(spans(copy + stage, "optimizer").len(), 1);
            assert_eq!(spans(copy + stage, "gradients").len(), 1);
            assert!(!spans(copy + stage, "norms").is_empty());
        }
        for (from, to) in [(copy, copy + 1), (copy + 1, copy)] {
            let (sent, received) = (spans(from, "send"), spans(to, "receive"));
            assert_eq!(sent.len(), 4);
            for (sent, received) in sent.iter().zip(&received) {
                assert!(time(sent, "begin") <= time(received, "end"), "{sent} {received}");
            }
        }
    }
    let svg = std::fs::read_to_string(place.file("devices.svg")).expect("devices.svg");
    let count: usize = devices.iter().map(|one| one["spans"].as_array().map_or(0, Vec::len)).sum();
    assert!(svg.matches("</title></rect>").count() == count && count > 100, "{count}");
    let log = std::fs::read_to_string(place.file("trace.log")).expect("trace.log");
    assert!(names.iter().all(|name| log.contains(&format!("# {name} "))), "{log}");
}
