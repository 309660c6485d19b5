//! Layers that follow PyTorch's: names, shapes, initialisation, arithmetic.
//!
//! They hold their parameters without autodiff, never change themselves, and take what they need to
//! know of the pass as an argument (see [`crate::memory::Pass`]).

mod conv2d;
mod dropout;
mod linear;
mod norm;

pub use conv2d::{Conv2d, Conv2dConfig, Fan};
pub use dropout::Dropout;
pub use linear::Linear;
#[cfg(feature = "cuda")]
pub use norm::MOMENTUM;
pub use norm::NormLayer;

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A parameter of `shape` whose values are drawn from `draw`, the same on every device.
fn drawn<const D: usize>(
    shape: [usize; D],
    device: &Device,
    random: &mut ChaCha8Rng,
    draw: impl Fn(&mut ChaCha8Rng) -> f32,
) -> Param<Tensor<D>> {
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| draw(random)).collect();
    Param::from_tensor(Tensor::from_data(TensorData::new(values, shape), device))
}

/// A draw from the normal distribution with mean 0 and this standard deviation (Box and Muller).
fn normal(random: &mut ChaCha8Rng, deviation: f64) -> f32 {
    let radius = (-2.0 * (1.0 - random.random::<f64>()).ln()).sqrt();
    let angle = std::f64::consts::TAU * random.random::<f64>();
    (deviation * radius * angle.cos()) as f32
}

/// A draw from the uniform distribution between −bound and bound.
fn uniform(random: &mut ChaCha8Rng, bound: f64) -> f32 {
    (bound * (2.0 * random.random::<f64>() - 1.0)) as f32
}
