//! Convolutions by windows of 3×3 with step 1 and padding 1, as products over tiles of 2×2 pixels of the result: Winograd's
//! F(2×2, 3×3), with the matrices of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4.1.
//!
//! A tile sees 4×4 pixels of the maps. Both are transformed to 16 values, for each of which the channels are multiplied on their
//! own: 16 products for a tile, where its windows have 36. While they are transformed, channels lie side by side.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;
use wide::f32x4;

use crate::matrix::{Matrix, MatrixMut, packed, parts, written};
use crate::unfold::{Convolution, Maps};
use crate::widest::widest;
use crate::workspace::Workspace;

/// Values that a tile, and a window, are transformed to.
pub(crate) const POINTS: usize = 16;
/// Values of transformed tiles that a part of a pass works on, about: they stay in the cache of a core.
const CACHED: usize = 1 << 18;
/// The same of gradients of weights, whose parts share them.
const SHARED: usize = 1 << 20;
/// Parts that a pass is cut into where its sizes allow it.
const PARTS: usize = 16;
/// Channels that a part takes where parts are of channels.
const CHANNELS: usize = 64;
/// Tiles below which a part is not cut further.
const LEAST: usize = 16;
/// Channels that are transformed at once.
const LANES: usize = 16;
/// Pixels of a row that are put into their planes at once.
const PLANES: usize = 32;
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

/// Some rows of tiles of an image.
#[derive(Debug, Clone)]
struct Segment {
    image: usize,
    rows: Range<usize>,
}

/// The sizes of such a convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Winograd {
    batch: usize,
    channels: [usize; 2],
    size: [usize; 2],
}

impl Convolution {
    /// The same by fewer products, where that is faster.
    pub(crate) fn winograd(&self) -> Option<Winograd> {
        let Self { batch, channels, size, .. } = *self;
        let found = Winograd { batch, channels, size };
        let fits = (self.kernel, self.stride, self.padding) == (3, 1, 1) && batch > 0;
        (fits && found.is_faster()).then_some(found)
    }
}

impl Winograd {
    /// By the sizes of one image alone: what it gives may not depend on those beside it.
    fn is_faster(&self) -> bool {
        let [down, right] = self.tiles();
        let least = self.channels[0].min(self.channels[1]);
        // What transforms cost must be won back, and a row of tiles fit.
        let pays = least >= 2 * CHANNELS || least >= 2 * LANES && down * right >= LEAST;
        pays && right * self.values() <= SHARED
    }

    /// Whether the weight is larger than the maps, so that parts share the maps and not the weight.
    fn has_few_tiles(&self) -> bool {
        let [input, output] = self.channels;
        self.all() * (input + output) < input * output
    }

    /// Tiles of all images.
    fn all(&self) -> usize {
        self.batch * self.tiles().iter().product::<usize>()
    }

    /// Values of a tile, transformed, of maps and result.
    fn values(&self) -> usize {
        POINTS * self.channels.iter().sum::<usize>()
    }

    /// Rows and columns of tiles of an image.
    fn tiles(&self) -> [usize; 2] {
        self.size.map(|size| size.div_ceil(2))
    }

    fn pixels(&self) -> usize {
        self.size[0] * self.size[1]
    }

    /// Tiles that a part takes, about, which have at most so many values.
    fn each(&self, most: usize) -> usize {
        self.all().div_ceil(PARTS).max(LEAST).min((most / self.values()).max(1))
    }

    /// Each image whole.
    fn images(&self) -> Vec<Segment> {
        (0..self.batch).map(|image| Segment { image, rows: 0..self.tiles()[0] }).collect()
    }

