//! Layers of which only the maps between products are kept.
//!
//! The gradients of a product (a convolution, a fully connected layer) follow from what it was given.
//! What lies between two products (biases aside: norms, activations, pooling, dropout) is cheap. So
//! it is run again from what the product before it put out, which gives both what its own gradient
//! needs and what the product behind it was given. Where it is ReLU alone, its output serves as well,
//! and nothing need be run again for the product. One map a product is kept, where a recorded graph
//! holds several; and it can be moved off the device, which what a graph holds cannot.
//!
//! The same as the memory-efficient DenseNet (Pleiss et al. 2017, arXiv:1707.06990) does for norm and
//! ReLU, for every layer that is no product. A [`Machine`] carries the passes out: on tensors in a
//! training step, on sizes alone in a plan.

/// A part of a row of layers; two [`Part::Between`] never follow each other.
#[derive(Debug, Clone)]
pub enum Part<P, B, J> {
    /// A product.
    Product(P),
    /// What lies between products.
    Between(B),
    /// Rows of parts side by side, each run on the same input, and how their outputs are joined.
    Branches(J, Vec<Vec<Self>>),
}

/// A part as `M` runs it.
pub type PartOf<M> = Part<<M as Machine>::Product, <M as Machine>::Between, <M as Machine>::Joint>;

/// What is kept of a row of parts until its backward pass.
#[derive(Debug)]
pub struct Kept<V> {
    /// What flowed into each part, and out of the last, where that is kept.
    values: Vec<Option<V>>,
    /// What is kept of each part's branches.
    branches: Vec<Vec<Self>>,
}

/// Runs parts.
pub trait Machine {
    /// A product.
    type Product;
    /// Layers between products.
    type Between;
    /// How branches are joined.
    type Joint;
    /// What flows between parts, and back.
    type Value: Clone;
    /// What a run is taken back by.
    type Tape;

    /// Runs a product.
    fn product(&mut self, product: &Self::Product, input: Self::Value) -> Self::Value;

    /// Runs layers between products.
    fn between(&mut self, layers: &Self::Between, input: Self::Value) -> Self::Value;

    /// Runs them once more, to be taken back; the gradient of the input is `asked` for or not.
    fn again(
        &mut self,
        layers: &Self::Between,
        input: Self::Value,
        asked: bool,
    ) -> (Self::Value, Self::Tape);

    /// The gradient of what they were given, where it was asked for; those of their parameters are
    /// added up elsewhere.
    fn between_back(
        &mut self,
        layers: &Self::Between,
        tape: Self::Tape,
        gradient: Self::Value,
    ) -> Option<Self::Value>;

    /// The gradient of a product's `input`, where it is `asked` for; those of its parameters are
    /// added up elsewhere.
    fn product_back(
        &mut self,
        product: &Self::Product,
        input: Self::Value,
        gradient: Self::Value,
        asked: bool,
    ) -> Option<Self::Value>;

    /// Whether layers between products have parameters.
    fn trains(&self, layers: &Self::Between) -> bool;

    /// Whether layers between products have, run on their own output, that output and the same
    /// gradient, as ReLU has.
    fn repeats(&self, layers: &Self::Between) -> bool;

    /// Joins the outputs of branches.
    fn join(&mut self, joint: &Self::Joint, outputs: Vec<Self::Value>) -> Self::Value;

    /// The gradient of each branch's output.
    fn split(&mut self, joint: &Self::Joint, gradient: Self::Value) -> Vec<Self::Value>;

    /// The sum of two gradients.
    fn add(&mut self, left: Self::Value, right: Self::Value) -> Self::Value;
}

impl<V> Kept<V> {
    /// Every value that is kept, in a fixed order.
    pub fn collect<'a>(&'a mut self, values: &mut Vec<&'a mut V>) {
        values.extend(self.values.iter_mut().flatten());
        self.branches.iter_mut().flatten().for_each(|branch| branch.collect(values));
    }
}

/// Whether [`backward`] needs what `parts` were run on.
pub fn needs_input<M: Machine>(machine: &M, parts: &[PartOf<M>]) -> bool {
    !parts.first().is_some_and(|first| repeats(machine, first))
}

