//! The least time within a budget, by dynamic programming over the chain.
//!
//! After Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova 2019, "Optimal checkpointing for
//! heterogeneous chains: how to train deep neural networks with limited memory" (rotor): a stage
//! keeps nothing, its input, or what its backward pass needs. Where they tabulate times over
//! discretised memory, here each part of the chain has the whole trade-off: every amount of memory
//! at which a shorter time becomes possible. What lies in the same memory is counted once, so that
//! the peak is exactly that of [`simulate`](crate::memory::simulate).

use std::collections::HashMap;
use std::rc::Rc;

use super::equal;
use crate::memory::{CheckpointPlan, Footprint, Schedule, Speed, Surroundings, simulate};

/// Chains of more stages are taken in groups of neighbours.
const MOST_STAGES: usize = 32;

/// Trade-offs with more points are thinned, upwards, to about so many.
const MOST_POINTS: usize = 384;

/// How many places beside the one found are tried where points are not exact.
const NEAR: usize = 4;

/// Every amount of memory at which a shorter step becomes possible.
#[derive(Debug)]
pub struct TradeOff {
    solver: Solver,
    root: Rc<Vec<Point>>,
    /// How many stages each stage of the solver stands for.
    groups: Vec<usize>,
    /// The stages themselves.
    stages: Vec<Footprint>,
    speed: Speed,
    /// Peaks and seconds of equal segments, where the points are not exact.
    segments: Vec<(u64, f64, CheckpointPlan)>,
}

/// A way to take some stages forward and back.
#[derive(Debug, Clone)]
struct Point {
    /// The most bytes in use, without those held outside of these stages.
    need: u64,
    /// Seconds of work.
    seconds: f64,
    choice: Choice,
}

#[derive(Debug, Clone, Copy)]
enum Choice {
    /// The first stage keeps what it needs; the place of the others' way, if there are others.
    Keep(Option<usize>),
    /// The first's input is put aside and `count` stages run; the places of both parts' ways.
    Checkpoint { count: usize, later: usize, again: usize },
}

/// Some stages in a row, and what is known of the first one's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Part {
    first: usize,
    last: usize,
    /// Whether something outside holds the input's memory, where it is not counted here.
    held: bool,
    /// Whether it has room for the output of a stage that writes there.
    roomy: bool,
}

#[derive(Debug)]
struct Solver {
    stages: Vec<Footprint>,
    forward: Vec<f64>,
    backward: Vec<f64>,
    surroundings: Surroundings,
    /// Bytes of parameter gradients while stages from here on have gone back.
    gradients: Vec<u64>,
    /// The memory of the gradient of each stage's input, and of the outputs.
    back: Vec<u64>,
    /// Whether several micro-batches are taken.
    several: bool,
    solved: HashMap<Part, Rc<Vec<Point>>>,
    /// Needs are rounded up to multiples of it.
    unit: u64,
}

/// The ways to take a part that were found so far.
struct Best {
    /// Needs are rounded up to multiples of it.
    unit: u64,
    /// All of them, where needs are not rounded.
    points: Vec<Point>,
    /// Else the fastest of each need, in units.
    fastest: Vec<Option<Point>>,
}

impl Best {
    fn add(&mut self, point: Point) {
        if self.unit == 1 {
            self.points.push(point);
            return;
        }
        let units = point.need.div_ceil(self.unit);
        let place = units as usize;
        if place >= self.fastest.len() {
            self.fastest.resize(place + 1, None);
        }
        let known = &mut self.fastest[place];
        if known.as_ref().is_none_or(|known| point.seconds < known.seconds) {
            *known = Some(Point { need: units * self.unit, ..point });
        }
    }

    /// Those than which none needs less and takes no longer, from the least need on.
    fn frontier(mut self) -> Vec<Point> {
        let by_need =
            |a: &Point, b: &Point| a.need.cmp(&b.need).then(a.seconds.total_cmp(&b.seconds));
        self.points.sort_by(by_need);
        let mut best: Vec<Point> = Vec::new();
        for point in self.points.into_iter().chain(self.fastest.into_iter().flatten()) {
            // Sums in another order differ in the last bits.
            let better = |last: &Point| point.seconds < last.seconds * (1.0 - 1e-12);
            if best.last().is_none_or(better) {
                best.push(point);
            }
        }
        best
    }
}