    /// All tiles, in groups of segments of at most `most` tiles if a row of tiles is not longer: whole images or rows of one.
    fn groups(&self, most: usize) -> Vec<Vec<Segment>> {
        let [down, right] = self.tiles();
        if down * right <= most {
            let whole = |image| Segment { image, rows: 0..down };
            let images = parts(self.batch, most / (down * right));
            return images.map(|images| images.map(whole).collect()).collect();
        }
        let bands = down.div_ceil((most / right).max(1));
        let bands = parts(down, down.div_ceil(bands));
        let of = |image| bands.clone().map(move |rows| vec![Segment { image, rows }]);
        (0..self.batch).flat_map(of).collect()
    }

    /// The convolution whose result is the gradient of the maps.
    fn turned(&self) -> Self {
        let [input, output] = self.channels;
        Self { channels: [output, input], ..*self }
    }

    /// Of maps and a weight `[output, input, 3, 3]`.
    pub fn forward(&self, maps: Maps<'_>, weight: &[f32]) -> Vec<f32> {
        let steps = [1, self.channels[0]];
        self.apply(maps, Windows { weight, steps, turned: false })
    }

    /// The gradient of the maps from that of the result.
    pub fn of_maps(&self, weight: &[f32], gradient: Maps<'_>) -> Vec<f32> {
        let steps = [self.channels[0], 1];
        self.turned().apply(gradient, Windows { weight, steps, turned: true })
    }

    fn apply(&self, maps: Maps<'_>, windows: Windows<'_>) -> Vec<f32> {
        let count = self.batch * self.channels[1] * self.pixels();
        let write = |out: &mut [MaybeUninit<f32>]| match self.has_few_tiles() {
            true => self.write_channels(maps, windows, out),
            false => self.write_tiles(maps, windows, out),
        };
        // SAFETY: the tiles of all images, or all channels, are the whole result, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        let (values, ()) = unsafe { written(count, write) };
        values
    }

    /// Parts are of some tiles and all channels.
    fn write_tiles(&self, maps: Maps<'_>, windows: Windows<'_>, out: &mut [MaybeUninit<f32>]) {
        let [input, output] = self.channels;
        let mut transformed = vec![0.0; POINTS * input * output];
        let rows = of_points(&mut transformed, std::iter::repeat_n(output, input));
        let rows = rows.into_par_iter().enumerate();
        rows.for_each(|(channel, row)| windows.transform([channel, 0], row));
        // Of each group, the rows of the result that its segments are.
        let mut images = out.chunks_mut(output * self.pixels());
        let mut rest = None;
        let mut tasks = Vec::new();
        for segments in self.groups(self.each(CACHED)) {
            let own = |segment: &Segment| {
                let image = rest.take().unwrap_or_else(|| {
                    // SAFETY: it is copied to before it is read.
                    #[expect(unsafe_code, reason = "the result is not cleared")]
                    unsafe {
                        MatrixMut::unwritten(images.next().unwrap_or_default(), output)
                    }
                });
                if segment.rows.end == self.tiles()[0] {
                    return image;
                }
                let [own, behind] = image.split(self.rows(&segment.rows).len() * self.size[1]);
                rest = Some(behind);
                own
            };
            let results: Vec<_> = segments.iter().map(own).collect();
            tasks.push((segments, results));
        }
        let task = |scratch: &mut Scratch,
                    (segments, results): (Vec<Segment>, Vec<MatrixMut<'_>>)| {
            let Scratch { seen, made, pixels } = scratch;
            let tiles = segments.iter().map(|segment| self.count(segment)).sum::<usize>();
            let seen = room(seen, POINTS * tiles * input);
            let made = room(made, POINTS * tiles * output);
            let pixels = room(pixels, self.pixels_of(segments[0].rows.len()));
            let sizes = segments.iter().map(|segment| self.count(segment) * input);
            for (segment, to) in segments.iter().zip(of_points(seen, sizes)) {
                transform_maps(*self, maps.image(segment.image), segment, pixels, to);
            }
            self.products(seen, &transformed, made, pixels, segments.iter().zip(results));
        };
        tasks.into_par_iter().for_each_init(Scratch::default, task);
    }

