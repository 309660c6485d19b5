//! The root of a backward pass.

use std::fmt::{self, Debug, Formatter};
use std::marker::PhantomData;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::{Autodiff, Backend, DispatchDevice, DispatchKindConversion, DispatchTensor};
use burn::tensor::Tensor;

use super::primitives::{primitive, tensor};

/// `[1]`: a number whose derivative with respect to `value`, which is recorded by autodiff, is
/// `gradient`. Its value is 0.
///
/// For a backward pass it is the inner product Σ value·gradient, of which autodiff then computes the
/// vector-Jacobian product; but it takes no pass over either.
pub fn inner_product<const D: usize>(value: Tensor<D>, gradient: Tensor<D>) -> Tensor<1> {
    assert_eq!(value.dims(), gradient.dims(), "the gradient of another value");
    match value.device().inner().as_dispatch() {
        #[cfg(feature = "cuda")]
        DispatchDevice::Cube(_) => inner_product_on::<burn::backend::Cube, D>(value, gradient),
        #[cfg(feature = "cpu")]
        DispatchDevice::Flex(_) => inner_product_on::<burn::backend::Flex, D>(value, gradient),
        other => unreachable!("no backend was built for {other:?}"),
    }
}

fn inner_product_on<B, const D: usize>(value: Tensor<D>, gradient: Tensor<D>) -> Tensor<1>
where
    B: Backend,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let zero = Tensor::<1>::zeros([1], (&gradient.device(), gradient.dtype()));
    let (zero, gradient) =
        (primitive::<B, 1>(zero), primitive::<B, D>(gradient.without_autodiff()));
    let value = primitive::<Autodiff<B>, D>(value);
    let step = Step::<B>(PhantomData).prepare::<NoCheckpointing>([value.node()]);
    let output = match step.compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(gradient, zero),
        OpsKind::UnTracked(prep) => prep.finish(zero),
    };
    tensor::<Autodiff<B>, 1>(output)
}

struct Step<B>(PhantomData<B>);

impl<B> Debug for Step<B> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str("InnerProduct")
    }
}

impl<B: Backend> Backward<B, 1> for Step<B> {
    /// The gradient.
    type State = B::FloatTensorPrimitive;

    fn backward(
        self,
        ops: Ops<Self::State, 1>,
        gradients: &mut Gradients,
        _checkpointer: &mut Checkpointer,
    ) {
        unary::<B, _>(ops.parents, ops.node, gradients, |_| ops.state);
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn wave(speed: f64) -> Tensor<3> {
        crate::wave::wave([3, 4, 5], speed, &Device::flex())
    }

    #[test]
    fn gradients_are_those_of_the_inner_product_bit_for_bit() {
        let gradients = |root: &dyn Fn(Tensor<3>) -> Tensor<1>| {
            let leaf = wave(0.7).autodiff().require_grad();
            let found = root(leaf.clone().tanh() * leaf.clone()).backward();
            leaf.grad(&found).expect("a gradient").into_data().iter::<f32>().collect::<Vec<_>>()
        };
        let ours = gradients(&|value| inner_product(value, wave(1.3)));
        assert_eq!(ours, gradients(&|value| (value * wave(1.3).autodiff()).sum()));
        let twice = gradients(&|value| {
            inner_product(value.clone(), wave(1.3)) + inner_product(value, wave(0.9))
        });
        let sum = wave(1.3) + wave(0.9);
        let inner = gradients(&|value| (value * sum.clone().autodiff()).sum());
        assert_eq!(twice, inner);
    }
}
