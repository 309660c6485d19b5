//! The operations that layers are made of.

use super::{Join, Layer, Op, Size};

/// Carries out layers: on tensors in a training step, on sizes alone where memory is estimated. Both
/// run the same rows and segments of a stage, so the estimate follows what a step does.
///
/// Values are maps `[batch, channels, height, width]`, features `[batch, features]`, or the outputs
/// of heads.
pub trait Ops {
    /// What flows between layers, and gradients on their way back.
    type Value: Clone;
    /// What a run of cheap layers records for their backward pass.
    type Tape;

    /// Runs `run` on `input` as `layer`.
    fn layer(
        &mut self,
        layer: &Layer,
        input: Self::Value,
        run: impl FnOnce(&mut Self, Self::Value) -> Self::Value,
    ) -> Self::Value {
        let _ = layer;
        run(self, input)
    }

    /// Runs `layer`, which has no branches.
    fn run(&mut self, layer: &Layer, input: Self::Value) -> Self::Value {
        self.layer(layer, input, |ops, input| ops.apply(layer, input, false))
    }

    /// What `layer`, which has no branches, makes of `input`; where it is a norm of a map, `with_relu`
    /// behind it or not.
    fn apply(&mut self, layer: &Layer, input: Self::Value, with_relu: bool) -> Self::Value;

    /// Whether a norm and ReLU behind it may be computed together.
    fn joins_relu(&self) -> bool {
        true
    }

    /// The outputs of the branches called `name` as one.
    fn join(&mut self, name: &str, join: Join, outputs: Vec<Self::Value>) -> Self::Value;

    /// What belongs to each of the values that `join` put together, which had so many channels or
    /// features. What was put one behind the other is shared, not copied.
    fn split(&mut self, join: Join, channels: &[usize], joined: &Self::Value) -> Vec<Self::Value>;

    /// The sum of two gradients of one value.
    fn add(&mut self, left: Self::Value, right: Self::Value) -> Self::Value;

    /// Runs cheap layers and records them for [`Ops::back`]. `asked` says whether that must give the
    /// gradient of the input.
    fn record(
        &mut self,
        input: Self::Value,
        asked: bool,
        layers: impl FnOnce(&mut Self, Self::Value) -> Self::Value,
    ) -> (Self::Value, Self::Tape);

    /// The backward pass of what was recorded, from the gradient of its output. Returns the gradient
    /// of its input, where that was asked for. The implementation itself collects the gradients of
    /// parameters.
    fn back(&mut self, tape: Self::Tape, gradient: Self::Value) -> Option<Self::Value>;

    /// The gradient of a convolution's or a linear layer's input, where it is `asked` for. Those of the
    /// parameters are added up elsewhere.
    fn matmul_back(
        &mut self,
        layer: &Layer,
        input: Self::Value,
        gradient: Self::Value,
        asked: bool,
    ) -> Option<Self::Value>;
}

/// Runs `layers`, which have no branches, one after the other: a norm of a map and ReLU behind it together.
pub(super) fn run_row<O: Ops>(ops: &mut O, layers: &[Layer], input: O::Value) -> O::Value {
    match layers {
        [] => input,
        [norm, relu, rest @ ..]
            if ops.joins_relu()
                && let (Op::BatchNorm(_) | Op::GroupNorm(_), Size::Map(_), Op::Relu) =
                    (&norm.op, &norm.output, &relu.op) =>
        {
            let value = ops.layer(norm, input, |ops, input| ops.apply(norm, input, true));
            let value = ops.layer(relu, value, |_, value| value);
            run_row(ops, rest, value)
        }
        [layer, rest @ ..] => {
            let value = ops.run(layer, input);
            run_row(ops, rest, value)
        }
    }
}
