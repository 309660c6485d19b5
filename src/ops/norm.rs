//! BatchNorm and GroupNorm of maps `[batch, channels, height, width]`, as PyTorch computes them.
//!
//! Maps of 16-bit numbers have everything computed in 32 bits, forward and backward.

use burn::tensor::activation::relu;
use burn::tensor::module::{self, batch_norm_train};
use burn::tensor::{DType, Tensor};
#[cfg(feature = "cpu")]
use burn::tensor::{Device, TensorData};
#[cfg(feature = "cpu")]
use trainer_cpu::BatchNorm;

use super::device::is_gpu;
use super::dtype::{accumulation_dtype, is_16bit};
#[cfg(feature = "cuda")]
use super::gpu::Norm2d;
#[cfg(feature = "cpu")]
use super::host::{Planes, Values, made};
use super::recorded::recorded;
use crate::parallel::Across;

/// As `torch.nn.BatchNorm2d` and `torch.nn.GroupNorm` have it by default.
pub const EPSILON: f64 = 1e-5;

/// BatchNorm with the statistics of the batch: less the mean, over the standard deviation, times
/// `weight`, plus `bias`, `[channels]` both; with ReLU behind it or not, which this program's own kernels
/// take along. Beside it mean and biased variance, `[channels]` each, in 32 bits or more. Where other devices
/// have a part of the batch, the statistics are those of the whole, and so is the gradient of the map; those of
/// `weight` and `bias` are this device's share.
pub fn batch_norm(
    map: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    across: Option<Across>,
    with_relu: bool,
) -> (Tensor<4>, [Tensor<1>; 2]) {
    let along = takes_relu_along(&map);
    let (output, statistics) = if along || is_16bit(map.dtype()) || across.is_some() {
        norm_in_32_bits(Over::Batch(across), along && with_relu, map, weight, bias)
    } else {
        let result = batch_norm_train(map, weight, bias, EPSILON);
        (result.output, [result.mean, result.variance])
    };
    (if with_relu && !along { relu(output) } else { output }, statistics)
}

/// Whether a map is normalised over a batch by this program's own kernels, which compute ReLU along with it.
fn takes_relu_along(map: &Tensor<4>) -> bool {
    map.dtype() == DType::F32 || is_gpu(&map.device())
}

/// BatchNorm with running statistics.
pub fn batch_norm_evaluation(
    map: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    mean: Tensor<1>,
    variance: Tensor<1>,
) -> Tensor<4> {
    let dtype = map.dtype();
    let computed = accumulation_dtype(dtype);
    let [weight, bias, mean, variance] =
        [weight, bias, mean, variance].map(|values| values.cast(computed));
    let map = map.cast(computed);
    module::batch_norm(map, weight, bias, mean, variance, EPSILON).cast(dtype)
}

/// The most groups of GroupNorm; the choice of Wu and He (2018).
const GROUPS: usize = 32;

/// The most groups, up to 32, that divide the channels evenly into two or more each.
pub fn group_count(channels: usize) -> usize {
    let divides = |groups: &usize| channels.is_multiple_of(*groups) && channels / groups >= 2;
    (1..=GROUPS).rev().find(divides).unwrap_or(1)
}

/// GroupNorm: as BatchNorm, over `groups` groups of channels of each image on its own; with ReLU behind it or not, which a
/// GPU's kernels take along.
pub fn group_norm(
    map: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    groups: usize,
    with_relu: bool,
) -> Tensor<4> {
    let ([batch, channels, height, width], along) = (map.dims(), is_gpu(&map.device()));
    let output = if along || is_16bit(map.dtype()) {
        norm_in_32_bits(Over::Groups(groups), along && with_relu, map, weight, bias).0
    } else {
        let grouped = map.reshape([batch, groups, channels / groups * height * width]);
        let centred = grouped.clone() - grouped.mean_dim(2);
        let variance = centred.clone().powf_scalar(2.0).mean_dim(2);
        let normal = centred / variance.add_scalar(EPSILON).sqrt();
        let normal = normal.reshape([batch, channels, height, width]);
        normal * weight.reshape([1, channels, 1, 1]) + bias.reshape([1, channels, 1, 1])
    };
    if with_relu && !along { relu(output) } else { output }
}

/// What mean and variance are taken over.
enum Over {
    /// Each channel of all images, of which other devices may have some.
    Batch(Option<Across>),
    /// So many groups of channels, in each image on its own.
    Groups(usize),
}