    /// Parts are of some channels and all tiles.
    fn write_channels(&self, maps: Maps<'_>, windows: Windows<'_>, out: &mut [MaybeUninit<f32>]) {
        let [input, output] = self.channels;
        let segments = self.images();
        let mut seen = vec![0.0; POINTS * self.all() * input];
        self.transform_all(maps, input, &segments, &mut seen, transform_maps);
        let channels = parts(output, CHANNELS);
        let mut tasks: Vec<_> = channels.map(|channels| (channels, Vec::new())).collect();
        for image in out.chunks_mut(output * self.pixels()) {
            // SAFETY: it is copied to before it is read.
            #[expect(unsafe_code, reason = "the result is not cleared")]
            let image = unsafe { MatrixMut::unwritten(image, output) };
            tasks.iter_mut().zip(image.lines(CHANNELS)).for_each(|(task, own)| task.1.push(own));
        }
        let task = |scratch: &mut Scratch,
                    (channels, results): (Range<usize>, Vec<MatrixMut<'_>>)| {
            let Scratch { seen: transformed, made, pixels } = scratch;
            let sizes = Self { channels: [input, channels.len()], ..*self };
            let transformed = room(transformed, POINTS * input * channels.len());
            let made = room(made, POINTS * self.all() * channels.len());
            let pixels = room(pixels, sizes.pixels_of(self.tiles()[0]));
            let rows = of_points(transformed, std::iter::repeat_n(channels.len(), input));
            for (channel, row) in rows.into_iter().enumerate() {
                windows.transform([channel, channels.start], row);
            }
            sizes.products(&seen, transformed, made, pixels, segments.iter().zip(results));
        };
        tasks.into_par_iter().for_each_init(Scratch::default, task);
    }

