//! `[data.csv]`: any table with a row for each image, its columns named by the configuration.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

use super::sheet::one_of;
use super::{Column, Kind, Layout, List, Row, Vocabulary};
use crate::data::config::{CsvConfig, Decimal, Uncertain};
use crate::data::error::DataError;
use crate::data::labels::nearest;
use crate::data::table::{Table, TableRow};
use crate::fault::{Fault, fault};
use crate::model::{HeadConfig, Task};
use crate::screen::written;

const EXPECTED_LABEL: &str =
    "1 or true (positive), 0 or false (negative), a number between, -1 (uncertain) or nothing";
const EXPECTED_SPLIT: &str =
    "train (or training), valid (or validation, val, validate, dev) or test";

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
        Vocabulary { place: "data.csv".to_owned(), ..Vocabulary::of(columns) }
    }

    fn configured_root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    fn label_columns(&self) -> Option<Result<Vec<String>, DataError>> {
        let others = [Some(&self.image), self.patient.as_ref(), self.split.as_ref()];
        let header = Table::header(&self.table, || self.missing());
        Some(header.map(|mut header| {
            header.retain(|column| !others.contains(&Some(column)));
            header
        }))
    }

    fn untold_patients(&self) -> Option<(&'static str, String)> {
        if self.patient.is_some() {
            return None;
        }
        let header = Table::header(&self.table, || self.missing()).unwrap_or_default();
        let told = match header.iter().find(|column| names_patients(column)) {
            Some(column) => format!(
                "the table has `{column}`: if that tells patients apart, write `patient = {column:?}`"
            ),
            None => format!(
                "write the column that tells them apart, or `patient = {:?}` where no two images are \
                 of one patient",
                self.image
            ),
        };
        Some(("patient", told))
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
        let table = Table::read(&self.table, || self.missing())?;
        let table = table.with_decimal_comma(self.decimal == Some(Decimal::Comma));
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

    fn check_heads(&self, heads: &[HeadConfig]) -> Result<(), Fault> {
        let mut known: Vec<&str> = Vec::new();
        for head in heads {
            match head.task {
                Task::Multiclass => known.push(&head.name),
                _ => known.extend(head.labels.iter().map(String::as_str)),
            }
        }
        let Some(key) = self.columns.keys().find(|key| !known.contains(&key.as_str())) else {
            return Ok(());
        };
        let message = match heads.iter().find(|head| head.labels.contains(key)) {
            Some(head) => format!(
                "`{key}` is a class of the head `{0}`, whose classes stand in one column: write `{0}`",
                head.name
            ),
            None => format!("no head has a label `{key}` here"),
        };
        let meant = nearest(key, &known).map(|known| format!("did you mean `{known}`? "));
        let help = "write `columns = { LABEL = \"column\" }`; for a `multiclass` head its name stands in \
                    place of a label";
        let help = meant.unwrap_or_default() + help;
        Err(fault(format!("columns.{}", written(key)), message, help).on_key())
    }

    fn check(&self) -> Result<(), Fault> {
        let empty = [
            ("table", self.table.as_os_str().is_empty(), "write the table's path"),
            ("image", self.image.is_empty(), "write the column of the images' paths"),
        ];
        match empty.into_iter().find(|(_, empty, _)| *empty) {
            Some((key, _, help)) => Err(fault(key, format!("`{key}` is empty"), help)),
            None => Ok(()),
        }
    }
}

/// Whether a column of that name is likely to tell patients apart.
pub(in crate::data) fn names_patients(column: &str) -> bool {
    let plain: String = column.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
    let who = ["patient", "subject", "participant", "person"];
    let rest = who.iter().find_map(|who| plain.strip_prefix(who));
    matches!(plain.as_str(), "mrn" | "pid")
        || matches!(rest, Some("" | "s" | "id" | "ids" | "key" | "name" | "no" | "nr" | "number"))
}