/// The norm of a map of 16 or 32 bits. Beside it mean and biased variance in 32 bits, without autodiff: `[channels]`
/// over a batch, `[batch · groups]` over groups.
///
/// Sums, statistics and the arithmetic between are 32-bit, forward and backward; what is kept for
/// the backward pass is the map as it came. With `relu` behind it, where kernels of our own
/// compute it.
fn norm_in_32_bits(
    over: Over,
    relu: bool,
    map: Tensor<4>,
    weight: Tensor<1>,
    bias: Tensor<1>,
) -> (Tensor<4>, [Tensor<1>; 2]) {
    let norm = Norm { over, relu, dtype: map.dtype(), shape: map.dims() };
    if !map.is_autodiff() && !weight.is_autodiff() {
        return norm.forward(map, weight, bias);
    }
    let (map, [weight, bias]) = (map.autodiff(), [weight, bias].map(Tensor::autodiff));
    let values = map.clone().without_autodiff();
    let parameters = [&weight, &bias].map(|values| values.clone().without_autodiff());
    let inputs = [map.into_dispatch(), weight.into_dispatch(), bias.into_dispatch()];
    let [scale, shift] = parameters.clone();
    let (output, statistics) = norm.forward(values.clone(), scale, shift);
    let found = statistics.clone();
    let output = recorded(inputs, output, move |gradient| {
        let (of_map, [of_weight, of_bias]) = norm.backward(values, found, parameters, gradient);
        [of_map.into_dispatch(), of_weight.into_dispatch(), of_bias.into_dispatch()]
    });
    (output, statistics)
}

/// The arithmetic, on tensors without autodiff.
struct Norm {
    over: Over,
    relu: bool,
    dtype: DType,
    /// Of the map.
    shape: [usize; 4],
}

/// Mean and biased variance, one of each for each group; over a batch each channel is a group.
type Statistics = [Tensor<1>; 2];

impl Norm {
    fn forward(
        &self,
        map: Tensor<4>,
        weight: Tensor<1>,
        bias: Tensor<1>,
    ) -> (Tensor<4>, Statistics) {
        #[cfg(feature = "cpu")]
        if self.runs_on_cpu(&map) {
            return self.forward_on_cpu(map, [weight, bias]);
        }
        #[cfg(feature = "cuda")]
        if let Some(kernels) = self.kernels(&map) {
            let parameters = [weight, bias].map(|values| values.cast(DType::F32));
            return kernels.forward_tensors(map, parameters, |own| self.statistics_of_all(own));
        }
        let grouped = self.grouped(map);
        let statistics = self.statistics_of_all(&|| {
            let mean = self.means(grouped.clone());
            let centred = grouped.clone() - self.by_group(mean.clone());
            [mean, self.means(centred.square())]
        });
        let [normal, _] = self.normalised(grouped, &statistics);
        let output = normal * self.by_channel(weight) + self.by_channel(bias);
        (output.reshape(self.shape).cast(self.dtype), statistics)
    }

    /// The gradients of map, weight and bias.
    fn backward(
        &self,
        map: Tensor<4>,
        statistics: Statistics,
        parameters: [Tensor<1>; 2],
        gradient: Tensor<4>,
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        #[cfg(feature = "cpu")]
        if self.runs_on_cpu(&map) {
            return self.backward_on_cpu(map, statistics, parameters, gradient);
        }
        let dtype = parameters[0].dtype();
        #[cfg(feature = "cuda")]
        if let Some(kernels) = self.kernels(&map) {
            let parameters = parameters.map(|values| values.cast(DType::F32));
            let of_all = |means| self.means_of_all("gradients", means);
            let (of_map, found) =
                kernels.backward_tensors(map, statistics, parameters, gradient, of_all);
            return (of_map, found.map(|values| values.cast(dtype)));
        }
        let [weight, _] = parameters;
        let [normal, factor] = self.normalised(self.grouped(map), &statistics);
        let gradient = self.grouped(gradient);
        let of_channels = |map: Tensor<4>| {
            let sum = map.sum_dim(3).sum_dim(0);
            sum.reshape([self.shape[1]]).cast(dtype)
        };
        let of_weight = of_channels(gradient.clone() * normal.clone());
        let of_bias = of_channels(gradient.clone());
        let gradient = gradient * self.by_channel(weight);
        let products = self.means(gradient.clone() * normal.clone());
        let means =
            [("gradients times maps", products), ("gradients", self.means(gradient.clone()))];
        let [products, gradients] =
            means.map(|(what, own)| self.by_group(self.means_of_all(what, own)));
        let of_map = (gradient - gradients - normal * products) * factor;
        (of_map.reshape(self.shape).cast(self.dtype), [of_weight, of_bias])
    }