    /// The results of segments, which together are all tiles that `seen` has.
    fn products<'a>(
        &self,
        seen: &[f32],
        windows: &[f32],
        made: &mut [f32],
        pixels: &mut [f32],
        results: impl Iterator<Item = (&'a Segment, MatrixMut<'a>)>,
    ) {
        let [input, output] = self.channels;
        let tiles = seen.len() / (POINTS * input);
        let points = seen.chunks_exact(tiles * input).zip(windows.chunks_exact(input * output));
        for ((seen, windows), made) in points.zip(made.chunks_exact_mut(tiles * output)) {
            let windows = Matrix::rows(windows, [input, output]);
            MatrixMut::rows(made, tiles).product(
                false,
                Matrix::rows(seen, [tiles, input]),
                windows,
            );
        }
        let mut first = 0;
        for (segment, result) in results {
            let count = self.count(segment);
            let from = |point: usize| &made[(point * tiles + first) * output..][..count * output];
            transform_result(*self, std::array::from_fn(from), segment, pixels, result);
            first += count;
        }
    }

    /// Transforms segments of maps of `channels` channels.
    fn transform_all(
        &self,
        maps: Maps<'_>,
        channels: usize,
        segments: &[Segment],
        to: &mut [f32],
        by: Transform,
    ) {
        let sizes = segments.iter().map(|segment| self.count(segment) * channels);
        let tasks: Vec<_> = segments.iter().zip(of_points(to, sizes)).collect();
        tasks.into_par_iter().for_each_init(Vec::new, |pixels, (segment, to)| {
            let pixels = room(pixels, self.pixels_of(segment.rows.len()));
            by(*self, maps.image(segment.image), segment, pixels, to);
        });
    }

    /// Of [`Winograd::forward`].
    pub fn forward_workspace(&self) -> Workspace {
        let [input, output] = self.channels;
        if self.has_few_tiles() {
            let (tiles, channels) = (self.all(), output.min(CHANNELS));
            let sizes = Self { channels: [input, channels], ..*self };
            let each = POINTS * channels * (input + tiles)
                + sizes.pixels_of(self.tiles()[0])
                + packed([channels, tiles, input], true, true);
            return Workspace {
                shared: POINTS * tiles * input,
                each,
                parts: output.div_ceil(CHANNELS),
            };
        }
        let groups = self.groups(self.each(CACHED));
        let (tiles, rows) = self.largest(&groups);
        let each = self.values() * tiles
            + self.pixels_of(rows)
            + packed([output, tiles, input], true, true);
        Workspace { shared: POINTS * input * output, each, parts: groups.len() }
    }

    /// Of [`Winograd::of_maps`].
    pub fn of_maps_workspace(&self) -> Workspace {
        self.turned().forward_workspace()
    }

    /// Of [`Winograd::of_weight`].
    pub fn of_weight_workspace(&self) -> Workspace {
        let [input, output] = self.channels;
        if self.has_few_tiles() {
            let (tiles, channels) = (self.all(), output.min(CHANNELS));
            let each = POINTS * channels * input + packed([input, channels, tiles], true, false);
            return Workspace {
                shared: self.values() * tiles,
                each,
                parts: output.div_ceil(CHANNELS),
            };
        }
        let (groups, together) = self.chunks();
        let (tiles, rows) = self.largest(&groups);
        let tiles = tiles * together.min(groups.len());
        let each = self.pixels_of(rows).max(packed([input, output, tiles], true, false));
        // The result is there when the tiles are gone.
        let tiles = (self.values() * tiles).saturating_sub(input * output * 9);
        Workspace { shared: POINTS * input * output + tiles, each, parts: POINTS }
    }

    /// Tiles of the largest of groups, and rows of its segments.
    fn largest(&self, groups: &[Vec<Segment>]) -> (usize, usize) {
        let tiles = |group: &Vec<Segment>| group.iter().map(|segment| self.count(segment)).sum();
        let rows = groups.iter().flatten().map(|segment| segment.rows.len());
        (groups.iter().map(tiles).max().unwrap_or(0), rows.max().unwrap_or(0))
    }

    /// The groups that gradients of weights are summed over, and how many are transformed at once.
    fn chunks(&self) -> (Vec<Vec<Segment>>, usize) {
        if self.has_few_tiles() {
            return (vec![self.images()], 1);
        }
        // The sums are there beside them.
        let sums = POINTS * self.channels[0] * self.channels[1];
        let most = SHARED - sums.min(SHARED / 2);
        let each = self.each(most / PARTS);
        (self.groups(each), (most / (self.values() * each)).max(1))
    }

    /// The gradient of the weight from that of the result.
    pub fn of_weight(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        let [input, output] = self.channels;
        let row = input * 9;
        let (groups, together) = self.chunks();
        let (mut seen, mut made, mut sums) = (Vec::new(), Vec::new(), Vec::new());
        for groups in groups.chunks(together) {
            let segments: Vec<Segment> = groups.iter().flatten().cloned().collect();
            let tiles = segments.iter().map(|segment| self.count(segment)).sum::<usize>();
            let seen = room(&mut seen, POINTS * tiles * input);
            let made = room(&mut made, POINTS * tiles * output);
            self.transform_all(maps, input, &segments, seen, transform_maps);
            self.transform_all(gradient, output, &segments, made, transform_gradient);
            // Of one point and some channels of the result.
            let product = |point: usize, channels: Range<usize>, add: bool, sum: &mut [f32]| {
                let seen = &seen[point * tiles * input..][..tiles * input];
                let made = &made[point * tiles * output..][..tiles * output];
                let made = Matrix::rows(made, [tiles, output]).columns(channels.clone());
                let mut sum = MatrixMut::rows(sum, channels.len());
                sum.product(add, made.transposed(), Matrix::rows(seen, [tiles, input]));
            };
            if self.has_few_tiles() {
                let mut weight = vec![0.0; output * row];
                let parts = weight.par_chunks_mut(CHANNELS * row).enumerate();
                parts.for_each_init(Vec::new, |sums, (part, weight)| {
                    let count = weight.len() / row;
                    let channels = part * CHANNELS..part * CHANNELS + count;
                    let sums = room(sums, POINTS * count * input);
                    for (point, sum) in sums.chunks_exact_mut(count * input).enumerate() {
                        product(point, channels.clone(), false, sum);
                    }
                    let rows = weight.chunks_exact_mut(row).enumerate();
                    rows.for_each(|(at, weight)| {
                        of_windows(row_of_points(sums, at, input), weight)
                    });
                });
                return weight;
            }
            let add = !sums.is_empty();
            let points = room(&mut sums, POINTS * input * output);
            let points = points.par_chunks_mut(input * output).enumerate();
            points.for_each(|(point, sum)| product(point, 0..output, add, sum));
        }
        drop((seen, made));
        let mut weight = vec![0.0; output * row];
        let rows = weight.par_chunks_mut(row).enumerate();
        rows.for_each(|(at, weight)| of_windows(row_of_points(&sums, at, input), weight));
        weight
    }

    /// Values of so many rows of tiles as pixels, with those around them.
    fn pixels_of(&self, rows: usize) -> usize {
        let channels = self.channels[0].max(self.channels[1]);
        (2 * rows + 2) * (2 * self.tiles()[1] + 2) * channels
    }

    /// Tiles of a segment.
    fn count(&self, segment: &Segment) -> usize {
        segment.rows.len() * self.tiles()[1]
    }

    /// The rows of pixels of the result that rows of tiles are.
    fn rows(&self, tiles: &Range<usize>) -> Range<usize> {
        2 * tiles.start..(2 * tiles.end).min(self.size[0])
    }
}

