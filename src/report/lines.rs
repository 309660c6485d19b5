//! Events in words: the lines on screen, for terminals and log files alike.

use std::collections::HashSet;
use std::path::PathBuf;

use super::{
    End, EndReason, Epoch, Event, Memory, OutOfMemory, Phase, Progress, SaveReason, Start, Watched,
};
use crate::data::BadImage;

/// Says events in words, and the same images only once.
#[derive(Debug, Default)]
pub struct Teller {
    /// The epochs of the run, once it has started.
    pub epochs: usize,
    /// Path, table and line of the images said to be left out.
    images: HashSet<(PathBuf, PathBuf, u64)>,
}

impl Teller {
    /// What is said about `event`, if anything.
    ///
    /// Passes and their progress are left to [`progress`]. A state saved at an epoch's end is not
    /// worth a line, as every epoch has one.
    pub fn line(&mut self, event: &Event) -> Option<String> {
        Some(match event {
            Event::EpochBegin(_) | Event::Progress(_) | Event::Step { .. } => return None,
            Event::Saved { reason: SaveReason::EpochEnd, .. } => return None,
            Event::Start(start) => {
                self.epochs = start.epochs;
                started(start)
            }
            Event::Epoch(epoch) => epoch_done(epoch, self.epochs),
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
            Event::SkippedImages { images } => return self.images_skipped(images),
            Event::OutOfMemory(out_of_memory) => no_memory(out_of_memory),
            Event::Warning { message } => format!("warning: {message}"),
            Event::EarlyStopped { epoch, metric, best, best_epoch, patience } => {
                stopped_early(*epoch, metric, best.zip(*best_epoch), *patience)
            }
            Event::Interrupted { signal } => format!("{signal}: saving, then stopping"),
            Event::End(end) => ended(end),
        })
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

/// How far a pass of epoch `epoch` has come.
pub fn progress(progress: &Progress, epoch: usize, epochs: usize) -> String {
    let phase = match progress.phase {
        Phase::Train => "train",
        Phase::Validation => "val",
    };
    let (epoch, percent) = (epoch_of(epoch, epochs), percent(progress));
    format!("{epoch}  {phase:5} {percent:3}%{}", figures(progress))
}

/// Loss, speed and time left of a pass.
pub fn figures(progress: &Progress) -> String {
    let Progress { loss, images_per_second: speed, .. } = *progress;
    let left = progress.total_images.saturating_sub(progress.done_images) as f64 / speed;
    let left = if left.is_finite() { format!("  {} left", duration(left)) } else { String::new() };
    format!("  loss {}{}{left}", number(Some(loss)), rate(speed))
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
    let memory = start.memory.as_ref().map(|memory| format!("\n{}", memory.told));
    format!(
        "{name} on {device}: {} parameters, {} training and {} validation images, {epochs} {} of \
         {steps_per_epoch} steps{}",
        thousands(*parameters),
        thousands(start.train_images),
        thousands(start.validation_images),
        plural(*epochs, "epoch", "epochs"),
        memory.unwrap_or_default(),
    )
}

fn epoch_done(epoch: &Epoch, epochs: usize) -> String {
    let mut line = epoch_of(epoch.epoch, epochs);
    let mut add = |name: &str, value: Option<f64>, best: bool| {
        let mark = if best { " (best)" } else { "" };
        line.push_str(&format!("  {name} {}{mark}", number(value)));
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
    line.push_str(&rate(epoch.images_per_second));
    line.push_str(&format!("  {}", duration(epoch.seconds)));
    line.push_str(&peak(&epoch.memory));
    line.push_str(&left_out(epoch));
    line
}

/// `  3 steps left out (loss scale 8192)`, where there are any.
fn left_out(epoch: &Epoch) -> String {
    let scale = epoch.loss_scale.map(|scale| format!(" (loss scale {scale})")).unwrap_or_default();
    match epoch.skipped_steps {
        0 => String::new(),
        steps => format!("  {steps} {} left out{scale}", plural(steps, "step", "steps")),
    }
}

/// `  peak 1.9 of 79.2 GiB (predicted 1.8)`, as far as it is known.
fn peak(memory: &Memory) -> String {
    let Some(peak) = memory.peak else { return String::new() };
    let gibibytes = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1u32 << 30));
    let predicted = memory.predicted_peak;
    match memory.total {
        Some(total) => {
            let predicted = predicted.map(|b| format!(" (predicted {})", gibibytes(b)));
            let (peak, total) = (gibibytes(peak), gibibytes(total));
            format!("  peak {peak} of {total} GiB{}", predicted.unwrap_or_default())
        }
        None => {
            let predicted = predicted.map(|b| format!(" (predicted {})", bytes(b)));
            format!("  peak {}{}", bytes(peak), predicted.unwrap_or_default())
        }
    }
}

fn stopped_early(epoch: usize, metric: &str, best: Option<(f64, usize)>, waited: usize) -> String {
    let best = best.map_or("undefined".to_owned(), |(best, epoch)| {
        format!("{} of epoch {epoch}", number(Some(best)))
    });
    let epochs = plural(waited, "epoch", "epochs");
    format!(
        "early stopping after epoch {epoch}: {metric} has not improved on {best} for {waited} \
         {epochs}"
    )
}

fn no_memory(out_of_memory: &OutOfMemory) -> String {
    let OutOfMemory { epoch, step, requested, memory, advice } = out_of_memory;
    let facts = [("asked for", *requested), ("in use", memory.live), ("reserved", memory.reserved)];
    let known: Vec<String> = facts
        .into_iter()
        .filter_map(|(what, value)| Some(format!("{} {what}", bytes(value?))))
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
        "{why} after {} {} and {} steps in {}",
        end.epochs,
        plural(end.epochs, "epoch", "epochs"),
        thousands(end.step),
        duration(end.seconds)
    )
}

