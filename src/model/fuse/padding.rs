//! Widths that are no multiples of 8, which the kernels take with channels of zeros behind them.

use std::sync::Arc;

use super::FusedStage;
use crate::model::layers::{Join, Layer, Op, ParameterSpec, StageLayers};
use crate::ops::gpu::ChannelParts;

/// How the channels of a stage lie in rows that have channels of zeros among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagePadding {
    /// Those of the input.
    pub input: Arc<ChannelParts>,
    /// Of each parameter, those of its sides that are channels.
    pub parameters: Vec<Vec<Arc<ChannelParts>>>,
    /// Those of the output.
    pub output: Arc<ChannelParts>,
}

/// The parameters of a stage that runs fused.
pub struct StageParameters {
    /// What they are, in the order in which the layers run.
    pub specs: Vec<ParameterSpec>,
    /// Where rows have channels of zeros.
    pub padding: Option<Arc<StagePadding>>,
}

impl StageParameters {
    /// The shape of each, and whether it is trained.
    pub fn shapes(&self) -> impl Iterator<Item = (Vec<usize>, bool)> {
        self.specs.iter().map(|spec| (spec.shape.clone(), spec.trained))
    }
}

impl StagePadding {
    /// That of `stage`, whose input lies as `input` says.
    pub fn new(stage: &StageLayers, input: &Arc<ChannelParts>) -> Self {
        let mut parameters = Vec::new();
        let output = of_row(&stage.layers, input, &mut parameters);
        Self { input: Arc::clone(input), parameters, output }
    }

    /// Whether rows have any channels of zeros.
    pub fn is_needed(&self) -> bool {
        let sides = self.parameters.iter().flatten();
        sides.chain([&self.input, &self.output]).any(|parts| parts.is_padded())
    }

    /// Counts these channels of zeros among those of `stage`.
    pub fn count_in(&self, stage: &mut FusedStage) {
        let (input, output) = (self.input.room(), self.output.room());
        match stage {
            FusedStage::Stem { channels: [_, channels], room, .. } => {
                (*channels, *room) = (output, output);
            }
            FusedStage::PlainStem(conv, _) => conv.channels[1] = output,
            FusedStage::DenseBlock { sizes, .. } => {
                (sizes.input, sizes.of_block) = (input, input);
                sizes.growth = rounded(sizes.growth);
                sizes.bottleneck = rounded(sizes.bottleneck);
            }
            FusedStage::Transition { channels, room, .. } => {
                (*channels, *room) = ([input, output], output);
            }
            FusedStage::Residual(sizes, _) => {
                for conv in sizes.convs.iter_mut().chain(&mut sizes.projection) {
                    conv.channels = conv.channels.map(rounded);
                }
            }
            FusedStage::NormPool { channels, .. } => *channels = input,
            FusedStage::Pool => {}
        }
    }
}

fn rounded(channels: usize) -> usize {
    ChannelParts::one(channels).room()
}

/// How the output of `layers` lies, run on maps that lie as `input` says. `parameters` is given how the sides of each
/// parameter do.
fn of_row(
    layers: &[Layer],
    input: &Arc<ChannelParts>,
    parameters: &mut Vec<Vec<Arc<ChannelParts>>>,
) -> Arc<ChannelParts> {
    let mut parts = Arc::clone(input);
    for layer in layers {
        let inside = Arc::clone(&parts);
        parts = match &layer.op {
            Op::Branches(join, rows) => {
                let rows = rows.iter().map(|row| of_row(row, &inside, parameters));
                let mut rows = rows.collect::<Vec<_>>().into_iter();
                let first = rows.next().unwrap_or(inside);
                match join {
                    Join::Concat => {
                        let all = Arc::unwrap_or_clone(first);
                        Arc::new(rows.fold(all, |all, row| all.then(&row)))
                    }
                    // All rows have as many.
                    Join::Add | Join::Heads => first,
                }
            }
            Op::Conv { channels: [_, output], .. } => {
                let output = Arc::new(ChannelParts::one(*output));
                let sides = [Arc::clone(&output), inside];
                // A bias has the first side alone.
                let all = layer.parameters().into_iter();
                parameters.extend(all.map(|spec| sides[..spec.shape.len().min(2)].to_vec()));
                output
            }
            Op::PadChannels(_) => Arc::new(ChannelParts::one(layer.output.channels())),
            _ => {
                let all = layer.parameters().into_iter();
                parameters.extend(all.map(|_| vec![Arc::clone(&inside)]));
                inside
            }
        };
    }
    parts
}
