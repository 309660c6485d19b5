//! `trainer predict`: what it says of an image is what the run has found, whatever is beside the image.

#[expect(dead_code, reason = "other tests use the rest")]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use assert_cmd::Command;
use serde_json::Value;
use trainer::build::{TrainedFolder, open_trained};
use trainer::config;
use trainer::evaluate::{
    Calibration, Fitted, Prediction, PredictionReader, PredictionTable, PredictionWriter,
};
use trainer::plan::{Plan, plan};

const LABELS: [&str; 6] = [
    "findings/Cardiomegaly",
    "findings/Pleural Effusion",
    "findings/Support Devices",
    "view/PA",
    "view/AP",
    "view/Lateral",
];

/// A run that has ended.
struct Example {
    folder: tempfile::TempDir,
    fitted: Fitted,
    validation: PredictionTable,
}

static EXAMPLE: LazyLock<Example> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let config = support::write_config(folder.path(), &folder.path().join("data"));
    trainer(&["run", text(&config)]).assert().success();
    let (plan, state) = opened(&folder.path().join("tiny"));
    let trained = open_trained(&plan, &state).expect("opens");
    let validation = trained.validation().expect("reads").expect("is there");
    let fitted = trained.fitted().expect("reads").expect("is there");
    Example { folder, fitted, validation }
});

fn opened(run: &Path) -> (Plan, PathBuf) {
    let TrainedFolder { config, state } = TrainedFolder::find(run).expect("a state");
    let config = config::load(&config, &[]).expect("reads").config;
    (plan(config).expect("is right"), state)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn trainer(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("trainer").expect("the program");
    command.args(arguments);
    command
}

impl Example {
    fn run(&self) -> PathBuf {
        self.folder.path().join("tiny")
    }

    /// What `trainer predict RUN` prints, and says on standard error.
    fn predict(&self, arguments: &[&str]) -> (String, String) {
        let run = self.run();
        let output = trainer(&[&["predict", text(&run)], arguments].concat()).assert().success();
        let output = output.get_output();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        (text(&output.stdout), text(&output.stderr))
    }

    /// A table in a folder of its own, which is kept.
    fn table(&self, name: &str, images: &[&str]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("path\n{}\n", images.join("\n"))).expect("is written");
        path
    }

    /// The probabilities of the validation images, by the image and then in the order of [`LABELS`].
    fn known(&self) -> BTreeMap<String, Vec<f64>> {
        self.calibrated(|head| self.fitted.heads[head].calibration.as_ref())
    }

    fn calibrated<'a>(
        &self,
        calibration: impl Fn(&str) -> Option<&'a Calibration>,
    ) -> BTreeMap<String, Vec<f64>> {
        let mut known: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for head in ["findings", "view"] {
            let of = &self.validation.heads[head];
            let calibration = calibration(head);
            let all = Calibration::probabilities(calibration, of.task, &of.labels, &of.outputs);
            for (path, values) in self.validation.paths.iter().zip(all.chunks_exact(3)) {
                known.entry(path.clone()).or_default().extend(values);
            }
        }
        known
    }
}

/// The rows of a CSV table, each by its columns.
fn rows(table: &str) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_reader(table.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().expect("a table")
}

fn numbers(row: &BTreeMap<String, String>, ending: &str) -> Vec<f64> {
    let number = |label| row[&format!("{label}{ending}")].parse().expect("a number");
    LABELS.map(number).to_vec()
}

