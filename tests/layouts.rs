//! Every published layout trains for an epoch, from its tables to saved weights.

use std::path::Path;

use assert_cmd::Command;

/// The smallest run there is on an example's data; `data` ends with the layout's table.
fn run(name: &str, data: &str, heads: &str) -> serde_json::Value {
    let folder = tempfile::tempdir().expect("is made");
    let text = format!(
        r#"
[run]
name = "{name}"
output = {output:?}
[device]
use = "cpu"
[model.densenet]
growth = 4
blocks = [1, 1]
stem = 4
norm = "group"
[train]
epochs = 1
batch_size = 3
optimizer = {{ sgd = {{ lr = 0.01 }} }}
{heads}
[data]
image.size = [32, 32]
{data}
"#,
        output = folder.path()
    );
    let config = folder.path().join("experiment.toml");
    std::fs::write(&config, text).expect("is written");
    let output = Command::cargo_bin("trainer")
        .expect("the program is built")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts"))
        .arg("run")
        .arg(&config)
        .env_remove("RUST_BACKTRACE")
        .output()
        .expect("the program starts");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{name}: {shown}");
    let run = folder.path().join(name);
    assert!(run.join("last/weights.safetensors").is_file(), "{name}");
    let metrics = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let events = metrics.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let epochs: Vec<serde_json::Value> =
        events.filter(|event: &serde_json::Value| event["event"] == "epoch").collect();
    assert_eq!(epochs.len(), 1, "{name}");
    for side in ["train", "val"] {
        let loss = epochs[0][side]["loss"].as_f64();
        assert!(loss.is_some_and(|loss| loss.is_finite() && loss > 0.0), "{name}: {}", epochs[0]);
    }
    // At least the batch, of at most three images.
    let memory = &epochs[0]["memory"];
    assert!(memory["peak"].as_u64() > Some(32 * 32 * 4), "{name}: {memory}");
    assert!(memory["live"].as_u64() < memory["peak"].as_u64(), "{name}: {memory}");
    assert_eq!(memory["peak_kind"], "allocator", "{name}");
    epochs.into_iter().next().expect("one epoch")
}

fn head(name: &str, task: &str, labels: &[&str]) -> String {
    format!("[[heads]]\nname = {name:?}\ntask = {task:?}\nlabels = {labels:?}\n")
}

#[test]
fn chexpert_trains_for_an_epoch() {
    let heads = head("findings", "multilabel", &["Edema", "Lung Opacity", "Support Devices"])
        + &head("view", "multiclass", &["PA", "AP", "Lateral"])
        + &head("age", "regression", &["Age"]);
    run("chexpert", "[data.chexpert]\nroot = \"chexpert\"\nuncertain = \"ones\"", &heads);
}

#[test]
fn mimic_trains_for_an_epoch() {
    let heads = head("findings", "multilabel", &["Edema", "No Finding", "Cardiomegaly"])
        + &head("side", "binary", &["Lateral"]);
    run("mimic", "[data.mimic]\nroot = \"mimic\"\nuncertain = \"zeros\"", &heads);
}

#[test]
fn nih_trains_for_an_epoch_on_either_version() {
    let heads = head("findings", "multilabel", &["Effusion", "Mass", "Pleural_Thickening"])
        + &head("sex", "multiclass", &["Female", "Male"]);
    for folder in ["nih", "nih_2017"] {
        let data = format!("validation = {{ list = \"test\" }}\n[data.nih]\nroot = {folder:?}");
        run(folder, &data, &heads);
    }
}

#[test]
fn padchest_trains_for_an_epoch() {
    let heads = head("findings", "multilabel", &["pleural effusion", "COPD signs", "normal"])
        + &head("projection", "multiclass", &["PA", "L", "AP_horizontal", "COSTAL"]);
    let data = "validation = { fraction = 0.4 }\n[data.padchest]\nroot = \"padchest\"";
    run("padchest", data, &heads);
}

