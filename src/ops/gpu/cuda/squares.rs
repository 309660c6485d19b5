//! Sums of squares of many tensors at once.

use burn::tensor::{ExecutionError, Tensor};

use crate::ops::gpu::arrays::{ARRAYS, Places, sums_of_squares_kernel};
use crate::ops::gpu::kernels::blocks;
use crate::ops::gpu::{Buffer, Gpu, Sizes};

/// Elements that one block adds up.
const STEP: usize = 4096;

impl Gpu {
    /// Σ x² of each of `tensors`, which hold 32-bit numbers: added on the GPU in blocks, in one order,
    /// and these on the host in 64 bits. Waits for the GPU once.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn sums_of_squares(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<f64>, ExecutionError> {
        let kernel = sums_of_squares_kernel();
        let buffers: Vec<Buffer> = tensors.into_iter().map(Buffer::of_tensor).collect();
        let parts = |buffer: &Buffer| blocks(buffer.len(), STEP);
        // Each launch's parts begin where 16 bytes can be written at once.
        let rooms: Vec<usize> = buffers
            .chunks(ARRAYS)
            .map(|chunk| chunk.iter().map(parts).sum::<usize>().next_multiple_of(4))
            .collect();
        let all = self.floats(rooms.iter().sum());
        let mut start = 0;
        for (chunk, room) in buffers.chunks(ARRAYS).zip(&rooms) {
            let lengths: Vec<usize> = chunk.iter().map(Buffer::len).collect();
            let groups: Vec<Vec<&Buffer>> = chunk.iter().map(|buffer| vec![buffer]).collect();
            let sizes = Sizes::new().int(chunk.len()).int(0);
            let part = all.range(start..start + room);
            self.launch_over(&kernel, Places::every(STEP), &lengths, &groups, &[&part], sizes);
            start += room;
        }
        let read: Tensor<1> = self.tensor(&all, [all.len()]);
        let read: Vec<f64> = read.try_into_data()?.iter().collect();
        let mut sums = Vec::with_capacity(buffers.len());
        let mut start = 0;
        for (chunk, room) in buffers.chunks(ARRAYS).zip(rooms) {
            let mut place = start;
            for buffer in chunk {
                let next = place + parts(buffer);
                sums.push(read[place..next].iter().sum());
                place = next;
            }
            start += room;
        }
        Ok(sums)
    }
}
