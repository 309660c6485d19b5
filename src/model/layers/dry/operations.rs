//! Operations that autodiff records, as burn-flex and burn-autodiff carry them out.

use super::array::{Array, Arrays};
use super::gpu::Convolver;
use super::{DryOps, DryTensor};
use crate::ops::Window;

/// Reduces what was repeated to the elements that were there.
fn unrepeated(ops: &DryOps, gradient: Array, elements: usize) -> Array {
    match gradient.elements == elements {
        true => gradient,
        false => ops.arrays.reduce(gradient, elements),
    }
}

fn repeated(left: &[usize], right: &[usize]) -> Vec<usize> {
    let wider = left.len().max(right.len());
    let at = |shape: &[usize], place: usize| {
        (place + shape.len()).checked_sub(wider).map_or(1, |place| shape[place])
    };
    (0..wider).map(|place| at(left, place).max(at(right, place))).collect()
}

impl DryOps {
    /// BatchNorm with the batch's statistics: keeps its input.
    pub(super) fn normalise_batch(&self, map: DryTensor) -> DryTensor {
        let [batch, channels, height, width] = map.map();
        let count = map.elements() as f64;
        self.work(8.0 * count, 12.0 * count);
        self.statistics.set(self.statistics.get() + 2 * channels);
        let scale = self.parameter(&[channels]);
        let shift = self.parameter(&[channels]);
        let parents = [map.node, scale.node, shift.node];
        if self.arrays.gpu.is_some() {
            return self.normalise_on_gpu(map, None, parents);
        }
        let kept = self.recording.get().then(|| map.array.clone());
        if self.arrays.computes_as_held() {
            return self.normalise_on_cpu(map, kept, parents);
        }
        let arrays = &self.arrays;
        let planes = [batch, channels];
        let mean = arrays.reduce(arrays.swapped(map.array.clone(), planes), channels);
        let centred = arrays.zip(map.array.clone(), mean.clone());
        let squared = arrays.zip(centred.clone(), centred);
        let variance = arrays.reduce(arrays.swapped(squared, planes), channels);
        let normal = arrays.zip(map.array, mean.clone());
        let normal = arrays.zip(normal, variance.clone());
        let array = arrays.zip(arrays.zip(normal, scale.array), shift.array);
        let shape = vec![batch, channels, height, width];
        self.result(shape, array, &parents, move |ops, gradient, gradients| {
            let arrays = &ops.arrays;
            let normal = arrays.zip(kept.expect("is kept"), mean);
            let normal = arrays.zip(normal, variance);
            let flat = arrays.swapped(gradient.clone(), planes);
            let product = arrays.zip(gradient.clone(), normal.clone());
            let product = arrays.swapped(product, planes);
            let of_shift = arrays.reduce(flat.clone(), channels);
            let of_scale = arrays.reduce(product.clone(), channels);
            let mean = arrays.reduce(flat, channels);
            let share = arrays.reduce(product, channels);
            let centred = arrays.zip(gradient, mean.clone());
            let projected = arrays.zip(normal, share);
            let difference = arrays.zip(centred, projected);
            let of_map = arrays.zip(mean, difference);
            ops.register(gradients, parents[0], of_map);
            ops.register(gradients, parents[1], of_scale);
            ops.register(gradients, parents[2], of_shift);
        })
    }

    /// The same of 32-bit maps on the CPU, which makes one array forward and one back.
    fn normalise_on_cpu(
        &self,
        map: DryTensor,
        kept: Option<Array>,
        parents: [Option<usize>; 3],
    ) -> DryTensor {
        let channels = map.shape[1];
        let array = self.arrays.reduce(map.array, map.shape.iter().product());
        self.result(map.shape, array, &parents, move |ops, gradient, gradients| {
            let kept = kept.expect("is kept");
            ops.arrays.moved(4.0 * kept.elements as f64);
            let of_map = ops.arrays.reduce(gradient, kept.elements);
            let [of_scale, of_shift] = [(); 2].map(|()| ops.arrays.array(channels));
            ops.register(gradients, parents[0], of_map);
            ops.register(gradients, parents[1], of_scale);
            ops.register(gradients, parents[2], of_shift);
        })
    }

