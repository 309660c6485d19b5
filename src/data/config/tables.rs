//! The table that says how a data set lies on disk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::layouts::*;

/// One table for each layout; which of them may be given is checked where it stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LayoutTables {
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
