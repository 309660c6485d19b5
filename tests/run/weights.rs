//! The weights that a run starts from.

use super::*;

fn weights(run: &str) -> String {
    format!("runs/{run}/last/weights.safetensors")
}

#[test]
fn what_was_taken_from_a_file_is_told_and_saved_with_the_run() {
    let experiment = Experiment::new();
    experiment.trained(&["--set", "run.name=\"first\""]);
    fs::copy(experiment.path(&weights("first")), experiment.path("w.safetensors"))
        .expect("is copied");
    let labels = "heads[0].labels=[\"Edema\"]";
    let told = experiment.trained(&["--init", "w.safetensors", "--set", labels]);
    let started = told.text.lines().filter(|line| line.contains("w.safetensors"));
    insta::assert_snapshot!(started.collect::<Vec<_>>().join("\n"));
    insta::assert_snapshot!(experiment.events("initialized")[0]);
    let config = fs::read_to_string(experiment.path("runs/small/config.toml")).expect("reads");
    assert!(config.contains("[model]\ninit = \"w.safetensors\"\n"), "{config}");

    // The configuration that is saved is the same experiment.
    let before = experiment.files("runs/small/last");
    fs::rename(experiment.path("runs/small/config.toml"), experiment.path("a.toml"))
        .expect("is moved");
    experiment.trained(&["--set", "run.name=\"again\""]);
    let weights = |run| fs::read(experiment.path(&weights(run))).expect("reads");
    assert!(before.values().any(|file| *file == weights("again")));
    assert!(weights("again") != weights("first"));
}

#[test]
fn a_resumed_run_needs_the_weights_no_more_and_keeps_their_name() {
    let experiment = Experiment::new();
    experiment.trained(&["--set", "run.name=\"first\""]);
    fs::rename(experiment.path(&weights("first")), experiment.path("w.safetensors"))
        .expect("is moved");
    experiment.trained(&["--init", "w.safetensors"]);
    fs::remove_file(experiment.path("w.safetensors")).expect("is removed");
    let told = experiment.trained(&["--resume", "--set", "train.epochs=3"]);
    assert!(!told.text.contains("w.safetensors"), "{}", told.text);
    let config = fs::read_to_string(experiment.path("runs/small/config.toml")).expect("reads");
    assert!(config.contains("init = \"w.safetensors\""), "{config}");
    let other = ["--resume", "--set", "model.init=other.pth", "--set", "train.epochs=3"];
    insta::assert_snapshot!(experiment.refused(2, &other));
}

#[test]
fn weights_for_colour_images_give_grey_ones_what_three_equal_channels_give() {
    let experiment = Experiment::new();
    let value = |event: &Value| event["val"]["loss"].as_f64().expect("is defined");
    let still = ["--set", "train.epochs=1", "--set", "train.optimizer={sgd={lr=1e-30}}"];
    for [from, to] in [[3, 1], [1, 3]] {
        let channels = |count: usize| format!("data.image.channels={count}");
        let (from, to) = (channels(from), channels(to));
        let first = ["--set", &from, "--set", "run.name=\"first\"", "--overwrite"];
        experiment.trained(&first);
        let file = weights("first");
        let loss = |channels: &str| {
            let init = ["--init", &file, "--set", channels, "--overwrite"];
            let told = experiment.trained(&[&init, &still[..]].concat());
            (value(&experiment.events("epoch")[0]), told)
        };
        let ((as_they_are, _), (adapted, told)) = (loss(&from), loss(&to));
        assert!((as_they_are - adapted).abs() < 1e-6, "{as_they_are} {adapted}");
        assert!(told.text.contains("features.conv0.weight adapted from"), "{}", told.text);
    }
}

#[test]
fn a_key_near_init_and_an_empty_one_are_refused_where_they_stand() {
    let experiment = Experiment::new();
    insta::assert_snapshot!(experiment.refused(2, &["--set", "model.initt=w.pth"]));
    insta::assert_snapshot!(experiment.refused(2, &["--set", "model.init=''"]));
    let config = CONFIG.replace("[model.densenet]", "[model]\ninti = \"w.pth\"\n[model.densenet]");
    fs::write(experiment.path("a.toml"), config).expect("is written");
    insta::assert_snapshot!(experiment.refused(2, &[]));
    let config = CONFIG.replace("[model.densenet]", "[model]\ninit = 3\n[model.densenet]");
    fs::write(experiment.path("a.toml"), config).expect("is written");
    insta::assert_snapshot!(experiment.refused(2, &[]));
}
