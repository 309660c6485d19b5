//! Maps as the columns that windows see, and back.

use std::ops::Range;

use crate::window::{Windows, each};

/// The sizes of a square convolution of a batch of maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    /// Images.
    pub batch: usize,
    /// Channels of the map and of the result.
    pub channels: [usize; 2],
    /// Height and width of the map.
    pub size: [usize; 2],
    /// Height and width of the window.
    pub kernel: usize,
    /// Its step in both directions.
    pub stride: usize,
    /// Zeros added on every side.
    pub padding: usize,
}

/// Maps `[batch, channels, height, width]`: those of an image lie one after the other, images may lie
/// further apart.
#[derive(Debug, Clone, Copy)]
pub struct Maps<'a> {
    values: &'a [f32],
    stride: usize,
}

impl<'a> Maps<'a> {
    /// Maps whose images begin `stride` values apart.
    pub fn new(values: &'a [f32], stride: usize) -> Self {
        Self { values, stride }
    }

    /// From where an image begins.
    pub(crate) fn image(&self, image: usize) -> &'a [f32] {
        &self.values[image * self.stride..]
    }
}

impl Convolution {
    /// Height and width of the result.
    pub fn output(&self) -> [usize; 2] {
        self.windows().output()
    }

    fn windows(&self) -> Windows {
        let Self { size, kernel, stride, padding, .. } = *self;
        Windows { size, kernel, stride, padding }
    }

    /// Pixels of the map.
    pub(crate) fn pixels(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Pixels of the result.
    pub(crate) fn output_pixels(&self) -> usize {
        self.output().iter().product()
    }

    pub(crate) fn taps(&self) -> usize {
        self.kernel * self.kernel
    }

    /// Whether every pixel of the result sees the pixel at its own place alone.
    pub(crate) fn is_pointwise(&self) -> bool {
        (self.kernel, self.stride, self.padding) == (1, 1, 0)
    }

    /// What the windows of the result's `rows` see of the given channels of `image`: a row for each
    /// channel and place in the window, each of which begins `stride` values behind the one before.
    pub(crate) fn unfold(
        &self,
        image: &[f32],
        channels: Range<usize>,
        rows: Range<usize>,
        columns: &mut [f32],
        stride: usize,
    ) {
        let width = self.output()[1];
        let mut places = columns.chunks_mut(stride);
        for channel in channels {
            let plane = &image[channel * self.pixels()..][..self.pixels()];
            for (down, right) in self.places() {
                let Some(column) = places.next() else { return };
                if self.stride == 1 && width == self.size[1] {
                    let column = &mut column[..rows.len() * width];
                    self.unfold_shifted(plane, rows.clone(), [down, right], column);
                    continue;
                }
                let column = column.chunks_exact_mut(width);
                for (row, out) in rows.clone().zip(column) {
                    self.unfold_row(plane, [row, down, right], out);
                }
            }
        }
    }

    /// What one place of the windows of `rows` sees where the result is as wide as the map: the map, moved by
    /// some pixels, and zeros where that comes from another row.
    fn unfold_shifted(
        &self,
        plane: &[f32],
        rows: Range<usize>,
        [down, right]: [usize; 2],
        out: &mut [f32],
    ) {
        let ([height, width], padding) = (self.size, self.padding);
        let first = padding.saturating_sub(down).clamp(rows.start, rows.end);
        let last = (height + padding).saturating_sub(down).clamp(first, rows.end);
        let (above, rest) = out.split_at_mut((first - rows.start) * width);
        let (seen, below) = rest.split_at_mut((last - first) * width);
        above.fill(0.0);
        below.fill(0.0);
        if seen.is_empty() {
            return;
        }
        let from = &plane[(first + down - padding) * width..][..seen.len()];
        let by = padding.abs_diff(right).min(width);
        let whole = seen.len() - by;
        let outside = if right < padding {
            seen[by..].copy_from_slice(&from[..whole]);
            0..by
        } else {
            seen[..whole].copy_from_slice(&from[by..]);
            width - by..width
        };
        if !outside.is_empty() {
            seen.chunks_exact_mut(width).for_each(|row| row[outside.clone()].fill(0.0));
        }
    }

    fn unfold_row(&self, plane: &[f32], [row, down, right]: [usize; 3], out: &mut [f32]) {
        let windows = self.windows();
        let Some((from, (inside, first))) = windows.row(row, down).zip(windows.columns(right))
        else {
            return out.fill(0.0);
        };
        let (before, rest) = out.split_at_mut(inside.start);
        let (seen, behind) = rest.split_at_mut(inside.len());
        before.fill(0.0);
        behind.fill(0.0);
        let from = &plane[from * self.size[1] + first..];
        each(seen, from, self.stride, |seen, from| *seen = from);
    }

    /// Adds each column's values to the pixels that they were seen at: the transpose of
    /// [`Convolution::unfold`]. `maps` has the channels of an image alone, as many as there are columns for.
    pub(crate) fn fold(
        &self,
        columns: &[f32],
        stride: usize,
        rows: Range<usize>,
        maps: &mut [f32],
    ) {
        let width = self.output()[1];
        let mut places = columns.chunks(stride);
        for plane in maps.chunks_exact_mut(self.pixels()) {
            for (down, right) in self.places() {
                let Some(column) = places.next() else { return };
                for (row, values) in rows.clone().zip(column.chunks_exact(width)) {
                    self.fold_row(values, [row, down, right], plane);
                }
            }
        }
    }

    fn fold_row(&self, values: &[f32], [row, down, right]: [usize; 3], plane: &mut [f32]) {
        let windows = self.windows();
        let Some((to, (inside, first))) = windows.row(row, down).zip(windows.columns(right)) else {
            return;
        };
        let (to, values) = (&mut plane[to * self.size[1] + first..], &values[inside]);
        match self.stride {
            1 => to.iter_mut().zip(values).for_each(|(to, value)| *to += value),
            stride => {
                to.iter_mut().step_by(stride).zip(values).for_each(|(to, value)| *to += value);
            }
        }
    }

    /// The places in a window, row by row.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let kernel = self.kernel;
        (0..kernel).flat_map(move |down| (0..kernel).map(move |right| (down, right)))
    }
}
