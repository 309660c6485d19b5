//! The sheet against what the loader gives.

use super::*;
use crate::data::image::png::decode;
use crate::data::image::{Colour, RawImage, Samples};
use crate::data::{Sampler, Splits, open};

fn phantom(folder: &std::path::Path) -> (Splits, Vec<HeadConfig>, LoaderConfig) {
    let text = format!(
        "image = {{ size = [32, 32], normalize = 'xrv' }}\nvalidation = {{ fraction = 0.2 }}\n\
         [phantom]\nroot = {:?}\npatients = 12\nsize = 40\nseed = 2\n\
         [augment]\nrotate_degrees = 20",
        folder.join("phantom")
    );
    let config = toml::from_str(&text).expect("reads");
    let head = "name = 'h'\ntask = 'multilabel'\nlabels = ['Cardiomegaly', 'Consolidation']";
    let heads = vec![toml::from_str(head).expect("reads")];
    let splits = open(&config, &heads, 1, crate::data::untold).expect("opens");
    (splits, heads, LoaderConfig::training(&config, 4, 5, Sampler::Shuffle))
}

fn off() -> Arc<Cache> {
    Arc::new(Cache::off())
}

/// The tile of the sheet in that row and column, `side` pixels square, as 32×32 pixels.
fn tile(sheet: &RawImage, across: usize, down: usize, at: [usize; 2]) -> Vec<u8> {
    let Samples::U8(pixels) = &sheet.samples else { unreachable!("the sheet has 8 bits") };
    let [top, left] = [12 + at[0] * (down + 12), 12 + at[1] * (across + 12)];
    let pixel = |place: usize| {
        let (row, column) = (place / 32 * 5 + 2, place % 32 * 5 + 2);
        pixels[(top + row) * sheet.width + left + column]
    };
    (0..1024).map(pixel).collect()
}

#[test]
fn each_tile_shows_what_the_loader_gives_in_that_epoch() {
    let folder = tempfile::tempdir().expect("is made");
    let (splits, heads, loader) = phantom(folder.path());
    let dataset = Arc::new(splits.train);
    let settings = PreviewSettings { loader: loader.clone(), count: 3, epochs: 2 };
    let drawn = preview(dataset.clone(), &heads, off(), &settings).expect("is drawn");
    assert_eq!(drawn, preview(dataset.clone(), &heads, off(), &settings).expect("is drawn"));
    assert_eq!((drawn.images, drawn.skipped.len()), (3, 0));
    let (sheet, _) = decode(&drawn.png, Colour::Luma).expect("is a PNG");
    assert_eq!([drawn.height, drawn.width], [sheet.height, sheet.width]);
    let across = (drawn.width - 12) / 3 - 12;
    let down = (drawn.height - 12) / 3 - 12;

    let mut of_epochs: Vec<Vec<Vec<u8>>> = Vec::new();
    for epoch in 0..3 {
        let augment = if epoch == 0 { None } else { loader.augment };
        let config = LoaderConfig { augment, ..loader.clone() };
        let batches = Loader::new(dataset.clone(), config, off()).epoch(epoch, 0);
        let mut images = vec![Vec::new(); dataset.len()];
        for batch in batches {
            let batch = batch.expect("loads");
            for (image, index) in batch.images.iter().zip(batch.indices) {
                let grey = |value: &f32| ((value / 1024.0 + 1.0) * 127.5).round() as u8;
                images[index] = image.iter().map(grey).collect();
            }
        }
        of_epochs.push(images);
    }
    for row in 0..3 {
        let plain = tile(&sheet, across, down, [row, 0]);
        let index = of_epochs[0].iter().position(|image| *image == plain);
        let index = index.expect("the first column shows an image as it is");
        for (epoch, images) in of_epochs.iter().enumerate().skip(1) {
            let shown = tile(&sheet, across, down, [row, epoch]);
            assert!(shown == images[index], "row {row}, epoch {epoch}");
            assert_ne!(shown, plain);
        }
    }
}

#[test]
fn without_random_changes_each_image_is_shown_once() {
    let folder = tempfile::tempdir().expect("is made");
    let (splits, heads, loader) = phantom(folder.path());
    let loader = LoaderConfig { augment: None, ..loader };
    let settings = PreviewSettings { loader, count: 100, epochs: 9 };
    let images = splits.validation.len();
    let drawn = preview(Arc::new(splits.validation), &heads, off(), &settings).expect("is drawn");
    assert_eq!(drawn.images, images);
}

#[test]
fn images_that_cannot_be_read_stop_the_preview_or_are_listed() {
    let folder = tempfile::tempdir().expect("is made");
    let (splits, heads, loader) = phantom(folder.path());
    let dataset = Arc::new(splits.train);
    std::fs::write(&dataset.samples()[1].path, b"no image").expect("is written");
    let count = dataset.len();
    let settings = PreviewSettings { loader: loader.clone(), count, epochs: 1 };
    let error = preview(dataset.clone(), &heads, off(), &settings).expect_err("is refused");
    assert!(matches!(error, DataError::BadImage(_)), "{error}");
    let loader = LoaderConfig { on_bad_image: crate::data::OnBadImage::Skip, ..loader };
    let drawn =
        preview(dataset, &heads, off(), &PreviewSettings { loader, ..settings }).expect("is drawn");
    assert_eq!((drawn.images, drawn.skipped.len()), (count - 1, 1));
}
