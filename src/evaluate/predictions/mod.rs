//! The table of predictions: one row an image, for people and their scripts.
//!
//! Its columns are `path`, `patient`, and for each label `<head>/<label>` (the probability, or the
//! number of a `regression` head), then, where they are told, with these endings: `/decision` (1 or 0; empty
//! where none is made), `/truth` (empty where it is unknown), `/spread` (how far several predictions lie
//! apart) and `/conformal` (a set of decisions). What follows the first slash is the label, which may hold
//! slashes itself. At last, where it is told, comes `error`: why nothing is predicted of an image,
//! whose other fields are empty.
//!
//! [`PredictionWriter`] writes such a table, [`PredictionReader`] reads it; [`PredictionLines`] writes the
//! same as JSON lines.

mod lines;
mod reader;
mod writer;

use std::fmt;
use std::io;
use std::path::PathBuf;

pub use self::lines::PredictionLines;
pub use self::reader::PredictionReader;
pub use self::writer::PredictionWriter;
use super::DecisionSet;

const DECISION: &str = "/decision";
const TRUTH: &str = "/truth";
const SPREAD: &str = "/spread";
const CONFORMAL: &str = "/conformal";
const ERROR: &str = "error";

/// What a table tells of each image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictionHeader {
    /// Of each label, in their order.
    pub labels: Vec<PredictionColumns>,
    /// Whether it is told why nothing is predicted of an image.
    pub error: bool,
}

/// What is told of one label.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PredictionColumns {
    /// The head's name, without a slash.
    pub head: String,
    /// The label's.
    pub label: String,
    /// Whether a decision is told.
    pub decision: bool,
    /// Whether the truth is told.
    pub truth: bool,
    /// Whether it is told how far several predictions of an image lie apart.
    pub spread: bool,
    /// Whether a set of decisions is told.
    pub conformal: bool,
}

impl PredictionColumns {
    fn name(&self) -> String {
        format!("{}/{}", self.head, self.label)
    }

    /// What may be told beside the value, and whether it is, in the order of the columns.
    fn told(&self) -> [(bool, &'static str); 4] {
        [
            (self.decision, DECISION),
            (self.truth, TRUTH),
            (self.spread, SPREAD),
            (self.conformal, CONFORMAL),
        ]
    }

    /// The columns of the table, the value's first.
    fn names(&self) -> Vec<String> {
        let more = self.told().into_iter().filter(|(told, _)| *told);
        let more = more.map(|(_, ending)| self.name() + ending);
        [self.name()].into_iter().chain(more).collect()
    }
}

/// One image.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The image's file, as the data set names it.
    pub path: String,
    /// Whose image it is.
    pub patient: String,
    /// One for each of the [`PredictionColumns`], in their order; or the reason why nothing is predicted.
    pub told: Result<Vec<PredictedLabel>, String>,
}

impl Prediction {
    /// What is predicted, label by label; nothing where there is a reason instead.
    pub fn labels(&self) -> &[PredictedLabel] {
        self.told.as_deref().unwrap_or_default()
    }
}

/// What is predicted of one label of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct PredictedLabel {
    /// The probability, or the number.
    pub value: f64,
    /// Whether it is decided positive; `None` where no decision is made or told.
    pub decision: Option<bool>,
    /// The truth; `None` where it is unknown or not told.
    pub truth: Option<f64>,
    /// The standard deviation of the predictions that are taken together.
    pub spread: Option<f64>,
    /// What is not ruled out.
    pub conformal: Option<PredictedSet>,
}

/// What is not ruled out about a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictedSet {
    /// Which decisions.
    Decisions(DecisionSet),
    /// Whether the image is of this class of a `multiclass` head.
    Class(bool),
}

impl PredictedSet {
    /// Reads what [`fmt::Display`] writes.
    fn read(text: &str) -> Option<Self> {
        let decisions = |negative, positive| Self::Decisions(DecisionSet { negative, positive });
        Some(match text {
            "0" => Self::Class(false),
            "1" => Self::Class(true),
            "{}" => decisions(false, false),
            "{0}" => decisions(true, false),
            "{1}" => decisions(false, true),
            "{0,1}" => decisions(true, true),
            _ => return None,
        })
    }
}

impl fmt::Display for PredictedSet {
    /// As the table tells it: `{0}`, `{1}`, `{0,1}` or `{}`; of a class 1 or 0.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decisions(set) => set.fmt(formatter),
            Self::Class(is) => u8::from(*is).fmt(formatter),
        }
    }
}

/// A table of predictions that cannot be used, or not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PredictionError {
    /// The system refuses to write.
    #[error("cannot write predictions: {0}")]
    Unwritable(#[from] io::Error),
    /// A file that the system refuses to read, or that is no CSV in UTF-8.
    #[error("`{}`{}: {reason}", file.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, where known.
        line: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// A header that is not that of such a table.
    #[error("`{}`, line 1, column `{column}`: {reason}", file.display())]
    Header {
        /// The file.
        file: PathBuf,
        /// The column's name.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A row with fewer or more fields than the header.
    #[error("`{}`, line {line}: the row has {found} columns, the header has {expected}", file.display())]
    WrongRowLength {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1 with the header.
        line: u64,
        /// Columns of the header.
        expected: usize,
        /// Columns of the row.
        found: usize,
    },
    /// A field whose value means nothing.
    #[error("`{}`, line {line}, column `{column}`: `{value}` is not {expected}", file.display())]
    BadValue {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1 with the header.
        line: u64,
        /// The column's name.
        column: String,
        /// The field as it stands there.
        value: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// An image that has two rows with different patients or truths. The same row again is no error: a
    /// data set may list an image twice.
    #[error(
        "`{}`, line {line}: image `{path}` has another patient or another truth than in line {first}",
        file.display()
    )]
    Twice {
        /// The file.
        file: PathBuf,
        /// The line of the second row.
        line: u64,
        /// The image.
        path: String,
        /// The line of the first.
        first: u64,
    },
}

#[cfg(test)]
mod tests;
