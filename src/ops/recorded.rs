//! Operations whose backward passes are ours, as autodiff records them.

use std::fmt::{self, Debug, Formatter};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, DispatchDevice, DispatchKindConversion, DispatchTensor};
use burn::tensor::Tensor;

use super::primitives::{float, primitive, tensor};

/// `output`, which was computed without autodiff from the values of `inputs`, as autodiff records it. In the backward pass
/// `back` makes the gradients of the inputs, in their order, of that of the output; it is let go of where no input has one.
pub(super) fn recorded<const N: usize, const D: usize>(
    inputs: [DispatchTensor; N],
    output: Tensor<D>,
    back: impl FnOnce(Tensor<D>) -> [DispatchTensor; N] + Send + 'static,
) -> Tensor<D> {
    match output.device().as_dispatch() {
        #[cfg(feature = "cuda")]
        DispatchDevice::Cube(_) => on::<burn::backend::Cube, N, D>(inputs, output, back),
        #[cfg(feature = "cpu")]
        DispatchDevice::Flex(_) => on::<burn::backend::Flex, N, D>(inputs, output, back),
        other => unreachable!("no backend was built for {other:?}"),
    }
}

fn on<B, const N: usize, const D: usize>(
    inputs: [DispatchTensor; N],
    output: Tensor<D>,
    back: impl FnOnce(Tensor<D>) -> [DispatchTensor; N] + Send + 'static,
) -> Tensor<D>
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let inputs = inputs.map(float::<Autodiff<B>>);
    let step = Step(move |gradient| back(tensor::<B, D>(gradient)).map(float::<B>));
    let step = step.prepare::<NoCheckpointing>(inputs.each_ref().map(|input| input.node()));
    tensor::<Autodiff<B>, D>(step.compute_bound().stateless(primitive::<B, D>(output)))
}

/// What makes the gradients of the inputs, with all that it needs.
struct Step<F>(F);

impl<F> Debug for Step<F> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Recorded")
    }
}

impl<B, F, const N: usize> Backward<B, N> for Step<F>
where
    B: Backend,
    F: FnOnce(FloatTensor<B>) -> [FloatTensor<B>; N] + Send + 'static,
{
    type State = ();

    fn backward(
        self,
        ops: Ops<Self::State, N>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let found = (self.0)(gradients.consume::<B>(&ops.node));
        for (parent, gradient) in ops.parents.into_iter().zip(found) {
            if let Some(parent) = parent {
                gradients.register::<B>(parent.id, gradient);
            }
        }
    }
}
