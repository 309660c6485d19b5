//! Dropout whose mask follows from the pass.

use std::sync::Mutex;

use burn::module::Module;
use burn::tensor::{Distribution, Tensor};

use crate::memory::Pass;

/// Held while a device's generator is seeded and drawn from, so that no other thread draws between.
static GENERATOR: Mutex<()> = Mutex::new(());

/// Sets elements to zero with a probability and scales the rest up in training (Srivastava et al.
/// 2014). The mask follows from the pass and the layer's site, so recomputation draws the same one.
#[derive(Module, Debug)]
pub struct Dropout {
    #[module(skip)]
    probability: f64,
    #[module(skip)]
    site: u64,
}

impl Dropout {
    /// Drops with `probability`; `site` tells the model's dropout layers apart.
    pub fn new(probability: f64, site: u64) -> Self {
        Self { probability, site }
    }

    /// The input, in evaluation unchanged.
    pub fn forward<const D: usize>(&self, input: Tensor<D>, pass: &Pass) -> Tensor<D> {
        if self.probability == 0.0 || !pass.trains() {
            return input;
        }
        let keep = 1.0 - self.probability;
        let device = input.device();
        let guard = GENERATOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        device.seed(pass.dropout_seed(self.site));
        let mask =
            Tensor::<D>::random(input.shape(), Distribution::Bernoulli(keep), &device.inner());
        drop(guard);
        let mask = mask.mul_scalar(1.0 / keep).cast(input.dtype());
        let recorded = input.is_autodiff();
        input * if recorded { mask.autodiff() } else { mask }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;
    use crate::memory::Purpose;

    #[test]
    fn values_without_autodiff_stay_without_it() {
        let (layer, pass) = (Dropout::new(0.5, 0), Pass::new(Purpose::First, 1, 0, 0));
        let values = Tensor::<2>::ones([2, 3], &Device::flex());
        assert!(!layer.forward(values.clone(), &pass).is_autodiff());
        assert!(layer.forward(values.autodiff(), &pass).is_autodiff());
    }
}
