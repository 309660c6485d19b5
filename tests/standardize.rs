//! `standardize = true`: what is learnt is what standardising by hand gives, and what is told is in the
//! labels' own units.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use trainer::build::{Options, build, open_trained};
use trainer::model::weights;
use trainer::run::FolderMode;

/// Ages in years, of eight images; the last two are for validation.
const AGES: [&str; 8] = ["61", "47", "NA", "70.5", "52", "58.25", "40", "66"];
const TRAINED: usize = 6;

/// Mean and standard deviation of the known ages that are trained on, as one computes them by hand.
fn by_hand() -> (f64, f64) {
    let known: Vec<f64> = AGES[..TRAINED].iter().filter_map(|age| age.parse().ok()).collect();
    let count = known.len() as f64;
    let mean = known.iter().sum::<f64>() / count;
    let variance = known.iter().map(|age| (age - mean) * (age - mean)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// A folder with a table: the ages, the same standardised by hand, and one number throughout.
fn example() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("is made");
    let (mean, std) = by_hand();
    let mut table = "image,use,years,by_hand,flat\n".to_owned();
    for (place, age) in AGES.iter().enumerate() {
        let name = format!("0000000{}_000.png", place.max(1));
        let side = if place < TRAINED { "train" } else { "valid" };
        let by_hand = match age.parse::<f64>() {
            Ok(years) => format!("{:?}", ((years - mean) / std) as f32),
            Err(_) => String::new(),
        };
        table += &format!("{name},{side},{age},{by_hand},58\n");
    }
    // The first image stands for two.
    table = table.replacen("00000001_000.png", "00000001_001.png", 1);
    fs::write(folder.path().join("table.csv"), table).expect("is written");
    folder
}

/// Writes a configuration with a head whose label `Age` is read from that column.
fn configure(folder: &Path, name: &str, column: &str, keys: &str) -> PathBuf {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts/nih/images");
    let text = format!(
        r#"
[run]
name = "{name}"
output = {folder:?}
[device]
use = "cpu"
[data]
image = {{ size = [32, 32] }}
augment = {{ rotate_degrees = 5.0 }}
[data.csv]
table = {table:?}
root = {images:?}
image = "image"
split = "use"
columns = {{ Age = "{column}" }}
[model.densenet]
growth = 4
blocks = [1, 1]
stem = 4
[[heads]]
name = "age"
task = "regression"
labels = ["Age"]
{keys}
[train]
epochs = 2
batch_size = 3
ema = {{ decay = 0.9 }}
optimizer = {{ adamw = {{ lr = 1e-2 }} }}
"#,
        table = folder.join("table.csv"),
    );
    let path = folder.join(format!("{name}.toml"));
    fs::write(&path, text).expect("is written");
    path
}

fn trainer(config: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::cargo_bin("trainer")
        .expect("the program is built")
        .arg("run")
        .arg(config)
        .args(arguments)
        .env_remove("RUST_BACKTRACE")
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts");
    (output.status.code(), String::from_utf8(output.stderr).expect("is UTF-8"))
}

/// Runs a configuration; its folder.
fn run(config: &Path, arguments: &[&str]) -> PathBuf {
    let (code, shown) = trainer(config, arguments);
    assert_eq!(code, Some(0), "{shown}");
    config.with_extension("")
}

/// The events of that kind.
fn events(run: &Path, kind: &str) -> Vec<Value> {
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let events = metrics.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    events.filter(|event| event["event"] == kind).collect()
}

#[test]
fn what_is_learnt_is_bit_for_bit_what_standardising_by_hand_gives() {
    let folder = example();
    let standardized =
        run(&configure(folder.path(), "program", "years", "standardize = true"), &[]);
    let prepared = run(&configure(folder.path(), "hand", "by_hand", ""), &[]);
    for file in ["weights.safetensors", "average.safetensors"] {
        let tensors = |run: &Path| {
            let read = weights::read(&run.join("last").join(file)).expect("reads").tensors;
            let bits = |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            read.into_iter().map(|tensor| (tensor.name, bits(tensor.data))).collect::<Vec<_>>()
        };
        assert!(tensors(&standardized) == tensors(&prepared), "{file}");
    }
    let (_, std) = by_hand();
    let epochs = [&standardized, &prepared].map(|run| events(run, "epoch"));
    assert_eq!(epochs[0].len(), 2);
    for (ours, theirs) in epochs[0].iter().zip(&epochs[1]) {
        // The loss is of what is learnt.
        assert_eq!(ours["train"]["loss"], theirs["train"]["loss"]);
        assert_eq!(ours["val"]["age/loss"], theirs["val"]["age/loss"]);
        // Errors are in years.
        for metric in ["age/mae", "age/rmse"] {
            let error = |epoch: &Value| epoch["val"][metric].as_f64().expect("is defined");
            let (years, by_hand) = (error(ours), error(theirs) * std);
            assert!((years - by_hand).abs() < 1e-5 * by_hand, "{metric}: {years}, {by_hand}");
        }
    }
}

#[test]
fn a_saved_state_holds_mean_and_deviation_and_a_resumed_run_goes_on_with_them() {
    let folder = example();
    let whole = run(&configure(folder.path(), "whole", "years", "standardize = true"), &[]);
    let config = configure(folder.path(), "parts", "years", "standardize = true");
    run(&config, &["--set", "train.epochs=1"]);
    let parts = run(&config, &["--resume"]);
    for file in ["weights.safetensors", "average.safetensors", "optimizer.safetensors"] {
        let bytes = |run: &Path| fs::read(run.join("last").join(file)).expect("is there");
        assert!(bytes(&whole) == bytes(&parts), "{file}");
    }
    let state = fs::read(parts.join("last/state.json")).expect("is there");
    let state: Value = serde_json::from_slice(&state).expect("JSON");
    let (mean, std) = by_hand();
    let saved = |key: &str| state["standardize"]["age"][key][0].as_f64().expect("a number");
    assert!((saved("mean") - mean).abs() < 1e-12 && (saved("std") - std).abs() < 1e-12, "{state}");
    // Whoever has only the weights finds them there too.
    let weights = fs::read(parts.join("best/weights.safetensors")).expect("is there");
    let length = u64::from_le_bytes(weights[..8].try_into().expect("eight bytes")) as usize;
    let header: Value = serde_json::from_slice(&weights[8..8 + length]).expect("JSON");
    let text = header["__metadata__"]["standardize"].as_str().expect("is there");
    let noted: Value = serde_json::from_str(text).expect("JSON");
    assert_eq!(noted, state["standardize"]);
}

/// Validation measures the averaged weights.
#[test]
fn the_model_of_a_saved_state_gives_the_outputs_that_validation_has_measured() {
    let folder = example();
    let run = run(&configure(folder.path(), "saved", "years", "standardize = true"), &[]);
    let loaded = trainer::config::load(&run.join("config.toml"), &[]).expect("a configuration");
    let plan = trainer::plan::plan(loaded.config).expect("a plan");
    let trained = open_trained(&plan, &run.join("last")).expect("opens");
    let inference = &trained.inference;
    let mut resumed = build(plan, &Options { mode: FolderMode::Resume }).expect("goes on");
    let batch = resumed.validation_loader.epoch(0, 0).next().expect("a batch").expect("reads");
    resumed.trainer.swap_average().expect("swaps");
    let (expected, _) =
        resumed.trainer.evaluate((&batch).into(), &batch.targets).expect("evaluates");
    let outputs = inference.outputs((&batch).into(), 3).expect("infers");
    assert_eq!(outputs, expected);
    let saved = trained.validation().expect("reads").expect("was saved");
    assert_eq!(saved.heads["age"].outputs[..outputs[0].len()], outputs[0]);
    assert_eq!(saved.images(), resumed.validation.len());
    let errors = outputs[0].iter().zip(&batch.targets[0].values);
    let errors = errors.map(|(ours, years)| f64::from((ours - years).abs()));
    let mae = errors.sum::<f64>() / outputs[0].len() as f64;
    let measured = events(&run, "epoch")[1]["val"]["age/mae"].as_f64().expect("is defined");
    assert!((mae / measured - 1.0).abs() < 1e-6, "{mae}, {measured}");
    // One image after the other.
    let alone = inference.outputs((&batch).into(), 1).expect("infers");
    for (alone, together) in alone[0].iter().zip(&outputs[0]) {
        assert!((alone / together - 1.0).abs() < 1e-5, "{alone}, {together}");
    }
    let other = open_trained(&resumed.plan, &run.join("step-0")).map(drop);
    assert!(other.expect_err("is not there").to_string().contains("step-0"));
}

#[test]
fn a_run_is_not_resumed_with_targets_standardised_otherwise() {
    let folder = example();
    let plain = configure(folder.path(), "run", "years", "");
    run(&plain, &["--set", "train.epochs=1"]);
    let changed = configure(folder.path(), "run", "years", "standardize = true");
    let (code, said) = trainer(&changed, &["--resume"]);
    assert_eq!(code, Some(2));
    let said = said.replace(&folder.path().display().to_string(), "/here");
    insta::assert_snapshot!(said, @r"
    error: the run in /here/run was started with another configuration:
      heads[0].standardize was not set, is true
    Put these keys back to resume it, or start another run with --set run.name=<other>.
    ");
}

#[test]
fn a_label_that_is_the_same_throughout_is_said_at_the_start() {
    let folder = example();
    let run = run(&configure(folder.path(), "flat", "flat", "standardize = true"), &[]);
    let warnings = events(&run, "warning");
    let messages: Vec<&str> =
        warnings.iter().filter_map(|warning| warning["message"].as_str()).collect();
    let of_label: Vec<&&str> = messages.iter().filter(|told| told.contains("Age")).collect();
    assert_eq!(of_label.len(), 1, "{messages:?}");
    insta::assert_snapshot!(of_label[0], @"the label `Age` of the head `age` is 58 in every training image that has it, so `standardize` only subtracts that");
    let last = &events(&run, "epoch")[1];
    assert!(last["val"]["age/mae"].as_f64().is_some_and(f64::is_finite), "{last}");
}

#[test]
fn only_numbers_are_standardised() {
    let folder = example();
    let config = configure(folder.path(), "wrong", "years", "standardize = true");
    let text = fs::read_to_string(&config).expect("reads").replace("regression", "binary");
    fs::write(&config, text).expect("is written");
    let (code, said) = trainer(&config, &[]);
    assert_eq!(code, Some(2));
    let said = said.replace(&folder.path().display().to_string(), "/here");
    insta::assert_snapshot!(said, @r#"
    error: only the numbers of a `regression` head can be standardised
      --> /here/wrong.toml:24:15
       |
    22 | task = "binary"
       |        --------
    23 | labels = ["Age"]
    24 | standardize = true
       |               ^^^^
       |
       = help: remove `standardize`, or write `task = "regression"`
    "#);
}

/// What the program prints; it must not fail.
fn printed(arguments: &[&str]) -> String {
    let output = Command::cargo_bin("trainer").expect("is built").args(arguments).output();
    let output = output.expect("starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("is UTF-8")
}

#[test]
fn exported_weights_say_how_numbers_were_standardised() {
    let folder = example();
    let config = configure(folder.path(), "exported", "years", "standardize = true");
    let run = run(&config, &[]);
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (run, config) = (text(&run), text(&config));
    let [file, bare] =
        ["whole.safetensors", "bare.safetensors"].map(|name| folder.path().join(name));
    let [file, bare] = [text(&file), text(&bare)];
    printed(&["export", &run, "--format", "safetensors", "--out", &file]);
    let heads = |arguments: &[&str]| {
        let found: Value = serde_json::from_str(&printed(arguments)).expect("JSON");
        found["heads"].clone()
    };
    let of_file = heads(&["eval", &file, "--config", &config, "--json"]);
    assert_eq!(of_file, heads(&["eval", &run, "--json"]));
    // What other programs write does not say it.
    printed(&["import", &file, "--config", &config, "--out", &bare]);
    let eval = ["eval", &bare, "--config", &config];
    let output = Command::cargo_bin("trainer").expect("is built").args(eval).output();
    let output = output.expect("starts");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("does not say how the numbers of `age` were standardised"), "{told}");
}