impl TradeOff {
    /// For stages that cost `stages`, taken `micros` times a step.
    pub fn new(
        stages: &[Footprint],
        surroundings: &Surroundings,
        speed: &Speed,
        micros: usize,
    ) -> Self {
        let groups = group(stages, speed);
        let grouped: Vec<Footprint> = groups
            .iter()
            .scan(0, |start, count| {
                *start += count;
                Some(together(&stages[*start - count..*start]))
            })
            .collect();
        let count = grouped.len();
        let several = micros > 1;
        let mut gradients = vec![0; count + 1];
        let mut back = vec![surroundings.loss_gradient; count + 1];
        for (stage, footprint) in grouped.iter().enumerate().rev() {
            gradients[stage] = gradients[stage + 1] + footprint.parameter_gradients;
            back[stage] = match footprint.gradient_in_gradient {
                true => back[stage + 1],
                false => footprint.gradient,
            };
        }
        if several {
            gradients = vec![gradients[0]; count + 1];
        }
        let all: u64 = grouped.iter().map(|s| s.saved + s.output).sum();
        let unit = if count > 12 { (all / MOST_POINTS as u64).max(1) } else { 1 };
        let mut solver = Solver {
            forward: grouped.iter().map(|s| s.forward_seconds(speed)).collect(),
            backward: grouped.iter().map(|s| s.backward_seconds(speed)).collect(),
            stages: grouped,
            surroundings: *surroundings,
            gradients,
            back,
            several,
            solved: HashMap::new(),
            unit,
        };
        let root = solver.solve(Part { first: 0, last: count - 1, held: false, roomy: false });
        let stages = stages.to_vec();
        let mut all = Self { solver, root, groups, stages, speed: *speed, segments: Vec::new() };
        if !all.exact() {
            let count = all.stages.len();
            let run = |segments: usize| {
                let tree = CheckpointPlan::segments(&equal(count, segments));
                let (peak, seconds) = all.run(&tree);
                (peak, seconds, tree)
            };
            all.segments = numbers(count).map(run).collect();
        }
        all
    }

    /// The least peak that any schedule has, in bytes; of long chains, that any known one has.
    pub fn least(&self) -> u64 {
        let by_segments = self.segments.iter().map(|(peak, ..)| *peak).min();
        let tried = if self.exact() { 1 } else { NEAR.min(self.root.len()) };
        let by_point = (0..tried).map(|place| self.run(&self.tree(place)).0).min();
        by_segments.into_iter().chain(by_point).min().unwrap_or(u64::MAX)
    }

    /// The fastest way whose peak is at most `budget` bytes; `None` where there is none.
    pub fn within(&self, budget: u64) -> Option<CheckpointPlan> {
        let standing = self.solver.surroundings.standing;
        let fits = |point: &Point| standing + point.need <= budget;
        let fastest = self.root.iter().rposition(fits);
        // What groups cost is not exactly what stages do, and needs are rounded up.
        let near = fastest.map_or(0, |place| (place + NEAR).min(self.root.len() - 1));
        let places: Vec<usize> = match (self.exact(), fastest) {
            (true, fastest) => fastest.into_iter().collect(),
            (false, _) => (0..=near).rev().collect(),
        };
        let mut found = places.into_iter().filter_map(|place| {
            let tree = self.tree(place);
            let (peak, seconds) = self.run(&tree);
            (peak <= budget).then_some((seconds, tree))
        });
        let ours = found.next();
        let segments = self.segments.iter().filter(|(peak, ..)| *peak <= budget);
        let theirs = segments.min_by(|a, b| a.1.total_cmp(&b.1));
        match (ours, theirs) {
            (Some((seconds, _)), Some((_, less, tree))) if *less < seconds => Some(tree.clone()),
            (None, Some((.., tree))) => Some(tree.clone()),
            (ours, _) => ours.map(|(_, tree)| tree),
        }
    }

