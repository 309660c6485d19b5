//! Decoded and resized images, kept between epochs (in memory) or runs (on disk).
//!
//! What is kept is what follows from the file and the transform alone: random changes and the scale
//! come after it.

mod disk;
mod record;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use super::config::{CacheConfig, ImageConfig};
use super::dataset::Sample;
use super::error::DataError;
use super::resize::Fitted;
use disk::DiskCache;

/// Where images are kept.
pub struct Cache {
    place: Place,
}

enum Place {
    Off,
    Memory(RwLock<HashMap<(PathBuf, Option<usize>), Fitted>>),
    Disk(Box<DiskCache>),
}

/// How full a cache is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filling {
    /// Images of the data set that are kept.
    pub kept: usize,
    /// Images that are not.
    pub missing: usize,
    /// Bytes on disk or in memory.
    pub bytes: u64,
}

impl Cache {
    /// Keeps nothing.
    pub fn off() -> Self {
        Self { place: Place::Off }
    }

    /// Opens the cache of a configuration; on disk it is made where there is none.
    ///
    /// # Errors
    /// A folder that cannot be written or read.
    pub fn open(config: &CacheConfig, image: &ImageConfig) -> Result<Self, DataError> {
        let place = match config {
            CacheConfig::Off(_) => Place::Off,
            CacheConfig::Memory(_) => Place::Memory(RwLock::default()),
            CacheConfig::Disk(disk) => Place::Disk(Box::new(DiskCache::open(disk, image)?)),
        };
        Ok(Self { place })
    }

    /// The sample's image as it is kept, or as `make` makes it, which is then kept.
    ///
    /// # Errors
    /// Those of `make`, which are not kept.
    pub(super) fn get(
        &self,
        sample: &Sample,
        make: impl FnOnce() -> Result<Fitted, String>,
    ) -> Result<Fitted, String> {
        match &self.place {
            Place::Off => make(),
            Place::Memory(images) => {
                let key = (sample.path.clone(), sample.item);
                let read = images.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(image) = read.get(&key) {
                    return Ok(image.clone());
                }
                drop(read);
                let image = make()?;
                let mut write = images.write().unwrap_or_else(PoisonError::into_inner);
                write.insert(key, image.clone());
                Ok(image)
            }
            Place::Disk(disk) => disk.get(sample, make),
        }
    }

    /// How many of the samples are kept.
    pub fn filling(&self, samples: &[Sample]) -> Filling {
        let (kept, bytes) = match &self.place {
            Place::Off => (0, 0),
            Place::Memory(images) => {
                let images = images.read().unwrap_or_else(PoisonError::into_inner);
                let has =
                    |sample: &&Sample| images.contains_key(&(sample.path.clone(), sample.item));
                let bytes = images.values().map(|image| image.samples.bytes() as u64).sum();
                (samples.iter().filter(has).count(), bytes)
            }
            Place::Disk(disk) => {
                (samples.iter().filter(|sample| disk.has(sample)).count(), disk.bytes())
            }
        };
        Filling { kept, missing: samples.len() - kept, bytes }
    }

    /// Refuses to begin what cannot end: `missing` more images than the disk has room for.
    ///
    /// # Errors
    /// Names the bytes that are needed and free.
    pub fn check_room(&self, missing: usize) -> Result<(), DataError> {
        match &self.place {
            Place::Disk(disk) => disk.check_room(missing),
            Place::Off | Place::Memory(_) => Ok(()),
        }
    }

    /// Why images are no longer kept, told once.
    pub fn take_warning(&self) -> Option<String> {
        match &self.place {
            Place::Disk(disk) => disk.take_warning(),
            Place::Off | Place::Memory(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