impl CsvConfig {
    /// What to do where there is no table.
    fn missing(&self) -> String {
        "`table` names no file; correct its path".to_owned()
    }

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
        table.columns(&names, |missing| {
            let asked = |name: &String| self.asked_for(name, table, vocabulary, needed);
            one_column(table, vocabulary, needed, missing).unwrap_or_else(|| {
                missing.iter().take(MOST_ASKED).map(asked).collect::<Vec<_>>().join("; ")
            })
        })?;
        let place = |name: &str| table.column(name);
        Ok(Columns {
            image: place(&self.image).unwrap_or_default(),
            patient: self.patient.as_deref().and_then(place),
            split: self.split.as_deref().and_then(place),
            values: vocabulary
                .columns
                .iter()
                .map(|column| (place(&column.sources[0]), column))
                .collect(),
            vocabulary,
        })
    }

    /// For a column that the table lacks: the key or the head that asks for it, and what may be meant.
    fn asked_for(
        &self,
        name: &str,
        table: &Table,
        vocabulary: &Vocabulary,
        needed: &[usize],
    ) -> String {
        let place = &vocabulary.place;
        let meant = nearest(name, &table.names().collect::<Vec<_>>());
        let did_you_mean =
            meant.map_or(String::new(), |meant| format!(": did you mean `{meant}`?"));
        let own = [
            ("image", Some(&self.image)),
            ("patient", self.patient.as_ref()),
            ("split", self.split.as_ref()),
        ];
        if let Some((key, _)) = own.iter().find(|(_, own)| own.is_some_and(|own| own == name)) {
            return format!("`{place}.{key}` names `{name}`{did_you_mean}");
        }
        let columns = needed.iter().map(|at| &vocabulary.columns[*at]);
        let Some(column) = columns.into_iter().find(|column| column.sources[0] == name) else {
            return String::new();
        };
        let (head, label) = (column.head.as_deref().unwrap_or_default(), &column.label);
        let (what, classes) = match &column.kind {
            Kind::Classes(classes) => (format!("the head `{head}`"), classes.as_slice()),
            _ => (format!("the label `{label}` of the head `{head}`"), &[][..]),
        };
        if name != label {
            return format!("`{place}.columns` names `{name}` for {what}{did_you_mean}");
        }
        if let (Some(ours), Some((source, _))) =
            (vocabulary.renamed.get(label), place.rsplit_once('.'))
        {
            return format!("`{source}.labels` names `{name}` for `{ours}`{did_you_mean}");
        }
        let classes: Vec<&str> = classes.iter().map(String::as_str).collect();
        let column = table.column_with(&classes).map(|(column, _)| column).or(meant);
        let write = |column: &str| {
            format!("write `columns = {{ {} = {column:?} }}` under `{place}`", written(label))
        };
        match column {
            Some(column) => format!(
                "{what} is read from the column of its name: did you mean `{column}`? Then {}",
                write(column)
            ),
            None => format!(
                "{what} is read from the column of its name; where it has another, {}",
                write("…")
            ),
        }
    }
}

/// Columns that the table lacks and whose keys are named; more are like these.
const MOST_ASKED: usize = 2;

/// What is said where labels have no column each, and one column holds them as classes.
fn one_column(
    table: &Table,
    vocabulary: &Vocabulary,
    needed: &[usize],
    missing: &[String],
) -> Option<String> {
    let columns = needed.iter().map(|at| &vocabulary.columns[*at]);
    let findings = columns
        .filter(|column| column.kind == Kind::Finding && missing.contains(&column.sources[0]));
    let findings: Vec<&str> = findings.map(|column| column.label.as_str()).collect();
    let (column, class) = table.column_with(&findings)?;
    Some(format!(
        "the column `{column}` holds `{class}` as a class: a head that is read from such a column has \
         `task = \"multiclass\"`, and is named `{column}` or has `columns = {{ NAME = {column:?} }}`"
    ))
}

/// The list that a table calls so.
pub(in crate::data) fn list_named(text: &str) -> Option<List> {
    match text.to_lowercase().as_str() {
        "train" | "training" => Some(List::Train),
        "valid" | "validation" | "val" | "validate" | "dev" => Some(List::Validation),
        "test" => Some(List::Test),
        _ => None,
    }
}

/// Where the columns stand in the table.
struct Columns<'a> {
    image: usize,
    patient: Option<usize>,
    split: Option<usize>,
    /// For each column of the vocabulary.
    values: Vec<(Option<usize>, &'a Column)>,
    vocabulary: &'a Vocabulary,
}

