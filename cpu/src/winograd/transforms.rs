//! Tiles and windows to their transformed values and back, with the channels side by side.

use std::mem::MaybeUninit;

use wide::f32x4;

use super::{POINTS, Segment, Winograd};
use crate::matrix::MatrixMut;
use crate::widest::widest;

/// Channels that are transformed at once.
pub(super) const LANES: usize = 16;
/// Rows and columns of a matrix that are turned at once.
const BLOCK: usize = 4;

/// Does work on the channels from `$channel` on, for each [`LANES`] of `$channels` and then for each of the rest alone. (A
/// closure with two places where it is called would be compiled by itself, without the widest instructions.)
macro_rules! each_lanes {
    ($channels:expr, $channel:ident, $work:ident($($argument:expr),*)) => {
        let whole = $channels - $channels % LANES;
        for $channel in (0..whole).step_by(LANES) {
            $work::<LANES>($($argument),*);
        }
        for $channel in whole..$channels {
            $work::<1>($($argument),*);
        }
    };
}

/// Values of as many channels.
type Lanes<const N: usize> = [f32; N];

widest! {
    /// What each tile of a segment sees, transformed.
    pub(super) fn transform_maps<'a>(
        sizes: Winograd,
        image: &'a [f32],
        segment: &'a Segment,
        pixels: &'a mut [f32],
        to: [&'a mut [MaybeUninit<f32>]; POINTS],
    ) {
        let (mut to, channels, right) = (to, sizes.channels[0], sizes.tiles()[1]);
        let pitch = gather(sizes, channels, image, segment, 1, pixels);
        for tile in 0..sizes.count(segment) {
            let from = &pixels[tile / right * 2 * pitch + tile % right * 2 * channels..];
            let at = tile * channels;
            each_lanes!(channels, channel, seen(&from[channel..], [pitch, channels], &mut to, at + channel));
        }
    }
}

widest! {
    /// The gradient of each tile of a segment, transformed.
    pub(super) fn transform_gradient<'a>(
        sizes: Winograd,
        image: &'a [f32],
        segment: &'a Segment,
        pixels: &'a mut [f32],
        to: [&'a mut [MaybeUninit<f32>]; POINTS],
    ) {
        let (mut to, channels, right) = (to, sizes.channels[1], sizes.tiles()[1]);
        let pitch = gather(sizes, channels, image, segment, 0, pixels);
        for tile in 0..sizes.count(segment) {
            let from = &pixels[tile / right * 2 * pitch + tile % right * 2 * channels..];
            let at = tile * channels;
            each_lanes!(channels, channel, spread(&from[channel..], [pitch, channels], &mut to, at + channel));
        }
    }
}

widest! {
    /// The pixels of each tile of a segment from its transformed values.
    pub(super) fn transform_result<'a>(
        sizes: Winograd,
        from: [&'a [f32]; POINTS],
        segment: &'a Segment,
        pixels: &'a mut [f32],
        out: MatrixMut<'a>,
    ) {
        let mut out = out;
        let ([_, channels], [_, width], [_, right]) = (sizes.channels, sizes.size, sizes.tiles());
        let pitch = 2 * right * channels;
        for tile in 0..sizes.count(segment) {
            let to = &mut pixels[tile / right * 2 * pitch + tile % right * 2 * channels..];
            let at = tile * channels;
            each_lanes!(channels, channel, made(from, at + channel, &mut to[channel..], [pitch, channels]));
        }
        let rows = sizes.rows(&segment.rows).len();
        for (row, line) in pixels.chunks_exact(pitch).take(rows).enumerate() {
            for first in (0..channels).step_by(BLOCK) {
                let lanes = BLOCK.min(channels - first);
                turn(&line[first..], channels, [width, lanes], |lane, pixel, values| {
                    out.line(first + lane)[row * width + pixel..][..values.len()].write_copy_of_slice(values);
                });
            }
        }
    }
}

/// Puts the channels of each pixel of a segment's tiles side by side, with `border` pixels around them and zeros outside of the
/// map. Returns how far rows of pixels lie apart.
#[inline(always)]
fn gather(
    sizes: Winograd,
    channels: usize,
    image: &[f32],
    segment: &Segment,
    border: usize,
    pixels: &mut [f32],
) -> usize {
    let ([height, width], [_, right]) = (sizes.size, sizes.tiles());
    let pitch = (2 * right + 2 * border) * channels;
    let lines = pixels.chunks_exact_mut(pitch).take(2 * segment.rows.len() + 2 * border);
    for (place, line) in lines.enumerate() {
        let row = (2 * segment.rows.start + place).checked_sub(border);
        let Some(row) = row.filter(|row| *row < height) else {
            line.fill(0.0);
            continue;
        };
        let (before, rest) = line.split_at_mut(border * channels);
        let (seen, behind) = rest.split_at_mut(width * channels);
        before.fill(0.0);
        behind.fill(0.0);
        turn(&image[row * width..], sizes.pixels(), [channels, width], |pixel, channel, values| {
            seen[pixel * channels + channel..][..values.len()].copy_from_slice(values);
        });
    }
    pitch
}