widest! {
    /// What each tile of a segment sees, transformed.
    fn transform_maps<'a>(
        sizes: Winograd,
        image: &'a [f32],
        segment: &'a Segment,
        pixels: &'a mut [f32],
        to: [&'a mut [f32]; POINTS],
    ) {
        let mut to = to;
        let ([channels, _], [height, width], [_, right]) = (sizes.channels, sizes.size, sizes.tiles());
        // Rows of pixels with the channels of a pixel side by side, and zeros around them.
        let pitch = (2 * right + 2) * channels;
        let lines = pixels.chunks_exact_mut(pitch).take(2 * segment.rows.len() + 2);
        for (place, line) in lines.enumerate() {
            let row = (2 * segment.rows.start + place).checked_sub(1).filter(|row| *row < height);
            let Some(row) = row else {
                line.fill(0.0);
                continue;
            };
            line[..channels].fill(0.0);
            line[(width + 1) * channels..].fill(0.0);
            let from = &image[row * width..];
            beside(from, sizes.pixels(), [channels, width], &mut line[channels..]);
        }
        for tile in 0..sizes.count(segment) {
            let from = &pixels[tile / right * 2 * pitch + tile % right * 2 * channels..];
            let at = tile * channels;
            each_lanes!(channels, channel, seen(&from[channel..], [pitch, channels], &mut to, at + channel));
        }
    }
}

widest! {
    /// The gradient of each tile of a segment, transformed.
    fn transform_gradient<'a>(
        sizes: Winograd,
        image: &'a [f32],
        segment: &'a Segment,
        pixels: &'a mut [f32],
        to: [&'a mut [f32]; POINTS],
    ) {
        let mut to = to;
        let ([_, channels], [height, width], [_, right]) = (sizes.channels, sizes.size, sizes.tiles());
        let pitch = 2 * right * channels;
        let lines = pixels.chunks_exact_mut(pitch).take(2 * segment.rows.len());
        for (place, line) in lines.enumerate() {
            let row = 2 * segment.rows.start + place;
            if row >= height {
                line.fill(0.0);
                continue;
            }
            line[width * channels..].fill(0.0);
            beside(&image[row * width..], sizes.pixels(), [channels, width], line);
        }
        for tile in 0..sizes.count(segment) {
            let from = &pixels[tile / right * 2 * pitch + tile % right * 2 * channels..];
            let at = tile * channels;
            each_lanes!(channels, channel, spread(&from[channel..], [pitch, channels], &mut to, at + channel));
        }
    }
}

