//! BatchNorm, ReLU, 1×1 convolution and 2×2 average-pooling.

use super::columns::{Affine, Columns, Moments, Partials};
use super::kernels::{Entry, Kernels, blocks, entry};
use super::norm::NormBuffers;
use super::weights::Packed;
use super::{Buffer, Sizes};

const TRANSITION_FORWARD: Entry =
    entry!("transition_forward", 256, [TILES, CHANNELS, GEMM, POOLED]);
const TRANSITION_BACKWARD_INPUT: Entry =
    entry!("transition_backward_input", 256, [TILES, CHANNELS, GEMM, CONV, POOLED]);
const TRANSITION_BACKWARD_WEIGHT: Entry =
    entry!("transition_backward_weight", 256, [TILES, CHANNELS, GEMM, POOLED]);

impl Kernels {
    /// Writes the transition of `map`, of `[batch, height, width]` pixels, into `out`; returns what it
    /// leaves of its channels.
    pub fn transition_forward(
        &self,
        map: &Columns,
        size: [usize; 3],
        affine: &Affine,
        weight: &Packed,
        out: &Columns,
    ) -> Partials {
        let tiles = blocks(out.pixels(), 128);
        let part = self.partials(tiles, out.channels());
        let sizes = size.into_iter().fold(Sizes::new(), Sizes::int);
        let sizes = sizes.int(map.channels()).int(out.channels());
        let sizes = sizes.int(map.stride()).int(out.stride()).int(weight.row);
        let buffers = [
            map.buffer(),
            &affine.scale,
            &affine.shift,
            &weight.buffer,
            out.buffer(),
            &part.buffer,
        ];
        let grid = [tiles * blocks(out.channels(), 128), 1, 1];
        self.gpu.launch(&self.get(TRANSITION_FORWARD), grid, &buffers, &sizes);
        part
    }

    /// Writes the first contribution to S, the gradient of `map` without what its statistics add,
    /// into `summed`; returns what it leaves of the norm.
    #[expect(clippy::too_many_arguments, reason = "a kernel's inputs and outputs")]
    pub fn transition_backward_input(
        &self,
        gradient: &Columns,
        weight: &Packed,
        map: &Columns,
        size: [usize; 3],
        moments: &Moments,
        affine: &Affine,
        norm: &NormBuffers,
        summed: &Columns,
    ) -> Partials {
        let tiles = blocks(gradient.pixels(), 128);
        let part = self.partials(tiles, map.channels());
        let sizes = size.into_iter().fold(Sizes::new(), Sizes::int);
        let sizes = sizes.int(map.channels()).int(gradient.channels());
        let sizes = sizes.int(gradient.stride()).int(map.stride()).int(summed.stride());
        let sizes = sizes.int(weight.row).int(0);
        let buffers = [
            gradient.buffer(),
            &weight.buffer,
            map.buffer(),
            &moments.mean,
            &moments.deviation,
            &affine.scale,
            &affine.shift,
            &norm.scale,
            summed.buffer(),
            &part.buffer,
        ];
        let grid = [tiles * blocks(map.channels(), 64), 1, 1];
        self.gpu.launch(&self.get(TRANSITION_BACKWARD_INPUT), grid, &buffers, &sizes);
        part
    }

    /// Writes the gradient of the weight, `[output, input]`.
    pub fn transition_backward_weight(
        &self,
        gradient: &Columns,
        map: &Columns,
        size: [usize; 3],
        affine: &Affine,
        weight_gradient: &Buffer,
    ) {
        let (output, input) = (gradient.channels(), map.channels());
        let tiles = blocks(output, 128) * blocks(input, 128);
        let (splits, per) = self.splits(gradient.pixels(), tiles);
        let work = self.floats(splits * output * input);
        let sizes = size.into_iter().fold(Sizes::new(), Sizes::int);
        let sizes = sizes.int(input).int(output).int(gradient.stride()).int(map.stride()).int(per);
        let buffers = [gradient.buffer(), map.buffer(), &affine.scale, &affine.shift, &work];
        let kernel = self.get(TRANSITION_BACKWARD_WEIGHT);
        self.gpu.launch(&kernel, [tiles, splits, 1], &buffers, &sizes);
        self.reduce_partials(&work, weight_gradient, splits, [output, input, 1]);
    }
}
