//! The operations of Burn's autodiff that stages are made of.

use super::array::{Array, Arrays, Convolution};
use super::{Gradients, Ledger, Noted, Window};

/// Reduces what was repeated to the elements that were there.
fn unrepeated(ledger: &Ledger, gradient: Array, elements: usize) -> Array {
    match gradient.elements == elements {
        true => gradient,
        false => ledger.arrays.reduce(gradient, elements),
    }
}

fn repeated(left: &[usize], right: &[usize]) -> Vec<usize> {
    let wider = left.len().max(right.len());
    let at = |shape: &[usize], place: usize| {
        (place + shape.len()).checked_sub(wider).map_or(1, |place| shape[place])
    };
    (0..wider).map(|place| at(left, place).max(at(right, place))).collect()
}

/// The sizes of a square convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConvolutionSizes {
    batch: usize,
    input: usize,
    channels: usize,
    /// Height and width of the input.
    size: [usize; 2],
    window: Window,
}

impl ConvolutionSizes {
    pub fn new([batch, input, height, width]: [usize; 4], channels: usize, window: Window) -> Self {
        Self { batch, input, channels, size: [height, width], window }
    }

    /// Height and width of the output.
    fn out(&self) -> [usize; 2] {
        self.size.map(|size| self.window.output(size))
    }

    pub fn output(&self) -> Vec<usize> {
        let [height, width] = self.out();
        vec![self.batch, self.channels, height, width]
    }

    fn taps(&self) -> usize {
        self.window.kernel * self.window.kernel
    }

    fn forward(&self) -> Convolution {
        let Window { kernel, stride, padding } = self.window;
        Convolution {
            batch: self.batch,
            channels: [self.input, self.channels],
            taps: self.taps(),
            pixels: self.out().iter().product(),
            pointwise: kernel == 1 && stride == 1 && padding == 0,
        }
    }

    fn flops(&self) -> f64 {
        let elements: usize = self.output().iter().product();
        2.0 * (elements * self.input * self.taps()) as f64
    }

    pub fn gradient_of_map(&self, arrays: &Arrays, gradient: Array) -> Array {
        arrays.convolve_back(gradient, self.forward(), self.size.iter().product())
    }

    /// Images and channels change places, and the gradient of the output is the kernel.
    pub fn gradient_of_weight(&self, arrays: &Arrays, map: Array, gradient: Array) -> Array {
        let (out, window) = (self.out(), self.window);
        let side = |at: usize| self.size[at] + 2 * window.padding - window.stride * (out[at] - 1);
        let pixels: usize = out.iter().product();
        let sizes = Convolution {
            batch: self.input,
            channels: [self.batch, self.channels],
            taps: pixels,
            pixels: side(0) * side(1),
            pointwise: pixels == 1 && window.padding == 0,
        };
        let swapped = |array: Array, channels: usize| {
            let dense = array.dense && (self.batch == 1 || channels == 1);
            Array { dense, ..array }
        };
        let (map, gradient) = (swapped(map, self.input), swapped(gradient, self.channels));
        let made = arrays.convolve(map, gradient, sizes);
        let elements = self.channels * self.input * self.taps();
        Array { dense: self.input == 1 || self.channels == 1, elements, ..made }
    }
}

impl Arrays {
    /// Of a fully connected layer of `[batch, input]` to `[batch, output]`.
    pub(super) fn linear_gradient_of_value(&self, [batch, input, output]: [usize; 3]) -> Array {
        let _turned = self.cuda.then(|| self.array(output * input));
        self.array(batch * input)
    }

    pub(super) fn linear_gradient_of_weight(
        &self,
        [batch, input, output]: [usize; 3],
        value: Array,
        gradient: Array,
    ) -> Array {
        let row = self.row(input);
        let _rows = (row != input).then(|| self.array((batch + output) * row));
        let made = self.array(output * input);
        drop((value, gradient));
        // On the CPU it is made transposed.
        Array { dense: self.cuda || output == 1 || input == 1, ..made }
    }
}

