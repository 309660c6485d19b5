//! A small DenseNet of torchxrayvision's, saved whole as its releases are.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use trainer::model::weights::{self, initial};

use super::{largest_difference, levels, model, outputs, plan_of};

const FILE: &str = "tests/fixtures/exchange_xrv.pt";

/// As PyTorch wrote files before its version 1.6, with the source text of every class.
const LEGACY: &str = "tests/fixtures/exchange_xrv_legacy.pt";

/// A configuration with these heads, normalised so.
fn config(normalize: &str, heads: &str) -> String {
    format!(
        "device.use = 'cpu'\nrun.name = 'xrv'\ndata.image.normalize = '{normalize}'\n\
         data.csv = {{ table = 'a.csv', image = 'path' }}\n\
         train = {{ epochs = 1, batch_size = 2, optimizer = 'adamw' }}\n\
         model.densenet = {{ growth = 2, blocks = [1, 1], stem = 4 }}\nheads = [{heads}]"
    )
}

const HEADS: &str = "{ name = 'some', task = 'multilabel', labels = ['Pneumonia', 'Pleural Effusion', 'lung lesion'] },
    { name = 'edema', task = 'binary', labels = ['Edema'] }";

#[test]
fn each_head_gets_the_outputs_of_its_labels_and_they_are_torchxrayvisions() {
    #[derive(serde::Deserialize)]
    struct Found {
        /// By its label, the output for each image.
        logits: BTreeMap<String, Vec<f32>>,
    }
    let found: Found =
        serde_json::from_str(include_str!("../fixtures/exchange_xrv.json")).expect("reads");
    let plan = plan_of(&config("xrv", HEADS), [32, 40]);
    let wanted = plan.model.parameters(&plan.heads).into_iter().map(|p| (p.name, p.shape));
    let (taken, values) =
        initial(Path::new(FILE), &wanted.collect::<Vec<_>>(), &plan.heads).expect("is read");
    assert_eq!((taken.by_label.len(), taken.random()), (2, Vec::new()));
    taken.check_scale(&plan.data.image.normalize, plan.data.image.channels).expect("is right");
    let shape = [2, 1, 32, 40];
    let images: Vec<f32> = levels(shape).iter().map(|level| level * 2048.0 - 1024.0).collect();
    let ours = outputs(&model(&plan, values), &images, shape);
    for (head, labels) in
        [("some", &["Pneumonia", "Effusion", "Lung Lesion"][..]), ("edema", &["Edema"])]
    {
        let theirs: Vec<f32> = (0..2)
            .flat_map(|image| labels.iter().map(move |label| (image, *label)))
            .map(|(image, label)| found.logits[label][image])
            .collect();
        let difference = largest_difference(&ours[head], &theirs);
        assert!(difference < 1e-4, "{head}: {difference}");
        assert!(theirs.iter().any(|value| (value - theirs[0]).abs() > 1e-2) || labels.len() == 1);
    }
}

/// What is said of the file for a model with these heads.
fn told(normalize: &str, heads: &str) -> String {
    let plan = plan_of(&config(normalize, heads), [32, 32]);
    let wanted: Vec<_> =
        plan.model.parameters(&plan.heads).into_iter().map(|p| (p.name, p.shape)).collect();
    let (taken, _) = initial(Path::new(FILE), &wanted, &plan.heads).expect("is read");
    let scale = taken.check_scale(&plan.data.image.normalize, plan.data.image.channels);
    let refused = scale.err().map(|error| error.to_string());
    [vec![taken.to_string()], taken.warnings(), refused.into_iter().collect()].concat().join("\n")
}

#[test]
fn another_scale_and_labels_without_an_output_are_told() {
    insta::assert_snapshot!(told("unit", HEADS));
    // Hernia was not trained, Support Devices is none of the 18.
    let heads =
        "{ name = 'some', task = 'multilabel', labels = ['Edema', 'Hernia', 'Support Devices'] }";
    insta::assert_snapshot!(told("xrv", heads));
    // As many as there are outputs, so that they would fit by their number.
    let labels: Vec<String> = (0..18).map(|label| format!("'L{label}'")).collect();
    let other =
        format!("{{ name = 'some', task = 'multilabel', labels = [{}] }}", labels.join(", "));
    insta::assert_snapshot!(told("xrv", &other));
    let hidden = "{ name = 'some', task = 'multilabel', labels = ['Edema'], hidden = [4] }";
    insta::assert_snapshot!(told("xrv", hidden));
}

/// What `trainer` does with these arguments in `folder`.
fn trainer(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    command.current_dir(folder).args(arguments).output().expect("starts")
}

