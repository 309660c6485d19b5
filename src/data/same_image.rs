//! The same image listed more than once: harmless, or a row too many that reaches both sides of a
//! split.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use super::dataset::{Dataset, Sample};
use super::error::{DataError, TwoRows};
use super::layout::{Kind, List, Row};
use super::source::Source;
use crate::screen::counted;

/// Refuses an image that a data set lists for two patients, or with labels that contradict each
/// other. What is left is the same row again, which a warning tells of.
///
/// Only columns that a head needs are compared, and only where both rows know their value.
pub(super) fn check_within(
    source: &Source,
    lists: &BTreeMap<List, Vec<Row>>,
) -> Result<Option<String>, DataError> {
    let needed = source.needed();
    let mut seen: HashMap<PathBuf, Vec<&Row>> = HashMap::new();
    let (mut again, mut example) = (0, None);
    // The images of an array are its own numbers, and none of them is there twice.
    for row in lists.values().flatten().filter(|row| row.item.is_none()) {
        let before = seen.entry(plain(&row.path)).or_default();
        before.iter().try_for_each(|first| agree(source, &needed, first, row))?;
        if let Some(first) = before.first() {
            again += 1;
            example.get_or_insert((*first, row));
        }
        before.push(row);
    }
    Ok(example.map(|(first, second)| {
        let [one, other] =
            [first, second].map(|row| format!("`{}`, line {}", row.table.display(), row.line));
        let (rows, name) = (counted(again, "row", "rows"), &source.name);
        let path = second.path.display();
        let names = if again == 1 { "names" } else { "name" };
        format!(
            "{rows} of `data.{name}` {names} an image that another row names, such as `{path}` \
             ({one}, and {other}); it counts as often as it is named"
        )
    }))
}

/// Refuses two rows of one image that do not go together.
fn agree(source: &Source, needed: &[usize], first: &Row, second: &Row) -> Result<(), DataError> {
    let rows = || {
        Box::new(TwoRows {
            path: second.path.clone(),
            tables: [first.table.to_path_buf(), second.table.to_path_buf()],
            lines: [first.line, second.line],
        })
    };
    if first.patient != second.patient {
        let patients = [first.patient.clone(), second.patient.clone()];
        return Err(DataError::TwoPatients { rows: rows(), patients });
    }
    let differs = |column: &&usize| {
        let both = first.value(**column).zip(second.value(**column));
        both.is_some_and(|(first, second)| first != second)
    };
    let Some(&column) = needed.iter().find(differs) else { return Ok(()) };
    let about = &source.vocabulary.columns[column];
    let shown = |row: &Row| match &about.kind {
        Kind::Classes(classes) => {
            classes.get(row.values[column] as usize).cloned().unwrap_or_default()
        }
        Kind::Finding | Kind::Number => row.values[column].to_string(),
    };
    let (label, values) = (about.label.clone(), [shown(first), shown(second)]);
    Err(DataError::Contradiction { rows: rows(), label, values })
}

/// Refuses an image that one source trains on and another validates on.
pub(super) fn check_apart(train: &Dataset, validation: &Dataset) -> Result<(), DataError> {
    let image = |sample: &Sample| (plain(&sample.path), sample.item);
    let trained: BTreeMap<_, &Sample> =
        train.samples().iter().map(|sample| (image(sample), sample)).collect();
    for sample in validation.samples() {
        if let Some(other) = trained.get(&image(sample)) {
            return Err(DataError::SharedImage {
                path: sample.path.clone(),
                tables: [other.table.to_path_buf(), sample.table.to_path_buf()],
                lines: [other.line, sample.line],
            });
        }
    }
    Ok(())
}

/// The same path for the same file, however it is written (links are not followed).
pub(super) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in std::path::absolute(path).as_deref().unwrap_or(path).components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}
