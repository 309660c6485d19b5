//! MIMIC-CXR-JPG (Johnson et al. 2019, arXiv:1901.07042; PhysioNet, versions 2.0.0 and 2.1.0, whose
//! tables have the same names) and MIMIC-CXR's DICOM files: labels by study, images by `dicom_id`,
//! official lists.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::check::{check_choice, check_root};
use super::chexpert::{EXPECTED_LABEL, FINDINGS, VIEWS_OFFERED, is_label, view_class};
use super::sheet::{Fields, Sheet, expected_folder, first_file};
use super::{Column, Layout, List, Lists, Row, Vocabulary};
use crate::data::config::{MimicConfig, MimicFormat, MimicLabeler, Uncertain, View};
use crate::data::error::DataError;
use crate::fault::Fault;
use crate::model::HeadConfig;

const SUBJECT: &str = "subject_id";
const STUDY: &str = "study_id";
const DICOM: &str = "dicom_id";
const VIEW: &str = "ViewPosition";
const SPLIT: &str = "split";

const EXPECTED: &str = "expected a folder in MIMIC-CXR-JPG's layout: `files/` and the tables \
    `mimic-cxr-2.0.0-metadata.csv.gz`, `mimic-cxr-2.0.0-split.csv.gz` and \
    `mimic-cxr-2.0.0-chexpert.csv.gz`, packed or not";

/// The findings of a study, by its number.
type Studies = HashMap<u64, [f32; FINDINGS.len()]>;

/// Whether MIMIC-CXR's table of all images is in `root`.
pub(super) fn is_in(root: &Path) -> bool {
    let table = table_name("metadata");
    [format!("{table}.gz"), table].iter().any(|table| root.join(table).is_file())
}

fn table_name(table: &str) -> String {
    format!("mimic-cxr-2.0.0-{table}.csv")
}

impl Layout for MimicConfig {
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        let mut columns: Vec<Column> = FINDINGS.map(Column::finding).into();
        columns.push(Column::classes("view", &[VIEW], &["PA", "AP", "Lateral"]));
        columns.push(Column::classes("side", &[VIEW], &["Frontal", "Lateral"]));
        Vocabulary::of(columns)
    }

    fn configured_root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn lists(&self) -> &[List] {
        &[List::Train, List::Validation, List::Test]
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let lists = self.read_lists()?;
        let needed: Vec<&str> = vocabulary.sources(needed).collect();
        let studies = self.read_labels(&needed)?;
        self.read_images(&lists, &studies, wanted)
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        Some(&self.uncertain)
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)?;
        check_choice("views", "view", self.views.as_deref(), VIEWS_OFFERED)
    }
}

impl MimicConfig {
    fn open(&self, table: &str) -> Result<Sheet, DataError> {
        let name = table_name(table);
        let packed = format!("{name}.gz");
        let path = first_file(&self.root, &[&packed, &name]);
        Sheet::open(&path, || expected_folder(&self.root, EXPECTED, &packed))
    }

    /// The list of every image, by its `dicom_id`.
    fn read_lists(&self) -> Result<HashMap<String, List>, DataError> {
        let sheet = self.open("split")?;
        sheet
            .require([DICOM, SPLIT], "MIMIC-CXR-JPG does: dicom_id, study_id, subject_id, split")?;
        let (dicom, split) = (sheet.place(DICOM), sheet.place(SPLIT));
        let mut lists = HashMap::new();
        sheet.rows(|fields| {
            let list = match fields.at(split) {
                "train" => List::Train,
                "validate" => List::Validation,
                "test" => List::Test,
                other => return Err(fields.bad(SPLIT, other, "train, validate or test")),
            };
            let image = fields.text(dicom, DICOM, "the name of an image")?;
            match lists.insert(image.to_owned(), list) {
                None => Ok(()),
                Some(_) => Err(fields.twice(&format!("the image `{image}`"))),
            }
        })?;
        Ok(lists)
    }

