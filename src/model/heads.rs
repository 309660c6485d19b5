//! Heads over the pooled features, as layers.

use super::layers::{Init, Join, Layer, Op, Row, Size, StageLayers};
use super::{HeadConfig, Task};

impl HeadConfig {
    /// How many numbers the head puts out for an image.
    pub fn outputs(&self) -> usize {
        match self.task {
            Task::Binary => 1,
            Task::Multilabel | Task::Multiclass | Task::Regression => self.labels.len(),
        }
    }

    /// Hidden layers with ReLU, each after dropout, then a linear layer; no layer for a direct head.
    pub(super) fn layers(&self, features: usize) -> Vec<Layer> {
        let mut row = Row::new("classifier.", Size::Features(features));
        if self.direct {
            return row.layers();
        }
        let (mut width, name) = (features, self.name.as_str());
        let widths = self.hidden.iter().copied().chain([self.outputs()]);
        for (index, next) in widths.enumerate() {
            let hidden = index < self.hidden.len();
            let number = index + 1;
            let label = if hidden { format!("{name}.hidden{number}") } else { name.to_owned() };
            let mut push = |label, op| row.push(label, op).expect("linear layers follow features");
            if self.dropout > 0.0 {
                push(format!("{name}.dropout{number}"), Op::Dropout(self.dropout));
            }
            let features = [width, next];
            push(label, Op::Linear { features, bias: true, init: Init::UniformZeroBias });
            if hidden {
                push(format!("{name}.relu{number}"), Op::Relu);
            }
            width = next;
        }
        row.layers()
    }
}

/// What the last stage is called.
pub const HEADS: &str = "heads";

/// The last stage: all heads, over `features` pooled features.
pub fn heads_stage(heads: &[HeadConfig], features: usize) -> StageLayers {
    let rows = heads.iter().map(|head| head.layers(features)).collect();
    let mut row = Row::new("", Size::Features(features));
    row.push("", Op::Branches(Join::Heads, rows)).expect("heads follow features");
    row.stage(HEADS, false)
}
