//! What flows between layers.

use std::fmt;

use crate::memory::ActivationShape;

/// What flows between layers, for one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Size {
    /// Channels, height and width.
    Map([usize; 3]),
    /// How many features.
    Features(usize),
    /// How many outputs each head has.
    Outputs(Vec<usize>),
}

impl Size {
    /// Channels of a map, or how many features or outputs there are.
    pub fn channels(&self) -> usize {
        match self {
            Self::Map([channels, ..]) | Self::Features(channels) => *channels,
            Self::Outputs(outputs) => outputs.iter().sum(),
        }
    }

    /// The shape of `batch` images.
    pub fn of_batch(&self, batch: usize) -> ActivationShape {
        match self {
            Self::Map([channels, height, width]) => {
                ActivationShape::Map([batch, *channels, *height, *width])
            }
            Self::Features(count) => ActivationShape::Features([batch, *count]),
            Self::Outputs(outputs) => {
                ActivationShape::Outputs(outputs.iter().map(|count| [batch, *count]).collect())
            }
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Map([channels, height, width]) => {
                write!(formatter, "{channels} × {height} × {width}")
            }
            Self::Features(1) => formatter.write_str("1 feature"),
            Self::Features(count) => write!(formatter, "{count} features"),
            Self::Outputs(outputs) => write!(formatter, "the outputs of {} heads", outputs.len()),
        }
    }
}
