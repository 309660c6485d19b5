//! Tiles and windows to their transformed values and back, with the channels side by side.

use std::mem::MaybeUninit;

use wide::f32x4;

use super::{Points, PointsMut, Segment, Winograd};
use crate::matrix::{MatrixMut, parts};
use crate::widest::widest;

/// Channels that are transformed at once.
pub(super) const LANES: usize = 16;
/// Rows and columns of a matrix that are turned at once.
const BLOCK: usize = 4;

/// Does work for tiles of so many pixels on the channels from `$channel` on, for each [`LANES`] of `$channels` and then for each of
/// the rest alone. (A closure with two places where it is called would be compiled by itself, without the widest instructions.)
macro_rules! each_lanes {
    ($tile:expr, $channels:expr, $channel:ident, $work:ident $arguments:tt) => {
        if $tile == 4 {
            each_lanes!(Four, 4, 6, $channels, $channel, $work $arguments);
        } else {
            each_lanes!(Two, 2, 4, $channels, $channel, $work $arguments);
        }
    };
    ($form:ident, $made:literal, $seen:literal, $channels:expr, $channel:ident, $work:ident($($argument:expr),*)) => {
        let whole = $channels - $channels % LANES;
        for $channel in (0..whole).step_by(LANES) {
            $work::<$form, $made, $seen, LANES>($($argument),*);
        }
        for $channel in whole..$channels {
            $work::<$form, $made, $seen, 1>($($argument),*);
        }
    };
}

/// Values of as many channels.
type Lanes<const N: usize> = [f32; N];

/// What is transformed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Side {
    /// What tiles see of the maps.
    Maps,
    /// The gradient of the result.
    Gradient,
}

impl Side {
    /// How many channels it has.
    pub fn channels(self, sizes: Winograd) -> usize {
        let [input, output] = sizes.channels;
        match self {
            Self::Maps => input,
            Self::Gradient => output,
        }
    }

    /// Pixels around a tile that belong to it.
    fn border(self) -> usize {
        match self {
            Self::Maps => 1,
            Self::Gradient => 0,
        }
    }
}

widest! {
    /// Transforms each tile of a segment.
    pub(super) fn transform<'a>(
        sizes: Winograd,
        side: Side,
        image: &'a [f32],
        segment: &'a Segment,
        pixels: &'a mut [f32],
        to: PointsMut<'a>,
    ) {
        let (mut to, channels, right) = (to, side.channels(sizes), sizes.tiles()[1]);
        for block in parts(channels, LANES) {
            let lanes = block.len();
            let planes = &image[block.start * sizes.pixels()..];
            let pitch = gather(sizes, planes, lanes, segment, side.border(), pixels);
            for tile in 0..sizes.count(segment) {
                let from = &pixels[sizes.tile * (tile / right * pitch + tile % right * lanes)..];
                let at = tile * channels + block.start;
                match side {
                    Side::Maps => {
                        each_lanes!(sizes.tile, lanes, lane, seen(&from[lane..], [pitch, lanes], &mut to, at + lane));
                    }
                    Side::Gradient => {
                        each_lanes!(sizes.tile, lanes, lane, spread(&from[lane..], [pitch, lanes], &mut to, at + lane));
                    }
                }
            }
        }
    }
}

widest! {
    /// The pixels of each tile of a segment from its transformed values.
    pub(super) fn transform_result<'a>(
        sizes: Winograd,
        from: Points<'a>,
        segment: &'a Segment,
        pixels: &'a mut [f32],
        out: MatrixMut<'a>,
    ) {
        let mut out = out;
        let ([_, channels], [_, width], [_, right]) = (sizes.channels, sizes.size, sizes.tiles());
        for block in parts(channels, LANES) {
            let lanes = block.len();
            let pitch = sizes.tile * right * lanes;
            for tile in 0..sizes.count(segment) {
                let to = &mut pixels[sizes.tile * (tile / right * pitch + tile % right * lanes)..];
                let at = tile * channels + block.start;
                each_lanes!(sizes.tile, lanes, lane, made(from, at + lane, &mut to[lane..], [pitch, lanes]));
            }
            let rows = sizes.rows(&segment.rows).len();
            for (row, line) in pixels.chunks_exact(pitch).take(rows).enumerate() {
                turn(line, lanes, [width, lanes], |lane, pixel, values| {
                    let plane = out.line(block.start + lane);
                    plane[row * width + pixel..][..values.len()].write_copy_of_slice(values);
                });
            }
        }
    }
}

