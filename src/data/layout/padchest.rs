//! PadChest (Bustos et al. 2020, arXiv:1901.07441): one table of all images, their labels as Python
//! writes a list, and no official lists. The columns are those of the authors' README
//! (github.com/auriml/Rx-thorax-automatic-captioning).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::check::{check_choice, check_root};
use super::padchest_labels::LABELS;
use super::sheet::{Fields, Sheet, expected_folder, first_file, one_of};
use super::{Column, Kind, Layout, List, Lists, Row, Vocabulary};
use crate::data::config::{PadchestConfig, PadchestView, Uncertain};
use crate::data::error::DataError;
use crate::fault::Fault;
use crate::model::HeadConfig;

const IMAGE: &str = "ImageID";
const FOLDER: &str = "ImageDir";
const STUDY_DATE: &str = "StudyDate_DICOM";
const PATIENT: &str = "PatientID";
const BIRTH: &str = "PatientBirth";
const SEX: &str = "PatientSex_DICOM";
const PROJECTION: &str = "Projection";
const METHOD: &str = "MethodLabel";
const FINDINGS: &str = "Labels";

/// The method of labels that physicians gave; the others are the network's.
const PHYSICIAN: &str = "Physician";

/// The label of reports that say nothing: what else such a report has or lacks is unknown.
const EXCLUDE: &str = "exclude";

const TABLE: &str = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv";
const PACKED: &str = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz";

const COLUMNS: &str = "PadChest does: ImageID, ImageDir, StudyDate_DICOM, PatientID, \
    PatientBirth, PatientSex_DICOM, Projection, MethodLabel, Labels and others";
const EXPECTED: &str = "expected a folder in PadChest's layout: \
    `PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv`, packed or not, and the images, \
    directly or in folders `0` to `54`";

/// The projections as the table writes them.
const PROJECTIONS: [(&str, PadchestView); 6] = [
    ("PA", PadchestView::Pa),
    ("L", PadchestView::Lateral),
    ("AP", PadchestView::Ap),
    ("AP_horizontal", PadchestView::ApHorizontal),
    ("COSTAL", PadchestView::Costal),
    ("EXCLUDE", PadchestView::Exclude),
];

/// Whether PadChest's table is in `root`.
pub(super) fn is_in(root: &Path) -> bool {
    [TABLE, PACKED].iter().any(|table| root.join(table).is_file())
}

impl Layout for PadchestConfig {
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        let finding = |label| Column::new(label, &[FINDINGS], Kind::Finding);
        let mut columns: Vec<Column> = LABELS.map(finding).into();
        let projections = PROJECTIONS.map(|(name, _)| name);
        columns.push(Column::classes("projection", &[PROJECTION], &projections));
        columns.push(Column::classes("view", &[PROJECTION], &["PA", "AP", "Lateral"]));
        columns.push(Column::classes("side", &[PROJECTION], &["Frontal", "Lateral"]));
        columns.push(Column::classes("sex", &[SEX], &["Female", "Male"]));
        columns.push(Column::new("Age", &[BIRTH, STUDY_DATE], Kind::Number));
        Vocabulary::of(columns)
    }

    fn configured_root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn lists(&self) -> &[List] {
        &[List::Train]
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let table = first_file(&self.root, &[TABLE, PACKED]);
        let sheet = Sheet::open(&table, || expected_folder(&self.root, EXPECTED, TABLE))?;
        let views = self.views.as_ref().map(|_| PROJECTION);
        let method = self.physicians_only.then_some(METHOD);
        let needed = [IMAGE, PATIENT].into_iter().chain(vocabulary.sources(needed));
        sheet.require(needed.chain(views).chain(method), COLUMNS)?;
        let columns = Columns::find(&sheet);
        let folders = self.folders()?;
        let mut rows = Lists::new(wanted);
        sheet.rows(|fields| {
            let image = fields.text(columns.image, IMAGE, "the name of an image")?;
            let patient = fields.text(columns.patient, PATIENT, "the number of a patient")?;
            let (values, view) = columns.read(fields)?;
            let physician = fields.at(columns.method) == PHYSICIAN;
            let chosen = |views: &Vec<_>| view.is_some_and(|view| views.contains(&view));
            if (self.physicians_only && !physician) || !self.views.as_ref().is_none_or(chosen) {
                return Ok(());
            }
            let folder = fields.at(columns.folder);
            let path = match folders.iter().any(|name| name == folder) {
                true => self.root.join(folder).join(image),
                false => self.root.join(image),
            };
            rows.add(List::Train, fields.row(path, patient, values));
            Ok(())
        })?;
        rows.done(&table, "is chosen by `views` and `physicians_only`")
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        None
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)?;
        let offered = PROJECTIONS.map(|(name, _)| format!("{name:?}")).join(", ");
        check_choice("views", "view", self.views.as_deref(), &offered)
    }
}

