//! `[data.csv]`: any table with a row for each image, its columns named by the configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::check::SettingFault;
use super::{Column, Kind, Layout, List, Row, Vocabulary};
use crate::data::config::{CsvConfig, Uncertain};
use crate::data::error::DataError;
use crate::data::table::{Table, TableRow};
use crate::model::{HeadConfig, Task};

const EXPECTED_LABEL: &str =
    "1 or true (positive), 0 or false (negative), a number between, -1 (uncertain) or nothing";
const EXPECTED_SPLIT: &str = "train, valid (or validation, val, validate, dev) or test";

impl Layout for CsvConfig {
    fn vocabulary(&self, heads: &[HeadConfig]) -> Vocabulary {
        let mut columns = Vec::new();
        for head in heads {
            let column = |label: &str, kind| Column {
                label: label.to_owned(),
                sources: vec![self.columns.get(label).map_or(label, String::as_str).to_owned()],
                kind,
                head: Some(head.name.clone()),
            };
            match head.task {
                Task::Multiclass => {
                    columns.push(column(&head.name, Kind::Classes(head.labels.clone())));
                }
                Task::Regression => {
                    columns.extend(head.labels.iter().map(|label| column(label, Kind::Number)));
                }
                Task::Multilabel | Task::Binary => {
                    columns.extend(head.labels.iter().map(|label| column(label, Kind::Finding)));
                }
            }
        }
        Vocabulary { columns }
    }

    fn lists(&self) -> &[List] {
        match self.split {
            Some(_) => &[List::Train, List::Validation, List::Test],
            None => &[List::Train],
        }
    }

    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        let missing = || "`data.csv.table` names no file; write its path".to_owned();
        let table = Table::read(&self.table, missing)?;
        let columns = self.find(&table, vocabulary, needed)?;
        let root = self.root();
        let mut lists: BTreeMap<List, Vec<Row>> =
            wanted.iter().map(|list| (*list, Vec::new())).collect();
        for row in table.rows() {
            let list = columns.list(&row)?;
            let row = columns.row(&table, &row, &root)?;
            if let Some(rows) = lists.get_mut(&list) {
                rows.push(row);
            }
        }
        Ok(lists)
    }

    fn root(&self) -> PathBuf {
        let beside = || self.table.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        self.root.clone().unwrap_or_else(beside)
    }

    fn uncertain(&self) -> Option<&Uncertain> {
        Some(&self.uncertain)
    }

    fn check(&self) -> Result<(), SettingFault> {
        let empty = [
            ("table", self.table.as_os_str().is_empty(), "write the table's path"),
            ("image", self.image.is_empty(), "write the column of the images' paths"),
        ];
        match empty.into_iter().find(|(_, empty, _)| *empty) {
            Some((key, _, help)) => Err(SettingFault::new(key, format!("`{key}` is empty"), help)),
            None => Ok(()),
        }
    }
}

impl CsvConfig {
    fn find<'a>(
        &self,
        table: &Table,
        vocabulary: &'a Vocabulary,
        needed: &[usize],
    ) -> Result<Columns<'a>, DataError> {
        let mut names = vec![self.image.as_str()];
        names.extend(self.patient.as_deref());
        names.extend(self.split.as_deref());
        names.extend(needed.iter().map(|at| vocabulary.columns[*at].sources[0].as_str()));
        table
            .columns(&names, "write the columns' names under `[data.csv]` as the table has them")?;
        let place = |name: &str| table.column(name);
        Ok(Columns {
            image: place(&self.image).unwrap_or_default(),
            patient: self.patient.as_deref().and_then(place),
            split: self.split.as_deref().and_then(place),
            values: vocabulary
                .columns
                .iter()
                .map(|column| (place(&column.sources[0]), &column.kind))
                .collect(),
        })
    }
}