/// Puts so many channels of each pixel of a segment's tiles side by side, with `border` pixels around them and zeros outside of the
/// map. Returns how far rows of pixels lie apart.
#[inline(always)]
fn gather(
    sizes: Winograd,
    maps: &[f32],
    channels: usize,
    segment: &Segment,
    border: usize,
    pixels: &mut [f32],
) -> usize {
    let ([height, width], [_, right]) = (sizes.size, sizes.tiles());
    let pitch = (sizes.tile * right + 2 * border) * channels;
    let lines = pixels.chunks_exact_mut(pitch).take(sizes.tile * segment.rows.len() + 2 * border);
    for (place, line) in lines.enumerate() {
        let row = (sizes.tile * segment.rows.start + place).checked_sub(border);
        let Some(row) = row.filter(|row| *row < height) else {
            line.fill(0.0);
            continue;
        };
        let (before, rest) = line.split_at_mut(border * channels);
        let (seen, behind) = rest.split_at_mut(width * channels);
        before.fill(0.0);
        behind.fill(0.0);
        turn(&maps[row * width..], sizes.pixels(), [channels, width], |pixel, channel, values| {
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
fn times<const N: usize>(a: Lanes<N>, by: f32) -> Lanes<N> {
    a.map(|a| by * a)
}

/// `by·a + and·b`.
#[inline(always)]
fn sum<const N: usize>([a, b]: [Lanes<N>; 2], [by, and]: [f32; 2]) -> Lanes<N> {
    plus(times(a, by), times(b, and))
}

/// Both `a + b` and `a - b`.
#[inline(always)]
fn both<const N: usize>(a: Lanes<N>, b: Lanes<N>) -> [Lanes<N>; 2] {
    [plus(a, b), minus(a, b)]
}

/// Winograd's matrices for tiles of `MADE` pixels of the result, which see `SEEN`, in each direction.
trait Form<const MADE: usize, const SEEN: usize> {
    /// A column or row of `Bᵀ·d·B`.
    fn of_pixels<const N: usize>(pixels: [Lanes<N>; SEEN]) -> [Lanes<N>; SEEN];
    /// A column or row of `A·y·Aᵀ`.
    fn of_gradient<const N: usize>(pixels: [Lanes<N>; MADE]) -> [Lanes<N>; SEEN];
    /// A column or row of `G·g·Gᵀ`.
    fn of_window<const N: usize>(window: [Lanes<N>; 3]) -> [Lanes<N>; SEEN];
    /// A column or row of `Aᵀ·m·A`.
    fn to_pixels<const N: usize>(points: [Lanes<N>; SEEN]) -> [Lanes<N>; MADE];
    /// A column or row of `Gᵀ·u·G`.
    fn to_window<const N: usize>(points: [Lanes<N>; SEEN]) -> [Lanes<N>; 3];
}

/// F(2, 3) with the points 0, ±1 and ∞.
struct Two;

impl Form<2, 4> for Two {
    #[inline(always)]
    fn of_pixels<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 4] {
        [minus(a, c), plus(b, c), minus(c, b), minus(b, d)]
    }

    #[inline(always)]
    fn of_gradient<const N: usize>([a, b]: [Lanes<N>; 2]) -> [Lanes<N>; 4] {
        [a, plus(a, b), minus(a, b), b.map(|b| -b)]
    }

    #[inline(always)]
    fn of_window<const N: usize>([a, b, c]: [Lanes<N>; 3]) -> [Lanes<N>; 4] {
        let outer = plus(a, c);
        [a, times(plus(outer, b), 0.5), times(minus(outer, b), 0.5), c]
    }

    #[inline(always)]
    fn to_pixels<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 2] {
        [plus(plus(a, b), c), minus(minus(b, c), d)]
    }

    #[inline(always)]
    fn to_window<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 3] {
        let both = times(plus(b, c), 0.5);
        [plus(a, both), times(minus(b, c), 0.5), plus(both, d)]
    }
}

/// F(4, 3) with the points 0, ±`P`, ±`Q` and ∞. Errors are half as large as by the usual ±1 and ±2, and the numbers that maps are
/// multiplied by are exact in 32 bits. (How much points matter: Barabasz, Anderson, Soodhalter and Gregg, "Error Analysis and
/// Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020.)
struct Four;

/// The points of [`Four`].
const P: f32 = 5.0 / 8.0;
const Q: f32 = 3.0 / 2.0;
const P2: f32 = P * P;
const Q2: f32 = Q * Q;
/// What the rows of `G` are divided by: products of a point's distances to the others.
const OF_ZERO: f32 = 1.0 / (P2 * Q2);
const OF_P: f32 = 1.0 / (2.0 * P2 * (P2 - Q2));
const OF_Q: f32 = 1.0 / (2.0 * Q2 * (Q2 - P2));

impl Form<4, 6> for Four {
    #[inline(always)]
    fn of_pixels<const N: usize>([a, b, c, d, e, f]: [Lanes<N>; 6]) -> [Lanes<N>; 6] {
        // `x⁴ - Q²x²` and `x⁴ - P²x²`, of even and odd places.
        let [even, odd] = [minus(e, times(c, Q2)), minus(times(d, P), times(b, P * Q2))];
        let [more, rest] = [minus(e, times(c, P2)), minus(times(d, Q), times(b, Q * P2))];
        // `x⁴ - (P² + Q²)x² + P²Q²`.
        let first = plus(sum([a, c], [P2 * Q2, -(P2 + Q2)]), e);
        let last = plus(sum([b, d], [P2 * Q2, -(P2 + Q2)]), f);
        let ([g, h], [i, j]) = (both(even, odd), both(more, rest));
        [first, g, h, i, j, last]
    }

    #[inline(always)]
    fn of_gradient<const N: usize>([a, b, c, d]: [Lanes<N>; 4]) -> [Lanes<N>; 6] {
        let [e, f] = both(plus(a, times(c, P2)), sum([b, d], [P, P * P2]));
        let [g, h] = both(plus(a, times(c, Q2)), sum([b, d], [Q, Q * Q2]));
        [a, e, f, g, h, d]
    }

    #[inline(always)]
    fn of_window<const N: usize>([a, b, c]: [Lanes<N>; 3]) -> [Lanes<N>; 6] {
        let [d, e] = both(sum([a, c], [OF_P, OF_P * P2]), times(b, OF_P * P));
        let [f, g] = both(sum([a, c], [OF_Q, OF_Q * Q2]), times(b, OF_Q * Q));
        [times(a, OF_ZERO), d, e, f, g, c]
    }

    #[inline(always)]
    fn to_pixels<const N: usize>([a, b, c, d, e, f]: [Lanes<N>; 6]) -> [Lanes<N>; 4] {
        let ([even, odd], [more, rest]) = (both(b, c), both(d, e));
        [
            plus(plus(a, even), more),
            sum([odd, rest], [P, Q]),
            sum([even, more], [P2, Q2]),
            plus(sum([odd, rest], [P * P2, Q * Q2]), f),
        ]
    }

    #[inline(always)]
    fn to_window<const N: usize>([a, b, c, d, e, f]: [Lanes<N>; 6]) -> [Lanes<N>; 3] {
        let ([even, odd], [more, rest]) = (both(b, c), both(d, e));
        [
            plus(times(a, OF_ZERO), sum([even, more], [OF_P, OF_Q])),
            sum([odd, rest], [OF_P * P, OF_Q * Q]),
            plus(sum([even, more], [OF_P * P2, OF_Q * Q2]), f),
        ]
    }
}

/// Stores a row of transformed values.
#[inline(always)]
fn store<const N: usize, const SEEN: usize>(
    row: [Lanes<N>; SEEN],
    i: usize,
    to: &mut [&mut [MaybeUninit<f32>]],
    at: usize,
) {
    for (value, to) in row.iter().zip(&mut to[SEEN * i..]) {
        to[at..at + N].write_copy_of_slice(value);
    }
}

/// A row of a matrix of columns.
#[inline(always)]
fn row<const N: usize, const M: usize, const K: usize>(
    columns: &[[Lanes<N>; K]; M],
    i: usize,
) -> [Lanes<N>; M] {
    let mut row = [[0.0; N]; M];
    for (value, column) in row.iter_mut().zip(columns) {
        *value = column[i];
    }
    row
}

/// Column `j` of transformed values.
#[inline(always)]
fn down<const N: usize, const SEEN: usize>(
    from: Points<'_>,
    j: usize,
    at: usize,
) -> [Lanes<N>; SEEN] {
    let mut column = [[0.0; N]; SEEN];
    for (i, value) in column.iter_mut().enumerate() {
        *value = load(from.values, (SEEN * i + j) * from.each + at);
    }
    column
}

/// `Bᵀ·d·B` of the pixels that a tile sees.
#[inline(always)]
fn seen<F: Form<MADE, SEEN>, const MADE: usize, const SEEN: usize, const N: usize>(
    from: &[f32],
    [pitch, channels]: [usize; 2],
    to: &mut [&mut [MaybeUninit<f32>]],
    at: usize,
) {
    let mut columns = [[[0.0; N]; SEEN]; SEEN];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = F::of_pixels(pixels(&from[j * channels..], pitch));
    }
    for i in 0..SEEN {
        store(F::of_pixels(row(&columns, i)), i, to, at);
    }
}

