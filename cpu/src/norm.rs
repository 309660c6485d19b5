//! Norms over a batch, forward and backward.
//!
//! One thread computes a channel, whose values of a batch seldom are more than the cache of a core holds: they
//! are read from memory once, and once more where the gradient is wanted. Sums are taken in an order that
//! depends on the sizes alone.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use crate::Maps;
use crate::matrix::written;

/// The sizes of maps that are normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchNorm {
    /// Images.
    pub batch: usize,
    /// Channels.
    pub channels: usize,
    /// Height times width.
    pub pixels: usize,
    /// Whether ReLU follows.
    pub relu: bool,
}

/// Mean and biased variance of each channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// Means.
    pub mean: Vec<f32>,
    /// Variances.
    pub variance: Vec<f32>,
}

/// Sums that are taken side by side.
const LANES: usize = 16;
/// Values that are summed in 32 bits, before all is summed in 64.
const BLOCK: usize = 8192;

impl BatchNorm {
    /// Less the mean, over the root of the variance and `epsilon`, times `weight`, plus `bias`, and 0 where that is
    /// less if ReLU follows.
    pub fn forward(
        &self,
        maps: Maps<'_>,
        [weight, bias]: [&[f32]; 2],
        epsilon: f32,
    ) -> (Vec<f32>, Statistics) {
        // SAFETY: the planes of all channels are all values, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        unsafe {
            written(self.count(), |out| self.write_forward(maps, [weight, bias], epsilon, out))
        }
    }

    fn write_forward(
        &self,
        maps: Maps<'_>,
        [weight, bias]: [&[f32]; 2],
        epsilon: f32,
        out: &mut [MaybeUninit<f32>],
    ) -> Statistics {
        let found: Vec<[f32; 2]> = self
            .by_channel(out)
            .into_par_iter()
            .enumerate()
            .map(|(channel, out)| {
                let planes = || self.planes(maps, channel);
                let blocks = || planes().flat_map(|plane| plane.chunks(BLOCK));
                let mean = self.mean(blocks().map(|block| sum(block, |value| value)));
                let squared = |value: f32| (value - mean) * (value - mean);
                let variance = self.mean(blocks().map(|block| sum(block, squared)));
                let line = Line {
                    mean,
                    factor: weight[channel] / (variance + epsilon).sqrt(),
                    shift: bias[channel],
                };
                for (out, plane) in out.into_iter().zip(planes()) {
                    let each = out.iter_mut().zip(plane);
                    match self.relu {
                        true => each.for_each(|(out, value)| {
                            out.write(rectified(line.at(*value)));
                        }),
                        false => each.for_each(|(out, value)| {
                            out.write(line.at(*value));
                        }),
                    }
                }
                [mean, variance]
            })
            .collect();
        let [mean, variance] = [0, 1].map(|at| found.iter().map(|found| found[at]).collect());
        Statistics { mean, variance }
    }

    /// The gradients of the maps, and of weight and bias.
    pub fn backward(
        &self,
        maps: Maps<'_>,
        statistics: &Statistics,
        parameters: [&[f32]; 2],
        epsilon: f32,
        gradient: Maps<'_>,
    ) -> (Vec<f32>, [Vec<f32>; 2]) {
        let given = Given { maps, statistics, parameters, epsilon, gradient };
        let write = |out: &mut [MaybeUninit<f32>]| match self.relu {
            true => {
                self.backward_by(
                    given,
                    out,
                    |line, value, gradient| {
                        if line.at(value) <= 0.0 { 0.0 } else { gradient }
                    },
                )
            }
            false => self.backward_by(given, out, |_, _, gradient| gradient),
        };
        // SAFETY: the planes of all channels are all values, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        unsafe {
            written(self.count(), write)
        }
    }

    fn count(&self) -> usize {
        self.batch * self.channels * self.pixels
    }

    /// Where `behind` is the gradient of the norm's result, from a value and the gradient of what follows.
    fn backward_by(
        &self,
        given: Given<'_>,
        out: &mut [MaybeUninit<f32>],
        behind: impl Fn(Line, f32, f32) -> f32 + Sync,
    ) -> [Vec<f32>; 2] {
        let Given { maps, statistics, parameters: [weight, bias], epsilon, gradient } = given;
        let found: Vec<[f32; 2]> = self
            .by_channel(out)
            .into_par_iter()
            .enumerate()
            .map(|(channel, out)| {
                let mean = statistics.mean[channel];
                let root = (statistics.variance[channel] + epsilon).sqrt();
                let line = Line { mean, factor: weight[channel] / root, shift: bias[channel] };
                let factor = root.recip();
                let planes = || self.planes(maps, channel).zip(self.planes(gradient, channel));
                let blocks = planes()
                    .flat_map(|(plane, gradient)| plane.chunks(BLOCK).zip(gradient.chunks(BLOCK)));
                let sums = blocks.map(|(values, gradients)| {
                    product_sums(values, gradients, mean, |value, gradient| {
                        behind(line, value, gradient)
                    })
                });
                let [products, total] = sums.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
                let products = products * f64::from(factor);
                let count = (self.batch * self.pixels) as f64;
                let [share, shift] = [products / count, total / count].map(|sum| sum as f32);
                let scale = weight[channel] * factor;
                for (out, (plane, gradient)) in out.into_iter().zip(planes()) {
                    for ((out, value), gradient) in out.iter_mut().zip(plane).zip(gradient) {
                        let normal = (value - mean) * factor;
                        let gradient = behind(line, *value, *gradient);
                        out.write((gradient - shift - normal * share) * scale);
                    }
                }
                [products as f32, total as f32]
            })
            .collect();
        [0, 1].map(|at| found.iter().map(|found| found[at]).collect())
    }

    /// The planes of each channel, image by image.
    fn by_channel<'a, T>(&self, maps: &'a mut [T]) -> Vec<Vec<&'a mut [T]>> {
        assert_eq!(maps.len(), self.count(), "the size of the maps");
        let mut channels: Vec<Vec<_>> = Vec::new();
        channels.resize_with(self.channels, || Vec::with_capacity(self.batch));
        for image in maps.chunks_exact_mut(self.channels * self.pixels) {
            let planes = image.chunks_exact_mut(self.pixels);
            channels.iter_mut().zip(planes).for_each(|(channel, plane)| channel.push(plane));
        }
        channels
    }

    fn planes<'a>(&self, maps: Maps<'a>, channel: usize) -> impl Iterator<Item = &'a [f32]> + 'a {
        let pixels = self.pixels;
        (0..self.batch).map(move |image| &maps.image(image)[channel * pixels..][..pixels])
    }

    fn mean(&self, sums: impl Iterator<Item = f64>) -> f32 {
        (sums.sum::<f64>() / (self.batch * self.pixels) as f64) as f32
    }
}

