//! CheXpert's layout (Irvin et al. 2019, arXiv:1901.07031): `train.csv`, perhaps `valid.csv`, and
//! the images they name, in the original's or the small version's paths.

use std::collections::BTreeMap;
use std::path::Path;

use super::check::{check_choice, check_root};
use super::sheet::{Fields, Sheet, expected_folder};
use super::{Column, Kind, Layout, List, Row, Vocabulary};
use crate::data::config::{ChexpertConfig, Uncertain, View};
use crate::data::error::DataError;
use crate::data::table::Table;
use crate::fault::Fault;
use crate::model::HeadConfig;

/// CheXpert's label columns, in its order (Irvin et al. 2019, arXiv:1901.07031).
pub const FINDINGS: [&str; 14] = [
    "No Finding",
    "Enlarged Cardiomediastinum",
    "Cardiomegaly",
    "Lung Opacity",
    "Lung Lesion",
    "Edema",
    "Consolidation",
    "Pneumonia",
    "Atelectasis",
    "Pneumothorax",
    "Pleural Effusion",
    "Pleural Other",
    "Fracture",
    "Support Devices",
];

/// The training list.
const TRAIN: &str = "train.csv";
/// The validation list.
const VALID: &str = "valid.csv";

const PATH: &str = "Path";
const SEX: &str = "Sex";
const AGE: &str = "Age";
const SIDE: &str = "Frontal/Lateral";
const PROJECTION: &str = "AP/PA";

/// The places in [`vocabulary`] behind the findings.
const VIEW_CLASS: usize = FINDINGS.len();
const SIDE_CLASS: usize = VIEW_CLASS + 1;
const SEX_CLASS: usize = VIEW_CLASS + 2;
const YEARS: usize = VIEW_CLASS + 3;

const COLUMNS: &str = "CheXpert does: Path, Sex, Age, Frontal/Lateral, AP/PA and the findings";
/// What `views` takes.
pub(super) const VIEWS_OFFERED: &str = "\"PA\", \"AP\" and \"Lateral\"";
/// How CheXpert and MIMIC-CXR write a finding.
pub(super) const EXPECTED_LABEL: &str = "1 (positive), 0 (negative), -1 (uncertain) or nothing";

/// Whether a table with CheXpert's columns is in `root`.
pub(super) fn is_in(root: &Path) -> bool {
    let header = Table::header(&root.join(TRAIN), String::new).unwrap_or_default();
    [PATH, SEX, AGE, SIDE, PROJECTION].iter().all(|name| header.iter().any(|column| column == name))
}

impl Layout for ChexpertConfig {
    fn vocabulary(&self, _heads: &[HeadConfig]) -> Vocabulary {
        vocabulary()
    }

    fn configured_root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn lists(&self) -> &[List] {
        &[List::Train, List::Validation]
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        read(&self.root, self.views.as_deref(), vocabulary, needed, wanted)
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        Some(&self.uncertain)
    }

    fn check(&self) -> Result<(), Fault> {
        check_root(&self.root)?;
        check_choice("views", "view", self.views.as_deref(), VIEWS_OFFERED)
    }
}

/// What a row tells: the findings, the classes of views, sides and sexes, and the age in years.
pub(super) fn vocabulary() -> Vocabulary {
    let mut columns: Vec<Column> = FINDINGS.map(Column::finding).into();
    columns.push(Column::classes("view", &[SIDE, PROJECTION], &["PA", "AP", "Lateral"]));
    columns.push(Column::classes("side", &[SIDE], &["Frontal", "Lateral"]));
    columns.push(Column::classes("sex", &[SEX], &["Female", "Male"]));
    columns.push(Column::new(AGE, &[AGE], Kind::Number));
    Vocabulary::of(columns)
}

/// A finding as CheXpert and MIMIC-CXR have it: 0 to 1, or −1.
pub(super) fn is_label(label: f32) -> bool {
    label == -1.0 || (0.0..=1.0).contains(&label)
}

