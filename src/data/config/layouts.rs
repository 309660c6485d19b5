//! `[data.chexpert]`, `[data.csv]`, …: the layouts of data sets.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[data.chexpert]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChexpertConfig {
    /// The folder that holds `train.csv`. A relative path counts from the folder in which the
    /// program is started.
    #[schemars(example = &"datasets/CheXpert-v1.0-small")]
    pub root: PathBuf,
    /// What a label of −1 (uncertain) becomes in training: one rule for all labels, or a table with
    /// a rule for each by name, in which `default` is for the labels not named. In validation such
    /// labels count as missing.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "Edema": "ones", "default": { "smooth": [0.55, 0.85] } }))]
    pub uncertain: Uncertain,
    /// Which views are used; all when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["PA", "AP"])]
    pub views: Option<Vec<View>>,
}

/// `[data.phantom]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhantomConfig {
    /// The folder that the radiographs are drawn into on first use, and read from. A relative path
    /// counts from the folder in which the program is started.
    #[schemars(example = &"datasets/phantom")]
    pub root: PathBuf,
    /// How many patients there are, each with one to four images.
    #[schemars(example = 500)]
    pub patients: usize,
    /// The height and width of the images in pixels; from 32 to 3000.
    #[schemars(example = 128)]
    #[schemars(range(min = 32, max = 3000))]
    pub size: usize,
    /// The number that the drawing follows from: the same settings give the same files, byte for
    /// byte.
    #[serde(default)]
    #[schemars(example = 7)]
    pub seed: u64,
    /// The least and the largest diameter of nodules (`Lung Lesion`), in pixels of the drawn images.
    /// The table then has a column `Nodule Diameter`, with the diameter that a patient's nodule has,
    /// or would have where there is none. When this is left out, nodules are about a tenth as wide
    /// as the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = [8, 24])]
    pub nodules: Option<[usize; 2]>,
    /// What a label of −1 (uncertain) becomes in training: one rule for all labels, or a table with
    /// a rule for each by name, in which `default` is for the labels not named. In validation such
    /// labels count as missing.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "Edema": "ones", "default": { "smooth": [0.55, 0.85] } }))]
    pub uncertain: Uncertain,
    /// Which views are used; all when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["PA", "AP"])]
    pub views: Option<Vec<View>>,
}

/// A radiograph's view, as CheXpert names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum View {
    /// From the back to the front (postero-anterior).
    #[serde(rename = "PA")]
    Pa,
    /// From the front to the back (antero-posterior).
    #[serde(rename = "AP")]
    Ap,
    /// From the side.
    Lateral,
}

/// What becomes of an uncertain label (−1) in training.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum UncertainPolicy {
    /// The label counts as missing.
    #[default]
    Ignore,
    /// The label counts as negative.
    Zeros,
    /// The label counts as positive.
    Ones,
    /// The label becomes a soft one, drawn uniformly between the two numbers and the same in every
    /// epoch (Pham et al. 2019, arXiv:1911.06475).
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
    /// The folder that holds `files/` and the tables `mimic-cxr-2.0.0-*.csv.gz`. A relative path
    /// counts from the folder in which the program is started.
    #[schemars(example = &"datasets/mimic-cxr-jpg")]
    pub root: PathBuf,
    /// Which of the two tables of labels is read.
    #[serde(default)]
    pub labeler: MimicLabeler,
    /// Which images are read.
    #[serde(default)]
    pub format: MimicFormat,
    /// What a label of −1 (uncertain) becomes in training: one rule for all labels, or a table with
    /// a rule for each by name, in which `default` is for the labels not named. In validation such
    /// labels count as missing.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "Edema": "ones", "default": { "smooth": [0.55, 0.85] } }))]
    pub uncertain: Uncertain,
    /// Which views are used; all when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["PA", "AP"])]
    pub views: Option<Vec<View>>,
}

/// The program that made MIMIC-CXR's labels from its reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MimicLabeler {
    /// CheXpert's labels: `mimic-cxr-2.0.0-chexpert.csv.gz`.
    #[default]
    Chexpert,
    /// NegBio's labels: `mimic-cxr-2.0.0-negbio.csv.gz`.
    Negbio,
}

/// The files of MIMIC-CXR's images.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MimicFormat {
    /// The images of MIMIC-CXR-JPG: `files/p10/p10000032/s50414267/*.jpg`.
    #[default]
    Jpg,
    /// The images of MIMIC-CXR: `files/p10/p10000032/s50414267/*.dcm`.
    Dicom,
}

/// `[data.nih]`: NIH ChestX-ray14 (Wang et al. 2017, arXiv:1705.02315).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NihConfig {
    /// The folder that holds `Data_Entry_2017.csv` (or `Data_Entry_2017_v2020.csv`), the lists
    /// `train_val_list.txt` and `test_list.txt`, and the images, in `images/` or in
    /// `images_001/images/` and so on. A relative path counts from the folder in which the program
    /// is started.
    #[schemars(example = &"datasets/ChestX-ray14")]
    pub root: PathBuf,
    /// Which views are used; all when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["PA", "AP"])]
    pub views: Option<Vec<View>>,
}

