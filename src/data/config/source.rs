//! `[[data.sources]]`: several data sets in one run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layouts::*;

/// `[[data.sources]]`: one of several data sets; exactly one layout table must be given in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// The heads that it supplies labels for; when absent, every head of which it has a label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<Vec<String>>,
    /// What this data set calls a head's label (or a class of a `multiclass` head) where the names
    /// differ: `labels = { "Pleural Effusion" = "Effusion" }`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// A folder in CheXpert's layout: `train.csv`, perhaps `valid.csv`, and the images they name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chexpert: Option<ChexpertConfig>,
    /// A folder in MIMIC-CXR-JPG's or MIMIC-CXR's layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mimic: Option<MimicConfig>,
    /// A folder in NIH ChestX-ray14's layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nih: Option<NihConfig>,
    /// A folder in PadChest's layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padchest: Option<PadchestConfig>,
    /// A folder in VinDr-CXR's layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vindr: Option<VindrConfig>,
    /// A folder in MURA's layout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mura: Option<MuraConfig>,
    /// Any table of images and labels: CSV, gzip'd CSV or Parquet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvConfig>,
    /// NumPy arrays of images and targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrays: Option<ArraysConfig>,
    /// Synthetic chest-like radiographs, written on first use and then read like any other data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomConfig>,
}