/// A metric's name without the `val/` that nearly all have.
fn metric(name: &str) -> &str {
    name.strip_prefix("val/").unwrap_or(name)
}

fn rate(images_per_second: f64) -> String {
    match images_per_second {
        speed if !speed.is_finite() || speed <= 0.0 => String::new(),
        speed if speed < 10.0 => format!("  {speed:.1} img/s"),
        speed => format!("  {speed:.0} img/s"),
    }
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut name = "bytes";
    for unit in UNITS {
        // What would print as 1024 of a unit is 1 of the next.
        if value < 1023.5 {
            break;
        }
        (value, name) = (value / 1024.0, unit);
    }
    if name == "bytes" { format!("{bytes} bytes") } else { format!("{value:.1} {name}") }
}

#[cfg(test)]
mod tests {
    use super::super::examples;
    use super::*;

    #[test]
    fn events_read_well() {
        let mut teller = Teller::default();
        let mut events = vec![examples::start(), examples::epoch()];
        events.extend(examples::all_but_epoch().into_iter().skip(1));
        events.push(Event::SkippedImages { images: (1..=7).map(examples::bad_image).collect() });
        let lines: Vec<String> = events.iter().filter_map(|event| teller.line(event)).collect();
        insta::assert_snapshot!(lines.join("\n"), @r#"
        xray on CPU: 6,956,298 parameters, 1,000 training and 100 validation images, 20 epochs of 140 steps
        epoch  3/20  train loss 0.312  val loss 0.298  findings/auroc 0.871 (best)  412 img/s  1m03s  peak 3.0 GiB
        started from densenet121.pth: 604 tensors taken, features.conv0.weight adapted from 3 to 1 channels; 2 not used: classifier.bias, classifier.weight; 3 tensors of heads drawn at random
        warning: checkpoints/xray/last cannot be used (weights.safetensors differs); trying the state before it
        resumed from checkpoints/xray/last in epoch 3 at step 420
        saved checkpoints/xray/last in epoch 4 at step 500
        warning: step 431 in epoch 4 was left out: the gradient is not finite
        warning: data/patient1.png (data/train.csv, line 2) was left out: not a PNG, "JPEG" or other image
        warning: data/patient2.png (data/train.csv, line 3) was left out: not a PNG, "JPEG" or other image
        out of memory at step 431 in epoch 4 (1.0 GiB asked for, 79.0 GiB reserved): set memory.checkpointing = "sqrt"
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
        epoch_done(&epoch, 20)
    }

    #[test]
    fn an_undefined_metric_is_called_so() {
        let line = epoch(|epoch| {
            epoch.best = false;
            epoch.watched.as_mut().expect("watched").value = None;
        });
        assert!(line.contains("  findings/auroc undefined  412 img/s"), "{line}");
    }

    #[test]
    fn a_watched_loss_is_not_said_twice() {
        let line =
            epoch(|epoch| epoch.watched.as_mut().expect("watched").metric = "val/loss".into());
        assert!(line.contains("train loss 0.312  val loss 0.298 (best)  412 img/s"), "{line}");
    }

    #[test]
    fn an_epoch_without_validation_says_nothing_of_it() {
        let line = epoch(|epoch| {
            epoch.val.clear();
            epoch.watched = None;
        });
        assert_eq!(line, "epoch  3/20  train loss 0.312  412 img/s  1m03s  peak 3.0 GiB");
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
        ends(known, "1m03s  peak 1.9 GiB");
        ends(Memory { total, ..known }, "  peak 1.9 of 80.0 GiB");
        ends(Memory { total, predicted_peak, ..known }, "  peak 1.9 of 80.0 GiB (predicted 1.8)");
        ends(Memory { predicted_peak, ..known }, "  peak 1.9 GiB (predicted 1.8 GiB)");
        ends(Memory { total, predicted_peak, ..Memory::default() }, "  1m03s");
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
    fn bytes_are_in_the_largest_fitting_unit() {
        let cases = [(1023, "1023 bytes"), (1024, "1.0 KiB"), ((1 << 20) - 1, "1.0 MiB")];
        for (count, expected) in cases {
            assert_eq!(bytes(count), expected);
        }
        assert_eq!(bytes(79 << 30), "79.0 GiB");
        assert_eq!(bytes(5000 << 40), "5000.0 TiB");
    }

    #[test]
    fn the_time_left_is_unknown_without_a_speed() {
        let Event::Progress(mut at) = examples::progress(0.6) else { panic!("progress") };
        assert_eq!(progress(&at, 3, 20), "epoch  3/20  train  60%  loss 0.346  12 img/s  32s left");
        at.images_per_second = 0.0;
        assert_eq!(progress(&at, 3, 20), "epoch  3/20  train  60%  loss 0.346");
    }
}
