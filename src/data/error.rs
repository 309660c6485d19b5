//! What can be wrong with data, said so that a person can put it right.

use std::path::{Path, PathBuf};

use super::batch::BadImage;
use super::image::ENDINGS;
use crate::fault::Fault;
use crate::paths::looked_in;
use crate::screen::{Bytes, counted};

/// Data that is wrong or missing. Every variant names the file and, where there is one, the line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// Whoever asked for a phantom wants it no more.
    #[error("stopped while radiographs were drawn; none of them is kept")]
    Stopped,
    /// A file or folder that the system refuses to read, write or move.
    #[error("cannot {action} `{}`{}: {source}", path.display(), looked(path, source))]
    Io {
        /// What was tried, as a verb: "read", "write", ….
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The folder of a data set is not there.
    #[error("there is no folder `{}`{}", folder.display(), looked_in(folder))]
    NoFolder {
        /// The folder, as the configuration has it.
        folder: PathBuf,
        /// The key that names it, such as `data.csv.root`.
        key: String,
        /// A folder beside it that may be meant.
        meant: Option<PathBuf>,
    },
    /// The folder of a data set is something else.
    #[error("`{}` is a file, and `{key}` names a folder", folder.display())]
    NotAFolder {
        /// What the configuration has for the folder.
        folder: PathBuf,
        /// The key that names it, such as `data.csv.root`.
        key: String,
    },
    /// The folder of a data set, or the table in it, is not there.
    #[error("there is no `{}`{}", table.display(), looked_in(table))]
    NoTable {
        /// The table that was expected.
        table: PathBuf,
        /// What to do about it.
        help: String,
    },
    /// A table without a column that the configuration needs.
    #[error(
        "`{}`, line 1: the column{} {} missing (found: {})",
        table.display(),
        if missing.len() == 1 { "" } else { "s" },
        named(missing, if missing.len() == 1 { "is" } else { "are" }),
        found.join(", ")
    )]
    MissingColumns {
        /// The table.
        table: PathBuf,
        /// The columns that are needed and not there.
        missing: Vec<String>,
        /// The columns that are there.
        found: Vec<String>,
        /// Which columns such a table has.
        help: String,
    },
    /// A row with fewer or more fields than the header.
    #[error(
        "`{}`, line {line}: the row has {}, the header has {expected}",
        table.display(),
        counted(*found, "column", "columns")
    )]
    WrongRowLength {
        /// The table.
        table: PathBuf,
        /// The line, counted from 1 with the header.
        line: u64,
        /// Columns of the header.
        expected: usize,
        /// Columns of the row.
        found: usize,
    },
    /// A table that is no CSV in UTF-8.
    #[error("`{}`{}: {reason}", table.display(), at(*line))]
    MalformedTable {
        /// The table.
        table: PathBuf,
        /// The line, where known.
        line: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// A field whose value means nothing.
    #[error("`{}`, line {line}, column `{column}`: `{value}` is not {expected}", table.display())]
    BadValue {
        /// The table.
        table: PathBuf,
        /// The line, counted from 1 with the header.
        line: u64,
        /// The column's name.
        column: String,
        /// The field as it stands there.
        value: String,
        /// What may stand there.
        expected: Box<str>,
        /// What to do about it, where that is more.
        help: Option<Box<str>>,
    },
    /// A NumPy array that is missing, damaged or of the wrong shape.
    #[error("array `{}`: {reason}", array.display())]
    MalformedArray {
        /// The array.
        array: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A number of an array that means nothing.
    #[error("array `{}`, image {image} (counted from 0): {value} is not {expected}", array.display())]
    BadTarget {
        /// The array.
        array: PathBuf,
        /// Its place along the first side.
        image: usize,
        /// The number.
        value: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// A patient in two lists of which no patient may be in both.
    #[error(
        "patient `{patient}` is in the {} and in the {} list: `{}`, line {}, and `{}`, line {}",
        lists[0], lists[1], tables[0].display(), lines[0], tables[1].display(), lines[1]
    )]
    SharedPatient {
        /// The patient.
        patient: String,
        /// The lists' names, such as "training" and "validation".
        lists: [&'static str; 2],
        /// The tables that name the patient.
        tables: [PathBuf; 2],
        /// Their lines, counted from 1 with the header.
        lines: [u64; 2],
    },
    /// One image that two data sets name, on both sides of the split.
    #[error(
        "image `{}` is trained on and validated on: `{}`, line {}, and `{}`, line {}",
        path.display(), tables[0].display(), lines[0], tables[1].display(), lines[1]
    )]
    SharedImage {
        /// The image's file.
        path: PathBuf,
        /// The tables that name it.
        tables: [PathBuf; 2],
        /// Their lines, counted from 1 with the header.
        lines: [u64; 2],
    },
    /// An image that a data set lists for two patients.
    #[error(
        "image `{}` is listed for two patients: `{}` in {}, and `{}` in {}",
        rows.path.display(), patients[0], rows.place(0), patients[1], rows.place(1)
    )]
    TwoPatients {
        /// The rows that name it.
        rows: Box<TwoRows>,
        /// The patients.
        patients: [String; 2],
    },
    /// An image that a data set lists twice, with labels that cannot both be.
    #[error(
        "image `{}` is listed twice and `{label}` differs: {} in {}, and {} in {}",
        rows.path.display(), values[0], rows.place(0), values[1], rows.place(1)
    )]
    Contradiction {
        /// The rows that name it.
        rows: Box<TwoRows>,
        /// The label, class or number.
        label: String,
        /// What the rows say of it.
        values: [String; 2],
    },
    /// A head that nothing can be learnt for.
    #[error("no training image has a known label of the head `{head}` ({labels})")]
    NothingKnown {
        /// The head's name.
        head: String,
        /// Its labels, or the first few of them.
        labels: String,
    },
    /// A data set of which no image can be loaded: the folder or the shape is likely wrong.
    #[error("{} {image}", unusable(place, *tried))]
    NoFirstImage {
        /// The layout's table, such as `nih` or `sources[1].nih`.
        place: String,
        /// How many images were tried.
        tried: usize,
        /// The first of them.
        image: BadImage,
    },
    /// Files of images that are not there.
    #[error("{} of {all} images {} missing, the first is {first}", crate::screen::thousands(*missing), if *missing == 1 { "is" } else { "are" })]
    MissingFiles {
        /// How many are missing.
        missing: usize,
        /// Of how many.
        all: usize,
        /// The first of them.
        first: Box<BadImage>,
    },
    /// A list without an image that the configuration asks for.
    #[error("the {list} list of `data.{place}` names no image")]
    EmptyList {
        /// The layout's table, such as `nih` or `sources[1].nih`.
        place: String,
        /// The list's name.
        list: &'static str,
    },
    /// The test list is asked for, and no data set has one.
    #[error("the data have no test list")]
    NoTestList,
    /// A table of which no row is left.
    #[error("`{}` leaves no image: {reason}", table.display())]
    NoImages {
        /// The table.
        table: PathBuf,
        /// Why.
        reason: String,
    },
    /// A split with nothing on one side.
    #[error(
        "a validation fraction of {fraction} of the {} of `data.{place}` leaves no image for {side}",
        counted(*patients, "patient", "patients")
    )]
    EmptySplit {
        /// The layout's table, such as `nih` or `sources[1].nih`.
        place: String,
        /// The share asked for.
        fraction: f64,
        /// How many patients there are.
        patients: usize,
        /// The side that is empty: "training" or "validation".
        side: &'static str,
    },
    /// Folds of which some would have no patient.
    #[error(
        "the {} of `data.{place}` cannot be cut into {folds} folds",
        counted(*patients, "patient", "patients")
    )]
    FewPatients {
        /// The layout's table, such as `nih` or `sources[1].nih`.
        place: String,
        /// How many patients there are.
        patients: usize,
        /// How many folds are asked for.
        folds: usize,
    },
    /// An image that cannot be read, with `on_bad_image = "stop"`.
    #[error(transparent)]
    BadImage(#[from] BadImage),
    /// Settings of a phantom that cannot be drawn.
    #[error("{0}")]
    PhantomSettings(String),
    /// A folder where a phantom should be and something else is.
    #[error("`{}` exists and holds no phantom: {reason}", root.display())]
    NotAPhantom {
        /// The folder.
        root: PathBuf,
        /// What is missing or unreadable.
        reason: String,
    },
    /// A phantom that was written with other settings.
    #[error("`{}` holds a phantom with other settings: {differences}", root.display())]
    OtherPhantom {
        /// The folder.
        root: PathBuf,
        /// Each setting that differs, as written and as wanted.
        differences: String,
    },
    /// `drop_last` with fewer images than a batch holds.
    #[error(
        "{images} training images fill no batch of {batch}, and `data.drop_last` leaves out what is not full"
    )]
    NoBatch {
        /// Training images.
        images: usize,
        /// Images of a batch.
        batch: usize,
    },
    /// A disk without room for a cache.
    #[error(
        "the cache `{}` needs {} more, and {} are free",
        folder.display(), Bytes(*needed), Bytes(*free)
    )]
    NoRoom {
        /// The cache's folder.
        folder: PathBuf,
        /// Bytes that are missing from the cache.
        needed: u64,
        /// Bytes that the disk has.
        free: u64,
    },
    /// Labels that the tables do not have, found when their headers were read, or what planning should
    /// have refused.
    #[error("{} (`{}`)", .0.message, .0.key)]
    Labels(Fault),
    /// Settings that planning should have refused.
    #[error("{0}")]
    Config(String),
    /// A worker of the loader failed; a defect of this program.
    #[error("a thread that loads images failed: {0}")]
    Worker(String),
}