    /// About `most` of the ways, from the one that needs least to the fastest.
    pub fn some(&self, most: usize) -> Vec<CheckpointPlan> {
        let last = self.root.len() - 1;
        let steps = most.clamp(2, self.root.len().max(2)) - 1;
        let mut places: Vec<usize> = (0..=steps).map(|step| step * last / steps).collect();
        places.dedup();
        places.into_iter().map(|place| self.tree(place)).collect()
    }

    /// Whether the points are what trees take, to the byte.
    fn exact(&self) -> bool {
        self.solver.unit == 1 && self.groups.len() == self.stages.len()
    }

    /// The way at a place of the trade-off.
    fn tree(&self, place: usize) -> CheckpointPlan {
        let last = self.groups.len() - 1;
        let part = Part { first: 0, last, held: false, roomy: false };
        self.expand(&self.solver.tree(part, place), 0)
    }

    /// The peak and the seconds of a micro-batch taken so.
    fn run(&self, tree: &CheckpointPlan) -> (u64, f64) {
        let micros = if self.solver.several { 2 } else { 1 };
        let schedule = Schedule::of_plan(tree, self.stages.len(), micros);
        let taken = simulate(&schedule, &self.stages, &self.solver.surroundings, &self.speed);
        (taken.peak, taken.seconds / micros as f64)
    }

    /// The tree of groups `tree`, the first of which is `group`, as one of stages.
    fn expand(&self, tree: &CheckpointPlan, group: usize) -> CheckpointPlan {
        match tree {
            CheckpointPlan::Keep { rest, .. } => {
                let mut rest = rest.as_ref().map(|rest| Box::new(self.expand(rest, group + 1)));
                for _ in 1..self.groups[group] {
                    rest = Some(Box::new(CheckpointPlan::Keep { offload: false, rest }));
                }
                CheckpointPlan::Keep { offload: false, rest }
            }
            CheckpointPlan::Checkpoint { count, later, again, .. } => CheckpointPlan::Checkpoint {
                count: self.groups[group..group + count].iter().sum(),
                offload: false,
                later: Box::new(self.expand(later, group + count)),
                again: Box::new(self.expand(again, group)),
            },
        }
    }
}

impl Solver {
    /// The memory of the input of a part, where the part itself holds it.
    fn own(&self, part: Part) -> u64 {
        match (part.held, part.first, part.roomy) {
            (true, ..) => 0,
            (false, 0, _) => self.surroundings.input,
            (false, first, false) if self.stages[first].checkpoint > 0 => {
                self.stages[first].checkpoint
            }
            (false, first, _) => self.stages[first - 1].output,
        }
    }

    /// The gradient that a part is given, which it frees; the losses' is made within it.
    fn given(&self, last: usize) -> u64 {
        if last + 1 == self.stages.len() { 0 } else { self.back[last + 1] }
    }

    fn solve(&mut self, part: Part) -> Rc<Vec<Point>> {
        if let Some(solved) = self.solved.get(&part) {
            return Rc::clone(solved);
        }
        let mut best = Best { unit: self.unit, points: Vec::new(), fastest: Vec::new() };
        self.keep(part, &mut best);
        for count in 1..=part.last - part.first {
            self.checkpoint(part, count, &mut best);
        }
        let points = Rc::new(best.frontier());
        self.solved.insert(part, Rc::clone(&points));
        points
    }

    /// What a stage of `part` that runs on its input leaves: the bytes that its output adds, those
    /// that are then held outside of the next stages where what it keeps stays, and the next part.
    fn kept(&self, part: Part) -> (u64, u64, Part) {
        let stage = &self.stages[part.first];
        let (own, shares) = (self.own(part), stage.output_in_input && part.roomy);
        let added = if shares { 0 } else { stage.output };
        let next = |held| Part { first: part.first + 1, held, roomy: true, ..part };
        if shares {
            let held = part.held || stage.saves_input || stage.saves_output;
            let outside = if held { own } else { 0 };
            return (added, stage.saved + outside, next(held));
        }
        let input = if stage.saves_input { own } else { 0 };
        let output = if stage.saves_output { stage.output } else { 0 };
        (added, stage.saved + input + output, next(stage.saves_output))
    }