    /// A norm over the batch or over so many groups of channels of each image, by kernels.
    fn normalise_on_gpu(
        &self,
        map: DryTensor,
        groups: Option<usize>,
        parents: [Option<usize>; 3],
    ) -> DryTensor {
        fn gpu(arrays: &Arrays) -> &Convolver {
            arrays.gpu.as_ref().expect("is on a GPU")
        }
        let shape = map.map();
        let kept = self.recording.get().then(|| map.array.clone());
        let map = self.arrays.dense(map.array);
        let (array, moments) = gpu(&self.arrays).normalise((map, shape), groups);
        self.arrays.moved(gpu(&self.arrays).traffic());
        self.result(shape.to_vec(), array, &parents, move |ops, gradient, gradients| {
            let gpu = gpu(&ops.arrays);
            let [kept, gradient] =
                [kept.expect("is kept"), gradient].map(|array| ops.arrays.dense(array));
            let found = gpu.normalise_back((kept, shape), groups, &moments, gradient);
            ops.arrays.moved(gpu.traffic());
            for (parent, array) in parents.into_iter().zip(found) {
                ops.register(gradients, parent, array);
            }
        })
    }

    /// GroupNorm, as the layer of that name computes it.
    pub(super) fn normalise_groups(&self, map: DryTensor, groups: usize) -> DryTensor {
        let shape = map.map();
        let [batch, channels, height, width] = shape;
        if self.arrays.gpu.is_some() {
            let count = map.elements() as f64;
            self.work(8.0 * count, 12.0 * count);
            let [scale, shift] = [(); 2].map(|()| self.parameter(&[channels]));
            let parents = [map.node, scale.node, shift.node];
            return self.normalise_on_gpu(map, Some(groups), parents);
        }
        let grouped = self.reshaped(map, &[batch, groups, channels / groups * height * width]);
        let mean = self.mean_of_last(grouped.clone());
        let centred = self.subtract(grouped, mean);
        let squared = self.multiply(centred.clone(), centred.clone());
        let deviation = self.mean_of_last(squared);
        let normal = self.reshaped(self.divide(centred, deviation), &shape);
        let scale = self.parameter(&[1, channels, 1, 1]);
        let shift = self.parameter(&[1, channels, 1, 1]);
        self.sum(self.multiply(normal, scale), shift)
    }

    /// ReLU behind a norm, which takes it along or not.
    pub(super) fn with_relu(&self, normal: DryTensor, together: bool) -> DryTensor {
        if !together {
            return self.activation(normal, false);
        }
        let elements = normal.elements() as f64;
        self.work(elements, elements);
        normal
    }

    /// ReLU and the like. It keeps its input; where it computes `again`, the backward pass makes a new
    /// array from that first (sigmoid).
    pub(super) fn activation(&self, value: DryTensor, again: bool) -> DryTensor {
        let DryTensor { shape, array, node } = value;
        self.work(array.elements as f64, array.elements as f64);
        let kept = node.map(|_| array.clone());
        let array = self.arrays.map(array);
        self.result(shape, array, &[node], move |ops, gradient, gradients| {
            let arrays = &ops.arrays;
            let kept = kept.expect("is kept");
            let kept = if again { arrays.map(kept) } else { kept };
            ops.register(gradients, node, arrays.zip(kept, gradient));
        })
    }

    /// Max-pooling: keeps its input and, where Burn's own runs, where each maximum is.
    pub(super) fn max_pool2d(&self, map: DryTensor, window: Window) -> DryTensor {
        let [batch, channels, height, width] = map.map();
        let shape = [batch, channels, window.output(height), window.output(width)];
        let elements: usize = shape.iter().product();
        self.work((elements * window.kernel * window.kernel) as f64, elements as f64);
        let allocator = &self.arrays.allocator;
        let DryTensor { array, node, .. } = map;
        let input = array.elements;
        // Ours takes images that lie apart, and finds the places again.
        let is_ours = self.arrays.gpu.is_none() && self.arrays.element == 4;
        let dense = move |arrays: &Arrays, array| if is_ours { array } else { arrays.dense(array) };
        let places = |bytes: usize| if is_ours { 0 } else { (bytes * elements) as u64 };
        let array = dense(&self.arrays, array);
        let out = self.arrays.array(elements);
        let found = allocator.take(places(8));
        let kept = self.recording.get().then(|| (array, allocator.take(places(4))));
        drop(found);
        self.result(shape.to_vec(), out, &[node], move |ops, gradient, gradients| {
            let _kept = kept;
            let ordered = dense(&ops.arrays, gradient.clone());
            let of_map = ops.arrays.array(input);
            drop((gradient, ordered));
            ops.register(gradients, node, of_map);
        })
    }

