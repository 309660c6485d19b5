//! TensorBoard event files: `events.out.tfevents.<seconds>.<host>.<pid>` in the run folder.
//!
//! Each process writes its own file. Its first records are the version and a session start at the
//! first step that is told (again); TensorBoard drops what earlier files say from that step on.

mod proto;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use prost::Message;

use self::proto::{
    Dimension, PluginData, SESSION_START, STRING_TENSOR, SessionLog, Summary, SummaryMetadata,
    Tensor, TensorShape, Value,
};
use super::append::Appended;
use super::tfrecord::frame;
use super::{Epoch, Event, Memory, Report, ReportError, Values};

/// Writes the scalars of each epoch and of the steps told, and the resolved configuration.
#[derive(Debug)]
pub struct TensorBoard {
    file: Appended,
    path: PathBuf,
}

impl TensorBoard {
    /// A new event file in `folder`, from `first_step` on: 0 for a new run, else as in
    /// [`ResumePoint`](super::ResumePoint).
    ///
    /// # Errors
    ///
    /// When the file cannot be made.
    pub fn create(folder: &Path, first_step: usize) -> Result<Self, ReportError> {
        let path = new_file(folder).map_err(ReportError::at("list", folder))?;
        let create = || {
            let mut file = Appended::create(&path)?;
            file.append(&opening(first_step, seconds()))?;
            Ok(file)
        };
        let file = create().map_err(ReportError::at("create", &path))?;
        Ok(Self { file, path })
    }
}

impl Report for TensorBoard {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        let Some(record) = record(event, seconds()) else { return Ok(()) };
        let written = match event {
            Event::Step { .. } => self.file.add(&record),
            _ => self.file.append(&record),
        };
        written.map_err(ReportError::at("append to", &self.path))
    }
}

/// TensorBoard reads the files of a folder in the order of their names, so the name of a new one
/// must come after all others, also where the clock was set back or a second has not passed.
fn new_file(folder: &Path) -> io::Result<PathBuf> {
    let mut latest = 0_u64;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let seconds = name.strip_prefix(PREFIX).and_then(|rest| rest.split('.').next());
        latest = latest.max(seconds.and_then(|number| number.parse().ok()).unwrap_or(0));
    }
    let seconds = (seconds() as u64).max(latest.saturating_add(1));
    Ok(folder.join(format!("{PREFIX}{seconds:010}.{}.{}", host(), std::process::id())))
}

const PREFIX: &str = "events.out.tfevents.";

fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("COMPUTERNAME").ok())
        .unwrap_or_default();
    let plain: String =
        name.trim().chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
    if plain.is_empty() { "localhost".to_owned() } else { plain }
}

fn seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// The version record and the session start, from whose step on TensorBoard drops what it read
/// before. It takes the first start it reads for that of the run, so a new run writes one too.
fn opening(first_step: usize, wall_time: f64) -> Vec<u8> {
    let version =
        proto::Event { file_version: Some("brain.Event:2".to_owned()), ..stamped(0, wall_time) };
    let session_log = Some(SessionLog { status: SESSION_START });
    let start = proto::Event { session_log, ..stamped(first_step, wall_time) };
    [frame(&version.encode_to_vec()), frame(&start.encode_to_vec())].concat()
}

/// The record that `event` gives, if any.
fn record(event: &Event, wall_time: f64) -> Option<Vec<u8>> {
    let (step, summary) = match event {
        Event::Start(start) if !start.config.is_empty() => {
            let step = start.resumed_from.map_or(0, |place| place.step);
            (step, text("config", &toml_block(&start.config)))
        }
        Event::Epoch(epoch) => (epoch.step, scalars(epoch_values(epoch))),
        Event::Step { step, loss, learning_rate, .. } => {
            let values = [("train/loss_step", *loss), ("learning_rate", Some(*learning_rate))];
            (*step, scalars(values.map(|(tag, value)| (tag.to_owned(), value))))
        }
        _ => return None,
    };
    let event = proto::Event { summary: Some(summary), ..stamped(step, wall_time) };
    Some(frame(&event.encode_to_vec()))
}

/// An `Event` with its time and step.
fn stamped(step: usize, wall_time: f64) -> proto::Event {
    proto::Event { wall_time, step: step as i64, ..proto::Event::default() }
}

/// Every value of an epoch by its tag.
fn epoch_values(epoch: &Epoch) -> impl Iterator<Item = (String, Option<f64>)> + '_ {
    let Memory { live, peak, reserved, smi, predicted_peak, .. } = epoch.memory;
    let bytes = |value: Option<u64>| value.map(|bytes| bytes as f64);
    let rest = [
        ("learning_rate", Some(epoch.learning_rate)),
        ("images_per_second", Some(epoch.images_per_second)),
        ("seconds", Some(epoch.seconds)),
        ("memory/live", bytes(live)),
        ("memory/peak", bytes(peak)),
        ("memory/reserved", bytes(reserved)),
        ("memory/smi", bytes(smi)),
        ("memory/predicted_peak", bytes(predicted_peak)),
    ];
    let devices = epoch.devices.iter().enumerate().flat_map(|(place, device)| {
        let waited = device.waited;
        let values = [
            ("images_per_second", Some(device.images_per_second)),
            ("waited_percent", Some(device.waited_percent)),
            ("waited/gradients", waited.gradients),
            ("waited/norms", waited.norms),
            ("waited/stages", Some(waited.stages)),
        ];
        values.map(|(tag, value)| (format!("devices/{place}/{tag}"), value))
    });
    named("train", &epoch.train)
        .chain(named("val", &epoch.val))
        .chain(rest.map(|(tag, value)| (tag.to_owned(), value)))
        .chain(devices)
}

