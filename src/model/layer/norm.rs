//! Normalisation of feature maps: over the batch or over groups of channels.

use burn::module::{Module, Param};
use burn::tensor::module::{batch_norm, batch_norm_train};
use burn::tensor::{Device, Tensor};

use crate::memory::Pass;
use crate::model::Norm;

/// As `torch.nn.BatchNorm2d` and `torch.nn.GroupNorm` have it by default.
const EPSILON: f64 = 1e-5;
/// The share of a batch's statistics in the running ones, as `torch.nn.BatchNorm2d` has it.
const MOMENTUM: f64 = 0.1;
/// The most groups of channels; He and Wu's choice.
const GROUPS: usize = 32;

/// `torch.nn.BatchNorm2d` or `torch.nn.GroupNorm`: `weight` and `bias` are `[channels]`, and so are
/// BatchNorm's running statistics.
#[derive(Module, Debug)]
pub struct NormLayer {
    weight: Param<Tensor<1>>,
    bias: Param<Tensor<1>>,
    running_mean: Option<Param<Tensor<1>>>,
    running_var: Option<Param<Tensor<1>>>,
}

impl NormLayer {
    /// Scale 1, shift 0, running mean 0 and variance 1.
    pub fn init(norm: Norm, channels: usize, device: &Device) -> Self {
        let ones = || Param::from_tensor(Tensor::ones([channels], device));
        let zeros = || Param::from_tensor(Tensor::zeros([channels], device));
        let running = norm == Norm::Batch;
        Self {
            weight: ones(),
            bias: zeros(),
            running_mean: running.then(|| zeros().set_require_grad(false)),
            running_var: running.then(|| ones().set_require_grad(false)),
        }
    }

    /// `[batch, channels, height, width]` to the same shape.
    ///
    /// BatchNorm in training uses the batch's statistics and reports its mean and unbiased variance
    /// (which PyTorch keeps, though it normalises by the biased one).
    pub fn forward(&self, input: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let (Some(mean), Some(variance)) = (&self.running_mean, &self.running_var) else {
            return self.forward_groups(input);
        };
        let (weight, bias) = (self.weight.val(), self.bias.val());
        if !pass.trains() {
            return batch_norm(input, weight, bias, mean.val(), variance.val(), EPSILON);
        }
        let [batch, _, height, width] = input.dims();
        let count = (batch * height * width) as f64;
        let result = batch_norm_train(input, weight, bias, EPSILON);
        let unbiased = result.variance.mul_scalar(count / (count - 1.0).max(1.0));
        pass.report(mean.id, result.mean, MOMENTUM);
        pass.report(variance.id, unbiased, MOMENTUM);
        result.output
    }

    fn forward_groups(&self, input: Tensor<4>) -> Tensor<4> {
        let [batch, channels, height, width] = input.dims();
        let groups = group_count(channels);
        let grouped = input.reshape([batch, groups, channels / groups * height * width]);
        let centred = grouped.clone() - grouped.mean_dim(2);
        let variance = centred.clone().powf_scalar(2.0).mean_dim(2);
        let normal = centred / variance.add_scalar(EPSILON).sqrt();
        let normal = normal.reshape([batch, channels, height, width]);
        normal * self.weight.val().reshape([1, channels, 1, 1])
            + self.bias.val().reshape([1, channels, 1, 1])
    }
}

/// The most groups, up to 32, that divide the channels evenly.
fn group_count(channels: usize) -> usize {
    (1..=GROUPS.min(channels)).rev().find(|groups| channels.is_multiple_of(*groups)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_divide_the_channels() {
        assert_eq!(group_count(64), 32);
        assert_eq!(group_count(28), 28);
        assert_eq!(group_count(100), 25);
        assert_eq!(group_count(37), 1);
    }
}
