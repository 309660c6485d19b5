//! A stage of layers: which segments they are, and their passes.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use super::ops::run_row;
use super::segment::{self, Runner, SavedValues, Segment};
use super::tensors::TensorOps;
use super::{Join, Layer, Op, Ops, ParameterSpec, Size, StageLayers};
use crate::memory::offload::OffloadTensor;
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::ops::MatmulPrecision;

/// Branches of layers, and how their outputs become one.
pub(super) struct LayerJoint<'a> {
    join: Join,
    /// The path of their module.
    name: &'a str,
    /// What they are called in a trace; empty where each branch has a name of its own.
    label: &'a str,
    /// Channels or features that each branch gives.
    channels: Vec<usize>,
}

type LayerSegment<'a> = Segment<&'a Layer, &'a [Layer], LayerJoint<'a>>;

/// `layers`, run on `input`, as segments.
fn segments<'a>(layers: &'a [Layer], input: &Size) -> Vec<LayerSegment<'a>> {
    let mut segments = Vec::new();
    let mut rest = layers;
    let mut input = input;
    while let Some(first) = rest.first() {
        let begins = |layer: &Layer| layer.op.is_matmul() || matches!(layer.op, Op::Branches(..));
        let cheap = rest.iter().position(begins).unwrap_or(rest.len());
        let (taken, behind) = rest.split_at(cheap.max(1));
        segments.push(match &first.op {
            Op::Branches(join, rows) => {
                let output = |row: &'a Vec<Layer>| row.last().map_or(input, |last| &last.output);
                let channels = rows.iter().map(|row| output(row).channels()).collect();
                let joint =
                    LayerJoint { join: *join, name: &first.name, label: &first.label, channels };
                let rows = rows.iter().map(|row| self::segments(row, input)).collect();
                Segment::Branches(joint, rows)
            }
            op if op.is_matmul() => Segment::Matmul(first),
            _ => Segment::Cheap(taken),
        });
        input = taken.last().map_or(input, |last| &last.output);
        rest = behind;
    }
    segments
}

/// What is kept of a stage until its backward pass.
pub(super) struct SavedStage<V> {
    /// The input, where the backward pass needs it.
    input: Option<V>,
    values: SavedValues<V>,
}

/// Runs the layers of `stage` on `input`. Beside the output there is what [`backward`] needs, where
/// that is to be kept.
pub(super) fn forward<O: Ops>(
    ops: &mut O,
    stage: &StageLayers,
    input: O::Value,
    keep: bool,
) -> (O::Value, SavedStage<O::Value>) {
    let segments = segments(&stage.layers, &stage.input);
    let mut runner = LayerRunner { ops, layers: PhantomData };
    let needed = keep && segment::needs_input(&runner, &segments);
    let kept = needed.then(|| input.clone());
    let (output, values) = segment::forward(&mut runner, &segments, input, keep);
    (output, SavedStage { input: kept, values })
}

/// Takes the layers of `stage` back: from the gradient of the output to that of the input, which the
/// first stage has none of.
pub(super) fn backward<O: Ops>(
    ops: &mut O,
    stage: &StageLayers,
    kept: SavedStage<O::Value>,
    gradient: O::Value,
) -> Option<O::Value> {
    let segments = segments(&stage.layers, &stage.input);
    let mut runner = LayerRunner { ops, layers: PhantomData };
    let SavedStage { input, values } = kept;
    segment::backward(&mut runner, &segments, values, input, gradient, !stage.first)
}

/// Runs segments of layers by their operations.
struct LayerRunner<'a, 'l, O> {
    ops: &'a mut O,
    layers: PhantomData<&'l Layer>,
}

