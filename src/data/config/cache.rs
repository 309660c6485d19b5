//! `data.cache`: decoded and resized images kept between epochs and runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::NoSettings;

/// `data.cache`: where decoded and resized images are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheConfig {
    /// Images are kept nowhere: each epoch decodes them anew.
    Off(NoSettings),
    /// Images are kept in memory, from the first epoch on.
    Memory(NoSettings),
    /// Images are kept in one memory-mapped file, which later runs with the same images and
    /// settings use again.
    Disk(DiskCacheConfig),
}

impl Default for CacheConfig {
    fn default() -> Self {
        Self::Off(NoSettings {})
    }
}

/// `[data.cache.disk]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DiskCacheConfig {
    /// The folder of cache files. A relative path counts from the folder in which the program is
    /// started.
    #[schemars(example = &"/scratch/cache")]
    pub folder: PathBuf,
    /// How many bits of each sample are kept.
    pub bits: CacheBits,
}

impl Default for DiskCacheConfig {
    fn default() -> Self {
        Self { folder: "datasets/cache".into(), bits: CacheBits::Auto }
    }
}

/// How many bits of a sample a cache keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CacheBits {
    /// 8 where every image has 8 bits or fewer, else 16.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// 8, whatever the images have: half the space, and 256 levels.
    #[serde(rename = "8")]
    Eight,
    /// 16, whatever the images have.
    #[serde(rename = "16")]
    Sixteen,
}
