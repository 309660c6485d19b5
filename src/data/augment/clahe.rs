//! Contrast-limited adaptive histogram equalisation (Zuiderveld 1994, "Contrast Limited Adaptive
//! Histogram Equalization", Graphics Gems IV).

use rand::RngExt;

use super::super::area::Area;
use super::super::config::{AugmentConfig, Clahe};
use super::super::prepare::{Place, Resized};
use super::blur::mirrored;

/// Levels that are told apart. Between two of them a mapping is a straight line, so that images of
/// more than 8 bits keep theirs.
const LEVELS: usize = 256;
type Mapping = [f32; LEVELS];

/// Equalises, with the probability given.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    let Some(clahe) = &config.clahe else { return };
    if place.stream("augment/clahe").random::<f64>() < clahe.probability {
        equalise(image, clahe);
    }
}

/// As OpenCV's `createCLAHE`: a mapping for each tile, and each pixel between those of the four
/// nearest tiles.
pub(super) fn equalise(image: &mut Resized, clahe: &Clahe) {
    let (content, width) = (image.content, image.size[1]);
    for plane in image.planes_mut() {
        Tiles::new(plane, width, content, clahe).apply(plane, width, content);
    }
}

struct Tiles {
    /// Tiles down and across, and the height and width of each.
    count: [usize; 2],
    side: [usize; 2],
    /// Row by row.
    mappings: Vec<Mapping>,
}

impl Tiles {
    fn new(plane: &[f32], width: usize, content: Area, clahe: &Clahe) -> Self {
        // No tile is smaller than a pixel.
        let shape = [content.height, content.width];
        let count = [0, 1].map(|axis| clahe.tiles[axis].clamp(1, shape[axis]));
        let side = [0, 1].map(|axis| shape[axis].div_ceil(count[axis]));
        let rows: Vec<&[f32]> = content.rows(plane, width).collect();
        let tiles = (0..count[0]).flat_map(|down| (0..count[1]).map(move |across| (down, across)));
        let mappings = tiles.map(|(down, across)| {
            let mut histogram = [0; LEVELS];
            for row in down * side[0]..(down + 1) * side[0] {
                // Tiles that reach beyond the image see it mirrored.
                let row = rows[mirrored(row as isize, rows.len())];
                for column in across * side[1]..(across + 1) * side[1] {
                    let level = row[mirrored(column as isize, row.len())];
                    histogram[(level * (LEVELS - 1) as f32 + 0.5) as usize & (LEVELS - 1)] += 1;
                }
            }
            mapping(histogram, side[0] * side[1], clahe.clip_limit)
        });
        Self { count, side, mappings: mappings.collect() }
    }

    fn apply(&self, plane: &mut [f32], width: usize, content: Area) {
        let [_, across] = self.count;
        let columns: Vec<(usize, usize, f32)> =
            (0..content.width).map(|column| self.between(column, 1)).collect();
        let mut blended = vec![[0.0; LEVELS]; across];
        for (place, row) in content.rows_mut(plane, width).enumerate() {
            let (above, below, t) = self.between(place, 0);
            let (above, below) =
                (&self.mappings[above * across..], &self.mappings[below * across..]);
            for ((blended, above), below) in blended.iter_mut().zip(above).zip(below) {
                for ((level, above), below) in blended.iter_mut().zip(above).zip(below) {
                    *level = above + (below - above) * t;
                }
            }
            for (level, &(left, right, s)) in row.iter_mut().zip(&columns) {
                let position = *level * (LEVELS - 1) as f32;
                let step = (position as usize).min(LEVELS - 2);
                let share = position - step as f32;
                let of =
                    |mapping: &Mapping| mapping[step] + (mapping[step + 1] - mapping[step]) * share;
                let (left, right) = (of(&blended[left]), of(&blended[right]));
                *level = left + (right - left) * s;
            }
        }
    }

    /// The tiles whose centres a pixel lies between along an axis, and its share of the second.
    fn between(&self, place: usize, axis: usize) -> (usize, usize, f32) {
        let position = place as f32 / self.side[axis] as f32 - 0.5;
        let last = self.count[axis] - 1;
        let next = (position + 1.0) as usize;
        (next.saturating_sub(1), next.min(last), position + 1.0 - next as f32)
    }
}

/// Where each level goes: the share of pixels up to it, of a histogram whose peaks are cut off and
/// spread over all levels.
fn mapping(mut histogram: [usize; LEVELS], pixels: usize, clip_limit: f64) -> Mapping {
    let limit = ((clip_limit * pixels as f64 / LEVELS as f64) as usize).max(1);
    let mut excess = 0;
    for count in &mut histogram {
        excess += count.saturating_sub(limit);
        *count = (*count).min(limit);
    }
    let (each, rest) = (excess / LEVELS, excess % LEVELS);
    histogram.iter_mut().for_each(|count| *count += each);
    // What does not divide goes to levels at equal distances.
    let chosen = histogram.iter_mut().step_by((LEVELS / rest.max(1)).max(1));
    chosen.take(rest).for_each(|count| *count += 1);
    let mut sum = 0;
    histogram.map(|count| {
        sum += count;
        sum as f32 / pixels as f32
    })
}
