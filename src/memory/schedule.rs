//! Schedules: what is done to which stage and micro-batch, in which order.

use std::collections::BTreeMap;

use super::Keep;
use crate::parallel::{Flow, Half, PipelinePlace};

/// One operation of a schedule.
///
/// Each micro-batch has one value on its way forward and one gradient on its way back; what else is
/// there has been put aside by an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Which stage, from 0.
    pub stage: usize,
    /// Which micro-batch, from 0.
    pub micro: usize,
    /// What is done.
    pub action: Action,
}

/// What is done to a stage and a micro-batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Runs the stage on the value on its way (the batch itself for stage 0), for the first time.
    Forward(Keep),
    /// As [`Action::Forward`], once more: statistics are not reported again.
    Recompute(Keep),
    /// Puts the value on its way aside as the input of the stage.
    Checkpoint,
    /// Sends the input of the stage on its way again; it is no longer put aside.
    Restore,
    /// Moves what is put aside for the stage off the device.
    Offload(Aside),
    /// Begins to bring what was moved off the device back.
    Prefetch(Aside),
    /// Computes the losses of the outputs of the stage, which is the last, and their gradients.
    Loss,
    /// Turns the gradient of the stage's output into that of its input.
    Backward,
    /// Gives what is on its way to the next device: the value that the stage, the last of this device, has
    /// put out, or the gradient of the input of the stage, which is the first.
    Send(Flow),
    /// Waits for what the next device sends: the input of the stage, which is the first of this device, or
    /// the gradient of the output of the stage, which is the last.
    Receive(Flow),
}

/// What is put aside for a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Aside {
    /// Its input, to compute it again from.
    Input,
    /// What its backward pass needs.
    Saved,
}

/// A list of operations, executed in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The operations.
    pub operations: Vec<Operation>,
    /// How many stages, from the first on, are frozen: they run forward alone, once, as they do where
    /// they evaluate.
    pub frozen: usize,
    /// Whether the gradient of the first stage's input is wanted, as it is where a device before has
    /// stages that are trained.
    pub returns: bool,
}

/// The stages of one device of a pipeline, as far as those of the others matter to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipelinePart {
    /// Which of the devices.
    pub place: PipelinePlace,
    /// Whether devices before have stages that are trained.
    pub returns: bool,
}

/// How some stages in a row are taken forward and back, given the input of the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckpointPlan {
    /// The first keeps what its backward pass needs; then come those behind it, if there are any.
    Keep {
        /// Whether what it keeps waits off the device.
        offload: bool,
        /// The stages behind the first.
        rest: Option<Box<CheckpointPlan>>,
    },
    /// The input of the first is put aside. The first `count` stages run and keep nothing, those
    /// behind them are taken forward and back, then the first ones from the input put aside.
    Checkpoint {
        /// How many stages run; at least 1, fewer than there are.
        count: usize,
        /// Whether the input waits off the device.
        offload: bool,
        /// The stages behind them.
        later: Box<CheckpointPlan>,
        /// The first ones.
        again: Box<CheckpointPlan>,
    },
}

impl CheckpointPlan {
    /// `stages` stages that all keep what they need; at least 1.
    pub fn keep_all(stages: usize) -> Self {
        let rest = (stages > 1).then(|| Box::new(Self::keep_all(stages - 1)));
        Self::Keep { offload: false, rest }
    }

    /// Segments of so many stages each, at least one: all but the last keep their input only.
    pub fn segments(lengths: &[usize]) -> Self {
        match lengths {
            [] => panic!("a chain has stages"),
            [last] => Self::keep_all(*last),
            [first, rest @ ..] => Self::Checkpoint {
                count: *first,
                offload: false,
                later: Box::new(Self::segments(rest)),
                again: Box::new(Self::keep_all(*first)),
            },
        }
    }

    /// The same with everything that can wait off the device there: the inputs put aside, and what
    /// those stages keep of which `moves_saved` says that it can be moved.
    pub fn offloaded(self, moves_saved: &[bool]) -> Self {
        match self {
            // What the last stage keeps, and what is computed again, is used at once.
            Self::Keep { rest, .. } => Self::Keep {
                offload: rest.is_some() && moves_saved[0],
                rest: rest.map(|rest| Box::new(rest.offloaded(&moves_saved[1..]))),
            },
            Self::Checkpoint { count, later, again, .. } => {
                let later = Box::new(later.offloaded(&moves_saved[count..]));
                Self::Checkpoint { count, offload: true, later, again }
            }
        }
    }

