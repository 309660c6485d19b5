//! Sums of squares of many tensors at once.

use burn::tensor::{ExecutionError, Tensor};

use super::{Buffer, Gpu, Kernel, Sizes, Storage};

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
        let text = include_str!("kernels/sum_of_squares.cu");
        let kernel = Kernel::new("sum_of_squares", 256, &[], &[text]);
        let blocks: Vec<usize> =
            tensors.iter().map(|tensor| tensor.dims()[0].div_ceil(STEP)).collect();
        // Each tensor's parts begin where 16 bytes can be written at once.
        let rooms: Vec<usize> = blocks.iter().map(|blocks| blocks.next_multiple_of(4)).collect();
        let all = self.empty(rooms.iter().sum(), Storage::F32);
        let mut start = 0;
        let mut places = Vec::with_capacity(tensors.len());
        for (tensor, (blocks, room)) in tensors.into_iter().zip(blocks.iter().zip(rooms)) {
            let sizes = Sizes::new().int(tensor.dims()[0]);
            let part = all.range(start..start + blocks);
            self.launch(&kernel, [*blocks, 1, 1], &[&Buffer::of_tensor(tensor), &part], &sizes);
            places.push(start..start + blocks);
            start += room;
        }
        let parts: Tensor<1> = self.tensor(&all, [all.len()]);
        let parts: Vec<f64> = parts.try_into_data()?.iter().collect();
        Ok(places.into_iter().map(|place| parts[place].iter().sum()).collect())
    }
}
