//! Kernels that take many arrays at once, each in memory of its own.

use super::kernels::blocks;
use super::{Argument, Buffer, Gpu, Kernel, Sizes};

/// What stands in front of these kernels.
pub(super) const HEADER: &str = include_str!("kernels/parameters.cuh");

/// As many arrays as a kernel has arguments for; unused ones repeat the first.
pub(super) const ARRAYS: usize = 32;

impl Gpu {
    /// Launches `kernel` over at most [`ARRAYS`] groups of buffers, one group an array of `lengths`,
    /// whose blocks take `step` elements each; `others` are its arguments after these. `sizes` are the
    /// fields before the places of the arrays.
    pub(super) fn launch_over(
        &self,
        kernel: &Kernel,
        step: usize,
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
        self.launch(kernel, [total, 1, 1], &buffers, &sizes);
    }
}