impl Columns<'_> {
    fn list(&self, row: &TableRow<'_>) -> Result<List, DataError> {
        let Some(column) = self.split else { return Ok(List::Train) };
        match list_named(row.at(column)) {
            Some(list) => Ok(list),
            None if row.at(column).is_empty() => {
                let help = "fill it in for every row, or remove `split` from the configuration";
                Err(row.bad(column, EXPECTED_SPLIT).helped(help))
            }
            None => Err(row.bad(column, EXPECTED_SPLIT)),
        }
    }

    fn row(&self, table: &Table, row: &TableRow<'_>, root: &Path) -> Result<Row, DataError> {
        let file = row.at(self.image);
        if file.is_empty() {
            let help = "write the image's path, or remove the row";
            return Err(row.bad(self.image, "the path of an image").helped(help));
        }
        let patient = match self.patient {
            Some(column) if row.at(column).is_empty() => {
                let help = "fill it in, remove the row, or remove `patient` from the configuration: \
                            each image then is a patient of its own";
                return Err(row.bad(column, "a patient's name or number").helped(help));
            }
            Some(column) => row.at(column),
            None => file,
        };
        let value = |&(place, column): &(Option<usize>, &Column)| match place {
            Some(place) => value(row, place, column, self.vocabulary),
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
fn value(
    row: &TableRow<'_>,
    place: usize,
    column: &Column,
    vocabulary: &Vocabulary,
) -> Result<f32, DataError> {
    match &column.kind {
        Kind::Finding => match row.at(place).to_lowercase().as_str() {
            "true" => Ok(1.0),
            "false" => Ok(0.0),
            word => {
                let allowed = |label| label == -1.0 || (0.0..=1.0).contains(&label);
                row.number(place, EXPECTED_LABEL, allowed).map_err(|error| match means(word) {
                    Some(number) => error.helped(format!("write {number} in its place")),
                    None => error,
                })
            }
        },
        Kind::Number => row.number(place, "a number or nothing", f32::is_finite),
        Kind::Classes(classes) => class(row, place, column, classes, vocabulary),
    }
}

/// What a word for yes or no, in small letters, is written as: spreadsheets have those of their
/// language.
fn means(word: &str) -> Option<u8> {
    const YES: [&str; 14] = [
        "yes",
        "y",
        "positive",
        "wahr",
        "ja",
        "j",
        "vrai",
        "oui",
        "verdadero",
        "sí",
        "si",
        "vero",
        "sì",
        "waar",
    ];
    const NO: [&str; 12] = [
        "no", "n", "negative", "falsch", "nein", "faux", "non", "falso", "nee", "não", "onwaar",
        "nei",
    ];
    match word {
        word if YES.contains(&word) => Some(1),
        word if NO.contains(&word) => Some(0),
        _ => None,
    }
}

/// More classes than these fill a screen.
const MANY: usize = 20;

/// The number of the class. A head may well have a class `None`, so that classes are looked for before
/// what stands for "unknown".
fn class(
    row: &TableRow<'_>,
    place: usize,
    column: &Column,
    classes: &[String],
    vocabulary: &Vocabulary,
) -> Result<f32, DataError> {
    let text = row.at(place);
    if let Some(class) = classes.iter().position(|class| class == text) {
        return Ok(class as f32);
    }
    if row.is_unknown(place) {
        return Ok(f32::NAN);
    }
    let shown = classes.iter().map(|class| match vocabulary.renamed.get(class) {
        Some(ours) => format!("`{ours}` as `{class}`"),
        None => format!("`{class}`"),
    });
    let expected = format!("one of the head's labels ({}) or nothing", listed(shown));
    let own: Vec<&str> = classes
        .iter()
        .filter(|class| !vocabulary.renamed.contains_key(*class))
        .map(String::as_str)
        .collect();
    let head = column.head.as_deref().unwrap_or_default();
    let is_decimal = text.strip_suffix(".0").filter(|whole| own.contains(whole));
    if let Some(whole) = is_decimal {
        let help = format!(
            "it is what pandas writes of `{whole}` in a column with blanks: save the column as integers \
             (`astype(\"Int64\")`), or write the head's labels as the table has them"
        );
        return Err(row.bad(place, expected).helped(help));
    }
    let source = vocabulary.place.rsplit_once("].").filter(|_| !own.is_empty());
    if let Some((source, _)) = source {
        let ours = match own.as_slice() {
            [only] => Some(*only),
            own => nearest(text, own),
        };
        let help = format!(
            "where that is what this data set calls a class, write `labels = {{ {} = {text:?} }}` under \
             `{source}]`",
            ours.map_or_else(|| "CLASS".to_owned(), written)
        );
        return Err(row.bad(place, expected).helped(help));
    }
    let mut known: HashSet<&str> = classes.iter().map(String::as_str).collect();
    let others = row.all(place).map(|row| row.at(place)).filter(|other| known.insert(other));
    let others: Vec<String> = others.map(|other| format!("`{other}`")).collect();
    let fields = if others.len() > 1 { "these fields" } else { "the field" };
    let help = format!(
        "correct {fields}, add {} to `labels` of the head `{head}`, or leave {fields} empty (the class \
         is then unknown)",
        listed(others.into_iter())
    );
    let all: Vec<&str> = classes.iter().map(String::as_str).collect();
    Err(row.bad(place, one_of(&expected, text, &all)).helped(help))
}

/// The first of them, and how many more there are.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MANY);
    let shown = names.take(MANY).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests;