#[test]
fn validation_images_have_the_bits_that_the_run_has_found_in_any_order_and_any_batch() {
    let example = &*EXAMPLE;
    let known = example.known();
    let images: Vec<&str> = known.keys().rev().map(String::as_str).collect();
    let list = example.table("reversed.csv", &images);
    let points = &example.fitted.heads["findings"].operating_points;
    for batch in ["1", "3", "64"] {
        let (table, told) = example.predict(&[text(&list), "--batch", batch]);
        assert_eq!(told, "", "nothing is wrong");
        let rows = rows(&table);
        assert_eq!(rows.len(), images.len());
        for (row, image) in rows.iter().zip(&images) {
            assert_eq!(row["path"], *image, "rows are in the order of the list");
            let probabilities = numbers(row, "");
            assert_eq!(probabilities, known[*image], "{image} in batches of {batch}");
            let decision = |label: &str| row[&format!("{label}/decision")].as_str();
            for (place, label) in LABELS[..3].iter().enumerate() {
                let name = label.strip_prefix("findings/").expect("a finding");
                let decided = points[name][0].threshold.map(|cut| probabilities[place] >= cut);
                let decided = decided.map_or("", |is| if is { "1" } else { "0" });
                assert_eq!(decision(label), decided, "{label}");
            }
            let classes: Vec<&str> = LABELS[3..].iter().map(|class| decision(class)).collect();
            assert_eq!(classes.iter().filter(|decision| **decision == "1").count(), 1);
            assert_eq!(row["error"], "");
        }
    }
}

#[test]
fn calibration_and_thresholds_are_those_that_are_asked_for() {
    let example = &*EXAMPLE;
    let plain = example.calibrated(|_| None);
    assert_ne!(plain, example.known(), "the run has calibrated");
    let image = plain.keys().next().expect("an image");
    let asked = ["--set", "evaluate.calibration=none", "--set"];
    let point =
        "evaluate.operating_points={youden=false,sensitivity=[],specificity=[],threshold=[1]}";
    let (table, _) = example.predict(&[&[image.as_str()][..], &asked, &[point]].concat());
    let row = &rows(&table)[0];
    assert_eq!(numbers(row, ""), plain[image]);
    assert_eq!(row["findings/Support Devices/decision"], "0", "no probability is 1");
}

/// The same reader reads what `trainer eval` writes.
#[test]
fn every_column_of_the_table_is_read_back() {
    let example = &*EXAMPLE;
    let folder = example.folder.path().join("read-back");
    fs::create_dir_all(&folder).expect("is made");
    fs::write(folder.join("a.png"), b"").expect("is written");
    fs::copy(&example.validation.paths[0], folder.join("b.png")).expect("is copied");
    let (sets, views) = ("--conformal=0.2", "--tta");
    for (options, spread) in [(&[sets][..], false), (&[views], true), (&[sets, views], true)] {
        let (table, _) = example.predict(&[&[text(&folder)], options].concat());
        let fields = rows(&table);
        let reader = PredictionReader::new(table.as_bytes(), Path::new("p.csv")).expect("reads");
        let header = reader.header().clone();
        assert_eq!(header.labels.len(), LABELS.len());
        assert!(header.error && header.labels.iter().all(|label| label.spread == spread));
        let read: Vec<Prediction> = reader.collect::<Result<_, _>>().expect("every row");
        assert_eq!(read[0].told, Err("the file is empty".to_owned()));
        for (name, label) in LABELS.iter().zip(read[1].labels()) {
            let field = |ending: &str| fields[1].get(&format!("{name}{ending}")).cloned();
            assert_eq!(field(""), Some(label.value.to_string()));
            assert_eq!(field("/spread"), label.spread.map(|spread| spread.to_string()));
            assert_eq!(field("/conformal"), label.conformal.map(|set| set.to_string()), "{name}");
            let decision = label.decision.map_or(String::new(), |is| u8::from(is).to_string());
            assert_eq!(field("/decision"), Some(decision));
        }
        let mut again = PredictionWriter::new(Vec::new(), &header).expect("writes");
        read.iter().for_each(|row| again.write(row).expect("writes"));
        assert_eq!(again.finish().expect("writes"), table.as_bytes());
    }
}