/// A `Summary` with the values that are defined.
fn scalars(values: impl IntoIterator<Item = (String, Option<f64>)>) -> Summary {
    let defined = values
        .into_iter()
        .filter_map(|(tag, value)| Some((tag, value? as f32)))
        .filter(|(_, value)| value.is_finite());
    let value = |(tag, value)| Value { tag, simple_value: Some(value), ..Value::default() };
    Summary { value: defined.map(value).collect() }
}

fn named<'a>(
    phase: &'a str,
    values: &'a Values,
) -> impl Iterator<Item = (String, Option<f64>)> + 'a {
    values.iter().map(move |(name, value)| (format!("{phase}/{name}"), *value))
}

/// A `Summary` with what TensorBoard's text page shows, as Markdown.
fn text(tag: &str, markdown: &str) -> Summary {
    let tensor = Tensor {
        dtype: STRING_TENSOR,
        tensor_shape: Some(TensorShape { dim: vec![Dimension { size: 1 }] }),
        string_val: vec![markdown.as_bytes().to_vec()],
    };
    let plugin_data = Some(PluginData { plugin_name: "text".to_owned() });
    let value = Value {
        tag: tag.to_owned(),
        simple_value: None,
        tensor: Some(tensor),
        metadata: Some(SummaryMetadata { plugin_data }),
    };
    Summary { value: vec![value] }
}

fn toml_block(config: &str) -> String {
    format!("```toml\n{}\n```", config.trim_end())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::{Start, examples};
    use super::*;
    use std::process::Command;

    /// The event file that the tensorboard package writes for the same events
    /// (tests/fixtures/tensorboard_events.py), in hexadecimal.
    const FIXTURE: &str = include_str!("../../tests/fixtures/tensorboard_events.json");

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_bytes_are_those_of_the_tensorboard_package() {
        let fixture: serde_json::Value = serde_json::from_str(FIXTURE).unwrap();
        let mut undefined = examples::epoch();
        let Event::Epoch(epoch) = &mut undefined else { panic!("an epoch") };
        epoch.val.insert("loss".to_owned(), Some(f64::NAN));
        let ours = [
            opening(420, 1700000000.25),
            record(&examples::start(), 1700000001.5).unwrap(),
            record(&undefined, 1700000002.75).unwrap(),
            record(&examples::step(), 1700000003.5).unwrap(),
        ];
        let ours = ours.map(|record| hex(&record));
        assert_eq!(serde_json::json!(ours), fixture["records"]);
    }

    #[test]
    fn a_file_made_later_has_a_name_that_sorts_later() {
        let folder = tempfile::tempdir().unwrap();
        let ahead = folder.path().join("events.out.tfevents.4000000000.host.1");
        fs::write(&ahead, "").unwrap();
        let first = TensorBoard::create(folder.path(), 0).unwrap().path;
        let second = TensorBoard::create(folder.path(), 420).unwrap().path;
        assert!(ahead < first && first < second, "{first:?} {second:?}");
    }

    #[test]
    fn events_without_scalars_write_nothing() {
        assert_eq!(record(&examples::progress(0.5), 0.0), None);
        assert_eq!(record(&Event::Start(Start::default()), 0.0), None);
    }

    /// Run with `PYTHON=… cargo test --lib tensorboard_reads -- --ignored`.
    #[test]
    #[ignore = "needs Python with the tensorboard package"]
    fn tensorboard_reads_a_run_that_was_killed_and_resumed_as_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut killed = TensorBoard::create(folder.path(), 0).unwrap();
        killed.event(&examples::start()).unwrap();
        for (epoch, step) in [(1, 140), (2, 280), (3, 420)] {
            killed.event(&examples::step_at(step)).unwrap();
            killed.event(&examples::epoch_at(epoch, step)).unwrap();
        }
        let mut resumed = TensorBoard::create(folder.path(), 281).unwrap();
        for (epoch, step) in [(3, 420), (4, 560)] {
            resumed.event(&examples::step_at(step)).unwrap();
            resumed.event(&examples::epoch_at(epoch, step)).unwrap();
        }
        let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".to_owned());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let output = Command::new(python)
            .arg(script.join("read_tensorboard.py"))
            .arg(folder.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        for reader in ["event_accumulator", "plugin_event_accumulator"] {
            let points = |tag: &str| read[reader]["scalars"][tag].clone();
            let loss = f64::from(0.298_f32);
            let expected = [140, 280, 420, 560].map(|step| serde_json::json!([step, loss]));
            assert_eq!(points("val/loss"), serde_json::json!(expected), "{reader}");
            let expected = [140, 280, 420, 560].map(|step| serde_json::json!([step, 0.3125]));
            assert_eq!(points("train/loss_step"), serde_json::json!(expected), "{reader}");
            assert_eq!(points("val/findings/auroc/Edema"), serde_json::Value::Null);
            assert_eq!(points("memory/peak")[0][1], 3_221_225_472.0);
            assert_eq!(read[reader]["texts"]["config"], "```toml\n[run]\nname = \"xray\"\n```");
        }
    }
}