/// Reads the wanted lists below `root`, of `views` only where they are given.
pub(super) fn read(
    root: &Path,
    views: Option<&[View]>,
    vocabulary: &Vocabulary,
    needed: &[usize],
    wanted: &[List],
) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
    let mut columns: Vec<&str> = vocabulary.sources(needed).collect();
    if views.is_some() {
        columns.extend([SIDE, PROJECTION]);
    }
    let mut lists = BTreeMap::new();
    for (list, name) in [(List::Train, TRAIN), (List::Validation, VALID)] {
        if !wanted.contains(&list) {
            continue;
        }
        let mut rows = read_table(root, name, &columns)?;
        if let Some(views) = views {
            let wanted: Vec<f32> = views.iter().map(|view| view_class(*view)).collect();
            rows.retain(|row| wanted.contains(&row.values[VIEW_CLASS]));
        }
        if rows.is_empty() {
            let reason = "no row has one of the `views`".to_owned();
            return Err(DataError::NoImages { table: root.join(name), reason });
        }
        lists.insert(list, rows);
    }
    Ok(lists)
}

/// The number of a view among the classes of its kind.
pub(super) fn view_class(view: View) -> f32 {
    match view {
        View::Pa => 0.0,
        View::Ap => 1.0,
        View::Lateral => 2.0,
    }
}

/// Reads a table below `root`. `needed` columns must be there; of the others, those that are there
/// are read and checked too.
fn read_table(root: &Path, name: &str, needed: &[&str]) -> Result<Vec<Row>, DataError> {
    let table = root.join(name);
    let sheet = Sheet::open(&table, || help_for_missing(root, &table))?;
    sheet.require([PATH].iter().chain(needed).copied(), COLUMNS)?;
    let columns = Columns::find(&sheet);
    let mut rows = Vec::new();
    sheet.rows(|fields| {
        rows.push(columns.read(root, fields)?);
        Ok(())
    })?;
    Ok(rows)
}

/// What a user who named the wrong folder needs to know.
fn help_for_missing(root: &Path, table: &Path) -> String {
    if table.file_name().is_some_and(|name| name == VALID) {
        return "set `data.validation.fraction` (such as 0.1) to set patients of `train.csv` aside"
            .to_owned();
    }
    let expected = "expected a folder in CheXpert's layout: `train.csv` and the images it names, \
                    such as `train/patient00001/study1/view1_frontal.jpg`";
    expected_folder(root, expected, TRAIN)
}

/// Where each column stands.
struct Columns {
    path: Option<usize>,
    sex: Option<usize>,
    age: Option<usize>,
    side: Option<usize>,
    projection: Option<usize>,
    findings: [Option<usize>; FINDINGS.len()],
}

impl Columns {
    fn find(sheet: &Sheet) -> Self {
        Self {
            path: sheet.place(PATH),
            sex: sheet.place(SEX),
            age: sheet.place(AGE),
            side: sheet.place(SIDE),
            projection: sheet.place(PROJECTION),
            findings: FINDINGS.map(|finding| sheet.place(finding)),
        }
    }

    fn read(&self, root: &Path, fields: &Fields) -> Result<Row, DataError> {
        let file = fields.at(self.path);
        let patient = patient_of(file)
            .ok_or_else(|| fields.bad(PATH, file, "a path with a folder such as `patient00001`"))?;
        let mut values = vec![f32::NAN; YEARS + 1];
        for (finding, column) in self.findings.iter().enumerate() {
            values[finding] =
                fields.number(*column, FINDINGS[finding], EXPECTED_LABEL, is_label)?;
        }
        values[SEX_CLASS] = match fields.at(self.sex) {
            "Female" => 0.0,
            "Male" => 1.0,
            "" | "Unknown" => f32::NAN,
            other => return Err(fields.bad(SEX, other, "Female, Male, Unknown or nothing")),
        };
        values[SIDE_CLASS] = match fields.at(self.side) {
            "Frontal" => 0.0,
            "Lateral" => 1.0,
            "" => f32::NAN,
            other => return Err(fields.bad(SIDE, other, "Frontal, Lateral or nothing")),
        };
        // LL and RL: lying on a side.
        let projection = match fields.at(self.projection) {
            "PA" => view_class(View::Pa),
            "AP" => view_class(View::Ap),
            "" | "LL" | "RL" => f32::NAN,
            other => return Err(fields.bad(PROJECTION, other, "AP, PA, LL, RL or nothing")),
        };
        let lateral = values[SIDE_CLASS] == 1.0;
        values[VIEW_CLASS] = if lateral { view_class(View::Lateral) } else { projection };
        let age = |age: f32| (0.0..=150.0).contains(&age);
        values[YEARS] = fields.number(self.age, AGE, "an age in years", age)?;
        Ok(fields.row(root.join(below_root(root, file)), patient, values))
    }
}