/// Whether what flows into the part at `place`, which is not the first, is kept; behind the last,
/// what flows out.
fn is_kept<M: Machine>(machine: &M, parts: &[PartOf<M>], place: usize) -> bool {
    let before = &parts[place - 1];
    if repeats(machine, before) {
        return true;
    }
    let comes_again = matches!(before, Part::Between(_));
    let needed = parts.get(place).is_some_and(|part| !repeats(machine, part));
    needed && !comes_again
}

/// Runs `parts` on `input`. Beside the output there is what [`backward`] needs but the input, where
/// that is to `keep`.
pub fn forward<M: Machine>(
    machine: &mut M,
    parts: &[PartOf<M>],
    input: M::Value,
    keep: bool,
) -> (M::Value, Kept<M::Value>) {
    let mut value = input;
    let mut kept = Kept { values: vec![None], branches: Vec::new() };
    for (place, part) in parts.iter().enumerate() {
        let mut branches = Vec::new();
        value = match part {
            Part::Product(product) => machine.product(product, value),
            Part::Between(layers) => machine.between(layers, value),
            Part::Branches(joint, rows) => {
                let mut outputs = Vec::with_capacity(rows.len());
                for row in rows {
                    let (output, kept) = forward(machine, row, value.clone(), keep);
                    outputs.push(output);
                    branches.push(kept);
                }
                drop(value);
                machine.join(joint, outputs)
            }
        };
        let is_kept = keep && is_kept(machine, parts, place + 1);
        kept.values.push(is_kept.then(|| value.clone()));
        kept.branches.push(branches);
    }
    (value, kept)
}

/// Takes `parts` back, which were run on `input`, where that is [needed](needs_input), and have `kept`
/// the rest: from the gradient of the output to that of the input, where it is `asked` for.
pub fn backward<M: Machine>(
    machine: &mut M,
    parts: &[PartOf<M>],
    kept: Kept<M::Value>,
    input: Option<M::Value>,
    gradient: M::Value,
    asked: bool,
) -> Option<M::Value> {
    // Whether the gradient of what flows into a part is asked for.
    let each: Vec<bool> = parts
        .iter()
        .scan(asked, |before, part| {
            Some(std::mem::replace(before, *before || trains(machine, part)))
        })
        .collect();
    let Kept { mut values, mut branches } = kept;
    values[0] = input;
    let mut gradient = gradient;
    // Of a part that was run again for what flows out of it.
    let mut recorded = None;
    for (place, part) in parts.iter().enumerate().rev() {
        let asked = each[place];
        if !asked && !trains(machine, part) {
            return None;
        }
        let found = match part {
            Part::Between(layers) => {
                let tape = recorded.take().unwrap_or_else(|| {
                    let from = if machine.repeats(layers) { place + 1 } else { place };
                    let given = values[from].take().expect("is kept");
                    machine.again(layers, given, asked).1
                });
                machine.between_back(layers, tape, gradient)
            }
            Part::Product(product) => {
                let given = given(machine, parts, &each, &mut values, place, &mut recorded);
                machine.product_back(product, given, gradient, asked)
            }
            Part::Branches(joint, rows) => {
                let given = given(machine, parts, &each, &mut values, place, &mut recorded);
                let kept = std::mem::take(&mut branches[place]);
                let gradients = machine.split(joint, gradient);
                let mut sum = None;
                for ((row, kept), gradient) in rows.iter().zip(kept).zip(gradients).rev() {
                    let given = needs_input(machine, row).then(|| given.clone());
                    let found = backward(machine, row, kept, given, gradient, asked);
                    sum = match (sum, found) {
                        (Some(sum), Some(found)) => Some(machine.add(sum, found)),
                        (sum, found) => sum.or(found),
                    };
                }
                sum
            }
        };
        gradient = found?;
    }
    // Of no parts the input is the output.
    asked.then_some(gradient)
}

