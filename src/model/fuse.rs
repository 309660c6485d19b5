//! Which stages run fused on CUDA: those whose layers are what the fused kernels compute.

use std::sync::Arc;

use super::Norm;
use super::layers::{Join, Layer, Op, StageLayers, all_layers};
use crate::ops::Window;
use crate::ops::gpu::{ChannelParts, Convolution};

mod padding;
mod spec;

pub use padding::{StagePadding, StageParameters};
pub use spec::FusedStageSpec;

/// A stage that runs fused, with its sizes.
#[derive(Debug, Clone, PartialEq)]
pub enum FusedStage {
    /// 7×7 convolution with stride 2, norm, ReLU, 3×3 max-pooling with stride 2.
    Stem {
        /// Channels of the images and of the output.
        channels: [usize; 2],
        /// Channels that the output's rows have room for.
        room: usize,
        /// What the four layers are called in a trace.
        labels: [String; 4],
        /// Its norm.
        norm: Norm,
    },
    /// A convolution, norm and ReLU, on images.
    PlainStem(ConvSizes, Norm),
    /// Dense layers.
    DenseBlock {
        /// Their sizes.
        sizes: DenseBlockSizes,
        /// What each of them is called in a trace.
        labels: Vec<String>,
        /// Of what each of them adds.
        dropout: Option<DenseDropout>,
        /// Their norms.
        norm: Norm,
    },
    /// Norm, ReLU, 1×1 convolution to fewer channels, 2×2 average pooling.
    Transition {
        /// Channels of the input and of the output.
        channels: [usize; 2],
        /// Channels that the output's rows have room for.
        room: usize,
        /// Its norm.
        norm: Norm,
    },
    /// Convolutions with norms, and a shortcut around them.
    Residual(ResidualSizes, Norm),
    /// Norm, ReLU, the mean over each map.
    NormPool {
        /// Channels of the maps.
        channels: usize,
        /// Its norm.
        norm: Norm,
    },
    /// The mean over each map, which ReLU lies before.
    Pool,
}

/// A convolution without bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvSizes {
    /// Channels of the input and of the output.
    pub channels: [usize; 2],
    /// Kernel, stride and padding.
    pub window: Window,
}

impl ConvSizes {
    /// The convolution of maps of batch, height and width `size`, as kernels take it.
    pub fn on(&self, size: [usize; 3]) -> Convolution {
        Convolution { size, window: self.window }
    }

    /// Batch, height and width of the output for maps of batch, height and width `size`.
    pub fn output(&self, [batch, height, width]: [usize; 3]) -> [usize; 3] {
        [batch, self.window.output(height), self.window.output(width)]
    }
}

/// The sizes of a dense block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseBlockSizes {
    /// How many layers.
    pub layers: usize,
    /// Channels of the input.
    pub input: usize,
    /// Those of the input of the whole block, where these are its later layers (see [`Network::cut`](super::Network::cut)); the
    /// same where they are all.
    pub of_block: usize,
    /// Channels that each layer adds.
    pub growth: usize,
    /// Channels between a layer's two convolutions.
    pub bottleneck: usize,
}

/// Dropout in a dense block: of the channels that each layer adds.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseDropout {
    /// The probability that an element is dropped, above 0.
    pub probability: f64,
    /// What each layer's dropout is called: its masks follow from the name.
    pub names: Vec<String>,
}

impl DenseBlockSizes {
    /// Channels that the layer reads.
    pub fn width(&self, layer: usize) -> usize {
        self.input + layer * self.growth
    }

    /// Channels of the block's output.
    pub fn output(&self) -> usize {
        self.width(self.layers)
    }
}

/// The sizes of a residual block.
#[derive(Debug, Clone, PartialEq)]
pub struct ResidualSizes {
    /// The convolutions on the residual path, the first of which reads the block's input; 1×1 ones
    /// behind it have stride 1.
    pub convs: Vec<ConvSizes>,
    /// The shortcut's convolution; without one it leaves pixels out and adds channels of zeros.
    pub projection: Option<ConvSizes>,
    /// How many times lower and narrower the output is.
    pub stride: usize,
}

