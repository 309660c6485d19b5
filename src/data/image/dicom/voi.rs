//! From measured values to how they are shown (PS3.3 C.11.2): a table or a window, the first where
//! a file offers several.

use super::dataset::{Dataset, Tag};
use super::lut::{IN_ITEM, Lut};
use super::modality::decimal;

const SEQUENCE: Tag = (0x0028, 0x3010);
const CENTRE: Tag = (0x0028, 0x1050);
const WIDTH: Tag = (0x0028, 0x1051);
const FUNCTION: Tag = (0x0028, 0x1056);

/// Where a value lies between black, 0, and white, 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Voi {
    /// The file says nothing.
    Absent,
    Table(Lut),
    Window {
        function: Function,
        centre: f64,
        width: f64,
    },
}

/// The shape of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Linear,
    LinearExact,
    Sigmoid,
}

impl Voi {
    /// Reads the table, or else the window; `signed` says whether measured values may be negative.
    ///
    /// # Errors
    /// A table or window that cannot be used.
    pub(super) fn of(dataset: &Dataset<'_>, signed: bool) -> Result<Self, String> {
        if let Some(item) = dataset.item(SEQUENCE) {
            return Lut::of(item, IN_ITEM, signed, "VOI LUT").map(Self::Table);
        }
        let centre = decimal(dataset, CENTRE, "Window Center")?;
        let width = decimal(dataset, WIDTH, "Window Width")?;
        let (centre, width) = match (centre, width) {
            (None, None) => return Ok(Self::Absent),
            (Some(centre), Some(width)) => (centre, width),
            (Some(_), None) => {
                return Err("it has a Window Center without a Window Width (0028,1051)".to_owned());
            }
            (None, Some(_)) => {
                return Err("it has a Window Width without a Window Center (0028,1050)".to_owned());
            }
        };
        let function = match dataset.text(FUNCTION) {
            None | Some("LINEAR") => Function::Linear,
            Some("LINEAR_EXACT") => Function::LinearExact,
            Some("SIGMOID") => Function::Sigmoid,
            Some(other) => return Err(format!("its VOI LUT Function `{other}` is not read")),
        };
        let narrow = if function == Function::Linear { width < 1.0 } else { width <= 0.0 };
        if narrow {
            return Err(format!("its Window Width (0028,1051) is {width}, which shows nothing"));
        }
        Ok(Self::Window { function, centre, width })
    }

    /// Where a measured value lies, 0 to 1; `None` where the file does not say.
    pub(super) fn apply(&self, value: f64) -> Option<f64> {
        match self {
            Self::Absent => None,
            Self::Table(table) => Some((f64::from(table.at(value)) / table.most()).min(1.0)),
            Self::Window { function, centre, width } => Some(match function {
                Function::Linear => ramp(value, centre - 0.5, width - 1.0),
                Function::LinearExact => ramp(value, *centre, *width),
                Function::Sigmoid => 1.0 / (1.0 + (-4.0 * (value - centre) / width).exp()),
            }),
        }
    }
}

/// A linear window has width 0 where it is a step: the comparisons come first.
fn ramp(value: f64, centre: f64, width: f64) -> f64 {
    if value <= centre - width / 2.0 {
        0.0
    } else if value > centre + width / 2.0 {
        1.0
    } else {
        (value - centre) / width + 0.5
    }
}
