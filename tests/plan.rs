//! What is predicted before a run, and what a run makes of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

fn trainer(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    let output = command.args(arguments).output().expect("starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("ends"), text(output.stdout), text(output.stderr))
}

fn configurations() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let files = [root.clone(), root.join("experiments")].into_iter().flat_map(|folder| {
        std::fs::read_dir(folder).expect("is there").map(|entry| entry.expect("is read").path())
    });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

#[test]
fn every_configuration_has_a_plan_that_keeps_its_contract() {
    let files = configurations();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        let file = file.to_str().expect("text");
        let (code, out, error) = trainer(&["plan", file, "--json", "--memory", "24GiB"]);
        assert_eq!(code, 0, "{file}: {error}");
        let plan: Value = serde_json::from_str(&out).expect("JSON");
        for key in ["weights", "gradients", "optimizer"] {
            assert!(plan["bytes"][key].is_u64(), "{file}: {key}");
        }
        for stage in plan["stages"].as_array().expect("stages") {
            assert!(stage["name"].is_string() && stage["kept"].is_u64(), "{file}: {stage}");
            assert!(stage["workspace"].is_u64() && stage["flops"].is_f64(), "{file}: {stage}");
        }
        let strategies = plan["strategies"].as_array().expect("strategies");
        for row in strategies {
            for key in ["checkpointing", "precision", "offload", "dense_layers"] {
                assert!(row[key].is_string(), "{file}: {key} of {row}");
            }
            assert!(row["micro_batch"].is_u64() && row["peak"].is_u64(), "{file}: {row}");
            assert!(row["fits"].is_boolean() && row["relative_time"].as_f64() > Some(0.0));
            assert!(row["recompute_percent"].as_f64() >= Some(0.0), "{file}: {row}");
        }
        let chosen = plan["chosen"].as_u64().expect("nothing is left open") as usize;
        assert!(chosen < strategies.len(), "{file}");
        assert!(plan["advice"].as_str().is_some_and(|advice| advice.len() > 80), "{file}");
        let (code, text, _) = trainer(&["plan", file, "--memory", "24GiB"]);
        assert!(code == 0 && text.contains("> what a run would do"), "{file}: {text}");
    }
}

/// A machine without a GPU runs `auto` on its CPU, so that is what its plan is for.
#[test]
fn a_plan_is_for_the_device_that_a_run_would_use() {
    let file = "configs/quickstart.toml";
    // No GPU is visible, whatever this machine has.
    let device = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        command.env("CUDA_VISIBLE_DEVICES", "").args(["plan", file]).args(arguments);
        let output = command.output().expect("starts");
        let text = String::from_utf8(output.stdout).expect("text");
        let last = |line: &&str| line.starts_with("> ");
        let mark = text.lines().find(last).expect("a mark").split(';').next().map(str::to_owned);
        (text.lines().next().expect("a line").to_owned(), mark.expect("a text"))
    };
    let (first, mark) = device(&[]);
    assert!(first.starts_with("for the CPU: "), "{first}");
    assert!(first.contains("this machine, which has no GPU"), "{first}");
    assert_eq!(mark, "> what a run would do");
    for (arguments, known) in [
        (&["--set", "device.use=cuda"][..], "for a CUDA GPU: 80.0 GiB of memory (assumed, as"),
        (&["--memory", "24GiB"], "for a CUDA GPU: 24.0 GiB of memory (as --memory says)"),
        (&["--set", "memory.precision=tf32"], "for a CUDA GPU: 80.0 GiB of memory (assumed, as"),
    ] {
        let (first, mark) = device(arguments);
        assert!(first.starts_with(known), "{arguments:?}: {first}");
        assert_eq!(mark, "> what a run would do on that device", "{arguments:?}");
    }
}

const CONFIG: &str = r#"
[run]
name = "auto"
[device]
use = "cpu"
[data]
image = { size = [32, 32], channels = 1 }
[data.phantom]
root = "unused"
patients = 12
size = 32
[model.densenet]
growth = 4
blocks = [2, 1]
stem = 8
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion"]
[train]
epochs = 1
batch_size = 8
[train.optimizer.adamw]
lr = 1e-3
[memory]
micro_batch = "auto"
"#;

