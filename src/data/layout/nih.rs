//! NIH ChestX-ray14 (Wang et al. 2017, arXiv:1705.02315): `Data_Entry_2017.csv` or its version of
//! 2020, the official lists and the images in one folder or twelve.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::check::{check_choice, check_root};
use super::sheet::{Fields, Sheet, expected_folder, first_file, one_of};
use super::{Column, Kind, Layout, List, Lists, Row, Vocabulary};
use crate::data::config::{NihConfig, Uncertain, View};
use crate::data::error::DataError;
use crate::data::opened::note_file;
use crate::fault::{Fault, fault};
use crate::model::HeadConfig;
use crate::paths::open_file;

/// The findings as the table writes them, in the order of the paper, after `No Finding`.
const FINDINGS: [&str; 15] = [
    "No Finding",
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
];

const IMAGE: &str = "Image Index";
const LABELS: &str = "Finding Labels";
const PATIENT: &str = "Patient ID";
const AGE: &str = "Patient Age";
const SEX: &str = "Patient Gender";
const VIEW: &str = "View Position";

/// The version of 2020 first: it has the ages put right.
const TABLES: [&str; 2] = ["Data_Entry_2017_v2020.csv", "Data_Entry_2017.csv"];
const LISTS: [(List, &str); 2] =
    [(List::Train, "train_val_list.txt"), (List::Test, "test_list.txt")];

const COLUMNS: &str = "the NIH does: Image Index, Finding Labels, Follow-up #, Patient ID, \
    Patient Age, Patient Gender, View Position and others";
const EXPECTED: &str = "expected a folder in NIH ChestX-ray14's layout: \
    `Data_Entry_2017_v2020.csv` (or `Data_Entry_2017.csv`), `train_val_list.txt`, \
    `test_list.txt`, and `images/` or `images_001/images/` and so on";

/// Whether the table of NIH ChestX-ray14 is in `root`.
pub(super) fn is_in(root: &Path) -> bool {
    TABLES.iter().any(|table| root.join(table).is_file())
}

impl Layout for NihConfig {
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        let finding = |label| Column::new(label, &[LABELS], Kind::Finding);
        let mut columns: Vec<Column> = FINDINGS.map(finding).into();
        columns.push(Column::classes("view", &[VIEW], &["PA", "AP"]));
        columns.push(Column::classes("sex", &[SEX], &["Female", "Male"]));
        columns.push(Column::new("Age", &[AGE], Kind::Number));
        Vocabulary::of(columns)
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
        let mut listed = self.read_lists(wanted)?;
        let table = first_file(&self.root, &TABLES);
        let sheet = Sheet::open(&table, || expected_folder(&self.root, EXPECTED, "test_list.txt"))?;
        let views = self.views.as_ref().map(|_| VIEW);
        let needed = [IMAGE, PATIENT].into_iter().chain(vocabulary.sources(needed)).chain(views);
        sheet.require(needed, COLUMNS)?;
        let columns = Columns::find(&sheet);
        let folders = Folders::find(&self.root)?;
        let mut rows = Lists::new(wanted);
        sheet.rows(|fields| {
            let image = fields.text(columns.image, IMAGE, "the name of an image")?;
            let (values, view) = columns.read(fields)?;
            let patient = fields.text(columns.patient, PATIENT, "the number of a patient")?;
            let Some(Listed { list, met, .. }) = listed.get_mut(image) else { return Ok(()) };
            if std::mem::replace(met, true) {
                return Err(fields.twice(&format!("the image `{image}`")));
            }
            let chosen = |views: &Vec<View>| view.is_some_and(|view| views.contains(&view));
            if self.views.as_ref().is_none_or(chosen) {
                rows.add(*list, fields.row(folders.path(image), patient, values));
            }
            Ok(())
        })?;
        if let Some((image, listed)) = listed.iter().find(|(_, listed)| !listed.met) {
            let reason = format!("`{image}` is not in `{}`", table.display());
            let line = Some(listed.line);
            return Err(DataError::MalformedTable { table: listed.file.clone(), line, reason });
        }
        rows.done(&table, if self.views.is_some() { "has one of the `views`" } else { "is there" })
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        None
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)?;
        let views = self.views.as_deref();
        check_choice("views", "view", views, "\"PA\" and \"AP\"")?;
        match views.and_then(|views| views.iter().position(|view| *view == View::Lateral)) {
            Some(entry) => {
                let message = "NIH ChestX-ray14 has no lateral images";
                let help = "write \"PA\", \"AP\" or both";
                Err(fault(format!("views[{entry}]"), message, help))
            }
            None => Ok(()),
        }
    }
}

/// An image in one of the lists.
struct Listed {
    list: List,
    file: PathBuf,
    line: u64,
    /// Whether the table has named it.
    met: bool,
}

