//! The root of a backward pass.

use burn::tensor::Tensor;

use super::recorded::recorded;

/// `[1]`: a number whose derivative with respect to `value`, which is recorded by autodiff, is
/// `gradient`. Its value is 0.
///
/// For a backward pass it is the inner product Σ value·gradient, of which autodiff then computes the
/// vector-Jacobian product; but it takes no pass over either.
pub fn inner_product<const D: usize>(value: Tensor<D>, gradient: Tensor<D>) -> Tensor<1> {
    assert_eq!(value.dims(), gradient.dims(), "the gradient of another value");
    let gradient = gradient.without_autodiff();
    let zero = Tensor::<1>::zeros([1], (&gradient.device(), gradient.dtype()));
    recorded([value.into_dispatch()], zero, move |_| [gradient.into_dispatch()])
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
