//! A column of the tables that name the images, for what is grouped by it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use super::dataset::Dataset;
use super::error::DataError;
use super::labels::nearest;
use super::table::Table;

/// The field of each image of `dataset` in the column `name` of the table that names it, whatever the
/// case of its letters; empty where the field says that its value is unknown, and for the images of a
/// table without that column.
///
/// # Errors
/// No table with such a column, and tables that cannot be read.
pub fn column(dataset: &Dataset, name: &str) -> Result<Vec<String>, DataError> {
    let paths: BTreeSet<&Path> = dataset.samples().iter().map(|sample| &*sample.table).collect();
    let mut fields: HashMap<&Path, HashMap<u64, String>> = HashMap::new();
    let mut others: BTreeMap<&Path, Vec<String>> = BTreeMap::new();
    for path in paths {
        let table = Table::read(path, || "the table has gone since it was read".to_owned())?;
        let same = |known: &&str| known.to_lowercase() == name.to_lowercase();
        let place = table.column(name).or_else(|| table.names().position(|known| same(&known)));
        let Some(place) = place else {
            others.insert(path, table.names().map(str::to_owned).collect());
            continue;
        };
        let known = table.rows().filter(|row| !row.is_unknown(place));
        fields.insert(path, known.map(|row| (row.line(), row.at(place).to_owned())).collect());
    }
    if let (true, Some((table, found))) = (fields.is_empty(), others.into_iter().next()) {
        let names: Vec<&str> = found.iter().map(String::as_str).collect();
        let meant = nearest(name, &names).map(|known| format!("did you mean `{known}`? "));
        let help = format!(
            "{}images are grouped by a column of the table that names them, by `source`, or by a head \
             of classes",
            meant.unwrap_or_default()
        );
        let (table, missing) = (table.to_path_buf(), vec![name.to_owned()]);
        return Err(DataError::MissingColumns { table, missing, found, help });
    }
    let field = |path: &Path, line: u64| fields.get(path)?.get(&line).cloned();
    let samples = dataset.samples().iter();
    Ok(samples.map(|sample| field(&sample.table, sample.line).unwrap_or_default()).collect())
}
