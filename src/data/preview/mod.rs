//! Some images as the model sees them, on one sheet: what came of the labels and of the random
//! changes is best seen.
//!
//! The images go through the loader, so what is shown is what a run has in that epoch, mixing
//! excepted: the images of the sheet are mixed with one another.

mod caption;
mod sheet;

use std::sync::Arc;

use rand::seq::index;

use self::caption::caption;
use self::sheet::{Sheet, Tile};
use super::batch::Batch;
use super::cache::Cache;
use super::dataset::Dataset;
use super::error::DataError;
use super::loader::{Loader, LoaderConfig};
use super::normalize::fixed_levels;
use crate::model::HeadConfig;
use crate::random::stream;

/// Side of a shown image in pixels, at most, and the least that small ones are enlarged to.
const LARGEST: usize = 320;
const SMALLEST: usize = 160;
/// Images in a row where there is one picture of each.
const ACROSS: usize = 4;

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub struct PreviewSettings {
    /// How the loader makes batches: with `augment`, each image is shown as it is and in several
    /// epochs; without, once.
    pub loader: LoaderConfig,
    /// How many images, drawn from the data by the loader's seed; fewer where there are fewer.
    pub count: usize,
    /// How many epochs, from the first on.
    pub epochs: usize,
}

/// A sheet of images.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The file's bytes.
    pub png: Vec<u8>,
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// Different images on it.
    pub images: usize,
    /// Those that could not be read, with `on_bad_image = "skip"`.
    pub skipped: Vec<String>,
}

/// Draws images of `dataset`, each decoded once with a `cache`, and writes file name, epoch, labels and range of values below each.
///
/// # Errors
/// An image that cannot be read, with `on_bad_image = "stop"`.
pub fn preview(
    dataset: Arc<Dataset>,
    heads: &[HeadConfig],
    cache: Arc<Cache>,
    settings: &PreviewSettings,
) -> Result<Preview, DataError> {
    let mut random = stream(settings.loader.seed, "preview", &[]);
    let count = settings.count.min(dataset.len());
    let chosen = index::sample(&mut random, dataset.len(), count).into_vec();
    let show = |epoch: Option<usize>| -> Result<Batch, DataError> {
        let augment = epoch.and(settings.loader.augment);
        let loader = LoaderConfig { augment, ..settings.loader.clone() };
        let loader = Loader::new(dataset.clone(), loader, cache.clone());
        let batch = loader.images(epoch.unwrap_or(0) as u64, chosen.clone()).next();
        batch.unwrap_or_else(|| Err(DataError::Config("there is no image to show".to_owned())))
    };
    let plain = show(None)?;
    let epochs = if settings.loader.augment.is_some() { settings.epochs } else { 0 };
    let changed = (1..=epochs).map(|epoch| show(Some(epoch))).collect::<Result<Vec<_>, _>>()?;
    let columns = if epochs > 0 { 1 + epochs } else { ACROSS.min(count.max(1)) };
    let mut sheet = Sheet::new(columns);
    for place in 0..plain.indices.len() {
        let picture = Picture { dataset: &dataset, heads, settings, plain: &plain, place };
        sheet.add(picture.tile(&plain, None));
        for (epoch, batch) in (1..).zip(&changed) {
            sheet.add(picture.tile(batch, Some(epoch)));
        }
    }
    let (png, [height, width]) = sheet.png()?;
    let skipped = plain.skipped.iter().map(ToString::to_string).collect();
    Ok(Preview { png, width, height, images: plain.indices.len(), skipped })
}

/// One of the images, in all its tiles.
struct Picture<'a> {
    dataset: &'a Dataset,
    heads: &'a [HeadConfig],
    settings: &'a PreviewSettings,
    plain: &'a Batch,
    /// Its place in all batches.
    place: usize,
}

impl Picture<'_> {
    /// Its tile in `batch`: that of `epoch`, or as it is.
    fn tile(&self, batch: &Batch, epoch: Option<usize>) -> Tile {
        let [_, channels, height, width] = batch.shape;
        let values = first_plane(batch, self.place);
        let channel =
            (channels != 1 && channels != 3).then(|| format!(", channel 1 of {channels}"));
        let sample = &self.dataset.samples()[batch.indices[self.place]];
        let item = sample.item.map_or_else(String::new, |item| format!(", image {item}"));
        let epoch = epoch.map_or("as it is".to_owned(), |epoch| format!("epoch {epoch}"));
        let [least, most] = range(values);
        let mut lines = vec![
            format!("{}{item}", sample.path.display()),
            format!("{epoch}, {} to {}{}", short(least), short(most), channel.unwrap_or_default()),
        ];
        lines.extend(
            self.heads
                .iter()
                .zip(&batch.targets)
                .map(|(head, targets)| caption(head, targets, self.place)),
        );
        let pixels = self.shown(values);
        Tile::new(&pixels, [height, width], [SMALLEST, LARGEST], lines)
    }

    /// Grey levels of what the model sees. Where the scale is another for each image, or black and
    /// white are not 0 and 1 (in arrays), the image as it is spans black to white in all its tiles.
    fn shown(&self, values: &[f32]) -> Vec<u8> {
        let plain = range(first_plane(self.plain, self.place));
        let image = &self.settings.loader.image;
        let [black, white] = match fixed_levels(&image.normalize, image.channels) {
            Some([black, white]) if plain[0] >= black && plain[1] <= white => [black, white],
            _ => plain,
        };
        let span = (white - black).max(f32::MIN_POSITIVE);
        let grey = |value: &f32| ((value - black) / span * 255.0).round() as u8;
        values.iter().map(grey).collect()
    }
}

fn first_plane(batch: &Batch, place: usize) -> &[f32] {
    let [_, _, height, width] = batch.shape;
    &batch.images[place][..height * width]
}

fn range(values: &[f32]) -> [f32; 2] {
    let least = values.iter().copied().fold(f32::INFINITY, f32::min);
    let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    [least, most]
}

/// A number with three digits.
fn short(number: f32) -> String {
    if number.abs() >= 100.0 || number == number.trunc() {
        return format!("{number:.0}");
    }
    format!("{number:.2}")
}

#[cfg(test)]
mod tests;
