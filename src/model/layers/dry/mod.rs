//! Layers on sizes alone: what a stage costs, found by running its passes without computing them.
//!
//! Every operation allocates, writes in place, keeps and gives back what Burn's operation does
//! (burn-flex and burn-autodiff 0.22; on a GPU our own convolutions), on arrays of which only the size
//! is known. A value is dropped where the pass on tensors drops it, since both run the same code.

mod array;
mod gpu;
mod matmul;
mod operations;
mod run;
mod tape;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use array::{Array, Arrays};
use gpu::Convolver;
pub(super) use tape::DryTape;

use super::StageLayers;
use super::stage::{backward, forward};
use crate::memory::{ActivationShape, DryAllocator, Footprint, Target};
use crate::ops::gpu::Kernel;

/// Runs layers on sizes alone.
pub(super) struct DryOps {
    arrays: Arrays,
    /// Whether operations are recorded.
    recording: Cell<bool>,
    nodes: RefCell<Vec<Node>>,
    /// The leaves that are parameters, and their elements.
    parameters: RefCell<Vec<(usize, usize)>>,
    /// Elements of the largest parameter.
    largest: Cell<usize>,
    /// The gradients of parameters so far.
    gradients: RefCell<Vec<Array>>,
    /// Elements of running statistics.
    statistics: Cell<usize>,
    forward_flops: Cell<f64>,
    backward_flops: Cell<f64>,
    /// Memory that counts elsewhere: that of the weights.
    weights: Array,
}

/// A tensor: its shape, its memory, and what autodiff knows it by while it is recorded.
#[derive(Debug, Clone)]
pub(super) struct DryTensor {
    shape: Vec<usize>,
    array: Array,
    node: Option<usize>,
}

/// What flows between layers.
#[derive(Debug, Clone)]
pub(super) enum DryValue {
    /// A map or features.
    One(DryTensor),
    /// The outputs of the heads.
    Heads(Vec<DryTensor>),
}

type Back = Box<dyn FnOnce(&DryOps, Array, &mut Gradients)>;

/// What autodiff knows of a tensor: how far it is from the leaves, and how its gradient goes on.
struct Node {
    depth: usize,
    back: Option<Back>,
}

/// Gradients on their way, by node.
type Gradients = BTreeMap<usize, Array>;

impl DryTensor {
    /// Batch, channels, height, width.
    fn map(&self) -> [usize; 4] {
        self.shape.as_slice().try_into().unwrap_or_else(|_| panic!("{:?} is no map", self.shape))
    }

    /// Batch and features.
    fn features(&self) -> [usize; 2] {
        let features = self.shape.as_slice().try_into();
        features.unwrap_or_else(|_| panic!("{:?} are no features", self.shape))
    }

    fn elements(&self) -> usize {
        self.array.elements
    }
}

impl DryValue {
    /// The map or the features.
    fn one(self) -> DryTensor {
        match self {
            Self::One(tensor) => tensor,
            Self::Heads(_) => panic!("no layer follows the heads"),
        }
    }

    fn tensors(&self) -> &[DryTensor] {
        match self {
            Self::One(tensor) => std::slice::from_ref(tensor),
            Self::Heads(tensors) => tensors,
        }
    }

    fn bytes(&self) -> u64 {
        self.tensors().iter().map(|tensor| tensor.array.buffer.bytes()).sum()
    }
}

/// What `stage` costs for an input of this shape.
pub(super) fn footprint(stage: &StageLayers, input: &ActivationShape, on: &Target) -> Footprint {
    let mut plain = DryOps::new(on);
    let given = plain.given(input);
    let size = given.array.buffer.bytes();
    let (output, kept) = forward(&mut plain, stage, DryValue::One(given), false);
    drop(kept);
    let after = output.bytes();
    let forward_workspace = plain.arrays.allocator.peak().saturating_sub(size + after);
    drop(output);

    let mut ops = DryOps::new(on);
    let allocator = ops.arrays.allocator.clone();
    let given = ops.given(input);
    let (output, kept) = forward(&mut ops, stage, DryValue::One(given.clone()), true);
    let of_input = |tensor: &DryTensor| tensor.array.buffer.is(&given.array.buffer);
    let in_input = output.tensors().iter().all(of_input);
    let live = allocator.live();
    let saving_workspace = allocator.peak() - live;
    let others = usize::from(in_input);
    let is_kept = |tensor: &DryTensor, others: usize| tensor.array.buffer.holders() > 1 + others;
    let saves_input = is_kept(&given, others);
    let saves_output = output.tensors().iter().any(|tensor| is_kept(tensor, others));
    drop(given);
    let backward_flops = ops.backward_flops.get();

    let gradient = ops.gradient_of(&output);
    let of_output = gradient.tensors()[0].array.buffer.number();
    drop(output);
    allocator.restart();
    ops.arrays.traffic.set(0.0);
    let start = allocator.live();
    let found = backward(&mut ops, stage, kept, gradient).map(DryValue::one);
    let in_gradient = found.as_ref().is_some_and(|found| found.array.buffer.number() == of_output);
    let gradient = match &found {
        Some(found) if !in_gradient => found.array.buffer.bytes(),
        _ => 0,
    };
    let parameter_gradients = bytes(&ops.gradients.borrow());
    Footprint {
        standing: 4 * plain.statistics.get() as u64,
        largest_parameter: ops.arrays.element * ops.largest.get() as u64,
        largest_array: plain.arrays.allocator.largest().max(allocator.largest()),
        output: after,
        output_in_input: in_input,
        checkpoint: 0,
        saved: live - if in_input { size } else { size + after },
        saves_input,
        saves_output,
        moves_saved: true,
        forward_workspace,
        saving_workspace,
        gradient,
        gradient_in_gradient: in_gradient,
        backward_peak: allocator.peak() - start,
        parameter_gradients,
        layers: 1.0,
        forward_flops: plain.forward_flops.get(),
        backward_flops,
        forward_traffic: plain.arrays.traffic.get(),
        backward_traffic: ops.arrays.traffic.get(),
    }
}

