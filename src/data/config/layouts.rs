//! `[data.chexpert]`, `[data.csv]`, …: the layouts of data sets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[data.chexpert]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChexpertConfig {
    /// The folder that holds `train.csv`.
    pub root: PathBuf,
    /// What a label of −1 (uncertain) becomes in training, for all labels or per label. In
    /// validation such labels count as missing.
    #[serde(default)]
    pub uncertain: Uncertain,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<View>>,
}

/// `[data.phantom]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhantomConfig {
    /// The folder; made on first use by `trainer data phantom` with the settings below.
    pub root: PathBuf,
    /// How many patients, each with one to four images.
    pub patients: usize,
    /// Height and width of the images in pixels, 32 to 3000.
    pub size: usize,
    /// The same seed gives the same files, byte for byte.
    #[serde(default)]
    pub seed: u64,
    /// What a label of −1 (uncertain) becomes in training, for all labels or per label. In
    /// validation such labels count as missing.
    #[serde(default)]
    pub uncertain: Uncertain,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<View>>,
}

/// A radiograph's view, as CheXpert names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum View {
    /// Postero-anterior.
    #[serde(rename = "PA")]
    Pa,
    /// Antero-posterior.
    #[serde(rename = "AP")]
    Ap,
    /// From the side.
    Lateral,
}

/// What becomes of an uncertain label (−1) in training.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UncertainPolicy {
    /// As if it were missing.
    #[default]
    Ignore,
    /// Negative.
    Zeros,
    /// Positive.
    Ones,
    /// A soft label drawn uniformly between the two numbers, the same one every epoch
    /// (Pham et al. 2019, arXiv:1911.06475).
    Smooth([f64; 2]),
}

/// One policy for all labels, or one per label with a `default`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Uncertain {
    /// The same for every label.
    All(UncertainPolicy),
    /// By label; the key `default` stands for the labels not named (`"ignore"` when absent).
    PerLabel(BTreeMap<String, UncertainPolicy>),
}

impl Default for Uncertain {
    fn default() -> Self {
        Self::All(UncertainPolicy::Ignore)
    }
}

/// `[data.mimic]`: MIMIC-CXR-JPG 2.0.0 (Johnson et al. 2019, arXiv:1901.07042) or MIMIC-CXR's DICOM
/// files with the tables of the former.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MimicConfig {
    /// The folder that holds `files/` and the `mimic-cxr-2.0.0-*.csv.gz` tables.
    pub root: PathBuf,
    /// Which of the two label tables is read.
    #[serde(default)]
    pub labeler: MimicLabeler,
    /// Which images are read: `files/p10/p10000032/s50414267/*.jpg` or `*.dcm`.
    #[serde(default)]
    pub format: MimicFormat,
    /// What a label of −1 (uncertain) becomes in training, for all labels or per label. In
    /// validation such labels count as missing.
    #[serde(default)]
    pub uncertain: Uncertain,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<View>>,
}

/// The program that made MIMIC-CXR's labels from its reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MimicLabeler {
    /// `mimic-cxr-2.0.0-chexpert.csv.gz`.
    #[default]
    Chexpert,
    /// `mimic-cxr-2.0.0-negbio.csv.gz`.
    Negbio,
}

/// The files of MIMIC-CXR's images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MimicFormat {
    /// MIMIC-CXR-JPG.
    #[default]
    Jpg,
    /// MIMIC-CXR.
    Dicom,
}

/// `[data.nih]`: NIH ChestX-ray14 (Wang et al. 2017, arXiv:1705.02315).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NihConfig {
    /// The folder that holds `Data_Entry_2017.csv` (or `Data_Entry_2017_v2020.csv`), the lists
    /// `train_val_list.txt` and `test_list.txt`, and `images/` or `images_001/images/` and so on.
    pub root: PathBuf,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<View>>,
}

/// `[data.padchest]`: PadChest (Bustos et al. 2020, arXiv:1901.07441).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PadchestConfig {
    /// The folder that holds `PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv` (or `.csv.gz`)
    /// and the images, directly or in folders `0` to `54`.
    pub root: PathBuf,
    /// Only reports labelled by physicians, not by the network.
    #[serde(default)]
    pub physicians_only: bool,
    /// The views used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub views: Option<Vec<PadchestView>>,
}