/// What the backward pass is given.
struct Given<'a> {
    maps: Maps<'a>,
    statistics: &'a Statistics,
    parameters: [&'a [f32]; 2],
    epsilon: f32,
    gradient: Maps<'a>,
}

/// What a channel's values become: less `mean`, times `factor`, plus `shift`.
#[derive(Clone, Copy)]
struct Line {
    mean: f32,
    factor: f32,
    shift: f32,
}

impl Line {
    fn at(self, value: f32) -> f32 {
        (value - self.mean) * self.factor + self.shift
    }
}

/// ReLU; what is not a number stays so.
fn rectified(value: f32) -> f32 {
    if value <= 0.0 { 0.0 } else { value }
}

/// The sum of what `of` gives.
fn sum(values: &[f32], of: impl Fn(f32) -> f32) -> f64 {
    let mut sums = [0.0f32; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += of(*value));
    }
    let rest = rest.iter().map(|value| f64::from(of(*value)));
    sums.iter().map(|sum| f64::from(*sum)).chain(rest).sum()
}

/// The sums of the gradients times what the values are above the mean, and of the gradients, where `behind`
/// makes a gradient of a value and what there is for it.
fn product_sums(
    values: &[f32],
    gradients: &[f32],
    mean: f32,
    behind: impl Fn(f32, f32) -> f32,
) -> [f64; 2] {
    let mut sums = [[0.0f32; LANES]; 2];
    let ((values, few), (gradients, rest)) =
        (values.as_chunks::<LANES>(), gradients.as_chunks::<LANES>());
    for (values, gradients) in values.iter().zip(gradients) {
        let [products, totals] = &mut sums;
        for lane in 0..LANES {
            let gradient = behind(values[lane], gradients[lane]);
            products[lane] += gradient * (values[lane] - mean);
            totals[lane] += gradient;
        }
    }
    let few = few.iter().zip(rest).map(|(value, gradient)| {
        let gradient = behind(*value, *gradient);
        [gradient * (value - mean), gradient]
    });
    let [products, totals] = sums;
    let lanes = products.into_iter().zip(totals).map(|(product, total)| [product, total]);
    lanes.chain(few).fold([0.0; 2], |sums: [f64; 2], pair: [f32; 2]| {
        [sums[0] + f64::from(pair[0]), sums[1] + f64::from(pair[1])]
    })
}

#[cfg(test)]
mod tests;