impl Ledger {
    /// A square convolution of a map to `channels` channels, without bias: keeps its input.
    pub fn convolution(&self, map: Noted, channels: usize, window: Window) -> Noted {
        let sizes = ConvolutionSizes::new(map.map(), channels, window);
        let weight = self.parameter(&[channels, sizes.input, window.kernel, window.kernel]);
        let flops = sizes.flops();
        self.work(flops, 2.0 * flops);
        let kept = self.keep.get().then(|| map.array.clone());
        let parents = [map.node, weight.node];
        let array = self.arrays.convolve(map.array, weight.array.clone(), sizes.forward());
        self.result(sizes.output(), array, &parents, move |ledger, gradient, gradients| {
            let map = kept.expect("is kept");
            let arrays = &ledger.arrays;
            if parents[0].is_some() {
                let of_map = sizes.gradient_of_map(arrays, gradient.clone());
                ledger.register(gradients, parents[0], of_map);
            }
            let of_weight = sizes.gradient_of_weight(arrays, map, gradient);
            ledger.register(gradients, parents[1], of_weight);
        })
    }

    /// BatchNorm with the batch's statistics: keeps its input.
    pub fn batch_norm(&self, map: Noted) -> Noted {
        let [batch, channels, height, width] = map.map();
        let count = map.elements() as f64;
        self.work(8.0 * count, 12.0 * count);
        self.statistics.set(self.statistics.get() + 2 * channels);
        let scale = self.parameter(&[channels]);
        let shift = self.parameter(&[channels]);
        let kept = self.keep.get().then(|| map.array.clone());
        let parents = [map.node, scale.node, shift.node];
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
        self.result(shape, array, &parents, move |ledger, gradient, gradients| {
            let arrays = &ledger.arrays;
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
            ledger.register(gradients, parents[0], of_map);
            ledger.register(gradients, parents[1], of_scale);
            ledger.register(gradients, parents[2], of_shift);
        })
    }

    /// GroupNorm, as the layer of that name computes it.
    pub fn group_norm(&self, map: Noted, groups: usize) -> Noted {
        let shape = map.map();
        let [batch, channels, height, width] = shape;
        let grouped = self.reshape(map, &[batch, groups, channels / groups * height * width]);
        let mean = self.mean_of_last(grouped.clone());
        let centred = self.subtract(grouped, mean);
        let squared = self.multiply(centred.clone(), centred.clone());
        let deviation = self.mean_of_last(squared);
        let normal = self.reshape(self.divide(centred, deviation), &shape);
        let scale = self.parameter(&[1, channels, 1, 1]);
        let shift = self.parameter(&[1, channels, 1, 1]);
        self.add(self.multiply(normal, scale), shift)
    }

    /// ReLU: keeps its input.
    pub fn relu(&self, value: Noted) -> Noted {
        self.activation(value, false)
    }

    /// 1 / (1 + exp(−x)): keeps its input, and computes its output again from that.
    pub fn sigmoid(&self, value: Noted) -> Noted {
        self.activation(value, true)
    }

    fn activation(&self, value: Noted, again: bool) -> Noted {
        let Noted { shape, array, node } = value;
        self.work(array.elements as f64, array.elements as f64);
        let kept = node.map(|_| array.clone());
        let array = self.arrays.map(array);
        self.result(shape, array, &[node], move |ledger, gradient, gradients| {
            let arrays = &ledger.arrays;
            let kept = kept.expect("is kept");
            let kept = if again { arrays.map(kept) } else { kept };
            ledger.register(gradients, node, arrays.zip(kept, gradient));
        })
    }

    /// Max-pooling: keeps its input and, in 32 bits, where each maximum is.
    pub fn max_pool2d(&self, map: Noted, window: Window) -> Noted {
        let [batch, channels, height, width] = map.map();
        let shape = [batch, channels, window.output(height), window.output(width)];
        let elements: usize = shape.iter().product();
        self.work((elements * window.kernel * window.kernel) as f64, elements as f64);
        let meter = &self.arrays.meter;
        let Noted { array, node, .. } = map;
        let input = array.elements;
        let array = self.arrays.dense(array);
        let out = self.arrays.array(elements);
        let places = meter.take(8 * elements as u64);
        let kept = self.keep.get().then(|| (array, meter.take(4 * elements as u64)));
        drop(places);
        self.result(shape.to_vec(), out, &[node], move |ledger, gradient, gradients| {
            let _kept = kept;
            let ordered = ledger.arrays.dense(gradient.clone());
            let of_map = ledger.arrays.array(input);
            drop((gradient, ordered));
            ledger.register(gradients, node, of_map);
        })
    }