/// A radiograph's view, as PadChest's column `Projection` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PadchestView {
    /// Postero-anterior.
    #[serde(rename = "PA")]
    Pa,
    /// From the side.
    #[serde(rename = "L")]
    Lateral,
    /// Antero-posterior, standing.
    #[serde(rename = "AP")]
    Ap,
    /// Antero-posterior, lying.
    #[serde(rename = "AP_horizontal")]
    ApHorizontal,
    /// Of the ribs.
    #[serde(rename = "COSTAL")]
    Costal,
    /// Excluded from the data set's own studies.
    #[serde(rename = "EXCLUDE")]
    Exclude,
}

/// `[data.vindr]`: VinDr-CXR (Nguyen et al. 2022, arXiv:2012.15029).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VindrConfig {
    /// The folder that holds `annotations/`, `train/` and `test/`.
    pub root: PathBuf,
    /// What the three readers of a training image must agree on for a label to be positive.
    #[serde(default)]
    pub agreement: VindrAgreement,
}

/// How three readers' labels of a VinDr-CXR training image become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VindrAgreement {
    /// Positive when two of the three say so.
    #[default]
    Majority,
    /// Positive when one says so.
    Any,
    /// Positive when all say so.
    All,
    /// The share of readers who say so, as a soft label.
    Share,
}

/// `[data.mura]`: MURA 1.1 (Rajpurkar et al. 2017, arXiv:1712.06957).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MuraConfig {
    /// The folder that holds `train_image_paths.csv`, `valid_image_paths.csv`, `train/` and
    /// `valid/`.
    pub root: PathBuf,
    /// The body parts used; all when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Vec<MuraPart>>,
}

/// A body part, as MURA names its folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MuraPart {
    /// The elbow.
    #[serde(rename = "XR_ELBOW")]
    Elbow,
    /// A finger.
    #[serde(rename = "XR_FINGER")]
    Finger,
    /// The forearm.
    #[serde(rename = "XR_FOREARM")]
    Forearm,
    /// The hand.
    #[serde(rename = "XR_HAND")]
    Hand,
    /// The upper arm.
    #[serde(rename = "XR_HUMERUS")]
    Humerus,
    /// The shoulder.
    #[serde(rename = "XR_SHOULDER")]
    Shoulder,
    /// The wrist.
    #[serde(rename = "XR_WRIST")]
    Wrist,
}

/// `[data.csv]`: any table with a row for each image.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CsvConfig {
    /// The table: CSV (`.csv`; separated by commas, semicolons or tabs, as its header shows),
    /// tab-separated (`.tsv`), either gzip'd (`.gz`), or Parquet (`.parquet`).
    pub table: PathBuf,
    /// The folder that the images' paths count from; the table's own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// The column of the images' paths.
    pub image: String,
    /// The column that tells patients apart; each image is a patient of its own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patient: Option<String>,
    /// The column that says `train`, `valid` (or `validation`, `val`, `validate`, `dev`) or `test`;
    /// all rows are for training when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
    /// The columns of labels that have other names than the heads give them:
    /// `columns = { Edema = "edema_present" }`; for a `multiclass` head, the head's name and the
    /// column that holds its class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, String>,
    /// What a label of −1 (uncertain) becomes in training, for all labels or per label. In
    /// validation such labels count as missing.
    #[serde(default)]
    pub uncertain: Uncertain,
}

/// `[data.arrays]`: NumPy files, `images.npy` or `data.npz:images`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArraysConfig {
    /// The folder that the files' names count from; the working directory when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<PathBuf>,
    /// The images: `[images, height, width]` or `[images, channels, height, width]`, of 8- or
    /// 16-bit unsigned integers (0 is black, the largest white) or floating point (as they are).
    pub images: String,
    /// For each head the array of its targets: `[images]` or `[images, labels]`; class numbers for
    /// a `multiclass` head. NaN is unknown.
    pub targets: BTreeMap<String, String>,
    /// An array that tells patients apart, `[images]` of integers; each image is a patient of its
    /// own when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patients: Option<String>,
    /// An array that is 0 for training, 1 for validation and 2 for test images, `[images]` of
    /// integers; all are for training when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<String>,
}
