//! Convolutions by windows of 3×3 with step 1 and padding 1, as products over tiles of 2×2 pixels of the result: Winograd's
//! F(2×2, 3×3), with the matrices of Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4.1.
//!
//! A tile sees 4×4 pixels of the maps. Both are transformed to 16 values, for each of which the channels are multiplied on their
//! own: 16 products for a tile, where its windows have 36. While they are transformed, channels lie side by side.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::matrix::{LINE, Matrix, MatrixMut, aligned, packed, parts, written, written_in};
use crate::unfold::{Convolution, Maps};
use crate::workspace::Workspace;
use transforms::{
    LANES, of_windows, transform_gradient, transform_maps, transform_result, windows,
};

mod transforms;

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
/// Channels of the maps whose windows a thread transforms at once.
const ROWS: usize = 16;
/// Tiles below which a part is not cut further.
const LEAST: usize = 16;

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
        let transformed = &*unsafe {
            written_in(&mut transformed, POINTS * input * output, |all| {
                let sizes = parts(input, ROWS).map(|rows| rows.len() * output);
                let rows = of_points(all, sizes).into_par_iter().enumerate();
                rows.for_each(|(part, rows)| weight.transform([part * ROWS, 0], output, rows));
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
            let Scratch { seen, made, pixels } = scratch;
            let tiles = segments.iter().map(|segment| self.count(segment)).sum::<usize>();
            let pixels = room(pixels, self.pixels_of(segments[0].rows.len()));
            let sizes = segments.iter().map(|segment| self.count(segment) * input);
            // SAFETY: the tiles of all segments are written.
            #[expect(unsafe_code, reason = "values are not cleared before they are written")]
            let seen = unsafe {
                written_in(seen, POINTS * tiles * input, |all| {
                    for (segment, to) in segments.iter().zip(of_points(all, sizes)) {
                        transform_maps(*self, maps.image(segment.image), segment, pixels, to);
                    }
                })
            };
            self.products(seen, transformed, made, pixels, segments.iter().zip(results));
        };
        tasks.into_par_iter().for_each_init(Scratch::default, task);
    }

    /// Parts are of some channels and all tiles.
    fn write_channels(&self, maps: Maps<'_>, weight: Weight<'_>, out: &mut [MaybeUninit<f32>]) {
        let [input, output] = self.channels;
        let segments = self.images();
        let mut seen = Vec::new();
        let seen = self.transform_all(maps, input, &segments, &mut seen, transform_maps);
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
            let pixels = room(pixels, sizes.pixels_of(self.tiles()[0]));
            // SAFETY: the rows of all channels are written.
            #[expect(unsafe_code, reason = "values are not cleared before they are written")]
            let transformed = unsafe {
                written_in(transformed, POINTS * input * channels.len(), |all| {
                    let sizes = std::iter::once(input * channels.len());
                    for rows in of_points(all, sizes) {
                        weight.transform([0, channels.start], channels.len(), rows);
                    }
                })
            };
            sizes.products(seen, transformed, made, pixels, segments.iter().zip(results));
        };
        tasks.into_par_iter().for_each_init(Scratch::default, task);
    }

    /// The results of segments, which together are all tiles that `seen` has; they are `made` there first.
    fn products<'a>(
        &self,
        seen: &[f32],
        windows: &[f32],
        made: &mut Vec<f32>,
        pixels: &mut [f32],
        results: impl Iterator<Item = (&'a Segment, MatrixMut<'a>)>,
    ) {
        let [input, output] = self.channels;
        let tiles = seen.len() / (POINTS * input);
        let points = seen.chunks_exact(tiles * input).zip(windows.chunks_exact(input * output));
        // SAFETY: the products of all points are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let made = unsafe {
            written_in(made, POINTS * tiles * output, |made| {
                for ((seen, windows), made) in points.zip(made.chunks_exact_mut(tiles * output)) {
                    let windows = Matrix::rows(windows, [input, output]);
                    let seen = Matrix::rows(seen, [tiles, input]);
                    MatrixMut::unwritten(made, tiles).product(false, seen, windows);
                }
            })
        };
        let mut first = 0;
        for (segment, result) in results {
            let count = self.count(segment);
            let from = |point: usize| &made[(point * tiles + first) * output..][..count * output];
            transform_result(*self, std::array::from_fn(from), segment, pixels, result);
            first += count;
        }
    }

    /// Transforms segments of maps of `channels` channels.
    fn transform_all<'a>(
        &self,
        maps: Maps<'_>,
        channels: usize,
        segments: &[Segment],
        to: &'a mut Vec<f32>,
        by: Transform,
    ) -> &'a [f32] {
        let sizes = segments.iter().map(|segment| self.count(segment) * channels);
        let write = |to: &mut [MaybeUninit<f32>]| {
            let tasks: Vec<_> = segments.iter().zip(of_points(to, sizes.clone())).collect();
            tasks.into_par_iter().for_each_init(Vec::new, |pixels, (segment, to)| {
                let pixels = room(pixels, self.pixels_of(segment.rows.len()));
                by(*self, maps.image(segment.image), segment, pixels, to);
            });
        };
        // SAFETY: the tiles of all segments are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        unsafe {
            written_in(to, POINTS * sizes.clone().sum::<usize>(), write)
        }
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
        let (mut seen, mut made, mut room) = (Vec::new(), Vec::new(), Vec::new());
        let mut sums: Option<&mut [f32]> = None;
        for groups in groups.chunks(together) {
            let segments: Vec<Segment> = groups.iter().flatten().cloned().collect();
            let tiles = segments.iter().map(|segment| self.count(segment)).sum::<usize>();
            let seen = self.transform_all(maps, input, &segments, &mut seen, transform_maps);
            let by = transform_gradient;
            let made = self.transform_all(gradient, output, &segments, &mut made, by);
            // Of one point and some channels of the result.
            let product = |point: usize, channels: Range<usize>, add, mut sum: MatrixMut<'_>| {
                let seen = &seen[point * tiles * input..][..tiles * input];
                let made = &made[point * tiles * output..][..tiles * output];
                let made = Matrix::rows(made, [tiles, output]).columns(channels);
                sum.product(add, made.transposed(), Matrix::rows(seen, [tiles, input]));
            };
            if self.has_few_tiles() {
                let write = |weight: &mut [MaybeUninit<f32>]| {
                    let parts = weight.par_chunks_mut(CHANNELS * row).enumerate();
                    parts.for_each_init(Vec::new, |sums, (part, weight)| {
                        let count = weight.len() / row;
                        let channels = part * CHANNELS..part * CHANNELS + count;
                        // SAFETY: the products of all points are written.
                        #[expect(unsafe_code, reason = "values are not cleared")]
                        let sums = unsafe {
                            written_in(sums, POINTS * count * input, |sums| {
                                let points = sums.chunks_exact_mut(count * input).enumerate();
                                points.for_each(|(point, sum)| {
                                    let sum = MatrixMut::unwritten(sum, count);
                                    product(point, channels.clone(), false, sum);
                                });
                            })
                        };
                        let rows = weight.chunks_exact_mut(row).enumerate();
                        rows.for_each(|(at, weight)| {
                            of_windows(row_of_points(sums, at, input), weight)
                        });
                    });
                };
                // SAFETY: the windows of all channels are written.
                #[expect(unsafe_code, reason = "values are not cleared before they are written")]
                let (weight, ()) = unsafe { written(output * row, write) };
                return weight;
            }
            if let Some(sums) = &mut sums {
                let points = sums.par_chunks_mut(input * output).enumerate();
                points.for_each(|(point, sum)| {
                    product(point, 0..output, true, MatrixMut::rows(sum, output));
                });
                continue;
            }
            // SAFETY: the products of all points are written.
            #[expect(unsafe_code, reason = "values are not cleared before they are written")]
            let found = unsafe {
                written_in(&mut room, POINTS * input * output, |sums| {
                    let points = sums.par_chunks_mut(input * output).enumerate();
                    points.for_each(|(point, sum)| {
                        product(point, 0..output, false, MatrixMut::unwritten(sum, output));
                    });
                })
            };
            sums = Some(found);
        }
        drop((seen, made));
        let sums = &*sums.unwrap_or_default();
        let write = |weight: &mut [MaybeUninit<f32>]| {
            let rows = weight.par_chunks_mut(row).enumerate();
            rows.for_each(|(at, weight)| of_windows(row_of_points(sums, at, input), weight));
        };
        // SAFETY: the windows of all channels are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let (weight, ()) = unsafe { written(output * row, write) };
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

