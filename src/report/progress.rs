//! Progress on standard error: a bar for each pass on a terminal, lines in a log.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::lines::{self, Teller};
use super::{Event, Phase, Progress, Report, ReportError, Watched};
use crate::screen::{PAGE, columns_of, is_quiet, stderr_columns, visible, write_unless_lost};

/// Progress on standard error, as fits what it is connected to.
pub fn progress() -> Box<dyn Report> {
    let terminal = ProgressDrawTarget::stderr();
    if is_quiet() {
        Box::new(Quiet::new(io::stderr()))
    } else if terminal.is_hidden() {
        Box::new(Plain::new(io::stderr()))
    } else {
        Box::new(Bar::new(terminal, io::stderr(), || stderr_columns().unwrap_or(PAGE)))
    }
}

/// Lines without control characters: one for each epoch, and during a pass one for each tenth of
/// it, though at most one in two seconds and at least one in thirty. Lines are as long as what they
/// tell, so that a search in a log finds all of it.
#[derive(Debug)]
pub struct Plain<W> {
    to: W,
    epoch: usize,
    teller: Teller,
    next_tenth: usize,
    last_line: Instant,
}

impl<W: Write> Plain<W> {
    /// Lines written to `to`, which should not buffer.
    pub fn new(to: W) -> Self {
        Self { to, epoch: 0, teller: Teller::default(), next_tenth: 1, last_line: Instant::now() }
    }

    fn event_at(&mut self, event: &Event, now: Instant) {
        match event {
            Event::EpochBegin(begin) => {
                self.epoch = begin.epoch;
                self.next_tenth = 1;
            }
            Event::Progress(progress) if self.is_due(progress, now) => {
                let run = self.teller.remaining.told(now);
                let line =
                    lines::progress(progress, self.epoch, self.teller.epochs, run.as_deref());
                self.say(&line, now);
            }
            _ => {}
        }
        if let Some(line) = self.teller.line(event, usize::MAX, now) {
            self.say(&line, now);
        }
    }

    /// A pass that is done is not told: the next thing is, soon.
    fn is_due(&mut self, progress: &Progress, now: Instant) -> bool {
        let tenths = lines::percent(progress) / 10;
        let waited = now.saturating_duration_since(self.last_line);
        let due = tenths >= self.next_tenth && waited >= Duration::from_secs(2)
            || waited >= Duration::from_secs(30);
        if due {
            self.next_tenth = tenths + 1;
        }
        due && tenths < 10
    }

    /// A line that cannot be written is no reason to stop training, nor is one that nobody reads.
    fn say(&mut self, line: &str, now: Instant) {
        self.last_line = now;
        write_unless_lost(&mut self.to, line);
    }
}

impl<W: Write> Report for Plain<W> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        self.event_at(event, Instant::now());
        Ok(())
    }
}

/// Warnings and how the run ended, in a line with the best value.
#[derive(Debug)]
pub struct Quiet<W> {
    to: W,
    teller: Teller,
    watched: Option<String>,
}

impl<W: Write> Quiet<W> {
    /// Lines written to `to`.
    pub fn new(to: W) -> Self {
        Self { to, teller: Teller::default(), watched: None }
    }
}

impl<W: Write> Report for Quiet<W> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        let best = match event {
            Event::Start(start) => {
                self.watched = start.watched.as_ref().map(|watched| watched.metric.clone());
                return Ok(());
            }
            Event::End(end) => lines::at_end(end, self.watched.as_deref()),
            Event::Warning { .. }
            | Event::DamagedState { .. }
            | Event::SkippedStep { .. }
            | Event::SkippedImages { .. }
            | Event::OutOfMemory(_) => String::new(),
            _ => return Ok(()),
        };
        if let Some(line) = self.teller.line(event, usize::MAX, Instant::now()) {
            write_unless_lost(&mut self.to, &format!("{line}{best}"));
        }
        Ok(())
    }
}

/// A bar for the pass under way, below the lines of the epochs done.
#[derive(Debug)]
pub struct Bar<W> {
    bar: ProgressBar,
    to: W,
    /// How wide the terminal is now.
    columns: fn() -> usize,
    epoch: usize,
    teller: Teller,
    watched: Option<Watched>,
}

