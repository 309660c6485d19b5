//! What a [`Traced`](super::Traced) stage costs: its operations noted in the order they run, on
//! arrays that are only sizes.
//!
//! A stage's footprint is found by running the stage's own steps on a ledger: each operation allocates,
//! writes in place, keeps and gives back what Burn's does (burn-flex and burn-autodiff 0.22), and goes
//! back likewise. A value is dropped where the stage drops it.

mod array;
mod by_hand;
mod card;
mod meter;
mod operations;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use array::{Array, Arrays};
pub use by_hand::Tape;
pub use card::{Card, CardStage};
pub use meter::Held;
use meter::Meter;

use super::{ActivationShape, Footprint, Target};

/// Notes the operations of a stage.
pub struct Ledger {
    arrays: Arrays,
    /// Whether what backward needs is kept.
    keep: Cell<bool>,
    steps: RefCell<Vec<Step>>,
    /// The leaves that are parameters, and their elements.
    parameters: RefCell<Vec<(usize, usize)>>,
    /// Elements of the largest parameter.
    largest: Cell<usize>,
    /// The gradients of parameters of layers that were taken back by hand.
    collected: RefCell<Vec<Array>>,
    /// Running statistics.
    statistics: Cell<usize>,
    forward: Cell<f64>,
    backward: Cell<f64>,
    /// Memory that counts elsewhere: that of the weights.
    weights: Array,
}

/// A tensor: its shape, and what autodiff knows it by.
#[derive(Debug, Clone)]
pub struct Noted {
    shape: Vec<usize>,
    array: Array,
    node: Option<usize>,
}

/// The window of a convolution or pooling, square.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Height and width.
    pub kernel: usize,
    /// Step in both directions.
    pub stride: usize,
    /// Zeros added on every side.
    pub padding: usize,
}

impl Window {
    /// Height or width of the output for that of the input.
    pub fn output(&self, size: usize) -> usize {
        (size + 2 * self.padding - self.kernel) / self.stride + 1
    }
}

type Back = Box<dyn FnOnce(&Ledger, Array, &mut Gradients)>;

/// What autodiff knows of a tensor: how far it is from the leaves, and how its gradient goes on.
struct Step {
    depth: usize,
    back: Option<Back>,
}

/// Gradients on their way, by node.
type Gradients = BTreeMap<usize, Array>;

impl Noted {
    /// Its shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Batch, channels, height, width.
    ///
    /// # Panics
    ///
    /// When it has another rank.
    pub fn map(&self) -> [usize; 4] {
        self.shape.as_slice().try_into().unwrap_or_else(|_| panic!("{:?} is no map", self.shape))
    }

    fn elements(&self) -> usize {
        self.array.elements
    }
}

impl Ledger {
    fn new(on: &Target, keep: bool) -> Self {
        let arrays = Arrays {
            cuda: on.cuda,
            meter: Meter::new(1),
            element: on.precision.bytes(),
            threads: on.cpu.threads,
            traffic: Cell::new(0.0),
        };
        let weights = Array { held: Meter::new(1).take(0), elements: 0, dense: true };
        Self {
            arrays,
            keep: Cell::new(keep),
            steps: RefCell::default(),
            parameters: RefCell::default(),
            largest: Cell::default(),
            collected: RefCell::default(),
            statistics: Cell::default(),
            forward: Cell::default(),
            backward: Cell::default(),
            weights,
        }
    }

    /// What `stage` costs for an input of this shape: it makes the outputs of the input.
    pub fn footprint(
        on: &Target,
        input: &ActivationShape,
        stage: impl Fn(&Self, Noted) -> Vec<Noted>,
    ) -> Footprint {
        Self::of(on, input, true, stage)
    }

    /// The same of the first stage of a chain: nobody asks for the gradient of its input.
    pub fn footprint_of_first(
        on: &Target,
        input: &ActivationShape,
        stage: impl Fn(&Self, Noted) -> Vec<Noted>,
    ) -> Footprint {
        Self::of(on, input, false, stage)
    }

    fn of(
        on: &Target,
        input: &ActivationShape,
        asked: bool,
        stage: impl Fn(&Self, Noted) -> Vec<Noted>,
    ) -> Footprint {
        let plain = Self::new(on, false);
        let outputs = stage(&plain, plain.given(input, false));
        let output: u64 = outputs.iter().map(|output| output.array.held.bytes()).sum();
        let forward_flops = plain.forward.get();
        let forward_traffic = plain.arrays.traffic.get();
        let forward = plain.arrays.meter.peak();
        drop(outputs);

        let ledger = Self::new(on, true);
        let meter = &ledger.arrays.meter;
        let given = ledger.given(input, asked);
        let size = given.array.held.bytes();
        let outputs = stage(&ledger, given.clone());
        let in_input = outputs.iter().all(|output| output.array.held.is(&given.array.held));
        let kept = meter.live();
        let saving_workspace = meter.peak() - kept;
        ledger.arrays.traffic.set(0.0);

        let gradients: Vec<Array> =
            outputs.iter().map(|output| ledger.arrays.array(output.elements())).collect();
        meter.restart();
        let start = meter.live();
        let (gradient, of_parameters) = ledger.go_back(outputs, gradients, given.node);
        let parameter_gradients = bytes(&of_parameters);
        let gradient = gradient.map_or(0, |gradient| gradient.held.bytes());
        Footprint {
            standing: 4 * ledger.statistics.get() as u64,
            largest_parameter: ledger.largest_parameter(),
            largest_array: plain.arrays.meter.largest().max(meter.largest()),
            output,
            output_in_input: in_input,
            checkpoint: 0,
            saved: kept.saturating_sub(if in_input { size } else { size + output }),
            saves_input: true,
            saves_output: true,
            // A graph stays where it is.
            moves_saved: false,
            forward_workspace: forward.saturating_sub(size + output),
            saving_workspace,
            gradient,
            gradient_in_gradient: false,
            backward_workspace: meter.peak().saturating_sub(start + gradient + parameter_gradients),
            parameter_gradients,
            layers: 1.0,
            forward_flops,
            backward_flops: ledger.backward.get(),
            forward_traffic,
            backward_traffic: ledger.arrays.traffic.get(),
        }
    }

