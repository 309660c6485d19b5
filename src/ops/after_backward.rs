//! When a backward pass has come as far as a value.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{Autodiff, Backend, DispatchDevice, DispatchKindConversion, DispatchTensor};
use burn::tensor::Tensor;

use super::primitives::{primitive, tensor};

/// `value`, with `note` called on the thread of the backward pass when all that was computed from the
/// result has been taken back. Values without autodiff, and those that no gradient is asked of, are
/// returned as they are.
pub fn after_backward<const D: usize>(
    value: Tensor<D>,
    note: impl Fn() + Send + Clone + 'static,
) -> Tensor<D> {
    let device = value.device();
    if !device.is_autodiff() {
        return value;
    }
    match device.inner().as_dispatch() {
        #[cfg(feature = "cuda")]
        DispatchDevice::Cube(_) => on::<burn::backend::Cube, _, D>(value, note),
        #[cfg(feature = "cpu")]
        DispatchDevice::Flex(_) => on::<burn::backend::Flex, _, D>(value, note),
        other => unreachable!("no backend was built for {other:?}"),
    }
}

fn on<B, F, const D: usize>(value: Tensor<D>, note: F) -> Tensor<D>
where
    B: Backend,
    F: Fn() + Send + Clone + 'static,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let value = primitive::<Autodiff<B>, D>(value);
    let step = Step::<B, F>(PhantomData).prepare::<NoCheckpointing>([value.node()]);
    let output = match step.compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(Note(note), value.into_primitive()),
        OpsKind::UnTracked(prep) => prep.finish(value.into_primitive()),
    };
    tensor::<Autodiff<B>, D>(output)
}

struct Step<B, F>(PhantomData<(B, F)>);

impl<B, F> Debug for Step<B, F> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("AfterBackward")
    }
}

#[derive(Clone)]
struct Note<F>(F);

impl<F> Debug for Note<F> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("Note")
    }
}

impl<B: Backend, F: Fn() + Send + Clone + 'static> Backward<B, 1> for Step<B, F> {
    type State = Note<F>;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        let Note(note) = ops.state;
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| {
            note();
            gradient
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use burn::tensor::Device;

    use super::*;

    fn wave() -> Tensor<1> {
        crate::wave::wave([60], 0.7, &Device::flex())
    }

    #[test]
    fn it_is_told_from_the_end_on_and_no_gradient_changes() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let note = |name: &'static str| {
            let told = Arc::clone(&told);
            move || told.lock().expect("no panic").push(name)
        };
        let gradient = |noted: bool| {
            let leaf = wave().autodiff().require_grad();
            let watch = |value: Tensor<1>, name| match noted {
                true => after_backward(value, note(name)),
                false => value,
            };
            let first = watch(leaf.clone(), "first").tanh();
            let second = watch(first.clone(), "second").exp();
            let found = (second * first).sum().backward();
            leaf.grad(&found).expect("a gradient").into_data().iter::<f32>().collect::<Vec<_>>()
        };
        let plain = gradient(false);
        assert_eq!(told.lock().expect("no panic").len(), 0);
        assert_eq!(gradient(true), plain);
        assert_eq!(*told.lock().expect("no panic"), ["second", "first"]);
    }

    #[test]
    fn what_has_no_gradient_is_returned_as_it_is() {
        let never = || panic!("there is no backward pass");
        let values: Vec<f32> = wave().into_data().iter().collect();
        for value in [wave(), wave().autodiff()] {
            let same = after_backward(value, never).into_data();
            assert_eq!(same.iter::<f32>().collect::<Vec<_>>(), values);
        }
    }
}