widest! {
    /// The pixels of each tile of a segment from its transformed values.
    fn transform_result<'a>(
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
        let mut planes = [0.0; PLANES * LANES];
        let rows = sizes.rows(&segment.rows).len();
        for first in (0..channels).step_by(LANES) {
            let lanes = LANES.min(channels - first);
            for (row, line) in pixels.chunks_exact(pitch).take(rows).enumerate() {
                for pixel in (0..width).step_by(PLANES) {
                    let count = PLANES.min(width - pixel);
                    turn(&line[pixel * channels + first..], channels, [count, lanes], &mut planes, PLANES);
                    for (lane, plane) in planes.chunks_exact(PLANES).take(lanes).enumerate() {
                        out.line(first + lane)[row * width + pixel..][..count]
                            .write_copy_of_slice(&plane[..count]);
                    }
                }
            }
        }
    }
}

/// Transforms a segment of an image's maps.
type Transform =
    for<'a> fn(Winograd, &'a [f32], &'a Segment, &'a mut [f32], [&'a mut [f32]; POINTS]);

/// A weight, and how its windows are taken from it.
#[derive(Debug, Clone, Copy)]
struct Windows<'a> {
    weight: &'a [f32],
    /// How many windows lie between those of a channel of the maps and the next, and the same for the result.
    steps: [usize; 2],
    turned: bool,
}

impl Windows<'_> {
    /// Transforms the windows of a channel of the maps, and of the result from a channel on.
    fn transform(&self, [input, output]: [usize; 2], to: [&mut [f32]; POINTS]) {
        let first = 9 * (input * self.steps[0] + output * self.steps[1]);
        windows(&self.weight[first..], 9 * self.steps[1], self.turned, to);
    }
}

/// Room for so many values, in a buffer that is made anew where it is too small; what is in it is not cleared.
fn room(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    if buffer.len() < count {
        // Never both at once.
        drop(std::mem::take(buffer));
        *buffer = vec![0.0; count];
    }
    &mut buffer[..count]
}

/// Buffers of a thread.
#[derive(Debug, Default)]
struct Scratch {
    seen: Vec<f32>,
    made: Vec<f32>,
    pixels: Vec<f32>,
}

/// A row of `columns` values of each of [`POINTS`] matrices that lie behind one another.
fn row_of_points(values: &[f32], row: usize, columns: usize) -> [&[f32]; POINTS] {
    let each = values.len() / POINTS;
    std::array::from_fn(|point| &values[point * each + row * columns..][..columns])
}

/// Of [`POINTS`] matrices that lie behind one another, the parts of so many values each: for each part its place in every matrix.
fn of_points(
    values: &mut [f32],
    sizes: impl Iterator<Item = usize> + Clone,
) -> Vec<[&mut [f32]; POINTS]> {
    let each = values.len() / POINTS;
    let mut rest: [&mut [f32]; POINTS] = Default::default();
    rest.iter_mut().zip(values.chunks_exact_mut(each.max(1))).for_each(|(rest, all)| *rest = all);
    let mut taken = Vec::with_capacity(sizes.clone().count());
    for size in sizes {
        taken.push(rest.each_mut().map(|rest| rest.split_off_mut(..size).unwrap_or_default()));
    }
    taken
}

/// Puts the channels of each pixel side by side: of `[channels, pixels]` whose channels lie `stride` apart.
#[inline(always)]
fn beside(from: &[f32], stride: usize, [channels, pixels]: [usize; 2], to: &mut [f32]) {
    turn(from, stride, [channels, pixels], to, channels);
}

