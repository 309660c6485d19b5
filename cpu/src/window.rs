//! How square windows lie on a map.

use std::ops::Range;

/// Windows that move over a map.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Windows {
    /// Height and width of the map.
    pub size: [usize; 2],
    /// Height and width of a window.
    pub kernel: usize,
    /// Their step in both directions.
    pub stride: usize,
    /// Pixels that are added to the map on every side.
    pub padding: usize,
}

impl Windows {
    /// Rows and columns of windows.
    pub fn output(&self) -> [usize; 2] {
        self.size.map(|size| (size + 2 * self.padding - self.kernel) / self.stride + 1)
    }

    /// The row of the map that the windows of a row see at the place `down` in them, where it lies inside.
    #[inline(always)]
    pub fn row(&self, row: usize, down: usize) -> Option<usize> {
        let row = (row * self.stride + down).checked_sub(self.padding);
        row.filter(|row| *row < self.size[0])
    }

    /// The columns of windows that have the place `right` inside the map, and the map's column that the first has there; none
    /// where there are none.
    #[inline(always)]
    pub fn columns(&self, right: usize) -> Option<(Range<usize>, usize)> {
        let columns = self.output()[1];
        let start = self.padding.saturating_sub(right).div_ceil(self.stride).min(columns);
        let end = (self.size[1] + self.padding).saturating_sub(right).div_ceil(self.stride);
        let inside = start..end.clamp(start, columns);
        (!inside.is_empty()).then(|| (inside, start * self.stride + right - self.padding))
    }
}

/// Calls `work` with each value of `to`, at least one, and the one of every `stride`-th of `from` that belongs to it.
#[inline(always)]
pub(crate) fn each<T>(
    to: &mut [T],
    from: &[f32],
    stride: usize,
    mut work: impl FnMut(&mut T, f32),
) {
    match stride {
        1 => to.iter_mut().zip(from).for_each(|(to, from)| work(to, *from)),
        2 => {
            // In pairs, the last of which may have no second.
            let (pairs, _) = from.as_chunks::<2>();
            let whole = to.len() - 1;
            let (first, last) = to.split_at_mut(whole);
            first.iter_mut().zip(pairs).for_each(|(to, [from, _])| work(to, *from));
            work(&mut last[0], from[2 * whole]);
        }
        stride => {
            let from = from.iter().step_by(stride);
            to.iter_mut().zip(from).for_each(|(to, from)| work(to, *from));
        }
    }
}
