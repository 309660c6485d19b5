//! From stored values to what the modality measured (PS3.3 C.11.1).

use super::dataset::{Dataset, Tag};
use super::header::Header;
use super::lut::{IN_ITEM, Lut};

const SEQUENCE: Tag = (0x0028, 0x3000);
const INTERCEPT: Tag = (0x0028, 0x1052);
const SLOPE: Tag = (0x0028, 0x1053);

/// What a stored value measures.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Modality {
    Identity,
    Linear { slope: f64, intercept: f64 },
    Table(Lut),
}

impl Modality {
    /// # Errors
    /// A table or a number that cannot be used.
    pub(super) fn of(dataset: &Dataset<'_>, signed: bool) -> Result<Self, String> {
        if let Some(item) = dataset.item(SEQUENCE) {
            return Lut::of(item, IN_ITEM, signed, "Modality LUT").map(Self::Table);
        }
        let slope = decimal(dataset, SLOPE, "Rescale Slope")?;
        let intercept = decimal(dataset, INTERCEPT, "Rescale Intercept")?;
        // Each is required where the other is; files lack one all the same.
        let (slope, intercept) = (slope.unwrap_or(1.0), intercept.unwrap_or(0.0));
        if slope == 0.0 {
            return Err("its Rescale Slope (0028,1053) is 0, which leaves no image".to_owned());
        }
        let same = slope == 1.0 && intercept == 0.0;
        Ok(if same { Self::Identity } else { Self::Linear { slope, intercept } })
    }

    /// Whether it can make negative numbers of a file's values.
    pub(super) fn is_signed(&self, header: &Header) -> bool {
        match self {
            Self::Identity => header.signed,
            Self::Linear { .. } => {
                let (low, high) = header.range();
                self.apply(low) < 0.0 || self.apply(high) < 0.0
            }
            Self::Table(_) => false,
        }
    }

    pub(super) fn apply(&self, stored: i32) -> f64 {
        match self {
            Self::Identity => f64::from(stored),
            Self::Linear { slope, intercept } => f64::from(stored) * slope + intercept,
            Self::Table(table) => f64::from(table.at(f64::from(stored))),
        }
    }
}

/// A decimal string (VR DS), where there is one.
///
/// # Errors
/// The text, where it is no finite number.
pub(super) fn decimal(dataset: &Dataset<'_>, tag: Tag, name: &str) -> Result<Option<f64>, String> {
    let Some(text) = dataset.text(tag) else { return Ok(None) };
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Ok(Some(number)),
        _ => Err(format!("its {name} is `{text}`, no number")),
    }
}
