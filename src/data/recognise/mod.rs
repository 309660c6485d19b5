//! What a folder or table of data looks like: a guess at its layout, to begin a configuration with.

mod arrays;
mod classes;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

pub use arrays::FoundArrays;
pub use classes::ClassFolders;
pub use table::FoundTable;

use super::layout::published;

/// What was found in a folder.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// A published data set: the name of its table under `[data]`, and its folder.
    Published(&'static str, PathBuf),
    /// A table with a row for each image.
    Table(FoundTable),
    /// A folder for each class.
    Classes(ClassFolders),
    /// NumPy arrays.
    Arrays(FoundArrays),
}

/// Something that can be predicted.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// The column, finding or array.
    pub name: String,
    /// What it holds.
    pub values: OfferValues,
    /// Whether a first configuration predicts it.
    pub proposed: bool,
}

/// What is predicted by its values.
#[derive(Debug, Clone, PartialEq)]
pub enum OfferValues {
    /// 0 to 1, so many for each image.
    Findings(usize),
    /// One of these classes.
    Classes(Vec<String>),
    /// Numbers, so many for each image.
    Numbers(usize),
}

/// Looks what data `path` holds, a folder or a table, and what could be predicted.
///
/// # Errors
/// What is there, where it is nothing that can be trained on, with what to do.
pub fn recognise(path: &Path) -> Result<(Found, Vec<Offer>), String> {
    if path.is_file() {
        return table::read(path);
    }
    if !path.is_dir() {
        let looked = crate::paths::looked_in(path);
        return Err(format!("there is no folder or table {}{looked}", path.display()));
    }
    if let Some((name, findings)) = published(path) {
        let offer = |name| Offer { name, values: OfferValues::Findings(1), proposed: true };
        let found = Found::Published(name, path.to_owned());
        return Ok((found, findings.into_iter().map(offer).collect()));
    }
    let mut reasons = Vec::new();
    let tables = table::tables_in(path);
    for table in &tables {
        match table::read(table) {
            Ok(found) => return Ok(found),
            Err(reason) => reasons.push(reason),
        }
    }
    if let Some(found) = arrays::find(path) {
        return Ok(found);
    }
    if let Some(found) = classes::find(path) {
        return Ok(found);
    }
    reasons.insert(0, format!("{} holds no data set that is known by its files", path.display()));
    reasons.push(
        "A table with a column of image paths, a folder for each class, NumPy arrays and the published \
         layouts are known. Name the table itself, or the folder that holds them."
            .to_owned(),
    );
    Err(reasons.join("\n"))
}

/// What is in a folder, in the order of names.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| !name(path).starts_with('.'));
    paths.sort();
    paths
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests;
