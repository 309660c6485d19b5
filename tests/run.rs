//! Protects what a person has from a run that cannot be: nothing is made or removed before everything
//! is looked at, nothing is trained on what is not there, and what is not as expected is said.

#[path = "run/checks.rs"]
mod checks;
#[path = "run/devices.rs"]
mod devices;
#[path = "run/export.rs"]
mod export;
#[path = "run/habits.rs"]
mod habits;
#[path = "run/labels.rs"]
mod labels;
#[path = "run/resume.rs"]
mod resume;
#[path = "run/saves.rs"]
mod saves;
#[path = "run/weights.rs"]
mod weights;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const CONFIG: &str = r#"
[run]
name = "small"
output = "runs"
seed = 5
[device]
use = "cpu"
[data]
image = { size = [32, 32] }
workers = 1
[data.csv]
table = "t.csv"
image = "image"
patient = "patient"
split = "split"
[model.densenet]
growth = 4
blocks = [1, 1]
stem = 4
norm = "group"
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Edema", "Mass"]
[train]
epochs = 2
batch_size = 4
[train.optimizer.sgd]
lr = 0.01
"#;

/// A folder with a table, its images and a configuration, in which the program is started.
struct Experiment {
    folder: tempfile::TempDir,
}

/// What the program has told, and how it ended.
struct Told {
    code: Option<i32>,
    /// Standard error.
    text: String,
    /// Standard output.
    printed: String,
}

impl Told {
    fn warnings(&self) -> String {
        let lines = self.text.lines().filter(|line| line.starts_with("warning: "));
        lines.collect::<Vec<_>>().join("\n")
    }
}

impl Experiment {
    /// Six training and four validation images, of as many patients, with both labels in both lists.
    fn new() -> Self {
        let made = Self { folder: tempfile::tempdir().expect("is made") };
        let row = |number: usize| {
            let list = if number < 6 { "train" } else { "valid" };
            let (edema, mass) = (number % 2, number / 2 % 2);
            format!("images/{number}.png,p{number},{list},{edema},{mass}")
        };
        fs::create_dir(made.path("images")).expect("is made");
        (0..10).for_each(|number| made.draw(&format!("images/{number}.png"), number));
        made.write_rows(&(0..10).map(row).collect::<Vec<_>>());
        fs::write(made.path("a.toml"), CONFIG).expect("is written");
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn draw(&self, name: &str, number: usize) {
        let level = |place: usize| (place % 40 * 3 + place / 40 * 5 + 23 * number) as u8;
        let pixels: Vec<u8> = (0..40 * 36).map(level).collect();
        let file = fs::File::create(self.path(name)).expect("is made");
        let mut encoder = png::Encoder::new(file, 40, 36);
        encoder.set_color(png::ColorType::Grayscale);
        let mut writer = encoder.write_header().expect("is written");
        writer.write_image_data(&pixels).expect("is written");
    }

    fn write_rows(&self, rows: &[String]) {
        let text = format!("image,patient,split,Edema,Mass\n{}\n", rows.join("\n"));
        fs::write(self.path("t.csv"), text).expect("is written");
    }

    /// The rows of the table, without its header.
    fn rows(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("t.csv")).expect("reads");
        text.lines().skip(1).map(str::to_owned).collect()
    }

    /// Runs the configuration with these arguments after `run a.toml`.
    fn run(&self, arguments: &[&str]) -> Told {
        self.told(&[&["run", "a.toml"], arguments].concat())
    }

    /// What the program tells, started with these arguments.
    fn told(&self, arguments: &[&str]) -> Told {
        let mut command = Command::new(env!("CARGO_BIN_EXE_trainer"));
        let output = command.current_dir(self.folder.path()).args(arguments).output();
        let output = output.expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("is UTF-8");
        let (text, printed) = (text(output.stderr), text(output.stdout));
        Told { code: output.status.code(), text, printed }
    }

    /// Runs it to its end.
    fn trained(&self, arguments: &[&str]) -> Told {
        let told = self.run(arguments);
        assert_eq!(told.code, Some(0), "{}", told.text);
        told
    }

    /// What it is refused with.
    fn refused(&self, code: i32, arguments: &[&str]) -> String {
        let told = self.run(arguments);
        assert_eq!(told.code, Some(code), "{}", told.text);
        told.text
    }

    /// The events in `metrics.jsonl` of this name.
    fn events(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.path("runs/small/metrics.jsonl")).expect("reads");
        let events = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        events.filter(|event| event["event"] == name).collect()
    }

    /// Everything below a folder.
    fn files(&self, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut files = BTreeMap::new();
        gather(&self.path(name), &mut files);
        files.retain(|path, _| !path.ends_with(".lock"));
        files
    }
}

fn gather(folder: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).expect("lists") {
        let path = entry.expect("is read").path();
        match path.is_dir() {
            true => gather(&path, files),
            false => drop(files.insert(path.clone(), fs::read(path).expect("reads"))),
        }
    }
}