/// Turns a matrix of so many rows and columns, the rows of which begin `stride` apart: calls `put` with a column, a row, and the
/// column's values from there on.
#[inline(always)]
fn turn(
    from: &[f32],
    stride: usize,
    [rows, columns]: [usize; 2],
    mut put: impl FnMut(usize, usize, &[f32]),
) {
    let whole = [rows, columns].map(|count| count - count % BLOCK);
    for row in (0..whole[0]).step_by(BLOCK) {
        for column in (0..whole[1]).step_by(BLOCK) {
            let mut block = [f32x4::ZERO; BLOCK];
            for (i, taken) in block.iter_mut().enumerate() {
                *taken = load(from, (row + i) * stride + column).into();
            }
            for (j, turned) in f32x4::transpose(block).into_iter().enumerate() {
                put(column + j, row, &turned.to_array());
            }
        }
        for column in whole[1]..columns {
            put(
                column,
                row,
                &std::array::from_fn::<_, BLOCK, _>(|i| from[(row + i) * stride + column]),
            );
        }
    }
    for row in whole[0]..rows {
        for column in 0..columns {
            put(column, row, &[from[row * stride + column]]);
        }
    }
}

#[inline(always)]
fn load<const N: usize>(from: &[f32], at: usize) -> Lanes<N> {
    from[at..at + N].try_into().unwrap_or([0.0; N])
}

#[inline(always)]
fn with<const N: usize>(a: Lanes<N>, b: Lanes<N>, op: impl Fn(f32, f32) -> f32) -> Lanes<N> {
    let mut both = [0.0; N];
    for (both, (a, b)) in both.iter_mut().zip(a.into_iter().zip(b)) {
        *both = op(a, b);
    }
    both
}

#[inline(always)]
fn plus<const N: usize>(a: Lanes<N>, b: Lanes<N>) -> Lanes<N> {
    with(a, b, |a, b| a + b)
}

#[inline(always)]
fn minus<const N: usize>(a: Lanes<N>, b: Lanes<N>) -> Lanes<N> {
    with(a, b, |a, b| a - b)
}

#[inline(always)]
fn half<const N: usize>(a: Lanes<N>) -> Lanes<N> {
    a.map(|a| 0.5 * a)
}

/// Column `j` of transformed values.
#[inline(always)]
fn down<const N: usize>(from: [&[f32]; POINTS], j: usize, at: usize) -> [Lanes<N>; 4] {
    let mut column = [[0.0; N]; 4];
    for (i, value) in column.iter_mut().enumerate() {
        *value = load(from[4 * i + j], at);
    }
    column
}

/// Stores a row of transformed values.
#[inline(always)]
fn store<const N: usize>(
    row: [Lanes<N>; 4],
    i: usize,
    to: &mut [&mut [MaybeUninit<f32>]; POINTS],
    at: usize,
) {
    let [a, b, c, d] = row;
    to[4 * i][at..at + N].write_copy_of_slice(&a);
    to[4 * i + 1][at..at + N].write_copy_of_slice(&b);
    to[4 * i + 2][at..at + N].write_copy_of_slice(&c);
    to[4 * i + 3][at..at + N].write_copy_of_slice(&d);
}

/// Stores a matrix of transformed values, of which these are the columns, once rows are transformed too.
#[inline(always)]
fn store_all<const N: usize, const M: usize>(
    columns: [[Lanes<N>; 4]; M],
    by: impl Fn([Lanes<N>; M]) -> [Lanes<N>; 4] + Copy,
    to: &mut [&mut [MaybeUninit<f32>]; POINTS],
    at: usize,
) {
    store(by(columns.map(|[row, _, _, _]| row)), 0, to, at);
    store(by(columns.map(|[_, row, _, _]| row)), 1, to, at);
    store(by(columns.map(|[_, _, row, _]| row)), 2, to, at);
    store(by(columns.map(|[_, _, _, row]| row)), 3, to, at);
}

/// A column or row of `Bᵀ·d·B`.
#[inline(always)]
fn of_pixels<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 4] {
    [minus(a, c), plus(b, c), minus(c, b), minus(b, d)]
}

/// A column or row of `A·y·Aᵀ`.
#[inline(always)]
fn of_gradient<const N: usize>([a, b]: [Lanes<N>; 2]) -> [Lanes<N>; 4] {
    [a, plus(a, b), minus(a, b), b.map(|b| -b)]
}

/// A column or row of `G·g·Gᵀ`.
#[inline(always)]
fn of_window<const N: usize>([a, b, c]: [Lanes<N>; 3]) -> [Lanes<N>; 4] {
    let outer = plus(a, c);
    [a, half(plus(outer, b)), half(minus(outer, b)), c]
}