    fn read_labels(&self, needed: &[&str]) -> Result<Studies, DataError> {
        let sheet = self.open(match self.labeler {
            MimicLabeler::Chexpert => "chexpert",
            MimicLabeler::Negbio => "negbio",
        })?;
        let needed = needed.iter().copied().filter(|name| *name != VIEW);
        sheet.require(
            [STUDY].into_iter().chain(needed),
            "MIMIC-CXR-JPG does: subject_id, study_id and the findings",
        )?;
        let study = sheet.place(STUDY);
        let findings = FINDINGS.map(|finding| sheet.place(finding));
        let mut studies = HashMap::new();
        sheet.rows(|fields| {
            let mut values = [f32::NAN; FINDINGS.len()];
            for (finding, column) in findings.iter().enumerate() {
                values[finding] =
                    fields.number(*column, FINDINGS[finding], EXPECTED_LABEL, is_label)?;
            }
            let number = number(fields, study, STUDY)?;
            match studies.insert(number, values) {
                None => Ok(()),
                Some(_) => Err(fields.twice(&format!("the study `{number}`"))),
            }
        })?;
        Ok(studies)
    }

    /// Every image of the wanted lists. Studies that the label table lacks (the published ones lack
    /// a few) have no known finding.
    fn read_images(
        &self,
        lists: &HashMap<String, List>,
        studies: &Studies,
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let sheet = self.open("metadata")?;
        sheet.require(
            [DICOM, SUBJECT, STUDY, VIEW],
            "MIMIC-CXR-JPG does: dicom_id, subject_id, study_id, ViewPosition and others",
        )?;
        let [dicom, subject, study, view] =
            [DICOM, SUBJECT, STUDY, VIEW].map(|column| sheet.place(column));
        let table = sheet.path.clone();
        let mut rows = Lists::new(wanted);
        sheet.rows(|fields| {
            let image = fields.text(dicom, DICOM, "the name of an image")?;
            let (patient, study) =
                (number(fields, subject, SUBJECT)?, number(fields, study, STUDY)?);
            let Some(list) = lists.get(image) else {
                return Err(fields.bad(DICOM, image, "an image that the table of splits names"));
            };
            let view = view_of(fields.at(view)).map_err(|()| {
                fields.bad(
                    VIEW,
                    fields.at(view),
                    "a view such as PA, AP, LATERAL or LL, or nothing",
                )
            })?;
            if !self.views.as_ref().is_none_or(|views| view.0.is_some_and(|v| views.contains(&v))) {
                return Ok(());
            }
            let mut values: Vec<f32> = match studies.get(&study) {
                Some(findings) => findings.to_vec(),
                None => vec![f32::NAN; FINDINGS.len()],
            };
            values.push(view.0.map_or(f32::NAN, view_class));
            values.push(view.1);
            let path = self.path(patient, study, image);
            rows.add(*list, fields.row(path, &patient.to_string(), values));
            Ok(())
        })?;
        rows.done(&table, if self.views.is_some() { "has one of the `views`" } else { "is there" })
    }

    /// `files/p10/p10000032/s50414267/<dicom_id>.jpg`.
    fn path(&self, patient: u64, study: u64, image: &str) -> PathBuf {
        let extension = match self.format {
            MimicFormat::Jpg => "jpg",
            MimicFormat::Dicom => "dcm",
        };
        let patient = format!("p{patient}");
        let group = patient.chars().take(3).collect::<String>();
        let folder = self.root.join("files").join(group).join(&patient);
        folder.join(format!("s{study}")).join(format!("{image}.{extension}"))
    }
}

fn number(fields: &Fields, column: Option<usize>, name: &str) -> Result<u64, DataError> {
    let text = fields.at(column);
    text.parse().map_err(|_| fields.bad(name, text, "a whole number"))
}

/// The view, and 0 for frontal or 1 for lateral, of a DICOM view position as the published table
/// has it. LL is left lateral; what is oblique, lying on a side or of another part is neither.
fn view_of(position: &str) -> Result<(Option<View>, f32), ()> {
    Ok(match position {
        "PA" => (Some(View::Pa), 0.0),
        "AP" => (Some(View::Ap), 0.0),
        "LATERAL" | "LL" | "RL" => (Some(View::Lateral), 1.0),
        "" | "AP AXIAL" | "AP LLD" | "AP RLD" | "PA LLD" | "PA RLD" | "LAO" | "RAO" | "LPO"
        | "RPO" | "XTABLE LATERAL" | "SWIMMERS" | "L5 S1" => (None, f32::NAN),
        _ => return Err(()),
    })
}