    fn keep(&mut self, part: Part, best: &mut Best) {
        let (stage, own, given) = (self.stages[part.first], self.own(part), self.given(part.last));
        let (added, outside, next) = self.kept(part);
        let is_last = part.first + 1 == self.stages.len();
        let mut need = self.gradients[part.last + 1]
            + (own + given + added + stage.saved + stage.saving_workspace);
        // The output, where nothing that is kept holds it.
        let flowing = if next.held { 0 } else { self.block_after(part) };
        if is_last {
            let loss = self.surroundings.loss_gradient + self.surroundings.loss_workspace;
            need = need.max(outside + flowing + loss + self.gradients[part.first + 1]);
        }
        // Of several micro-batches all but the first find the gradients of all parameters.
        let others = if self.several { part.first } else { part.first + 1 };
        let back = outside + self.back[part.first + 1] + stage.backward_peak;
        need = need.max(back + self.gradients[others]);
        let seconds = self.forward[part.first] + self.backward[part.first];
        if part.first == part.last {
            best.add(Point { need, seconds, choice: Choice::Keep(None) });
            return;
        }
        let rest = self.solve(next);
        for (place, point) in rest.iter().enumerate() {
            best.add(Point {
                need: need.max(point.need + outside),
                seconds: seconds + point.seconds,
                choice: Choice::Keep(Some(place)),
            });
        }
    }

    /// The memory that the output of a part's first stage lies in.
    fn block_after(&self, part: Part) -> u64 {
        let stage = &self.stages[part.first];
        match stage.output_in_input && part.roomy {
            true => self.own(part),
            false => stage.output,
        }
    }

    /// The parts that a checkpoint leaves of `part`: the stages behind the first `count`, and these again.
    fn parts(&self, part: Part, count: usize) -> [Part; 2] {
        let (aside, flowing) = match self.stages[part.first].checkpoint {
            0 => (part, 0),
            _ => (Part { held: false, roomy: false, ..part }, self.own(part)),
        };
        let middle = part.first + count;
        // Held only where it still lies in memory that was held to begin with.
        let (mut held, mut roomy) = (flowing == 0, part.roomy);
        for stage in &self.stages[part.first..middle] {
            held &= stage.output_in_input && roomy;
            roomy = true;
        }
        let behind = Part { first: middle, last: part.last, held, roomy: true };
        [behind, Part { last: middle - 1, ..aside }]
    }

    fn checkpoint(&mut self, part: Part, count: usize, best: &mut Best) {
        let (first, own, given) = (part.first, self.own(part), self.given(part.last));
        let copy = self.stages[first].checkpoint;
        let standing = given + self.gradients[part.last + 1];
        // What is put aside, and what of the value on its way nothing else holds.
        let (aside, mut flowing) = if copy > 0 { (copy, own) } else { (own, 0) };
        let mut need = standing + aside + flowing;
        let mut roomy = part.roomy;
        let mut seconds = 0.0;
        for stage in first..first + count {
            let footprint = &self.stages[stage];
            let shares = footprint.output_in_input && roomy;
            let added = if shares { 0 } else { footprint.output };
            need = need.max(standing + aside + flowing + added + footprint.forward_workspace);
            flowing = if shares { flowing } else { footprint.output };
            roomy = true;
            seconds += self.forward[stage];
        }
        let [later, again] = self.parts(part, count).map(|part| self.solve(part));
        let (mut at, mut against) = (0, 0);
        let mut least = need.max(later[0].need + aside).max(again[0].need);
        loop {
            while later.get(at + 1).is_some_and(|point| point.need + aside <= least) {
                at += 1;
            }
            while again.get(against + 1).is_some_and(|point| point.need <= least) {
                against += 1;
            }
            best.add(Point {
                need: least,
                seconds: seconds + later[at].seconds + again[against].seconds,
                choice: Choice::Checkpoint { count, later: at, again: against },
            });
            let next = [
                later.get(at + 1).map(|point| point.need + aside),
                again.get(against + 1).map(|point| point.need),
            ];
            match next.into_iter().flatten().min() {
                Some(next) => least = next,
                None => return,
            }
        }
    }