impl PadchestConfig {
    /// The folders below the root, as the archives unpack; none where all images lie in it.
    fn folders(&self) -> Result<Vec<String>, DataError> {
        let entries = fs::read_dir(&self.root).map_err(DataError::io("read", &self.root))?;
        let folders = entries.flatten().filter(|entry| entry.path().is_dir());
        Ok(folders.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }
}

/// Where each column stands.
struct Columns {
    image: Option<usize>,
    folder: Option<usize>,
    date: Option<usize>,
    patient: Option<usize>,
    birth: Option<usize>,
    sex: Option<usize>,
    projection: Option<usize>,
    method: Option<usize>,
    findings: Option<usize>,
}

impl Columns {
    fn find(sheet: &Sheet) -> Self {
        Self {
            image: sheet.place(IMAGE),
            folder: sheet.place(FOLDER),
            date: sheet.place(STUDY_DATE),
            patient: sheet.place(PATIENT),
            birth: sheet.place(BIRTH),
            sex: sheet.place(SEX),
            projection: sheet.place(PROJECTION),
            method: sheet.place(METHOD),
            findings: sheet.place(FINDINGS),
        }
    }

    /// The values of a row and its view.
    fn read(&self, fields: &Fields) -> Result<(Vec<f32>, Option<PadchestView>), DataError> {
        let mut values = findings(fields, self.findings)?;
        let text = fields.at(self.projection);
        let projection = PROJECTIONS.iter().position(|(name, _)| *name == text);
        if projection.is_none() && !text.is_empty() {
            let expected = "PA, L, AP, AP_horizontal, COSTAL, EXCLUDE or nothing";
            return Err(fields.bad(PROJECTION, text, expected));
        }
        values.push(projection.map_or(f32::NAN, |class| class as f32));
        let [view, side] = match text {
            "PA" => [0.0, 0.0],
            "AP" | "AP_horizontal" => [1.0, 0.0],
            "L" => [2.0, 1.0],
            _ => [f32::NAN; 2],
        };
        values.extend([view, side]);
        values.push(match fields.at(self.sex) {
            "F" => 0.0,
            "M" => 1.0,
            "" | "O" | "None" => f32::NAN,
            other => return Err(fields.bad(SEX, other, "M, F, O or nothing")),
        });
        values.push(self.age(fields)?);
        Ok((values, projection.map(|class| PROJECTIONS[class].1)))
    }

    /// The study's year less that of the birth; NaN where one is missing.
    fn age(&self, fields: &Fields) -> Result<f32, DataError> {
        let year = |year: f32| (1800.0..=2100.0).contains(&year);
        let birth = fields.number(self.birth, BIRTH, "the year of a birth", year)?;
        let date = |date: f32| year((date / 1e4).floor());
        let study = fields.number(self.date, STUDY_DATE, "a date such as 20140915", date)?;
        Ok(Some((study / 1e4).floor() - birth).filter(|age| *age >= 0.0).unwrap_or(f32::NAN))
    }
}

/// `['pleural effusion', 'normal']`: what is not named is absent; unknown where nothing is named.
fn findings(fields: &Fields, column: Option<usize>) -> Result<Vec<f32>, DataError> {
    let text = fields.at(column);
    let names = list_literal(text)
        .ok_or_else(|| fields.bad(FINDINGS, text, "a list such as ['normal', 'scoliosis']"))?;
    let mut values = vec![0.0; LABELS.len()];
    let mut named = 0;
    for name in names.into_iter().map(str::trim).filter(|name| !name.is_empty()) {
        let Some(label) = LABELS.iter().position(|label| label.eq_ignore_ascii_case(name)) else {
            let what = one_of("one of PadChest's labels", name, &LABELS);
            return Err(fields.bad(FINDINGS, name, what));
        };
        values[label] = 1.0;
        named += 1;
    }
    let silent =
        LABELS.iter().zip(&values).all(|(label, value)| *value == 0.0 || *label == EXCLUDE);
    if named == 0 || silent {
        values.iter_mut().filter(|value| **value == 0.0).for_each(|value| *value = f32::NAN);
    }
    Ok(values)
}

/// The strings of a list as Python writes it; nothing, and `nan`, are empty lists.
fn list_literal(text: &str) -> Option<Vec<&str>> {
    if text.is_empty() || text == "nan" {
        return Some(Vec::new());
    }
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    let mut items = Vec::new();
    while !rest.is_empty() {
        let quote = rest.chars().next().filter(|quote| matches!(quote, '\'' | '"'))?;
        let (item, after) = rest[1..].split_once(quote)?;
        items.push(item);
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if after.is_empty() => after,
            None => return None,
        };
    }
    Some(items)
}