/// Transforms a segment of an image's maps.
type Transform = for<'a> fn(
    Winograd,
    &'a [f32],
    &'a Segment,
    &'a mut [f32],
    [&'a mut [MaybeUninit<f32>]; POINTS],
);

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
        [input, output]: [usize; 2],
        columns: usize,
        to: [&mut [MaybeUninit<f32>]; POINTS],
    ) {
        let steps = self.steps.map(|step| 9 * step);
        let first = input * steps[0] + output * steps[1];
        windows(&self.values[first..], steps, self.turned, columns, to);
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
}

/// A row of `columns` values of each of [`POINTS`] matrices that lie behind one another.
fn row_of_points(values: &[f32], row: usize, columns: usize) -> [&[f32]; POINTS] {
    let each = values.len() / POINTS;
    std::array::from_fn(|point| &values[point * each + row * columns..][..columns])
}

/// Of [`POINTS`] matrices that lie behind one another, the parts of so many values each: for each part its place in every matrix.
fn of_points(
    values: &mut [MaybeUninit<f32>],
    sizes: impl Iterator<Item = usize> + Clone,
) -> Vec<[&mut [MaybeUninit<f32>]; POINTS]> {
    let each = values.len() / POINTS;
    let mut rest: [&mut [MaybeUninit<f32>]; POINTS] = Default::default();
    rest.iter_mut().zip(values.chunks_exact_mut(each.max(1))).for_each(|(rest, all)| *rest = all);
    let mut taken = Vec::with_capacity(sizes.clone().count());
    for size in sizes {
        taken.push(rest.each_mut().map(|rest| rest.split_off_mut(..size).unwrap_or_default()));
    }
    taken
}
