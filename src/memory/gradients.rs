//! Gradients by the key of what they belong to, flattened.

use std::collections::BTreeMap;

use burn::tensor::Tensor;

/// The gradient of each [bucket](super::Bucket) of parameters, by its key (where a parameter lies alone,
/// its name), flattened to one dimension.
pub type Gradients = BTreeMap<String, Tensor<1>>;

/// Adds `gradient`, of any shape, to what is in `gradients` for `key`.
pub fn add_gradient<const D: usize>(gradients: &mut Gradients, key: &str, gradient: Tensor<D>) {
    let gradient = gradient.reshape([-1]);
    let sum = match gradients.remove(key) {
        Some(sum) => sum + gradient,
        None => gradient,
    };
    gradients.insert(key.to_owned(), sum);
}