impl ResidualSizes {
    /// Batch, height and width of what each convolution on the path reads, where the block reads maps
    /// of `size`.
    pub fn inputs(&self, size: [usize; 3]) -> Vec<[usize; 3]> {
        let before = |size: &mut [usize; 3], conv: &ConvSizes| {
            let after = conv.output(*size);
            Some(std::mem::replace(size, after))
        };
        self.convs.iter().scan(size, before).collect()
    }

    /// Batch, height and width of the block's output.
    pub fn output(&self, [batch, height, width]: [usize; 3]) -> [usize; 3] {
        let every = Window::same(1, self.stride);
        [batch, every.output(height), every.output(width)]
    }

    /// The convolutions in the order of their parameters: the shortcut's comes last.
    pub fn all(&self) -> Vec<ConvSizes> {
        self.convs.iter().chain(&self.projection).copied().collect()
    }
}

impl FusedStage {
    /// Whether it has 1×1 convolutions whose outputs it may keep for the backward pass or compute again.
    pub fn may_keep_pointwise(&self) -> bool {
        match self {
            Self::DenseBlock { .. } => true,
            Self::Residual(sizes, _) => sizes.all().iter().any(|conv| conv.window.kernel == 1),
            _ => false,
        }
    }

    /// Whether its output is what ReLU gives.
    fn ends_in_relu(&self) -> bool {
        matches!(self, Self::Stem { .. } | Self::PlainStem(..) | Self::Residual(..))
    }
}

/// A stage that runs fused, and how its channels lie.
#[derive(Debug, Clone, PartialEq)]
pub struct Fused {
    /// The stage. Channels of zeros count among its channels.
    pub stage: FusedStage,
    /// Where there are channels of zeros.
    pub padding: Option<Arc<StagePadding>>,
}

/// Each stage as it runs fused. All of them do, but for a stem that takes images of many channels.
///
/// # Errors
///
/// What no fused kernel computes, to follow "which has".
pub fn fuse(stages: &[StageLayers]) -> Result<Vec<Option<Fused>>, &'static str> {
    let mut fused: Vec<Option<FusedStage>> = stages.iter().map(matching).collect();
    let unfused = |place: &usize| fused[*place].is_none() && (*place > 0 || fused.len() == 1);
    if let Some(place) = (0..fused.len()).find(unfused) {
        return Err(reason(&stages[place]));
    }
    let images = stages.first().map_or(0, |stage| stage.input.channels());
    let mut parts = Arc::new(ChannelParts::of_images(images));
    let mut paddings = Vec::with_capacity(stages.len());
    for (stage, fused) in stages.iter().zip(&mut fused) {
        let padding = StagePadding::new(stage, &parts);
        parts = Arc::clone(&padding.output);
        if let Some(fused) = fused {
            padding.count_in(fused);
        }
        paddings.push(padding.is_needed().then(|| Arc::new(padding)));
    }
    for place in 1..fused.len() {
        let (before, behind) = fused.split_at_mut(place);
        match (&mut before[place - 1], &mut behind[0]) {
            (
                Some(FusedStage::DenseBlock { sizes: before, .. }),
                Some(FusedStage::DenseBlock { sizes, .. }),
            ) => sizes.of_block = before.of_block,
            (
                Some(FusedStage::Stem { room, .. } | FusedStage::Transition { room, .. }),
                Some(FusedStage::DenseBlock { sizes, .. }),
            ) => *room = sizes.output(),
            // Its kernel takes the maps for what ReLU gives.
            (before, Some(FusedStage::Pool))
                if !before.as_ref().is_some_and(FusedStage::ends_in_relu) =>
            {
                return Err("a mean of maps that ReLU does not lie before");
            }
            _ => {}
        }
    }
    let with = |(stage, padding): (Option<FusedStage>, _)| Some(Fused { stage: stage?, padding });
    Ok(fused.into_iter().zip(paddings).map(with).collect())
}

/// Why no fused kernel computes these layers.
fn reason(stage: &StageLayers) -> &'static str {
    match all_layers(&stage.layers).iter().any(|layer| matches!(layer.op, Op::Dropout(_))) {
        true => "`dropout`",
        false => "layers that no fused kernel computes",
    }
}

