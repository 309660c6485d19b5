//! One combination, trained by a child process: `trainer run` in a run folder of the sweep's.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::folder::SweepError;
use super::row::Row;
use crate::plan::Plan;
use crate::run::{LockError, RunLock, Stop, state};

/// Whether the run folder at `path` holds a state to go on from.
pub(super) fn can_go_on(path: &Path) -> bool {
    state::any_in(path)
}

/// Waits until no process has the run folder at `path`: the child of a sweep that was killed ends a
/// moment after it. One that does not end keeps the folder, and the next child says so.
pub(super) fn wait_until_free(path: &Path, stop: &Stop) -> Result<(), SweepError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let begin = Instant::now();
    while path.is_dir() && stop.requested().is_none() {
        match RunLock::acquire(path) {
            Err(LockError::Held { .. }) if begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Ok(_) | Err(LockError::Held { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// `plan` with its run folder in `runs` and called `name`.
pub(super) fn plan_in(plan: &Plan, runs: &Path, name: &str) -> Plan {
    let mut plan = plan.clone();
    (plan.run.output, plan.run.name) = (runs.to_owned(), name.to_owned());
    plan
}

/// A line of `metrics.jsonl`, as far as it is needed.
#[derive(Debug, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    Start {
        device: String,
        memory: Option<Started>,
    },
    Epoch(Box<Epoch>),
    End {
        epochs: usize,
        seconds: f64,
        best: Option<Best>,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
struct Started {
    recompute_percent: f64,
}

#[derive(Debug, Deserialize)]
struct Epoch {
    images_per_second: Option<f64>,
    memory: Memory,
    watched: Option<Watched>,
}

#[derive(Debug, Deserialize)]
struct Memory {
    live: Option<u64>,
    peak: Option<u64>,
    reserved: Option<u64>,
    smi: Option<u64>,
    predicted_peak: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Watched {
    metric: String,
    value: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Best {
    value: f64,
    epoch: usize,
}

/// Fills in `row` from the `metrics.jsonl` of the run in `folder`, which has come to its end.
///
/// # Errors
/// When the file cannot be read or does not tell of an end, in words.
pub(super) fn fill_in(row: &mut Row, folder: &Path) -> Result<(), String> {
    let file = folder.join("metrics.jsonl");
    let text = std::fs::read_to_string(&file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    row.run = Some(folder.display().to_string());
    let mut speeds = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |error| format!("{}, line {}: {error}", file.display(), number + 1);
        match serde_json::from_str(line).map_err(at)? {
            Line::Start { device, memory } => {
                row.device = Some(device);
                row.recomputed_percent = memory.map(|memory| memory.recompute_percent);
            }
            Line::Epoch(epoch) => {
                speeds.extend(epoch.images_per_second);
                let Memory { live, peak, reserved, smi, predicted_peak } = epoch.memory;
                row.live = row.live.max(live);
                row.peak = row.peak.max(peak);
                row.reserved = row.reserved.max(reserved);
                row.smi = row.smi.max(smi);
                row.predicted_peak = row.predicted_peak.max(predicted_peak);
                if let Some(Watched { metric, value }) = epoch.watched {
                    (row.metric, row.last) = (Some(metric), value);
                }
            }
            Line::End { epochs, seconds, best } => {
                (row.epochs, row.seconds) = (Some(epochs), Some(seconds));
                row.best = best.as_ref().map(|best| best.value);
                row.best_epoch = best.map(|best| best.epoch);
            }
            Line::Other => {}
        }
    }
    speeds.sort_by(f64::total_cmp);
    row.images_per_second = speeds.get(speeds.len() / 2).copied();
    match row.epochs {
        Some(_) => Ok(()),
        None => Err(format!("{} does not contain the end of the run", file.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::row::{Set, Status};

    const METRICS: &str = r#"{"event":"start","device":"cpu","memory":{"recompute_percent":12.5}}
{"event":"epoch","epoch":1,"images_per_second":10.0,"memory":{"live":5,"peak":90,"reserved":null,"smi":null,"predicted_peak":80},"watched":{"metric":"val/loss","value":0.5,"best":0.5,"best_epoch":1}}
{"event":"saved","folder":"last","epoch":1,"step":3,"reason":"epoch_end"}
{"event":"epoch","epoch":2,"images_per_second":30.0,"memory":{"live":6,"peak":70,"reserved":null,"smi":null,"predicted_peak":80},"watched":{"metric":"val/loss","value":0.75,"best":0.5,"best_epoch":1}}
"#;
    const END: &str = r#"{"event":"end","epochs":2,"step":6,"seconds":4.5,"reason":"epochs","best":{"metric":"val/loss","value":0.5,"epoch":1,"train":{},"val":{}},"last":{},"undefined":{},"weights":null}"#;

    fn filled(text: &str) -> (Row, Result<(), String>) {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("metrics.jsonl"), text).expect("is written");
        let mut row = Row::new(Set::new(), Status::Ok);
        let done = fill_in(&mut row, folder.path());
        (row, done)
    }

    #[test]
    fn a_row_has_the_best_and_the_last_value_and_the_most_memory() {
        let (row, done) = filled(&format!("{METRICS}{END}\n"));
        assert_eq!(done, Ok(()));
        assert_eq!(
            (row.metric.as_deref(), row.best, row.last),
            (Some("val/loss"), Some(0.5), Some(0.75))
        );
        assert_eq!((row.best_epoch, row.epochs, row.seconds), (Some(1), Some(2), Some(4.5)));
        assert_eq!((row.live, row.peak, row.predicted_peak), (Some(6), Some(90), Some(80)));
        assert_eq!((row.images_per_second, row.recomputed_percent), (Some(30.0), Some(12.5)));
    }

    #[test]
    fn a_run_without_an_end_is_no_row() {
        let (_, done) = filled(METRICS);
        assert!(done.expect_err("has no end").contains("does not contain the end"));
        let (_, done) = filled("{\"event\":\"start\"");
        assert!(done.expect_err("is torn").contains("metrics.jsonl, line 1"));
    }
}