#[test]
fn a_file_of_weights_predicts_what_its_run_does() {
    let example = &*EXAMPLE;
    let place = tempfile::tempdir().expect("a folder");
    let [weights, other] = ["tiny.safetensors", "other.toml"].map(|name| place.path().join(name));
    let run = example.run();
    let export = ["export", text(&run), "--format", "safetensors", "--out"];
    trainer(&[&export[..], &[text(&weights)]].concat()).assert().success();
    let config = example.folder.path().join("tiny.toml");
    let images: Vec<&str> = example.validation.paths.iter().map(String::as_str).collect();
    let table = example.table("weights.csv", &images);
    let (of_run, _) = example.predict(&[text(&table)]);
    let of_weights = |config: &Path| {
        let predict = ["predict", text(&weights), "--config", text(config), text(&table)];
        let output = trainer(&predict).assert().success().get_output().clone();
        (output.stdout, String::from_utf8(output.stderr).expect("UTF-8"))
    };
    let (found, told) = of_weights(&config);
    assert_eq!(String::from_utf8(found).expect("UTF-8"), of_run);
    assert!(!told.contains("warning"), "{told}");
    // What the file says of its images is held against the configuration.
    let written = fs::read_to_string(&config).expect("reads");
    fs::write(&other, written.replace("size = [32, 32]", "size = [40, 32]")).expect("is written");
    let (_, told) = of_weights(&other);
    assert!(told.contains("prepared otherwise: `size` was [32,32], is [40,32]"), "{told}");
    for (arguments, said) in [
        (vec!["predict", text(&weights), text(&table)], "--config names the configuration"),
        (
            vec!["predict", text(&config), text(&table)],
            "is a configuration, and not a trained model",
        ),
        (
            vec!["predict", text(&run), text(&table), "--config", text(&config)],
            "--config is for files of weights",
        ),
    ] {
        let refused = trainer(&arguments).assert().code(2).get_output().clone();
        let told = String::from_utf8(refused.stderr).expect("UTF-8");
        assert!(told.contains(said), "{told}");
    }
}

#[test]
fn a_folder_and_json_lines_give_the_same_numbers() {
    let example = &*EXAMPLE;
    let data = example.folder.path().join("data");
    let (lines, told) = example.predict(&[text(&data), "--format", "jsonl"]);
    assert_eq!(told, "2 files are no images and passed over\n");
    let lines: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let paths: Vec<&str> = lines.iter().filter_map(|line| line["path"].as_str()).collect();
    assert!(paths.is_sorted() && paths.len() == lines.len(), "{paths:?}");
    let known = example.known();
    let found: BTreeMap<&str, &Value> = paths.into_iter().zip(&lines).collect();
    for (image, probabilities) in &known {
        let heads = &found[image.as_str()]["heads"];
        for (label, probability) in LABELS.iter().zip(probabilities) {
            let (head, label) = label.split_once('/').expect("a head");
            assert_eq!(heads[head][label]["probability"].as_f64(), Some(*probability));
        }
    }
}

#[test]
fn a_bad_image_has_a_row_that_says_why_and_others_are_predicted() {
    let example = &*EXAMPLE;
    let folder = example.folder.path().join("bad");
    fs::create_dir_all(&folder).expect("is made");
    let image = &example.validation.paths[0];
    fs::copy(image, folder.join("b.png")).expect("is copied");
    fs::write(folder.join("a.png"), b"").expect("is written");
    fs::write(folder.join("c.dcm"), b"no image").expect("is written");
    let out = example.folder.path().join("bad.csv");
    let (printed, told) = example.predict(&[text(&folder), "--batch", "2", "--out", text(&out)]);
    assert_eq!(printed, "");
    assert_eq!(told, "warning: 2 of 3 images could not be read; their rows say why\n");
    let rows = rows(&fs::read_to_string(&out).expect("is there"));
    let errors: Vec<&str> = rows.iter().map(|row| row["error"].as_str()).collect();
    assert_eq!(errors, ["the file is empty", "", "it is neither PNG, JPEG, TIFF nor DICOM"]);
    assert_eq!(numbers(&rows[1], ""), example.known()[image]);
    assert!(LABELS.iter().all(|label| rows[0][*label].is_empty()));
    let run = example.run();
    let only = folder.join("a.png");
    trainer(&["predict", text(&run), text(&only)]).assert().code(3);
    trainer(&["predict", text(&run), "nowhere.png"]).assert().code(3);
    trainer(&["predict", text(example.folder.path()), text(&only)]).assert().code(5);
}