/// The stage as it runs fused, if its layers are what a fused kernel computes.
fn matching(stage: &StageLayers) -> Option<FusedStage> {
    let layers = stage.layers.as_slice();
    let ops: Vec<&Op> = layers.iter().map(|layer| &layer.op).collect();
    let input = stage.input.channels();
    match ops[..] {
        [conv, norm, Op::Relu, Op::MaxPool(pool)] if stage.first => {
            let norm = norm_of(norm)?;
            let ConvSizes { channels, window } = sizes(conv)?;
            let windows = window == Window::same(7, 2) && *pool == Window::same(3, 2);
            let fits = windows && (1..=3).contains(&channels[0]);
            let labels = [0, 1, 2, 3].map(|place| layers[place].label.clone());
            fits.then_some(FusedStage::Stem { channels, room: channels[1], labels, norm })
        }
        [conv, norm, Op::Relu] if stage.first => {
            Some(FusedStage::PlainStem(sizes(conv)?, norm_of(norm)?))
        }
        [norm, Op::Relu, conv, Op::AvgPool(pool)] => {
            let norm = norm_of(norm)?;
            let ConvSizes { channels, window } = sizes(conv)?;
            let fits = window == Window::PIXEL && *pool == Window::HALF;
            fits.then_some(FusedStage::Transition { channels, room: channels[1], norm })
        }
        [norm, Op::Relu, Op::GlobalPool] => {
            Some(FusedStage::NormPool { channels: input, norm: norm_of(norm)? })
        }
        [Op::GlobalPool] => Some(FusedStage::Pool),
        [Op::Branches(Join::Add, rows), Op::Relu] => residual(rows),
        [Op::Branches(Join::Concat, _), ..] => dense_block(layers, input),
        _ => None,
    }
}

fn norm_of(op: &Op) -> Option<Norm> {
    match op {
        Op::BatchNorm(_) => Some(Norm::Batch),
        Op::GroupNorm(_) => Some(Norm::Group),
        _ => None,
    }
}

fn sizes(op: &Op) -> Option<ConvSizes> {
    match op {
        Op::Conv { channels, window, bias: false, .. } => {
            Some(ConvSizes { channels: *channels, window: *window })
        }
        _ => None,
    }
}

fn dense_block(layers: &[Layer], input: usize) -> Option<FusedStage> {
    let added = layers.iter().map(|layer| match &layer.op {
        Op::Branches(Join::Concat, rows) => dense_layer(rows),
        _ => None,
    });
    let (added, names): (Vec<_>, Vec<_>) = added.collect::<Option<_>>()?;
    let ([bottleneck, growth], norm, probability) = *added.first()?;
    if added.iter().any(|layer| *layer != added[0]) {
        return None;
    }
    let names = names.into_iter().flatten().collect();
    let dropout = probability.map(|probability| DenseDropout { probability, names });
    let sizes = DenseBlockSizes { layers: added.len(), input, of_block: input, growth, bottleneck };
    let labels = layers.iter().map(|layer| layer.label.clone()).collect();
    Some(FusedStage::DenseBlock { sizes, labels, dropout, norm })
}

/// Channels of the bottleneck and of the output of a dense layer, its norms, and the probability that an
/// output is dropped.
type DenseLayer = ([usize; 2], Norm, Option<f64>);

/// A dense layer, and what its dropout is called.
fn dense_layer(rows: &[Vec<Layer>]) -> Option<(DenseLayer, Option<String>)> {
    let [before, added] = rows else { return None };
    let (added, dropout) = match added.split_last()? {
        (Layer { op: Op::Dropout(probability), name, .. }, rest) => {
            (rest, Some((*probability, name.clone())))
        }
        _ => (added.as_slice(), None),
    };
    let ops: Vec<&Op> = added.iter().map(|layer| &layer.op).collect();
    let [norm, Op::Relu, first, again, Op::Relu, second] = ops[..] else { return None };
    let norm = norm_of(norm).filter(|norm| norm_of(again) == Some(*norm))?;
    let (first, second) = (sizes(first)?, sizes(second)?);
    let spatial = Window::same(3, 1);
    let fits = before.is_empty() && first.window == Window::PIXEL && second.window == spatial;
    let (probability, name) = dropout.unzip();
    fits.then_some(((second.channels, norm, probability), name))
}