/// `[data.padchest]`: PadChest (Bustos et al. 2020, arXiv:1901.07441).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PadchestConfig {
    /// The folder that holds `PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv` (or `.csv.gz`)
    /// and the images, directly or in folders `0` to `54`. A relative path counts from the folder
    /// in which the program is started.
    #[schemars(example = &"datasets/PadChest")]
    pub root: PathBuf,
    /// Whether only reports are used that physicians labelled, not those that a network labelled.
    #[serde(default)]
    pub physicians_only: bool,
    /// Which views are used; all when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["PA", "AP"])]
    pub views: Option<Vec<PadchestView>>,
}

/// A radiograph's view, as PadChest's column `Projection` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PadchestView {
    /// From the back to the front (postero-anterior).
    #[serde(rename = "PA")]
    Pa,
    /// From the side.
    #[serde(rename = "L")]
    Lateral,
    /// From the front to the back (antero-posterior), standing.
    #[serde(rename = "AP")]
    Ap,
    /// From the front to the back, lying.
    #[serde(rename = "AP_horizontal")]
    ApHorizontal,
    /// The ribs.
    #[serde(rename = "COSTAL")]
    Costal,
    /// Images that the data set's own studies leave out.
    #[serde(rename = "EXCLUDE")]
    Exclude,
}

/// `[data.vindr]`: VinDr-CXR (Nguyen et al. 2022, arXiv:2012.15029).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VindrConfig {
    /// The folder that holds `annotations/`, `train/` and `test/`. A relative path counts from the
    /// folder in which the program is started.
    #[schemars(example = &"datasets/vindr-cxr")]
    pub root: PathBuf,
    /// How the labels of the three readers of a training image become one.
    #[serde(default)]
    pub agreement: VindrAgreement,
}

/// How three readers' labels of a VinDr-CXR training image become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VindrAgreement {
    /// A label is positive where two of the three say so.
    #[default]
    Majority,
    /// A label is positive where one says so.
    Any,
    /// A label is positive where all say so.
    All,
    /// A label is soft: the share of readers who say so.
    Share,
}

/// `[data.mura]`: MURA 1.1 (Rajpurkar et al. 2017, arXiv:1712.06957).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MuraConfig {
    /// The folder that holds `train_image_paths.csv`, `valid_image_paths.csv`, `train/` and
    /// `valid/`. A relative path counts from the folder in which the program is started.
    #[schemars(example = &"datasets/MURA-v1.1")]
    pub root: PathBuf,
    /// Which body parts are used; all when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = ["XR_WRIST", "XR_HAND"])]
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
    /// The table: CSV (`.csv`; separated by commas, semicolons or tabs, as its header shows) or
    /// tab-separated (`.tsv`), also packed with gzip (`.csv.gz`), or Parquet (`.parquet`). A relative
    /// path counts from the folder in which the program is started.
    #[schemars(example = &"scans/labels.csv")]
    pub table: PathBuf,
    /// The folder that the images' paths count from; the table's own folder when this is left out.
    /// A relative path counts from the folder in which the program is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"scans/images")]
    pub root: Option<PathBuf>,
    /// The column that holds the images' paths.
    #[schemars(example = &"file")]
    pub image: String,
    /// The column that tells patients apart. Each image is a patient of its own when this is left
    /// out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"mrn")]
    pub patient: Option<String>,
    /// The column that says `train` (or `training`), `valid` (or `validation`, `val`, `validate`, `dev`)
    /// or `test`.
    /// All rows are for training when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"use")]
    pub split: Option<String>,
    /// The sign before the decimals of numbers in a table of text: `"."` when this is left out, or
    /// `","`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &",")]
    pub decimal: Option<Decimal>,
    /// The columns of labels that have other names than the heads give them: the label, and its
    /// column. For a `multiclass` head it is the head's name, and the column that holds its class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(example = serde_json::json!({ "Edema": "edema_present", "view": "ViewPosition" }))]
    pub columns: BTreeMap<String, String>,
    /// What a label of −1 (uncertain) becomes in training: one rule for all labels, or a table with
    /// a rule for each by name, in which `default` is for the labels not named. In validation such
    /// labels count as missing.
    #[serde(default)]
    #[schemars(example = serde_json::json!({ "Edema": "ones", "default": { "smooth": [0.55, 0.85] } }))]
    pub uncertain: Uncertain,
}

/// The sign before the decimals of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Decimal {
    /// As in `31.5`.
    #[serde(rename = ".")]
    Point,
    /// As in `31,5`.
    #[serde(rename = ",")]
    Comma,
}

/// `[data.arrays]`: NumPy files, `images.npy` or `data.npz:images`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArraysConfig {
    /// The folder that the files' names count from. When this is left out, or relative, they count
    /// from the folder in which the program is started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"simulation")]
    pub root: Option<PathBuf>,
    /// The images: `[images, height, width]` or `[images, channels, height, width]`, of 8- or
    /// 16-bit unsigned integers (0 is black, the largest white), or of other integers, floating point
    /// or booleans (as they are).
    #[schemars(example = &"fields.npy")]
    pub images: String,
    /// For each head, by its name, the array of its targets: `[images]` or `[images, labels]`, or
    /// class numbers for a `multiclass` head. NaN is unknown.
    #[schemars(example = serde_json::json!({ "pressure": "pressure.npy", "kind": "data.npz:kind" }))]
    pub targets: BTreeMap<String, String>,
    /// An array that tells patients apart: `[images]` of integers or text. Each image is a patient of
    /// its own when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"runs.npy")]
    pub patients: Option<String>,
    /// An array that is 0 for training, 1 for validation and 2 for test images: `[images]` of
    /// integers. All are for training when this is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"split.npy")]
    pub split: Option<String>,
}
