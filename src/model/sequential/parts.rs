//! Layers as parts: products, what lies between them, and branches.

use super::Join;
use super::sizes::{Layer, Size, SizedLayer, output};
use crate::memory::layered::Part;

/// Branches, and how their outputs become one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Joint {
    /// How.
    pub how: Join,
    /// Channels or features of each branch's output.
    pub channels: Vec<usize>,
}

/// Layers as parts of one layer (a product) or more.
pub(super) type LayerPart<'a> = Part<&'a [SizedLayer], &'a [SizedLayer], Joint>;

/// `layers`, run on `input`, as parts.
pub(super) fn parts(layers: &[SizedLayer], input: Size) -> Vec<LayerPart<'_>> {
    let mut parts = Vec::new();
    let mut rest = layers;
    while let Some(first) = rest.first() {
        let between = rest.iter().position(|layer| ends(&layer.layer)).unwrap_or(rest.len());
        let (taken, behind) = rest.split_at(between.max(1));
        let given = output(&layers[..layers.len() - rest.len()], input);
        parts.push(match &first.layer {
            Layer::Branches(how, rows) => {
                let channels = rows.iter().map(|row| output(row, given).channels()).collect();
                let rows = rows.iter().map(|row| self::parts(row, given)).collect();
                Part::Branches(Joint { how: *how, channels }, rows)
            }
            layer if ends(layer) => Part::Product(taken),
            _ => Part::Between(taken),
        });
        rest = behind;
    }
    parts
}

/// Whether what lies between products ends at this layer.
fn ends(layer: &Layer) -> bool {
    matches!(layer, Layer::Conv { .. } | Layer::Linear { .. } | Layer::Branches(..))
}

/// Whether some of `layers` have parameters.
pub(super) fn trains(layers: &[SizedLayer]) -> bool {
    layers.iter().any(|layer| layer.parameter_count() > 0)
}

impl Size {
    /// Channels or features.
    fn channels(self) -> usize {
        match self {
            Self::Map([channels, ..]) | Self::Features(channels) => channels,
        }
    }
}