/// The hand-written kernels that `stage` launches on a GPU.
pub(super) fn kernels(stage: &StageLayers, input: &ActivationShape, on: &Target) -> Vec<Kernel> {
    let mut ops = DryOps::new(on);
    let given = DryValue::One(ops.given(input));
    let (output, kept) = forward(&mut ops, stage, given, true);
    let gradient = ops.gradient_of(&output);
    backward(&mut ops, stage, kept, gradient);
    ops.arrays.gpu.map(|gpu| gpu.launched()).unwrap_or_default()
}

impl DryOps {
    fn new(on: &Target) -> Self {
        let allocator = DryAllocator::default();
        let arrays = Arrays {
            gpu: on.cuda.then(|| Convolver::new(on, &allocator)),
            allocator,
            element: on.precision.bytes(),
            threads: on.cpu.threads,
            traffic: Cell::new(0.0),
        };
        let buffer = DryAllocator::default().take(0);
        let weights = Array { buffer, elements: 0, dense: true, pitched: false };
        Self {
            arrays,
            recording: Cell::new(false),
            nodes: RefCell::default(),
            parameters: RefCell::default(),
            largest: Cell::default(),
            gradients: RefCell::default(),
            statistics: Cell::default(),
            forward_flops: Cell::default(),
            backward_flops: Cell::default(),
            weights,
        }
    }

    /// The stage's input.
    fn given(&self, shape: &ActivationShape) -> DryTensor {
        let shape = match shape {
            ActivationShape::Map(shape) => shape.to_vec(),
            ActivationShape::Features(shape) => shape.to_vec(),
            ActivationShape::Outputs(_) => panic!("no stage follows the heads"),
        };
        let array = self.arrays.array(shape.iter().product());
        self.arrays.traffic.set(0.0);
        DryTensor { shape, array, node: None }
    }

    /// Room for the gradient of a stage's output.
    fn gradient_of(&self, output: &DryValue) -> DryValue {
        let gradient = |tensor: &DryTensor| {
            let array = self.arrays.array(tensor.elements());
            DryTensor { shape: tensor.shape.clone(), array, node: None }
        };
        match output {
            DryValue::One(tensor) => DryValue::One(gradient(tensor)),
            DryValue::Heads(tensors) => DryValue::Heads(tensors.iter().map(gradient).collect()),
        }
    }

    /// A parameter of this shape.
    fn parameter(&self, shape: &[usize]) -> DryTensor {
        let elements = shape.iter().product();
        self.largest.set(self.largest.get().max(elements));
        let array = Array { elements, ..self.weights.clone() };
        let node = self.recording.get().then(|| self.node(0, None));
        self.parameters.borrow_mut().extend(node.map(|node| (node, elements)));
        DryTensor { shape: shape.to_vec(), array, node }
    }

    fn node(&self, depth: usize, back: Option<Back>) -> usize {
        let mut nodes = self.nodes.borrow_mut();
        nodes.push(Node { depth, back });
        nodes.len() - 1
    }

    /// The result of an operation on `parents`; `back` turns its gradient into theirs.
    fn result(
        &self,
        shape: Vec<usize>,
        array: Array,
        parents: &[Option<usize>],
        back: impl FnOnce(&Self, Array, &mut Gradients) + 'static,
    ) -> DryTensor {
        let nodes = self.nodes.borrow();
        let depth = parents.iter().flatten().map(|parent| nodes[*parent].depth).max();
        drop(nodes);
        let node = depth.map(|depth| self.node(depth + 1, Some(Box::new(back))));
        DryTensor { shape, array, node }
    }

    /// Adds floating-point operations.
    fn work(&self, forward: f64, backward: f64) {
        self.forward_flops.set(self.forward_flops.get() + forward);
        self.backward_flops.set(self.backward_flops.get() + backward);
    }

    /// Holds the gradient of a parameter until the end of the pass.
    fn collect(&self, gradient: Array) {
        let gradient = self.arrays.dense(gradient);
        self.gradients.borrow_mut().push(gradient);
    }
}

/// What `arrays` take together.
fn bytes(arrays: &[Array]) -> u64 {
    arrays.iter().map(|array| array.buffer.bytes()).sum()
}