impl<'l, O: Ops> Runner for LayerRunner<'_, 'l, O> {
    type Matmul = &'l Layer;
    type Cheap = &'l [Layer];
    type Joint = LayerJoint<'l>;
    type Value = O::Value;
    type Tape = O::Tape;

    fn run_matmul(&mut self, matmul: &&'l Layer, input: O::Value) -> O::Value {
        self.ops.run(matmul, input)
    }

    fn matmul_back(
        &mut self,
        matmul: &&'l Layer,
        input: O::Value,
        gradient: O::Value,
        asked: bool,
    ) -> Option<O::Value> {
        self.ops.matmul_back(matmul, input, gradient, asked)
    }

    fn run_cheap(&mut self, layers: &&'l [Layer], input: O::Value) -> O::Value {
        run_row(self.ops, layers, input)
    }

    fn record(
        &mut self,
        layers: &&'l [Layer],
        input: O::Value,
        asked: bool,
    ) -> (O::Value, O::Tape) {
        self.ops.record(input, asked, |ops, input| run_row(ops, layers, input))
    }

    fn back(
        &mut self,
        _layers: &&'l [Layer],
        tape: O::Tape,
        gradient: O::Value,
    ) -> Option<O::Value> {
        self.ops.back(tape, gradient)
    }

    fn trains(&self, layers: &&'l [Layer]) -> bool {
        layers.iter().any(|layer| layer.parameters().iter().any(|parameter| parameter.trained))
    }

    fn is_idempotent(&self, layers: &&'l [Layer]) -> bool {
        matches!(layers, [Layer { op: Op::Relu, .. }])
    }

    fn within<T>(&mut self, joint: &LayerJoint<'l>, branches: impl FnOnce(&mut Self) -> T) -> T {
        match joint.label {
            "" => branches(self),
            label => crate::memory::measure::within(label, || branches(self)),
        }
    }

    fn join(&mut self, joint: &LayerJoint<'l>, outputs: Vec<O::Value>) -> O::Value {
        self.ops.join(joint.name, joint.join, outputs)
    }

    fn split(&mut self, joint: &LayerJoint<'l>, gradient: O::Value) -> Vec<O::Value> {
        self.ops.split(joint.join, &joint.channels, &gradient)
    }

    fn begins_with_first(&self, joint: &LayerJoint<'l>) -> bool {
        joint.join == Join::Concat
    }

    fn first(&mut self, joint: &LayerJoint<'l>, output: &O::Value) -> O::Value {
        self.ops.split(joint.join, &joint.channels[..1], output).remove(0)
    }

    fn add(&mut self, left: O::Value, right: O::Value) -> O::Value {
        self.ops.add(left, right)
    }
}

/// A stage that runs its layers one after the other, on tensors.
pub struct LayerStage {
    layers: Arc<StageLayers>,
    /// The parameters and running statistics, in the order of the layers.
    parameters: Vec<Parameter>,
    matmul: MatmulPrecision,
}

/// What a [`LayerStage`] keeps.
struct SavedPass {
    stage: SavedStage<Activation>,
    pass: Pass,
}

impl LayerStage {
    /// The stage on `device`, its weights drawn from `seed`. On a GPU its matrix products of 32-bit
    /// numbers are as `matmul` says.
    pub fn init(layers: StageLayers, matmul: MatmulPrecision, device: &Device, seed: u64) -> Self {
        let parameters = ParameterSpec::init_all(&layers.parameters(), device, seed);
        Self { layers: Arc::new(layers), parameters, matmul }
    }

    fn values(&self) -> BTreeMap<&str, &Tensor<1>> {
        self.parameters
            .iter()
            .map(|parameter| (parameter.name.as_str(), &parameter.value))
            .collect()
    }
}

impl Stage for LayerStage {
    fn name(&self) -> &str {
        &self.layers.name
    }

    fn forward(
        &self,
        input: Activation,
        keep: Keep,
        pass: &Pass,
        statistics: &mut Statistics,
    ) -> (Activation, Option<Saved>) {
        let mut none = Gradients::default();
        let mut ops = TensorOps::new(self.values(), self.matmul, pass, statistics, &mut none);
        let (output, stage) = forward(&mut ops, &self.layers, input, keep == Keep::All);
        let kept = || Saved(Box::new(SavedPass { stage, pass: pass.again() }));
        (output, (keep == Keep::All).then(kept))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let SavedPass { stage, pass } = *saved.open::<SavedPass>(self.name());
        let mut none = Statistics::new();
        let mut ops = TensorOps::new(self.values(), self.matmul, &pass, &mut none, gradients);
        backward(&mut ops, &self.layers, stage, gradient)
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn offload_tensors<'a>(&self, saved: &'a mut Saved) -> Vec<OffloadTensor<'a>> {
        let SavedPass { stage: SavedStage { input, values }, .. } =
            saved.look::<SavedPass>(self.name());
        // Images are held elsewhere too.
        let mut found: Vec<&mut Activation> =
            input.iter_mut().filter(|_| !self.layers.first).collect();
        values.collect(&mut found);
        found.into_iter().flat_map(Activation::offload_tensors).collect()
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        for Parameter { name, value, .. } in &mut self.parameters {
            let empty = Tensor::empty([0], &value.device());
            *value = change(name, std::mem::replace(value, empty));
        }
    }
}
