//! Sums of squares of many tensors at once, and what follows from them for a step.

use std::ops::Range;

use burn::tensor::{ExecutionError, Tensor};

use crate::ops::gpu::arrays::{ARRAYS, Places, STEP_FACTOR, SUMS_OF_SQUARES};
use crate::ops::gpu::gpu::Arguments;
use crate::ops::gpu::kernels::blocks;
use crate::ops::gpu::{Buffer, Exchange, Gpu, Sizes};

/// Elements that one block adds up.
const STEP: usize = 4096;

/// Sums of squares of tensors in parts.
struct Squares {
    parts: Buffer,
    /// Which parts are those of each tensor.
    places: Vec<Range<usize>>,
}

impl Gpu {
    /// Σ x² of each of `tensors`, which hold 32-bit numbers: added on the GPU in blocks, in one order,
    /// and these on the host in 64 bits. Waits for the GPU once.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn sums_of_squares(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<f64>, ExecutionError> {
        let Squares { parts, places } = self.squares(tensors);
        let read: Tensor<1> = self.tensor(&parts, [parts.len()]);
        let read: Vec<f64> = read.try_into_data()?.iter().collect();
        Ok(places.into_iter().map(|place| read[place].iter().sum()).collect())
    }

    /// What a step with these `gradients`, which hold 32-bit numbers, multiplies them by so that their norm is at
    /// most `max_norm` where there is one, and whether it is left out: where they or the `losses` are not finite,
    /// where the step before it was, for which `before` was given, and where a card that exchanges by `exchange` has
    /// given up waiting for another one. Does not wait for the GPU.
    ///
    /// The buffer is what [`Factor::OnGpu`](crate::ops::gpu::Factor) takes: the factor, 1 where it is left out and else 0, and the losses. See
    /// `kernels/step_factor.cu`.
    pub fn step_factor(
        &self,
        gradients: Vec<Tensor<1>>,
        losses: Option<Tensor<1>>,
        max_norm: Option<f64>,
        before: Option<&Buffer>,
        exchange: Option<&Exchange>,
    ) -> Buffer {
        let Squares { parts, places } = self.squares(gradients);
        let number = |number: usize| u32::try_from(number).expect("few parts");
        let table = places.iter().flat_map(|place| [number(place.start), number(place.len())]);
        let table = self.upload_integers(&table.collect::<Vec<_>>());
        let losses = losses.map(Buffer::of_tensor);
        let count = losses.as_ref().map_or(0, Buffer::len);
        let decided = self.floats(2 + count);
        let most = max_norm.unwrap_or(f64::INFINITY).to_bits();
        let sizes = Sizes::new().bits(most as u32).bits((most >> 32) as u32);
        let given = [before.is_some(), exchange.is_some()].map(usize::from);
        let sizes = sizes.ints([places.len(), count]).ints(given);
        // What there is none of is not read.
        let (losses, before) = (losses.as_ref().unwrap_or(&parts), before.unwrap_or(&parts));
        let cards = exchange.map_or(&parts, Exchange::table);
        let buffers: Arguments<'_> = &[&parts, &table, losses, before, cards, &decided];
        self.launch(&STEP_FACTOR, [1, 1, 1], buffers, &sizes);
        decided
    }

    fn squares(&self, tensors: Vec<Tensor<1>>) -> Squares {
        let buffers: Vec<Buffer> = tensors.into_iter().map(Buffer::of_tensor).collect();
        let mut places = Vec::with_capacity(buffers.len());
        let mut launches = Vec::new();
        let mut end = 0;
        for chunk in buffers.chunks(ARRAYS) {
            let begin = end;
            for buffer in chunk {
                let next = end + blocks(buffer.len(), STEP);
                places.push(end..next);
                end = next;
            }
            // Each launch's parts begin where 16 bytes can be written at once.
            end = end.next_multiple_of(4);
            launches.push((chunk, begin..end));
        }
        let parts = self.floats(end);
        for (chunk, place) in launches {
            let groups: Vec<_> = chunk.iter().map(|buffer| (buffer.len(), vec![buffer])).collect();
            let sizes = Sizes::of([chunk.len(), 0]);
            let part = parts.range(place);
            let places = Places::every(STEP);
            self.launch_over(&SUMS_OF_SQUARES, places, &groups, &[&part], sizes);
        }
        Squares { parts, places }
    }
}