/// The `memory` of each start of a run.
fn starts(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("auto/metrics.jsonl")).expect("is written");
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.filter(|event| event["event"] == "start").map(|event| event["memory"].clone()).collect()
}

#[test]
fn a_choice_is_told_and_made_again_when_the_run_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("text").to_owned();
    std::fs::write(at("auto.toml"), CONFIG).expect("is written");
    let config = at("auto.toml");
    let plan = |budget: &str| {
        let budget = format!("memory.budget={budget:?}");
        let (code, out, error) = trainer(&["plan", &config, "--json", "--set", &budget]);
        assert_eq!(code, 0, "{error}");
        serde_json::from_str::<Value>(&out).expect("JSON")
    };
    // Between what whole batches take and the least there is.
    let all = plan("1GiB");
    let peaks = all["strategies"]
        .as_array()
        .expect("strategies")
        .iter()
        .map(|row| (row["precision"] == "fp32").then(|| row["peak"].as_u64().expect("bytes")));
    let peaks: Vec<u64> = peaks.flatten().collect();
    let (least, most) = (peaks.iter().min().expect("rows"), peaks.iter().max().expect("rows"));
    let budget = format!("{}kB", (least + most) / 2000);
    let chosen = plan(&budget);
    let chosen = &chosen["strategies"][chosen["chosen"].as_u64().expect("fits") as usize];
    let set = [
        format!("memory.budget={budget:?}"),
        format!("run.output={:?}", at("")),
        format!("data.phantom.root={:?}", at("phantom")),
    ];
    let run = |more: &[&str]| {
        let mut arguments = vec!["run", config.as_str()];
        arguments.extend(set.iter().flat_map(|set| ["--set", set.as_str()]));
        trainer(&[&arguments, more].concat())
    };
    let (code, _, error) = run(&[]);
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("memory: micro-batch "), "{error}");
    let images = chosen["micro_batch"].as_u64().expect("images");
    let told = error.contains("warning: BatchNorm normalises over ");
    assert_eq!(told, images < 8, "{error}");
    let (code, _, error) = run(&["--resume", "--set", "train.epochs=2"]);
    assert_eq!(code, 0, "{error}");
    let starts = starts(folder.path());
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[0], starts[1]);
    for key in ["micro_batch", "checkpointing", "offload", "dense_layers"] {
        assert_eq!(starts[0][key], chosen[key], "{key}");
    }
    assert!(starts[0]["predicted_peak"].as_u64() <= starts[0]["budget"].as_u64());
    let state = std::fs::read_to_string(folder.path().join("auto/last/state.json"));
    let state: Value = serde_json::from_str(&state.expect("is saved")).expect("JSON");
    assert_eq!(state["memory"]["way"]["micro_batch"], chosen["micro_batch"]);

    let tight = format!("memory.budget=\"{}kB\"", least / 4000);
    let name = ["--set", "run.name=\"tight\"", "--set", tight.as_str()];
    let (code, _, error) = run(&name);
    assert_eq!(code, 4, "{error}");
    assert!(
        error.contains("no way to take a step fits") && error.contains("makes it fit"),
        "{error}"
    );
}

/// Nothing is to be chosen of `text`.
fn fixed(folder: &Path) -> String {
    let path = folder.join("fixed.toml");
    let output = format!("[run]\noutput = {:?}", folder.to_str().expect("text"));
    let text = CONFIG.replace("[run]", &output).replace("\"auto\"", "\"fixed\"");
    let text = text.replace("micro_batch = \"fixed\"", "budget = \"1MiB\"");
    std::fs::write(&path, text).expect("is written");
    path.to_str().expect("text").to_owned()
}