    /// Average-pooling: keeps its input.
    pub fn avg_pool2d(&self, map: Noted, window: Window) -> Noted {
        let [batch, channels, height, width] = map.map();
        let shape = [batch, channels, window.output(height), window.output(width)];
        let elements: usize = shape.iter().product();
        self.work((elements * window.kernel * window.kernel) as f64, elements as f64);
        let Noted { array, node, .. } = map;
        let input = array.elements;
        let kept = self.keep.get().then(|| array.clone());
        let _array = self.arrays.dense(array);
        let out = self.arrays.array(elements);
        self.result(shape.to_vec(), out, &[node], move |ledger, gradient, gradients| {
            let _kept = kept;
            let ordered = ledger.arrays.dense(gradient.clone());
            let of_map = ledger.arrays.array(input);
            drop((gradient, ordered));
            ledger.register(gradients, node, of_map);
        })
    }

    /// Maps or features behind one another, by channels: keeps nothing.
    pub fn cat(&self, values: Vec<Noted>) -> Noted {
        let mut shape = values[0].shape.clone();
        shape[1] = values.iter().map(|value| value.shape[1]).sum();
        let parts: Vec<(Option<usize>, usize)> =
            values.iter().map(|value| (value.node, value.elements())).collect();
        let parents: Vec<_> = parts.iter().map(|(node, _)| *node).collect();
        let values = values.into_iter().map(|value| self.arrays.dense(value.array));
        let values: Vec<Array> = values.collect();
        let array = self.arrays.array(values.iter().map(|value| value.elements).sum());
        drop(values);
        self.result(shape, array, &parents, move |ledger, gradient, gradients| {
            for (node, elements) in parts {
                let part = ledger.arrays.view(&gradient, elements);
                ledger.register(gradients, node, part);
            }
        })
    }

    /// A map of zeros.
    pub fn zeros(&self, shape: &[usize]) -> Noted {
        let array = self.arrays.array(shape.iter().product());
        Noted { shape: shape.to_vec(), array, node: None }
    }

