//! Sums of squares of many tensors at once, and what follows from them for a step.

use burn::tensor::{ExecutionError, Tensor, TensorData};
use burn_cubecl::cubecl::future::block_on;

use crate::ops::gpu::arrays::{ARRAYS, Places, step_factor_kernel, sums_of_squares_kernel};
use crate::ops::gpu::kernels::blocks;
use crate::ops::gpu::{Buffer, Gpu, Sizes};

/// Elements that one block adds up.
const STEP: usize = 4096;

/// Launches whose parts one `step_factor` adds.
const RUNS: usize = 8;

/// Sums of squares of tensors in parts, on the GPU.
#[derive(Debug)]
pub struct Squares {
    parts: Buffer,
    /// How many parts each tensor has; tensors of one launch lie one after another.
    counts: Vec<Vec<usize>>,
}

impl Squares {
    /// Where each launch's parts begin, and how many they are.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.counts.iter().scan(0, |start, counts| {
            let length: usize = counts.iter().sum();
            let run = (*start, length);
            *start += room(length);
            Some(run)
        })
    }

    /// Σ x² of each tensor, of the parts as they were read: added in 64 bits.
    fn add_up(&self, read: &[f64]) -> Vec<f64> {
        let each = self.counts.iter().zip(self.runs()).flat_map(|(counts, (start, _))| {
            counts.iter().scan(start, |place, count| {
                let parts = *place..*place + count;
                *place += count;
                Some(read[parts].iter().sum())
            })
        });
        each.collect()
    }
}

/// Each launch's parts begin where 16 bytes can be written at once.
fn room(parts: usize) -> usize {
    parts.next_multiple_of(4)
}

impl Gpu {
    /// Σ x² of each of `tensors`, which hold 32-bit numbers: added on the GPU in blocks, in one order,
    /// and these on the host in 64 bits. Waits for the GPU once.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn sums_of_squares(&self, tensors: Vec<Tensor<1>>) -> Result<Vec<f64>, ExecutionError> {
        let squares = self.squares(tensors);
        let read: Tensor<1> = self.tensor(&squares.parts, [squares.parts.len()]);
        let read: Vec<f64> = read.try_into_data()?.iter().collect();
        Ok(squares.add_up(&read))
    }

    /// The same without waiting.
    pub fn squares(&self, tensors: Vec<Tensor<1>>) -> Squares {
        let kernel = sums_of_squares_kernel();
        let buffers: Vec<Buffer> = tensors.into_iter().map(Buffer::of_tensor).collect();
        let parts = |buffer: &Buffer| blocks(buffer.len(), STEP);
        let counts: Vec<Vec<usize>> =
            buffers.chunks(ARRAYS).map(|chunk| chunk.iter().map(parts).collect()).collect();
        let all = counts.iter().map(|counts| room(counts.iter().sum())).sum();
        let squares = Squares { parts: self.floats(all), counts };
        for (chunk, (start, length)) in buffers.chunks(ARRAYS).zip(squares.runs()) {
            let lengths: Vec<usize> = chunk.iter().map(Buffer::len).collect();
            let groups: Vec<Vec<&Buffer>> = chunk.iter().map(|buffer| vec![buffer]).collect();
            let sizes = Sizes::new().int(chunk.len()).int(0);
            let part = squares.parts.range(start..start + room(length));
            self.launch_over(&kernel, Places::every(STEP), &lengths, &groups, &[&part], sizes);
        }
        squares
    }

    /// What a step whose gradients have these squares multiplies them by, so that their norm is at most
    /// `max_norm` where there is one, and whether it is taken: only where they and `losses`, 32-bit numbers,
    /// are finite. See `kernels/step_factor.cu`. `None` for more parameters than it knows of.
    pub fn step_factor(
        &self,
        squares: &Squares,
        losses: &Buffer,
        max_norm: Option<f64>,
    ) -> Option<Buffer> {
        if squares.counts.len() > RUNS {
            return None;
        }
        let decided = self.floats(4);
        let most = max_norm.map_or(f32::INFINITY, |norm| norm as f32);
        // What 32 bits cannot hold of it.
        let rest = max_norm.map_or(0.0, |norm| (norm - f64::from(most)) as f32);
        let sizes =
            Sizes::new().int(squares.counts.len()).int(losses.len()).float(most).float(rest);
        let (mut starts, mut lengths): (Vec<_>, Vec<_>) = squares.runs().unzip();
        starts.resize(RUNS, 0);
        lengths.resize(RUNS, 0);
        let sizes = starts.into_iter().chain(lengths).fold(sizes, Sizes::int);
        let buffers = [&squares.parts, losses, &decided];
        let arguments = buffers.map(|buffer| buffer as &dyn crate::ops::gpu::Argument);
        self.launch(&step_factor_kernel(), [1, 1, 1], &arguments, &sizes);
        Some(decided)
    }

    /// Reads the sums of `squares` and the `losses` as they are now, while the GPU goes on with what `work`
    /// launches.
    ///
    /// # Errors
    ///
    /// When the device fails.
    pub fn read_beside<T>(
        &self,
        squares: &Squares,
        losses: &Buffer,
        work: impl FnOnce() -> T,
    ) -> (T, Result<[Vec<f64>; 2], String>) {
        let buffers = [&squares.parts, losses];
        // The copies are under way when this returns.
        let reading = self.client().read_async(buffers.map(Buffer::handle).into());
        let done = work();
        let read = block_on(reading).map_err(|error| error.to_string()).map(|bytes| {
            let mut numbers = bytes.into_iter().zip(buffers).map(|(bytes, buffer)| {
                let dtype = buffer.storage().dtype();
                let data = TensorData::from_bytes(bytes, [buffer.len()], dtype);
                data.iter::<f64>().collect::<Vec<f64>>()
            });
            let (parts, losses) = (numbers.next(), numbers.next());
            [squares.add_up(&parts.unwrap_or_default()), losses.unwrap_or_default()]
        });
        (done, read)
    }
}
