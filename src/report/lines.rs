//! Events in words: the lines on screen, for terminals and log files alike.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Instant;

use super::remaining::Remaining;
use super::{
    End, EndReason, Epoch, Event, Memory, OutOfMemory, Phase, Progress, SaveReason, SharedBatch,
    SharedModel, Start, Watched,
};
use crate::data::BadImage;
use crate::parallel::{BatchNormOver, OptimizerPlacement};
use crate::screen::{Bytes, columns_of, counted, side_by_side, thousands, visible, wrapped};

/// Says events in words, and the same images only once.
#[derive(Debug, Default)]
pub struct Teller {
    /// The epochs of the run, once it has started.
    pub epochs: usize,
    /// The time that the run has left.
    pub remaining: Remaining,
    /// Path, table and line of the images said to be left out.
    images: HashSet<(PathBuf, PathBuf, u64)>,
}

impl Teller {
    /// What is said at `now` about `event`, if anything, in lines of at most `columns`.
    ///
    /// Passes and their progress are left to [`progress`]. A state saved at an epoch's end is not
    /// worth a line, as every epoch has one.
    pub fn line(&mut self, event: &Event, columns: usize, now: Instant) -> Option<String> {
        let text = match event {
            Event::EpochBegin(_) | Event::Progress(_) | Event::Step { .. } => return None,
            Event::Saved { reason: SaveReason::EpochEnd, .. } => return None,
            Event::Start(start) => {
                self.epochs = start.epochs;
                self.remaining = Remaining::new(start);
                started(start)
            }
            Event::Epoch(epoch) => {
                self.remaining.observe(epoch, now);
                epoch_done(epoch, self.epochs, self.remaining.told(now), columns)
            }
            Event::Saved { folder, epoch, step, .. } => {
                format!("saved {} in epoch {epoch} at step {step}", folder.display())
            }
            Event::Initialized(initial) => initial.to_string(),
            Event::Resumed { folder, epoch, step } => {
                format!("resumed from {} in epoch {epoch} at step {step}", folder.display())
            }
            Event::DamagedState { folder, reason } => {
                let folder = folder.display();
                format!("warning: {folder} cannot be used ({reason}); trying the state before it")
            }
            Event::SkippedStep { epoch, step, reason } => {
                format!("warning: step {step} in epoch {epoch} was left out: {reason}")
            }
            Event::SkippedImages { images } => self.images_skipped(images)?,
            Event::OutOfMemory(out_of_memory) => no_memory(out_of_memory),
            Event::Warning { message } => format!("warning: {message}"),
            Event::EarlyStopped { epoch, metric, best, best_epoch, patience } => {
                stopped_early(*epoch, metric, best.zip(*best_epoch), *patience)
            }
            Event::Interrupted { signal } => format!("{signal}: saving, then stopping"),
            Event::End(end) => ended(end),
        };
        Some(wrapped(&visible(&text), columns, 2))
    }

