//! `data.cache`: decoded and resized images kept between epochs and runs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::NoSettings;

/// `data.cache`: where decoded and resized images are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CacheConfig {
    /// Nowhere: each epoch decodes anew.
    Off(NoSettings),
    /// In memory, from the first epoch on.
    Memory(NoSettings),
    /// In one memory-mapped file, used again by later runs with the same images and transform.
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
    /// The folder of cache files.
    pub folder: PathBuf,
    /// How many bits a sample keeps.
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
    /// 8 when every image has 8 bits or fewer, else 16.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// 8, whatever the images have: half the space, 256 levels.
    #[serde(rename = "8")]
    Eight,
    /// 16.
    #[serde(rename = "16")]
    Sixteen,
}