/// Two rows that name one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TwoRows {
    /// The image's file.
    pub path: PathBuf,
    /// The tables.
    pub tables: [PathBuf; 2],
    /// Their lines, counted from 1 with the header.
    pub lines: [u64; 2],
}

impl TwoRows {
    fn place(&self, row: usize) -> String {
        format!("`{}`, line {}", self.tables[row].display(), self.lines[row])
    }
}

impl DataError {
    /// What to do about it, where that is more than the message says.
    pub fn help(&self) -> Option<String> {
        let help = match self {
            Self::NoTable { help, .. } | Self::MissingColumns { help, .. } => help.clone(),
            Self::NoFolder { key, meant, .. } => {
                let correct = format!("correct `{key}`, which names it");
                match meant {
                    Some(folder) => format!("did you mean `{}`? {correct}", folder.display()),
                    None => correct,
                }
            }
            Self::Labels(fault) => return fault.help.clone(),
            Self::BadValue { help, .. } => return help.as_deref().map(str::to_owned),
            Self::WrongRowLength { .. } => {
                "put a field that holds the separator or a line break in \
                 quotation marks, and see that no row is cut off"
                    .to_owned()
            }
            Self::BadImage(image) if !image.path.exists() => not_there(&image.path),
            Self::MissingFiles { first, .. } => {
                format!("{}; `trainer data inspect` lists all", not_there(&first.path))
            }
            Self::BadImage(_) => REPAIR.to_owned(),
            Self::EmptySplit { .. } => {
                "change `data.validation.fraction`, or use more patients".to_owned()
            }
            Self::FewPatients { .. } => {
                "lower `data.validation.folds`, or use more patients".to_owned()
            }
            Self::SharedPatient { lists: ["training", "validation"], .. } => "take the patient \
                 out of one list, or set `data.validation.fraction` to split the training list \
                 by patient"
                .to_owned(),
            Self::SharedPatient { .. } => "take the patient out of one list".to_owned(),
            Self::SharedImage { .. } => "give each image to one of the sources, or use the same \
                 official lists in both"
                .to_owned(),
            Self::TwoPatients { .. } | Self::Contradiction { .. } => {
                "keep the row that is right and remove the other".to_owned()
            }
            Self::NothingKnown { .. } => "fill in these labels in the table, or remove the head; \
                 uncertain labels (-1) count as unknown under `uncertain = \"ignore\"`"
                .to_owned(),
            Self::NoFirstImage { place, tried, image } => image_help(place, *tried, image),
            Self::EmptyList { list, .. } if *list != "training" => {
                "set `data.validation.fraction` (such as 0.1) to set patients of the training \
                 list aside"
                    .to_owned()
            }
            Self::NoTestList => {
                "name another list (--split validation), or other data with --data, \
                                 a configuration whose images are all measured on"
                    .to_owned()
            }
            Self::NoBatch { .. } => {
                "lower `train.batch_size`, or remove `data.drop_last`".to_owned()
            }
            Self::NoRoom { .. } => {
                "make room, choose another disk with `data.cache.disk.folder`, or \
                 halve what 16-bit images take with `data.cache.disk.bits = \"8\"`"
                    .to_owned()
            }
            Self::NotAPhantom { .. } => {
                "choose a folder that does not exist yet, or remove this one".to_owned()
            }
            Self::OtherPhantom { .. } => "choose another folder, remove this one so that it is \
                 drawn anew, or ask for the settings it has"
                .to_owned(),
            _ => return None,
        };
        Some(help)
    }

