//! Tables and arrays of one's own: the page's example, and what is said where something is amiss.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// Exit code, standard output and standard error; the folder's own path is left out.
fn trainer(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::cargo_bin("trainer")
        .expect("the program is built")
        .current_dir(folder)
        .args(arguments)
        .env_remove("RUST_BACKTRACE")
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts");
    let folder = folder.canonicalize().expect("is there").display().to_string();
    let text =
        |bytes: Vec<u8>| String::from_utf8(bytes).expect("is UTF-8").replace(&folder, "/here");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Files of datasets/README.md below a heading: the texts of its fences in that language, each with
/// what stands last in backticks before it.
fn fences(heading: &str, language: &str) -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/README.md");
    let page = fs::read_to_string(page).expect("reads");
    let (_, section) = page.split_once(&format!("\n{heading}\n")).expect("has the heading");
    let section = section.split("\n## ").next().expect("a section");
    let mut found = Vec::new();
    let mut rest = section;
    while let Some((before, after)) = rest.split_once(&format!("```{language}\n")) {
        let (text, after) = after.split_once("```").expect("the fence is closed");
        let name = before.rsplit('`').nth(1).unwrap_or_default();
        found.push((name.to_owned(), text.to_owned()));
        rest = after;
    }
    found
}

/// The page's example of two tables, with an image for every row.
fn two_clinics() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("is made");
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/layouts/nih/images");
    let images =
        fs::read_dir(images).expect("is there").map(|entry| entry.expect("is read").path());
    let mut images: Vec<_> = images.collect();
    images.sort();
    let mut next = images.iter().cycle();
    let tables = fences("### Two tables of your own", "csv");
    assert_eq!(tables.len(), 2);
    for (name, text) in tables {
        let path = folder.path().join(name);
        let beside = path.parent().expect("is in a folder");
        fs::create_dir_all(beside).expect("is made");
        fs::write(&path, &text).expect("is written");
        for line in text.lines().skip(1) {
            let image = line.split([',', ';']).next().expect("the first field");
            fs::copy(next.next().expect("cycles"), beside.join(image)).expect("is copied");
        }
    }
    let configurations = fences("### Two tables of your own", "toml");
    let [(_, text)] = &configurations[..] else { panic!("one configuration") };
    fs::write(folder.path().join("experiment.toml"), text).expect("is written");
    folder
}

#[test]
fn the_pages_example_of_two_tables_trains_as_it_stands() {
    let folder = two_clinics();
    let (code, _, shown) = trainer(folder.path(), &["check", "experiment.toml"]);
    assert_eq!(code, Some(0), "{shown}");
    let (code, _, shown) =
        trainer(folder.path(), &["run", "experiment.toml", "--set", "device.use=\"cpu\""]);
    assert_eq!(code, Some(0), "{shown}");
    let run = folder.path().join("checkpoints/two_clinics");
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let events = metrics.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let epoch = events.into_iter().find(|event| event["event"] == "epoch").expect("an epoch");
    for head in ["findings", "view", "age"] {
        let loss = epoch["train"][format!("{head}/loss")].as_f64();
        assert!(loss.is_some_and(f64::is_finite), "{head}: {epoch}");
    }
}

#[test]
fn inspecting_shows_counts_of_findings_shares_of_classes_and_the_spread_of_numbers() {
    let folder = two_clinics();
    let (code, shown, said) = trainer(folder.path(), &["data", "inspect", "experiment.toml"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    insta::assert_snapshot!("inspect", shown);
    let (_, json, _) = trainer(folder.path(), &["data", "inspect", "experiment.toml", "--json"]);
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let splits = json["splits"].as_array().expect("a list");
    let known: u64 = splits
        .iter()
        .filter_map(|split| split["heads"]["age"]["Age"]["numbers"]["count"].as_u64())
        .sum();
    assert_eq!(known, 4, "{json}");
    assert!(splits[0]["heads"]["view"]["PA"]["numbers"].is_null(), "only numbers have a spread");
    for split in splits {
        let age = &split["heads"]["age"]["Age"];
        assert!(age["known"].is_u64() && age["positive"].is_null(), "{age}");
        // The sources of a split are all of it.
        let sources = split["sources"].as_array().expect("a list");
        let sum = |key: &str| sources.iter().filter_map(|source| source[key].as_u64()).sum::<u64>();
        assert_eq!(Some(sum("images")), split["images"].as_u64(), "{split}");
        assert_eq!(Some(sum("patients")), split["patients"].as_u64(), "{split}");
        assert_eq!(sources[1]["heads"]["findings"]["Pleural Effusion"], 0, "{split}");
        assert_eq!(sources[0]["heads"]["age"]["Age"], 0, "{split}");
    }
}

#[test]
fn missing_images_are_counted_and_end_with_the_exit_code_of_data() {
    let folder = two_clinics();
    for image in ["clinic_a/a2.png", "clinic_b/b5.png"] {
        fs::remove_file(folder.path().join(image)).expect("is there");
    }
    let (code, shown, said) = trainer(folder.path(), &["data", "inspect", "experiment.toml"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(shown.contains("missing or unreadable: 2\n"), "{shown}");
    for listed in ["  clinic_a/a2.png (", "  clinic_b/b5.png ("] {
        assert!(shown.contains(listed), "{shown}");
    }
    insta::assert_snapshot!(said, @r#"
    error: 2 of 11 images are missing or cannot be read
      = help: correct the table or `root`, or repair the images; `data.on_bad_image = "skip"` lets a run leave them out
    "#);
    let (code, json, _) = trainer(folder.path(), &["data", "inspect", "experiment.toml", "--json"]);
    assert_eq!(code, Some(3));
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["images"]["unreadable"].as_array().map(Vec::len), Some(2));
    let tables = ["data", "inspect", "experiment.toml", "--tables-only"];
    assert_eq!(trainer(folder.path(), &tables).0, Some(0), "no image was looked for");
}

#[test]
fn an_image_and_a_folder_that_are_not_there_are_told_apart() {
    let folder = two_clinics();
    let run = |overrides: &[&str]| {
        let mut arguments = vec!["data", "cache", "experiment.toml"];
        overrides.iter().for_each(|set| arguments.extend(["--set", set]));
        let (code, _, said) = trainer(folder.path(), &arguments);
        assert_eq!(code, Some(3), "{said}");
        said
    };
    insta::assert_snapshot!(run(&["data.sources[1].csv.root=\"clinicb\""]), @r"
        error: there is no folder `clinicb` (looked in /here)
          = help: did you mean `clinic_b`? correct `data.sources[1].csv.root`, which names it
        ");
    insta::assert_snapshot!(run(&["data.sources[0].csv.table=\"clinic_a/lables.csv\""]), @r"
    error: there is no `clinic_a/lables.csv` (looked in /here)
      = help: `table` names no file; correct its path
    ");
    fs::remove_file(folder.path().join("clinic_b/b5.png")).expect("is there");
    let arguments = ["data", "preview", "experiment.toml", "--out", "x.png", "--count", "200"];
    let sides = ["train", "validation"]
        .map(|side| trainer(folder.path(), &[&arguments[..], &["--split", side]].concat()));
    let (_, _, said) = sides.into_iter().find(|(code, ..)| *code == Some(3)).expect("one side");
    insta::assert_snapshot!(said, @r#"
    error: image `clinic_b/b5.png` (clinic_b/export.csv, line 6): the file does not exist (looked in /here)
      = help: correct the table or the folder in which its paths begin (`root`), or set `data.on_bad_image = "skip"` to leave such images out
    "#);
}
