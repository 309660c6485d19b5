//! Kernels that take many arrays at once, each in memory of its own.

use std::sync::LazyLock;

use super::kernels::blocks;
use super::{Argument, Buffer, Gpu, Kernel, Sizes};

/// What stands in front of these kernels.
pub(super) const HEADER: &str = include_str!("kernels/parameters.cuh");

/// As many arrays as a kernel has arguments for; unused ones repeat the first.
pub(super) const ARRAYS: usize = 32;

/// How the elements of arrays are shared out among blocks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    /// So many elements are taken at once.
    pub step: usize,
    /// Blocks that are launched at most; they take the elements in turns.
    pub most_blocks: usize,
}

impl Places {
    /// A block for every `step` elements.
    pub fn every(step: usize) -> Self {
        Self { step, most_blocks: usize::MAX }
    }
}

/// The kernel that adds up the squares of many arrays: parameters' gradients, for their norm.
pub static SUMS_OF_SQUARES: LazyLock<Kernel> = LazyLock::new(|| {
    let text = include_str!("kernels/sums_of_squares.cu");
    Kernel::new("sums_of_squares", 256, &[], &[HEADER, text])
});

/// The kernel that finds what a step multiplies its gradients by, and whether it is taken.
pub static STEP_FACTOR: LazyLock<Kernel> = LazyLock::new(|| {
    Kernel::new("step_factor", 256, &[], &[include_str!("kernels/step_factor.cu")])
});

impl Gpu {
    /// Launches `kernel` over at most [`ARRAYS`] groups of buffers, each with the length of an array
    /// whose elements are shared out as `Places` says; `others` are its arguments after these. `sizes` are the
    /// fields before the places of the arrays.
    pub(super) fn launch_over(
        &self,
        kernel: &Kernel,
        Places { step, most_blocks }: Places,
        groups: &[(usize, Vec<&Buffer>)],
        others: &[&Buffer],
        sizes: Sizes,
    ) {
        assert!(!groups.is_empty() && groups.len() <= ARRAYS);
        let unused = std::iter::repeat_n(&groups[0], ARRAYS - groups.len());
        let arrays = groups.iter().chain(unused).flat_map(|(_, buffers)| buffers);
        let buffers: Vec<_> = arrays.chain(others).map(|buffer| *buffer as &dyn Argument).collect();
        let mut lengths = [0; ARRAYS];
        lengths.iter_mut().zip(groups).for_each(|(length, (of_array, _))| *length = *of_array);
        let mut total = 0;
        let first = lengths.map(|length| {
            total += blocks(length, step);
            total - blocks(length, step)
        });
        if total == 0 {
            return;
        }
        let sizes = sizes.ints(lengths).ints(first);
        self.launch(kernel, [total.min(most_blocks), 1, 1], &buffers, &sizes);
    }
}
