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
        let of_input = input.iter().zip(gradient).map(|(x, g)| Dual(g.0 * slope(x.0) % PRIME, 0));
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
        let row =
            vec![square(), Segment::Matmul(2 * place), square(), Segment::Matmul(2 * place + 1)];
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