/// The folder of the path that names a patient.
fn patient_of(path: &str) -> Option<&str> {
    path.split(['/', '\\']).find(|folder| {
        folder.strip_prefix("patient").is_some_and(|number| {
            !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
        })
    })
}

/// The tables' paths start above the root, at `CheXpert-v1.0` or `CheXpert-v1.0-small`.
fn below_root<'a>(root: &Path, path: &'a str) -> &'a str {
    match path.split_once(['/', '\\']) {
        Some((first, rest))
            if first.starts_with("CheXpert-v1.0")
                || root.file_name().is_some_and(|name| name == first) =>
        {
            rest
        }
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const HEADER: &str = "Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture";

    fn read(rows: &[&str], needed: &[&str]) -> Result<Vec<Row>, DataError> {
        read_text(&format!("{HEADER}\n{}\n", rows.join("\n")), needed)
    }

    fn read_text(text: &str, needed: &[&str]) -> Result<Vec<Row>, DataError> {
        let folder = tempfile::tempdir().expect("is made");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("is made");
        fs::write(root.join(TRAIN), text).expect("is written");
        read_table(&root, TRAIN, needed)
    }

    /// The message and the help, the temporary folder taken out.
    fn said<T: std::fmt::Debug>(outcome: Result<T, DataError>) -> String {
        let error = outcome.expect_err("is refused");
        let text = format!("{error}\n{}", error.help().unwrap_or_default());
        let words = text.split('`').map(|part| match part.rfind("/root") {
            Some(place) => &part[place + 1..],
            None => part,
        });
        words.collect::<Vec<_>>().join("`")
    }

    #[test]
    fn a_row_is_read_as_it_stands() {
        let rows = read(
            &[
                "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg,Female,68,Frontal,AP,1.0,-1.0",
                "root/train/patient00002/study3/view2_lateral.jpg,Male,8,Lateral,,,0.0",
                "train/patient64540/study1/view1_frontal.jpg,Unknown,,Frontal,LL,0.0,",
            ],
            &[],
        )
        .expect("reads");
        let ends = |row: &Row, path: &str| {
            assert!(row.path.ends_with(format!("root/{path}")), "{:?}", row.path);
        };
        ends(&rows[0], "train/patient00001/study1/view1_frontal.jpg");
        ends(&rows[1], "train/patient00002/study3/view2_lateral.jpg");
        ends(&rows[2], "train/patient64540/study1/view1_frontal.jpg");
        let lines: Vec<u64> = rows.iter().map(|row| row.line).collect();
        assert_eq!(lines, [2, 3, 4]);
        let patients: Vec<&str> = rows.iter().map(|row| row.patient.as_str()).collect();
        assert_eq!(patients, ["patient00001", "patient00002", "patient64540"]);
        let vocabulary = vocabulary();
        let of = |label: &str| -> Vec<Option<f32>> {
            let column = vocabulary.columns.iter().position(|column| column.label == label);
            rows.iter().map(|row| row.value(column.expect("is offered"))).collect()
        };
        assert_eq!(of("view"), [Some(1.0), Some(2.0), None]);
        assert_eq!(of("side"), [Some(0.0), Some(1.0), Some(0.0)]);
        assert_eq!(of("sex"), [Some(0.0), Some(1.0), None]);
        assert_eq!(of("Age"), [Some(68.0), Some(8.0), None]);
        assert_eq!(of("Edema"), [Some(1.0), None, Some(0.0)]);
        assert_eq!(of("Fracture"), [Some(-1.0), Some(0.0), None]);
        assert_eq!(of("No Finding"), [None; 3]);
    }

    #[test]
    fn wrong_rows_are_named_by_file_line_and_column() {
        let good = "train/patient1/study1/view1_frontal.png,Male,1,Frontal,PA,0,0";
        let bad = |row: &str| said(read(&[good, row], &[]));
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal"), @"
        `root/train.csv`, line 3: the row has 4 columns, the header has 7
        put a field that holds the separator or a line break in quotation marks, and see that no row is cut off
        ");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal,PA,0,0,0"), @"
        `root/train.csv`, line 3: the row has 8 columns, the header has 7
        put a field that holds the separator or a line break in quotation marks, and see that no row is cut off
        ");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal,PA,0,2.0"), @"`root/train.csv`, line 3, column `Fracture`: `2.0` is not 1 (positive), 0 (negative), -1 (uncertain) or nothing");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal,PA,NaN,0"), @"`root/train.csv`, line 3, column `Edema`: `NaN` is not 1 (positive), 0 (negative), -1 (uncertain) or nothing");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal,PA,-0.5,0"), @"`root/train.csv`, line 3, column `Edema`: `-0.5` is not 1 (positive), 0 (negative), -1 (uncertain) or nothing");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,old,Frontal,PA,0,0"), @"`root/train.csv`, line 3, column `Age`: `old` is not an age in years");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,M,1,Frontal,PA,0,0"), @"`root/train.csv`, line 3, column `Sex`: `M` is not Female, Male, Unknown or nothing");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Above,PA,0,0"), @"`root/train.csv`, line 3, column `Frontal/Lateral`: `Above` is not Frontal, Lateral or nothing");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal,XX,0,0"), @"`root/train.csv`, line 3, column `AP/PA`: `XX` is not AP, PA, LL, RL or nothing");
        insta::assert_snapshot!(bad("train/somebody/s/v.png,Male,1,Frontal,PA,0,0"), @"`root/train.csv`, line 3, column `Path`: `train/somebody/s/v.png` is not a path with a folder such as `patient00001`");
    }

    #[test]
    fn wrong_tables_are_named() {
        insta::assert_snapshot!(said(read(&[], &[])), @"`root/train.csv` leaves no image: it has no row below its header");
        insta::assert_snapshot!(said(read_text("", &[])), @"`root/train.csv`: the file is empty");
        insta::assert_snapshot!(said(read_text("Path,Edema\n", &["Edema", "Sex", "AP/PA"])), @r#"
        `root/train.csv`, line 1: the columns `Sex`, `AP/PA` are missing (found: Path, Edema)
        the first line of the table must name the columns as CheXpert does: Path, Sex, Age, Frontal/Lateral, AP/PA and the findings
        "#);
        insta::assert_snapshot!(said(read_text("File\n", &[])), @r#"
        `root/train.csv`, line 1: the column `Path` is missing (found: File)
        the first line of the table must name the columns as CheXpert does: Path, Sex, Age, Frontal/Lateral, AP/PA and the findings
        "#);
        let row = "train/patient1/study1/view1_frontal.png,Male,1,Frontal,PA,0,0";
        let latin = [HEADER.as_bytes(), b"\n", row.as_bytes(), b"\nM\xFCller,,,,,,\n"].concat();
        let folder = tempfile::tempdir().expect("is made");
        let root = folder.path().join("root");
        fs::create_dir(&root).expect("is made");
        fs::write(root.join(TRAIN), latin).expect("is written");
        insta::assert_snapshot!(said(read_table(&root, TRAIN, &[])), @"`root/train.csv`, line 3: it is not UTF-8 text (in column 1); save it as UTF-8 (in Excel \"CSV UTF-8\")");
    }

    #[test]
    fn a_missing_table_says_what_the_folder_should_hold() {
        let folder = tempfile::tempdir().expect("is made");
        let root = folder.path().join("root");
        insta::assert_snapshot!(said(read_table(&root, TRAIN, &[])), @r"
        there is no `root/train.csv`
        expected a folder in CheXpert's layout: `train.csv` and the images it names, such as `train/patient00001/study1/view1_frontal.jpg`
        ");
        fs::create_dir_all(root.join("inner")).expect("is made");
        insta::assert_snapshot!(said(read_table(&root, TRAIN, &[])), @r#"
        there is no `root/train.csv`
        expected a folder in CheXpert's layout: `train.csv` and the images it names, such as `train/patient00001/study1/view1_frontal.jpg`; the folder holds inner
        "#);
        fs::write(root.join("inner").join(TRAIN), "").expect("is written");
        insta::assert_snapshot!(said(read_table(&root, TRAIN, &[])), @r#"
        there is no `root/train.csv`
        expected a folder in CheXpert's layout: `train.csv` and the images it names, such as `train/patient00001/study1/view1_frontal.jpg`; did you mean `root/inner`?
        "#);
        insta::assert_snapshot!(said(read_table(&root, VALID, &[])), @r#"
        there is no `root/valid.csv`
        set `data.validation.fraction` (such as 0.1) to set patients of `train.csv` aside
        "#);
    }

    #[test]
    fn a_byte_order_mark_and_windows_line_ends_are_read() {
        let text = format!("\u{feff}{HEADER}\r\ntrain/patient1/s/v.png,Male,1,Frontal,PA,1,0\r\n");
        let rows = read_text(&text, &["Path", "Edema"]).expect("reads");
        assert_eq!(rows[0].values[12], 0.0);
    }
}
