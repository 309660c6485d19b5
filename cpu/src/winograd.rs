//! Convolutions by windows of 3×3 with step 1 and padding 1, as products over tiles of pixels of the result: Winograd's F(4×4, 3×3)
//! and F(2×2, 3×3), as in Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4.
//!
//! A tile of 4×4 pixels sees 6×6 pixels of the maps. What it sees, the window and the gradient are transformed to 36 values each,
//! for each of which the channels are multiplied on their own: 36 products for a tile, where its windows have 144. Of tiles of 2×2
//! pixels these are 16 and 36. While they are transformed, channels lie side by side.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::convolution::add_sums;
use crate::matrix::{LINE, Matrix, MatrixMut, aligned, filled, packed, parts, written, written_in};
use crate::unfold::{Convolution, Maps};
use crate::workspace::Workspace;
use transforms::{LANES, Side, of_windows, transform, transform_result, windows};

mod transforms;

/// Values of transformed tiles that a part of a pass works on, about: they stay in the cache of a core.
const CACHED: usize = 1 << 18;
/// The same of gradients of weights, whose parts share them.
const SHARED: usize = 1 << 20;
/// Parts that a pass is cut into where its sizes allow it.
const PARTS: usize = 16;
/// Sums of parts below which one sum over all tiles is faster.
const FEW_PARTS: usize = 4;
/// Channels that a part takes where parts are of channels.
const CHANNELS: usize = 64;
/// Channels of the maps whose windows a thread transforms at once.
const ROWS: usize = 16;
/// Tiles below which a part is not cut further.
const LEAST: usize = 16;
/// Tiles of 4×4 pixels that a map must have to be cut into them.
const FEW: usize = 16;
/// Pixels of a map from which on fewer channels are enough.
const PIXELS: usize = 64;

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
    /// Height and width of a tile: 2 or 4 pixels of the result.
    pub(crate) tile: usize,
}

impl Convolution {
    /// The same by fewer products, where that is faster.
    pub(crate) fn winograd(&self) -> Option<Winograd> {
        let Self { batch, channels, size, .. } = *self;
        let [small, large] = [2, 4].map(|tile| Winograd { batch, channels, size, tile });
        // On small maps it takes longer to transform windows to more points than the products save.
        let pays = 4 * large.products() <= 3 * small.products();
        let found = if pays && large.count_of_image() >= FEW { large } else { small };
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
        let pixels = down * right * self.tile * self.tile;
        let pays = least >= 2 * CHANNELS || least >= 2 * LANES && pixels >= PIXELS;
        pays && right * self.values() <= SHARED
    }

    /// Products of channels for an image.
    fn products(&self) -> usize {
        self.points() * self.count_of_image()
    }

    fn count_of_image(&self) -> usize {
        self.tiles().iter().product()
    }

    /// Values that a tile, and a window, are transformed to.
    fn points(&self) -> usize {
        (self.tile + 2).pow(2)
    }

    /// Whether the weight is larger than the maps, so that parts share the maps and not the weight.
    fn has_few_tiles(&self) -> bool {
        let [input, output] = self.channels;
        self.all() * (input + output) < input * output
    }

    /// How many sums of parts the gradient of a weight is made of: more than one are worth it where they stay in the cache of a core
    /// beside tiles, and what is summed is more.
    fn sums(&self) -> usize {
        let sum = self.points() * self.channels[0] * self.channels[1];
        match self.all() * self.values() / (2 * sum) {
            parts if parts >= FEW_PARTS && 4 * sum <= 3 * CACHED => parts.min(PARTS),
            _ => 1,
        }
    }

    /// Tiles of all images.
    fn all(&self) -> usize {
        self.batch * self.count_of_image()
    }

    /// Values of a tile, transformed, of maps and result.
    fn values(&self) -> usize {
        self.points() * self.channels.iter().sum::<usize>()
    }

    /// Values of so many tiles, transformed, of maps and of result, as they lie in memory.
    fn both(&self, tiles: usize) -> usize {
        let values = self.channels.map(|channels| apart(tiles * channels));
        self.points() * values.iter().sum::<usize>()
    }

