//! Layouts of data sets: one file each, from a configuration to rows.
//!
//! A layout says without reading a file what it offers ([`Vocabulary`]), so that planning can check
//! the heads' labels; later it reads its tables into [`Row`]s. A new one is a file here, a table in
//! [`LayoutTables`] and its line in [`LayoutTables::tables`].

mod arrays;
mod check;
mod chexpert;
mod csv;
mod mimic;
mod mura;
mod nih;
mod padchest;
mod padchest_labels;
mod phantom;
mod published;
mod sheet;
mod vindr;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) use check::{check_policies, check_uncertain_labels, key_in};
pub use chexpert::FINDINGS;
pub(super) use csv::{list_named, names_patients};
pub(super) use published::published;

use super::config::{ImageConfig, LayoutTables, Uncertain, UncertainPolicy};
use super::error::DataError;
use crate::fault::Fault;
use crate::model::HeadConfig;

/// A data set's layout: implemented by the configuration of each.
pub(super) trait Layout {
    /// What a row tells about an image, in the order of [`Row::values`]. Pure; `heads` matter only
    /// where the user's configuration, not the layout, names the columns. Their labels are as this
    /// data set calls them.
    fn vocabulary(&self, heads: &[HeadConfig]) -> Vocabulary;

    /// The folder that the images' paths begin in, where the configuration names one that must be
    /// there.
    fn configured_root(&self) -> Option<&Path> {
        None
    }

    /// The columns of its table that may hold labels, where only the table says which there are.
    /// Reads the table's header.
    fn label_columns(&self) -> Option<Result<Vec<String>, DataError>> {
        None
    }

    /// Refuses images that cannot become what `image` says, as far as that is seen without reading
    /// one (of arrays, the shape).
    fn check_images(&self, _image: &ImageConfig) -> Result<(), DataError> {
        Ok(())
    }

    /// Where the configuration could say what tells patients apart, and does not: the key that would,
    /// and what to write. Reads the table's header.
    fn untold_patients(&self) -> Option<(&'static str, String)> {
        None
    }

    /// What is odd about the images, told by a look at a few of them.
    fn odd_images(&self, _image: &ImageConfig) -> Option<String> {
        None
    }

    /// The lists that the data set's authors drew up. Pure.
    fn lists(&self) -> &[List];

    /// Reads the rows of `wanted` lists. The columns at `needed` places of the vocabulary must be
    /// there; of the others, those that are there are read and checked too.
    ///
    /// # Errors
    /// Tables that are missing or wrong, by file, line and column.
    fn read(
        &self,
        vocabulary: &Vocabulary,
        needed: &[usize],
        wanted: &[List],
    ) -> Result<BTreeMap<List, Vec<Row>>, DataError>;

    /// The folder that the images' paths begin in, which may differ from one machine to the next.
    fn root(&self) -> PathBuf {
        self.configured_root().map_or_else(PathBuf::new, Path::to_path_buf)
    }

    /// What uncertain labels become in training, for layouts that have such labels.
    fn uncertain(&self) -> Option<&Uncertain>;

    /// Whether it needs to be made before it is read (the phantom).
    fn prepare(
        &self,
        _progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<(), DataError> {
        Ok(())
    }

    /// The settings that are about labels, against the heads that there are. Pure.
    fn check_heads(&self, _heads: &[HeadConfig]) -> Result<(), Fault> {
        Ok(())
    }

    /// The layout's settings, as far as no file is needed to judge them: an empty folder, the same
    /// view twice. The policies for uncertain labels are checked for every layout elsewhere.
    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

type Tables<'a> = [(&'static str, Option<&'a dyn Layout>); 9];

impl LayoutTables {
    /// Every layout that a configuration may give, by the name of its table.
    fn tables(&self) -> Tables<'_> {
        fn layout<T: Layout>(table: &Option<T>) -> Option<&dyn Layout> {
            table.as_ref().map(|layout| layout as &dyn Layout)
        }
        [
            ("chexpert", layout(&self.chexpert)),
            ("mimic", layout(&self.mimic)),
            ("nih", layout(&self.nih)),
            ("padchest", layout(&self.padchest)),
            ("vindr", layout(&self.vindr)),
            ("mura", layout(&self.mura)),
            ("csv", layout(&self.csv)),
            ("arrays", layout(&self.arrays)),
            ("phantom", layout(&self.phantom)),
        ]
    }

    /// The layouts given, by the names of their tables.
    pub(super) fn given(&self) -> Vec<(&'static str, &dyn Layout)> {
        self.tables().into_iter().filter_map(|(name, layout)| Some((name, layout?))).collect()
    }

    /// The names of all tables that one may be given by.
    pub(super) fn names() -> Vec<&'static str> {
        Self::default().tables().map(|(name, _)| name).to_vec()
    }
}

/// A list of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum List {
    Train,
    Validation,
    Test,
}