#[test]
fn the_scale_is_that_of_the_weights_where_none_is_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::copy(FILE, at.join("nih.pt")).expect("is copied");
    let size = "data.image.size = [32, 32]\ndata.image.normalize = 'unit'\n";
    let written = config("unit", HEADS).replace("data.image.normalize = 'unit'\n", size);
    fs::write(at.join("unit.toml"), &written).expect("is written");
    let left_out = written.replace("data.image.normalize = 'unit'\n", "");
    fs::write(at.join("left_out.toml"), left_out).expect("is written");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");

    let import = ["import", "nih.pt", "--config", "left_out.toml", "--out", "start.safetensors"];
    let imported = trainer(at, &import);
    let error = text(imported.stderr);
    assert_eq!(imported.status.code(), Some(0), "{error}");
    insta::assert_snapshot!(error + &text(imported.stdout));

    // What is resolved is written out, so that the run's own configuration has it. What was imported
    // remembers its scale.
    for (init, scale) in
        [("", "unit"), ("nih.pt", "xrv"), ("start.safetensors", "xrv"), ("gone.pt", "unit")]
    {
        let mut check = vec!["check", "left_out.toml"];
        let set = format!("model.init='{init}'");
        if !init.is_empty() {
            check.extend(["--set", &set]);
        }
        let checked = trainer(at, &check);
        assert_eq!(checked.status.code(), Some(0), "{}", text(checked.stderr));
        let resolved: toml::Value = toml::from_str(&text(checked.stdout)).expect("TOML");
        let found = resolved["data"]["image"]["normalize"].as_str();
        assert_eq!(found, Some(scale), "{init}");
    }

    // A scale that is written is kept, and refused where it is another one.
    let refused = trainer(at, &["import", "nih.pt", "--config", "unit.toml"]);
    assert_eq!(refused.status.code(), Some(2));
    insta::assert_snapshot!(text(refused.stderr));
    let again = ["import", "start.safetensors", "--config", "unit.toml"];
    assert_eq!(trainer(at, &again).status.code(), Some(2));
    let set = ["--set", "data.image.normalize={mean=0.5,std=0.00048828125}"];
    let same = trainer(at, &[&["import", "nih.pt", "--config", "unit.toml"], &set[..]].concat());
    assert_eq!(same.status.code(), Some(0), "{}", text(same.stderr));
}

#[test]
fn a_model_in_an_old_file_is_the_same() {
    let [new, old] = [FILE, LEGACY].map(|path| weights::read(Path::new(path)).expect("reads"));
    assert_eq!((new.tensors.len(), &new.skipped), (old.tensors.len(), &old.skipped));
    for (new, old) in new.tensors.iter().zip(&old.tensors) {
        // Thresholds are NaN where there are none.
        let bits = |data: &[f32]| data.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
        assert_eq!((&new.name, &new.shape), (&old.name, &old.shape));
        assert_eq!(bits(&new.data), bits(&old.data), "{}", new.name);
    }
    assert!(old.torchxrayvision);
}

#[test]
fn damaged_models_are_errors_and_a_pickle_runs_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("w.pt");
    for whole in [FILE, LEGACY].map(|path| fs::read(path).expect("reads")) {
        for kept in (0..whole.len()).step_by(701) {
            fs::write(&path, &whole[..kept]).expect("is written");
            let error = weights::read(&path).expect_err("is refused").to_string();
            assert!(error.contains("w.pt"), "{error}");
        }
        for at in (0..4096).step_by(13) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            fs::write(&path, bytes).expect("is written");
            // Some bytes may be anything; none may do harm.
            let _ = weights::read(&path);
        }
    }
    let made = folder.path().join("made");
    let command = format!("cposix\nsystem\n(S'touch {}'\ntR.", made.display());
    for name in ["w.pt", "w.pth"] {
        fs::write(folder.path().join(name), &command).expect("is written");
        weights::read(&folder.path().join(name)).expect_err("is refused");
        assert!(!made.exists());
    }
}

#[test]
fn weights_that_are_measured_or_asked_about_images_have_their_scale_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = folder.path();
    fs::copy(FILE, at.join("nih.pt")).expect("is copied");
    let file = fs::File::create(at.join("image.png")).expect("is made");
    let mut encoder = png::Encoder::new(file, 32, 32);
    encoder.set_color(png::ColorType::Grayscale);
    let mut image = encoder.write_header().expect("writes");
    let levels: Vec<u8> = (0..32 * 32).map(|at| (at % 251) as u8).collect();
    image.write_image_data(&levels).expect("writes");
    image.finish().expect("writes");
    let size = "data.image.size = [32, 32]\n";
    for scale in ["unit", "xrv"] {
        fs::write(at.join(format!("{scale}.toml")), size.to_owned() + &config(scale, HEADS))
            .expect("is written");
    }
    let left_out = config("xrv", HEADS).replace("data.image.normalize = 'xrv'\n", size);
    fs::write(at.join("left_out.toml"), left_out).expect("is written");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    let predicted = |config: &str| {
        let found = trainer(at, &["predict", "nih.pt", "--config", config, "image.png"]);
        let error = text(found.stderr);
        assert_eq!(found.status.code(), Some(0), "{error}");
        (text(found.stdout), error)
    };
    let (found, told) = predicted("left_out.toml");
    assert!(told.contains("data.image.normalize = \"xrv\": the weights in nih.pt"), "{told}");
    assert_eq!(found, predicted("xrv.toml").0);
    for command in ["predict nih.pt --config unit.toml image.png", "eval nih.pt --config unit.toml"]
    {
        let refused = trainer(at, &command.split(' ').collect::<Vec<_>>());
        let error = text(refused.stderr);
        assert!(refused.status.code() == Some(2) && error.contains("levels from"), "{error}");
    }
}
