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
    /// Launches `kernel` over at most [`ARRAYS`] groups of buffers, one group an array of `lengths`,
    /// whose elements are shared out as `Places` says; `others` are its arguments after these. `sizes` are the
    /// fields before the places of the arrays.
    pub(super) fn launch_over(
        &self,
        kernel: &Kernel,
        Places { step, most_blocks }: Places,
        lengths: &[usize],
        groups: &[Vec<&Buffer>],
        others: &[&Buffer],
        sizes: Sizes,
    ) {
        assert!(!groups.is_empty() && groups.len() <= ARRAYS && groups.len() == lengths.len());
        let padded = |count: usize| groups.iter().chain(std::iter::repeat_n(&groups[0], count));
        let arrays = padded(ARRAYS - groups.len()).flatten().copied();
        let all = arrays.chain(others.iter().copied());
        let buffers: Vec<&dyn Argument> = all.map(|buffer| buffer as &dyn Argument).collect();
        let mut total = 0;
        let mut first = Vec::with_capacity(ARRAYS);
        let mut long = Vec::with_capacity(ARRAYS);
        for place in 0..ARRAYS {
            let length = lengths.get(place).copied().unwrap_or(0);
            first.push(total);
            long.push(length);
            total += blocks(length, step);
        }
        if total == 0 {
            return;
        }
        let sizes = long.into_iter().chain(first).fold(sizes, Sizes::int);
        self.launch(kernel, [total.min(most_blocks), 1, 1], &buffers, &sizes);
    }
}