/// Turns a matrix of so many rows and columns, the rows of which begin `stride` apart, and those of the result `pitch`.
#[inline(always)]
fn turn(from: &[f32], stride: usize, [rows, columns]: [usize; 2], to: &mut [f32], pitch: usize) {
    let whole = [rows, columns].map(|count| count - count % BLOCK);
    for row in (0..whole[0]).step_by(BLOCK) {
        for column in (0..whole[1]).step_by(BLOCK) {
            let mut block = [f32x4::ZERO; BLOCK];
            for (i, taken) in block.iter_mut().enumerate() {
                *taken = load(from, (row + i) * stride + column).into();
            }
            for (j, turned) in f32x4::transpose(block).into_iter().enumerate() {
                to[(column + j) * pitch + row..][..BLOCK].copy_from_slice(&turned.to_array());
            }
        }
        for column in whole[1]..columns {
            for i in 0..BLOCK {
                to[column * pitch + row + i] = from[(row + i) * stride + column];
            }
        }
    }
    for row in whole[0]..rows {
        for column in 0..columns {
            to[column * pitch + row] = from[row * stride + column];
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
fn store<const N: usize>(row: [Lanes<N>; 4], i: usize, to: &mut [&mut [f32]; POINTS], at: usize) {
    let [a, b, c, d] = row;
    to[4 * i][at..at + N].copy_from_slice(&a);
    to[4 * i + 1][at..at + N].copy_from_slice(&b);
    to[4 * i + 2][at..at + N].copy_from_slice(&c);
    to[4 * i + 3][at..at + N].copy_from_slice(&d);
}

/// Stores a matrix of transformed values, of which these are the columns, once rows are transformed too.
#[inline(always)]
fn store_all<const N: usize, const M: usize>(
    columns: [[Lanes<N>; 4]; M],
    by: impl Fn([Lanes<N>; M]) -> [Lanes<N>; 4] + Copy,
    to: &mut [&mut [f32]; POINTS],
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
    to: &mut [&mut [f32]; POINTS],
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
    to: &mut [&mut [f32]; POINTS],
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
    /// `G·g·Gᵀ` of windows that begin `step` apart, turned around where that is asked for.
    fn windows<'a>(weight: &'a [f32], step: usize, turned: bool, to: [&'a mut [f32]; POINTS]) {
        let mut to = to;
        each_lanes!(to[0].len(), channel, window(&weight[channel * step..], step, turned, &mut to, channel));
    }
}

#[inline(always)]
fn window<const N: usize>(
    weight: &[f32],
    step: usize,
    turned: bool,
    to: &mut [&mut [f32]; POINTS],
    channel: usize,
) {
    let mut places = [[0.0; N]; 9];
    for lane in 0..N {
        let window = load::<9>(weight, lane * step);
        for (place, value) in places.iter_mut().zip(window) {
            place[lane] = value;
        }
    }
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
    fn of_windows<'a>(from: [&'a [f32]; POINTS], weight: &'a mut [f32]) {
        each_lanes!(from[0].len(), channel, found(from, channel, weight));
    }
}

#[inline(always)]
fn found<const N: usize>(from: [&[f32]; POINTS], channel: usize, weight: &mut [f32]) {
    let mut columns = [[[0.0; N]; 3]; 4];
    for (j, column) in columns.iter_mut().enumerate() {
        *column = to_window(down(from, j, channel));
    }
    let [a, b, c] = to_window(columns.map(|[row, _, _]| row));
    let [d, e, f] = to_window(columns.map(|[_, row, _]| row));
    let [g, h, i] = to_window(columns.map(|[_, _, row]| row));
    let places = [a, b, c, d, e, f, g, h, i];
    for (lane, window) in weight[channel * 9..][..N * 9].chunks_exact_mut(9).enumerate() {
        for (value, place) in window.iter_mut().zip(places) {
            *value = place[lane];
        }
    }
}
