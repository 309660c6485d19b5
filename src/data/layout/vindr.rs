//! VinDr-CXR (Nguyen et al. 2022, arXiv:2012.15029; PhysioNet, version 1.0.0): image labels of three
//! readers for training, of their consensus for testing. It tells no patients apart, so that an
//! image is a patient.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::check::check_root;
use super::sheet::{Fields, Sheet, expected_folder};
use super::{Column, Layout, List, Row, Vocabulary};
use crate::data::config::{Uncertain, VindrAgreement, VindrConfig};
use crate::data::error::DataError;
use crate::fault::Fault;
use crate::model::HeadConfig;

/// The columns of `image_labels_train.csv`: 22 findings that the authors also localised, then six
/// of the whole image.
const FINDINGS: [&str; 28] = [
    "Aortic enlargement",
    "Atelectasis",
    "Calcification",
    "Cardiomegaly",
    "Clavicle fracture",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Enlarged PA",
    "ILD",
    "Infiltration",
    "Lung Opacity",
    "Lung cavity",
    "Lung cyst",
    "Mediastinal shift",
    "Nodule/Mass",
    "Pleural effusion",
    "Pleural thickening",
    "Pneumothorax",
    "Pulmonary fibrosis",
    "Rib fracture",
    "Other lesion",
    "COPD",
    "Lung tumor",
    "Pneumonia",
    "Tuberculosis",
    "Other diseases",
    "No finding",
];

const IMAGE: &str = "image_id";
const READER: &str = "rad_id";

const COLUMNS: &str = "VinDr-CXR does: image_id, rad_id (training only) and the findings";
const EXPECTED: &str = "expected a folder in VinDr-CXR's layout: \
    `annotations/image_labels_train.csv`, `annotations/image_labels_test.csv`, `train/` and `test/`";

/// How images are named: as published, and as they are often converted.
const EXTENSIONS: [&str; 5] = ["dicom", "dcm", "png", "jpg", "jpeg"];

/// Whether VinDr-CXR's table of training images is in `root`.
pub(super) fn is_in(root: &Path) -> bool {
    root.join("annotations/image_labels_train.csv").is_file()
}

impl Layout for VindrConfig {
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        Vocabulary::of(FINDINGS.map(Column::finding).into())
    }

    fn configured_root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn lists(&self) -> &[List] {
        &[List::Train, List::Test]
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let needed: Vec<&str> = vocabulary.sources(needed).collect();
        let lists = [(List::Train, "train"), (List::Test, "test")];
        let wanted = lists.into_iter().filter(|(list, _)| wanted.contains(list));
        wanted.map(|(list, name)| Ok((list, self.read_list(name, &needed)?))).collect()
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        None
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)
    }
}

impl VindrConfig {
    /// The images of `train` or `test`, in the order of their table.
    fn read_list(&self, name: &str, needed: &[&str]) -> Result<Vec<Row>, DataError> {
        let table = format!("annotations/image_labels_{name}.csv");
        let sheet = Sheet::open(&self.root.join(&table), || {
            expected_folder(&self.root, EXPECTED, "annotations/image_labels_train.csv")
        })?;
        let place =
            |finding: &str| sheet.place(finding).or_else(|| sheet.place(other_name(finding)));
        let missing = needed.iter().copied().filter(|finding| place(finding).is_none());
        sheet.require([IMAGE].into_iter().chain(missing), COLUMNS)?;
        let findings = FINDINGS.map(place);
        let (image, reader) = (sheet.place(IMAGE), sheet.place(READER));
        let mut rows: Vec<Row> = Vec::new();
        let mut readings: HashMap<String, Readings> = HashMap::new();
        sheet.rows(|fields| {
            let image = fields.text(image, IMAGE, "the name of an image")?;
            let readings = readings.entry(image.to_owned()).or_insert_with(|| {
                rows.push(fields.row(PathBuf::new(), image, Vec::new()));
                Readings::new(rows.len() - 1)
            });
            if !readings.readers.insert(fields.at(reader).to_owned()) {
                let by = reader.map(|_| format!(" by `{}`", fields.at(reader)));
                let by = by.unwrap_or_default();
                return Err(fields.twice(&format!("the image `{image}`{by}")));
            }
            readings.add(fields, &findings)
        })?;
        for Readings { row, known, positive, .. } in readings.into_values() {
            let findings = known.iter().zip(&positive);
            rows[row].values =
                findings.map(|(known, positive)| self.agreement.of(*positive, *known)).collect();
        }
        let folder = self.root.join(name);
        let extension = extension(&folder, rows.first());
        for row in &mut rows {
            row.path = folder.join(format!("{}.{extension}", row.patient));
        }
        Ok(rows)
    }
}

/// `image_labels_test.csv` writes the last disease in the singular.
fn other_name(finding: &str) -> &str {
    match finding {
        "Other diseases" => "Other disease",
        finding => finding,
    }
}

/// How the images of a folder end, judged by the first.
fn extension(folder: &Path, first: Option<&Row>) -> &'static str {
    let is_there = |extension: &&&str| {
        first.is_some_and(|row| folder.join(format!("{}.{extension}", row.patient)).is_file())
    };
    EXTENSIONS.iter().find(is_there).unwrap_or(&EXTENSIONS[0])
}

/// What the readers of one image say.
struct Readings {
    row: usize,
    readers: BTreeSet<String>,
    /// By finding: how many readers say something, and how many that it is there.
    known: [u32; FINDINGS.len()],
    positive: [u32; FINDINGS.len()],
}

impl Readings {
    fn new(row: usize) -> Self {
        let none = [0; FINDINGS.len()];
        Self { row, readers: BTreeSet::new(), known: none, positive: none }
    }

    fn add(
        &mut self,
        fields: &Fields,
        columns: &[Option<usize>; FINDINGS.len()],
    ) -> Result<(), DataError> {
        for (finding, column) in columns.iter().enumerate() {
            let allowed = |label: f32| label == 0.0 || label == 1.0;
            let label = fields.number(*column, FINDINGS[finding], "1, 0 or nothing", allowed)?;
            self.known[finding] += u32::from(!label.is_nan());
            self.positive[finding] += u32::from(label == 1.0);
        }
        Ok(())
    }
}

impl VindrAgreement {
    /// The label of a finding that `positive` of `known` readers see; NaN where none says anything.
    fn of(self, positive: u32, known: u32) -> f32 {
        if known == 0 {
            return f32::NAN;
        }
        let holds = match self {
            Self::Majority => 2 * positive > known,
            Self::Any => positive > 0,
            Self::All => positive == known,
            Self::Share => return positive as f32 / known as f32,
        };
        f32::from(u8::from(holds))
    }
}
