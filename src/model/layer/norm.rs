//! Normalisation of feature maps: over the batch or over groups of channels.

use burn::module::{Module, Param};
use burn::tensor::module::{batch_norm, batch_norm_train};
use burn::tensor::{Device, Tensor};

use crate::memory::{Ledger, Noted, Pass};
use crate::model::Norm;
use crate::ops::{Over, is_narrow, narrow_norm, wide};

/// As `torch.nn.BatchNorm2d` and `torch.nn.GroupNorm` have it by default.
const EPSILON: f64 = 1e-5;
/// The share of a batch's statistics in the running ones, as `torch.nn.BatchNorm2d` has it.
pub const MOMENTUM: f64 = 0.1;
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

    /// `[batch, channels, height, width]` to the same shape and numbers; computed in 32 bits or more.
    ///
    /// BatchNorm in training uses the batch's statistics and reports its mean and unbiased variance
    /// (which PyTorch keeps, though it normalises by the biased one), in 32 bits.
    pub fn forward(&self, input: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let (Some(mean), Some(variance)) = (&self.running_mean, &self.running_var) else {
            return self.forward_groups(input);
        };
        let (weight, bias) = (self.weight.val(), self.bias.val());
        if !pass.trains() {
            let numbers = input.dtype();
            let [weight, bias, mean, variance] =
                [weight, bias, mean.val(), variance.val()].map(|value| value.cast(wide(numbers)));
            let input = input.cast(wide(numbers));
            return batch_norm(input, weight, bias, mean, variance, EPSILON).cast(numbers);
        }
        let [batch, _, height, width] = input.dims();
        let count = (batch * height * width) as f64;
        let (output, [found_mean, found_variance]) = match is_narrow(input.dtype()) {
            true => narrow_norm(Over::Batch, EPSILON, input, weight, bias),
            false => {
                let result = batch_norm_train(input, weight, bias, EPSILON);
                (result.output, [result.mean, result.variance])
            }
        };
        let unbiased = found_variance.mul_scalar(count / (count - 1.0).max(1.0));
        pass.report(mean.id, found_mean, MOMENTUM);
        pass.report(variance.id, unbiased, MOMENTUM);
        output
    }

    fn forward_groups(&self, input: Tensor<4>) -> Tensor<4> {
        let [batch, channels, height, width] = input.dims();
        let groups = group_count(channels);
        if is_narrow(input.dtype()) {
            let (weight, bias) = (self.weight.val(), self.bias.val());
            return narrow_norm(Over::Groups(groups), EPSILON, input, weight, bias).0;
        }
        let grouped = input.reshape([batch, groups, channels / groups * height * width]);
        let centred = grouped.clone() - grouped.mean_dim(2);
        let variance = centred.clone().powf_scalar(2.0).mean_dim(2);
        let normal = centred / variance.add_scalar(EPSILON).sqrt();
        let normal = normal.reshape([batch, channels, height, width]);
        normal * self.weight.val().reshape([1, channels, 1, 1])
            + self.bias.val().reshape([1, channels, 1, 1])
    }
}

impl Norm {
    /// Notes what the layer does to `map` in training.
    pub fn note(self, ledger: &Ledger, map: Noted) -> Noted {
        let groups = group_count(map.map()[1]);
        match self {
            Self::Batch => ledger.batch_norm(map),
            Self::Group => ledger.group_norm(map, groups),
        }
    }
}

/// The most groups, up to 32, that divide the channels evenly into two or more each.
fn group_count(channels: usize) -> usize {
    let divides = |groups: &usize| channels.is_multiple_of(*groups) && channels / groups >= 2;
    (1..=GROUPS).rev().find(divides).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::*;

    #[test]
    fn groups_divide_the_channels_into_two_or_more() {
        assert_eq!(group_count(64), 32);
        assert_eq!(group_count(28), 14);
        assert_eq!(group_count(100), 25);
        assert_eq!(group_count(37), 1);
        assert_eq!(group_count(1), 1);
    }

    #[derive(serde::Deserialize)]
    struct Oracle {
        output: Vec<f32>,
        input_gradient: Vec<f32>,
        weight_gradient: Vec<f32>,
        bias_gradient: Vec<f32>,
    }

    fn wave<const D: usize>(shape: [usize; D], speed: f64, offset: f64) -> Tensor<D> {
        let count = shape.iter().product();
        let values: Vec<f32> =
            (0..count).map(|i: usize| ((i as f64 * speed).sin() + offset) as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn assert_near<const D: usize>(ours: Tensor<D>, theirs: &[f32]) {
        let ours: Vec<f32> = ours.into_data().iter().collect();
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours - theirs).abs() <= 1e-4 * theirs.abs().max(1.0), "{ours} {theirs}");
        }
    }

    #[test]
    fn group_norm_is_pytorchs() {
        let oracle = include_str!("../../../tests/fixtures/group_norm.json");
        let oracle: Oracle = serde_json::from_str(oracle).expect("the fixture");
        let layer = NormLayer {
            weight: Param::from_tensor(wave([12], 1.3, 1.5)),
            bias: Param::from_tensor(wave([12], 2.1, 0.0)),
            running_mean: None,
            running_var: None,
        };
        let layer = layer.train();
        let input = wave([2, 12, 3, 5], 0.7, 0.0).autodiff().require_grad();
        let output = layer.forward(input.clone(), &Pass::evaluation());
        assert_near(output.clone().without_autodiff(), &oracle.output);
        let direction = wave([2, 12, 3, 5], 0.9, 0.0).autodiff();
        let gradients = (output * direction).sum().backward();
        assert_near(input.grad(&gradients).expect("a gradient"), &oracle.input_gradient);
        let weight = layer.weight.val().grad(&gradients).expect("a gradient");
        assert_near(weight, &oracle.weight_gradient);
        let bias = layer.bias.val().grad(&gradients).expect("a gradient");
        assert_near(bias, &oracle.bias_gradient);
    }
}
