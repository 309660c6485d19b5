//! How fast images are loaded: each stage on one core, and the whole loader.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::cache::Cache;
use super::dataset::Dataset;
use super::error::DataError;
use super::image::{Colour, decode_image, read_file, read_image};
use super::loader::{Loader, LoaderConfig};
use super::resize::{needed, resize};

/// Images per second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Reading the files, on one core; they are in the system's memory after the first time.
    pub read: f64,
    /// Decoding them, on one core.
    pub decode: f64,
    /// Resizing, on one core.
    pub resize: f64,
    /// What comes after the cache, on one core: random changes and scale.
    pub prepare: f64,
    /// The whole loader, every image decoded.
    pub cold: f64,
    /// The whole loader, every image in the cache.
    pub cached: f64,
    /// Threads of the loader.
    pub workers: usize,
    /// Images per batch.
    pub batch_size: usize,
}

/// Times each stage and the whole loader for about `each` per figure. `cache` must be empty or
/// complete; it is filled.
///
/// # Errors
/// An image that cannot be read.
pub fn bench(
    dataset: &Arc<Dataset>,
    config: &LoaderConfig,
    cache: Cache,
    each: Duration,
) -> Result<Rates, DataError> {
    let (size, colour) = (config.image.size, Colour::of_channels(config.image.channels));
    let bad = |reason: String| DataError::Worker(reason);
    let samples = dataset.samples();
    let read = rate(each, |at| {
        let sample = &samples[at % samples.len()];
        if sample.item.is_none() {
            black_box(read_file(&sample.path).map_err(|error| bad(error.to_string()))?);
        }
        Ok(1)
    })?;
    // As many as fit in some 256 MiB, so that the stages see different images.
    let few = samples.len().min(16);
    let files: Vec<Vec<u8>> = samples[..few]
        .iter()
        .map(|sample| read_file(&sample.path).map_err(|error| bad(error.to_string())))
        .collect::<Result<_, _>>()?;
    let decode = rate(each, |at| {
        match samples[at % few].item {
            None => {
                black_box(decode_image(&files[at % few], Some(needed(size)), colour).map_err(bad)?)
            }
            item => {
                black_box(read_image(&samples[at % few].path, item, None, colour).map_err(bad)?)
            }
        };
        Ok(1)
    })?;
    let images = samples[..few].iter().map(|sample| {
        read_image(&sample.path, sample.item, Some(needed(size)), colour).map_err(bad)
    });
    let images = images.collect::<Result<Vec<_>, _>>()?;
    let fit = config.image.fit;
    let resized = rate(each, |at| {
        black_box(resize(&images[at % few], size, fit));
        Ok(1)
    })?;
    let fitted: Vec<_> = images.iter().map(|image| resize(image, size, fit)).collect();
    let prepare = rate(each, |at| {
        let image = fitted[at % few].clone();
        black_box(super::loader::prepared(image, config, 0, at));
        Ok(1)
    })?;
    let cold = whole(dataset, config, Cache::off(), each)?;
    let cache = Arc::new(cache);
    for batch in Loader::new(dataset.clone(), config.clone(), cache.clone()).epoch(0, 0) {
        batch?;
    }
    let cached = through(&Loader::new(dataset.clone(), config.clone(), cache), each)?;
    let (workers, batch_size) = (config.workers, config.batch_size);
    Ok(Rates { read, decode, resize: resized, prepare, cold, cached, workers, batch_size })
}

fn whole(
    dataset: &Arc<Dataset>,
    config: &LoaderConfig,
    cache: Cache,
    each: Duration,
) -> Result<f64, DataError> {
    through(&Loader::new(dataset.clone(), config.clone(), Arc::new(cache)), each)
}

/// Images per second through a loader, epoch after epoch.
fn through(loader: &Loader, each: Duration) -> Result<f64, DataError> {
    let (begin, mut images) = (Instant::now(), 0);
    for epoch in 0.. {
        for batch in loader.epoch(epoch, 0) {
            images += black_box(batch?).indices.len();
            if begin.elapsed() > each {
                return Ok(images as f64 / begin.elapsed().as_secs_f64());
            }
        }
    }
    Ok(0.0)
}

/// How often `work` does one more in a second.
fn rate(
    each: Duration,
    mut work: impl FnMut(usize) -> Result<usize, DataError>,
) -> Result<f64, DataError> {
    work(0)?;
    let (begin, mut done) = (Instant::now(), 0);
    while begin.elapsed() < each {
        done += work(done)?;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}