/// Where the columns stand in the table.
struct Columns<'a> {
    image: usize,
    patient: Option<usize>,
    split: Option<usize>,
    /// For each column of the vocabulary.
    values: Vec<(Option<usize>, &'a Kind)>,
}

impl Columns<'_> {
    fn list(&self, row: &TableRow<'_>) -> Result<List, DataError> {
        let Some(column) = self.split else { return Ok(List::Train) };
        match row.at(column).to_lowercase().as_str() {
            "train" | "training" => Ok(List::Train),
            "valid" | "validation" | "val" | "validate" | "dev" => Ok(List::Validation),
            "test" => Ok(List::Test),
            _ => Err(row.bad(column, EXPECTED_SPLIT)),
        }
    }

    fn row(&self, table: &Table, row: &TableRow<'_>, root: &Path) -> Result<Row, DataError> {
        let file = row.at(self.image);
        if file.is_empty() {
            return Err(row.bad(self.image, "the path of an image"));
        }
        let patient = match self.patient {
            Some(column) if row.at(column).is_empty() => {
                return Err(row.bad(column, "a patient's name or number"));
            }
            Some(column) => row.at(column),
            None => file,
        };
        let value = |&(column, kind): &(Option<usize>, &Kind)| match column {
            Some(column) => value(row, column, kind),
            None => Ok(f32::NAN),
        };
        Ok(Row {
            path: root.join(file),
            item: None,
            table: table.path().clone(),
            line: row.line(),
            patient: patient.to_owned(),
            values: self.values.iter().map(value).collect::<Result<_, _>>()?,
        })
    }
}

