//! Square convolutions without bias, and their gradients, as products of matrices.
//!
//! The work is cut into parts that depend on the sizes alone, one thread computes each, and sums over parts
//! are taken in their order. So the bits of a result do not depend on the number of threads.

use std::mem::MaybeUninit;
use std::ops::Range;

use rayon::prelude::*;

use crate::matrix::{Matrix, MatrixMut, filled, parts, written, written_in};
use crate::unfold::{Convolution, Maps};

/// Pixels that a part computes, about.
const PIXELS: usize = 512;
/// Below so many pixels, images are put together.
const FEW: usize = 32;
/// Rows of columns that are unfolded at a time, about.
pub(crate) const DEPTH: usize = 512;
/// The same for gradients of weights, where the rows are those of the result.
pub(crate) const WEIGHTS: usize = 256;
/// The same where they are added up.
pub(crate) const FOLDED: usize = 144;
/// Channels whose windows are turned around at a time: what they are read from lies side by side.
const FLIPPED: usize = 8;
/// Parts that a pass is cut into where its sizes allow it.
const PARTS: usize = 16;
/// Rows of a factor below which it is not cut further, about.
const LEAST: usize = 32;
/// The most values of sums that are held beside the gradient of a weight.
const SUMS: usize = 1 << 20;
/// Values that sums are added to by one thread at a time.
const ADDED: usize = 1 << 14;

/// Pixels of the result that are computed together: some rows of an image, or several whole images.
#[derive(Debug, Clone)]
struct Tile {
    images: Range<usize>,
    rows: Range<usize>,
}

impl Tile {
    fn is_of_one(&self) -> bool {
        self.images.len() == 1
    }
}

impl Convolution {
    /// Of maps and a weight `[output, input, kernel, kernel]`.
    pub fn forward(&self, maps: Maps<'_>, weight: &[f32]) -> Vec<f32> {
        if let Some(winograd) = self.winograd() {
            return winograd.forward(maps, weight);
        }
        let [_, output] = self.channels;
        let weight = Matrix::rows(weight, [output, self.channels[0] * self.taps()]);
        if self.turns_to_fewer() {
            let flipped = self.flipped(weight);
            let turned = self.turned();
            let weight = Matrix::rows(&flipped, [self.channels[0], output * self.taps()]);
            return turned.fold_product(weight, maps);
        }
        self.forward_by(maps, weight)
    }

    /// Whether it is the transpose of a convolution of the same size.
    pub(crate) fn turns(&self) -> bool {
        self.stride == 1 && self.padding < self.kernel
    }

    /// Whether it is better computed as a transpose: the columns of fewer channels are smaller.
    pub(crate) fn turns_to_fewer(&self) -> bool {
        let [input, output] = self.channels;
        self.turns() && !self.is_pointwise() && output < input
    }

    fn forward_by(&self, maps: Maps<'_>, weight: Matrix<'_>) -> Vec<f32> {
        let count = self.batch * self.channels[1] * self.output_pixels();
        // SAFETY: tiles are all pixels of all images, and each is written.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        let (values, ()) = unsafe { written(count, |out| self.write_forward(maps, weight, out)) };
        values
    }

    fn write_forward(&self, maps: Maps<'_>, weight: Matrix<'_>, out: &mut [MaybeUninit<f32>]) {
        let [_, output] = self.channels;
        let pixels = self.output_pixels();
        let together = self.together();
        if self.forward_rows() < output {
            return self.write_forward_in_rows(maps, weight, out);
        }
        if together > 1 {
            let groups = out.par_chunks_mut(together * output * pixels).enumerate();
            groups.for_each_init(Vec::new, |columns, (group, out)| {
                let tile = self.group(group * together);
                let mut result = vec![0.0; out.len()];
                let rows = MatrixMut::rows(&mut result, output);
                self.forward_tile(maps, weight, &tile, rows, columns);
                scatter(&result, tile.images.len(), pixels, out);
            });
            return;
        }
        let images = out.chunks_mut(output * pixels).enumerate();
        let tiles: Vec<_> =
            images.flat_map(|(image, out)| self.bands(image).zip(self.band_results(out))).collect();
        tiles.into_par_iter().for_each_init(Vec::new, |columns, (tile, out)| {
            self.forward_tile(maps, weight, &tile, out, columns);
        });
    }

