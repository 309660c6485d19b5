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
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Numbers are taken modulo this prime, so that sums and products are exact.
    const PRIME: u64 = 1_000_003;

    /// A number and its derivative with respect to one weight or the input.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Dual(u64, u64);

    /// Several numbers, as a map has channels.
    type Numbers = Vec<Dual>;

    /// Computes each number on its own: matmuls are w·x; cheap layers are x² + x, or x² + a·x with a
    /// weight a, or pass what is even and not 0, and else give 0.
    #[derive(Default)]
    struct Arithmetic {
        /// What derivatives are with respect to, if not the input.
        varied: Option<u64>,
        gradients: BTreeMap<u64, u64>,
        recorded: usize,
    }

    #[derive(Debug, Clone, Copy)]
    enum Cheap {
        Square(Option<u64>),
        Even,
    }

    /// Outputs one behind the other, or summed; how many numbers each branch gives.
    #[derive(Debug, Clone)]
    struct Joint {
        concat: bool,
        counts: Vec<usize>,
    }

    impl Arithmetic {
        /// The weight with this number.
        fn weight(&self, number: u64) -> Dual {
            Dual(7 * number + 3, u64::from(self.varied == Some(number)))
        }

        fn found(&mut self, number: u64, gradients: impl Iterator<Item = u64>) {
            let gradient = gradients.fold(0, |sum, gradient| (sum + gradient) % PRIME);
            let before = self.gradients.insert(number, gradient);
            assert_eq!(before, None, "a weight was taken back twice");
        }
    }

    fn passes(value: u64) -> bool {
        value.is_multiple_of(2) && value != 0
    }

    fn times(left: Dual, right: Dual) -> Dual {
        Dual(left.0 * right.0 % PRIME, (left.0 * right.1 + left.1 * right.0) % PRIME)
    }

    fn plus(left: Dual, right: Dual) -> Dual {
        Dual((left.0 + right.0) % PRIME, (left.1 + right.1) % PRIME)
    }

    /// Number by number; what one has more than the other is added to 0.
    fn sum(left: &[Dual], right: &[Dual]) -> Numbers {
        let at = |numbers: &[Dual], place: usize| numbers.get(place).copied().unwrap_or(Dual(0, 0));
        let places = 0..left.len().max(right.len());
        places.map(|place| plus(at(left, place), at(right, place))).collect()
    }

    impl Runner for Arithmetic {
        type Matmul = u64;
        type Cheap = Cheap;
        type Joint = Joint;
        type Value = Numbers;
        type Tape = (Numbers, bool);

        fn run_matmul(&mut self, matmul: &u64, input: Numbers) -> Numbers {
            input.into_iter().map(|number| times(self.weight(*matmul), number)).collect()
        }

        fn matmul_back(
            &mut self,
            matmul: &u64,
            input: Numbers,
            gradient: Numbers,
            asked: bool,
        ) -> Option<Numbers> {
            let weight = self.weight(*matmul).0;
            self.found(*matmul, input.iter().zip(&gradient).map(|(x, g)| x.0 * g.0 % PRIME));
            let of_input = gradient.into_iter().map(|g| Dual(g.0 * weight % PRIME, 0));
            asked.then(|| of_input.collect())
        }

        fn run_cheap(&mut self, layers: &Cheap, input: Numbers) -> Numbers {
            let apply = |number: Dual| match *layers {
                Cheap::Square(weight) => {
                    let linear = weight.map_or(Dual(1, 0), |number| self.weight(number));
                    plus(times(number, number), times(linear, number))
                }
                Cheap::Even if passes(number.0) => number,
                Cheap::Even => Dual(0, 0),
            };
            input.into_iter().map(apply).collect()
        }

        fn record(&mut self, layers: &Cheap, input: Numbers, asked: bool) -> (Numbers, Self::Tape) {
            self.recorded += 1;
            (self.run_cheap(layers, input.clone()), (input, asked))
        }

        fn back(
            &mut self,
            layers: &Cheap,
            (input, asked): Self::Tape,
            gradient: Numbers,
        ) -> Option<Numbers> {
            let linear = match *layers {
                Cheap::Square(Some(number)) => {
                    let each = input.iter().zip(&gradient).map(|(x, g)| x.0 * g.0 % PRIME);
                    self.found(number, each);
                    self.weight(number).0
                }
                _ => 1,
            };
            let slope = |number: u64| match *layers {
                Cheap::Square(_) => (2 * number + linear) % PRIME,
                Cheap::Even => u64::from(passes(number)),
            };
            let of_input =
                input.iter().zip(gradient).map(|(x, g)| Dual(g.0 * slope(x.0) % PRIME, 0));
            asked.then(|| of_input.collect())
        }

        fn trains(&self, layers: &Cheap) -> bool {
            matches!(layers, Cheap::Square(Some(_)))
        }

        fn is_idempotent(&self, layers: &Cheap) -> bool {
            matches!(layers, Cheap::Even)
        }

        fn within<T>(&mut self, _: &Joint, branches: impl FnOnce(&mut Self) -> T) -> T {
            branches(self)
        }

        fn join(&mut self, joint: &Joint, outputs: Vec<Numbers>) -> Numbers {
            let counts: Vec<usize> = outputs.iter().map(Vec::len).collect();
            assert_eq!(counts, joint.counts);
            match joint.concat {
                true => outputs.concat(),
                false => outputs.iter().fold(Vec::new(), |all, output| sum(&all, output)),
            }
        }

        fn split(&mut self, joint: &Joint, gradient: Numbers) -> Vec<Numbers> {
            let mut rest = gradient.as_slice();
            let part = |count: &usize| {
                let part = rest[..*count].to_vec();
                if joint.concat {
                    rest = &rest[*count..];
                }
                part
            };
            joint.counts.iter().map(part).collect()
        }

        fn begins_with_first(&self, joint: &Joint) -> bool {
            joint.concat
        }

        fn first(&mut self, joint: &Joint, output: &Numbers) -> Numbers {
            output[..joint.counts[0]].to_vec()
        }

        fn add(&mut self, left: Numbers, right: Numbers) -> Numbers {
            sum(&left, &right)
        }
    }

    /// Segments without numbers: matmuls, cheap layers with a weight or without, branches.
    #[derive(Debug, Clone)]
    enum Shape {
        Matmul,
        Cheap(bool),
        Even,
        Branches(bool, Vec<Vec<Shape>>),
    }

    fn shapes() -> impl Strategy<Value = Vec<Shape>> {
        let cheap = any::<bool>().prop_map(Shape::Cheap);
        let leaf = prop_oneof![Just(Shape::Matmul), cheap, Just(Shape::Even)];
        let segment = leaf.prop_recursive(3, 24, 4, |segment| {
            let row = prop::collection::vec(segment, 0..4);
            (any::<bool>(), prop::collection::vec(row, 2..4))
                .prop_map(|(concat, rows)| Shape::Branches(concat, rows))
        });
        prop::collection::vec(segment, 1..7)
    }

    /// The segments of these shapes, run on `count` numbers, with their weights numbered; and how many
    /// numbers come out.
    fn numbered(
        shapes: &[Shape],
        mut count: usize,
        next: &mut u64,
    ) -> (Vec<SegmentOf<Arithmetic>>, usize) {
        let mut row: Vec<SegmentOf<Arithmetic>> = Vec::new();
        for shape in shapes {
            let mut number = || {
                *next += 1;
                *next - 1
            };
            match shape {
                Shape::Matmul => row.push(Segment::Matmul(number())),
                Shape::Cheap(_) | Shape::Even if matches!(row.last(), Some(Segment::Cheap(_))) => {}
                Shape::Cheap(trains) => {
                    row.push(Segment::Cheap(Cheap::Square(trains.then(number))));
                }
                Shape::Even => row.push(Segment::Cheap(Cheap::Even)),
                Shape::Branches(concat, rows) => {
                    let (rows, counts): (Vec<_>, Vec<usize>) =
                        rows.iter().map(|row| numbered(row, count, next)).unzip();
                    count = match concat {
                        true => counts.iter().sum(),
                        false => counts.iter().max().copied().unwrap_or(0),
                    };
                    row.push(Segment::Branches(Joint { concat: *concat, counts }, rows));
                }
            }
        }
        (row, count)
    }

    proptest! {
        #[test]
        fn gradients_are_the_derivatives_of_every_weight_and_of_the_input(
            shapes in shapes(),
            asked in any::<bool>(),
        ) {
            let mut weights = 0;
            let (row, count) = numbered(&shapes, 2, &mut weights);
            let input = |derivatives: [u64; 2]| vec![Dual(11, derivatives[0]), Dual(6, derivatives[1])];
            // The sum of the derivatives of all that comes out.
            let derivative = |varied: Option<u64>, of_input: [u64; 2]| {
                let mut runner = Arithmetic { varied, ..Arithmetic::default() };
                let (output, _) = forward(&mut runner, &row, input(of_input), false);
                output.iter().fold(0, |sum, number| (sum + number.1) % PRIME)
            };
            let mut runner = Arithmetic { varied: Some(u64::MAX), ..Arithmetic::default() };
            let (output, kept) = forward(&mut runner, &row, input([0, 0]), true);
            prop_assert_eq!(output.len(), count);
            let start = vec![Dual(1, 0); count];
            let given = needs_input(&runner, &row).then_some(input([0, 0]));
            let found = backward(&mut runner, &row, kept, given, start, asked);
            let found = found.map(|found| found.iter().map(|number| number.0).collect::<Vec<_>>());
            let expected = [[1, 0], [0, 1]].map(|of_input| derivative(None, of_input)).to_vec();
            prop_assert_eq!(found, asked.then_some(expected));
            prop_assert_eq!(runner.gradients.len() as u64, weights);
            for (number, gradient) in runner.gradients {
                prop_assert_eq!(gradient, derivative(Some(number), [0, 0]), "weight {}", number);
            }
        }
    }

    fn square() -> SegmentOf<Arithmetic> {
        Segment::Cheap(Cheap::Square(None))
    }

    fn kept(row: &[SegmentOf<Arithmetic>], runner: &mut Arithmetic) -> SavedValues<Numbers> {
        forward(runner, row, vec![Dual(11, 0)], true).1
    }

    #[test]
    fn one_value_a_matmul_is_kept_and_cheap_layers_run_once_again() {
        let rows = vec![vec![Segment::Matmul(1), square(), Segment::Matmul(2)], vec![square()]];
        let row: Vec<SegmentOf<Arithmetic>> = vec![
            Segment::Matmul(0),
            square(),
            Segment::Branches(Joint { concat: false, counts: vec![1, 1] }, rows),
            Segment::Cheap(Cheap::Even),
            Segment::Matmul(3),
            Segment::Matmul(4),
        ];
        let mut runner = Arithmetic::default();
        let mut kept = kept(&row, &mut runner);
        let mut values = Vec::new();
        kept.collect(&mut values);
        // Behind the matmuls 0 and 1, behind what follows the branches, and between 3 and 4.
        assert_eq!(values.len(), 4);
        let input = Some(vec![Dual(11, 0)]);
        backward(&mut runner, &row, kept, input, vec![Dual(1, 0)], false);
        assert_eq!(runner.recorded, 4);
    }

    #[test]
    fn a_dense_block_keeps_its_output_and_one_value_a_layer() {
        let layer = |place: u64| {
            let row = vec![
                square(),
                Segment::Matmul(2 * place),
                square(),
                Segment::Matmul(2 * place + 1),
            ];
            let counts = vec![1 << place, 1 << place];
            Segment::Branches(Joint { concat: true, counts }, vec![vec![], row])
        };
        let row: Vec<SegmentOf<Arithmetic>> = (0..3).map(layer).collect();
        let mut runner = Arithmetic::default();
        let mut kept = kept(&row, &mut runner);
        assert!(!needs_input(&runner, &row));
        let mut values = Vec::new();
        kept.collect(&mut values);
        let counts: Vec<usize> = values.iter().map(|value| value.len()).collect();
        assert_eq!(counts, [8, 1, 2, 4], "all maps, then a bottleneck for each layer");
    }
}
