//! DenseNet-BC (Huang et al. 2017, arXiv:1608.06993) as a chain of stages, with torchvision's
//! parameter names.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use rand_chacha::ChaCha8Rng;

#[cfg(feature = "cuda")]
use super::fused;
use super::fused_costs::{BlockCosts, PoolCosts, StemCosts, TransitionCosts, stem_takes};
use super::layer::{Conv2d, Conv2dConfig, Dropout, Fan, NormLayer};
use super::{DensenetArchitecture, Norm};
use crate::memory::{
    Activation, ActivationShape, Card, DenseLayers, Footprint, Forward, Ledger, MemoryConfig,
    Noted, Pass, Stage, StageSpec, Target, Traced, Window,
};
#[cfg(feature = "cuda")]
use crate::ops::cuda::Kernels;
use crate::ops::reference;
use crate::random;

impl DensenetArchitecture {
    /// The stages from images with `channels` channels to pooled features: `stem`, then
    /// `denseblock1`, `transition1`, …, `pool`.
    ///
    /// On CUDA they run fused, as `memory` says, if they can (see [`Self::fusible`]).
    pub fn stages(&self, channels: usize, memory: &MemoryConfig) -> Vec<Box<dyn StageSpec>> {
        let fuses = self.fusible().is_ok() && memory.precision.fuses();
        let fused = fuses.then(|| memory.clone());
        let mut stages: Vec<Box<dyn StageSpec>> = Vec::new();
        let widths = self.channels();
        stages.push(Box::new(StemSpec {
            channels: [channels, self.stem],
            norm: self.norm,
            room: widths[0],
            // Images of more channels, of arrays, go through an ordinary convolution.
            fused: fused.clone().filter(|_| stem_takes(channels)),
        }));
        let mut width = self.stem;
        for (index, &layers) in self.blocks.iter().enumerate() {
            let block = DenseBlockSpec {
                name: format!("denseblock{}", index + 1),
                index,
                layers,
                input: width,
                growth: self.growth,
                bottleneck: self.bottleneck,
                dropout: self.dropout,
                norm: self.norm,
                fused: fused.clone(),
            };
            width = block.output_channels();
            stages.push(Box::new(block));
            if index + 1 < self.blocks.len() {
                let reduced = (width as f64 * self.compression) as usize;
                stages.push(Box::new(TransitionSpec {
                    name: format!("transition{}", index + 1),
                    index,
                    channels: [width, reduced],
                    norm: self.norm,
                    room: widths[index + 1],
                    fused: fused.clone(),
                }));
                width = reduced;
            }
        }
        stages.push(Box::new(PoolSpec { channels: width, norm: self.norm, fused }));
        stages
    }
}

fn map_shape(shape: &ActivationShape) -> [usize; 4] {
    match shape {
        ActivationShape::Map(shape) => *shape,
        other => panic!("a stage of feature maps was given {other:?}"),
    }
}

/// The kernels of a stage that can run `fused`, on a GPU.
#[cfg(feature = "cuda")]
fn kernels(fused: &Option<MemoryConfig>, device: &Device) -> Option<Kernels> {
    fused.as_ref().and_then(|memory| fused::kernels(device, memory))
}

/// 7×7 convolution with stride 2, norm, ReLU, 3×3 max-pooling with stride 2.
struct StemSpec {
    channels: [usize; 2],
    norm: Norm,
    /// Channels of the dense block that follows.
    room: usize,
    /// How it runs fused, if it can.
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct Stem {
    conv0: Conv2d,
    norm0: NormLayer,
}

impl StemSpec {
    fn conv(&self) -> Conv2dConfig {
        Conv2dConfig { channels: self.channels, kernel: 7, stride: 2, padding: 3 }
    }

    fn note(&self, ledger: &Ledger, images: Noted) -> Noted {
        let map = self.norm.note(ledger, self.conv().note(ledger, images));
        ledger.max_pool2d(ledger.relu(map), Window { kernel: 3, stride: 2, padding: 1 })
    }
}

impl StageSpec for StemSpec {
    fn name(&self) -> &str {
        "stem"
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let [batch, _, height, width] = map_shape(input);
        let pooled = |size: usize| (self.conv().output_size(size) - 1) / 2 + 1;
        ActivationShape::Map([batch, self.channels[1], pooled(height), pooled(width)])
    }

