//! What a resumed run finds of the one before: its states and its data.

use super::*;

use trainer::run::state::{StateStore, read_state};
use trainer::run::{FolderMode, RunFolder};

/// A run of two epochs that is to go on for a third.
fn resumable() -> Experiment {
    let experiment = Experiment::new();
    experiment.trained(&[]);
    experiment
}

const GO_ON: [&str; 3] = ["--resume", "--set", "train.epochs=3"];

#[test]
fn a_run_of_which_nothing_is_left_says_so_and_how_it_goes_on() {
    let experiment = resumable();
    let again = experiment.trained(&["--resume"]);
    insta::assert_snapshot!(again.warnings());
    let goes_on = experiment.trained(&GO_ON);
    assert_eq!(goes_on.warnings(), "");
    let stopped = Experiment::new();
    let stop = "train.early_stopping={metric=\"val/loss\",patience=1,min_delta=100.0}";
    let set = ["--set", stop, "--set", "train.epochs=9"];
    stopped.trained(&set);
    let epochs = stopped.events("epoch").len();
    assert!(epochs < 9, "{epochs}");
    let again = stopped.trained(&[&["--resume"], &set[..]].concat());
    insta::assert_snapshot!(again.warnings());
    assert_eq!(stopped.events("epoch").len(), epochs);
}

#[test]
fn a_run_folder_lists_every_image_with_its_patient_and_list() {
    let experiment = resumable();
    insta::assert_snapshot!(
        fs::read_to_string(experiment.path("runs/small/split.csv")).expect("reads")
    );
}

#[test]
fn data_that_have_changed_are_refused_by_what_changed() {
    let refused = |change: &dyn Fn(&mut Vec<String>)| {
        let experiment = resumable();
        let mut rows = experiment.rows();
        change(&mut rows);
        experiment.write_rows(&rows);
        let before = experiment.files("runs");
        let told = experiment.refused(3, &GO_ON);
        assert!(experiment.files("runs") == before);
        told
    };
    insta::assert_snapshot!(refused(&|rows| drop(rows.drain(2..4))));
    insta::assert_snapshot!(refused(&|rows| rows[3] = rows[3].replace("1,1", "0,1")));
    insta::assert_snapshot!(refused(&|rows| {
        rows[0] = rows[0].replace("train", "valid");
        rows[1] = rows[1].replace("p1,", "p77,");
        rows.push(rows[9].replace("9.png,p9", "new.png,p10"));
    }));
    insta::assert_snapshot!(refused(&|rows| rows.swap(0, 5)));
}

#[test]
fn data_without_the_list_of_the_run_are_refused_all_the_same() {
    let experiment = resumable();
    fs::remove_file(experiment.path("runs/small/split.csv")).expect("is removed");
    let rows = experiment.rows();
    experiment.write_rows(&rows[1..]);
    insta::assert_snapshot!(experiment.refused(3, &GO_ON));
}

#[test]
fn tables_and_images_that_moved_or_were_touched_are_no_change() {
    let experiment = resumable();
    let table = fs::read_to_string(experiment.path("t.csv")).expect("reads");
    // Another column changes nothing that the run learns from.
    let wider = table.lines().map(|line| format!("{line},note\n")).collect::<String>();
    fs::remove_file(experiment.path("t.csv")).expect("is removed");
    fs::create_dir(experiment.path("elsewhere")).expect("is made");
    fs::write(experiment.path("elsewhere/labels.csv"), wider).expect("is written");
    fs::rename(experiment.path("images"), experiment.path("elsewhere/images")).expect("is moved");
    let moved = ["--set", "data.csv.table=elsewhere/labels.csv"];
    experiment.trained(&[&GO_ON[..], &moved].concat());
    assert_eq!(experiment.events("epoch").len(), 3);
}

#[test]
fn states_of_versions_without_a_fingerprint_go_on_with_a_warning() {
    let experiment = resumable();
    let folder = experiment.path("runs/small");
    for name in ["split.csv", ".labels"] {
        fs::remove_file(folder.join(name)).expect("is removed");
    }
    let run = RunFolder::create(&folder, FolderMode::Resume).expect("is there");
    let mut store = StateStore::open(run.lock(), 2).expect("opens");
    let mut state = read_state(&folder.join("last")).expect("is intact");
    let position = state.files.get_mut("state.json").expect("is there");
    let mut json: Value = serde_json::from_slice(position).expect("JSON");
    assert!(json.as_object_mut().expect("an object").remove("data").is_some());
    *position = serde_json::to_vec(&json).expect("JSON");
    let files: Vec<(String, Vec<u8>)> = state.files.into_iter().collect();
    store.save(&state.tag, &files, true).expect("saves");
    drop(run);
    for older in fs::read_dir(&folder).expect("lists").flatten() {
        if older.file_name().to_string_lossy().starts_with("step-") {
            fs::remove_dir_all(older.path()).expect("is removed");
        }
    }
    insta::assert_snapshot!(experiment.trained(&GO_ON).warnings());
    assert!(folder.join("split.csv").exists());
    let last = fs::read(folder.join("last/state.json")).expect("reads");
    let last: Value = serde_json::from_slice(&last).expect("JSON");
    assert!(last["data"]["split"].is_string());
}

