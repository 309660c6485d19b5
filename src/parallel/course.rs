//! What a device does in the course of a piece of work, and how long it waits for others.
//!
//! Times are those of the thread that drives the device. On the CPU they are those of the work itself. A GPU
//! computes behind its thread, so that there they say when work was given to it; what its kernels wait for in
//! exchanges of their own is not known ([`Waited`]).

use std::cell::RefCell;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Seconds that a device has waited for others: the exposed time of what they exchange. The time in which sums are
/// added up is part of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    /// For the sums of gradients, and for weights that other devices have updated; unknown where kernels of GPUs
    /// exchange them.
    pub gradients: Option<f64>,
    /// For the sums that BatchNorm normalises by; unknown as well there.
    pub norms: Option<f64>,
    /// For the other devices of its pipeline.
    pub stages: f64,
}

impl Waited {
    /// All of it that is known.
    pub fn seconds(&self) -> f64 {
        self.gradients.unwrap_or(0.0) + self.norms.unwrap_or(0.0) + self.stages
    }
}

/// What a device does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Runs a stage for the first time.
    Forward,
    /// Runs it again.
    Recomputation,
    /// Runs it back.
    Backward,
    /// Computes losses.
    Loss,
    /// Changes weights.
    Optimizer,
    /// Gives a value or a gradient to another device of its pipeline.
    Send,
    /// Waits for another device of its pipeline.
    Receive,
    /// Waits for the sums of gradients.
    Gradients,
    /// Waits for the sums that BatchNorm normalises by.
    Norms,
    /// Waits for weights that other devices have updated.
    Weights,
}

/// Something that a device has done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Span {
    /// What.
    pub doing: Doing,
    /// The stage, where it is of one.
    pub stage: Option<String>,
    /// The micro-batch, from 0, where it is of one.
    pub micro: Option<usize>,
    /// Seconds after the beginning of the step.
    pub begin: f64,
    /// Seconds after the beginning of the step.
    pub end: f64,
}

/// What a device has done in a piece of work.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// What it has waited for.
    pub waited: Waited,
    /// What it has done, in the order of the ends; empty where nobody asked.
    pub spans: Vec<Span>,
}

/// The record of this thread's device.
struct Recorder {
    /// Where spans are kept, the moment from which they count.
    from: Option<Instant>,
    course: Course,
}

thread_local! {
    static RECORDER: RefCell<Option<Recorder>> = const { RefCell::new(None) };
}

/// Runs `work` and records its course on this thread; with spans where the moment is given `from` which they
/// count.
pub fn recorded<T>(from: Option<Instant>, work: impl FnOnce() -> T) -> (T, Course) {
    /// Ends the record however `work` ends.
    struct Ended;
    impl Drop for Ended {
        fn drop(&mut self) {
            RECORDER.take();
        }
    }
    RECORDER.set(Some(Recorder { from, course: Course::default() }));
    let _ended = Ended;
    let done = work();
    (done, RECORDER.take().map(|recorder| recorder.course).unwrap_or_default())
}

/// Runs `work`, which is to wait for other devices, and counts how long.
pub(super) fn waiting<T>(doing: Doing, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    with_recorder(|Recorder { course: Course { waited, .. }, .. }| {
        let seconds = begin.elapsed().as_secs_f64();
        match doing {
            Doing::Gradients | Doing::Weights => *waited.gradients.get_or_insert(0.0) += seconds,
            Doing::Norms => *waited.norms.get_or_insert(0.0) += seconds,
            _ => waited.stages += seconds,
        }
    });
    note(begin, doing, || (None, None));
    done
}

/// Notes what this thread's device has done since `begin`, of which stage and micro-batch, where somebody asked.
pub fn note(begin: Instant, doing: Doing, place: impl FnOnce() -> (Option<String>, Option<usize>)) {
    with_recorder(|recorder| {
        let Some(from) = recorder.from else { return };
        let (stage, micro) = place();
        let [begin, end] = [begin, Instant::now()].map(|at| (at - from).as_secs_f64());
        recorder.course.spans.push(Span { doing, stage, micro, begin, end });
    });
}

fn with_recorder(work: impl FnOnce(&mut Recorder)) {
    RECORDER.with_borrow_mut(|recorder| {
        if let Some(recorder) = recorder {
            work(recorder);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;

    const TURN: Duration = Duration::from_millis(4);

    #[test]
    fn a_course_has_what_was_done_and_waited_for_in_its_record_alone() {
        waiting(Doing::Norms, || sleep(TURN));
        let from = Instant::now();
        let ((), course) = recorded(Some(from), || {
            let begin = Instant::now();
            waiting(Doing::Norms, || sleep(TURN));
            waiting(Doing::Receive, || sleep(2 * TURN));
            note(begin, Doing::Forward, || (Some("stem".to_owned()), Some(3)));
        });
        let whole = from.elapsed().as_secs_f64();
        let Course { waited, spans } = course;
        let turn = TURN.as_secs_f64();
        assert!(waited.norms >= Some(turn) && waited.norms < Some(whole), "{waited:?}");
        assert!(waited.stages >= 2.0 * turn && waited.gradients.is_none(), "{waited:?}");
        let doing: Vec<Doing> = spans.iter().map(|span| span.doing).collect();
        assert_eq!(doing, [Doing::Norms, Doing::Receive, Doing::Forward]);
        let forward = &spans[2];
        assert_eq!((forward.stage.as_deref(), forward.micro), (Some("stem"), Some(3)));
        assert!(spans.iter().all(|span| span.begin >= forward.begin && span.end <= forward.end));
        assert!(recorded(None, || waiting(Doing::Norms, || ())).1.spans.is_empty());
    }
}