    /// Average-pooling: keeps its input.
    pub(super) fn avg_pool2d(&self, map: DryTensor, window: Window) -> DryTensor {
        let [batch, channels, height, width] = map.map();
        let shape = [batch, channels, window.output(height), window.output(width)];
        let elements: usize = shape.iter().product();
        self.work((elements * window.kernel * window.kernel) as f64, elements as f64);
        let DryTensor { array, node, .. } = map;
        let input = array.elements;
        let kept = self.recording.get().then(|| array.clone());
        let _array = self.arrays.dense(array);
        let out = self.arrays.array(elements);
        self.result(shape.to_vec(), out, &[node], move |ops, gradient, gradients| {
            let _kept = kept;
            let ordered = ops.arrays.dense(gradient.clone());
            let of_map = ops.arrays.array(input);
            drop((gradient, ordered));
            ops.register(gradients, node, of_map);
        })
    }

    /// Maps or features behind one another, by channels: keeps nothing.
    pub(super) fn cat(&self, values: Vec<DryTensor>) -> DryTensor {
        let mut shape = values[0].shape.clone();
        shape[1] = values.iter().map(|value| value.shape[1]).sum();
        let parts: Vec<(Option<usize>, usize)> =
            values.iter().map(|value| (value.node, value.elements())).collect();
        let parents: Vec<_> = parts.iter().map(|(node, _)| *node).collect();
        let values = values.into_iter().map(|value| match value.array.dense {
            // Rows are joined as they lie.
            true => value.array,
            false => self.arrays.dense(value.array),
        });
        let values: Vec<Array> = values.collect();
        let elements = values.iter().map(|value| value.elements).sum();
        let array = self.arrays.rows(elements, shape.last().copied().unwrap_or(1));
        drop(values);
        self.result(shape, array, &parents, move |ops, gradient, gradients| {
            for (node, elements) in parts {
                let part = ops.arrays.view(&gradient, elements);
                ops.register(gradients, node, part);
            }
        })
    }

    /// The value with a number added to each channel or feature, where there is a `bias`.
    pub(super) fn biased(&self, value: DryTensor, bias: bool) -> DryTensor {
        if !bias {
            return value;
        }
        let mut shape = vec![1; value.shape.len()];
        shape[1] = value.shape[1];
        let bias = self.parameter(&shape);
        self.sum(value, bias)
    }

    /// A map of zeros.
    pub(super) fn zeros(&self, shape: &[usize]) -> DryTensor {
        let array = self.arrays.array(shape.iter().product());
        DryTensor { shape: shape.to_vec(), array, node: None }
    }

