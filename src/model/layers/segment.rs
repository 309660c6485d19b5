//! Which activations a row of layers keeps, and how it is taken back from them.
//!
//! The gradients of a matrix product (a convolution, a linear layer) follow from its input. What lies
//! between two of them (norms, activations, pooling, dropout) is cheap. So the backward pass runs it
//! again from the output of the matmul before it. This gives both what its own gradient needs and the
//! input of the matmul behind it. Where ReLU alone lies between, its output is kept instead, and nothing
//! is run again. So one map is kept for each matmul, where a recorded graph holds several. Such a map
//! can be moved off the device; what a graph holds cannot.
//!
//! Branches that put their input in front of what they compute, as a dense layer does, need not keep
//! the input: it is the beginning of their output. So a dense block keeps its last map and the
//! bottlenecks.
//!
//! This is the memory-efficient DenseNet (Pleiss et al. 2017, arXiv:1707.06990) for every layer that is
//! no matmul. A [`Runner`] carries the passes out.

/// A segment of a row of layers; two [`Segment::Cheap`] never follow each other.
#[derive(Debug, Clone)]
pub enum Segment<M, C, J> {
    /// A convolution or a linear layer.
    Matmul(M),
    /// Layers between matmuls.
    Cheap(C),
    /// Rows of segments side by side, each run on the same input, and how their outputs are joined.
    Branches(J, Vec<Vec<Self>>),
}

/// A segment as `R` runs it.
pub type SegmentOf<R> = Segment<<R as Runner>::Matmul, <R as Runner>::Cheap, <R as Runner>::Joint>;

/// What is kept of a row of segments until its backward pass.
#[derive(Debug)]
pub struct SavedValues<V> {
    /// The input of each segment, and the output of the last, where that is kept.
    values: Vec<Option<V>>,
    /// What is kept of each segment's branches.
    branches: Vec<Vec<Self>>,
}

/// Runs segments.
pub trait Runner {
    /// A convolution or a linear layer.
    type Matmul;
    /// Layers between matmuls.
    type Cheap;
    /// How branches are joined.
    type Joint;
    /// What flows between segments, and back.
    type Value: Clone;
    /// What is recorded of a run, to be taken back.
    type Tape;

    /// Runs a matmul.
    fn run_matmul(&mut self, matmul: &Self::Matmul, input: Self::Value) -> Self::Value;

    /// The gradient of a matmul's `input`, where it is `asked` for. Those of its parameters are added
    /// up elsewhere.
    fn matmul_back(
        &mut self,
        matmul: &Self::Matmul,
        input: Self::Value,
        gradient: Self::Value,
        asked: bool,
    ) -> Option<Self::Value>;

    /// Runs cheap layers.
    fn run_cheap(&mut self, layers: &Self::Cheap, input: Self::Value) -> Self::Value;

    /// Runs them again, to be taken back; the gradient of the input is `asked` for or not.
    fn record(
        &mut self,
        layers: &Self::Cheap,
        input: Self::Value,
        asked: bool,
    ) -> (Self::Value, Self::Tape);

    /// The gradient of the input of what was recorded, where it was asked for. Those of the
    /// parameters are added up elsewhere.
    fn back(
        &mut self,
        layers: &Self::Cheap,
        tape: Self::Tape,
        gradient: Self::Value,
    ) -> Option<Self::Value>;

    /// Whether cheap layers have parameters.
    fn trains(&self, layers: &Self::Cheap) -> bool;

    /// Whether cheap layers, run on their own output, give the same output and the same gradient. ReLU
    /// does, sigmoid does not.
    fn is_idempotent(&self, layers: &Self::Cheap) -> bool;

    /// Runs `branches` as what the joint is called in a trace.
    fn within<T>(&mut self, joint: &Self::Joint, branches: impl FnOnce(&mut Self) -> T) -> T;

    /// Joins the outputs of branches.
    fn join(&mut self, joint: &Self::Joint, outputs: Vec<Self::Value>) -> Self::Value;