    /// Rows and columns of tiles of an image.
    fn tiles(&self) -> [usize; 2] {
        self.size.map(|size| size.div_ceil(self.tile))
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
        self.apply(maps, Weight { values: weight, steps, turned: false })
    }

    /// The gradient of the maps from that of the result.
    pub fn of_maps(&self, weight: &[f32], gradient: Maps<'_>) -> Vec<f32> {
        let steps = [self.channels[0], 1];
        self.turned().apply(gradient, Weight { values: weight, steps, turned: true })
    }

    fn apply(&self, maps: Maps<'_>, weight: Weight<'_>) -> Vec<f32> {
        let count = self.batch * self.channels[1] * self.pixels();
        let write = |out: &mut [MaybeUninit<f32>]| match self.has_few_tiles() {
            true => self.write_channels(maps, weight, out),
            false => self.write_tiles(maps, weight, out),
        };
        // SAFETY: the tiles of all images, or all channels, are the whole result, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        let (values, ()) = unsafe { written(count, write) };
        values
    }

    /// Parts are of some tiles and all channels.
    fn write_tiles(&self, maps: Maps<'_>, weight: Weight<'_>, out: &mut [MaybeUninit<f32>]) {
        let [input, output] = self.channels;
        let mut transformed = Vec::new();
        // SAFETY: the rows of all channels are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let transformed = unsafe {
            self.written_in(&mut transformed, input * output, |all| {
                let sizes = parts(input, ROWS).map(|rows| rows.len() * output);
                let rows = split(all, sizes).into_par_iter().enumerate();
                rows.for_each(|(part, rows)| {
                    weight.transform(self.tile, [part * ROWS, 0], output, rows)
                });
            })
        };
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
            let Scratch { seen, made, pixels, .. } = scratch;
            let tiles = self.count_all(&segments);
            let seen = self.transform((Side::Maps, maps), &segments, pixels, seen);
            let pixels = room(pixels, self.pixels_of(segments[0].rows.len()));
            self.results(tiles, [seen, transformed], made, pixels, segments.iter().zip(results));
        };
        tasks.into_par_iter().for_each_init(Scratch::default, task);
    }

    /// Parts are of some channels and all tiles.
    fn write_channels(&self, maps: Maps<'_>, weight: Weight<'_>, out: &mut [MaybeUninit<f32>]) {
        let [input, output] = self.channels;
        let segments = self.images();
        let mut seen = Vec::new();
        let seen = self.transform_all((Side::Maps, maps), &segments, &mut seen);
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
            let Scratch { seen: transformed, made, pixels, .. } = scratch;
            let sizes = Self { channels: [input, channels.len()], ..*self };
            let pixels = room(pixels, sizes.pixels_of(self.tiles()[0]));
            // SAFETY: the rows of all channels are written.
            #[expect(unsafe_code, reason = "values are not cleared before they are written")]
            let transformed = unsafe {
                self.written_in(transformed, input * channels.len(), |all| {
                    weight.transform(self.tile, [0, channels.start], channels.len(), all);
                })
            };
            let factors = [seen, transformed];
            sizes.results(self.all(), factors, made, pixels, segments.iter().zip(results));
        };
        tasks.into_par_iter().for_each_init(Scratch::default, task);
    }

    /// The results of segments, which together have so many tiles, from what these see and the windows; their transformed values
    /// are `made` first.
    fn results<'a>(
        &self,
        tiles: usize,
        [seen, windows]: [Points<'_>; 2],
        made: &mut Vec<f32>,
        pixels: &mut [f32],
        results: impl Iterator<Item = (&'a Segment, MatrixMut<'a>)>,
    ) {
        let [input, output] = self.channels;
        // SAFETY: the products of all points are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let made = unsafe {
            self.written_in(made, tiles * output, |made| {
                for (point, made) in made.into_iter().enumerate() {
                    let seen = seen.matrix(point, [tiles, input]);
                    let windows = windows.matrix(point, [input, output]);
                    MatrixMut::unwritten(made, tiles).product(false, seen, windows);
                }
            })
        };
        let mut first = 0;
        for (segment, result) in results {
            transform_result(*self, made.from(first * output), segment, pixels, result);
            first += self.count(segment);
        }
    }

    /// What is multiplied for each point to get the gradient of the weight.
    fn factors<'a>(
        &self,
        [maps, gradient]: [Maps<'_>; 2],
        segments: &[Segment],
        [seen, made]: [&'a mut Vec<f32>; 2],
    ) -> impl Fn(usize) -> [Matrix<'a>; 2] {
        let [input, output] = self.channels;
        let tiles = self.count_all(segments);
        let seen = self.transform_all((Side::Maps, maps), segments, seen);
        let made = self.transform_all((Side::Gradient, gradient), segments, made);
        move |point| {
            let made = made.matrix(point, [tiles, output]).transposed();
            [made, seen.matrix(point, [tiles, input])]
        }
    }

    /// Transforms segments one after the other.
    fn transform<'a>(
        &self,
        (side, maps): (Side, Maps<'_>),
        segments: &[Segment],
        pixels: &mut Vec<f32>,
        to: &'a mut Vec<f32>,
    ) -> Points<'a> {
        let sizes = segments.iter().map(|segment| self.count(segment) * side.channels(*self));
        let write = |to: PointsMut<'_>| {
            for (segment, to) in segments.iter().zip(split(to, sizes.clone())) {
                let pixels = room(pixels, self.pixels_of(segment.rows.len()));
                transform(*self, side, maps.image(segment.image), segment, pixels, to);
            }
        };
        // SAFETY: the tiles of all segments are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        unsafe {
            self.written_in(to, sizes.clone().sum(), write)
        }
    }

    /// The same on all threads.
    fn transform_all<'a>(
        &self,
        (side, maps): (Side, Maps<'_>),
        segments: &[Segment],
        to: &'a mut Vec<f32>,
    ) -> Points<'a> {
        let sizes = segments.iter().map(|segment| self.count(segment) * side.channels(*self));
        let write = |to: PointsMut<'_>| {
            let tasks: Vec<_> = segments.iter().zip(split(to, sizes.clone())).collect();
            tasks.into_par_iter().for_each_init(Vec::new, |pixels, (segment, to)| {
                let pixels = room(pixels, self.pixels_of(segment.rows.len()));
                transform(*self, side, maps.image(segment.image), segment, pixels, to);
            });
        };
        // SAFETY: the tiles of all segments are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        unsafe {
            self.written_in(to, sizes.clone().sum(), write)
        }
    }

    /// Of [`Winograd::forward`].
    pub fn forward_workspace(&self) -> Workspace {
        let [input, output] = self.channels;
        if self.has_few_tiles() {
            let (tiles, channels) = (self.all(), output.min(CHANNELS));
            let sizes = Self { channels: [input, channels], ..*self };
            let each = self.points() * (apart(channels * input) + apart(channels * tiles))
                + sizes.pixels_of(self.tiles()[0])
                + packed([channels, tiles, input], true, true);
            return Workspace {
                shared: self.points() * apart(tiles * input),
                each,
                parts: output.div_ceil(CHANNELS),
            };
        }
        let groups = self.groups(self.each(CACHED));
        let (tiles, rows) = self.largest(&groups);
        let each =
            self.both(tiles) + self.pixels_of(rows) + packed([output, tiles, input], true, true);
        let shared = self.points() * apart(input * output);
        Workspace { shared, each, parts: groups.len() }
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
            let sums = self.points() * apart(channels * input);
            let each = sums + packed([input, channels, tiles], true, false);
            return Workspace { shared: self.both(tiles), each, parts: output.div_ceil(CHANNELS) };
        }
        let sums = self.sums();
        if sums > 1 {
            let (groups, each) = self.groups_of_sums(sums);
            let (count, (tiles, rows)) = (groups.len().div_ceil(each), self.largest(&groups));
            let each = self.both(tiles)
                + self.pixels_of(rows)
                + self.points() * apart(input * output)
                + packed([input, output, tiles], true, false);
            return Workspace { shared: (count - 1) * input * output * 9, each, parts: count };
        }
        let (groups, together) = self.chunks();
        let (tiles, rows) = self.largest(&groups);
        let tiles = tiles * together.min(groups.len());
        let each = self.pixels_of(rows).max(packed([input, output, tiles], true, false));
        // The result is there when the tiles are gone.
        let tiles = self.both(tiles).saturating_sub(input * output * 9);
        let shared = self.points() * apart(input * output) + tiles;
        Workspace { shared, each, parts: self.points() }
    }

    /// Tiles of the largest of groups, and rows of its segments.
    fn largest(&self, groups: &[Vec<Segment>]) -> (usize, usize) {
        let tiles = |group: &Vec<Segment>| group.iter().map(|segment| self.count(segment)).sum();
        let rows = groups.iter().flatten().map(|segment| segment.rows.len());
        (groups.iter().map(tiles).max().unwrap_or(0), rows.max().unwrap_or(0))
    }

    /// The groups that gradients of weights are summed over in one sum, and how many are transformed at once.
    fn chunks(&self) -> (Vec<Vec<Segment>>, usize) {
        // The sums are there beside them.
        let sums = self.points() * self.channels[0] * self.channels[1];
        let most = SHARED - sums.min(SHARED / 2);
        let each = self.each(most / PARTS);
        (self.groups(each), (most / (self.values() * each)).max(1))
    }

    /// The groups that gradients of weights are summed over in at most so many sums, and how many of them a sum has.
    fn groups_of_sums(&self, sums: usize) -> (Vec<Vec<Segment>>, usize) {
        let groups = self.groups((CACHED / self.values()).min(self.all().div_ceil(sums)));
        let each = groups.len().div_ceil(sums);
        (groups, each)
    }

    /// The gradient of the weight from that of the result.
    pub fn of_weight(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        match self.sums() {
            _ if self.has_few_tiles() => self.sum_channels(maps, gradient),
            1 => self.sum_tiles(maps, gradient),
            sums => self.sum_parts(maps, gradient, sums),
        }
    }

    /// Parts are of some tiles, and have sums of their own.
    fn sum_parts(&self, maps: Maps<'_>, gradient: Maps<'_>, sums: usize) -> Vec<f32> {
        let [input, output] = self.channels;
        let weights = output * input * 9;
        let (groups, each) = self.groups_of_sums(sums);
        let count = groups.len().div_ceil(each);
        let mut others = Vec::new();
        let write_all = |out: &mut [MaybeUninit<f32>], others: &mut [MaybeUninit<f32>]| {
            let sums = std::iter::once(out).chain(others.chunks_mut(weights));
            let tasks: Vec<_> = groups.chunks(each).zip(sums).collect();
            tasks.into_par_iter().for_each_init(Scratch::default, |scratch, (groups, weight)| {
                let Scratch { seen, made, pixels, sums } = scratch;
                let sum_all = |sums: PointsMut<'_>| {
                    // SAFETY: the first products are not added.
                    #[expect(unsafe_code, reason = "sums are not cleared")]
                    let mut sums = unsafe { unwritten(sums, output) };
                    for (place, segments) in groups.iter().enumerate() {
                        let tiles = self.count_all(segments);
                        let seen = self.transform((Side::Maps, maps), segments, pixels, seen);
                        let made =
                            self.transform((Side::Gradient, gradient), segments, pixels, made);
                        for (point, sum) in sums.iter_mut().enumerate() {
                            let made = made.matrix(point, [tiles, output]).transposed();
                            sum.product(place > 0, made, seen.matrix(point, [tiles, input]));
                        }
                    }
                };
                // SAFETY: the products of all points are written.
                #[expect(unsafe_code, reason = "values are not cleared before they are written")]
                let sums = unsafe { self.written_in(sums, input * output, sum_all) };
                let rows = weight.chunks_exact_mut(input * 9).enumerate();
                rows.for_each(|(row, weight)| {
                    of_windows(self.tile, sums.from(row * input), weight)
                });
            });
        };
        // SAFETY: each sum has a group, and the windows of all channels are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let (mut weight, others) = unsafe {
            written(weights, |out| {
                written_in(&mut others, (count - 1) * weights, |others| write_all(out, others))
            })
        };
        add_sums(&mut weight, others);
        weight
    }

    /// Parts are of points and all channels.
    fn sum_tiles(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        let [input, output] = self.channels;
        let (groups, together) = self.chunks();
        let mut sums = Vec::new();
        let sum_all = |sums: PointsMut<'_>| {
            let (mut seen, mut made) = (Vec::new(), Vec::new());
            // SAFETY: the first products are not added.
            #[expect(unsafe_code, reason = "sums are not cleared")]
            let mut sums = unsafe { unwritten(sums, output) };
            for (chunk, groups) in groups.chunks(together).enumerate() {
                let segments: Vec<Segment> = groups.iter().flatten().cloned().collect();
                let factors = self.factors([maps, gradient], &segments, [&mut seen, &mut made]);
                sums.par_iter_mut().enumerate().for_each(|(point, sum)| {
                    let [left, right] = factors(point);
                    sum.product(chunk > 0, left, right);
                });
            }
        };
        // SAFETY: the products of all points are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let sums = unsafe { self.written_in(&mut sums, input * output, sum_all) };
        let write = |weight: &mut [MaybeUninit<f32>]| {
            let rows = weight.par_chunks_mut(input * 9).enumerate();
            rows.for_each(|(row, weight)| of_windows(self.tile, sums.from(row * input), weight));
        };
        // SAFETY: the windows of all channels are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let (weight, ()) = unsafe { written(output * input * 9, write) };
        weight
    }

    /// Parts are of some channels of the result and all tiles.
    fn sum_channels(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        let [input, output] = self.channels;
        let row = input * 9;
        let (mut seen, mut made) = (Vec::new(), Vec::new());
        let segments = self.images();
        let factors = self.factors([maps, gradient], &segments, [&mut seen, &mut made]);
        let write = |weight: &mut [MaybeUninit<f32>]| {
            let parts = weight.par_chunks_mut(CHANNELS * row).enumerate();
            parts.for_each_init(Vec::new, |sums, (part, weight)| {
                let count = weight.len() / row;
                let channels = part * CHANNELS..part * CHANNELS + count;
                // SAFETY: the products of all points are written.
                #[expect(unsafe_code, reason = "values are not cleared")]
                let sums = unsafe {
                    self.written_in(sums, count * input, |sums| {
                        for (point, sum) in sums.into_iter().enumerate() {
                            let [left, right] = factors(point);
                            let left = left.lines(channels.clone());
                            MatrixMut::unwritten(sum, count).product(false, left, right);
                        }
                    })
                };
                let rows = weight.chunks_exact_mut(row).enumerate();
                rows.for_each(|(row, weight)| {
                    of_windows(self.tile, sums.from(row * input), weight)
                });
            });
        };
        // SAFETY: the windows of all channels are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let (weight, ()) = unsafe { written(output * row, write) };
        weight
    }

    /// `count` values for each point, which `write` writes in the room of `buffer`.
    ///
    /// # Safety
    ///
    /// `write` writes every value.
    #[expect(unsafe_code, reason = "values are not cleared before they are written")]
    unsafe fn written_in<'a>(
        &self,
        buffer: &'a mut Vec<f32>,
        count: usize,
        write: impl FnOnce(PointsMut<'_>),
    ) -> Points<'a> {
        let each = apart(count);
        let write = |all: &mut [MaybeUninit<f32>]| {
            let points = all.chunks_exact_mut(each).map(|all| {
                let (own, between) = all.split_at_mut(count);
                filled(between, 0.0);
                own
            });
            write(points.collect());
        };
        // SAFETY: by the caller's word values are written, and between them they were just filled.
        let values = unsafe { written_in(buffer, self.points() * each, write) };
        Points { values, each }
    }

    /// Values of so many rows of tiles as pixels, with those around them, of as many channels as are transformed at once.
    fn pixels_of(&self, rows: usize) -> usize {
        (self.tile * rows + 2) * (self.tile * self.tiles()[1] + 2) * LANES
    }

    fn count_all(&self, segments: &[Segment]) -> usize {
        segments.iter().map(|segment| self.count(segment)).sum()
    }

    /// Tiles of a segment.
    fn count(&self, segment: &Segment) -> usize {
        segment.rows.len() * self.tiles()[1]
    }

    /// The rows of pixels of the result that rows of tiles are.
    fn rows(&self, tiles: &Range<usize>) -> Range<usize> {
        self.tile * tiles.start..(self.tile * tiles.end).min(self.size[0])
    }
}