    /// The statistics of the images of all devices, given those of the `own`. All groups are equally large.
    fn statistics_of_all(&self, own: &dyn Fn() -> Statistics) -> Statistics {
        let Over::Batch(Some(across)) = &self.over else { return own() };
        across.remember(|| {
            let [own_mean, own_variance] = own();
            let mean = self.means_of_all("means", own_mean.clone());
            let variance = own_variance + (own_mean - mean.clone()).square();
            [mean, self.means_of_all("variances", variance)]
        })
    }

    /// Means over the images of all devices, given those over the `own`; `what` they are means of.
    fn means_of_all(&self, what: &str, own: Tensor<1>) -> Tensor<1> {
        match &self.over {
            Over::Batch(Some(across)) => across.mean(what, self.shape[0], own),
            _ => own,
        }
    }

    /// The kernels that compute it on a GPU.
    #[cfg(feature = "cuda")]
    fn kernels(&self, map: &Tensor<4>) -> Option<Norm2d> {
        let groups = match &self.over {
            Over::Batch(_) => None,
            Over::Groups(groups) => Some(*groups),
        };
        Norm2d::of(map, groups, self.relu)
    }
}

/// By operations of Burn: of maps of 16 bits on the CPU. They are `[batch, groups, channels of a group, pixels]` here.
impl Norm {
    fn grouped(&self, map: Tensor<4>) -> Tensor<4> {
        let [batch, channels, height, width] = self.shape;
        let groups = self.groups();
        map.cast(DType::F32).reshape([batch, groups, channels / groups, height * width])
    }

    fn groups(&self) -> usize {
        match &self.over {
            Over::Batch(_) => self.shape[1],
            Over::Groups(groups) => *groups,
        }
    }

    /// `[channels]` as it broadcasts over a map.
    fn by_channel(&self, values: Tensor<1>) -> Tensor<4> {
        let groups = self.groups();
        values.cast(DType::F32).reshape([1, groups, self.shape[1] / groups, 1])
    }

    /// `[groups]` or `[batch · groups]` as it broadcasts over a map.
    fn by_group(&self, values: Tensor<1>) -> Tensor<4> {
        let batch = values.dims()[0] / self.groups();
        values.reshape([batch, self.groups(), 1, 1])
    }

    /// The mean of each group.
    fn means(&self, map: Tensor<4>) -> Tensor<1> {
        let means = map.mean_dim(3).mean_dim(2);
        let means = if matches!(self.over, Over::Batch(_)) { means.mean_dim(0) } else { means };
        means.reshape([-1])
    }

    /// Mean 0 and variance 1, and the factor that made it so.
    fn normalised(&self, map: Tensor<4>, statistics: &Statistics) -> [Tensor<4>; 2] {
        let [mean, variance] = statistics.clone().map(|values| self.by_group(values));
        let factor = variance.add_scalar(EPSILON).sqrt().recip();
        [(map - mean) * factor.clone(), factor]
    }
}

/// Over a batch of 32-bit maps, by the crate for the CPU.
#[cfg(feature = "cpu")]
impl Norm {
    fn runs_on_cpu(&self, map: &Tensor<4>) -> bool {
        matches!(self.over, Over::Batch(_)) && map.dtype() == DType::F32 && !is_gpu(&map.device())
    }

    fn sizes(&self) -> BatchNorm {
        let [batch, channels, height, width] = self.shape;
        BatchNorm { batch, channels, pixels: height * width, relu: self.relu }
    }

    fn forward_on_cpu(
        &self,
        map: Tensor<4>,
        parameters: [Tensor<1>; 2],
    ) -> (Tensor<4>, Statistics) {
        let device = map.device();
        let (sizes, map, parameters) = (self.sizes(), Planes::of(map), parameters.map(Values::of));
        let parameters = parameters.each_ref().map(Values::all);
        let tensors = |found: trainer_cpu::Statistics| {
            [found.mean, found.variance].map(|values| vector(values, &device))
        };
        if matches!(self.over, Over::Batch(None)) {
            let (output, found) = sizes.forward(map.maps(), parameters, EPSILON as f32);
            return (made(self.shape, output), tensors(found));
        }
        let all = self.statistics_of_all(&|| tensors(sizes.statistics(map.maps())));
        let output = sizes.apply(map.maps(), &on_slices(all.clone()), parameters, EPSILON as f32);
        (made(self.shape, output), all)
    }