    /// The gradient of each branch's output.
    fn split(&mut self, joint: &Self::Joint, gradient: Self::Value) -> Vec<Self::Value>;

    /// Whether the joint's output begins with the first branch's.
    fn begins_with_first(&self, joint: &Self::Joint) -> bool;

    /// The first branch's output, with which the joint's `output` begins.
    fn first(&mut self, joint: &Self::Joint, output: &Self::Value) -> Self::Value;

    /// The sum of two gradients.
    fn add(&mut self, left: Self::Value, right: Self::Value) -> Self::Value;
}

impl<V> SavedValues<V> {
    /// Every value that is kept, in a fixed order.
    pub fn collect<'a>(&'a mut self, values: &mut Vec<&'a mut V>) {
        values.extend(self.values.iter_mut().flatten());
        self.branches.iter_mut().flatten().for_each(|branch| branch.collect(values));
    }
}

/// Whether [`backward`] needs what `row` was run on.
pub fn needs_input<R: Runner>(runner: &R, row: &[SegmentOf<R>]) -> bool {
    let first = row.first();
    !first.is_some_and(|first| is_idempotent(runner, first) || gives_input_back(runner, first))
}

/// Whether the value before the segment at `place`, which is not the first, is kept; behind the last
/// segment, its output.
fn is_kept<R: Runner>(runner: &R, row: &[SegmentOf<R>], place: usize) -> bool {
    let (before, behind) = (&row[place - 1], row.get(place));
    // It comes back from what is behind.
    if behind.is_some_and(|behind| gives_input_back(runner, behind)) {
        return false;
    }
    if is_idempotent(runner, before) || gives_input_back(runner, before) {
        return true;
    }
    let comes_again = matches!(before, Segment::Cheap(_));
    let needed = behind.is_some_and(|segment| !is_idempotent(runner, segment));
    needed && !comes_again
}

/// Runs `row` on `input`. Beside the output there is what [`backward`] needs but the input, where
/// that is to be kept.
pub fn forward<R: Runner>(
    runner: &mut R,
    row: &[SegmentOf<R>],
    input: R::Value,
    keep: bool,
) -> (R::Value, SavedValues<R::Value>) {
    let mut value = input;
    let mut kept = SavedValues { values: vec![None], branches: Vec::new() };
    for (place, segment) in row.iter().enumerate() {
        let mut branches = Vec::new();
        value = match segment {
            Segment::Matmul(matmul) => runner.run_matmul(matmul, value),
            Segment::Cheap(layers) => runner.run_cheap(layers, value),
            Segment::Branches(joint, rows) => runner.within(joint, |runner| {
                let mut outputs = Vec::with_capacity(rows.len());
                for row in rows {
                    let (output, kept) = forward(runner, row, value.clone(), keep);
                    outputs.push(output);
                    branches.push(kept);
                }
                drop(value);
                runner.join(joint, outputs)
            }),
        };
        let is_kept = keep && is_kept(runner, row, place + 1);
        kept.values.push(is_kept.then(|| value.clone()));
        kept.branches.push(branches);
    }
    (value, kept)
}

