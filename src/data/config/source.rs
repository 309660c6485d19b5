//! `[[data.sources]]`: several data sets in one run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::DataConfig;
use super::layouts::*;

/// `[[data.sources]]`: one of several data sets; exactly one layout table must be given in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SourceConfig {
    /// The heads that this data set supplies labels for; all heads that it has a label of when this
    /// is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["findings"])]
    pub heads: Option<Vec<String>>,
    /// What this data set calls a head's label, or a class of a `multiclass` head, where the names
    /// differ.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(example = serde_json::json!({ "Pleural Effusion": "Effusion" }))]
    pub labels: BTreeMap<String, String>,
    /// A folder in CheXpert's layout: `train.csv`, where there is one `valid.csv`, and the images
    /// that they name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chexpert: Option<ChexpertConfig>,
    /// A folder in the layout of MIMIC-CXR-JPG 2.0.0 (Johnson et al. 2019, arXiv:1901.07042), or of
    /// MIMIC-CXR's DICOM files with the tables of the former.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mimic: Option<MimicConfig>,
    /// A folder in the layout of NIH ChestX-ray14 (Wang et al. 2017, arXiv:1705.02315).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nih: Option<NihConfig>,
    /// A folder in the layout of PadChest (Bustos et al. 2020, arXiv:1901.07441).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub padchest: Option<PadchestConfig>,
    /// A folder in the layout of VinDr-CXR (Nguyen et al. 2022, arXiv:2012.15029).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vindr: Option<VindrConfig>,
    /// A folder in the layout of MURA 1.1 (Rajpurkar et al. 2017, arXiv:1712.06957).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mura: Option<MuraConfig>,
    /// Any table with a row for each image: CSV, tab-separated or Parquet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csv: Option<CsvConfig>,
    /// NumPy arrays of images and targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrays: Option<ArraysConfig>,
    /// Synthetic chest-like radiographs, which are drawn on first use and then read like any other
    /// data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phantom: Option<PhantomConfig>,
}

impl DataConfig {
    /// The same data with `labels`: what they call a head's label where the names differ. A layout
    /// that stands directly below `[data]` becomes the only one of `[[data.sources]]`.
    ///
    /// `None` where there are several data sets, which each have names of their own.
    pub fn with_labels(mut self, labels: BTreeMap<String, String>) -> Option<Self> {
        if let [source] = &mut self.sources[..] {
            source.labels.extend(labels);
            return Some(self);
        }
        if !self.sources.is_empty() {
            return labels.is_empty().then_some(self);
        }
        self.sources.push(SourceConfig {
            heads: None,
            labels,
            chexpert: self.chexpert.take(),
            mimic: self.mimic.take(),
            nih: self.nih.take(),
            padchest: self.padchest.take(),
            vindr: self.vindr.take(),
            mura: self.mura.take(),
            csv: self.csv.take(),
            arrays: self.arrays.take(),
            phantom: self.phantom.take(),
        });
        Some(self)
    }
}
