//! A residual block's backward pass.

use super::{Back, Layer, Residual, Saved};
use crate::memory::measure::ended;
use crate::ops::gpu::{ChannelsLast, DeviceMap, Normalised, NormedConvolution, Summed};

/// Norm `index` with the statistics it was given.
fn normalised<'a>(back: &Back<'a>, layers: &'a [Layer], index: usize) -> Normalised<'a> {
    back.normalised(index, &layers[index].stats, &layers[index].affine)
}

impl Residual {
    /// The gradient of the block's input from that of its output.
    pub(super) fn backward_block(
        &self,
        back: &Back<'_>,
        kept: Saved,
        gradient: ChannelsLast,
    ) -> DeviceMap {
        let Back { kernels, values, room, .. } = *back;
        let Saved { input, output, mut layers } = kept;
        let sizes = self.sizes.inputs(input.size);
        let last = sizes.len() - 1;

        // Nothing else needs the last convolution's output: its gradient takes its place.
        let mut flowing = self.map(back, &input, &layers, last);
        let (normalised, norm) = (normalised(back, &layers, last), &room.norms[last]);
        kernels.residual_backward(&gradient, &flowing, &output, normalised, norm);
        drop(output);
        layers[last].map = None;
        ended(format_args!("{}, add, relu", self.names(last)[1]));
        let data = self.backward_shortcut(back, &input, &layers, gradient);

        for index in (1..=last).rev() {
            let map = self.map(back, &input, &layers, index - 1);
            layers[index - 1].map = None;
            flowing = self.backward_layer(back, index, (&map, sizes[index]), &layers, &flowing);
        }
        let first = self.sizes.convs[0].on(input.size);
        kernels.conv_backward_weight(&first, &input.data, &flowing, &room.weights[0]);
        kernels.conv_backward_input(&first, &flowing, &values.packed[1], &data, true);
        ended("conv1");
        DeviceMap { data, stats: None, pending: None, ..input }
    }

    /// The shortcut's part of the input's gradient, from that of the sum, whose memory it may take.
    fn backward_shortcut(
        &self,
        back: &Back<'_>,
        input: &DeviceMap,
        layers: &[Layer],
        gradient: ChannelsLast,
    ) -> ChannelsLast {
        let Back { kernels, values, room, .. } = *back;
        let (map, channels) = (&input.data, input.data.channels());
        let Some(projection) = &self.sizes.projection else {
            if self.sizes.stride == 1 && gradient.channels() == channels {
                return gradient;
            }
            return kernels.shortcut_backward(&gradient, input.size, channels, self.sizes.stride);
        };
        let index = self.sizes.convs.len();
        let projected = self.map(back, input, layers, index);
        let normalised = normalised(back, layers, index);
        kernels.norm_backward(&gradient, &projected, normalised, &room.norms[index], false);
        drop(projected);
        ended("downsample.1");
        let projection = projection.on(input.size);
        kernels.conv_backward_weight(&projection, map, &gradient, &room.weights[index]);
        let data = kernels.empty_map(map.pixels(), channels);
        let weight = &values.packed[2 * index + 1];
        kernels.conv_backward_input(&projection, &gradient, weight, &data, false);
        ended("downsample.0");
        data
    }

    /// Takes the gradient of the output of convolution `index` back through it and the norm and ReLU
    /// before it to `map`, the output of the convolution before.
    fn backward_layer(
        &self,
        back: &Back<'_>,
        index: usize,
        (map, size): (&ChannelsLast, [usize; 3]),
        layers: &[Layer],
        gradient: &ChannelsLast,
    ) -> ChannelsLast {
        let Back { kernels, values, room, .. } = *back;
        let conv = self.sizes.convs[index];
        let convolution = conv.on(size);
        let normalised = normalised(back, layers, index - 1);
        let (weight, name) = (&room.weights[index], self.names(index)[0]);
        let norm_ended = || ended(format_args!("{}, relu", self.names(index - 1)[1]));
        let out = if conv.window.kernel == 1 {
            kernels.layer_weight(map, normalised.affine, gradient, weight);
            kernels.empty_map(map.pixels(), map.channels())
        } else {
            // What has been normalised is no longer needed then, and the gradient takes its place.
            let normal = kernels.normalised(map, normalised.affine);
            kernels.conv_backward_weight(&convolution, &normal, gradient, weight);
            normal
        };
        let (packed, norm) = (&values.packed[2 * index + 1], &room.norms[index - 1]);
        if conv.window.stride > 1 {
            kernels.conv_backward_input(&convolution, gradient, packed, &out, false);
            ended(name);
            kernels.norm_backward(&out, map, normalised, norm, true);
            norm_ended();
            return out;
        }
        let sums = kernels.sums(map.channels(), back.over);
        let (summed, missing) = (&out, &sums);
        let layer =
            NormedConvolution { convolution: &convolution, weight: packed, map, normalised };
        kernels.layer_backward(layer, gradient, norm, (summed, missing), true);
        ended(name);
        let summed = Summed { data: summed, map, stats: normalised.stats, missing };
        kernels.input_gradient(summed, back.synced);
        norm_ended();
        out
    }
}