/// Takes `row` back, which was run on `input`, where that is [needed](needs_input), and has `kept`
/// the rest: from the gradient of the output to that of the input, where it is `asked` for.
pub fn backward<R: Runner>(
    runner: &mut R,
    row: &[SegmentOf<R>],
    kept: SavedValues<R::Value>,
    input: Option<R::Value>,
    gradient: R::Value,
    asked: bool,
) -> Option<R::Value> {
    // Whether the gradient of each segment's input is asked for.
    let each: Vec<bool> = row
        .iter()
        .scan(asked, |before, segment| {
            Some(std::mem::replace(before, *before || trains(runner, segment)))
        })
        .collect();
    let SavedValues { mut values, mut branches } = kept;
    if input.is_some() {
        values[0] = input;
    }
    let mut gradient = gradient;
    // Of cheap layers that were run again for their output.
    let mut recorded = None;
    for (place, segment) in row.iter().enumerate().rev() {
        let asked = each[place];
        if !asked && !trains(runner, segment) {
            return None;
        }
        if let Segment::Branches(joint, _) = segment
            && gives_input_back(runner, segment)
        {
            let output = values[place + 1].take().expect("is kept or has come back");
            values[place] = Some(runner.first(joint, &output));
        }
        let mut input = || input_of(runner, row, &each, &mut values, place, &mut recorded);
        gradient = match segment {
            Segment::Cheap(layers) => {
                let tape = recorded.take().unwrap_or_else(|| {
                    // What came out of it serves nobody else any more.
                    let given = match runner.is_idempotent(layers) {
                        true => values[place + 1].take().expect("is kept or has come back"),
                        false => take(runner, row, &mut values, place),
                    };
                    runner.record(layers, given, asked).1
                });
                runner.back(layers, tape, gradient)
            }
            Segment::Matmul(matmul) => {
                let input = input();
                runner.matmul_back(matmul, input, gradient, asked)
            }
            Segment::Branches(joint, rows) => {
                let input = input();
                let kept = std::mem::take(&mut branches[place]);
                runner.within(joint, |runner| {
                    let gradients = runner.split(joint, gradient);
                    let mut sum = None;
                    for ((row, kept), gradient) in rows.iter().zip(kept).zip(gradients).rev() {
                        let given = needs_input(runner, row).then(|| input.clone());
                        let found = backward(runner, row, kept, given, gradient, asked);
                        sum = match (sum, found) {
                            (Some(sum), Some(found)) => Some(runner.add(sum, found)),
                            (sum, found) => sum.or(found),
                        };
                    }
                    sum
                })
            }
        }?;
    }
    // Of no segments the input is the output.
    asked.then_some(gradient)
}

/// The input of the segment at `place`, if need be by running the cheap layers before it again, which
/// are then `recorded`.
fn input_of<R: Runner>(
    runner: &mut R,
    row: &[SegmentOf<R>],
    asked: &[bool],
    values: &mut [Option<R::Value>],
    place: usize,
    recorded: &mut Option<R::Tape>,
) -> R::Value {
    let before = place.checked_sub(1).map(|before| &row[before]);
    match before {
        Some(Segment::Cheap(layers))
            if !runner.is_idempotent(layers) && values[place].is_none() =>
        {
            let given = take(runner, row, values, place - 1);
            let (output, tape) = runner.record(layers, given, asked[place - 1]);
            *recorded = Some(tape);
            output
        }
        _ => take(runner, row, values, place),
    }
}

/// The value before the segment at `place`, which stays where the segment before needs it too.
fn take<R: Runner>(
    runner: &R,
    row: &[SegmentOf<R>],
    values: &mut [Option<R::Value>],
    place: usize,
) -> R::Value {
    let before = place.checked_sub(1).map(|before| &row[before]);
    let stays = before
        .is_some_and(|before| is_idempotent(runner, before) || gives_input_back(runner, before));
    let value = if stays { values[place].clone() } else { values[place].take() };
    value.expect("is kept or has come back")
}

/// Whether the segment's input is the beginning of its output.
fn gives_input_back<R: Runner>(runner: &R, segment: &SegmentOf<R>) -> bool {
    matches!(segment, Segment::Branches(joint, rows)
        if rows.first().is_some_and(Vec::is_empty) && runner.begins_with_first(joint))
}

fn is_idempotent<R: Runner>(runner: &R, segment: &SegmentOf<R>) -> bool {
    matches!(segment, Segment::Cheap(layers) if runner.is_idempotent(layers))
}

fn trains<R: Runner>(runner: &R, segment: &SegmentOf<R>) -> bool {
    match segment {
        Segment::Matmul(_) => true,
        Segment::Cheap(layers) => runner.trains(layers),
        Segment::Branches(_, rows) => rows.iter().flatten().any(|segment| trains(runner, segment)),
    }
}

#[cfg(test)]
mod tests;
