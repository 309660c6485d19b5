//! The largest value of each window, and its gradient.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::Maps;
use crate::matrix::{filled, written};
use crate::widest::widest;
use crate::window::{Windows, each};

/// Values that a thread takes at once, about.
const BLOCK: usize = 1 << 14;
/// The place of no value: behind all maps.
const NOWHERE: u32 = u32::MAX;

/// The sizes of pooling by square windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Images.
    pub batch: usize,
    /// Maps of an image.
    pub channels: usize,
    /// Height and width of a map.
    pub size: [usize; 2],
    /// Height and width of the window.
    pub kernel: usize,
    /// Its step in both directions.
    pub stride: usize,
    /// Pixels without a value that are added on every side.
    pub padding: usize,
}

impl Pool {
    /// Height and width of the result.
    pub fn output(&self) -> [usize; 2] {
        self.windows().output()
    }

    /// The largest value of each window; what is not a number goes before every number.
    pub fn max(&self, maps: Maps<'_>) -> Vec<f32> {
        let pixels = self.output().iter().product::<usize>();
        let write = |out: &mut [MaybeUninit<f32>]| {
            self.each_plane(out, pixels, |place, out| {
                max_of_plane(*self, self.plane(maps, place), filled(out, f32::NEG_INFINITY));
            });
        };
        // SAFETY: the result is its planes, and each is filled.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        let (values, ()) = unsafe { written(self.batch * self.channels * pixels, write) };
        values
    }

    /// The gradient of the maps from that of [`Pool::max`]: all of it goes to the largest value, the first of equal ones.
    pub fn of_max(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        let [height, width] = self.size;
        let made = self.output().iter().product::<usize>();
        let write = |out: &mut [MaybeUninit<f32>]| {
            self.each_plane(out, height * width, |place, out| {
                let (image, channel) = (place / self.channels, place % self.channels);
                let gradient = &gradient.image(image)[channel * made..][..made];
                gradient_of_plane(*self, self.plane(maps, place), gradient, filled(out, 0.0));
            });
        };
        // SAFETY: the result is its planes, and each is filled.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        let (values, ()) = unsafe { written(self.batch * self.channels * height * width, write) };
        values
    }

    fn each_plane(
        &self,
        out: &mut [MaybeUninit<f32>],
        pixels: usize,
        work: impl Fn(usize, &mut [MaybeUninit<f32>]) + Sync,
    ) {
        let together = (BLOCK / pixels.max(1)).max(1);
        out.par_chunks_mut((together * pixels).max(1)).enumerate().for_each(|(part, out)| {
            let planes = out.chunks_mut(pixels).enumerate();
            planes.for_each(|(place, out)| work(part * together + place, out));
        });
    }

    fn plane<'a>(&self, maps: Maps<'a>, place: usize) -> &'a [f32] {
        let pixels = self.size[0] * self.size[1];
        &maps.image(place / self.channels)[place % self.channels * pixels..][..pixels]
    }

    fn windows(&self) -> Windows {
        let Self { size, kernel, stride, padding, .. } = *self;
        Windows { size, kernel, stride, padding }
    }

    /// The rows of the map that the windows of a row of the result see.
    #[inline(always)]
    fn rows(&self, row: usize) -> impl Iterator<Item = usize> {
        let windows = self.windows();
        (0..self.kernel).filter_map(move |down| windows.row(row, down))
    }

    /// For each column of a window: the columns of the result whose windows have it inside the map, and the map's column that
    /// the first has there.
    fn columns(&self) -> Vec<(Range<usize>, usize)> {
        let windows = self.windows();
        (0..self.kernel).filter_map(|right| windows.columns(right)).collect()
    }
}

#[inline(always)]
fn is_larger(value: f32, than: f32) -> bool {
    value > than || value.is_nan()
}

#[inline(always)]
fn take_larger(largest: &mut f32, value: f32) {
    *largest = if is_larger(value, *largest) { value } else { *largest };
}

widest! {
    fn max_of_plane<'a>(sizes: Pool, plane: &'a [f32], out: &'a mut [f32]) {
        let ([_, width], [_, right], columns) = (sizes.size, sizes.output(), sizes.columns());
        // Of the rows that windows see, before windows are cut out of them.
        let mut largest = vec![0.0; width];
        for (row, out) in out.chunks_exact_mut(right).enumerate() {
            largest.fill(f32::NEG_INFINITY);
            for from in sizes.rows(row) {
                each(&mut largest, &plane[from * width..][..width], 1, take_larger);
            }
            for (inside, first) in &columns {
                each(&mut out[inside.clone()], &largest[*first..], sizes.stride, take_larger);
            }
        }
    }
}