    fn images_skipped(&mut self, images: &[BadImage]) -> Option<String> {
        const SHOWN: usize = 3;
        let mut new = images.iter().filter(|BadImage { path, table, line, .. }| {
            self.images.insert((path.clone(), table.clone(), *line))
        });
        let mut lines: Vec<String> = new
            .by_ref()
            .take(SHOWN)
            .map(|BadImage { path, table, line, reason }| {
                let (path, table) = (path.display(), table.display());
                format!("warning: {path} ({table}, line {line}) was left out: {reason}")
            })
            .collect();
        let more = new.count();
        if more > 0 {
            lines.push(format!("warning: {more} more left out, see skipped_images.csv"));
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// How far a pass of epoch `epoch` of `epochs` has come; `run` is the time that the run has left.
pub fn progress(progress: &Progress, epoch: usize, epochs: usize, run: Option<&str>) -> String {
    let phase = match progress.phase {
        Phase::Train => "train",
        Phase::Validation => "val",
    };
    let (epoch, percent) = (epoch_of(epoch, epochs), percent(progress));
    let figures = figures(progress, run).into_iter().map(|figure| format!("  {figure}"));
    format!("{epoch}  {phase:5} {percent:3}%{}", figures.collect::<String>())
}

/// Loss, speed and time left of a pass, and of the run, as far as they are known.
pub fn figures(progress: &Progress, run: Option<&str>) -> Vec<String> {
    let Progress { loss, images_per_second: speed, devices, waited, .. } = *progress;
    let left = progress.total_images.saturating_sub(progress.done_images) as f64 / speed;
    let left = left.is_finite().then(|| format!("{} left", duration(left)));
    let run = run.map(|left| format!("(run: {left})"));
    let loss = Some(format!("loss {}", number(Some(loss))));
    [loss, rate_of_all(speed, devices, waited), left, run].into_iter().flatten().collect()
}

/// How much of a pass is done, 0 to 100.
pub fn percent(progress: &Progress) -> usize {
    let percent = progress.done_images.saturating_mul(100).checked_div(progress.total_images);
    percent.unwrap_or(100).min(100)
}

/// `epoch  3/20`, as wide for every epoch.
pub fn epoch_of(epoch: usize, epochs: usize) -> String {
    if epochs == 0 {
        return format!("epoch {epoch}");
    }
    let total = epochs.to_string();
    format!("epoch {epoch:>width$}/{total}", width = total.len())
}

/// The best value so far of the metric watched.
pub fn best_so_far(watched: &Watched) -> Option<String> {
    let (best, epoch) = (watched.best?, watched.best_epoch?);
    Some(format!("best {} {} (epoch {epoch})", metric(&watched.metric), number(Some(best))))
}

/// A duration to about two digits: `4.2s`, `38s`, `1m03s`, `2h05m`, `1d02h`.
pub fn duration(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "?".to_owned();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1}s");
    }
    let (seconds, minutes) = (seconds.round() as u64, (seconds / 60.0).round() as u64);
    match (seconds, minutes) {
        (..60, _) => format!("{seconds}s"),
        (..3600, _) => format!("{}m{:02}s", seconds / 60, seconds % 60),
        (_, ..1440) => format!("{}h{:02}m", minutes / 60, minutes % 60),
        _ => format!("{}d{:02}h", minutes / 1440, minutes % 1440 / 60),
    }
}

/// A loss or metric to three decimals; in powers of ten where these would say little.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "undefined".to_owned(),
        Some(value) if value != 0.0 && value.is_finite() && !(1e-3..1e5).contains(&value.abs()) => {
            format!("{value:.2e}")
        }
        Some(value) => format!("{value:.3}"),
    }
}

fn started(start: &Start) -> String {
    let Start { name, device, parameters, epochs, steps_per_epoch, .. } = start;
    let shared = start.parallel.as_ref().map(|shared| format!("\n{}", told(shared)));
    let pipeline = start.pipeline.as_ref().map(|shared| format!("\n{}", told_of_stages(shared)));
    let memory = start.memory.as_ref().map(|memory| format!("\n{}", memory.told));
    format!(
        "{name} on {device}: {}, {} training and {}, {} of {}{}{}{}",
        counted(*parameters, "parameter", "parameters"),
        thousands(start.train_images),
        counted(start.validation_images, "validation image", "validation images"),
        counted(*epochs, "epoch", "epochs"),
        counted(*steps_per_epoch, "step", "steps"),
        shared.unwrap_or_default(),
        pipeline.unwrap_or_default(),
        memory.unwrap_or_default(),
    )
}

fn told(shared: &SharedBatch) -> String {
    let SharedBatch { devices, copies, batch_size, device_batch_size, batch_norm, optimizer } =
        shared;
    let over = match devices == copies {
        true => format!("{devices} devices"),
        false => format!("{copies} copies of the pipeline"),
    };
    let one = if devices == copies { "device" } else { "copy" };
    let sharded = match optimizer {
        OptimizerPlacement::Replicated => String::new(),
        OptimizerPlacement::Sharded => format!("; 1/{copies} of the optimizer's state on each"),
    };
    format!(
        "data parallel: a batch of {batch_size} over {over}, {device_batch_size} each; BatchNorm over {}{sharded}",
        match (batch_norm, devices == copies) {
            (BatchNormOver::Sync, true) => "the images of all devices".to_owned(),
            (BatchNormOver::Sync, false) => "the images that all copies compute at once".to_owned(),
            (BatchNormOver::Local, _) => format!("the images of each {one}"),
        }
    )
}

fn told_of_stages(shared: &SharedModel) -> String {
    let SharedModel { schedule, stages, micro_batches, bubble } = shared;
    let parts = stages.iter().map(|[first, last]| match first == last {
        true => first.clone(),
        false => format!("{first} … {last}"),
    });
    format!(
        "pipeline: {} over {} devices, {} with {}, {:.0}% of the time idle where all take equally long",
        parts.collect::<Vec<_>>().join(" | "),
        stages.len(),
        schedule.name(),
        counted(*micro_batches, "micro-batch", "micro-batches"),
        100.0 * bubble,
    )
}