impl NihConfig {
    /// The images of the wanted lists, by name. The other list is read too where it is there: no
    /// image may be in both.
    fn read_lists(&self, wanted: &[List]) -> Result<HashMap<String, Listed>, DataError> {
        let mut listed: HashMap<String, Listed> = HashMap::new();
        for (list, name) in LISTS {
            let file = self.root.join(name);
            note_file(&file);
            let text = match open_file(&file).and_then(io::read_to_string) {
                Ok(text) => text,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if !wanted.contains(&list) {
                        continue;
                    }
                    let help = expected_folder(&self.root, EXPECTED, name);
                    return Err(DataError::NoTable { table: file, help });
                }
                Err(error) => return Err(DataError::io("read", &file)(error)),
            };
            for (place, line) in text.lines().enumerate() {
                let (image, line) = (line.trim(), place as u64 + 1);
                if image.is_empty() {
                    continue;
                }
                let entry = Listed { list, file: file.clone(), line, met: false };
                if let Some(other) = listed.insert(image.to_owned(), entry) {
                    let reason = format!(
                        "`{image}` stands in `{}`, line {}, too",
                        other.file.display(),
                        other.line
                    );
                    return Err(DataError::MalformedTable {
                        table: file,
                        line: Some(line),
                        reason,
                    });
                }
            }
        }
        listed.retain(|_, listed| wanted.contains(&listed.list));
        Ok(listed)
    }
}

/// Where each column stands.
struct Columns {
    image: Option<usize>,
    labels: Option<usize>,
    patient: Option<usize>,
    age: Option<usize>,
    sex: Option<usize>,
    view: Option<usize>,
}

impl Columns {
    fn find(sheet: &Sheet) -> Self {
        let [image, labels, patient, age, sex, view] =
            [IMAGE, LABELS, PATIENT, AGE, SEX, VIEW].map(|column| sheet.place(column));
        Self { image, labels, patient, age, sex, view }
    }

    /// The values of a row and its view.
    fn read(&self, fields: &Fields) -> Result<(Vec<f32>, Option<View>), DataError> {
        let mut values = findings(fields, self.labels)?;
        let (view, class) = match fields.at(self.view) {
            "PA" => (Some(View::Pa), 0.0),
            "AP" => (Some(View::Ap), 1.0),
            "" => (None, f32::NAN),
            other => return Err(fields.bad(VIEW, other, "PA, AP or nothing")),
        };
        values.push(class);
        values.push(match fields.at(self.sex) {
            "F" => 0.0,
            "M" => 1.0,
            "" => f32::NAN,
            other => return Err(fields.bad(SEX, other, "M, F or nothing")),
        });
        values.push(age(fields, self.age)?);
        Ok((values, view))
    }
}

/// `Cardiomegaly|Emphysema`: what is not named is absent; unknown where nothing stands.
fn findings(fields: &Fields, column: Option<usize>) -> Result<Vec<f32>, DataError> {
    let text = fields.at(column);
    if text.is_empty() {
        return Ok(vec![f32::NAN; FINDINGS.len()]);
    }
    let mut values = vec![0.0; FINDINGS.len()];
    for name in text.split('|') {
        match FINDINGS.iter().position(|finding| *finding == name) {
            Some(finding) => values[finding] = 1.0,
            None => {
                let what = "a finding of NIH ChestX-ray14, several joined by |";
                return Err(fields.bad(LABELS, name, one_of(what, name, &FINDINGS)));
            }
        }
    }
    Ok(values)
}

/// Older than anyone: the table of 2017 has ages up to 414.
const OLDEST: f32 = 120.0;

/// `58` or `058Y` (years), `011M` (months) or `012D` (days), in years; NaN for none and for ages
/// that nobody reaches.
fn age(fields: &Fields, column: Option<usize>) -> Result<f32, DataError> {
    let text = fields.at(column);
    if text.is_empty() {
        return Ok(f32::NAN);
    }
    let (number, a_year) = match text.as_bytes().last() {
        Some(b'Y') => (&text[..text.len() - 1], 1.0),
        Some(b'M') => (&text[..text.len() - 1], 12.0),
        Some(b'D') => (&text[..text.len() - 1], 365.25),
        _ => (text, 1.0),
    };
    match number.parse::<f32>() {
        Ok(number) if number >= 0.0 && number.is_finite() => {
            Ok(Some(number / a_year).filter(|years| *years <= OLDEST).unwrap_or(f32::NAN))
        }
        _ => Err(fields.bad(AGE, text, "an age such as 58, 058Y, 011M or 012D")),
    }
}

/// The folders of images.
struct Folders {
    first: PathBuf,
    /// Which other folder holds an image.
    others: HashMap<String, PathBuf>,
}

impl Folders {
    /// `images/`, or `images_001/images/` and so on as the archives unpack, or both.
    fn find(root: &Path) -> Result<Self, DataError> {
        let mut others = HashMap::new();
        for entry in fs::read_dir(root).map_err(DataError::io("read", root))?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with("images_") {
                continue;
            }
            let inner = entry.path().join("images");
            let folder = if inner.is_dir() { inner } else { entry.path() };
            for image in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let name = image.file_name().to_string_lossy().into_owned();
                others.insert(name, folder.clone());
            }
        }
        Ok(Self { first: root.join("images"), others })
    }

    fn path(&self, image: &str) -> PathBuf {
        self.others.get(image).unwrap_or(&self.first).join(image)
    }
}