    fn parameter_count(&self) -> usize {
        self.conv().parameter_count() + 2 * self.channels[1]
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        if on.cuda && self.fused.is_some() {
            let channels = [self.channels[1], self.room];
            return Card::footprint(on, &StemCosts { images: map_shape(input), channels });
        }
        Ledger::footprint_of_first(on, input, |ledger, map| vec![self.note(ledger, map)])
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let mut random = random::stream(seed, "init/stem", &[]);
        let stem = Stem {
            conv0: self.conv().init(Fan::In, device, &mut random),
            norm0: NormLayer::init(self.norm, self.channels[1], device),
        };
        let traced = Traced::new("stem", &[("", "features.")], stem).first();
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            let (channels, parameters) = (self.channels[1], traced.parameters());
            let (modules, room) = (["conv0", "norm0", "relu0", "pool0"], self.room);
            let stem = fused::FusedStem::new(kernels, parameters, modules, channels, room);
            return Box::new(stem);
        }
        Box::new(traced)
    }
}

impl Forward for Stem {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let norm = |map| self.norm0.forward(map, pass);
        Activation::Map(reference::stem(input.into_map(), self.conv0.weight(), norm))
    }
}

/// Layers, each of which adds `growth` channels to all those before it.
struct DenseBlockSpec {
    name: String,
    index: usize,
    layers: usize,
    input: usize,
    growth: usize,
    bottleneck: usize,
    dropout: f64,
    norm: Norm,
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct DenseBlock {
    denselayer: Vec<DenseLayer>,
}

/// Norm, ReLU, 1×1 convolution to the bottleneck, norm, ReLU, 3×3 convolution.
#[derive(Module, Debug)]
struct DenseLayer {
    norm1: NormLayer,
    conv1: Conv2d,
    norm2: NormLayer,
    conv2: Conv2d,
    dropout: Dropout,
}

impl DenseBlockSpec {
    fn output_channels(&self) -> usize {
        self.input + self.layers * self.growth
    }

    fn width(&self, layer: usize) -> usize {
        self.input + layer * self.growth
    }

    fn convs(&self, layer: usize) -> [Conv2dConfig; 2] {
        let middle = self.bottleneck * self.growth;
        let channels = [self.width(layer), middle];
        [
            Conv2dConfig { channels, kernel: 1, stride: 1, padding: 0 },
            Conv2dConfig { channels: [middle, self.growth], kernel: 3, stride: 1, padding: 1 },
        ]
    }

    fn note(&self, ledger: &Ledger, map: Noted) -> Noted {
        (0..self.layers).fold(map, |map, layer| {
            let normed = |map| ledger.relu(self.norm.note(ledger, map));
            let [conv1, conv2] = self.convs(layer);
            let between = conv1.note(ledger, normed(map.clone()));
            let added = conv2.note(ledger, normed(between));
            ledger.cat(vec![map, ledger.dropout(added, self.dropout)])
        })
    }

    fn layer(&self, layer: usize, device: &Device, random: &mut ChaCha8Rng) -> DenseLayer {
        let [conv1, conv2] = self.convs(layer);
        DenseLayer {
            norm1: NormLayer::init(self.norm, conv1.channels[0], device),
            conv1: conv1.init(Fan::In, device, random),
            norm2: NormLayer::init(self.norm, conv2.channels[0], device),
            conv2: conv2.init(Fan::In, device, random),
            dropout: Dropout::new(self.dropout, (self.index * 1000 + layer) as u64),
        }
    }
}

impl StageSpec for DenseBlockSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let [batch, _, height, width] = map_shape(input);
        ActivationShape::Map([batch, self.output_channels(), height, width])
    }

    fn parameter_count(&self) -> usize {
        let layer = |layer| {
            let convs = self.convs(layer);
            convs.iter().map(|conv| conv.parameter_count() + 2 * conv.channels[0]).sum::<usize>()
        };
        (0..self.layers).map(layer).sum()
    }

    fn layers(&self) -> usize {
        2 * self.layers
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        if on.cuda && self.fused.is_some() {
            let [batch, _, height, width] = map_shape(input);
            let pixels = batch * height * width;
            let block = BlockCosts {
                pixels,
                layers: self.layers,
                input: self.input,
                growth: self.growth,
                bottleneck: self.bottleneck * self.growth,
                keep: on.dense_layers == DenseLayers::Keep,
            };
            let checkpoint = on.precision.bytes() * (pixels * self.input) as u64;
            return Footprint { checkpoint, ..Card::footprint(on, &block) };
        }
        Ledger::footprint(on, input, |ledger, map| vec![self.note(ledger, map)])
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let mut random = random::stream(seed, "init/denseblock", &[self.index as u64]);
        let layers = (0..self.layers).map(|layer| self.layer(layer, device, &mut random));
        let block = DenseBlock { denselayer: layers.collect() };
        let prefix = format!("features.{}.", self.name);
        let traced = Traced::new(&self.name, &[("", &prefix)], block);
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            let keep = self.fused.as_ref().map(MemoryConfig::dense_layers).unwrap_or_default();
            let sizes = fused::BlockSizes {
                layers: self.layers,
                input: self.input,
                growth: self.growth,
                bottleneck: self.bottleneck * self.growth,
            };
            let parameters = traced.parameters();
            return Box::new(fused::FusedBlock::new(&self.name, kernels, parameters, sizes, keep));
        }
        Box::new(traced)
    }
}

