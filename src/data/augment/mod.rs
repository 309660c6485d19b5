//! Random changes to training images; one file an operation.
//!
//! Each operation draws from a stream of its own, named by (seed, epoch, image). What changes levels
//! acts on what the image fills, before the geometry moves it, so that a letterbox's bars and what a
//! rotation uncovers keep the level of padding; noise and erasing come last, on the pixels that the model sees. All
//! of the geometry is one bilinear warp: an image is interpolated once.

mod affine;
mod blur;
mod brightness;
mod check;
mod clahe;
mod contrast;
mod erasing;
mod gamma;
mod noise;
mod resized_crop;
mod view;
mod warp;

use std::ops::Range;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

pub use check::check;
pub use view::View;

use self::affine::Affine;
use self::warp::Warp;
use super::area::Area;
use super::config::AugmentConfig;
use super::prepare::{Place, Resized};

/// Changes an image of its `range` as `config` says.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    let range = image.range;
    let changes_levels = config.brightness > 0.0
        || config.contrast > 0.0
        || config.gamma > 0.0
        || config.clahe.is_some();
    // Operations on levels count on 0 for black and 1 for white.
    let rescales = changes_levels && range != [0.0, 1.0];
    if rescales {
        image.rescale(range, [0.0, 1.0]);
    }
    clahe::apply(image, config, place);
    brightness::apply(image, config, place);
    contrast::apply(image, config, place);
    gamma::apply(image, config, place);
    blur::apply(image, config, place);
    // Before the geometry, which blends the image with its padding at the border.
    if rescales {
        image.rescale([0.0, 1.0], range);
    }
    let spans = move_pixels(image, config, place);
    noise::apply(image, &spans, config, place);
    erasing::apply(image, config, place);
}

/// Crops and warps; for each row of the result, the columns that the image fills.
fn move_pixels(image: &mut Resized, config: &AugmentConfig, place: Place) -> Vec<Range<usize>> {
    let part = resized_crop::draw(image.content, config, place);
    move_by(image, &Affine::draw(config, place), part)
}

/// Warps an image, of which a crop leaves `part`; for each row of the result, the columns that it fills.
fn move_by(image: &mut Resized, affine: &Affine, part: Option<Area>) -> Vec<Range<usize>> {
    let warp = Warp::new(affine, part, image.size);
    if warp.moves_nothing() {
        let (content, columns) = (image.content, image.content.left..);
        let columns = columns.start..columns.start + content.width;
        let inside = |row| (content.top..content.top + content.height).contains(&row);
        return (0..image.size[0])
            .map(|row| if inside(row) { columns.clone() } else { 0..0 })
            .collect();
    }
    let padding = image.padding;
    let mut moved = vec![padding; image.levels.len()];
    let pixels = image.size[0] * image.size[1];
    for (plane, moved) in image.planes_mut().zip(moved.chunks_exact_mut(pixels)) {
        warp.apply(plane, moved, padding);
    }
    image.levels = moved;
    warp.spans(image.content)
}

/// Calls `change` with the part of each row that the image fills, in every plane.
fn each_span(image: &mut Resized, spans: &[Range<usize>], mut change: impl FnMut(&mut [f32])) {
    let width = image.size[1];
    for plane in image.planes_mut() {
        for (row, span) in plane.chunks_exact_mut(width).zip(spans) {
            change(&mut row[span.clone()]);
        }
    }
}

/// A number between −`most` and `most`.
fn within(random: &mut ChaCha8Rng, most: f64) -> f64 {
    most * (2.0 * random.random::<f64>() - 1.0)
}

/// A number between the two, evenly distributed in its logarithm.
fn in_ratio(random: &mut ChaCha8Rng, [low, high]: [f64; 2]) -> f64 {
    (low.ln() + random.random::<f64>() * (high.ln() - low.ln())).exp()
}

#[cfg(test)]
mod tests;