/// A column or row of `Aᵀ·m·A`.
#[inline(always)]
fn to_pixels<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 2] {
    [plus(plus(a, b), c), minus(minus(b, c), d)]
}

/// A column or row of `Gᵀ·u·G`.
#[inline(always)]
fn to_window<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 3] {
    let both = half(plus(b, c));
    [plus(a, both), half(minus(b, c)), plus(both, d)]
}

/// `Bᵀ·d·B` of the 4×4 pixels that a tile sees.
#[inline(always)]
fn seen<const N: usize>(
    from: &[f32],
    [pitch, channels]: [usize; 2],
    to: &mut [&mut [MaybeUninit<f32>]; POINTS],
    at: usize,
) {
    let mut columns = [[[0.0; N]; 4]; 4];
    for (j, column) in columns.iter_mut().enumerate() {
        let mut pixels = [[0.0; N]; 4];
        for (i, pixel) in pixels.iter_mut().enumerate() {
            *pixel = load(from, i * pitch + j * channels);
        }
        *column = of_pixels(pixels);
    }
    store_all(columns, of_pixels, to, at);
}

/// `A·y·Aᵀ` of the 2×2 pixels of a tile: the transpose of [`made`].
#[inline(always)]
fn spread<const N: usize>(
    from: &[f32],
    [pitch, channels]: [usize; 2],
    to: &mut [&mut [MaybeUninit<f32>]; POINTS],
    at: usize,
) {
    let mut columns = [[[0.0; N]; 4]; 2];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = of_gradient([load(from, j * channels), load(from, pitch + j * channels)]);
    }
    store_all(columns, of_gradient, to, at);
}

/// `Aᵀ·m·A`: the 2×2 pixels of a tile.
#[inline(always)]
fn made<const N: usize>(
    from: [&[f32]; POINTS],
    at: usize,
    to: &mut [f32],
    [pitch, channels]: [usize; 2],
) {
    let mut columns = [[[0.0; N]; 2]; 4];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = to_pixels(down(from, j, at));
    }
    let [a, b] = to_pixels(columns.map(|[row, _]| row));
    let [c, d] = to_pixels(columns.map(|[_, row]| row));
    to[..N].copy_from_slice(&a);
    to[channels..channels + N].copy_from_slice(&b);
    to[pitch..pitch + N].copy_from_slice(&c);
    to[pitch + channels..pitch + channels + N].copy_from_slice(&d);
}

widest! {
    /// `G·g·Gᵀ` of windows, turned around where that is asked for: in rows of so many, which begin the first of `steps` apart, and
    /// the windows of a row the second.
    pub(super) fn windows<'a>(
        weight: &'a [f32],
        steps: [usize; 2],
        turned: bool,
        columns: usize,
        to: [&'a mut [MaybeUninit<f32>]; POINTS],
    ) {
        let (mut to, [down, right]) = (to, steps);
        for row in 0..to[0].len() / columns {
            let (weight, at) = (&weight[row * down..], row * columns);
            each_lanes!(columns, channel, window(&weight[channel * right..], right, turned, &mut to, at + channel));
        }
    }
}

#[inline(always)]
fn window<const N: usize>(
    weight: &[f32],
    step: usize,
    turned: bool,
    to: &mut [&mut [MaybeUninit<f32>]; POINTS],
    channel: usize,
) {
    let mut places = [[0.0; N]; 9];
    turn(weight, step, [N, 9], |place, lane, values| {
        places[place][lane..][..values.len()].copy_from_slice(values);
    });
    if turned {
        places.reverse();
    }
    let mut columns = [[[0.0; N]; 4]; 3];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = of_window([places[j], places[j + 3], places[j + 6]]);
    }
    store_all(columns, of_window, to, channel);
}

widest! {
    /// `Gᵀ·u·G`: windows from the sums of their transformed gradients.
    pub(super) fn of_windows<'a>(from: [&'a [f32]; POINTS], weight: &'a mut [MaybeUninit<f32>]) {
        each_lanes!(from[0].len(), channel, found(from, channel, weight));
    }
}

#[inline(always)]
fn found<const N: usize>(from: [&[f32]; POINTS], channel: usize, weight: &mut [MaybeUninit<f32>]) {
    let mut columns = [[[0.0; N]; 3]; 4];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = to_window(down(from, j, channel));
    }
    let [a, b, c] = to_window(columns.map(|[row, _, _]| row));
    let [d, e, f] = to_window(columns.map(|[_, row, _]| row));
    let [g, h, i] = to_window(columns.map(|[_, _, row]| row));
    let places = [a, b, c, d, e, f, g, h, i];
    let mut windows = [[0.0; 9]; N];
    turn(places.as_flattened(), N, [places.len(), N], |lane, place, values| {
        windows[lane][place..][..values.len()].copy_from_slice(values);
    });
    weight[channel * 9..][..N * 9].write_copy_of_slice(windows.as_flattened());
}