#[test]
fn a_run_above_its_budget_does_not_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = fixed(folder.path());
    let root = format!("data.phantom.root={:?}", folder.path().join("phantom"));
    let (code, _, error) = trainer(&["run", &config, "--set", &root]);
    assert_eq!(code, 4, "{error}");
    assert!(
        error.contains("error: a step does not fit in 1.00 MiB: its estimated peak is"),
        "{error}"
    );
    assert!(error.contains("fixed.toml:27:10") && error.contains("= help: "), "{error}");
    let (code, out, error) = trainer(&["plan", &config]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("a run would not start") && !out.contains("what a run would do"), "{out}");
    let budget = ["--set", "memory.budget=\"100TiB\"", "--set", &root];
    let (code, _, error) = trainer(&[&["run", config.as_str()], &budget[..]].concat());
    assert_eq!(code, 0, "{error}");
    assert!(error.contains("warning: the `budget` of 102400 GiB"), "{error}");
}

#[test]
fn a_strategy_above_its_budget_is_left_out_of_a_trace() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = fixed(folder.path());
    let grid = "memory.budget=\"1MiB\",\"1GiB\"";
    let (code, out, error) = trainer(&["trace", &config, "--grid", grid]);
    assert_eq!(code, 4, "{error}");
    assert!(error.contains("warning: budget=1MiB is left out: a step does not fit"), "{error}");
    assert!(out.contains("budget=1GiB: peak ") && !out.contains("budget=1MiB"), "{out}");
    let grid = "memory.budget=\"1MiB\",\"2MiB\"";
    let (code, out, error) = trainer(&["trace", &config, "--grid", grid]);
    assert_eq!((code, out.as_str()), (4, ""), "{error}");
    assert!(!error.contains("written to"), "{error}");
}

/// A machine without any device plans for as many as are asked for, of one pipeline or of copies of it.
#[test]
fn a_pipeline_is_planned_for_any_number_of_devices() {
    let plan = |more: &[&str]| -> Value {
        let file = "benches/configs/densenet121.toml";
        let asked = ["plan", file, "--devices", "4", "--memory", "24GiB", "--json"];
        let set = ["--set=train.batch_size=64", "--set=memory.micro_batch=8"];
        let (code, out, error) = trainer(&[&asked[..], &set, more].concat());
        assert_eq!(code, 0, "{error}");
        serde_json::from_str(&out).expect("JSON")
    };
    let one = plan(&["--set=parallel.pipeline={}"]);
    let devices = one["pipeline"]["devices"].as_array().expect("a list");
    assert!(devices.len() == 4 && one.get("parallel").is_none(), "{one}");
    assert_eq!((&devices[3]["name"], &one["pipeline"]["copies"]), (&"cuda:3".into(), &1.into()));
    let grid = plan(&["--set=parallel.pipeline={ copies = 2 }"]);
    let (stages, shared) = (&grid["pipeline"], &grid["parallel"]);
    assert_eq!(stages["devices"].as_array().map(Vec::len), Some(2));
    assert_eq!(stages["devices"][1]["name"], "cuda:1, cuda:3");
    assert_eq!((&shared["devices"], &shared["copies"]), (&4.into(), &2.into()));
    assert_eq!(shared["device_batch_size"], 32);
    let rows = shared["arrangements"].as_array().expect("a list");
    let counts: Vec<_> = rows.iter().filter_map(|row| row["devices"].as_u64()).collect();
    assert_eq!(counts, [2, 4]);
    // A device has the gradients of its own stages alone.
    let all = grid["bytes"]["gradients"].as_u64().expect("bytes");
    let received = rows[1]["gradient_bytes"].as_u64().expect("bytes");
    assert!(received < all && received >= all / 2, "{received} of {all}");
    let (code, text, _) = trainer(&[
        "plan",
        "benches/configs/densenet121.toml",
        "--devices=4",
        "--memory=24GiB",
        "--set=parallel.pipeline={ copies = 2 }",
    ]);
    assert!(code == 0 && text.contains("over 2 copies of the pipeline"), "{text}");
}