fn vindr(root: &Path) {
    let heads = head("findings", "multilabel", &["Cardiomegaly", "Nodule/Mass", "No finding"]);
    let data = format!(
        "validation = {{ list = \"test\" }}\n[data.vindr]\nroot = {root:?}\nagreement = \"share\""
    );
    run("vindr", &data, &heads);
}

#[test]
fn vindr_trains_for_an_epoch() {
    vindr(Path::new("vindr"));
}

#[test]
fn vindr_trains_for_an_epoch_on_converted_images() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts");
    let folder = tempfile::tempdir().expect("is made");
    for inner in ["annotations", "train", "test"] {
        std::fs::create_dir(folder.path().join(inner)).expect("is made");
        for file in std::fs::read_dir(examples.join("vindr").join(inner)).expect("is there") {
            let file = file.expect("is there").path();
            let name = file.file_name().expect("has a name");
            let to = folder.path().join(inner).join(name);
            let (from, to) = match inner {
                "annotations" => (file, to),
                _ => (examples.join("nih/images/00000001_000.png"), to.with_extension("png")),
            };
            std::fs::copy(from, to).expect("is copied");
        }
    }
    vindr(folder.path());
}

#[test]
fn mura_trains_for_an_epoch_with_a_head_for_each_part() {
    let part = |part: &str| head(part, "binary", &[&format!("Abnormal XR_{part}")]);
    let heads =
        part("SHOULDER") + &part("WRIST") + &head("part", "multiclass", &["XR_WRIST", "XR_HAND"]);
    run("mura", "[data.mura]\nroot = \"mura\"", &heads);
}

#[test]
fn arrays_train_for_an_epoch_whatever_their_numbers_and_channels() {
    let heads = head("findings", "multilabel", &["A", "B"])
        + &head("kind", "multiclass", &["x", "y", "z"])
        + &head("age", "regression", &["1", "2", "3"]);
    for (images, channels) in
        [("u16.npy", 1), ("data.npz:images", 1), ("f32.npy", 2), ("u8.npy", 3)]
    {
        let data = format!(
            "image.channels = {channels}\n[data.arrays]\nroot = \"../arrays\"\n\
             images = {images:?}\npatients = \"patients.npy\"\nsplit = \"split.npy\"\n\
             targets = {{ findings = \"findings.npy\", kind = \"kind.npy\", age = \"age.npy\" }}"
        );
        run("arrays", &data, &heads);
    }
}

#[test]
fn any_table_trains_for_an_epoch() {
    let folder = tempfile::tempdir().expect("is made");
    let table = folder.path().join("table.csv");
    let rows = "\
image,who,use,oedema,years,kind
00000001_000.png,1,train,1,58,bright
00000001_001.png,1,train,0,58,dark
00000002_000.png,2,train,,81,dark
00000003_000.png,3,train,-1,,bright
00000004_000.png,4,valid,1,40,dark
00000005_000.png,5,valid,0,41,bright
00000006_000.png,6,test,0,61,dark
";
    std::fs::write(&table, rows).expect("is written");
    let heads = head("findings", "multilabel", &["Edema"])
        + &head("age", "regression", &["Age"])
        + &head("look", "multiclass", &["dark", "bright"]);
    let data = format!(
        "[data.csv]\ntable = {table:?}\nroot = \"nih/images\"\nimage = \"image\"\npatient = \"who\"\n\
         split = \"use\"\nuncertain = \"ones\"\n\
         columns = {{ Edema = \"oedema\", Age = \"years\", look = \"kind\" }}"
    );
    run("csv", &data, &heads);
}

#[test]
fn several_sources_train_together() {
    let heads = head("findings", "multilabel", &["Pleural Effusion", "Mass", "Edema"])
        + &head("abnormal", "binary", &["Abnormal"]);
    let data = r#"validation = { fraction = 0.4 }
[[data.sources]]
chexpert = { root = "chexpert", uncertain = { default = "zeros", Edema = { smooth = [0.5, 0.8] } } }
[[data.sources]]
heads = ["findings"]
labels = { "Pleural Effusion" = "Effusion" }
nih = { root = "nih" }
[[data.sources]]
mura = { root = "mura" }
"#;
    run("sources", data, &heads);
}