impl<W: Write> Bar<W> {
    /// Bars drawn on `terminal`, lines written to `to`, which is the same.
    pub fn new(terminal: ProgressDrawTarget, to: W, columns: fn() -> usize) -> Self {
        let bar = ProgressBar::with_draw_target(None, terminal);
        bar.set_style(style(FULL_BAR));
        bar.finish_and_clear();
        Self { bar, to, columns, epoch: 0, teller: Teller::default(), watched: None }
    }

    fn begin(&mut self, phase: Phase) {
        let phase = match phase {
            Phase::Train => "train",
            Phase::Validation => "val  ",
        };
        let prefix = format!("{} {phase}", lines::epoch_of(self.epoch, self.teller.epochs));
        let (cells, _) = layout(&[], None, (self.columns)(), &prefix);
        self.bar.set_style(style(cells));
        self.bar.set_message("");
        self.bar.set_prefix(prefix);
        self.bar.reset();
    }

    fn advance(&self, progress: &Progress) {
        let run = self.teller.remaining.told(Instant::now());
        let figures = lines::figures(progress, run.as_deref());
        let best = self.watched.as_ref().and_then(lines::best_so_far);
        let best = best.map(|best| visible(&best).into_owned());
        let (cells, text) = layout(&figures, best, (self.columns)(), &self.bar.prefix());
        self.bar.set_style(style(cells));
        self.bar.set_message(text);
        self.bar.set_length(progress.total_images as u64);
        self.bar.set_position(progress.done_images as u64);
    }
}

/// Columns of a bar where there is room for it.
const FULL_BAR: usize = 20;