    /// The stage's input, whose gradient is `asked` for or not.
    fn given(&self, shape: &ActivationShape, asked: bool) -> Noted {
        let shape = match shape {
            ActivationShape::Map(shape) => shape.to_vec(),
            ActivationShape::Features(shape) => shape.to_vec(),
            ActivationShape::Outputs(_) => panic!("no stage follows the heads"),
        };
        let array = self.arrays.array(shape.iter().product());
        self.arrays.traffic.set(0.0);
        let node = asked.then(|| self.step(0, None));
        Noted { shape, array, node }
    }

    /// A parameter of this shape.
    pub fn parameter(&self, shape: &[usize]) -> Noted {
        let elements = shape.iter().product();
        self.largest.set(self.largest.get().max(elements));
        let array = Array { elements, ..self.weights.clone() };
        let node = self.keep.get().then(|| self.step(0, None));
        self.parameters.borrow_mut().extend(node.map(|node| (node, elements)));
        Noted { shape: shape.to_vec(), array, node }
    }

    /// Bytes of the largest parameter.
    fn largest_parameter(&self) -> u64 {
        self.arrays.element * self.largest.get() as u64
    }

    fn step(&self, depth: usize, back: Option<Back>) -> usize {
        let mut steps = self.steps.borrow_mut();
        steps.push(Step { depth, back });
        steps.len() - 1
    }

    /// The result of an operation on `parents`; `back` turns its gradient into theirs.
    fn result(
        &self,
        shape: Vec<usize>,
        array: Array,
        parents: &[Option<usize>],
        back: impl FnOnce(&Self, Array, &mut Gradients) + 'static,
    ) -> Noted {
        let steps = self.steps.borrow();
        let depth = parents.iter().flatten().map(|parent| steps[*parent].depth).max();
        drop(steps);
        let node = depth.map(|depth| self.step(depth + 1, Some(Box::new(back))));
        Noted { shape, array, node }
    }

    /// Adds `gradient` to what there is for `node`.
    fn register(&self, gradients: &mut Gradients, node: Option<usize>, gradient: Array) {
        let Some(node) = node else { return };
        let gradient = match gradients.remove(&node) {
            Some(before) => self.arrays.zip(gradient, before),
            None => gradient,
        };
        gradients.insert(node, gradient);
    }

    /// Takes the gradients of `outputs` back: the input's, and those of the parameters.
    fn go_back(
        &self,
        outputs: Vec<Noted>,
        gradients: Vec<Array>,
        leaf: Option<usize>,
    ) -> (Option<Array>, Vec<Array>) {
        let mut going = Gradients::new();
        for (output, gradient) in outputs.into_iter().zip(gradients) {
            assert!(output.node.is_some(), "outputs follow from what is trained");
            self.register(&mut going, output.node, gradient);
        }
        let mut steps: Vec<(usize, usize, Back)> = (self.steps.borrow_mut().iter_mut().enumerate())
            .filter_map(|(node, step)| Some((step.depth, node, step.back.take()?)))
            .collect();
        steps.sort_by_key(|(depth, node, _)| std::cmp::Reverse((*depth, *node)));
        for (_, node, back) in steps {
            if let Some(gradient) = going.remove(&node) {
                back(self, gradient, &mut going);
            }
        }
        let mut collected = Vec::new();
        for (node, elements) in self.parameters.borrow().iter() {
            let gradient = going.remove(node).expect("every parameter has a gradient");
            assert_eq!(gradient.elements, *elements, "the gradient of a parameter");
            collected.push(self.arrays.dense(gradient));
        }
        let input = leaf.and_then(|leaf| going.remove(&leaf));
        (input, collected)
    }

    /// Adds floating-point operations.
    fn work(&self, forward: f64, backward: f64) {
        self.forward.set(self.forward.get() + forward);
        self.backward.set(self.backward.get() + backward);
    }
}

/// What `arrays` take together.
fn bytes(arrays: &[Array]) -> u64 {
    arrays.iter().map(|array| array.held.bytes()).sum()
}
