//! CheXpert's layout (Irvin et al. 2019, arXiv:1901.07031): `train.csv`, perhaps `valid.csv`, and
//! the images they name, in the original's or the small version's paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use csv::StringRecord;

use super::config::View;
use super::error::DataError;
use super::labels::FINDINGS;

/// The training list.
pub(super) const TRAIN: &str = "train.csv";
/// The validation list.
pub(super) const VALID: &str = "valid.csv";

const PATH: &str = "Path";
const SEX: &str = "Sex";
const AGE: &str = "Age";
const SIDE: &str = "Frontal/Lateral";
const PROJECTION: &str = "AP/PA";

/// One image, as its row has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub path: PathBuf,
    pub table: Arc<Path>,
    /// Counted from 1 with the header.
    pub line: u64,
    pub patient: String,
    /// Whether it is lateral.
    pub lateral: Option<bool>,
    pub view: Option<View>,
    pub female: Option<bool>,
    /// Years.
    pub age: Option<f32>,
    /// 0 to 1, or −1 for uncertain.
    pub findings: [Option<f32>; FINDINGS.len()],
}

/// Reads a table below `root`. `needed` columns must be there; of the others, those that are there
/// are read and checked too.
pub(super) fn read_table(
    root: &Path,
    name: &str,
    needed: &[&'static str],
) -> Result<Vec<Row>, DataError> {
    let table: Arc<Path> = root.join(name).into();
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .trim(csv::Trim::All)
        .from_path(&table)
        .map_err(|error| unreadable(root, &table, error))?;
    let header = reader.headers().map_err(|error| malformed(&table, &error))?.clone();
    if header.is_empty() {
        let reason = "the file is empty".to_owned();
        return Err(DataError::MalformedTable { table: table.to_path_buf(), line: None, reason });
    }
    let columns = Columns::find(&table, &header, needed)?;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| malformed(&table, &error))?;
        let line = record.position().map_or(0, csv::Position::line);
        if record.len() != header.len() {
            let (expected, found) = (header.len(), record.len());
            return Err(DataError::WrongRowLength {
                table: table.to_path_buf(),
                line,
                expected,
                found,
            });
        }
        rows.push(columns.read(root, &Fields { table: &table, line, record: &record })?);
    }
    if rows.is_empty() {
        let reason = "it has no row below its header".to_owned();
        return Err(DataError::NoImages { table: table.to_path_buf(), reason });
    }
    Ok(rows)
}

fn unreadable(root: &Path, table: &Path, error: csv::Error) -> DataError {
    match error.into_kind() {
        csv::ErrorKind::Io(source) if source.kind() == std::io::ErrorKind::NotFound => {
            DataError::NoTable { table: table.to_owned(), help: help_for_missing(root, table) }
        }
        csv::ErrorKind::Io(source) => DataError::io("read", table)(source),
        other => DataError::MalformedTable {
            table: table.to_owned(),
            line: None,
            reason: format!("{other:?}"),
        },
    }
}

/// What a user who named the wrong folder needs to know.
fn help_for_missing(root: &Path, table: &Path) -> String {
    if table.file_name().is_some_and(|name| name == VALID) {
        return "set `data.validation.fraction` (such as 0.1) to set patients of `train.csv` aside"
            .to_owned();
    }
    let expected = "expected a folder in CheXpert's layout: `train.csv` and the images it names, \
                    such as `train/patient00001/study1/view1_frontal.jpg`";
    let Ok(entries) = fs::read_dir(root) else {
        return format!("{expected}; there is no folder `{}`", root.display());
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if let Some(inner) = names.iter().find(|name| root.join(name).join(TRAIN).is_file()) {
        return format!("{expected}; did you mean `{}`?", root.join(inner).display());
    }
    if names.is_empty() {
        return format!("{expected}; the folder is empty");
    }
    let more = if names.len() > 5 { ", …" } else { "" };
    names.truncate(5);
    format!("{expected}; the folder holds {}{more}", names.join(", "))
}

fn malformed(table: &Path, error: &csv::Error) -> DataError {
    let reason = match error.kind() {
        csv::ErrorKind::Utf8 { err, .. } => format!("it is not UTF-8 text ({err})"),
        _ => error.to_string(),
    };
    let line = error.position().map(csv::Position::line);
    DataError::MalformedTable { table: table.to_owned(), line, reason }
}

/// Where each column stands.
struct Columns {
    path: usize,
    sex: Option<usize>,
    age: Option<usize>,
    side: Option<usize>,
    projection: Option<usize>,
    findings: [Option<usize>; FINDINGS.len()],
}

impl Columns {
    fn find(table: &Path, header: &StringRecord, needed: &[&str]) -> Result<Self, DataError> {
        let place = |name: &str| header.iter().position(|column| column == name);
        let mut missing: Vec<String> = Vec::new();
        for name in [PATH].iter().chain(needed) {
            if place(name).is_none() && !missing.iter().any(|known| known == name) {
                missing.push((*name).to_owned());
            }
        }
        let (Some(path), true) = (place(PATH), missing.is_empty()) else {
            let found = header.iter().map(str::to_owned).collect();
            return Err(DataError::MissingColumns { table: table.to_owned(), missing, found });
        };
        Ok(Self {
            path,
            sex: place(SEX),
            age: place(AGE),
            side: place(SIDE),
            projection: place(PROJECTION),
            findings: FINDINGS.map(place),
        })
    }

    fn read(&self, root: &Path, fields: &Fields) -> Result<Row, DataError> {
        let file = fields.at(Some(self.path));
        let patient = patient_of(file)
            .ok_or_else(|| fields.bad(PATH, file, "a path with a folder such as `patient00001`"))?;
        let female = match fields.at(self.sex) {
            "Female" => Some(true),
            "Male" => Some(false),
            "" | "Unknown" => None,
            other => return Err(fields.bad(SEX, other, "Female, Male, Unknown or nothing")),
        };
        let lateral = match fields.at(self.side) {
            "Lateral" => Some(true),
            "Frontal" => Some(false),
            "" => None,
            other => return Err(fields.bad(SIDE, other, "Frontal, Lateral or nothing")),
        };
        // LL and RL: lying on a side.
        let projection = match fields.at(self.projection) {
            "PA" => Some(View::Pa),
            "AP" => Some(View::Ap),
            "" | "LL" | "RL" => None,
            other => return Err(fields.bad(PROJECTION, other, "AP, PA, LL, RL or nothing")),
        };
        let mut findings = [None; FINDINGS.len()];
        for (finding, column) in self.findings.iter().enumerate() {
            findings[finding] =
                fields.number(*column, FINDINGS[finding], EXPECTED_LABEL, |label| {
                    label == -1.0 || (0.0..=1.0).contains(&label)
                })?;
        }
        Ok(Row {
            path: root.join(below_root(root, file)),
            table: fields.table.clone(),
            line: fields.line,
            patient: patient.to_owned(),
            lateral,
            view: if lateral == Some(true) { Some(View::Lateral) } else { projection },
            female,
            age: fields
                .number(self.age, AGE, "an age in years", |age| (0.0..=150.0).contains(&age))?,
            findings,
        })
    }
}

const EXPECTED_LABEL: &str = "1 (positive), 0 (negative), -1 (uncertain) or nothing";

/// A row and where it stands.
struct Fields<'a> {
    table: &'a Arc<Path>,
    line: u64,
    record: &'a StringRecord,
}