    fn backward_on_cpu(
        &self,
        map: Tensor<4>,
        statistics: Statistics,
        parameters: [Tensor<1>; 2],
        gradient: Tensor<4>,
    ) -> (Tensor<4>, [Tensor<1>; 2]) {
        let (sizes, epsilon, device) = (self.sizes(), EPSILON as f32, map.device());
        let ([map, gradient], given) =
            ([map, gradient].map(Planes::of), parameters.map(Values::of));
        let (maps, gradient) = (map.maps(), gradient.maps());
        let (given, statistics) = (given.each_ref().map(Values::all), on_slices(statistics));
        let tensors = |found: [Vec<f32>; 2]| found.map(|values| vector(values, &device));
        if matches!(self.over, Over::Batch(None)) {
            let (of_map, found) = sizes.backward(maps, &statistics, given, epsilon, gradient);
            return (made(self.shape, of_map), tensors(found));
        }
        let found = tensors(sizes.parameter_gradients(maps, &statistics, given, epsilon, gradient));
        let count = (sizes.batch * sizes.pixels) as f64;
        let own = Tensor::cat(found.to_vec(), 0).div_scalar(count);
        let means = Values::of(self.means_of_all("gradients", own));
        let (products, gradients) = means.all().split_at(sizes.channels);
        let means = [products, gradients];
        let of_map = sizes.map_gradients(maps, &statistics, given, epsilon, gradient, means);
        (made(self.shape, of_map), found)
    }
}

#[cfg(feature = "cpu")]
fn vector(values: Vec<f32>, device: &Device) -> Tensor<1> {
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), device)
}

#[cfg(feature = "cpu")]
fn on_slices(statistics: Statistics) -> trainer_cpu::Statistics {
    let [mean, variance] = statistics.map(|values| Values::of(values).all().to_vec());
    trainer_cpu::Statistics { mean, variance }
}

#[cfg(test)]
mod tests {
    use burn::tensor::module::batch_norm_train;
    use burn::tensor::{Device, TensorData};

    use super::*;

    const SHAPE: [usize; 4] = [3, 6, 5, 7];

