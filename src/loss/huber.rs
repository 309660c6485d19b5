//! Squared error near zero and absolute error beyond, as PyTorch's `HuberLoss`.

use burn::tensor::Tensor;

use super::known::Known;
use super::{HuberConfig, Loss};

/// d²/2 for |d| ≤ δ, else δ·(|d| − δ/2), with d = x − y.
pub(super) struct Huber {
    delta: f64,
}

impl Huber {
    pub fn new(config: &HuberConfig) -> Self {
        Self { delta: config.delta }
    }
}

impl Loss for Huber {
    fn sum(&self, outputs: Tensor<2>, targets: Tensor<2>, mask: Tensor<2>) -> Tensor<1> {
        let known = Known::new(outputs, targets, mask);
        let error = known.outputs - known.targets;
        // Both tensors are c·(d − c/2) with c = d held within ±δ, and c is the derivative.
        let slope = error.clone().inner().clamp(-self.delta, self.delta);
        Known::sum(known.mask, (error - slope.clone().mul_scalar(0.5)) * slope)
    }
}
