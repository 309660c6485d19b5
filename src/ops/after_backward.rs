//! When a backward pass has come as far as a value.

use burn::tensor::Tensor;

use super::recorded::recorded;

/// `value`, with `note` called on the thread of the backward pass when all that was computed from the
/// result has been taken back. Values without autodiff, and those that no gradient is asked of, are
/// returned as they are.
pub fn after_backward<const D: usize>(
    value: Tensor<D>,
    note: impl Fn() + Send + 'static,
) -> Tensor<D> {
    if !value.is_autodiff() {
        return value;
    }
    let same = value.clone().without_autodiff();
    recorded([value.into_dispatch()], same, move |gradient| {
        note();
        [gradient.into_dispatch()]
    })
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