    /// Says what to do about a field, below what is wrong with it.
    pub(super) fn helped(mut self, told: impl Into<String>) -> Self {
        if let Self::BadValue { help, .. } = &mut self {
            *help = Some(told.into().into_boxed_str());
        }
        self
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { action, path, source }
    }
}

/// What to do about an image whose file does not exist.
fn not_there(path: &Path) -> String {
    let correct = "correct the table or the folder in which its paths begin (`root`), or set \
                   `data.on_bad_image = \"skip\"` to leave such images out";
    format!("{}{correct}", meant_file(path).unwrap_or_default())
}

/// What a path that names no file may mean.
pub(crate) fn meant_file(path: &Path) -> Option<String> {
    let text = path.to_string_lossy();
    if text.contains('\\') {
        return Some("write / in place of \\ in the table's paths; ".to_owned());
    }
    let ending =
        ENDINGS.into_iter().find(|ending| Path::new(&format!("{text}.{ending}")).is_file())?;
    Some(format!("`{text}.{ending}` exists: write the paths with .{ending}; "))
}

/// What to do about one image that cannot be read.
const REPAIR: &str = "repair or remove the image, or set `data.on_bad_image = \"skip\"` to leave such \
                      images out";

/// What to do about the first image of a data set, where all the others are likely to be as bad.
fn image_help(place: &str, tried: usize, image: &BadImage) -> String {
    match image.path.try_exists() {
        Ok(false) => {
            let meant = meant_file(&image.path).unwrap_or_default();
            format!("{meant}set `data.{place}.root` to the folder in which the table's paths begin")
        }
        _ if tried > 1 => "see that the table names images, and repair them".to_owned(),
        _ => REPAIR.to_owned(),
    }
}

/// How a message begins that goes on with the first of so many images.
fn unusable(place: &str, tried: usize) -> String {
    match tried {
        1 => format!("the first image of `data.{place}` cannot be used:"),
        _ => {
            format!("none of the first {tried} images of `data.{place}` can be used; the first is")
        }
    }
}

impl From<Fault> for DataError {
    fn from(fault: Fault) -> Self {
        Self::Labels(fault)
    }
}

/// `` `a`, `b` are ``: names followed by a verb.
fn named(names: &[String], verb: &str) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    format!("{} {verb}", names.join(", "))
}

/// `, line 3`, where the line is known.
/// Where a file was looked for that is not there.
fn looked(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => looked_in(path),
        _ => String::new(),
    }
}

fn at(line: Option<u64>) -> String {
    line.map_or_else(String::new, |line| format!(", line {line}"))
}