/// `A·y·Aᵀ` of the pixels of a tile: the transpose of [`made`].
#[inline(always)]
fn spread<F: Form<MADE, SEEN>, const MADE: usize, const SEEN: usize, const N: usize>(
    from: &[f32],
    [pitch, channels]: [usize; 2],
    to: &mut [&mut [MaybeUninit<f32>]],
    at: usize,
) {
    let mut columns = [[[0.0; N]; SEEN]; MADE];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = F::of_gradient(pixels(&from[j * channels..], pitch));
    }
    for i in 0..SEEN {
        store(F::of_gradient(row(&columns, i)), i, to, at);
    }
}

/// A column of pixels, which lie `pitch` apart.
#[inline(always)]
fn pixels<const N: usize, const M: usize>(from: &[f32], pitch: usize) -> [Lanes<N>; M] {
    let mut pixels = [[0.0; N]; M];
    for (i, pixel) in pixels.iter_mut().enumerate() {
        *pixel = load(from, i * pitch);
    }
    pixels
}

/// `Aᵀ·m·A`: the pixels of a tile.
#[inline(always)]
fn made<F: Form<MADE, SEEN>, const MADE: usize, const SEEN: usize, const N: usize>(
    from: Points<'_>,
    at: usize,
    to: &mut [f32],
    [pitch, channels]: [usize; 2],
) {
    let mut columns = [[[0.0; N]; MADE]; SEEN];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = F::to_pixels(down(from, j, at));
    }
    for i in 0..MADE {
        for (j, value) in F::to_pixels(row(&columns, i)).into_iter().enumerate() {
            to[i * pitch + j * channels..][..N].copy_from_slice(&value);
        }
    }
}