    /// Values that are the same numbers in every type: those of bfloat16, of which fp16 has all bits.
    fn wave<const D: usize>(shape: [usize; D], speed: f64, offset: f64) -> Tensor<D> {
        let values = crate::wave::wave(shape, speed, &Device::flex()).add_scalar(offset);
        values.cast(DType::BF16).cast(DType::F32)
    }

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
        tensor.into_data().iter().collect()
    }

    /// Output, gradients of map, weight and bias, mean and variance.
    fn run(
        dtype: DType,
        norm: impl Fn(Tensor<4>, Tensor<1>, Tensor<1>) -> (Tensor<4>, [Tensor<1>; 2]),
    ) -> [Vec<f64>; 6] {
        let map = wave(SHAPE, 0.7, 0.3).cast(dtype).autodiff().require_grad();
        let parameters = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let [weight, bias] = [(1.3, 1.5), (2.1, 0.0)].map(|(speed, offset)| {
            wave([SHAPE[1]], speed, offset).cast(parameters).autodiff().require_grad()
        });
        let (output, [mean, variance]) = norm(map.clone(), weight.clone(), bias.clone());
        assert_eq!(output.dtype(), dtype);
        let direction = wave(SHAPE, 0.9, 0.1).cast(dtype);
        let found = super::super::inner_product(output.clone(), direction).backward();
        let [of_weight, of_bias] =
            [weight, bias].map(|leaf| values(leaf.grad(&found).expect("a gradient")));
        let of_map = values(map.grad(&found).expect("a gradient"));
        [values(output), of_map, of_weight, of_bias, values(mean), values(variance)]
    }

    /// Output and the map's gradient are rounded once, everything else is 32-bit.
    fn agrees(dtype: DType, unit: f64, ours: &[Vec<f64>; 6], exact: &[Vec<f64>; 6]) {
        for (place, (ours, exact)) in ours.iter().zip(exact).enumerate() {
            let largest = exact.iter().fold(0.0f64, |most, value| most.max(value.abs()));
            let unit = if place < 2 { unit } else { 0.0 };
            for (ours, exact) in ours.iter().zip(exact) {
                let most = unit * exact.abs() + 1e-5 * largest;
                assert!((ours - exact).abs() <= most, "{dtype:?} {place}: {ours} {exact}");
            }
        }
    }

    const HALVES: [(DType, f64); 2] = [(DType::BF16, 1.0 / 256.0), (DType::F16, 1.0 / 2048.0)];
    const UNITS: [(DType, f64); 3] = [(DType::F32, 0.0), HALVES[0], HALVES[1]];

    #[test]
    fn over_a_batch_it_is_burns_in_64_bits_rounded_once() {
        let exact = run(DType::F64, |map, weight, bias| {
            let found = batch_norm_train(map, weight, bias, EPSILON);
            (found.output, [found.mean, found.variance].map(Tensor::without_autodiff))
        });
        for (dtype, unit) in UNITS {
            let ours = run(dtype, |map, weight, bias| {
                norm_in_32_bits(Over::Batch(None), false, map, weight, bias)
            });
            agrees(dtype, unit, &ours, &exact);
        }
    }

    #[test]
    fn with_relu_behind_it_is_burns_both_in_64_bits() {
        let exact = run(DType::F64, |map, weight, bias| {
            let found = batch_norm_train(map, weight, bias, EPSILON);
            (relu(found.output), [found.mean, found.variance].map(Tensor::without_autodiff))
        });
        let ours = run(DType::F32, |map, weight, bias| batch_norm(map, weight, bias, None, true));
        agrees(DType::F32, 0.0, &ours, &exact);
        let zeros = ours[0].iter().filter(|value| **value == 0.0).count();
        assert!(zeros > 0 && zeros < ours[0].len(), "{zeros} zeros");
    }

    #[test]
    fn over_groups_it_is_what_autodiff_makes_of_64_bits_rounded_once() {
        let exact = run(DType::F64, |map, weight, bias| {
            let [batch, channels, height, width] = SHAPE;
            let grouped = map.reshape([batch, 2, channels / 2 * height * width]);
            let mean = grouped.clone().mean_dim(2);
            let centred = grouped - mean.clone();
            let variance = centred.clone().square().mean_dim(2);
            let normal = centred / variance.clone().add_scalar(EPSILON).sqrt();
            let [weight, bias] = [weight, bias].map(|values| values.reshape([1, channels, 1, 1]));
            let output = normal.reshape(SHAPE) * weight + bias;
            let statistics = [mean, variance];
            (output, statistics.map(|values| values.without_autodiff().reshape([-1])))
        });
        for (dtype, unit) in HALVES {
            let ours = run(dtype, |map, weight, bias| {
                norm_in_32_bits(Over::Groups(2), false, map, weight, bias)
            });
            agrees(dtype, unit, &ours, &exact);
        }
    }

    #[derive(serde::Deserialize)]
    struct Oracle {
        output: Vec<f32>,
        input_gradient: Vec<f32>,
        weight_gradient: Vec<f32>,
        bias_gradient: Vec<f32>,
    }

    fn assert_near<const D: usize>(ours: Tensor<D>, theirs: &[f32]) {
        let ours: Vec<f32> = ours.into_data().iter().collect();
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(theirs) {
            assert!((ours - theirs).abs() <= 1e-4 * theirs.abs().max(1.0), "{ours} {theirs}");
        }
    }

    #[test]
    fn groups_divide_the_channels_into_two_or_more() {
        assert_eq!(group_count(64), 32);
        assert_eq!(group_count(28), 14);
        assert_eq!(group_count(100), 25);
        assert_eq!(group_count(37), 1);
        assert_eq!(group_count(1), 1);
    }

    #[test]
    fn group_norm_is_pytorchs() {
        let oracle = include_str!("../../tests/fixtures/group_norm.json");
        let oracle: Oracle = serde_json::from_str(oracle).expect("the fixture");
        let wave = |shape: &[usize], speed: f64, offset: f64| {
            let count: usize = shape.iter().product();
            let values = (0..count).map(|i| ((i as f64 * speed).sin() + offset) as f32);
            TensorData::new(values.collect::<Vec<f32>>(), shape.to_vec())
        };
        let device = Device::flex();
        let leaf = |data| Tensor::<1>::from_data(data, &device).autodiff().require_grad();
        let (weight, bias) = (leaf(wave(&[12], 1.3, 1.5)), leaf(wave(&[12], 2.1, 0.0)));
        let map = Tensor::<4>::from_data(wave(&[2, 12, 3, 5], 0.7, 0.0), &device);
        let map = map.autodiff().require_grad();
        let output = group_norm(map.clone(), weight.clone(), bias.clone(), 6, false);
        assert_near(output.clone().without_autodiff(), &oracle.output);
        let direction = Tensor::<4>::from_data(wave(&[2, 12, 3, 5], 0.9, 0.0), &device);
        let gradients = super::super::inner_product(output, direction).backward();
        assert_near(map.grad(&gradients).expect("a gradient"), &oracle.input_gradient);
        assert_near(weight.grad(&gradients).expect("a gradient"), &oracle.weight_gradient);
        assert_near(bias.grad(&gradients).expect("a gradient"), &oracle.bias_gradient);
    }
}
