//! Memory over a training step: a trace of the run's own step, kept beside the page.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::figure::{Figure, Table, chosen};
use crate::report::{Chart, Curve, Shape};
use crate::screen::Bytes;

/// A traced step as a run's folder has it: the JSON of a strategy, as `trainer trace` writes it.
#[derive(Debug, Clone, Deserialize)]
pub struct TracedStep {
    batch_size: usize,
    micro_batch: usize,
    peak: Option<u64>,
    marks: Vec<TracedMark>,
}

#[derive(Debug, Clone, Deserialize)]
struct TracedMark {
    label: String,
    seconds: f64,
    live: Option<u64>,
}

impl TracedStep {
    /// The file's name.
    pub const FILE: &str = "trace.json";

    /// That in the folder of a run, where there is one that can be read.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = fs::read_to_string(folder.join(Self::FILE)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Its memory beside the peak that was `estimated`; nothing where the device tells no memory.
    pub(super) fn figure(&self, estimated: Option<u64>) -> Option<Figure> {
        let mebibytes = |bytes: u64| Bytes(bytes).mebibytes();
        let point = |mark: &TracedMark| Some((mark.seconds * 1e3, mebibytes(mark.live?)));
        let points: Vec<(f64, f64)> = self.marks.iter().filter_map(point).collect();
        let (first, last) = (points.first()?.0, points.last()?.0);
        let level = |name: &str, bytes: Option<u64>| {
            let bytes = bytes?;
            let (name, figure) = (name.to_owned(), Bytes(bytes).to_string());
            let points = vec![(first, mebibytes(bytes)), (last, mebibytes(bytes))];
            Some(Curve { name, figure, shape: Shape::Line, points })
        };
        let (name, figure) = ("memory in use".to_owned(), String::new());
        let in_use = Curve { name, figure, shape: Shape::Steps, points };
        let levels = [level("measured peak", self.peak), level("estimated peak", estimated)];
        let title = "Memory over a training step".to_owned();
        let chart = Chart {
            title: title.clone(),
            x: "time, ms".to_owned(),
            y: "memory in use, MiB".to_owned(),
            from_zero: true,
            names: Vec::new(),
            curves: [in_use].into_iter().chain(levels.into_iter().flatten()).collect(),
        };
        let mut table = Table::new(title, ["event", "ms", "MiB"], 1);
        for row in chosen(self.marks.len(), |_| false) {
            let TracedMark { label, seconds, live } = &self.marks[row];
            let live = live.map(|live| format!("{:.1}", mebibytes(live))).unwrap_or_default();
            table.rows.push(vec![label.clone(), format!("{:.1}", seconds * 1e3), live]);
        }
        let note = format!(
            "A step on a made-up batch of {}, {} at once, taken when the training had ended, as the command \
             trainer trace takes it.",
            self.batch_size, self.micro_batch
        );
        Some(Figure::new("f-step", &chart, note, table))
    }
}
