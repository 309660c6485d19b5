//! Protects the pictures of samples in the page of a run: they are of the images that the page names,
//! with the heatmaps of `trainer predict`; what is missing is told; and none is there when none may be.

#[path = "support/page.rs"]
mod read_page;
#[expect(dead_code, reason = "resumed runs are compared by more of it")]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use roxmltree::Node;
use serde_json::Value;
use trainer::data::{Colour, Samples, read_image};

/// What the program says to standard error; it must not fail.
fn trainer(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
    let output = command.current_dir(folder).args(arguments).output().expect("starts");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}\n{told}");
    told
}

/// A run that has ended; its folder.
fn run(folder: &Path, more: &[&str]) -> PathBuf {
    let config = support::write_config(folder, &folder.join("data"));
    trainer(folder, &[&["run", config.to_str().expect("UTF-8")], more].concat());
    folder.join("tiny")
}

fn page(run: &Path) -> String {
    fs::read_to_string(run.join("report.html")).expect("a page")
}

/// The pictures of a page, each with what is said of it.
fn pictures(text: &str) -> Vec<(String, Vec<u8>)> {
    let page = read_page::parsed(text);
    let picture = |node: Node| {
        let source = node.attribute("src").expect("a source");
        let file = source.strip_prefix("data:image/jpeg;base64,").expect("a JPEG");
        (node.attribute("alt").expect("words").to_owned(), STANDARD.decode(file).expect("Base64"))
    };
    page.descendants().filter(|node| node.has_tag_name("img")).map(picture).collect()
}

fn pixels(path: &Path) -> (usize, usize, Vec<u8>) {
    let image = read_image(path, None, None, Colour::Rgb).expect("an image");
    let Samples::U8(values) = image.samples else { panic!("8 bits") };
    (image.width, image.height, values)
}

#[test]
fn heatmaps_in_the_page_are_those_of_predict() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = run(folder.path(), &["--set", "run.pictures=2"]);
    let text = page(&run);
    assert!(text.len() < 1_000_000, "{}", text.len());
    let pictures = pictures(&text);
    // Two heads, three kinds, two of each, with and without heat; fewer where there are fewer.
    assert!(pictures.len() > 12 && pictures.len() <= 24, "{}", pictures.len());
    let (told, jpeg) = pictures
        .iter()
        .find(|(told, _)| told.starts_with("where Cardiomegaly is seen in "))
        .or_else(|| pictures.iter().find(|(told, _)| told.starts_with("where Pleural Effusion")))
        .expect("a finding");
    let (label, image) =
        told.strip_prefix("where ").and_then(|told| told.split_once(" is seen in ")).expect("both");
    let maps = folder.path().join("maps");
    let asked = ["--label", &format!("findings/{label}")].map(str::to_owned);
    let maps_text = maps.to_str().expect("UTF-8");
    trainer(
        folder.path(),
        &["predict", "tiny", image, "--heatmap", maps_text, &asked[0], &asked[1]],
    );
    let predicted = fs::read_dir(&maps).expect("is made").next().expect("a map").expect("a map");
    let file = folder.path().join("page.jpg");
    fs::write(&file, jpeg).expect("is written");
    let (ours, theirs) = (pixels(&file), pixels(&predicted.path()));
    assert_eq!((ours.0, ours.1), (theirs.0, theirs.1), "a small image keeps its size");
    let away = ours.2.iter().zip(&theirs.2).map(|(a, b)| f64::from(a.abs_diff(*b)));
    let away = away.sum::<f64>() / ours.2.len() as f64;
    assert!(away < 6.0, "JPEG changes little: {away}");

    has_memory_over_a_step(&run, &text);

    // Written again, from the folder and from scratch, it is the same page.
    trainer(folder.path(), &["report", "tiny"]);
    assert!(page(&run) == text, "the page of the folder is another");
    fs::remove_file(run.join("samples.json")).expect("is there");
    trainer(folder.path(), &["report", "tiny"]);
    assert!(page(&run) == text, "the page drawn anew is another");
}

/// The page draws the memory of a step as its trace has it.
fn has_memory_over_a_step(run: &Path, text: &str) {
    let trace = fs::read_to_string(run.join("trace.json")).expect("is written");
    let trace: Value = serde_json::from_str(&trace).expect("JSON");
    assert_eq!((&trace["status"], &trace["batch_size"]), (&"ok".into(), &4.into()));
    let marks = trace["marks"].as_array().expect("marks");
    let page = read_page::parsed(text);
    let table = &read_page::tables(&page)["Memory over a training step"];
    let mebibytes = |bytes: &Value| bytes.as_u64().expect("bytes") as f64 / f64::from(1 << 20);
    let shown = |mark: &Value| {
        let time = format!("{:.1}", mark["seconds"].as_f64().expect("a time") * 1e3);
        let label = mark["label"].as_str().expect("a label").to_owned();
        [label, time, format!("{:.1}", mebibytes(&mark["live"]))]
    };
    for mark in [&marks[0], &marks[marks.len() - 1]] {
        assert!(table.iter().any(|row| *row == shown(mark)), "{mark}");
    }
    assert!(text.contains("measured peak <b>") && text.contains("estimated peak <b>"));
    // What threads keep from step to step counts in both, or one could not be held against the other.
    let lines = fs::read_to_string(run.join("metrics.jsonl")).expect("is written");
    let epoch = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let peaks = epoch.filter_map(|line| line["memory"]["peak"].as_u64());
    let (trained, traced) = (peaks.max().expect("a peak") as f64, mebibytes(&trace["peak"]));
    let trained = trained / f64::from(1 << 20);
    assert!((traced - trained).abs() < 0.1 * trained, "{traced} MiB and {trained} MiB in training");
}

#[test]
fn what_cannot_be_read_is_told_in_the_page_and_ends_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = run(folder.path(), &[]);
    let shown = pictures(&page(&run));
    let image = shown.iter().find(|(told, _)| !told.starts_with("where ")).expect("an image");
    let image = folder.path().join(&image.0);
    fs::write(&image, b"no image any more").expect("is written");
    let file = run.join("samples.json");
    fs::remove_file(&file).expect("is there");
    trainer(folder.path(), &["report", "tiny"]);
    let text = page(&run);
    assert!(text.contains("The picture cannot be shown: "), "{text}");
    assert!(pictures(&text).len() < shown.len());
    // All of it: the data are elsewhere.
    fs::remove_file(&file).expect("is there");
    let config = run.join("config.toml");
    let old = fs::read_to_string(&config).expect("reads");
    fs::write(&config, old.replace("patients = 14", "patients = 15")).expect("is written");
    trainer(folder.path(), &["report", "tiny"]);
    assert!(page(&run).contains("The samples have no pictures: "), "{}", page(&run));
    fs::write(&config, old).expect("is written");
    trainer(folder.path(), &["report", "tiny"]);
    assert!(!pictures(&page(&run)).is_empty(), "what was missing is tried again");
}

#[test]
fn no_picture_is_anywhere_where_none_may_be() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = run(folder.path(), &["--set", "run.pictures=0"]);
    let text = page(&run);
    assert_eq!(pictures(&text).len(), 0);
    assert!(text.contains("run.pictures is 0"), "{text}");
    trainer(folder.path(), &["report", "tiny"]);
    assert!(!run.join("samples.json").exists());
    let config: Value =
        toml::from_str(&fs::read_to_string(run.join("config.toml")).expect("reads")).expect("TOML");
    assert_eq!(config["run"]["pictures"], 0);
}