#[test]
fn an_ensemble_tells_mean_and_spread() {
    let example = &*EXAMPLE;
    let image = &*example.validation.paths[0];
    let last = example.run().join("last");
    let first = example.run().join("best");
    // Nothing is fitted, so that the value is the mean itself.
    let plain = ["--set", "evaluate.calibration=none"];
    let of = |arguments: &[&str]| {
        let (table, _) = example.predict(&[&[image], arguments, &plain].concat());
        rows(&table).remove(0)
    };
    let alone = |state: &Path| {
        let arguments = [&["predict", text(state), image], &plain[..]].concat();
        let table = trainer(&arguments).assert().success();
        let table = String::from_utf8(table.get_output().stdout.clone()).expect("UTF-8");
        numbers(&rows(&table)[0], "")
    };
    let (ours, theirs) = (alone(&first), alone(&last));
    let both = of(&["--ensemble", text(&last)]);
    let (means, spreads) = (numbers(&both, ""), numbers(&both, "/spread"));
    for place in 0..LABELS.len() {
        let mean = (ours[place] + theirs[place]) / 2.0;
        // Outputs are in 32 bits.
        assert!((means[place] - mean).abs() < 1e-7);
        assert!((spreads[place] - (ours[place] - theirs[place]).abs() / 2.0).abs() < 1e-12);
    }
    let twice = of(&["--ensemble", text(&first)]);
    assert_eq!(numbers(&twice, "/spread"), vec![0.0; 6]);
    for (ours, twice) in ours.iter().zip(numbers(&twice, "")) {
        assert!((ours - twice).abs() < 1e-7);
    }
}

/// Writes the image mirrored left to right.
fn mirrored(image: &Path, to: &Path) {
    let decoder = png::Decoder::new(std::io::BufReader::new(fs::File::open(image).expect("opens")));
    let mut reader = decoder.read_info().expect("reads");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let info = reader.next_frame(&mut pixels).expect("reads");
    assert_eq!(info.color_type, png::ColorType::Grayscale);
    pixels.truncate(info.buffer_size());
    for row in pixels.chunks_exact_mut(info.line_size) {
        row.reverse();
        if info.bit_depth == png::BitDepth::Sixteen {
            row.chunks_exact_mut(2).for_each(<[u8]>::reverse);
        }
    }
    let mut encoder =
        png::Encoder::new(fs::File::create(to).expect("opens"), info.width, info.height);
    encoder.set_color(info.color_type);
    encoder.set_depth(info.bit_depth);
    let mut writer = encoder.write_header().expect("writes");
    writer.write_image_data(&pixels).expect("writes");
}

#[test]
fn an_image_and_its_mirror_image_are_one_where_images_are_looked_at_mirrored_too() {
    let example = &*EXAMPLE;
    let image = &*example.validation.paths[0];
    let mirror = example.folder.path().join("mirror.png");
    mirrored(Path::new(image), &mirror);
    let of = |arguments: &[&str]| {
        let (table, _) = example.predict(&[&[image, text(&mirror)], arguments].concat());
        rows(&table)
    };
    let plain = of(&[]);
    let apart = |rows: &[BTreeMap<String, String>]| {
        let (a, b) = (numbers(&rows[0], ""), numbers(&rows[1], ""));
        a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
    };
    assert!(apart(&plain) > 1e-4, "the model tells them apart: {}", apart(&plain));
    let both = of(&["--tta", "--set", "data.augment.translate=0.0"]);
    assert!(apart(&both) < 1e-6, "{}", apart(&both));
    let mean = (numbers(&plain[0], "")[0] + numbers(&plain[1], "")[0]) / 2.0;
    assert!((numbers(&both[0], "")[0] - mean).abs() < 1e-6);
    let shifted = of(&["--tta"]);
    assert!(numbers(&shifted[0], "/spread").iter().all(|spread| *spread > 0.0));
    assert!(apart(&shifted) < apart(&plain));
    let run = example.run();
    let none = ["--tta", "--set", "data.augment={rotate_degrees=5.0}"];
    trainer(&[&["predict", text(&run), image], &none[..]].concat()).assert().code(2);
}