/// The essentials first, so that they are in the first line where the rest needs another.
fn epoch_done(epoch: &Epoch, epochs: usize, left: Option<String>, columns: usize) -> String {
    let name = epoch_of(epoch.epoch, epochs);
    // Below the first figure, where there is room.
    let indent = if columns >= 60 { columns_of(&name) + 2 } else { 2 };
    let mut fields = vec![name];
    let mut add = |name: &str, value: Option<f64>, best: bool| {
        let mark = if best { " (best)" } else { "" };
        fields.push(format!("{name} {}{mark}", number(value)));
    };
    let watched = epoch.watched.as_ref();
    let is_watched = |name: &str| watched.is_some_and(|watched| watched.metric == name);
    if let Some(loss) = epoch.train.get("loss") {
        add("train loss", *loss, epoch.best && is_watched("train/loss"));
    }
    if let Some(loss) = epoch.val.get("loss") {
        add("val loss", *loss, epoch.best && is_watched("val/loss"));
    }
    if let Some(watched) = watched
        && !["train/loss", "val/loss"].contains(&watched.metric.as_str())
    {
        add(metric(&watched.metric), watched.value, epoch.best);
    }
    let left = left.map(|left| format!(" ({left} left)")).unwrap_or_default();
    fields.push(format!("{}{left}", duration(epoch.seconds)));
    let count = epoch.devices.len();
    let percent: f64 = epoch.devices.iter().map(|device| device.waited_percent).sum();
    let waited = (count > 0).then(|| percent / 100.0 / count as f64);
    let speed = rate_of_all(epoch.images_per_second, count, waited);
    let rest = [speed, peak(&epoch.memory), left_out(epoch)];
    fields.extend(rest.into_iter().flatten());
    side_by_side(&fields, columns, indent)
}

/// `3 steps left out (loss scale 8192)`, where there are any.
fn left_out(epoch: &Epoch) -> Option<String> {
    let scale = epoch.loss_scale.map(|scale| format!(" (loss scale {scale})")).unwrap_or_default();
    let steps = counted(epoch.skipped_steps, "step", "steps");
    (epoch.skipped_steps > 0).then(|| format!("{steps} left out{scale}"))
}

/// `peak 1.90 GiB of 79.2 GiB (predicted 1.80 GiB)`, as far as it is known.
fn peak(memory: &Memory) -> Option<String> {
    let total = memory.total.map(|total| format!(" of {}", Bytes(total))).unwrap_or_default();
    let predicted = memory.predicted_peak.map(|peak| format!(" (predicted {})", Bytes(peak)));
    Some(format!("peak {}{total}{}", Bytes(memory.peak?), predicted.unwrap_or_default()))
}

fn stopped_early(epoch: usize, metric: &str, best: Option<(f64, usize)>, waited: usize) -> String {
    let best = best.map_or("undefined".to_owned(), |(best, epoch)| {
        format!("{} of epoch {epoch}", number(Some(best)))
    });
    let waited = counted(waited, "epoch", "epochs");
    format!("early stopping after epoch {epoch}: {metric} has not improved on {best} for {waited}")
}

fn no_memory(out_of_memory: &OutOfMemory) -> String {
    let OutOfMemory { epoch, step, requested, memory, advice } = out_of_memory;
    let facts = [("asked for", *requested), ("in use", memory.live), ("reserved", memory.reserved)];
    let known: Vec<String> = facts
        .into_iter()
        .filter_map(|(what, value)| Some(format!("{} {what}", Bytes(value?))))
        .collect();
    let known = if known.is_empty() { String::new() } else { format!(" ({})", known.join(", ")) };
    format!("out of memory at step {step} in epoch {epoch}{known}: {advice}")
}

fn ended(end: &End) -> String {
    let why = match end.reason {
        EndReason::Epochs => "done",
        EndReason::EarlyStopping => "stopped early",
    };
    format!(
        "{why} after {} and {} in {}",
        counted(end.epochs, "epoch", "epochs"),
        counted(end.step, "step", "steps"),
        duration(end.seconds)
    )
}

/// Why there is no best state, where there is none.
pub fn no_best(end: &End, watched: Option<&str>) -> Option<String> {
    let watched = watched.filter(|_| end.best.is_none())?;
    Some(format!("no best state: {watched} had no value in any epoch"))
}

