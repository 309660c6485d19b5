//! Convolution weights in the form that kernels multiply, and their gradients from parts.

use std::ops::Range;

use super::gpu::Arguments;
use super::kernels::{Entry, Kernels, blocks, entry};
use super::{Buffer, Sizes};

const PACK_WEIGHTS: Entry = entry!("pack_weights", 256, [TILES]);
const REDUCE_PARTIALS: Entry = entry!("reduce_partials", 256, [TILES]);

/// Forms of a convolution's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `[output, kernel, kernel, input]`, for the forward pass.
    Forward,
    /// `[input, kernel, kernel, output]`, for the gradient of the input.
    InputGradient,
    /// `[output, input, 7, 8]`, for the stem.
    Stem,
    /// Of one of a dense layer's convolutions, for the forward pass: as the kernels for Hopper copy it into shared
    /// memory, where they take the layer; else [`Form::Forward`].
    LayerForward,
    /// The same for the gradient of the input; else [`Form::InputGradient`].
    LayerInputGradient,
}

impl Form {
    /// The first `weights` weights, each in the forms for both passes.
    pub fn both_passes(weights: usize) -> Vec<(usize, Self)> {
        let forms = |weight| [(weight, Self::Forward), (weight, Self::InputGradient)];
        (0..weights).flat_map(forms).collect()
    }
}

/// One convolution's weights in one form.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    /// Where they begin among the flat weights.
    pub source: usize,
    /// The form.
    pub form: Form,
    /// Output channels.
    pub output: usize,
    /// Input channels.
    pub input: usize,
    /// Height and width of the kernel.
    pub kernel: usize,
}

/// Which weights are packed in which form, and where they come to lie.
#[derive(Debug, Clone)]
pub struct Packing {
    table: Buffer,
    segments: usize,
    blocks: usize,
    length: usize,
    /// Where each packed weight lies, the elements of its row, and whether it is tiled.
    places: Vec<(Range<usize>, usize, bool)>,
}

/// A weight ready to be multiplied.
#[derive(Debug, Clone)]
pub struct Packed {
    pub(super) buffer: Buffer,
    /// Elements of one row.
    pub(super) row: usize,
    /// Whether it is as the kernels for Hopper copy it into shared memory.
    pub(super) tiled: bool,
}

impl Kernels {
    /// How `segments` are packed; the order is kept.
    pub fn packing(&self, segments: &[Segment]) -> Packing {
        let unit = 4 * self.vector();
        let (mut start, mut first) = (0, 0);
        let (mut table, mut places) = (Vec::new(), Vec::new());
        for segment in segments {
            let taps = segment.kernel * segment.kernel;
            let tiled = match (segment.form, segment.kernel) {
                (Form::Forward | Form::InputGradient | Form::Stem, _) => false,
                (_, 1) => self.pointwise_on_hopper(segment.input, segment.output),
                _ => self.dense_on_hopper(segment.input, segment.output),
            };
            let (mode, rows, row) = match segment.form {
                Form::Forward | Form::LayerForward => {
                    let mode = if tiled { 3 } else { 0 };
                    (mode, segment.output, (taps * segment.input).next_multiple_of(unit))
                }
                Form::InputGradient | Form::LayerInputGradient => {
                    let mode = if tiled { 4 } else { 1 };
                    (mode, segment.input, (taps * segment.output).next_multiple_of(unit))
                }
                Form::Stem => (2, segment.output, 16 * (7 * segment.input).div_ceil(2)),
            };
            let entries =
                [segment.source, start, mode, segment.output, segment.input, taps, row, first];
            table
                .extend(entries.map(|entry| u32::try_from(entry).expect("weights fit in 32 bits")));
            places.push((start..start + rows * row, row, tiled));
            start += (rows * row).next_multiple_of(8);
            first += blocks(rows * row, 256);
        }
        let table = self.gpu.upload_integers(&table);
        Packing { table, segments: segments.len(), blocks: first, length: start, places }
    }

    /// The weights in `flat`, packed as `packing` says.
    pub fn pack(&self, flat: &Buffer, packing: &Packing) -> Vec<Packed> {
        let all = self.elements(packing.length);
        let sizes = Sizes::new().int(packing.segments);
        let buffers: Arguments<'_> = &[flat, &all, &packing.table];
        self.gpu.launch(&self.get(PACK_WEIGHTS), [packing.blocks, 1, 1], buffers, &sizes);
        let places = packing.places.iter().cloned();
        places.map(|(place, row, tiled)| Packed { buffer: all.range(place), row, tiled }).collect()
    }

    /// Adds up the `splits` parts of a weight's gradient, `[splits, output, taps, input]`, into
    /// `gradient`, `[output, input, taps]`.
    pub(super) fn reduce_partials(
        &self,
        parts: &Buffer,
        gradient: &Buffer,
        splits: usize,
        [output, input, taps]: [usize; 3],
    ) {
        let sizes = Sizes::of([splits, output, input, taps, 0, 0]);
        let grid = [blocks(output * input * taps, 256), 1, 1];
        self.gpu.launch(&self.get(REDUCE_PARTIALS), grid, &[parts, gradient], &sizes);
    }

    /// Into how many parts of how many pixels the sum of a weight's gradient is split, when one part
    /// takes `tiles` blocks.
    pub(super) fn splits(&self, pixels: usize, tiles: usize) -> (usize, usize) {
        let wanted = (2 * self.multiprocessors / tiles).max(1);
        let per = 32 * blocks(pixels, 32 * wanted);
        (blocks(pixels, per), per)
    }
}