    /// The sum, the smaller repeated: keeps nothing.
    pub(super) fn sum(&self, left: DryTensor, right: DryTensor) -> DryTensor {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, 0.0);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ops, gradient, gradients| {
            let copies = sides.map(|(node, elements)| (node, elements, gradient.clone()));
            drop(gradient);
            for (node, elements, gradient) in copies {
                if node.is_some() {
                    let gradient = unrepeated(ops, gradient, elements);
                    ops.register(gradients, node, gradient);
                }
            }
        })
    }

    /// The difference, the smaller repeated: keeps nothing.
    pub(super) fn subtract(&self, left: DryTensor, right: DryTensor) -> DryTensor {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, array.elements as f64);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ops, gradient, gradients| {
            let of_left = sides[0].0.map(|_| gradient.clone());
            let of_right = sides[1].0.map(|_| gradient.clone());
            drop(gradient);
            if let Some(gradient) = of_left {
                let gradient = unrepeated(ops, gradient, sides[0].1);
                ops.register(gradients, sides[0].0, gradient);
            }
            if let Some(gradient) = of_right {
                let gradient = unrepeated(ops, ops.arrays.map(gradient), sides[1].1);
                ops.register(gradients, sides[1].0, gradient);
            }
        })
    }

    /// The product, the smaller repeated: keeps each factor that the other's gradient needs.
    pub(super) fn multiply(&self, left: DryTensor, right: DryTensor) -> DryTensor {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let kept_left = right.node.map(|_| left.array.clone());
        let kept_right = left.node.map(|_| right.array.clone());
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, 2.0 * array.elements as f64);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ops, gradient, gradients| {
            let of_left = kept_right.map(|factor| (gradient.clone(), factor));
            let of_right = kept_left.map(|factor| (gradient.clone(), factor));
            drop(gradient);
            for (side, share) in sides.into_iter().zip([of_left, of_right]) {
                if let Some((gradient, factor)) = share {
                    let gradient = ops.arrays.zip(gradient, factor);
                    let gradient = unrepeated(ops, gradient, side.1);
                    ops.register(gradients, side.0, gradient);
                }
            }
        })
    }

    /// The quotient, the divisor repeated: keeps both.
    pub(super) fn divide(&self, left: DryTensor, right: DryTensor) -> DryTensor {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let kept = self.recording.get().then(|| (left.array.clone(), right.array.clone()));
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, 4.0 * array.elements as f64);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ops, gradient, gradients| {
            let (dividend, divisor) = kept.expect("is kept");
            let arrays = &ops.arrays;
            let of_right = gradient.clone();
            let of_left = arrays.zip(gradient, divisor.clone());
            ops.register(gradients, sides[0].0, of_left);
            let value = arrays.zip(arrays.map(dividend), divisor);
            let of_right = unrepeated(ops, arrays.zip(of_right, value), sides[1].1);
            ops.register(gradients, sides[1].0, of_right);
        })
    }

    /// The same elements in another shape: keeps nothing.
    pub(super) fn reshaped(&self, value: DryTensor, shape: &[usize]) -> DryTensor {
        let node = value.node;
        let array = self.arrays.dense(value.array);
        self.result(shape.to_vec(), array, &[node], move |ops, gradient, gradients| {
            let gradient = ops.arrays.dense(gradient);
            ops.register(gradients, node, gradient);
        })
    }

    /// The mean over the last dimension, which becomes 1: keeps nothing.
    pub(super) fn mean_of_last(&self, value: DryTensor) -> DryTensor {
        let mut shape = value.shape.clone();
        let last = shape.last_mut().expect("has dimensions");
        let (node, elements, means) = (value.node, value.elements(), value.elements() / *last);
        *last = 1;
        self.work(elements as f64, elements as f64);
        let array = self.arrays.reduce(value.array, means);
        self.result(shape, array, &[node], move |ops, gradient, gradients| {
            let ones = ops.arrays.map(ops.arrays.array(elements));
            let of_value = ops.arrays.zip(ones, gradient);
            ops.register(gradients, node, of_value);
        })
    }

    /// The mean over each map, `[batch, channels]`: keeps nothing.
    pub(super) fn mean_of_maps(&self, map: DryTensor) -> DryTensor {
        let [batch, channels, height, width] = map.map();
        let flat = self.reshaped(map, &[batch, channels, height * width]);
        self.reshaped(self.mean_of_last(flat), &[batch, channels])
    }

    /// Dropout: keeps its mask.
    pub(super) fn dropped(&self, value: DryTensor, probability: f64) -> DryTensor {
        if probability == 0.0 {
            return value;
        }
        // A GPU's kernel makes it in 32 bits; those of 16 bits are made of it.
        let (images, element) = (value.shape[0], self.arrays.element);
        let each = value.elements() / images;
        let made = self.arrays.gpu.as_ref().map(|gpu| gpu.mask(images, each));
        let made = made.filter(|made| made.storage().size() as u64 > element);
        let mask = self.zeros(&value.shape);
        drop(made);
        self.multiply(value, mask)
    }

    /// A part of `values`, of so many of their channels, in the same memory.
    pub(super) fn channels(&self, values: &DryTensor, channels: usize) -> DryTensor {
        let mut shape = values.shape.clone();
        shape[1] = channels;
        let array = self.arrays.view(&values.array, shape.iter().product());
        DryTensor { shape, array, node: None }
    }
}