widest! {
    fn gradient_of_plane<'a>(sizes: Pool, plane: &'a [f32], gradient: &'a [f32], out: &'a mut [f32]) {
        let ([_, width], [_, right], columns) = (sizes.size, sizes.output(), sizes.columns());
        let (mut largest, mut places, mut seen) = (vec![0.0; right], vec![NOWHERE; right], vec![0.0; right]);
        let stride = sizes.stride as u32;
        for (row, gradient) in gradient.chunks_exact(right).enumerate() {
            largest.fill(f32::NEG_INFINITY);
            places.fill(NOWHERE);
            for from in sizes.rows(row) {
                for (inside, first) in &columns {
                    let first = from * width + first;
                    let seen = &mut seen[inside.clone()];
                    each(seen, &plane[first..], sizes.stride, |seen, value| *seen = value);
                    let largest = largest[inside.clone()].iter_mut().zip(&mut places[inside.clone()]);
                    let mut at = first as u32;
                    for ((largest, place), value) in largest.zip(seen) {
                        let takes = is_larger(*value, *largest) || *place == NOWHERE;
                        *largest = if takes { *value } else { *largest };
                        *place = if takes { at } else { *place };
                        at += stride;
                    }
                }
            }
            for (place, gradient) in places.iter().zip(gradient) {
                if let Some(to) = out.get_mut(*place as usize) {
                    *to += gradient;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cases() -> Vec<Pool> {
        let case = |batch, channels, size, [kernel, stride, padding]: [usize; 3]| Pool {
            batch,
            channels,
            size,
            kernel,
            stride,
            padding,
        };
        vec![
            case(2, 3, [40, 37], [3, 2, 1]),
            case(3, 70, [8, 8], [3, 2, 1]),
            case(1, 2, [9, 50], [3, 1, 1]),
            case(2, 2, [7, 6], [2, 2, 0]),
            case(1, 3, [11, 10], [3, 3, 0]),
            case(1, 1, [1, 1], [3, 2, 1]),
            case(2, 1, [5, 3], [5, 1, 2]),
        ]
    }

    /// Numbers of which many are equal, and some are none.
    fn values(count: usize, step: usize) -> Vec<f32> {
        let value = |place: usize| match place * step % 29 {
            0 => f32::NAN,
            1 => f32::NEG_INFINITY,
            other => (other % 7) as f32 - 3.0,
        };
        (0..count).map(value).collect()
    }

    /// The place of the largest in each window, by its definition.
    fn places(sizes: &Pool, map: &[f32]) -> Vec<usize> {
        let ([height, width], [down, right]) = (sizes.size, sizes.output());
        let largest = |at: usize| {
            let (x, y, plane) = (at % right, at / right % down, at / (right * down));
            let mut found: Option<usize> = None;
            for i in 0..sizes.kernel * sizes.kernel {
                let row = (y * sizes.stride + i / sizes.kernel).checked_sub(sizes.padding);
                let column = (x * sizes.stride + i % sizes.kernel).checked_sub(sizes.padding);
                let (Some(row), Some(column)) = (row, column) else { continue };
                if row < height && column < width {
                    let place = (plane * height + row) * width + column;
                    let takes = found.is_none_or(|found| match (map[place], map[found]) {
                        (value, _) if value.is_nan() => true,
                        (value, largest) => value > largest,
                    });
                    found = if takes { Some(place) } else { found };
                }
            }
            found.expect("a pixel of the map")
        };
        (0..sizes.batch * sizes.channels * down * right).map(largest).collect()
    }

    #[test]
    fn the_largest_is_that_of_the_definition_and_has_the_gradient() {
        for sizes in cases() {
            let each = sizes.channels * sizes.size[0] * sizes.size[1];
            let made = sizes.channels * sizes.output().iter().product::<usize>();
            for step in [1, 4, 11] {
                let map = values(sizes.batch * each, step);
                let gradient: Vec<f32> = (0..sizes.batch * made).map(|i| i as f32 + 0.5).collect();
                let (mut largest, mut of_map) = (Vec::new(), vec![0.0; map.len()]);
                for (place, gradient) in places(&sizes, &map).into_iter().zip(&gradient) {
                    largest.push(map[place]);
                    of_map[place] += gradient;
                }
                let (maps, gradients) = (Maps::new(&map, each), Maps::new(&gradient, made));
                let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&sizes.max(maps)), bits(&largest), "{sizes:?}");
                assert_eq!(sizes.of_max(maps, gradients), of_map, "{sizes:?}");
            }
        }
    }
}