    fn tree(&self, part: Part, place: usize) -> CheckpointPlan {
        match self.solved[&part][place].choice {
            Choice::Keep(rest) => {
                let (.., next) = self.kept(part);
                let rest = rest.map(|place| Box::new(self.tree(next, place)));
                CheckpointPlan::Keep { offload: false, rest }
            }
            Choice::Checkpoint { count, later, again } => {
                let [behind, first] = self.parts(part, count);
                CheckpointPlan::Checkpoint {
                    count,
                    offload: false,
                    later: Box::new(self.tree(behind, later)),
                    again: Box::new(self.tree(first, again)),
                }
            }
        }
    }
}

/// The numbers of equal segments that are tried for so many stages.
fn numbers(stages: usize) -> impl Iterator<Item = usize> {
    let many = (1..=10_usize).map(move |length| stages.div_ceil(length));
    let few = 1..=stages.min(MOST_STAGES);
    few.chain(many.filter(|segments| *segments > MOST_STAGES))
}

/// How many neighbours each group has, so that there are few enough groups of about equal time.
fn group(stages: &[Footprint], speed: &Speed) -> Vec<usize> {
    if stages.len() <= MOST_STAGES {
        return vec![1; stages.len()];
    }
    let time = |s: &Footprint| s.forward_seconds(speed).max(1e-12);
    let total: f64 = stages.iter().map(time).sum();
    let mut groups = vec![0; MOST_STAGES];
    let mut done = 0.0;
    for stage in stages {
        // The group that the middle of the stage's time falls in.
        let middle = (done + time(stage) / 2.0) / total;
        groups[((middle * MOST_STAGES as f64) as usize).min(MOST_STAGES - 1)] += 1;
        done += time(stage);
    }
    groups.retain(|count| *count > 0);
    groups
}

/// What neighbours cost as one stage that keeps all that each of them does.
fn together(stages: &[Footprint]) -> Footprint {
    let [first, rest @ ..] = stages else { return Footprint::default() };
    rest.iter().fold(*first, |all, stage| {
        let shares = stage.output_in_input;
        let between = if shares { 0 } else { stage.output };
        let workspace = all.backward_workspace().max(stage.backward_workspace()) + stage.gradient;
        let both = Footprint {
            standing: all.standing + stage.standing,
            largest_parameter: all.largest_parameter.max(stage.largest_parameter),
            largest_array: all.largest_array.max(stage.largest_array),
            output: stage.output,
            output_in_input: all.output_in_input && shares,
            checkpoint: all.checkpoint,
            saved: all.saved
                + stage.saved
                + if (all.saves_output || stage.saves_input) && !shares { all.output } else { 0 },
            saves_input: all.saves_input,
            saves_output: stage.saves_output,
            moves_saved: all.moves_saved && stage.moves_saved,
            forward_workspace: all.forward_workspace.max(all.output + stage.forward_workspace),
            saving_workspace: all.saving_workspace.max(stage.saving_workspace) + between,
            gradient: all.gradient,
            gradient_in_gradient: all.gradient_in_gradient && stage.gradient_in_gradient,
            parameter_gradients: all.parameter_gradients + stage.parameter_gradients,
            forward_flops: all.forward_flops + stage.forward_flops,
            backward_flops: all.backward_flops + stage.backward_flops,
            forward_traffic: all.forward_traffic + stage.forward_traffic,
            backward_traffic: all.backward_traffic + stage.backward_traffic,
            layers: all.layers + stage.layers,
            ..Footprint::default()
        };
        Footprint { backward_peak: both.gradients() + workspace, ..both }
    })
}

#[cfg(test)]
mod tests;