/// The field as a number; NaN where it says that nothing is known.
fn value(row: &TableRow<'_>, column: usize, kind: &Kind) -> Result<f32, DataError> {
    let text = row.at(column);
    // What R and pandas write for an unknown value.
    if matches!(text, "" | "NA" | "NaN" | "nan" | "None" | "null") {
        return Ok(f32::NAN);
    }
    match kind {
        Kind::Finding => match text.to_lowercase().as_str() {
            "true" => Ok(1.0),
            "false" => Ok(0.0),
            _ => row.number(column, EXPECTED_LABEL, |label| {
                label == -1.0 || (0.0..=1.0).contains(&label)
            }),
        },
        Kind::Number => row.number(column, "a number or nothing", f32::is_finite),
        Kind::Classes(classes) => classes
            .iter()
            .position(|class| class == text)
            .map(|class| class as f32)
            .ok_or_else(|| row.bad(column, "one of the head's labels or nothing")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TABLE: &str = "\
file,who,part,Edema present,view,Age
a.png,p1,train,1,PA,31.5
b.png,p1,train,-1,AP,
sub/c.png,p2,VAL,,NA,40
d.png,p3,test,False,PA,50
e.png,p4,train,0.25,,60
";
    const SETTINGS: &str = "image = 'file'\npatient = 'who'\nsplit = 'part'\n\
        columns = { Edema = 'Edema present', projection = 'view' }";

    fn heads() -> Vec<HeadConfig> {
        let head = |name: &str, task: &str, labels: &[&str]| {
            let text = format!("name = '{name}'\ntask = '{task}'\nlabels = {labels:?}");
            toml::from_str(&text).expect("reads")
        };
        vec![
            head("findings", "multilabel", &["Edema"]),
            head("projection", "multiclass", &["AP", "PA"]),
            head("age", "regression", &["Age"]),
        ]
    }

    fn read(
        table: &str,
        settings: &str,
        wanted: &[List],
    ) -> (tempfile::TempDir, Result<BTreeMap<List, Vec<Row>>, DataError>) {
        let folder = tempfile::tempdir().expect("is made");
        let path = folder.path().join("t.csv");
        fs::write(&path, table).expect("is written");
        let config: CsvConfig =
            toml::from_str(&format!("table = {path:?}\n{settings}")).expect("reads");
        let vocabulary = config.vocabulary(&heads());
        let needed: Vec<usize> = (0..vocabulary.columns.len()).collect();
        let lists = config.read(&vocabulary, &needed, wanted);
        (folder, lists)
    }

    #[test]
    fn rows_are_read_by_the_columns_that_the_configuration_names() {
        let (folder, lists) = read(TABLE, SETTINGS, &[List::Train, List::Validation, List::Test]);
        let lists = lists.expect("reads");
        let found = |list: List| -> Vec<(String, u64, String, Vec<String>)> {
            let rows = lists[&list].iter();
            rows.map(|row| {
                let path = row.path.strip_prefix(folder.path()).expect("is below the table");
                let values = row.values.iter().map(f32::to_string).collect();
                (path.display().to_string(), row.line, row.patient.clone(), values)
            })
            .collect()
        };
        let row = |path: &str, line, patient: &str, values: [&str; 3]| {
            (path.to_owned(), line, patient.to_owned(), values.map(str::to_owned).to_vec())
        };
        assert_eq!(
            found(List::Train),
            [
                row("a.png", 2, "p1", ["1", "1", "31.5"]),
                row("b.png", 3, "p1", ["-1", "0", "NaN"]),
                row("e.png", 6, "p4", ["0.25", "NaN", "60"]),
            ]
        );
        assert_eq!(found(List::Validation), [row("sub/c.png", 4, "p2", ["NaN", "NaN", "40"])]);
        assert_eq!(found(List::Test), [row("d.png", 5, "p3", ["0", "1", "50"])]);
    }

    #[test]
    fn without_a_split_column_all_rows_are_for_training_and_without_patients_each_is_one() {
        let settings = "image = 'file'\nroot = '/images'\n\
            columns = { Edema = 'Edema present', projection = 'view' }";
        let (_folder, lists) = read(TABLE, settings, &[List::Train]);
        let rows = &lists.expect("reads")[&List::Train];
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[2].path, Path::new("/images/sub/c.png"));
        assert_eq!(rows[2].patient, "sub/c.png");
    }

    fn said(table: &str, settings: &str) -> String {
        let (folder, lists) = read(table, settings, &[List::Train, List::Validation]);
        let message = lists.expect_err("is refused").to_string();
        message.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn wrong_columns_and_values_are_named_where_they_stand() {
        let with = |from: &str, to: &str| said(&TABLE.replacen(from, to, 1), SETTINGS);
        insta::assert_snapshot!(with("Edema present", "Edema"), @"`t.csv`, line 1: the column `Edema present` is missing (found: file, who, part, Edema, view, Age)");
        insta::assert_snapshot!(with("file,who", "path,patient"), @"`t.csv`, line 1: the columns `file`, `who` are missing (found: path, patient, part, Edema present, view, Age)");
        insta::assert_snapshot!(with("1,PA", "2,PA"), @"`t.csv`, line 2, column `Edema present`: `2` is not 1 or true (positive), 0 or false (negative), a number between, -1 (uncertain) or nothing");
        insta::assert_snapshot!(with("1,PA", "maybe,PA"), @"`t.csv`, line 2, column `Edema present`: `maybe` is not 1 or true (positive), 0 or false (negative), a number between, -1 (uncertain) or nothing");
        insta::assert_snapshot!(with("1,PA", "1,PAX"), @"`t.csv`, line 2, column `view`: `PAX` is not one of the head's labels or nothing");
        insta::assert_snapshot!(with("31.5", "inf"), @"`t.csv`, line 2, column `Age`: `inf` is not a number or nothing");
        insta::assert_snapshot!(with("VAL", "later"), @"`t.csv`, line 4, column `part`: `later` is not train, valid (or validation, val, validate, dev) or test");
        insta::assert_snapshot!(with("a.png", ""), @"`t.csv`, line 2, column `file`: `` is not the path of an image");
        insta::assert_snapshot!(with("p4", ""), @"`t.csv`, line 6, column `who`: `` is not a patient's name or number");
    }
}