    /// The bands of an image's result, to which the first product is not added.
    fn band_results<'a>(&self, out: &'a mut [MaybeUninit<f32>]) -> Vec<MatrixMut<'a>> {
        // SAFETY: the first product of a tile is not added.
        #[expect(unsafe_code, reason = "the result is not cleared before it is written")]
        let all = unsafe { MatrixMut::unwritten(out, self.channels[1]) };
        all.columns(self.band() * self.output()[1])
    }

    /// The same where there are few tiles: each is also cut into rows of the weight. All tiles are unfolded
    /// first, so that the parts of one share its columns.
    fn write_forward_in_rows(
        &self,
        maps: Maps<'_>,
        weight: Matrix<'_>,
        out: &mut [MaybeUninit<f32>],
    ) {
        let ([input, output], taps) = (self.channels, self.taps());
        let (pixels, tiles) = (self.output_pixels(), self.tiles());
        let direct = self.takes_no_columns();
        // Where images are put together, their results lie side by side at first.
        let mut beside = vec![0.0; if self.together() > 1 { out.len() } else { 0 }];
        let results = match self.together() {
            1 => out.chunks_mut(output * pixels).flat_map(|out| self.band_results(out)).collect(),
            together => {
                let groups = beside.chunks_mut(together * output * pixels);
                groups.map(|group| MatrixMut::rows(group, output)).collect::<Vec<_>>()
            }
        };
        let rows = self.forward_rows();
        let mut tasks: Vec<_> = results
            .into_iter()
            .enumerate()
            .flat_map(|(tile, result)| {
                parts(output, rows)
                    .zip(result.lines(rows))
                    .map(move |(rows, out)| (tile, rows, out))
            })
            .collect();
        let each = if direct { input } else { (DEPTH / taps).max(1) };
        let mut columns =
            vec![0.0; if direct { 0 } else { input.min(each) * taps * self.batch * pixels }];
        for channels in parts(input, each) {
            let depth = channels.start * taps..channels.end * taps;
            let mut unfolded = Vec::new();
            let mut rest = &mut columns[..];
            for tile in &tiles {
                let count = if direct { 0 } else { depth.len() * self.tile_pixels(tile) };
                let (columns, behind) = rest.split_at_mut(count);
                rest = behind;
                unfolded.push(columns);
            }
            if !direct {
                let planes = unfolded.iter_mut().zip(&tiles).flat_map(|(columns, tile)| {
                    let planes = columns.chunks_exact_mut(taps * self.tile_pixels(tile));
                    channels.clone().zip(planes).map(move |(channel, plane)| (tile, channel, plane))
                });
                planes.collect::<Vec<_>>().into_par_iter().for_each(|(tile, channel, plane)| {
                    self.unfold_tile(maps, tile, channel..channel + 1, plane);
                });
            }
            tasks.par_iter_mut().for_each(|(tile, rows, out)| {
                let (columns, tile) = (&*unfolded[*tile], &tiles[*tile]);
                let columns = match direct {
                    true => self.seen(maps, tile),
                    false => Matrix::rows(columns, [depth.len(), self.tile_pixels(tile)]),
                };
                out.product(
                    channels.start > 0,
                    weight.lines(rows.clone()).columns(depth.clone()),
                    columns,
                );
            });
        }
        drop(tasks);
        let together = self.together();
        if together > 1 {
            let group = together * output * pixels;
            out.par_chunks_mut(group).zip(beside.par_chunks(group)).for_each(|(out, beside)| {
                scatter(beside, out.len() / (output * pixels), pixels, out);
            });
        }
    }

    /// Rows of the weight, which are channels of the result, that a part of a forward pass takes.
    pub(crate) fn forward_rows(&self) -> usize {
        let output = self.channels[1];
        self.each(output, output, 1, self.tile_count()).next_multiple_of(8).min(output)
    }

    /// How many of `channels`, each of which is `taps` rows of a factor, a part takes: so few that there are
    /// [`PARTS`] where each has `others` beside it, but no fewer than [`LEAST`] rows and no more than `most`.
    fn each(&self, channels: usize, most: usize, taps: usize, others: usize) -> usize {
        let asked = channels.div_ceil(PARTS.div_ceil(others.max(1)));
        asked.max(LEAST.div_ceil(taps)).min((most / taps).max(1))
    }

    fn forward_tile(
        &self,
        maps: Maps<'_>,
        weight: Matrix<'_>,
        tile: &Tile,
        mut out: MatrixMut<'_>,
        columns: &mut Vec<f32>,
    ) {
        if self.is_pointwise() && tile.is_of_one() {
            return out.product(false, weight, self.seen(maps, tile));
        }
        let (taps, pixels) = (self.taps(), self.tile_pixels(tile));
        for channels in parts(self.channels[0], (DEPTH / taps).max(1)) {
            let first = channels.start == 0;
            let depth = channels.start * taps..channels.end * taps;
            let rows = self.columns(maps, tile, channels, columns);
            let columns = Matrix::rows(&columns[..rows * pixels], [rows, pixels]);
            out.product(!first, weight.columns(depth), columns);
        }
    }

    /// The gradient of the maps from that of the result.
    pub fn of_maps(&self, weight: &[f32], gradient: Maps<'_>) -> Vec<f32> {
        if let Some(winograd) = self.winograd() {
            return winograd.of_maps(weight, gradient);
        }
        let [input, output] = self.channels;
        let taps = self.taps();
        let weight = Matrix::rows(weight, [output, input * taps]);
        if self.is_pointwise() {
            return self.turned().forward_by(gradient, weight.transposed());
        }
        if self.turns() {
            let flipped = self.flipped(weight);
            let weight = Matrix::rows(&flipped, [input, output * taps]);
            return self.turned().forward_by(gradient, weight);
        }
        self.fold_product(weight, gradient)
    }

    /// The convolution whose result is the gradient of the maps, where the stride is 1.
    pub(crate) fn turned(&self) -> Self {
        let [input, output] = self.channels;
        let padding = self.kernel - 1 - self.padding;
        Self { channels: [output, input], size: self.output(), padding, ..*self }
    }

    /// The weight of [`Convolution::turned`]: channels change places, and windows are turned around.
    fn flipped(&self, weight: Matrix<'_>) -> Vec<f32> {
        let ([input, output], taps) = (self.channels, self.taps());
        let row = output * taps;
        let write = |flipped: &mut [MaybeUninit<f32>]| {
            flipped.par_chunks_mut(FLIPPED * row).enumerate().for_each(|(part, rows)| {
                let from = part * FLIPPED * taps;
                for to in 0..output {
                    let taken = weight.row(to, from..from + rows.len() / output);
                    for (row, taken) in rows.chunks_exact_mut(row).zip(taken.chunks_exact(taps)) {
                        let row = row[to * taps..][..taps].iter_mut();
                        row.zip(taken.iter().rev()).for_each(|(row, taken)| _ = row.write(*taken));
                    }
                }
            });
        };
        // SAFETY: the windows of all channels are written.
        #[expect(unsafe_code, reason = "values are not cleared before they are written")]
        let (flipped, ()) = unsafe { written(input * output * taps, write) };
        flipped
    }

    /// The gradient of the maps by columns that are added up where windows overlap.
    fn fold_product(&self, weight: Matrix<'_>, gradient: Maps<'_>) -> Vec<f32> {
        let count = self.batch * self.channels[0] * self.pixels();
        // SAFETY: each task begins with zeros in its channels of its images.
        #[expect(unsafe_code, reason = "threads clear what they add to")]
        let (values, ()) =
            unsafe { written(count, |out| self.write_folded(weight, gradient, out)) };
        values
    }

    fn write_folded(&self, weight: Matrix<'_>, gradient: Maps<'_>, out: &mut [MaybeUninit<f32>]) {
        let ([input, output], taps, pixels) = (self.channels, self.taps(), self.pixels());
        let (together, each) = (self.together(), self.fold_channels());
        // For each group of images and each part of the channels, the maps.
        let mut tasks = Vec::new();
        for (group, images) in out.chunks_mut(together * input * pixels).enumerate() {
            let first = tasks.len();
            let channels = parts(input, each);
            tasks.extend(channels.map(|channels| (group * together, channels, Vec::new())));
            for image in images.chunks_mut(input * pixels) {
                let maps = image.chunks_mut(each * pixels);
                tasks[first..].iter_mut().zip(maps).for_each(|(task, maps)| task.2.push(maps));
            }
        }
        let task = |(columns, taken): &mut (Vec<f32>, Vec<f32>), task: Task<'_>| {
            let (start, channels, maps) = task;
            let mut maps: Vec<&mut [f32]> =
                maps.into_iter().map(|maps| filled(maps, 0.0)).collect();
            let rows = channels.len() * taps;
            let weight = weight.columns(channels.start * taps..channels.end * taps).transposed();
            let tiles: Vec<Tile> = match together {
                1 => self.bands(start).collect(),
                _ => vec![self.group(start)],
            };
            for tile in tiles {
                let seen = self.tile_pixels(&tile);
                columns.resize(rows * seen, 0.0);
                let gradient = self.gradient(gradient, output, &tile, taken);
                MatrixMut::rows(columns, rows).product(false, weight, gradient);
                for (place, maps) in maps.iter_mut().enumerate() {
                    let from = &columns[place * self.output_pixels()..];
                    self.fold(from, seen, tile.rows.clone(), maps);
                }
            }
        };
        tasks.into_par_iter().for_each_init(Default::default, task);
    }

    /// Channels of the maps that a part of columns which are added up takes.
    pub(crate) fn fold_channels(&self) -> usize {
        let groups = self.batch.div_ceil(self.together());
        self.each(self.channels[0], FOLDED, self.taps(), groups)
    }

    /// The gradient of the weight from that of the result.
    pub fn of_weight(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        if let Some(winograd) = self.winograd() {
            return winograd.of_weight(maps, gradient);
        }
        let ([input, output], taps) = (self.channels, self.taps());
        if self.turns_to_fewer() {
            let turned = self.turned();
            let found = turned.sum_products(gradient, maps);
            return turned.flipped(Matrix::rows(&found, [input, output * taps]));
        }
        self.sum_products(maps, gradient)
    }

    /// The same as sums over tiles.
    fn sum_products(&self, maps: Maps<'_>, gradient: Maps<'_>) -> Vec<f32> {
        let ([input, output], taps) = (self.channels, self.taps());
        let depth = input * taps;
        let tiles = self.tiles();
        let each = self.sum_channels();
        let sums = self.sums(tiles.len());
        let mut others = Vec::new();
        let write_all = |out: &mut [MaybeUninit<f32>], others: &mut [MaybeUninit<f32>]| {
            let all = std::iter::once(out).chain(others.chunks_mut(output * depth));
            let tiles = tiles.chunks(tiles.len().div_ceil(sums));
            let tasks: Vec<_> = all
                .zip(tiles)
                .flat_map(|(sum, tiles)| {
                    // SAFETY: the product of the first tile is not added.
                    #[expect(unsafe_code, reason = "sums are not cleared")]
                    let sum = unsafe { MatrixMut::unwritten(sum, output) };
                    let columns = parts(input, each).zip(sum.columns(each * taps));
                    columns.map(move |(channels, sum)| (tiles, channels, sum))
                })
                .collect();
            tasks.into_par_iter().for_each_init(
                <(Vec<f32>, Vec<f32>)>::default,
                |scratch, task| {
                    let (tiles, channels, mut sum) = task;
                    let (columns, taken) = scratch;
                    for (place, tile) in tiles.iter().enumerate() {
                        let (gradient, add) =
                            (self.gradient(gradient, output, tile, taken), place > 0);
                        if self.is_pointwise() && tile.is_of_one() {
                            let seen = self.seen(maps, tile).transposed().columns(channels.clone());
                            sum.product(add, gradient, seen);
                            continue;
                        }
                        let rows = self.columns(maps, tile, channels.clone(), columns);
                        let pixels = self.tile_pixels(tile);
                        let columns = Matrix::rows(&columns[..rows * pixels], [rows, pixels]);
                        sum.product(add, gradient, columns.transposed());
                    }
                },
            );
        };
        // SAFETY: each sum has a tile, whose product with all channels is written.
        #[expect(unsafe_code, reason = "sums are not cleared before they are written")]
        let (mut out, others) = unsafe {
            written(output * depth, |out| {
                let count = (sums - 1) * output * depth;
                written_in(&mut others, count, |others| write_all(out, others))
            })
        };
        add_sums(&mut out, others);
        out
    }

    /// Channels of the maps that a part of the gradient of a weight takes.
    pub(crate) fn sum_channels(&self) -> usize {
        self.each(self.channels[0], WEIGHTS, self.taps(), self.sums(self.tile_count()))
    }

    /// How many sums of parts the gradient of a weight is made of.
    pub(crate) fn sums(&self, tiles: usize) -> usize {
        let ([input, output], taps) = (self.channels, self.taps());
        let columns = input.div_ceil((WEIGHTS / taps).max(1));
        let most = (1 + SUMS / (output * input * taps)).min(PARTS.div_ceil(columns)).min(tiles);
        // Only as many as have something to sum.
        tiles.div_ceil(tiles.div_ceil(most))
    }

    /// The columns of a tile, in `columns`: for each of so many rows those of the images side by side.
    fn columns(
        &self,
        maps: Maps<'_>,
        tile: &Tile,
        channels: Range<usize>,
        columns: &mut Vec<f32>,
    ) -> usize {
        let rows = channels.len() * self.taps();
        columns.resize(rows * self.tile_pixels(tile), 0.0);
        self.unfold_tile(maps, tile, channels, columns);
        rows
    }

    /// The same into as much room as they take.
    fn unfold_tile(
        &self,
        maps: Maps<'_>,
        tile: &Tile,
        channels: Range<usize>,
        columns: &mut [f32],
    ) {
        for (place, image) in tile.images.clone().enumerate() {
            let columns = &mut columns[place * self.output_pixels()..];
            let image = maps.image(image);
            self.unfold(
                image,
                channels.clone(),
                tile.rows.clone(),
                columns,
                self.tile_pixels(tile),
            );
        }
    }

    /// Whether a tile's columns are its part of the maps.
    pub(crate) fn takes_no_columns(&self) -> bool {
        self.is_pointwise() && self.together() == 1
    }

    /// What a tile of one image sees of the maps, where a pixel sees a pixel.
    fn seen<'a>(&self, maps: Maps<'a>, tile: &Tile) -> Matrix<'a> {
        let image = &maps.image(tile.images.start)[tile.rows.start * self.size[1]..];
        let size = [self.channels[0], self.tile_pixels(tile)];
        Matrix::new(image, size, [self.pixels(), 1])
    }

    /// A tile's part of the result's gradient, of `channels` channels; copied to `taken` where images are
    /// put together.
    fn gradient<'a>(
        &self,
        gradient: Maps<'a>,
        channels: usize,
        tile: &Tile,
        taken: &'a mut Vec<f32>,
    ) -> Matrix<'a> {
        let (pixels, seen) = (self.output_pixels(), self.tile_pixels(tile));
        if tile.is_of_one() {
            let image = &gradient.image(tile.images.start)[tile.rows.start * self.output()[1]..];
            return Matrix::new(image, [channels, seen], [pixels, 1]);
        }
        taken.resize(channels * seen, 0.0);
        for (place, image) in tile.images.clone().enumerate() {
            let planes = gradient.image(image).chunks_exact(pixels);
            for (row, plane) in taken.chunks_exact_mut(seen).zip(planes) {
                row[place * pixels..][..pixels].copy_from_slice(plane);
            }
        }
        Matrix::rows(taken, [channels, seen])
    }

    fn tiles(&self) -> Vec<Tile> {
        match self.together() {
            1 => (0..self.batch).flat_map(|image| self.bands(image)).collect(),
            together => (0..self.batch).step_by(together).map(|at| self.group(at)).collect(),
        }
    }

    /// How many tiles the batch is made of.
    pub(crate) fn tile_count(&self) -> usize {
        match self.together() {
            1 => self.batch * self.output()[0].div_ceil(self.band()),
            together => self.batch.div_ceil(together),
        }
    }

    /// How many images are put together.
    pub(crate) fn together(&self) -> usize {
        match self.output_pixels() {
            pixels if pixels < FEW => (PIXELS / pixels).min(self.batch).max(1),
            _ => 1,
        }
    }

    /// The images put together from `start` on.
    fn group(&self, start: usize) -> Tile {
        let images = start..(start + self.together()).min(self.batch);
        Tile { images, rows: 0..self.output()[0] }
    }

    /// Rows of an image that are computed together.
    pub(crate) fn band(&self) -> usize {
        let bands = self.output_pixels().div_ceil(PIXELS);
        self.output()[0].div_ceil(bands)
    }

    fn bands(&self, image: usize) -> impl Iterator<Item = Tile> + use<> {
        let images = image..image + 1;
        parts(self.output()[0], self.band()).map(move |rows| Tile { images: images.clone(), rows })
    }

    fn tile_pixels(&self, tile: &Tile) -> usize {
        tile.images.len() * tile.rows.len() * self.output()[1]
    }
}

/// Adds sums of as many values, which lie behind one another, to `out` in their order.
pub(crate) fn add_sums(out: &mut [f32], others: &[f32]) {
    let count = out.len();
    out.par_chunks_mut(ADDED).enumerate().for_each(|(part, out)| {
        for sum in others.chunks(count) {
            let sum = &sum[part * ADDED..];
            out.iter_mut().zip(sum).for_each(|(out, sum)| *out += sum);
        }
    });
}

/// The first of some images, some of their channels, and those of each image.
type Task<'a> = (usize, Range<usize>, Vec<&'a mut [MaybeUninit<f32>]>);

/// From a row for each channel, with the images side by side, to images one after the other.
fn scatter(rows: &[f32], images: usize, pixels: usize, out: &mut [MaybeUninit<f32>]) {
    let channels = out.len() / (images * pixels);
    for (image, out) in out.chunks_exact_mut(channels * pixels).enumerate() {
        let rows = rows.chunks_exact(images * pixels);
        for (out, row) in out.chunks_exact_mut(pixels).zip(rows) {
            out.write_copy_of_slice(&row[image * pixels..][..pixels]);
        }
    }
}

#[cfg(test)]
mod tests;
