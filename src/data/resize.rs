//! Bringing an image of any shape to the size the model sees.

use super::area::Area;
use super::config::Fit;
use super::image::{RawImage, Samples};

/// An image at the size the model sees, as it was decoded otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    /// Height and width.
    pub size: [usize; 2],
    /// 1, but for arrays.
    pub planes: usize,
    /// `[planes, height, width]`.
    pub samples: Samples,
    /// What the image fills; the rest of a letterbox is 0.
    pub content: Area,
}

/// The image at `size` (height and width), in the samples it has; what a letterbox leaves over is
/// black (0).
///
/// Where it gets smaller, each pixel is the mean over the area it covers, as OpenCV's `INTER_AREA`,
/// so no pixel of the source is skipped; where it gets larger, it is interpolated linearly.
pub fn resize(image: &RawImage, size: [usize; 2], fit: Fit) -> Fitted {
    let (part, content) = placed(image, size, fit);
    let inner = [content.height, content.width];
    let scaling = Scaling::new(image, part, inner);
    let samples = match &image.samples {
        Samples::U8(values) => Samples::U8(scaling.planes(values, size)),
        Samples::U16(values) => Samples::U16(scaling.planes(values, size)),
        Samples::F32(values) => Samples::F32(scaling.planes(values, size)),
    };
    Fitted { size, planes: image.planes, samples, content }
}

/// The part `[left, top, width, height]` of the image that is seen, in its pixels, and what that fills
/// of a plane of `size`.
pub(super) fn placed(image: &RawImage, size: [usize; 2], fit: Fit) -> ([f64; 4], Area) {
    let [height, width] = size;
    let across = width as f64 / image.width as f64;
    let down = height as f64 / image.height as f64;
    let whole = [0.0, 0.0, image.width as f64, image.height as f64];
    let (part, inner) = match fit {
        Fit::Stretch => (whole, size),
        Fit::Crop => {
            let factor = across.max(down);
            let kept =
                [(width as f64 / factor).min(whole[2]), (height as f64 / factor).min(whole[3])];
            let corner = [(whole[2] - kept[0]) / 2.0, (whole[3] - kept[1]) / 2.0];
            ([corner[0], corner[1], kept[0], kept[1]], size)
        }
        Fit::Letterbox => (whole, letterboxed(image, size)),
    };
    let [top, left] = [(height - inner[0]) / 2, (width - inner[1]) / 2];
    (part, Area { top, left, height: inner[0], width: inner[1] })
}

/// The least height and width of a source from which nothing is lost at `size`: what a decoder may
/// reduce an image to. The image's own shape is not known yet.
pub fn needed(size: [usize; 2]) -> [usize; 2] {
    // Twice the size keeps an area of four pixels for each.
    size.map(|side| 2 * side)
}

/// Height and width of the image inside a letterbox.
fn letterboxed(image: &RawImage, [height, width]: [usize; 2]) -> [usize; 2] {
    let factor = (width as f64 / image.width as f64).min(height as f64 / image.height as f64);
    let fitted =
        |length: usize, most: usize| ((length as f64 * factor).round() as usize).clamp(1, most);
    [fitted(image.height, height), fitted(image.width, width)]
}

/// A number that pixels are held in.
trait Sample: Copy + Default + PartialEq {
    fn wide(self) -> f32;
    fn narrow(value: f32) -> Self;
}

macro_rules! unsigned_sample {
    ($type:ty) => {
        impl Sample for $type {
            fn wide(self) -> f32 {
                f32::from(self)
            }

            fn narrow(value: f32) -> Self {
                // The cast saturates.
                (value + 0.5) as Self
            }
        }
    };
}

unsigned_sample!(u8);
unsigned_sample!(u16);

impl Sample for f32 {
    fn wide(self) -> f32 {
        self
    }

    fn narrow(value: f32) -> Self {
        value
    }
}

/// How one image becomes another, whatever its samples are.
struct Scaling {
    source: [usize; 2],
    inner: [usize; 2],
    rows: Axis,
    columns: Axis,
}

impl Scaling {
    /// From the part `[left, top, width, height]` of the image to `inner` rows and columns.
    fn new(image: &RawImage, [left, top, width, height]: [f64; 4], inner: [usize; 2]) -> Self {
        Self {
            source: [image.height, image.width],
            inner,
            rows: Axis::new(image.height, top, height, inner[0]),
            columns: Axis::new(image.width, left, width, inner[1]),
        }
    }

    /// Every plane scaled, in the middle of a black plane of `size`.
    fn planes<T: Sample>(&self, values: &[T], size: [usize; 2]) -> Vec<T> {
        let [height, width] = self.source;
        let area = size[0] * size[1];
        let planes = values.len() / (height * width);
        let mut all = vec![T::default(); planes * area];
        for (source, target) in values.chunks_exact(height * width).zip(all.chunks_exact_mut(area))
        {
            self.plane(source, target, size);
        }
        all
    }