#[test]
fn states_that_are_gone_are_missed() {
    let experiment = resumable();
    for entry in fs::read_dir(experiment.path("runs/small")).expect("lists").flatten() {
        if entry.path().is_dir() {
            fs::remove_dir_all(entry.path()).expect("is removed");
        }
    }
    let before = experiment.files("runs");
    insta::assert_snapshot!(experiment.refused(5, &["--resume"]));
    assert!(experiment.files("runs") == before);
    experiment.trained(&["--overwrite"]);
}

#[test]
fn a_run_stopped_before_it_saved_starts_from_its_beginning_and_says_so() {
    let experiment = Experiment::new();
    // Found in the second batch, after the run has begun.
    fs::write(experiment.path("images/4.png"), "no image").expect("is written");
    experiment.refused(3, &[]);
    assert_eq!(experiment.events("saved"), [Value::Null; 0]);
    experiment.draw("images/4.png", 4);
    insta::assert_snapshot!(experiment.trained(&["--resume"]).warnings());
    assert_eq!(experiment.events("epoch").len(), 2);
}

/// Writes `last` anew with another `state.json`, under a manifest of the place that it was saved at.
fn with_position(folder: &Path, change: impl Fn(&mut serde_json::Map<String, Value>)) {
    let run = RunFolder::create(folder, FolderMode::Resume).expect("is there");
    let mut store = StateStore::open(run.lock(), 2).expect("opens");
    let mut state = read_state(&folder.join("last")).expect("is intact");
    let position = state.files.get_mut("state.json").expect("is there");
    let mut json: Value = serde_json::from_slice(position).expect("JSON");
    change(json.as_object_mut().expect("an object"));
    *position = serde_json::to_vec(&json).expect("JSON");
    let files: Vec<(String, Vec<u8>)> = state.files.into_iter().collect();
    store.save(&state.tag, &files, false).expect("saves");
}

#[test]
fn a_state_of_another_place_than_its_manifest_says_is_refused() {
    let folder = |experiment: &Experiment| experiment.path("runs/small");
    for (key, value) in [("epoch", 1_000_000), ("epoch", 0), ("step", 77), ("batch", 1)] {
        let experiment = resumable();
        with_position(&folder(&experiment), |json| drop(json.insert(key.to_owned(), value.into())));
        let told = experiment.refused(5, &GO_ON);
        assert!(told.contains("state.json is of epoch "), "{key} {value}: {told}");
        assert!(told.contains(", and manifest.json of epoch 3, step "), "{key} {value}: {told}");
    }
    let experiment = resumable();
    with_position(&folder(&experiment), |json| drop(json.insert("seconds".to_owned(), 1.5.into())));
    experiment.trained(&GO_ON);
}

#[test]
fn a_best_state_that_is_gone_is_told_and_not_named_as_the_weights() {
    let weights = |experiment: &Experiment| {
        let end = experiment.events("end").pop().expect("has ended");
        let file = end["weights"].as_str().expect("is named").to_owned();
        assert!(experiment.path(&file).is_file(), "{file}");
        file
    };
    let experiment = resumable();
    assert!(weights(&experiment).ends_with("best/weights.safetensors"));
    fs::remove_dir_all(experiment.path("runs/small/best")).expect("is removed");
    let told = experiment.trained(&["--resume"]).warnings();
    assert!(
        told.contains("runs/small/best is gone, and with it the weights that did best"),
        "{told}"
    );
    assert!(weights(&experiment).ends_with("last/weights.safetensors"));
    // A run that goes on says so when it begins, when there is still something to restore.
    let experiment = resumable();
    fs::remove_dir_all(experiment.path("runs/small/best")).expect("is removed");

    let told = experiment.trained(&GO_ON).warnings();
    assert!(told.contains("runs/small/best is gone"), "{told}");
    weights(&experiment);
}

#[cfg(unix)]
#[test]
fn a_run_folder_whose_configuration_cannot_be_read_is_not_called_foreign() {
    let experiment = resumable();
    let config = experiment.path("runs/small/config.toml");
    fs::remove_file(&config).expect("is removed");
    // A link to itself can be read by no one, not even by root.
    std::os::unix::fs::symlink(&config, &config).expect("is linked");
    for mode in ["--resume", "--overwrite"] {
        let told = experiment.refused(1, &[mode]);
        assert!(told.contains("cannot read runs/small/config.toml: "), "{told}");
        assert!(!told.contains("no run folder"), "{told}");
    }
}