    /// How many stages run a second time or more often, each counted as often as it does.
    pub fn recomputed(&self, stages: std::ops::Range<usize>) -> Vec<usize> {
        let mut runs = Vec::new();
        self.visit(stages, &mut |stage| runs.push(stage));
        runs.sort_unstable();
        let mut seen = None;
        runs.retain(|stage| seen.replace(*stage) == Some(*stage));
        runs
    }

    fn visit(&self, stages: std::ops::Range<usize>, run: &mut impl FnMut(usize)) {
        match self {
            Self::Keep { rest, .. } => {
                run(stages.start);
                if let Some(rest) = rest {
                    rest.visit(stages.start + 1..stages.end, run);
                }
            }
            Self::Checkpoint { count, later, again, .. } => {
                let middle = stages.start + count;
                (stages.start..middle).for_each(&mut *run);
                later.visit(middle..stages.end, run);
                again.visit(stages.start..middle, run);
            }
        }
    }
}

impl Schedule {
    /// A training step over `stages` stages: each of `micros` micro-batches in turn as `tree` says.
    pub fn of_plan(tree: &CheckpointPlan, stages: usize, micros: usize) -> Self {
        Self::behind_frozen(0, tree, stages, micros)
    }

    /// The same where the first `frozen` stages are frozen, fewer than there are; `tree` is of those
    /// behind them.
    pub fn behind_frozen(
        frozen: usize,
        tree: &CheckpointPlan,
        stages: usize,
        micros: usize,
    ) -> Self {
        let operations =
            (0..micros).flat_map(|micro| Writer::new(stages, micro, None).step(frozen, tree));
        Self { operations: operations.collect(), frozen, returns: false }
    }

    /// For each operation the number of the one that it repeats: from the second micro-batch on all do the same. Those of the
    /// first two repeat none, and have their own numbers.
    pub fn repeated(&self) -> Vec<usize> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut second = Vec::new();
        let each = self.operations.iter().enumerate().map(|(number, operation)| {
            let place = counts.entry(operation.micro).or_default();
            *place += 1;
            match operation.micro {
                0 => number,
                1 => {
                    second.push(number);
                    number
                }
                _ => second.get(*place - 1).copied().unwrap_or(number),
            }
        });
        each.collect()
    }

    /// For each stage that goes back, the number of the operation after which its gradients are all there.
    pub fn last_backward(&self) -> Vec<Option<usize>> {
        let stages = self.operations.iter().map(|operation| operation.stage + 1).max();
        let mut last = vec![None; stages.unwrap_or(0)];
        for (number, operation) in self.operations.iter().enumerate() {
            if operation.action == Action::Backward {
                last[operation.stage] = Some(number);
            }
        }
        last
    }

    /// What the device of `part` does in a step: the same over its own `stages` stages, the first `frozen`
    /// of which are frozen, where micro-batches come from the device before and go to the one behind.
    /// Where all are frozen, `tree` counts for nothing.
    pub fn in_pipeline(
        part: PipelinePart,
        frozen: usize,
        tree: &CheckpointPlan,
        stages: usize,
        micros: usize,
    ) -> Self {
        let PipelinePart { place, returns } = part;
        let mut halves: Vec<[Vec<Operation>; 2]> = (0..micros)
            .map(|micro| {
                let mut there = Writer::new(stages, micro, Some(part)).step(frozen, tree);
                let turns = |operation: &Operation| {
                    matches!(operation.action, Action::Loss | Action::Receive(Flow::Gradient))
                };
                let turn = there.iter().position(turns).unwrap_or(there.len());
                let back = there.split_off(turn);
                [there, back]
            })
            .collect();
        let operations = place.halves(micros).into_iter().flat_map(|half| match half {
            Half::Forward(micro) => std::mem::take(&mut halves[micro][0]),
            Half::Backward(micro) => std::mem::take(&mut halves[micro][1]),
        });
        Self { operations: operations.collect(), frozen, returns }
    }
}