/// `: best findings/auroc 0.894 (epoch 7), weights in …`, or why there is no best state.
pub fn at_end(end: &End, watched: Option<&str>) -> String {
    let best = end.best.as_ref().map(|best| {
        let (metric, value) = (metric(&best.metric), number(Some(best.value)));
        format!("best {metric} {value} (epoch {})", best.values.epoch)
    });
    let best = best.or_else(|| no_best(end, watched));
    let weights = end.weights.as_ref().map(|file| format!("weights in {}", file.display()));
    let parts: Vec<String> = best.into_iter().chain(weights).collect();
    if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) }
}

/// A metric's name without the `val/` that nearly all have.
fn metric(name: &str) -> &str {
    name.strip_prefix("val/").unwrap_or(name)
}

/// The speed of all devices, of each, and the share of the time that they wait for each other.
fn rate_of_all(images_per_second: f64, devices: usize, waited: Option<f64>) -> Option<String> {
    let all = rate(images_per_second)?;
    if devices < 2 {
        return Some(all);
    }
    let each = rate(images_per_second / devices as f64)?;
    let each = each.trim_end_matches(" img/s");
    let waited = waited.map(|share| format!(", {:.0}% waiting", 100.0 * share));
    Some(format!("{all} ({each} a device{})", waited.unwrap_or_default()))
}

