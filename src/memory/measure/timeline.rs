//! Memory over the course of a step, event by event.

use std::cell::RefCell;
use std::fmt::Write;
use std::time::Instant;

use super::Meter;

/// What was in use after an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// What happened, such as `conv1 before forward`.
    pub label: String,
    /// How many modules it happened inside of.
    pub depth: usize,
    /// Seconds since the record began.
    pub seconds: f64,
    /// Bytes in use after it; `None` where the device does not tell.
    pub live: Option<u64>,
}

/// The events of a step and the memory after each.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timeline {
    /// In the order they happened.
    pub marks: Vec<Mark>,
}

/// A record under way on this thread.
struct Recorder {
    /// Reads the live bytes.
    live: Box<dyn Fn() -> Option<u64>>,
    begin: Instant,
    timeline: Timeline,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Runs `work` and records what it [marks](mark) on this thread, the first mark being `start`.
pub fn record<T>(meter: &Meter, work: impl FnOnce() -> T) -> (T, Timeline) {
    let meter = meter.clone();
    record_with(move || meter.live(), work)
}

fn record_with<T>(
    live: impl Fn() -> Option<u64> + 'static,
    work: impl FnOnce() -> T,
) -> (T, Timeline) {
    /// Ends the record however `work` ends.
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            RECORDER.take();
        }
    }
    let (live, timeline) = (Box::new(live), Timeline::default());
    RECORDER.set(Some(Recorder { live, begin: Instant::now(), timeline }));
    let _ended = Ended;
    mark(0, || "start".to_owned());
    let outcome = work();
    let timeline = RECORDER.take().map(|recorder| recorder.timeline);
    (outcome, timeline.unwrap_or_default())
}

/// Notes what is in use after the event that `label` names, `depth` modules deep, where a record is
/// under way on this thread; else does nothing, and asks for no label.
pub fn mark(depth: usize, label: impl FnOnce() -> String) {
    RECORDER.with_borrow_mut(|recorder| {
        let Some(Recorder { live, begin, timeline }) = recorder else { return };
        let live = live();
        let seconds = begin.elapsed().as_secs_f64();
        timeline.marks.push(Mark { label: label(), depth, seconds, live });
    });
}

impl Timeline {
    /// A line for each event, indented by its depth: its label, the change since the event before
    /// it, and what is in use.
    pub fn lines(&self) -> String {
        let indented = |mark: &Mark| format!("{}{}", "  ".repeat(mark.depth), mark.label);
        let width = self.marks.iter().map(|mark| indented(mark).chars().count()).max().unwrap_or(0);
        let mut lines = String::new();
        let mut before = None;
        for mark in &self.marks {
            let change = mark.live.zip(before).map(|(now, before)| now as f64 - before as f64);
            let change = change.map_or("?".to_owned(), |bytes| format!("{:+.1}", mebibytes(bytes)));
            let total = mark.live.map_or("?".to_owned(), |b| format!("{:.1}", mebibytes(b as f64)));
            let label = indented(mark);
            let _ = writeln!(lines, "{label:width$}  {change:>9} MiB  {total:>9} MiB");
            before = mark.live;
        }
        lines
    }

    /// The most in use at an event.
    pub fn most(&self) -> Option<u64> {
        self.marks.iter().filter_map(|mark| mark.live).max()
    }
}

fn mebibytes(bytes: f64) -> f64 {
    // Not -0.0, which would be printed as such.
    (bytes / f64::from(1 << 20) * 10.0).round() / 10.0 + 0.0
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn events_are_recorded_with_the_memory_after_each() {
        let live = Rc::new(Cell::new(Some(10 << 20)));
        let read = live.clone();
        let (outcome, timeline) = record_with(
            move || read.get(),
            || {
                mark(0, || "conv1 before forward".to_owned());
                live.set(Some(402 << 20));
                mark(0, || "conv1 after forward".to_owned());
                mark(1, || "bn".to_owned());
                live.set(Some((402 << 20) - (5 << 19)));
                mark(0, || "conv1 after backward".to_owned());
                7
            },
        );
        assert_eq!(outcome, 7);
        assert_eq!(timeline.most(), Some(402 << 20));
        assert!(timeline.marks.is_sorted_by_key(|mark| mark.seconds));
        insta::assert_snapshot!(timeline.lines(), @r"
        start                         ? MiB       10.0 MiB
        conv1 before forward       +0.0 MiB       10.0 MiB
        conv1 after forward      +392.0 MiB      402.0 MiB
          bn                       +0.0 MiB      402.0 MiB
        conv1 after backward       -2.5 MiB      399.5 MiB
        ");
    }

    #[test]
    fn without_a_record_nothing_is_asked_for() {
        mark(0, || panic!("a label was asked for"));
        let failed = std::panic::catch_unwind(|| {
            record_with(|| None, || std::panic::resume_unwind(Box::new("the step failed")))
        });
        assert!(failed.is_err());
        mark(0, || panic!("the record went on after its step"));
    }
}