    /// The sum, the smaller repeated: keeps nothing.
    pub fn add(&self, left: Noted, right: Noted) -> Noted {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, 0.0);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ledger, gradient, gradients| {
            let copies = sides.map(|(node, elements)| (node, elements, gradient.clone()));
            drop(gradient);
            for (node, elements, gradient) in copies {
                if node.is_some() {
                    let gradient = unrepeated(ledger, gradient, elements);
                    ledger.register(gradients, node, gradient);
                }
            }
        })
    }

    /// The difference, the smaller repeated: keeps nothing.
    pub fn subtract(&self, left: Noted, right: Noted) -> Noted {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, array.elements as f64);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ledger, gradient, gradients| {
            let of_left = sides[0].0.map(|_| gradient.clone());
            let of_right = sides[1].0.map(|_| gradient.clone());
            drop(gradient);
            if let Some(gradient) = of_left {
                let gradient = unrepeated(ledger, gradient, sides[0].1);
                ledger.register(gradients, sides[0].0, gradient);
            }
            if let Some(gradient) = of_right {
                let gradient = unrepeated(ledger, ledger.arrays.map(gradient), sides[1].1);
                ledger.register(gradients, sides[1].0, gradient);
            }
        })
    }

    /// The product, the smaller repeated: keeps each factor that the other's gradient needs.
    pub fn multiply(&self, left: Noted, right: Noted) -> Noted {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let kept_left = right.node.map(|_| left.array.clone());
        let kept_right = left.node.map(|_| right.array.clone());
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, 2.0 * array.elements as f64);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ledger, gradient, gradients| {
            let of_left = kept_right.map(|factor| (gradient.clone(), factor));
            let of_right = kept_left.map(|factor| (gradient.clone(), factor));
            drop(gradient);
            for (side, share) in sides.into_iter().zip([of_left, of_right]) {
                if let Some((gradient, factor)) = share {
                    let gradient = ledger.arrays.zip(gradient, factor);
                    let gradient = unrepeated(ledger, gradient, side.1);
                    ledger.register(gradients, side.0, gradient);
                }
            }
        })
    }

    /// The quotient, the divisor repeated: keeps both.
    pub fn divide(&self, left: Noted, right: Noted) -> Noted {
        let shape = repeated(&left.shape, &right.shape);
        let sides = [(left.node, left.elements()), (right.node, right.elements())];
        let kept = self.keep.get().then(|| (left.array.clone(), right.array.clone()));
        let array = self.arrays.zip(left.array, right.array);
        self.work(array.elements as f64, 4.0 * array.elements as f64);
        let parents = sides.map(|(node, _)| node);
        self.result(shape, array, &parents, move |ledger, gradient, gradients| {
            let (dividend, divisor) = kept.expect("is kept");
            let arrays = &ledger.arrays;
            let of_right = gradient.clone();
            let of_left = arrays.zip(gradient, divisor.clone());
            ledger.register(gradients, sides[0].0, of_left);
            let value = arrays.zip(arrays.map(dividend), divisor);
            let of_right = unrepeated(ledger, arrays.zip(of_right, value), sides[1].1);
            ledger.register(gradients, sides[1].0, of_right);
        })
    }

    /// The same elements in another shape: keeps nothing.
    pub fn reshape(&self, value: Noted, shape: &[usize]) -> Noted {
        let node = value.node;
        let array = self.arrays.dense(value.array);
        self.result(shape.to_vec(), array, &[node], move |ledger, gradient, gradients| {
            let gradient = ledger.arrays.dense(gradient);
            ledger.register(gradients, node, gradient);
        })
    }

    /// The mean over the last dimension, which becomes 1: keeps nothing.
    pub fn mean_of_last(&self, value: Noted) -> Noted {
        let mut shape = value.shape.clone();
        let last = shape.last_mut().expect("has dimensions");
        let (node, elements, means) = (value.node, value.elements(), value.elements() / *last);
        *last = 1;
        self.work(elements as f64, elements as f64);
        let array = self.arrays.reduce(value.array, means);
        self.result(shape, array, &[node], move |ledger, gradient, gradients| {
            let ones = ledger.arrays.map(ledger.arrays.array(elements));
            let of_value = ledger.arrays.zip(ones, gradient);
            ledger.register(gradients, node, of_value);
        })
    }

    /// The mean over each map, `[batch, channels]`: keeps nothing.
    pub fn mean_of_maps(&self, map: Noted) -> Noted {
        let [batch, channels, height, width] = map.map();
        let flat = self.reshape(map, &[batch, channels, height * width]);
        self.reshape(self.mean_of_last(flat), &[batch, channels])
    }

    /// A fully connected layer of `[batch, input]`, with bias or without: keeps its input.
    pub fn linear(&self, value: Noted, output: usize, bias: bool) -> Noted {
        let [batch, input] = value.shape[..] else { panic!("{:?} is no vector", value.shape) };
        let weight = self.parameter(&[output, input]);
        let flops = 2.0 * (batch * input * output) as f64;
        self.work(flops, 2.0 * flops);
        let kept = self.keep.get().then(|| value.array.clone());
        let parents = [value.node, weight.node];
        // Where the kernels load whole vectors, rows of another length are copied into longer ones.
        let row = self.arrays.row(input);
        let _rows = (row != input).then(|| self.arrays.array((batch + output) * row));
        let array = self.arrays.array(batch * output);
        drop(value.array);
        let sizes = [batch, input, output];
        let back = move |ledger: &Self, gradient: Array, gradients: &mut Gradients| {
            let arrays = &ledger.arrays;
            if parents[0].is_some() {
                let of_value = arrays.linear_gradient_of_value(sizes);
                ledger.register(gradients, parents[0], of_value);
            }
            let of_weight =
                arrays.linear_gradient_of_weight(sizes, kept.expect("is kept"), gradient);
            ledger.register(gradients, parents[1], of_weight);
        };
        let product = self.result(vec![batch, output], array, &parents, back);
        match bias {
            true => self.add(product, self.parameter(&[1, output])),
            false => product,
        }
    }

    /// Dropout: keeps its mask.
    pub fn dropout(&self, value: Noted, probability: f64) -> Noted {
        if probability == 0.0 {
            return value;
        }
        let mask = self.zeros(&value.shape);
        self.multiply(value, mask)
    }
}