    fn plane<T: Sample>(&self, source: &[T], target: &mut [T], size: [usize; 2]) {
        let width = self.source[1];
        let [top, left] = [(size[0] - self.inner[0]) / 2, (size[1] - self.inner[1]) / 2];
        let mut sums = vec![0.0_f32; width];
        for (row, (first, weights)) in self.rows.spans().enumerate() {
            let start = (top + row) * size[1] + left;
            let line = &mut target[start..start + self.inner[1]];
            if let ([_], true) = (weights, self.columns.is_identity()) {
                let from = first * width + self.columns.first[0];
                line.copy_from_slice(&source[from..from + self.inner[1]]);
                continue;
            }
            sums.fill(0.0);
            for (at, weight) in weights.iter().enumerate() {
                let from = &source[(first + at) * width..][..width];
                for (sum, value) in sums.iter_mut().zip(from) {
                    *sum += weight * value.wide();
                }
            }
            match &self.columns.narrow {
                Narrow::Two(columns) => gather(line, &sums, columns),
                Narrow::Three(columns) => gather(line, &sums, columns),
                Narrow::Four(columns) => gather(line, &sums, columns),
                Narrow::None => {
                    for (pixel, (first, weights)) in line.iter_mut().zip(self.columns.spans()) {
                        let terms = sums[first..first + weights.len()].iter().zip(weights);
                        *pixel = T::narrow(terms.map(|(sum, weight)| sum * weight).sum());
                    }
                }
            }
        }
    }
}

/// Each pixel from `N` neighbours: a loop without bounds that change, which the compiler unrolls.
fn gather<T: Sample, const N: usize>(line: &mut [T], sums: &[f32], columns: &[(usize, [f32; N])]) {
    for (pixel, (first, weights)) in line.iter_mut().zip(columns) {
        let from = &sums[*first..*first + N];
        let mut sum = 0.0;
        for at in 0..N {
            sum += from[at] * weights[at];
        }
        *pixel = T::narrow(sum);
    }
}

/// The weights of an axis on which few old pixels make a new one, all of the same number: where
/// there are fewer, the others weigh 0.
enum Narrow {
    Two(Vec<(usize, [f32; 2])>),
    Three(Vec<(usize, [f32; 3])>),
    Four(Vec<(usize, [f32; 4])>),
    None,
}

impl Narrow {
    fn of(axis: &Axis, length: usize) -> Self {
        let most = axis.spans().map(|(_, weights)| weights.len()).max().unwrap_or(0);
        match most {
            0..=2 if length >= 2 => Self::Two(evened(axis, length)),
            3 if length >= 3 => Self::Three(evened(axis, length)),
            4 if length >= 4 => Self::Four(evened(axis, length)),
            _ => Self::None,
        }
    }
}

fn evened<const N: usize>(axis: &Axis, length: usize) -> Vec<(usize, [f32; N])> {
    axis.spans()
        .map(|(first, weights)| {
            // At the end of a row the zeros come before.
            let start = first.min(length - N);
            let mut evened = [0.0; N];
            evened[first - start..first - start + weights.len()].copy_from_slice(weights);
            (start, evened)
        })
        .collect()
}

/// Which pixels of a row (or column) each new one is a weighted mean of.
struct Axis {
    first: Vec<usize>,
    /// Where the weights of each new pixel begin; one more at the end.
    starts: Vec<usize>,
    weights: Vec<f32>,
    narrow: Narrow,
}

impl Axis {
    /// `count` new pixels over `extent` of `length` old ones, from `start` on.
    fn new(length: usize, start: f64, extent: f64, count: usize) -> Self {
        let ratio = extent / count as f64;
        let narrow = Narrow::None;
        let mut axis = Self { first: Vec::new(), starts: vec![0], weights: Vec::new(), narrow };
        for index in 0..count {
            match ratio > 1.0 {
                true => axis.push_area(length, start + index as f64 * ratio, ratio),
                false => axis.push_linear(length, start + (index as f64 + 0.5) * ratio - 0.5),
            }
        }
        axis.narrow = Narrow::of(&axis, length);
        axis
    }

    fn push_area(&mut self, length: usize, from: f64, ratio: f64) {
        let to = from + ratio;
        let first = (from.floor().max(0.0) as usize).min(length - 1);
        let last = (to.ceil() as usize).clamp(first + 1, length);
        let covered =
            |pixel: usize| ((pixel as f64 + 1.0).min(to) - (pixel as f64).max(from)).max(0.0);
        // What rounding lets fall outside is no area.
        let overlaps: Vec<f64> = (first..last).map(covered).collect();
        let total: f64 = overlaps.iter().sum();
        self.first.push(first);
        self.weights.extend(overlaps.iter().map(|overlap| (overlap / total) as f32));
        self.starts.push(self.weights.len());
    }

    fn push_linear(&mut self, length: usize, centre: f64) {
        let centre = centre.clamp(0.0, length as f64 - 1.0);
        let first = centre.floor() as usize;
        let share = (centre - first as f64) as f32;
        self.first.push(first);
        match share > 0.0 && first + 1 < length {
            true => self.weights.extend([1.0 - share, share]),
            false => self.weights.push(1.0),
        }
        self.starts.push(self.weights.len());
    }

    fn spans(&self) -> impl Iterator<Item = (usize, &[f32])> {
        let weights = self.starts.windows(2).map(|pair| &self.weights[pair[0]..pair[1]]);
        self.first.iter().copied().zip(weights)
    }

    /// Whether each new pixel is the next old one.
    fn is_identity(&self) -> bool {
        self.weights.len() == self.first.len()
            && self.first.windows(2).all(|pair| pair[1] == pair[0] + 1)
    }
}

#[cfg(test)]
mod tests;