fn rate(images_per_second: f64) -> Option<String> {
    match images_per_second {
        speed if !speed.is_finite() || speed <= 0.0 => None,
        speed if speed < 10.0 => Some(format!("{speed:.1} img/s")),
        speed => Some(format!("{speed:.0} img/s")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples;
    use super::*;

    /// A log, which wraps nothing.
    const LOG: usize = usize::MAX;

    fn told(teller: &mut Teller, events: &[Event], columns: usize) -> Vec<String> {
        let now = Instant::now();
        events.iter().filter_map(|event| teller.line(event, columns, now)).collect()
    }

    #[test]
    fn events_read_well() {
        let mut teller = Teller::default();
        let mut events = vec![examples::start(), examples::epoch()];
        events.extend(examples::all_but_epoch().into_iter().skip(1));
        events.push(Event::SkippedImages { images: (1..=7).map(examples::bad_image).collect() });
        let lines: Vec<String> = told(&mut teller, &events, LOG);
        insta::assert_snapshot!(lines.join("\n"), @r#"
        xray on CPU: 6,956,298 parameters, 1,000 training and 100 validation images, 20 epochs of 140 steps
        epoch  3/20  train loss 0.312  val loss 0.298  findings/auroc 0.871 (best)  1m03s (at most 17m44s left)  412 img/s  peak 3.00 GiB
        started from densenet121.pth: 604 tensors taken, features.conv0.weight adapted from 3 to 1 channels; 2 not used: classifier.bias, classifier.weight; 3 tensors of heads drawn at random
        warning: checkpoints/xray/last cannot be used (weights.safetensors differs); trying the state before it
        resumed from checkpoints/xray/last in epoch 3 at step 420
        saved checkpoints/xray/last in epoch 4 at step 500
        warning: step 431 in epoch 4 was left out: the gradient is not finite
        warning: data/patient1.png (data/train.csv, line 2) was left out: not a PNG, "JPEG" or other image
        warning: data/patient2.png (data/train.csv, line 3) was left out: not a PNG, "JPEG" or other image
        out of memory at step 431 in epoch 4 (1.00 GiB asked for, 79.0 GiB reserved): set memory.checkpointing = "sqrt"
        warning: the disk is nearly full
        early stopping after epoch 12: val/findings/auroc has not improved on 0.894 of epoch 7 for 5 epochs
        SIGINT: saving, then stopping
        saved checkpoints/xray/last in epoch 4 at step 510
        stopped early after 12 epochs and 1,680 steps in 1h02m
        warning: data/patient3.png (data/train.csv, line 4) was left out: not a PNG, "JPEG" or other image
        warning: data/patient4.png (data/train.csv, line 5) was left out: not a PNG, "JPEG" or other image
        warning: data/patient5.png (data/train.csv, line 6) was left out: not a PNG, "JPEG" or other image
        warning: 2 more left out, see skipped_images.csv
        "#);
    }

    fn epoch(change: impl FnOnce(&mut Epoch)) -> String {
        let Event::Epoch(mut epoch) = examples::epoch() else { panic!("an epoch") };
        change(&mut epoch);
        epoch_done(&epoch, 20, None, LOG)
    }

    #[test]
    fn lines_fit_every_width() {
        let Event::Epoch(mut epoch) = examples::epoch() else { panic!("an epoch") };
        let (total, predicted_peak) = (Some(80 << 30), Some(3 << 30));
        epoch.memory = Memory { total, predicted_peak, ..epoch.memory };
        (epoch.skipped_steps, epoch.loss_scale) = (1, Some(8192.0));
        let events = [
            examples::start(),
            Event::Epoch(epoch),
            examples::all_but_epoch().swap_remove(9),
            examples::end(),
        ];
        for columns in [40, 80, 120, 200] {
            let text = told(&mut Teller::default(), &events, columns).join("\n");
            assert!(text.lines().all(|line| columns_of(line) <= columns), "{columns}\n{text}");
            insta::assert_snapshot!(format!("lines_{columns}"), text);
        }
    }

    #[test]
    fn one_of_a_thing_is_singular() {
        let start = Start { epochs: 1, steps_per_epoch: 1, parameters: 1, ..Start::default() };
        let start = Start { validation_images: 1, train_images: 1, ..start };
        insta::assert_snapshot!(started(&start), @" on : 1 parameter, 1 training and 1 validation image, 1 epoch of 1 step");
        let Event::End(mut end) = examples::end() else { panic!("an end") };
        (end.epochs, end.step, end.reason) = (1, 1, EndReason::Epochs);
        insta::assert_snapshot!(ended(&end), @"done after 1 epoch and 1 step in 1h02m");
    }

    #[test]
    fn an_undefined_metric_is_called_so() {
        let line = epoch(|epoch| {
            epoch.best = false;
            epoch.watched.as_mut().expect("watched").value = None;
        });
        assert!(line.contains("  findings/auroc undefined  1m03s"), "{line}");
    }

    #[test]
    fn a_watched_loss_is_not_said_twice() {
        let line =
            epoch(|epoch| epoch.watched.as_mut().expect("watched").metric = "val/loss".into());
        assert!(line.contains("train loss 0.312  val loss 0.298 (best)  1m03s"), "{line}");
    }

    #[test]
    fn an_epoch_without_validation_says_nothing_of_it() {
        let line = epoch(|epoch| {
            epoch.val.clear();
            epoch.watched = None;
        });
        assert_eq!(line, "epoch  3/20  train loss 0.312  1m03s  412 img/s  peak 3.00 GiB");
    }

    #[test]
    fn the_peak_stands_beside_what_there_is_and_what_was_foretold() {
        let peak = |memory: Memory| epoch(|epoch| epoch.memory = memory);
        let known = Memory { peak: Some(2_040_109_466), ..Memory::default() };
        let (total, predicted_peak) = (Some(80 << 30), Some(1_932_735_283));
        let ends = |memory, end: &str| {
            let line = peak(memory);
            assert!(line.ends_with(end), "{line}");
        };
        ends(known, "412 img/s  peak 1.90 GiB");
        ends(Memory { total, ..known }, "  peak 1.90 GiB of 80.0 GiB");
        ends(
            Memory { total, predicted_peak, ..known },
            "  peak 1.90 GiB of 80.0 GiB (predicted 1.80 GiB)",
        );
        ends(Memory { predicted_peak, ..known }, "  peak 1.90 GiB (predicted 1.80 GiB)");
        ends(Memory { total, predicted_peak, ..Memory::default() }, "  412 img/s");
    }

    #[test]
    fn durations_carry_over_into_the_next_unit() {
        let cases = [
            (0.04, "0.0s"),
            (9.94, "9.9s"),
            (9.96, "10s"),
            (59.4, "59s"),
            (59.6, "1m00s"),
            (3599.6, "1h00m"),
            (7499.0, "2h05m"),
            (86_399.0, "1d00h"),
            (93_600.0, "1d02h"),
            (f64::NAN, "?"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(duration(seconds), expected);
        }
    }

    #[test]
    fn numbers_show_three_digits_that_say_something() {
        let cases = [
            (0.0, "0.000"),
            (0.8714, "0.871"),
            (-1.5, "-1.500"),
            (0.000_123_4, "1.23e-4"),
            (1234567.0, "1.23e6"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ];
        for (value, expected) in cases {
            assert_eq!(number(Some(value)), expected);
        }
    }

    #[test]
    fn the_time_left_is_unknown_without_a_speed() {
        let Event::Progress(mut at) = examples::progress(0.6) else { panic!("progress") };
        let line = |at: &Progress, run: Option<&str>| progress(at, 3, 20, run);
        let told = "epoch  3/20  train  60%  loss 0.346  12 img/s  32s left";
        assert_eq!(line(&at, None), told);
        assert_eq!(line(&at, Some("at most 17m44s")), format!("{told}  (run: at most 17m44s)"));
        at.images_per_second = 0.0;
        assert_eq!(line(&at, None), "epoch  3/20  train  60%  loss 0.346");
    }
}