#[test]
fn sets_of_decisions_stand_beside_them_and_their_coverage_is_said() {
    let example = &*EXAMPLE;
    let image = &*example.validation.paths[0];
    let (table, told) = example.predict(&[image, "--conformal", "0.2"]);
    let row = rows(&table).remove(0);
    for label in &LABELS[..3] {
        let set = &row[&format!("{label}/conformal")];
        assert!(["{0}", "{1}", "{0,1}", "{}"].contains(&set.as_str()), "{set}");
        assert!(told.contains(label), "{told}");
    }
    for class in &LABELS[3..] {
        assert!(["0", "1"].contains(&row[&format!("{class}/conformal")].as_str()));
    }
    let run = example.run();
    trainer(&["predict", text(&run), image, "--conformal", "1.5"]).assert().code(2);
    // One saved within an epoch.
    let states = fs::read_dir(&run).expect("a run").map(|entry| entry.expect("a state").path());
    let within = |state: &PathBuf| {
        state.join("manifest.json").exists() && !state.join("validation.csv").exists()
    };
    let bare = states.into_iter().find(within).expect("states are saved every two steps");
    trainer(&["predict", text(&bare), image, "--conformal", "0.1"]).assert().code(5);
    let plain = trainer(&["predict", text(&bare), image]).assert().success();
    let told = String::from_utf8(plain.get_output().stderr.clone()).expect("UTF-8");
    assert!(told.contains("has no calibration and no thresholds"), "{told}");
    // By itself it has a rule, which an ensemble measured by `eval` would not share.
    for pair in [[&run, &bare], [&bare, &run]].map(|pair| pair.map(|path| text(path))) {
        let both = trainer(&["predict", pair[0], image, "--ensemble", pair[1]]).assert().code(5);
        let told = String::from_utf8(both.get_output().stderr.clone()).expect("UTF-8");
        assert!(
            told.contains(text(&bare)) && told.contains("saved at the end of an epoch"),
            "{told}"
        );
    }
    // Nothing is there that another way to fit could be tried on.
    let refit = ["predict", text(&bare), image, "--set", "evaluate.calibration=platt"];
    let refused = trainer(&refit).assert().code(5);
    let told = String::from_utf8(refused.get_output().stderr.clone()).expect("UTF-8");
    assert!(told.contains("has no validation.csv") && told.contains("evaluate.…"), "{told}");
}

/// Of the n validation images that have a label (or lack it) the k least plausible are left out of the
/// sets, so that ⌈(n + 1) · 0.8⌉ are covered, just where sets are fitted to the very probabilities that are
/// told of these images.
#[test]
fn sets_of_several_models_and_views_are_fitted_to_what_these_say_of_the_validation_images() {
    let example = &*EXAMPLE;
    let images: Vec<&str> = example.validation.paths.iter().map(String::as_str).collect();
    let list = example.table("all.csv", &images);
    let last = example.run().join("last");
    let head = &example.validation.heads["findings"];
    let mut seen = Vec::new();
    for options in
        [&["--tta"][..], &["--ensemble", text(&last)], &["--tta", "--ensemble", text(&last)]]
    {
        let asked = [&[text(&list), "--conformal", "0.2"], options].concat();
        let (table, told) = example.predict(&asked);
        assert!(told.contains("cover of the other half"), "{told}");
        let rows = rows(&table);
        for (place, label) in LABELS[..3].iter().enumerate() {
            for (truth, decision) in [(1.0, "1"), (0.0, "0")] {
                let at = |image: usize| image * 3 + place;
                let is = |image: &usize| {
                    let known = head.targets.mask[at(*image)] != 0.0;
                    known && head.targets.values[at(*image)] == truth
                };
                let of: Vec<usize> = (0..images.len()).filter(is).collect();
                let sets = of.iter().map(|&image| &rows[image][&format!("{label}/conformal")]);
                let covered = sets.filter(|set| set.contains(decision)).count();
                let wanted = ((of.len() + 1) * 4).div_ceil(5).min(of.len());
                assert_eq!(covered, wanted, "{options:?}: {label}, {decision} of {}", of.len());
            }
        }
        seen.push(table);
    }
    assert!(seen[0] != seen[1] && seen[1] != seen[2]);
    // Other images than the run was validated on may be those that it was trained on.
    let run = example.run();
    let tta = ["predict", text(&run), images[0], "--tta", "--conformal=0.2", "--set"];
    let changed = [&tta[..], &["data.validation={fraction=0.6}"]].concat();
    let refused = trainer(&changed).assert().code(3).get_output().clone();
    let told = String::from_utf8(refused.stderr).expect("UTF-8");
    assert!(told.contains("are not those of the validation.csv"), "{told}");
    assert!(told.contains("leave out --tta"), "{told}");
}