/// A weight, and how its windows are taken from it.
#[derive(Debug, Clone, Copy)]
struct Weight<'a> {
    values: &'a [f32],
    /// How many windows lie between those of a channel of the maps and the next, and the same for the result.
    steps: [usize; 2],
    turned: bool,
}

impl Weight<'_> {
    /// Transforms the windows of channels of the maps, and of so many of the result, from one of each on.
    fn transform(
        &self,
        tile: usize,
        [input, output]: [usize; 2],
        columns: usize,
        to: PointsMut<'_>,
    ) {
        let steps = self.steps.map(|step| 9 * step);
        let first = input * steps[0] + output * steps[1];
        windows(tile, &self.values[first..], steps, self.turned, columns, to);
    }
}

/// Room for so many values from the beginning of a cache line on, in a buffer that is made anew where it is too small; what is
/// in it is not cleared.
fn room(buffer: &mut Vec<f32>, count: usize) -> &mut [f32] {
    if buffer.len() < count + LINE {
        // Never both at once.
        drop(std::mem::take(buffer));
        *buffer = vec![0.0; count + LINE];
    }
    &mut aligned(buffer)[..count]
}

/// Buffers of a thread.
#[derive(Debug, Default)]
struct Scratch {
    seen: Vec<f32>,
    made: Vec<f32>,
    pixels: Vec<f32>,
    sums: Vec<f32>,
}