impl List {
    /// As messages name it: "the … list".
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "training",
            Self::Validation => "validation",
            Self::Test => "test",
        }
    }
}

/// The rows of the lists that are wanted, as they are read.
struct Lists(BTreeMap<List, Vec<Row>>);

impl Lists {
    fn new(wanted: &[List]) -> Self {
        Self(wanted.iter().map(|list| (*list, Vec::new())).collect())
    }

    /// Keeps a row of a list that is wanted.
    fn add(&mut self, list: List, row: Row) {
        if let Some(rows) = self.0.get_mut(&list) {
            rows.push(row);
        }
    }

    /// All of them; a list of which no row is left is refused, `what` saying what its rows lack.
    fn done(self, table: &Path, what: &str) -> Result<BTreeMap<List, Vec<Row>>, DataError> {
        match self.0.iter().find(|(_, rows)| rows.is_empty()) {
            None => Ok(self.0),
            Some((list, _)) => {
                let reason = format!("no row of the {} list {what}", list.name());
                Err(DataError::NoImages { table: table.to_owned(), reason })
            }
        }
    }
}

/// What the rows of a layout tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vocabulary {
    pub columns: Vec<Column>,
    /// Where targets are given head by head (arrays): the heads that have one, by the configuration.
    pub targets: Option<Vec<String>>,
    /// The columns of its table that no head reads, where the table says which there are.
    pub unread: Vec<String>,
    /// The keys that it is configured by, such as `data.csv`; for messages.
    pub place: String,
    /// The labels and classes that the configuration renames: what this data set calls them, and what
    /// the heads do; for messages.
    pub renamed: BTreeMap<String, String>,
}

impl Vocabulary {
    pub fn of(columns: Vec<Column>) -> Self {
        Self {
            columns,
            targets: None,
            unread: Vec::new(),
            place: String::new(),
            renamed: BTreeMap::new(),
        }
    }

    /// The columns of their tables that the columns at `places` are read from.
    pub fn sources<'a>(&'a self, places: &'a [usize]) -> impl Iterator<Item = &'a str> {
        places.iter().flat_map(|place| self.columns[*place].sources.iter().map(String::as_str))
    }
}

/// One thing that a row tells about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    /// As heads name it: a finding or a number; for classes, the kind (`view`, `sex`), which only
    /// messages use.
    pub label: String,
    /// The columns of the table it is read from, as published; what [`DataError`] names.
    pub sources: Vec<String>,
    pub kind: Kind,
    /// The only head it is for, by name; any when absent.
    pub head: Option<String>,
}

impl Column {
    /// A column for any head.
    pub fn new(label: &str, sources: &[&str], kind: Kind) -> Self {
        let sources = sources.iter().map(|source| (*source).to_owned()).collect();
        Self { label: label.to_owned(), sources, kind, head: None }
    }

    /// A finding with a column of its own name.
    pub fn finding(label: &str) -> Self {
        Self::new(label, &[label], Kind::Finding)
    }

    /// Classes of one kind.
    pub fn classes(label: &str, sources: &[&str], classes: &[&str]) -> Self {
        let classes = classes.iter().map(|class| (*class).to_owned()).collect();
        Self::new(label, sources, Kind::Classes(classes))
    }
}

/// What a column of a vocabulary holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// 0 to 1, or −1 for uncertain: for `multilabel` and `binary` heads.
    Finding,
    /// The number of one of these classes: for `multiclass` heads; of two classes each is also for
    /// `binary` heads.
    Classes(Vec<String>),
    /// For `regression` heads.
    Number,
}

/// One image, as its row has it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub path: PathBuf,
    /// Which image of the file it is, for arrays.
    pub item: Option<usize>,
    pub table: Arc<Path>,
    /// Counted from 1 with the header; for arrays the image's number from 1.
    pub line: u64,
    /// Unique in the data set.
    pub patient: String,
    /// For each column of the vocabulary; NaN is unknown.
    pub values: Vec<f32>,
}

impl Row {
    /// The value of a finding under a policy for uncertain ones; `None` where it is unknown.
    pub fn finding(
        &self,
        column: usize,
        policy: UncertainPolicy,
        soft: impl FnOnce([f64; 2]) -> f32,
    ) -> Option<f32> {
        match self.values[column] {
            value if value.is_nan() => None,
            value if value >= 0.0 => Some(value),
            _ => match policy {
                UncertainPolicy::Ignore => None,
                UncertainPolicy::Zeros => Some(0.0),
                UncertainPolicy::Ones => Some(1.0),
                UncertainPolicy::Smooth(range) => Some(soft(range)),
            },
        }
    }

    /// What stands in a column of numbers or classes; `None` where it is unknown.
    pub fn value(&self, column: usize) -> Option<f32> {
        Some(self.values[column]).filter(|value| !value.is_nan())
    }
}

#[cfg(test)]
mod tests;
