//! Memory over the course of a step, event by event.

use std::cell::RefCell;
use std::fmt::{self, Write};
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
    /// What the module outermost is run for, such as `forward`.
    work: &'static str,
    /// The paths of the modules under way, each inside of the one before.
    inside: Vec<String>,
}

impl Recorder {
    fn note(&mut self, depth: usize, label: String) {
        let live = (self.live)();
        let seconds = self.begin.elapsed().as_secs_f64();
        self.timeline.marks.push(Mark { label, depth, seconds, live });
    }

    /// The path of the module that is called `name` in the one under way.
    fn path(&self, name: &str) -> String {
        match self.inside.last() {
            Some(outer) => format!("{outer}.{name}"),
            None => name.to_owned(),
        }
    }
}

thread_local! {
    /// Each thread has its own: a record is of the replica that this thread runs.
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
    let (begin, inside) = (Instant::now(), Vec::new());
    RECORDER.set(Some(Recorder { live, begin, timeline, work: "forward", inside }));
    let _ended = Ended;
    mark(0, || "start".to_owned());
    let outcome = work();
    let timeline = RECORDER.take().map(|recorder| recorder.timeline);
    (outcome, timeline.unwrap_or_default())
}

/// Notes what is in use after the event that `label` names, `depth` modules deep, where a record is
/// under way on this thread; else does nothing, and asks for no label.
pub fn mark(depth: usize, label: impl FnOnce() -> String) {
    with_recorder(|recorder| recorder.note(depth, label()));
}

/// Notes that `work`, such as `forward`, on the stage called `name` begins: what is noted until
/// [`end`] is inside of it.
pub fn begin(work: &'static str, name: impl FnOnce() -> String) {
    with_recorder(|recorder| {
        recorder.work = work;
        recorder.inside.clear();
        recorder.enter(name());
    });
}

/// Notes that the module under way has ended.
pub fn end() {
    with_recorder(Recorder::leave);
}

/// Runs `work` as that of the module which is called `name` in the one under way.
pub fn within<T>(name: impl fmt::Display, work: impl FnOnce() -> T) -> T {
    with_recorder(|recorder| recorder.enter(recorder.path(&name.to_string())));
    let outcome = work();
    end();
    outcome
}

/// Runs `work` as part of what is computed again within the work under way.
pub fn again<T>(work: impl FnOnce() -> T) -> T {
    let before = with_recorder(|recorder| std::mem::replace(&mut recorder.work, "recomputation"));
    let outcome = work();
    if let Some(before) = before {
        with_recorder(|recorder| recorder.work = before);
    }
    outcome
}

/// Notes that the work under way has ended for the module called `name` in the one under way, of
/// which nobody can say when it began.
pub fn ended(name: impl fmt::Display) {
    with_recorder(|recorder| {
        let label = format!("{} after {}", recorder.path(&name.to_string()), recorder.work);
        recorder.note(recorder.inside.len() + 1, label);
    });
}

/// Notes that the modules under way will never end, and why.
pub fn broken_off(why: impl FnOnce() -> String) {
    with_recorder(|recorder| {
        recorder.inside.clear();
        recorder.note(0, why());
    });
}

/// What notes the end of the backward pass of the module which is called `name` in the one under
/// way; `None` without a record.
pub(crate) fn backward_note(name: &dyn fmt::Display) -> Option<impl Fn() + Send + use<>> {
    let place = |recorder: &mut Recorder| {
        (recorder.inside.len() + 1, format!("{} after backward", recorder.path(&name.to_string())))
    };
    let (depth, label) = with_recorder(place)?;
    Some(move || mark(depth, || label.clone()))
}

fn with_recorder<T>(work: impl FnOnce(&mut Recorder) -> T) -> Option<T> {
    RECORDER.with_borrow_mut(|recorder| recorder.as_mut().map(work))
}

impl Recorder {
    fn enter(&mut self, path: String) {
        let label = format!("{path} before {}", self.work);
        self.inside.push(path);
        self.note(self.inside.len(), label);
    }

    fn leave(&mut self) {
        let depth = self.inside.len();
        if let Some(path) = self.inside.pop() {
            self.note(depth, format!("{path} after {}", self.work));
        }
    }
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