/// Matrices, one for each point, which begin so many values apart.
#[derive(Debug, Clone, Copy)]
struct Points<'a> {
    values: &'a [f32],
    each: usize,
}

impl<'a> Points<'a> {
    /// The matrix of a point, of so many rows and columns.
    fn matrix(self, point: usize, size: [usize; 2]) -> Matrix<'a> {
        Matrix::rows(&self.values[point * self.each..], size)
    }

    /// From a place in each on.
    fn from(self, at: usize) -> Self {
        Self { values: &self.values[at..], ..self }
    }
}

/// The values of a matrix, or of a part of it, for each point.
type PointsMut<'a> = Vec<&'a mut [MaybeUninit<f32>]>;

/// Values from the beginning of a matrix of so many to that of the next: there is a cache line between them. A power of two apart,
/// the same elements of all of them would have the same few places in the cache.
fn apart(count: usize) -> usize {
    count + LINE
}

/// Sums of so many rows for each point.
///
/// # Safety
///
/// The first products are not added.
#[expect(unsafe_code, reason = "what was not written may not be read")]
unsafe fn unwritten(sums: PointsMut<'_>, rows: usize) -> Vec<MatrixMut<'_>> {
    // SAFETY: by the caller's word.
    let sum = |sum| unsafe { MatrixMut::unwritten(sum, rows) };
    sums.into_iter().map(sum).collect()
}

/// Parts of so many values each.
fn split(points: PointsMut<'_>, sizes: impl Iterator<Item = usize>) -> Vec<PointsMut<'_>> {
    let mut rest = points;
    let take = |size: usize| {
        let parts = rest.iter_mut().map(|rest| rest.split_off_mut(..size).unwrap_or_default());
        parts.collect()
    };
    sizes.map(take).collect()
}
