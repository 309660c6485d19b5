//! A row of a sweep: what one combination took.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The value of each swept key.
pub type Set = BTreeMap<String, toml::Value>;

/// How a combination ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was measured.
    Ok,
    /// It does not fit in memory.
    OutOfMemory,
    /// Anything else; measured anew when the sweep is started again.
    Failed,
}

impl Status {
    /// As a person reads it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OutOfMemory => "out of memory",
            Self::Failed => "failed",
        }
    }
}

/// What one combination took; `None` is unknown. Bytes are bytes.
///
/// The names of the fields are those that others' scripts read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The value of each swept key.
    pub set: Set,
    /// How it ended.
    pub status: Status,
    /// Bytes in use between two steps; of a combination that was trained, at the end of an epoch.
    pub live: Option<u64>,
    /// The most bytes in use within a step, or in the whole training.
    pub peak: Option<u64>,
    /// Bytes that the allocator held.
    pub reserved: Option<u64>,
    /// Bytes of the process, as `nvidia-smi` reports them.
    pub smi: Option<u64>,
    /// The bytes that were asked for when memory ran out, where the error says.
    pub oversubscribed: Option<u64>,
    /// The peak in percent of the reference's.
    pub percent: Option<f64>,
    /// What `nvidia-smi` reports in percent of the reference's.
    pub smi_percent: Option<f64>,
    /// Whether it is the reference.
    #[serde(default)]
    pub reference: bool,
    /// The peak that was predicted.
    #[serde(default)]
    pub predicted_peak: Option<u64>,
    /// Operations done twice, in percent of those of a step without recomputation.
    #[serde(default)]
    pub recomputed_percent: Option<f64>,
    /// Milliseconds a step: the median over the second half of the steps.
    pub ms_per_step: Option<f64>,
    /// Images a second in that step; of a combination that was trained, the median over its epochs.
    pub images_per_second: Option<f64>,
    /// The loss of the last step's batch.
    pub loss: Option<f64>,
    /// The device.
    pub device: Option<String>,
    /// Why it was not measured.
    pub message: Option<String>,
    /// The exit code of a combination that failed.
    pub exit_code: Option<i32>,
    /// The metric watched, where the combination was trained.
    #[serde(default)]
    pub metric: Option<String>,
    /// Its best value.
    #[serde(default)]
    pub best: Option<f64>,
    /// The epoch of the best value, counted from 1.
    #[serde(default)]
    pub best_epoch: Option<usize>,
    /// Its value in the last epoch.
    #[serde(default)]
    pub last: Option<f64>,
    /// Epochs trained.
    #[serde(default)]
    pub epochs: Option<usize>,
    /// Seconds of training and evaluation.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// The run folder.
    #[serde(default)]
    pub run: Option<String>,
}

impl Row {
    /// A row that knows only how it ended.
    pub fn new(set: Set, status: Status) -> Self {
        Self {
            set,
            status,
            live: None,
            peak: None,
            reserved: None,
            smi: None,
            oversubscribed: None,
            percent: None,
            smi_percent: None,
            reference: false,
            predicted_peak: None,
            recomputed_percent: None,
            ms_per_step: None,
            images_per_second: None,
            loss: None,
            device: None,
            message: None,
            exit_code: None,
            metric: None,
            best: None,
            best_epoch: None,
            last: None,
            epochs: None,
            seconds: None,
            run: None,
        }
    }
}

/// Fills in the percentages of all rows, those of `rows` and of `others`: of the row with the values
/// `reference`, or of the first that was measured.
pub fn relate(rows: &mut [Row], others: &mut [Row], reference: Option<&Set>) {
    let is_it = |row: &Row| match reference {
        Some(set) => row.set == *set,
        None => row.status == Status::Ok,
    };
    let found = rows.iter().chain(others.iter()).position(is_it);
    let of = found.and_then(|place| rows.iter().chain(others.iter()).nth(place));
    let (peak, smi) = of.map_or((None, None), |row| (row.peak, row.smi));
    let percent = |bytes: Option<u64>, of: Option<u64>| match (bytes, of) {
        (Some(bytes), Some(of)) if of > 0 => Some(bytes as f64 / of as f64 * 100.0),
        _ => None,
    };
    for (place, row) in rows.iter_mut().chain(others).enumerate() {
        row.percent = percent(row.peak, peak);
        row.smi_percent = percent(row.smi, smi);
        row.reference = found == Some(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(status: Status, peak: Option<u64>, smi: Option<u64>) -> Row {
        Row { peak, smi, ..Row::new(Set::new(), status) }
    }

    fn set(segments: i64) -> Set {
        Set::from([("segments".to_owned(), segments.into())])
    }

    #[test]
    fn percentages_are_of_the_first_that_fits_or_of_the_one_asked_for() {
        // Experiment 6: no segments run out of memory; 2, 4 and 8 of them.
        let mut all = [
            row(Status::OutOfMemory, None, None),
            row(Status::Ok, Some(6033), Some(7212)),
            row(Status::Ok, Some(4350), Some(6000)),
            row(Status::Ok, Some(3777), Some(5428)),
        ];
        for (segments, row) in all.iter_mut().enumerate() {
            row.set = set(segments as i64);
        }
        // The percentages do not depend on which of the rows are of the grid.
        for count in 0..=all.len() {
            let mut related = |reference: Option<&Set>| -> Vec<Option<String>> {
                let (rows, others) = all.split_at_mut(count);
                relate(rows, others, reference);
                all.iter().map(|row| row.smi_percent.map(|p| format!("{p:.1}"))).collect()
            };
            let text = |text: &str| Some(text.to_owned());
            assert_eq!(related(None), [None, text("100.0"), text("83.2"), text("75.3")]);
            assert_eq!(related(Some(&set(3)))[3], text("100.0"));
            assert_eq!(related(Some(&set(0))), [None, None, None, None]);
            related(Some(&set(3)));
            assert_eq!(all[1].percent.map(|p| p.round()), Some(160.0));
            let references: Vec<bool> = all.iter().map(|row| row.reference).collect();
            assert_eq!(references, [false, false, false, true]);
        }
    }

    #[test]
    fn what_machines_read_keeps_its_names() {
        let mut row = row(Status::OutOfMemory, Some(1), None);
        row.set.insert("memory.precision".to_owned(), toml::Value::String("bf16".to_owned()));
        let json = serde_json::to_value(&row).expect("is JSON");
        assert_eq!(json["set"]["memory.precision"], "bf16");
        assert_eq!(json["status"], "out_of_memory");
        let names = ["live", "reserved", "smi", "ms_per_step", "images_per_second", "loss"];
        for name in names {
            assert_eq!(json.get(name), Some(&serde_json::Value::Null), "{name}");
        }
        assert_eq!(serde_json::from_value::<Row>(json).expect("reads back"), row);
    }
}