/// Writes the operations of one micro-batch.
struct Writer {
    stages: usize,
    micro: usize,
    /// Which stages have run.
    run: Vec<bool>,
    /// Where the stages are a part of a pipeline.
    part: Option<PipelinePart>,
    operations: Vec<Operation>,
}

impl Writer {
    fn new(stages: usize, micro: usize, part: Option<PipelinePart>) -> Self {
        Self { stages, micro, run: vec![false; stages], part, operations: Vec::new() }
    }

    /// All operations of the micro-batch.
    fn step(mut self, frozen: usize, tree: &CheckpointPlan) -> Vec<Operation> {
        if self.part.is_some_and(|part| !part.place.is_first()) {
            self.push(0, Action::Receive(Flow::Value));
        }
        (0..frozen).for_each(|stage| self.forward(stage, Keep::Nothing));
        match frozen < self.stages {
            true => self.write(tree, frozen..self.stages),
            false => self.push(self.stages - 1, Action::Send(Flow::Value)),
        }
        if self.part.is_some_and(|part| part.returns) {
            self.push(0, Action::Send(Flow::Gradient));
        }
        prefetched(self.operations)
    }

    /// The value on its way turns into a gradient on its way back.
    fn turn(&mut self, stage: usize) {
        match self.part {
            Some(part) if !part.place.is_last() => {
                self.push(stage, Action::Send(Flow::Value));
                self.push(stage, Action::Receive(Flow::Gradient));
            }
            _ => self.push(stage, Action::Loss),
        }
    }

    fn write(&mut self, tree: &CheckpointPlan, stages: std::ops::Range<usize>) {
        let stage = stages.start;
        match tree {
            CheckpointPlan::Keep { offload, rest } => {
                self.forward(stage, Keep::All);
                if *offload {
                    self.push(stage, Action::Offload(Aside::Saved));
                }
                match rest {
                    Some(rest) => self.write(rest, stage + 1..stages.end),
                    None => assert_eq!(stage + 1, stages.end, "a tree ends with its stages"),
                }
                if stage + 1 == self.stages {
                    self.turn(stage);
                }
                self.push(stage, Action::Backward);
            }
            CheckpointPlan::Checkpoint { count, offload, later, again } => {
                let middle = stage + count;
                assert!(stage < middle && middle < stages.end, "{count} of {stages:?}");
                self.push(stage, Action::Checkpoint);
                if *offload {
                    self.push(stage, Action::Offload(Aside::Input));
                }
                (stage..middle).for_each(|stage| self.forward(stage, Keep::Nothing));
                self.write(later, middle..stages.end);
                self.push(stage, Action::Restore);
                self.write(again, stage..middle);
            }
        }
    }

    fn forward(&mut self, stage: usize, keep: Keep) {
        match std::mem::replace(&mut self.run[stage], true) {
            false => self.push(stage, Action::Forward(keep)),
            true => self.push(stage, Action::Recompute(keep)),
        }
    }

    fn push(&mut self, stage: usize, action: Action) {
        self.operations.push(Operation { stage, micro: self.micro, action });
    }
}