fn residual(rows: &[Vec<Layer>]) -> Option<FusedStage> {
    let [path, shortcut] = rows else { return None };
    let (mut convs, mut norms) = (Vec::new(), Vec::new());
    // Convolution and norm, with ReLU between one pair and the next.
    for (index, pair) in path.chunks(3).enumerate() {
        let last = 3 * index + pair.len() == path.len();
        match (pair, last) {
            ([conv, norm], true) | ([conv, norm, Layer { op: Op::Relu, .. }], false) => {
                convs.push(sizes(&conv.op)?);
                norms.push(norm_of(&norm.op)?);
            }
            _ => return None,
        }
    }
    let padded = |conv: &ConvSizes| conv.window.padding == conv.window.kernel / 2;
    let strided = |conv: &ConvSizes| conv.window.kernel == 1 && conv.window.stride > 1;
    if !matches!(convs.len(), 2 | 3) || !convs.iter().all(padded) || convs.iter().any(strided) {
        return None;
    }
    let stride = convs.iter().map(|conv| conv.window.stride).product();
    let output = convs.last()?.channels[1];
    let every = Window::same(1, stride);
    let input = convs[0].channels[0];
    let ops: Vec<&Op> = shortcut.iter().map(|layer| &layer.op).collect();
    let adapts = |op: &&Op| match op {
        Op::MaxPool(window) => *window == every,
        Op::PadChannels(more) => input + more == output,
        _ => false,
    };
    let projection = match ops[..] {
        [] | [_] | [Op::MaxPool(_), Op::PadChannels(_)] if ops.iter().all(adapts) => None,
        [conv, norm] => {
            norms.push(norm_of(norm)?);
            Some(sizes(conv).filter(|conv| conv.window == every)?)
        }
        _ => return None,
    };
    let norm = norms.first().copied().filter(|first| norms.iter().all(|norm| norm == first))?;
    Some(FusedStage::Residual(ResidualSizes { convs, projection, stride }, norm))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;

    fn fused(model: &str) -> Result<Vec<Option<FusedStage>>, &'static str> {
        let stages = stages(model)?.into_iter();
        Ok(stages.map(|fused| fused.map(|fused| fused.stage)).collect())
    }

    fn stages(model: &str) -> Result<Vec<Option<Fused>>, &'static str> {
        let config: ModelConfig = toml::from_str(model).expect("a model");
        fuse(config.resolve([1, 64, 64]).expect("a network").layers())
    }

    #[test]
    fn every_published_network_has_fused_kernels() {
        let densenets = [121, 161, 169, 201].into_iter().flat_map(|depth| {
            ["batch", "group"].map(|norm| format!("[densenet]\ndepth = {depth}\nnorm = \"{norm}\""))
        });
        let resnets = [18, 34, 50, 101, 152, 200].into_iter().flat_map(|depth| {
            ["batch", "group"].map(|norm| format!("[resnet]\ndepth = {depth}\nnorm = \"{norm}\""))
        });
        let cifar =
            [20, 110, 1001].map(|depth| format!("[resnet]\nform = \"cifar\"\ndepth = {depth}"));
        for model in densenets.chain(resnets).chain(cifar) {
            let stages = fused(&model).unwrap_or_else(|reason| panic!("{model}: {reason}"));
            assert!(stages.iter().all(Option::is_some), "{model}");
        }
    }

    #[test]
    fn what_has_no_fused_kernels_says_why() {
        let list = "[sequential]\nlayers = [\"flatten\", { linear = { features = 8 } }]";
        let reason = fused(list).expect_err("no fused kernel has it");
        assert!(reason.contains("layers"), "{reason}");
    }

    #[test]
    fn odd_widths_have_zeros_behind_each_part() {
        let all = stages("[densenet]\ngrowth = 12\nblocks = [2, 1]\nstem = 20").expect("fuses");
        let all: Vec<Fused> = all.into_iter().flatten().collect();
        let sizes = |index: usize| match &all[index].stage {
            FusedStage::DenseBlock { sizes, .. } => *sizes,
            other => panic!("{other:?}"),
        };
        let block =
            DenseBlockSizes { layers: 2, input: 24, of_block: 24, growth: 16, bottleneck: 48 };
        assert_eq!(sizes(1), block);
        // 44 channels of the first block become 22.
        assert_eq!(sizes(3), DenseBlockSizes { layers: 1, input: 24, ..block });
        let padding = all[1].padding.as_ref().expect("is padded");
        assert_eq!(
            padding.output.parts().collect::<Vec<_>>(),
            [[0, 20, 4], [24, 12, 4], [40, 12, 4]]
        );
        // The second layer: its first norm reads two parts, its convolutions lead to 48 channels and to 12.
        let rooms = |sides: &Vec<Arc<ChannelParts>>| -> Vec<[usize; 2]> {
            sides.iter().map(|parts| [parts.channels(), parts.room()]).collect()
        };
        let second: Vec<_> = padding.parameters[10..].iter().map(rooms).collect();
        let norm = |channels| vec![vec![channels]; 4];
        let mut wanted = norm([32, 40]);
        wanted.push(vec![[48, 48], [32, 40]]);
        wanted.extend(norm([48, 48]));
        wanted.push(vec![[12, 16], [48, 48]]);
        assert_eq!(second, wanted);
        assert!(
            stages("[densenet]\ndepth = 121")
                .expect("fuses")
                .iter()
                .flatten()
                .all(|fused| fused.padding.is_none())
        );
    }

    #[test]
    fn parts_of_a_block_know_what_the_whole_reads() {
        let config: ModelConfig = toml::from_str("[densenet]\ndepth = 121").expect("a model");
        let network = config.resolve([1, 64, 64]).expect("a network");
        let begins = ["denseblock1.denselayer3", "denseblock1.denselayer5"];
        let cut = network.cut(|name| begins.contains(&name));
        let stages = fuse(cut.layers()).expect("fuses").into_iter().flatten();
        let cuts: Vec<_> = stages
            .filter_map(|fused| match fused.stage {
                FusedStage::DenseBlock { sizes, labels, .. } => {
                    Some(([sizes.of_block, sizes.input], sizes.layers, labels[0].clone()))
                }
                _ => None,
            })
            .take(4)
            .collect();
        let of = |inputs: [usize; 2], layers: usize, first: usize| {
            (inputs, layers, format!("denselayer{first}"))
        };
        let wanted = [of([64, 64], 2, 1), of([64, 128], 2, 3), of([64, 192], 2, 5)];
        assert_eq!(cuts[..3], wanted);
        assert_eq!(cuts[3], of([128, 128], 12, 1));
    }

    #[test]
    fn dense_blocks_drop_what_each_layer_adds() {
        let stages = fused("[densenet]\ngrowth = 16\nblocks = [2, 1]\nstem = 16\ndropout = 0.1");
        let stages = stages.expect("fuses");
        let dropouts = stages.iter().filter_map(|stage| match stage {
            Some(FusedStage::DenseBlock { dropout, .. }) => dropout.clone(),
            _ => None,
        });
        let of = |names: &[&str]| DenseDropout {
            probability: 0.1,
            names: names.iter().map(|name| format!("features.{name}.dropout")).collect(),
        };
        let expected = [
            of(&["denseblock1.denselayer1", "denseblock1.denselayer2"]),
            of(&["denseblock2.denselayer1"]),
        ];
        assert_eq!(dropouts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_stem_on_images_of_many_channels_runs_unfused() {
        let config: ModelConfig = toml::from_str("[densenet]\ndepth = 121").expect("a model");
        let network = config.resolve([4, 64, 64]).expect("a network");
        let stages = fuse(network.layers()).expect("fuses");
        assert_eq!(stages.iter().position(Option::is_none), Some(0));
        assert!(stages[1..].iter().all(Option::is_some));
    }

    #[test]
    fn rows_have_room_for_the_dense_block_that_follows() {
        let stages = fused("[densenet]\ndepth = 121").expect("fuses");
        let rooms: Vec<usize> = stages
            .iter()
            .filter_map(|stage| match stage {
                Some(FusedStage::Stem { room, .. } | FusedStage::Transition { room, .. }) => {
                    Some(*room)
                }
                _ => None,
            })
            .collect();
        assert_eq!(rooms, [256, 512, 1024, 1024]);
    }
}