impl Forward for DenseBlock {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let layers = &self.denselayer;
        let layer = |index: usize, map| layers[index].forward(map, pass);
        Activation::Map(reference::dense_block(input.into_map(), layers.len(), layer))
    }
}

impl DenseLayer {
    fn forward(&self, map: Tensor<4>, pass: &Pass) -> Tensor<4> {
        let norm1 = |map| self.norm1.forward(map, pass);
        let norm2 = |map| self.norm2.forward(map, pass);
        let weights = [self.conv1.weight(), self.conv2.weight()];
        self.dropout.forward(reference::dense_layer(map, [&norm1, &norm2], weights), pass)
    }
}

/// Norm, ReLU, 1×1 convolution to fewer channels, 2×2 average pooling.
struct TransitionSpec {
    name: String,
    index: usize,
    channels: [usize; 2],
    norm: Norm,
    /// Channels of the dense block that follows.
    room: usize,
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct Transition {
    norm: NormLayer,
    conv: Conv2d,
}

impl TransitionSpec {
    fn conv(&self) -> Conv2dConfig {
        Conv2dConfig { channels: self.channels, kernel: 1, stride: 1, padding: 0 }
    }

    fn note(&self, ledger: &Ledger, map: Noted) -> Noted {
        let map = self.conv().note(ledger, ledger.relu(self.norm.note(ledger, map)));
        ledger.avg_pool2d(map, Window { kernel: 2, stride: 2, padding: 0 })
    }
}

impl StageSpec for TransitionSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let [batch, _, height, width] = map_shape(input);
        ActivationShape::Map([batch, self.channels[1], height / 2, width / 2])
    }

    fn parameter_count(&self) -> usize {
        self.conv().parameter_count() + 2 * self.channels[0]
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        if on.cuda && self.fused.is_some() {
            let ([batch, _, height, width], [read, given]) = (map_shape(input), self.channels);
            let channels = [read, given, self.room];
            let size = [batch, height, width];
            return Card::footprint(on, &TransitionCosts { size, channels });
        }
        Ledger::footprint(on, input, |ledger, map| vec![self.note(ledger, map)])
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let mut random = random::stream(seed, "init/transition", &[self.index as u64]);
        let transition = Transition {
            norm: NormLayer::init(self.norm, self.channels[0], device),
            conv: self.conv().init(Fan::In, device, &mut random),
        };
        let prefix = format!("features.{}.", self.name);
        let traced = Traced::new(&self.name, &[("", &prefix)], transition);
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            let (name, parameters) = (&self.name, traced.parameters());
            let [_, channels] = self.channels;
            let room = self.room;
            return Box::new(fused::FusedTransition::new(
                name, kernels, parameters, channels, room,
            ));
        }
        Box::new(traced)
    }
}

impl Forward for Transition {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let norm = |map| self.norm.forward(map, pass);
        Activation::Map(reference::transition(input.into_map(), norm, self.conv.weight()))
    }
}

/// Norm, ReLU, the mean over each feature map.
struct PoolSpec {
    channels: usize,
    norm: Norm,
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct Pool {
    norm5: NormLayer,
}

impl PoolSpec {
    fn note(&self, ledger: &Ledger, map: Noted) -> Noted {
        ledger.mean_of_maps(ledger.relu(self.norm.note(ledger, map)))
    }
}

impl StageSpec for PoolSpec {
    fn name(&self) -> &str {
        "pool"
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        ActivationShape::Features([map_shape(input)[0], self.channels])
    }

    fn parameter_count(&self) -> usize {
        2 * self.channels
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        if on.cuda && self.fused.is_some() {
            let [batch, _, height, width] = map_shape(input);
            let (size, channels) = ([batch, height, width], self.channels);
            return Card::footprint(on, &PoolCosts { size, channels });
        }
        Ledger::footprint(on, input, |ledger, map| vec![self.note(ledger, map)])
    }

    fn init(&self, device: &Device, _seed: u64) -> Box<dyn Stage> {
        let pool = Pool { norm5: NormLayer::init(self.norm, self.channels, device) };
        let traced = Traced::new("pool", &[("", "features.")], pool);
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            return Box::new(fused::FusedPool::new(kernels, traced.parameters()));
        }
        Box::new(traced)
    }
}

impl Forward for Pool {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let norm = |map| self.norm5.forward(map, pass);
        Activation::Features(reference::pool(input.into_map(), norm))
    }
}