/// What flowed into the part at `place`, if need be by running the part before it again, which is
/// then `recorded`.
fn given<M: Machine>(
    machine: &mut M,
    parts: &[PartOf<M>],
    asked: &[bool],
    values: &mut [Option<M::Value>],
    place: usize,
    recorded: &mut Option<M::Tape>,
) -> M::Value {
    let before = place.checked_sub(1).map(|before| &parts[before]);
    match before {
        Some(Part::Between(layers)) if machine.repeats(layers) => {
            // It is needed once more.
            values[place].clone().expect("is kept")
        }
        Some(Part::Between(layers)) => {
            let given = values[place - 1].take().expect("is kept");
            let (output, tape) = machine.again(layers, given, asked[place - 1]);
            *recorded = Some(tape);
            output
        }
        _ => values[place].take().expect("is kept"),
    }
}

fn repeats<M: Machine>(machine: &M, part: &PartOf<M>) -> bool {
    matches!(part, Part::Between(layers) if machine.repeats(layers))
}

fn trains<M: Machine>(machine: &M, part: &PartOf<M>) -> bool {
    match part {
        Part::Product(_) => true,
        Part::Between(layers) => machine.trains(layers),
        Part::Branches(_, rows) => rows.iter().flatten().any(|part| trains(machine, part)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    /// Numbers are taken modulo this prime, so that sums and products are exact.
    const PRIME: u64 = 1_000_003;

    /// A value and its derivative with respect to one weight or the input.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Dual(u64, u64);

    /// Products are w·x; between them x² + x, or x² + a·x with a weight a, or what is even and not 0
    /// passes, and 0 else.
    #[derive(Default)]
    struct Numbers {
        /// What derivatives are with respect to, if not the input.
        varied: Option<u64>,
        gradients: BTreeMap<u64, u64>,
        again: usize,
    }

    #[derive(Debug, Clone, Copy)]
    enum Layer {
        Square(Option<u64>),
        Even,
    }

    impl Numbers {
        /// The weight with this number.
        fn weight(&self, number: u64) -> Dual {
            Dual(7 * number + 3, u64::from(self.varied == Some(number)))
        }

        fn found(&mut self, number: u64, gradient: u64) {
            let before = self.gradients.insert(number, gradient % PRIME);
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

    impl Machine for Numbers {
        type Product = u64;
        type Between = Layer;
        type Joint = usize;
        type Value = Dual;
        type Tape = (Dual, bool);

        fn product(&mut self, product: &u64, input: Dual) -> Dual {
            times(self.weight(*product), input)
        }

        fn between(&mut self, layers: &Layer, input: Dual) -> Dual {
            match *layers {
                Layer::Square(weight) => {
                    let linear = weight.map_or(Dual(1, 0), |number| self.weight(number));
                    plus(times(input, input), times(linear, input))
                }
                Layer::Even if passes(input.0) => input,
                Layer::Even => Dual(0, 0),
            }
        }

        fn again(&mut self, layers: &Layer, input: Dual, asked: bool) -> (Dual, Self::Tape) {
            self.again += 1;
            (self.between(layers, input), (input, asked))
        }

        fn between_back(
            &mut self,
            layers: &Layer,
            (input, asked): Self::Tape,
            gradient: Dual,
        ) -> Option<Dual> {
            let slope = match *layers {
                Layer::Square(None) => 2 * input.0 + 1,
                Layer::Square(Some(number)) => {
                    self.found(number, gradient.0 * input.0);
                    2 * input.0 + self.weight(number).0
                }
                Layer::Even => u64::from(passes(input.0)),
            };
            asked.then(|| Dual(gradient.0 * (slope % PRIME) % PRIME, 0))
        }

        fn product_back(
            &mut self,
            product: &u64,
            input: Dual,
            gradient: Dual,
            asked: bool,
        ) -> Option<Dual> {
            self.found(*product, gradient.0 * input.0);
            asked.then(|| Dual(gradient.0 * self.weight(*product).0 % PRIME, 0))
        }

        fn trains(&self, layers: &Layer) -> bool {
            matches!(layers, Layer::Square(Some(_)))
        }

        fn repeats(&self, layers: &Layer) -> bool {
            matches!(layers, Layer::Even)
        }

        fn join(&mut self, joint: &usize, outputs: Vec<Dual>) -> Dual {
            assert_eq!(outputs.len(), *joint);
            outputs.into_iter().fold(Dual(0, 0), plus)
        }

        fn split(&mut self, joint: &usize, gradient: Dual) -> Vec<Dual> {
            vec![gradient; *joint]
        }

        fn add(&mut self, left: Dual, right: Dual) -> Dual {
            plus(left, right)
        }
    }

    /// Parts without numbers: products, what lies between with a weight or without, branches.
    #[derive(Debug, Clone)]
    enum Shape {
        Product,
        Between(bool),
        Even,
        Branches(Vec<Vec<Shape>>),
    }

    fn shapes() -> impl Strategy<Value = Vec<Shape>> {
        let between = any::<bool>().prop_map(Shape::Between);
        let leaf = prop_oneof![Just(Shape::Product), between, Just(Shape::Even)];
        let part = leaf.prop_recursive(3, 24, 4, |part| {
            let row = prop::collection::vec(part, 0..4);
            prop::collection::vec(row, 2..4).prop_map(Shape::Branches)
        });
        prop::collection::vec(part, 1..7)
    }

    /// The parts of these shapes, where what lies between products stands alone, their weights numbered.
    fn numbered(shapes: &[Shape], next: &mut u64) -> Vec<PartOf<Numbers>> {
        let mut parts: Vec<PartOf<Numbers>> = Vec::new();
        for shape in shapes {
            let mut number = || {
                *next += 1;
                *next - 1
            };
            match shape {
                Shape::Product => parts.push(Part::Product(number())),
                Shape::Between(_) | Shape::Even
                    if matches!(parts.last(), Some(Part::Between(_))) => {}
                Shape::Between(trains) => {
                    parts.push(Part::Between(Layer::Square(trains.then(number))));
                }
                Shape::Even => parts.push(Part::Between(Layer::Even)),
                Shape::Branches(rows) => {
                    let rows: Vec<_> = rows.iter().map(|row| numbered(row, next)).collect();
                    parts.push(Part::Branches(rows.len(), rows));
                }
            }
        }
        parts
    }

    proptest! {
        #[test]
        fn gradients_are_the_derivatives_of_every_weight_and_of_the_input(
            shapes in shapes(),
            asked in any::<bool>(),
        ) {
            let mut weights = 0;
            let parts = numbered(&shapes, &mut weights);
            let input = 11;
            let run = |varied: Option<u64>| {
                let derivative = u64::from(varied.is_none());
                let mut numbers = Numbers { varied, ..Numbers::default() };
                forward(&mut numbers, &parts, Dual(input, derivative), false).0
            };
            let mut numbers = Numbers { varied: Some(u64::MAX), ..Numbers::default() };
            let (output, kept) = forward(&mut numbers, &parts, Dual(input, 0), true);
            prop_assert_eq!(output.0, run(None).0);
            let start = Dual(1, 0);
            let given = needs_input(&numbers, &parts).then_some(Dual(input, 0));
            let found = backward(&mut numbers, &parts, kept, given, start, asked);
            prop_assert_eq!(found.map(|found| found.0), asked.then(|| run(None).1));
            prop_assert_eq!(numbers.gradients.len() as u64, weights);
            for (number, gradient) in numbers.gradients {
                prop_assert_eq!(gradient, run(Some(number)).1, "weight {}", number);
            }
        }
    }

    #[test]
    fn one_value_a_product_is_kept_and_each_part_between_runs_once_again() {
        let between = || Part::Between(Layer::Square(None));
        let rows = vec![vec![Part::Product(1), between(), Part::Product(2)], vec![between()]];
        let parts: Vec<PartOf<Numbers>> = vec![
            Part::Product(0),
            between(),
            Part::Branches(2, rows),
            Part::Between(Layer::Even),
            Part::Product(3),
            Part::Product(4),
        ];
        let mut numbers = Numbers::default();
        let (_, mut kept) = forward(&mut numbers, &parts, Dual(11, 0), true);
        let mut values = Vec::new();
        kept.collect(&mut values);
        // Behind the products 0 and 1, behind what follows the branches, and between 3 and 4.
        assert_eq!(values.len(), 4);
        backward(&mut numbers, &parts, kept, Some(Dual(11, 0)), Dual(1, 0), false);
        assert_eq!(numbers.again, 4);
    }
}