widest! {
    /// `G·g·Gᵀ` of windows, turned around where that is asked for: in rows of so many, which begin the first of `steps` apart, and
    /// the windows of a row the second.
    pub(super) fn windows<'a>(
        tile: usize,
        weight: &'a [f32],
        steps: [usize; 2],
        turned: bool,
        columns: usize,
        to: PointsMut<'a>,
    ) {
        let (mut to, [down, right]) = (to, steps);
        for row in 0..to[0].len() / columns {
            let (weight, at) = (&weight[row * down..], row * columns);
            each_lanes!(tile, columns, channel, window(&weight[channel * right..], right, turned, &mut to, at + channel));
        }
    }
}

#[inline(always)]
fn window<F: Form<MADE, SEEN>, const MADE: usize, const SEEN: usize, const N: usize>(
    weight: &[f32],
    step: usize,
    turned: bool,
    to: &mut [&mut [MaybeUninit<f32>]],
    channel: usize,
) {
    let mut places = [[0.0; N]; 9];
    turn(weight, step, [N, 9], |place, lane, values| {
        places[place][lane..][..values.len()].copy_from_slice(values);
    });
    if turned {
        places.reverse();
    }
    let mut columns = [[[0.0; N]; SEEN]; 3];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = F::of_window([places[j], places[j + 3], places[j + 6]]);
    }
    for i in 0..SEEN {
        store(F::of_window(row(&columns, i)), i, to, channel);
    }
}

widest! {
    /// `Gᵀ·u·G`: windows from the sums of their transformed gradients.
    pub(super) fn of_windows<'a>(tile: usize, from: Points<'a>, weight: &'a mut [MaybeUninit<f32>]) {
        each_lanes!(tile, weight.len() / 9, channel, found(from, channel, weight));
    }
}

#[inline(always)]
fn found<F: Form<MADE, SEEN>, const MADE: usize, const SEEN: usize, const N: usize>(
    from: Points<'_>,
    channel: usize,
    weight: &mut [MaybeUninit<f32>],
) {
    let mut columns = [[[0.0; N]; 3]; SEEN];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = F::to_window(down(from, j, channel));
    }
    let mut places = [[[0.0; N]; 3]; 3];
    for (i, places) in places.iter_mut().enumerate() {
        *places = F::to_window(row(&columns, i));
    }
    let mut windows = [[0.0; 9]; N];
    turn(places.as_flattened().as_flattened(), N, [9, N], |lane, place, values| {
        windows[lane][place..][..values.len()].copy_from_slice(values);
    });
    weight[channel * 9..][..N * 9].write_copy_of_slice(windows.as_flattened());
}