impl Fields<'_> {
    /// Empty for a column that the table lacks.
    fn at(&self, column: Option<usize>) -> &str {
        column.and_then(|column| self.record.get(column)).unwrap_or_default()
    }

    fn number(
        &self,
        column: Option<usize>,
        name: &str,
        expected: &'static str,
        allowed: impl Fn(f32) -> bool,
    ) -> Result<Option<f32>, DataError> {
        match self.at(column) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) if allowed(number) => Ok(Some(number)),
                _ => Err(self.bad(name, text, expected)),
            },
        }
    }

    fn bad(&self, column: &str, value: &str, expected: &'static str) -> DataError {
        DataError::BadValue {
            table: self.table.to_path_buf(),
            line: self.line,
            column: column.to_owned(),
            value: value.to_owned(),
            expected,
        }
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

    const HEADER: &str = "Path,Sex,Age,Frontal/Lateral,AP/PA,Edema,Fracture";

    fn read(rows: &[&str], needed: &[&'static str]) -> Result<Vec<Row>, DataError> {
        read_text(&format!("{HEADER}\n{}\n", rows.join("\n")), needed)
    }

    fn read_text(text: &str, needed: &[&'static str]) -> Result<Vec<Row>, DataError> {
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
        let views: Vec<Option<View>> = rows.iter().map(|row| row.view).collect();
        assert_eq!(views, [Some(View::Ap), Some(View::Lateral), None]);
        let women: Vec<Option<bool>> = rows.iter().map(|row| row.female).collect();
        assert_eq!(women, [Some(true), Some(false), None]);
        let ages: Vec<Option<f32>> = rows.iter().map(|row| row.age).collect();
        assert_eq!(ages, [Some(68.0), Some(8.0), None]);
        let [edema, fracture] = [5, 12];
        let labels =
            |finding| rows.iter().map(move |row| row.findings[finding]).collect::<Vec<_>>();
        assert_eq!(labels(edema), [Some(1.0), None, Some(0.0)]);
        assert_eq!(labels(fracture), [Some(-1.0), Some(0.0), None]);
        assert_eq!(labels(0), [None; 3]);
    }

    #[test]
    fn wrong_rows_are_named_by_file_line_and_column() {
        let good = "train/patient1/study1/view1_frontal.png,Male,1,Frontal,PA,0,0";
        let bad = |row: &str| said(read(&[good, row], &[]));
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal"), @"`root/train.csv`, line 3: the row has 4 columns, the header has 7");
        insta::assert_snapshot!(bad("train/patient2/s/v.png,Male,1,Frontal,PA,0,0,0"), @"`root/train.csv`, line 3: the row has 8 columns, the header has 7");
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
        insta::assert_snapshot!(said(read_table(&root, TRAIN, &[])), @"`root/train.csv`, line 3: it is not UTF-8 text (invalid utf-8: invalid UTF-8 in field 0 near byte index 1)");
    }

    #[test]
    fn a_missing_table_says_what_the_folder_should_hold() {
        let folder = tempfile::tempdir().expect("is made");
        let root = folder.path().join("root");
        insta::assert_snapshot!(said(read_table(&root, TRAIN, &[])), @r#"
        there is no `root/train.csv`
        expected a folder in CheXpert's layout: `train.csv` and the images it names, such as `train/patient00001/study1/view1_frontal.jpg`; there is no folder `root`
        "#);
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
        assert_eq!(rows[0].findings[12], Some(0.0));
    }
}
