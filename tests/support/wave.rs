//! Numbers that many tests compute with.

use burn::tensor::{Device, Tensor, TensorData};

/// sin(speed · i) for each element i in row-major order, in 32 bits.
pub fn wave<const D: usize>(shape: [usize; D], speed: f64, device: &Device) -> Tensor<D> {
    let values: Vec<f32> =
        (0..shape.iter().product()).map(|i: usize| (i as f64 * speed).sin() as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}