/// Experiment 11's large variant on four cards of 28 GiB, of each of which a step may use nine tenths.
#[test]
fn shards_of_the_optimizers_state_make_a_model_fit_that_is_all_weights() {
    let file = "configs/experiments/11_cnn_regression_large.toml";
    let asked = ["plan", file, "--devices", "4", "--memory", "28GiB"];
    let plan = |more: &[&str]| -> Value {
        let (code, out, error) = trainer(&[&asked[..], &["--json"], more].concat());
        assert_eq!(code, 0, "{error}");
        serde_json::from_str(&out).expect("JSON")
    };
    let (whole, shards) = (plan(&[]), plan(&["--set=parallel.data.optimizer=sharded"]));
    let last = |plan: &Value| plan["parallel"]["arrangements"].as_array().expect("rows")[2].clone();
    let bytes = |plan: &Value, what: &str| plan["bytes"][what].as_u64().expect("bytes");
    // Adam's two moments of each weight.
    let weights = bytes(&whole, "weights");
    assert_eq!(bytes(&whole, "optimizer"), 2 * weights);
    let (even, of_four) = (weights.div_ceil(4), bytes(&shards, "optimizer"));
    assert!(of_four >= 2 * even && of_four < 2 * even + 16, "{of_four}");
    assert_eq!((&last(&whole)["fits"], &last(&shards)["fits"]), (&false.into(), &true.into()));
    let peak = |plan: &Value| last(plan)["peak"].as_u64().expect("a peak");
    // Where the state is shared out, the sums of the gradients are there beside the gradients before the step.
    // Both have the room for gradients of the others.
    let of_step = peak(&whole) - 4 * weights - trainer::ops::gpu::MOST_ROOM;
    let saved = peak(&whole) - peak(&shards);
    assert!((saved + weights).abs_diff(of_step + 3 * weights / 2) < 1 << 27, "{whole} {shards}");
    // Three quarters of the weights come from the others, and all gradients of three.
    let received = shards["parallel"]["weight_bytes"].as_u64().expect("bytes");
    assert!((weights - even).abs_diff(received) < 16, "{received} of {weights}");
    assert_eq!(last(&shards)["weight_bytes"], received);
    assert_eq!(
        (&last(&whole)["weight_bytes"], &whole["parallel"]["weight_bytes"]),
        (&0.into(), &0.into())
    );
    let advice = whole["parallel"]["advice"].as_str().expect("text");
    assert!(
        advice.contains("`optimizer = \"sharded\"` under [parallel.data] makes it fit"),
        "{advice}"
    );
    assert!(whole["advice"].as_str().is_some_and(|text| text.contains("parallel.data.optimizer")));
    let (code, text, _) =
        trainer(&[&asked[..], &["--set=parallel.data.optimizer=sharded"]].concat());
    assert!(code == 0 && text.contains("keeps 1/4 of the"), "{text}");
}

/// Weights and gradients alone are as much as the budget of one device, in 32 bits. Of the strategies that a plan shows, none fits.
#[test]
fn a_model_that_fits_no_device_fits_two_that_share_its_stages() {
    let file = "configs/experiments/04_too_large_for_one.toml";
    let plan = |more: &[&str]| -> Value {
        let asked = ["plan", file, "--memory", "80GiB", "--json"];
        let (code, out, error) = trainer(&[&asked[..], more].concat());
        assert_eq!(code, 0, "{error}");
        serde_json::from_str(&out).expect("JSON")
    };
    let (one, two) = (plan(&["--devices", "1", "--all"]), plan(&["--all"]));
    let fitting = |plan: &Value| {
        let rows = plan["strategies"].as_array().expect("rows").iter();
        rows.filter(|row| row["fits"] == true).count()
    };
    assert_eq!(fitting(&one), 0);
    assert!(fitting(&two) > 0);
    let advice = two["advice"].as_str().expect("text");
    assert!(
        advice.contains(
            "on the fullest device, with at most 5.37 GiB held, fits in 6.00 GiB. 4.50 GiB"
        ),
        "{advice}"
    );
}