/// A line with a bar of `cells` columns.
fn style(cells: usize) -> ProgressStyle {
    let bar = if cells == 0 { String::new() } else { format!(" [{{bar:{cells}}}]") };
    let template = format!("{{prefix}}{bar} {{percent:>3}}%{{wide_msg}}");
    let style = ProgressStyle::with_template(&template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> ")
}

/// The columns of the bar, and the text behind the percentage: the first of `figures` that fit, then
/// the best value. What does not fit is left out as a whole, and figures come before the bar.
fn layout(
    figures: &[String],
    best: Option<String>,
    columns: usize,
    prefix: &str,
) -> (usize, String) {
    const PERCENT: usize = " 100%".len();
    const BRACKETS: usize = " []".len();
    let mut room = columns.saturating_sub(columns_of(prefix) + PERCENT);
    let mut text = String::new();
    let mut add = |figure: &String, room: &mut usize| {
        let figure = format!("  {figure}");
        let left = room.checked_sub(columns_of(&figure));
        left.inspect(|left| (*room, text) = (*left, std::mem::take(&mut text) + &figure)).is_some()
    };
    let all = figures.iter().all(|figure| add(figure, &mut room));
    let fits = |cells: &usize| room >= cells + BRACKETS;
    let cells = [FULL_BAR, FULL_BAR / 2].into_iter().find(fits).unwrap_or(0);
    if let Some(best) = best.filter(|_| all && cells > 0) {
        room -= cells + BRACKETS;
        add(&best, &mut room);
    }
    (cells, text)
}

impl<W: Write> Report for Bar<W> {
    fn event(&mut self, event: &Event) -> Result<(), ReportError> {
        match event {
            Event::Start(start) => self.watched.clone_from(&start.watched),
            Event::EpochBegin(begin) => {
                self.epoch = begin.epoch;
                self.begin(begin.phase);
            }
            Event::Progress(progress) => self.advance(progress),
            Event::Epoch(epoch) => {
                self.watched.clone_from(&epoch.watched);
                self.bar.finish_and_clear();
            }
            Event::Interrupted { .. } | Event::End(_) => self.bar.finish_and_clear(),
            _ => {}
        }
        if let Some(line) = self.teller.line(event, (self.columns)(), Instant::now()) {
            // Not `println` of the bar, which leaves the cursor in the line when no bar is drawn.
            self.bar.suspend(|| write_unless_lost(&mut self.to, &line));
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::super::{EpochBegin, examples};
    use super::*;
    use std::sync::{Arc, Mutex};

    /// What a log holds after `events`, each so many milliseconds after the one before.
    fn logged(events: &[(u64, Event)]) -> String {
        let mut plain = Plain::new(Vec::new());
        let mut now = plain.last_line;
        for (milliseconds, event) in events {
            now += Duration::from_millis(*milliseconds);
            plain.event_at(event, now);
        }
        String::from_utf8(plain.to).unwrap()
    }

    fn pass(milliseconds_per_percent: u64) -> Vec<(u64, Event)> {
        let percents = (1..=100).map(|percent| f64::from(percent) / 100.0);
        let told = percents.map(|share| (milliseconds_per_percent, examples::progress(share)));
        [(0, examples::begin())].into_iter().chain(told).collect()
    }

    #[test]
    fn a_log_of_a_slow_epoch_has_a_line_for_each_tenth() {
        let mut events = vec![(0, examples::start())];
        events.extend(pass(1000));
        events.push((0, examples::epoch()));
        insta::assert_snapshot!(logged(&events), @r"
        xray on CPU: 6,956,298 parameters, 1,000 training and 100 validation images, 20 epochs of 140 steps
        epoch  3/20  train  10%  loss 0.346  12 img/s  1m12s left
        epoch  3/20  train  20%  loss 0.346  12 img/s  1m04s left
        epoch  3/20  train  30%  loss 0.346  12 img/s  56s left
        epoch  3/20  train  40%  loss 0.346  12 img/s  48s left
        epoch  3/20  train  50%  loss 0.346  12 img/s  40s left
        epoch  3/20  train  60%  loss 0.346  12 img/s  32s left
        epoch  3/20  train  70%  loss 0.346  12 img/s  24s left
        epoch  3/20  train  80%  loss 0.346  12 img/s  16s left
        epoch  3/20  train  90%  loss 0.346  12 img/s  8.0s left
        epoch  3/20  train loss 0.312  val loss 0.298  findings/auroc 0.871 (best)  1m03s (at most 17m44s left)  412 img/s  peak 3.00 GiB
        ");
    }

    #[test]
    fn a_fast_epoch_has_no_lines_but_its_own() {
        assert_eq!(logged(&pass(19)), "");
        assert_eq!(logged(&pass(21)).lines().count(), 1);
    }

    #[test]
    fn a_very_slow_epoch_has_a_line_every_thirty_seconds() {
        let log = logged(&pass(15_000));
        assert_eq!(log.lines().count(), 49, "{log}");
    }

    #[test]
    fn a_log_that_cannot_be_written_does_not_stop_the_run() {
        struct Closed(io::ErrorKind);
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        for kind in [io::ErrorKind::BrokenPipe, io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            let hidden = || ProgressDrawTarget::hidden();
            let mut reports: [Box<dyn Report>; 3] = [
                Box::new(Plain::new(Closed(kind))),
                Box::new(Quiet::new(Closed(kind))),
                Box::new(Bar::new(hidden(), Closed(kind), || PAGE)),
            ];
            for report in &mut reports {
                for event in examples::all_but_epoch().iter().chain([&examples::epoch()]) {
                    report.event(event).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_quiet_run_says_what_is_wrong_and_how_it_ended() {
        let mut quiet = Quiet::new(Vec::new());
        let events = [examples::start(), examples::begin(), examples::epoch()];
        for event in events.iter().chain(&examples::all_but_epoch()) {
            quiet.event(event).unwrap();
        }
        insta::assert_snapshot!(String::from_utf8(quiet.to).unwrap(), @r#"
        warning: checkpoints/xray/last cannot be used (weights.safetensors differs); trying the state before it
        warning: step 431 in epoch 4 was left out: the gradient is not finite
        warning: data/patient1.png (data/train.csv, line 2) was left out: not a PNG, "JPEG" or other image
        warning: data/patient2.png (data/train.csv, line 3) was left out: not a PNG, "JPEG" or other image
        out of memory at step 431 in epoch 4 (1.00 GiB asked for, 79.0 GiB reserved): set memory.checkpointing = "sqrt"
        warning: the disk is nearly full
        stopped early after 12 epochs and 1,680 steps in 1h02m: best findings/auroc 0.894 (epoch 7), weights in checkpoints/xray/best/weights.safetensors
        "#);
    }

    /// A terminal that remembers what is drawn.
    #[derive(Debug, Clone, Default)]
    struct Screen(Arc<Mutex<String>>);

    impl indicatif::TermLike for Screen {
        fn width(&self) -> u16 {
            140
        }
        fn move_cursor_up(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_down(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_right(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn move_cursor_left(&self, _: usize) -> io::Result<()> {
            Ok(())
        }
        fn write_line(&self, line: &str) -> io::Result<()> {
            self.write_str(&format!("{line}\n"))
        }
        fn write_str(&self, text: &str) -> io::Result<()> {
            self.0.lock().unwrap().push_str(text);
            Ok(())
        }
        fn clear_line(&self) -> io::Result<()> {
            self.write_str("<clear>")
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().push_str(std::str::from_utf8(bytes).unwrap());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_shows_the_figures_that_fit_and_a_bar_where_there_is_room() {
        let Event::Progress(at) = examples::progress(0.4) else { panic!("progress") };
        let prefix = "epoch  3/20 train";
        let mut lines = Vec::new();
        for run in [None, Some("at most 17m44s")] {
            for columns in [40, 60, 80, 120, 200] {
                let best = Some("best findings/auroc 0.871 (epoch 3)".to_owned());
                let (cells, text) = layout(&lines::figures(&at, run), best, columns, prefix);
                let bar = if cells == 0 { String::new() } else { format!(" [{:cells$}]", "===>") };
                let line = format!("{prefix}{bar}  40%{text}");
                assert!(columns_of(&line) <= columns, "{line}");
                lines.push(format!("{columns:3}: {line}"));
            }
        }
        insta::assert_snapshot!(lines.join("\n"), @r"
         40: epoch  3/20 train  40%  loss 0.346
         60: epoch  3/20 train  40%  loss 0.346  12 img/s  48s left
         80: epoch  3/20 train [===>                ]  40%  loss 0.346  12 img/s  48s left
        120: epoch  3/20 train [===>                ]  40%  loss 0.346  12 img/s  48s left  best findings/auroc 0.871 (epoch 3)
        200: epoch  3/20 train [===>                ]  40%  loss 0.346  12 img/s  48s left  best findings/auroc 0.871 (epoch 3)
         40: epoch  3/20 train  40%  loss 0.346
         60: epoch  3/20 train  40%  loss 0.346  12 img/s  48s left
         80: epoch  3/20 train  40%  loss 0.346  12 img/s  48s left  (run: at most 17m44s)
        120: epoch  3/20 train [===>                ]  40%  loss 0.346  12 img/s  48s left  (run: at most 17m44s)
        200: epoch  3/20 train [===>                ]  40%  loss 0.346  12 img/s  48s left  (run: at most 17m44s)  best findings/auroc 0.871 (epoch 3)
        ");
    }

    #[test]
    fn a_bar_shows_the_pass_under_way_and_leaves_the_line_of_the_epoch() {
        let screen = Screen::default();
        let drawn = || std::mem::take(&mut *screen.0.lock().unwrap());
        let terminal = ProgressDrawTarget::term_like_with_hz(Box::new(screen.clone()), 255);
        let mut bar = Bar::new(terminal, screen.clone(), || 140);
        let mut draw = |event: &Event| {
            // Above the 255 frames a second beyond which indicatif draws nothing.
            std::thread::sleep(Duration::from_millis(20));
            bar.event(event).unwrap();
            drawn()
        };

        draw(&examples::start());
        draw(&examples::begin());
        let bar_line = draw(&examples::progress(0.4));
        assert!(
            bar_line.contains("epoch  3/20 train [========>           ]  40%"),
            "no bar in {bar_line:?}"
        );
        assert!(bar_line.contains("loss 0.346  12 img/s  48s left"), "{bar_line:?}");

        let done = draw(&examples::epoch());
        assert!(
            done.contains("<clear>") && done.contains("findings/auroc 0.871 (best)"),
            "{done:?}"
        );
        assert!(!done.contains('['), "the bar of a pass done is gone: {done:?}");

        draw(&Event::EpochBegin(EpochBegin {
            epoch: 4,
            first_step_in_epoch: 0,
            steps: 140,
            phase: Phase::Train,
        }));
        let next = draw(&examples::progress(0.0));
        assert!(next.contains("epoch  4/20 train [") && next.contains("  0%"), "{next:?}");
        assert!(next.contains("(run: at most 17m"), "{next:?}");
        assert!(next.contains("best findings/auroc 0.871 (epoch 3)"), "{next:?}");

        let warned = draw(&examples::skipped_step());
        let warning = warned.find("warning: step 431").unwrap();
        assert!(warned[warning..].contains("epoch  4/20 train ["), "below the line: {warned:?}");
    }
}
