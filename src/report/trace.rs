//! The memory of one training step, module by module: as text, as JSON and as a picture.

use std::fmt::Write;

use serde_json::{Value, json};

use super::courses::{DeviceCourse, lines};
use super::{Chart, Curve};
use crate::memory::measure::{Mark, MemoryUse, PeakKind, Timeline};
use crate::screen::{Bytes, counted};

/// A training step under one strategy, with its memory after every event.
#[derive(Debug, Clone)]
pub struct StepTrace {
    /// What the legend calls it.
    pub strategy: String,
    /// The keys that make the strategy, with their values.
    pub set: serde_json::Map<String, Value>,
    /// The model in words.
    pub model: String,
    /// Images of the step, their channels, height and width.
    pub images: [usize; 4],
    /// Images that are on their way through the model at once.
    pub at_once: usize,
    /// The device as a person knows it.
    pub device: String,
    /// As the configuration calls it.
    pub precision: String,
    /// What was used in the step, between events too.
    pub memory: MemoryUse,
    /// Why the step is not whole, or was begun again with fewer images at once.
    pub failure: Option<StepFailure>,
    /// The events.
    pub timeline: Timeline,
    /// What each device does, where there are several; the rest is of the first.
    pub devices: Vec<DeviceCourse>,
}

/// Why a traced step is not whole, or was begun again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepFailure {
    /// Whether memory did not suffice.
    pub out_of_memory: bool,
    /// For the user.
    pub message: String,
}

impl StepTrace {
    /// A head with what was traced, then a line for each event, as [`Timeline::lines`].
    pub fn to_log(&self) -> String {
        let [batch, channels, height, width] = self.images;
        let images = counted(batch, "image", "images");
        let images = format!("{images} of {channels}×{height}×{width}");
        let batch = match self.at_once < batch {
            true => format!("{images}, {} at once", self.at_once),
            false => images,
        };
        let mut log = String::new();
        let mut line = |name: &str, text: &str| {
            let _ = writeln!(log, "# {name:10} {text}");
        };
        line("strategy", &self.strategy);
        line("model", &self.model);
        line("batch", &batch);
        line("device", &self.device);
        line("precision", &self.precision);
        line("peak", &self.peak());
        if let Some(failure) = &self.failure {
            let message = failure.message.replace('\n', " ");
            line(if failure.out_of_memory { "memory" } else { "error" }, &message);
        }
        if !self.devices.is_empty() {
            log += &lines(&self.devices);
        }
        log.push('\n');
        log.push_str(&self.timeline.lines());
        log
    }

    /// The most in use, and over which moments it was taken.
    pub fn peak(&self) -> String {
        let Some(peak) = self.memory.peak else { return "not known on this device".to_owned() };
        let over = match self.memory.peak_kind {
            Some(PeakKind::Allocator) => "over every allocation",
            Some(PeakKind::Launches) => "over every kernel's launch",
            Some(PeakKind::Sampled) | None => "over the events below",
        };
        format!("{:.1} MiB, {over}", Bytes(peak).mebibytes())
    }

    /// For machines; bytes and seconds.
    pub fn to_json(&self) -> Value {
        let mut before = None;
        let mark = |mark: &Mark| {
            let change = mark.live.zip(before).map(|(now, before): (u64, u64)| {
                i64::try_from(i128::from(now) - i128::from(before)).unwrap_or_default()
            });
            before = mark.live;
            let Mark { label, depth, seconds, live } = mark;
            json!({
                "label": label, "depth": depth, "seconds": seconds, "live": live, "change": change,
            })
        };
        let marks: Vec<Value> = self.timeline.marks.iter().map(mark).collect();
        let status = match &self.failure {
            None => "ok",
            Some(StepFailure { out_of_memory: true, .. }) => "out_of_memory",
            Some(_) => "failed",
        };
        let mut json = json!({
            "strategy": self.strategy,
            "set": self.set,
            "status": status,
            "message": self.failure.as_ref().map(|failure| &failure.message),
            "model": self.model,
            "batch_size": self.images[0],
            "micro_batch": self.at_once,
            "image": self.images[1..],
            "device": self.device,
            "precision": self.precision,
            "peak": self.memory.peak,
            "peak_kind": self.memory.peak_kind,
            "marks": marks,
        });
        if !self.devices.is_empty() {
            json["devices"] = json!(self.devices);
        }
        json
    }

    /// The memory over the steps as an SVG file, one curve each.
    pub fn to_svg(title: &str, traces: &[Self]) -> String {
        let curve = |trace: &Self| Curve::memory(&trace.strategy, trace.reached(), &trace.timeline);
        Chart {
            title: title.to_owned(),
            x: "time, ms".to_owned(),
            y: "memory in use, MiB".to_owned(),
            from_zero: false,
            names: Vec::new(),
            curves: traces.iter().map(curve).collect(),
        }
        .to_svg()
    }

    /// The peak and the time, for the legend.
    fn reached(&self) -> String {
        let marks = &self.timeline.marks;
        let peak = self.memory.peak.max(marks.iter().filter_map(|mark| mark.live).max());
        let peak = peak.map(|bytes| format!("peak {:.0} MiB", Bytes(bytes).mebibytes()));
        let time = marks.last().map(|mark| format!("{:.0} ms", mark.seconds * 1e3));
        let end = match &self.failure {
            Some(StepFailure { out_of_memory: true, .. }) => Some("out of memory".to_owned()),
            Some(_) => Some("failed".to_owned()),
            None => None,
        };
        [peak, time, end].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