/// Brings back whatever is moved off the device one stage's work before it is needed.
fn prefetched(operations: Vec<Operation>) -> Vec<Operation> {
    let mut out: Vec<Operation> = Vec::with_capacity(operations.len());
    let mut away: Vec<(usize, Aside)> = Vec::new();
    for operation in operations {
        let stage = operation.stage;
        let needed = match operation.action {
            Action::Offload(what) => {
                away.push((stage, what));
                None
            }
            Action::Restore => Some(Aside::Input),
            Action::Backward => Some(Aside::Saved),
            _ => None,
        };
        if let Some(what) = needed
            && let Some(place) = away.iter().rposition(|moved| *moved == (stage, what))
        {
            away.remove(place);
            let works = |operation: &Operation| {
                matches!(
                    operation.action,
                    Action::Forward(_) | Action::Recompute(_) | Action::Backward
                )
            };
            let moved = Operation { action: Action::Offload(what), ..operation };
            // Behind where it was moved away, however near that is.
            let left = out.iter().rposition(|operation| *operation == moved).map_or(0, |at| at + 1);
            let before = out.iter().rposition(works).unwrap_or(out.len());
            out.insert(before.max(left), Operation { action: Action::Prefetch(what), ..operation });
        }
        out.push(operation);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::PipelineSchedule;

    /// Operations of micro-batch 0 as short words: F forward, R recompute (lower case where nothing
    /// is kept), C checkpoint, T restore, L loss, B backward, O offload, P prefetch.
    fn words(schedule: &Schedule) -> String {
        let word = |&Operation { stage, action, .. }: &Operation| match action {
            Action::Forward(Keep::All) => format!("F{stage}"),
            Action::Forward(Keep::Nothing) => format!("f{stage}"),
            Action::Recompute(Keep::All) => format!("R{stage}"),
            Action::Recompute(Keep::Nothing) => format!("r{stage}"),
            Action::Checkpoint => format!("C{stage}"),
            Action::Restore => format!("T{stage}"),
            Action::Loss => "L".to_owned(),
            Action::Backward => format!("B{stage}"),
            Action::Offload(_) => format!("O{stage}"),
            Action::Prefetch(_) => format!("P{stage}"),
            Action::Send(Flow::Value) => ">".to_owned(),
            Action::Send(Flow::Gradient) => "<".to_owned(),
            Action::Receive(Flow::Value) => "|>".to_owned(),
            Action::Receive(Flow::Gradient) => "<|".to_owned(),
        };
        schedule.operations.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_that_is_kept_runs_once_forward_and_once_back() {
        let schedule = Schedule::of_plan(&CheckpointPlan::keep_all(3), 3, 1);
        assert_eq!(words(&schedule), "F0 F1 F2 L B2 B1 B0");
        let twice = Schedule::of_plan(&CheckpointPlan::keep_all(3), 3, 2);
        assert_eq!(twice.operations.len(), 14);
        assert_eq!(twice.operations[..7], schedule.operations);
        assert_eq!(twice.last_backward(), [Some(13), Some(12), Some(11)]);
    }

    #[test]
    fn later_micro_batches_repeat_the_second() {
        let tree = CheckpointPlan::segments(&[2, 1]);
        let alternate = part(0, 3, PipelineSchedule::OneForwardOneBackward);
        for schedule in
            [Schedule::of_plan(&tree, 3, 4), Schedule::in_pipeline(alternate, 0, &tree, 3, 4)]
        {
            let operations = &schedule.operations;
            for (operation, repeated) in operations.iter().zip(schedule.repeated()) {
                let Operation { stage, micro, action } = *operation;
                let expected = Operation { stage, micro: micro.min(1), action };
                assert_eq!(operations[repeated], expected);
            }
        }
        let one = Schedule::of_plan(&tree, 3, 1);
        assert_eq!(one.repeated(), (0..one.operations.len()).collect::<Vec<_>>());
    }

    #[test]
    fn segments_run_again_from_their_inputs() {
        let tree = CheckpointPlan::segments(&[2, 1, 2]);
        let schedule = Schedule::of_plan(&tree, 5, 1);
        assert_eq!(words(&schedule), "C0 f0 f1 C2 f2 F3 F4 L B4 B3 T2 R2 B2 T0 R0 R1 B1 B0");
        assert_eq!(tree.recomputed(0..5), [0, 1, 2]);
    }

    #[test]
    fn frozen_stages_run_forward_once_and_keep_nothing() {
        let kept = Schedule::behind_frozen(2, &CheckpointPlan::keep_all(2), 4, 1);
        assert_eq!(words(&kept), "f0 f1 F2 F3 L B3 B2");
        let tree = CheckpointPlan::segments(&[2, 1]);
        let segments = Schedule::behind_frozen(1, &tree, 4, 1);
        assert_eq!(words(&segments), "f0 C1 f1 f2 F3 L B3 T1 R1 R2 B2 B1");
        let away = Schedule::behind_frozen(1, &tree.offloaded(&[true; 3]), 4, 1);
        assert_eq!(words(&away), "f0 C1 O1 f1 f2 F3 L P1 B3 T1 R1 R2 B2 B1");
    }

    #[test]
    fn a_stage_may_run_many_times() {
        let again = CheckpointPlan::segments(&[1, 1]);
        let tree = CheckpointPlan::Checkpoint {
            count: 2,
            offload: false,
            later: Box::new(CheckpointPlan::keep_all(1)),
            again: Box::new(again),
        };
        assert_eq!(
            words(&Schedule::of_plan(&tree, 3, 1)),
            "C0 f0 f1 F2 L B2 T0 C0 r0 R1 B1 T0 R0 B0"
        );
        assert_eq!(tree.recomputed(0..3), [0, 0, 1]);
    }

    fn part(rank: usize, ranks: usize, schedule: PipelineSchedule) -> PipelinePart {
        PipelinePart { place: PipelinePlace { rank, ranks, schedule }, returns: rank > 0 }
    }

    #[test]
    fn devices_of_a_pipeline_give_each_other_values_and_gradients() {
        let of = |rank: usize, stages: usize, schedule| {
            let tree = CheckpointPlan::keep_all(stages);
            words(&Schedule::in_pipeline(part(rank, 3, schedule), 0, &tree, stages, 2))
        };
        let gpipe = PipelineSchedule::Gpipe;
        assert_eq!(of(0, 2, gpipe), "F0 F1 > F0 F1 > <| B1 B0 <| B1 B0");
        assert_eq!(of(1, 1, gpipe), "|> F0 > |> F0 > <| B0 < <| B0 <");
        assert_eq!(of(2, 1, gpipe), "|> F0 |> F0 L B0 < L B0 <");
        let alternate = PipelineSchedule::OneForwardOneBackward;
        assert_eq!(of(0, 1, alternate), "F0 > F0 > <| B0 <| B0");
        assert_eq!(of(2, 1, alternate), "|> F0 L B0 < |> F0 L B0 <");
        assert_eq!(of(0, 1, PipelineSchedule::Sequential), "F0 > <| B0 F0 > <| B0");
    }

    #[test]
    fn each_device_of_a_pipeline_checkpoints_and_offloads_its_own_stages() {
        let tree = CheckpointPlan::segments(&[2, 1]).offloaded(&[true; 3]);
        let gpipe = part(1, 3, PipelineSchedule::Gpipe);
        let schedule = Schedule::in_pipeline(gpipe, 0, &tree, 3, 2);
        let there = "|> C0 O0 f0 f1 F2 >";
        let back = "<| P0 B2 T0 R0 R1 B1 B0 <";
        assert_eq!(words(&schedule), format!("{there} {there} {back} {back}"));
    }

    #[test]
    fn no_gradient_goes_to_a_device_whose_stages_are_frozen() {
        let tree = CheckpointPlan::keep_all(1);
        let first = PipelinePart { returns: false, ..part(0, 2, PipelineSchedule::Gpipe) };
        assert_eq!(words(&Schedule::in_pipeline(first, 2, &tree, 2, 2)), "f0 f1 > f0 f1 >");
        let last = PipelinePart { returns: false, ..part(1, 2, PipelineSchedule::Gpipe) };
        let schedule = Schedule::in_pipeline(last, 1, &tree, 2, 2);
        assert_eq!(words(&schedule), "|> f0 F1 |> f0 F1 L B1 L B1");
        assert!(!schedule.returns);
    }

    #[test]
    fn what_was_moved_away_is_back_a_stage_before_it_is_needed() {
        let kept = Schedule::of_plan(&CheckpointPlan::keep_all(3).offloaded(&[true; 3]), 3, 1);
        assert_eq!(words(&kept), "F0 O0 F1 O1 F2 L P1 B2 P0 B1 B0");
        let some = CheckpointPlan::keep_all(3).offloaded(&[false, true, true]);
        assert_eq!(words(&Schedule::of_plan(&some, 3, 1)), "F0 F1 O1 F2 L P1 B2 B1 B0");
        let segments = CheckpointPlan::segments(&[1, 1, 1]).offloaded(&[false; 3]);
        let segments = Schedule::of_plan(&segments, 3, 1);
        assert_eq!(words(&segments), "C0 O0 f0 C1 O1 f1 F2 L P1 B2 T1 R1 P0 B1 T0 R0 B0");
    }
}