#[test]
fn a_heatmap_of_a_model_with_itself_is_that_of_the_model() {
    let example = &*EXAMPLE;
    let image = &*example.validation.paths[0];
    let [best, last] = ["best", "last"].map(|state| example.run().join(state));
    let drawn = |name: &str, states: &[&Path]| {
        let folder = example.folder.path().join(name);
        let mut asked = vec!["predict", text(states[0]), image, "--heatmap", text(&folder)];
        states[1..].iter().for_each(|state| asked.extend(["--ensemble", text(state)]));
        trainer(&asked).assert().success();
        let files = fs::read_dir(&folder).expect("is there");
        let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
        files.sort();
        assert_eq!(files.len(), LABELS.len());
        files.iter().map(|file| fs::read(file).expect("reads")).collect::<Vec<_>>()
    };
    let alone = drawn("of-best", &[&best]);
    assert_eq!(drawn("of-twice", &[&best, &best]), alone);
    let both = drawn("of-both", &[&best, &last]);
    assert_ne!(both, alone);
    assert_eq!(drawn("of-both-turned", &[&last, &best]), both);
}

#[test]
fn a_heatmap_is_a_picture_of_the_size_of_its_image_for_each_label_asked_for() {
    let example = &*EXAMPLE;
    let image = &*example.validation.paths[0];
    let folder = example.folder.path().join("heatmaps");
    let of = |label: &str| {
        ["--heatmap".to_owned(), text(&folder).to_owned(), "--label".to_owned(), label.to_owned()]
    };
    let asked = of("findings/Pleural Effusion");
    let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
    example.predict(&[&[image], &asked[..]].concat());
    let file = Path::new(image).file_name().expect("a name").to_str().expect("UTF-8");
    let files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("is there")
        .map(|entry| entry.expect("a file").path())
        .collect();
    assert_eq!(files, [folder.join(format!("{file}.findings.Pleural_Effusion.png"))]);
    let size = |path: &Path| {
        let file = std::io::BufReader::new(fs::File::open(path).expect("opens"));
        let reader = png::Decoder::new(file).read_info().expect("a PNG");
        (reader.info().width, reader.info().height, reader.info().color_type)
    };
    let (width, height, _) = size(Path::new(image));
    assert_eq!(size(&files[0]), (width, height, png::ColorType::Rgb));
    let run = example.run();
    let wrong = of("findings/Fracture");
    let wrong: Vec<&str> = wrong.iter().map(String::as_str).collect();
    trainer(&[&["predict", text(&run), image], &wrong[..]].concat()).assert().code(2);
}

#[test]
fn the_weights_of_a_state_say_what_goes_in_and_what_comes_out() {
    let run = EXAMPLE.run();
    for file in ["weights.safetensors", "average.safetensors"] {
        let bytes = fs::read(run.join("best").join(file)).expect("is there");
        let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).expect("reads");
        let metadata = header.metadata().clone().expect("is there");
        let read = |key: &str| -> Value { serde_json::from_str(&metadata[key]).expect("JSON") };
        let heads = read("heads");
        assert_eq!(heads[0]["labels"][1], "Pleural Effusion");
        assert_eq!(heads[1]["activation"], "softmax");
        let preprocessing = read("preprocessing");
        assert_eq!(preprocessing["size"], serde_json::json!([32, 32]));
        assert_eq!(preprocessing["input"], "normalized");
    }
}
