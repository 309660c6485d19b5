//! ResNet as a chain of stages, one for each residual block, with torchvision's parameter names.

use burn::module::Module;
use burn::tensor::activation::relu;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor};

use super::{EXPANSION, Norm, ResnetArchitecture, ResnetBlock, ResnetForm};
use crate::memory::{
    Activation, ActivationShape, Card, Footprint, Forward, Ledger, MemoryConfig, Noted, Pass,
    Stage, StageSpec, Target, Traced, Window, module,
};
#[cfg(feature = "cuda")]
use crate::model::fused;
use crate::model::fused_costs::{MeanCosts, PlainStemCosts, ResidualCosts, StemCosts, stem_takes};
use crate::model::layer::{Conv2d, Conv2dConfig, Fan, NormLayer};
#[cfg(feature = "cuda")]
use crate::ops::cuda::Kernels;
use crate::ops::reference::{convolution, mean};
use crate::random;

impl ResnetArchitecture {
    /// The stages from images with `channels` channels to pooled features: `stem`, then
    /// `layer1.0`, `layer1.1`, …, `pool`.
    ///
    /// On CUDA they run fused, as `memory` says, if they can (see [`Self::fusible`]).
    pub fn stages(&self, channels: usize, memory: &MemoryConfig) -> Vec<Box<dyn StageSpec>> {
        let fuses = self.fusible().is_ok() && memory.precision.fuses();
        let fused = fuses.then(|| memory.clone());
        let stem = StemSpec {
            form: self.form,
            channels: [channels, self.stem],
            norm: self.norm,
            fused: fused.clone(),
        };
        let mut stages: Vec<Box<dyn StageSpec>> = vec![Box::new(stem)];
        let mut input = self.stem;
        for (group, &blocks) in self.blocks.iter().enumerate() {
            for index in 0..blocks {
                let block = BlockSpec {
                    name: format!("layer{}.{index}", group + 1),
                    place: [group as u64, index as u64],
                    form: self.form,
                    block: self.block,
                    input,
                    width: self.width(group),
                    stride: if group > 0 && index == 0 { 2 } else { 1 },
                    norm: self.norm,
                    fused: fused.clone(),
                };
                input = block.output_channels();
                stages.push(Box::new(block));
            }
        }
        stages.push(Box::new(PoolSpec { channels: input, fused }));
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

/// For ImageNet a 7×7 convolution with stride 2, norm, ReLU and 3×3 max-pooling with stride 2; for
/// CIFAR a 3×3 convolution, norm and ReLU.
struct StemSpec {
    form: ResnetForm,
    channels: [usize; 2],
    norm: Norm,
    /// How it runs fused, if it can.
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct Stem {
    conv1: Conv2d,
    bn1: NormLayer,
    #[module(skip)]
    pooled: bool,
}

impl StemSpec {
    fn conv(&self) -> Conv2dConfig {
        let channels = self.channels;
        match self.form {
            ResnetForm::Imagenet => Conv2dConfig { channels, kernel: 7, stride: 2, padding: 3 },
            ResnetForm::Cifar => Conv2dConfig { channels, kernel: 3, stride: 1, padding: 1 },
        }
    }

    fn pooled(&self) -> bool {
        self.form == ResnetForm::Imagenet
    }

    fn note(&self, ledger: &Ledger, images: Noted) -> Noted {
        let map = self.norm.note(ledger, self.conv().note(ledger, images));
        let map = ledger.relu(map);
        match self.pooled() {
            true => ledger.max_pool2d(map, Window { kernel: 3, stride: 2, padding: 1 }),
            false => map,
        }
    }
}

impl StageSpec for StemSpec {
    fn name(&self) -> &str {
        "stem"
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let [batch, _, height, width] = map_shape(input);
        let size = |side: usize| {
            let side = self.conv().output_size(side);
            if self.pooled() { (side - 1) / 2 + 1 } else { side }
        };
        ActivationShape::Map([batch, self.channels[1], size(height), size(width)])
    }

    fn parameter_count(&self) -> usize {
        self.conv().parameter_count() + 2 * self.channels[1]
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        let (images, [read, given]) = (map_shape(input), self.channels);
        if on.cuda && self.fused.is_some() && !self.pooled() {
            let [batch, _, height, width] = images;
            let stem = PlainStemCosts { size: [batch, height, width], conv: self.conv() };
            return Card::footprint(on, &stem);
        }
        if on.cuda && self.fused.is_some() && stem_takes(read) {
            return Card::footprint(on, &StemCosts { images, channels: [given; 2] });
        }
        Ledger::footprint_of_first(on, input, |ledger, map| vec![self.note(ledger, map)])
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let mut random = random::stream(seed, "init/stem", &[]);
        let stem = Stem {
            conv1: self.conv().init(Fan::Out, device, &mut random),
            bn1: NormLayer::init(self.norm, self.channels[1], device),
            pooled: self.pooled(),
        };
        let traced = Traced::new("stem", &[], stem).first();
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            let (parameters, [input, output]) = (traced.parameters(), self.channels);
            if !self.pooled() {
                return Box::new(fused::FusedPlainStem::new(kernels, parameters, self.conv()));
            }
            if stem_takes(input) {
                let modules = ["conv1", "bn1", "relu", "maxpool"];
                let stem = fused::FusedStem::new(kernels, parameters, modules, output, output);
                return Box::new(stem);
            }
        }
        Box::new(traced)
    }
}

impl Forward for Stem {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let stride = if self.pooled { 2 } else { 1 };
        let map = module("conv1", input.into_map(), |map| convolve(&self.conv1, map, stride));
        let map = module("relu", module("bn1", map, |map| self.bn1.forward(map, pass)), relu);
        if !self.pooled {
            return Activation::Map(map);
        }
        let pool = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([1, 1]);
        Activation::Map(module("maxpool", map, |map| max_pool2d(map, pool)))
    }
}

/// Two 3×3 convolutions, or 1×1, 3×3 and 1×1, each followed by a norm; ReLU between them and after
/// the shortcut is added.
struct BlockSpec {
    name: String,
    place: [u64; 2],
    form: ResnetForm,
    block: ResnetBlock,
    input: usize,
    width: usize,
    stride: usize,
    norm: Norm,
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct Block {
    conv1: Conv2d,
    bn1: NormLayer,
    conv2: Conv2d,
    bn2: NormLayer,
    /// Of a bottleneck only.
    conv3: Option<Conv2d>,
    bn3: Option<NormLayer>,
    downsample: Option<Projection>,
    #[module(skip)]
    stride: usize,
    #[module(skip)]
    output: usize,
}

/// A shortcut with parameters, where the block changes the shape.
#[derive(Module, Debug)]
struct Projection {
    conv: Conv2d,
    norm: NormLayer,
}

impl BlockSpec {
    fn output_channels(&self) -> usize {
        match self.block {
            ResnetBlock::Basic => self.width,
            ResnetBlock::Bottleneck => EXPANSION * self.width,
        }
    }

    /// The convolutions on the residual path. A bottleneck strides in its 3×3 convolution, as
    /// torchvision has it (the paper: in the first 1×1).
    fn convs(&self) -> Vec<Conv2dConfig> {
        let (input, width, stride) = (self.input, self.width, self.stride);
        let conv = |channels, kernel, stride| Conv2dConfig {
            channels,
            kernel,
            stride,
            padding: kernel / 2,
        };
        match self.block {
            ResnetBlock::Basic => vec![conv([input, width], 3, stride), conv([width; 2], 3, 1)],
            ResnetBlock::Bottleneck => vec![
                conv([input, width], 1, 1),
                conv([width; 2], 3, stride),
                conv([width, self.output_channels()], 1, 1),
            ],
        }
    }

    /// The shortcut's convolution. For CIFAR shortcuts have no parameters (He et al. 2016, 4.2,
    /// option A): where the shape changes, pixels are left out and channels of zeros added.
    fn projection(&self) -> Option<Conv2dConfig> {
        let channels = [self.input, self.output_channels()];
        let changes = self.stride > 1 || channels[0] != channels[1];
        let with_parameters = self.form == ResnetForm::Imagenet && changes;
        let stride = self.stride;
        with_parameters.then_some(Conv2dConfig { channels, kernel: 1, stride, padding: 0 })
    }
}

impl BlockSpec {
    fn note(&self, ledger: &Ledger, input: Noted) -> Noted {
        let shortcut = self.note_shortcut(ledger, input.clone());
        let convs = self.convs();
        let map = convs.iter().enumerate().fold(input, |map, (index, conv)| {
            let map = if index > 0 { ledger.relu(map) } else { map };
            self.norm.note(ledger, conv.note(ledger, map))
        });
        ledger.relu(ledger.add(map, shortcut))
    }

    fn note_shortcut(&self, ledger: &Ledger, input: Noted) -> Noted {
        if let Some(conv) = self.projection() {
            return self.norm.note(ledger, conv.note(ledger, input));
        }
        let every = Window { kernel: 1, stride: self.stride, padding: 0 };
        let map = if self.stride > 1 { ledger.max_pool2d(input, every) } else { input };
        let [batch, channels, height, width] = map.map();
        match self.output_channels() - channels {
            0 => map,
            more => ledger.cat(vec![map, ledger.zeros(&[batch, more, height, width])]),
        }
    }
}

impl StageSpec for BlockSpec {
    fn name(&self) -> &str {
        &self.name
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let [batch, _, height, width] = map_shape(input);
        let size = |side: usize| (side - 1) / self.stride + 1;
        ActivationShape::Map([batch, self.output_channels(), size(height), size(width)])
    }

    fn parameter_count(&self) -> usize {
        let convs = self.convs().into_iter().chain(self.projection());
        convs.map(|conv| conv.parameter_count() + 2 * conv.channels[1]).sum()
    }

    fn layers(&self) -> usize {
        self.convs().len()
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        if on.cuda && self.fused.is_some() {
            let [batch, _, height, width] = map_shape(input);
            let (size, convs) = ([batch, height, width], self.convs());
            let block = ResidualCosts { size, convs, projection: self.projection() };
            return Card::footprint(on, &block);
        }
        Ledger::footprint(on, input, |ledger, map| vec![self.note(ledger, map)])
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let mut random = random::stream(seed, "init/residual", &self.place);
        let convs = self.convs();
        let norm = |conv: &Conv2dConfig| NormLayer::init(self.norm, conv.channels[1], device);
        let mut conv = |conv: &Conv2dConfig| conv.init(Fan::Out, device, &mut random);
        let block = Block {
            conv1: conv(&convs[0]),
            bn1: norm(&convs[0]),
            conv2: conv(&convs[1]),
            bn2: norm(&convs[1]),
            conv3: convs.get(2).map(&mut conv),
            bn3: convs.get(2).map(norm),
            downsample: self
                .projection()
                .map(|config| Projection { conv: conv(&config), norm: norm(&config) }),
            stride: self.stride,
            output: self.output_channels(),
        };
        let name = &self.name;
        let names = [
            ("downsample.conv.", format!("{name}.downsample.0.")),
            ("downsample.norm.", format!("{name}.downsample.1.")),
            ("", format!("{name}.")),
        ];
        let names: Vec<(&str, &str)> =
            names.iter().map(|(from, to)| (*from, to.as_str())).collect();
        let traced = Traced::new(name, &names, block);
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            let sizes =
                fused::ResidualSizes { convs, projection: self.projection(), stride: self.stride };
            let parameters = traced.parameters();
            return Box::new(fused::FusedResidual::new(name, kernels, parameters, sizes));
        }
        Box::new(traced)
    }
}

impl Forward for Block {
    fn forward(&self, input: Activation, pass: &Pass) -> Activation {
        let input = input.into_map();
        let shortcut = self.shortcut(input.clone(), pass);
        // A bottleneck strides in its second convolution.
        let [first, second] =
            if self.conv3.is_some() { [1, self.stride] } else { [self.stride, 1] };
        let conv = |name, layer, map, stride| module(name, map, |map| convolve(layer, map, stride));
        let norm = |name, layer: &NormLayer, map| module(name, map, |map| layer.forward(map, pass));
        let map = norm("bn1", &self.bn1, conv("conv1", &self.conv1, input, first));
        let map = conv("conv2", &self.conv2, module("relu", map, relu), second);
        let mut map = norm("bn2", &self.bn2, map);
        if let (Some(conv3), Some(bn3)) = (&self.conv3, &self.bn3) {
            map = norm("bn3", bn3, conv("conv3", conv3, module("relu", map, relu), 1));
        }
        let map = module("add", map, |map| map + shortcut);
        Activation::Map(module("relu", map, relu))
    }
}

impl Block {
    fn shortcut(&self, input: Tensor<4>, pass: &Pass) -> Tensor<4> {
        if let Some(projection) = &self.downsample {
            let conv = |map| convolve(&projection.conv, map, self.stride);
            let map = module("downsample.0", input, conv);
            return module("downsample.1", map, |map| projection.norm.forward(map, pass));
        }
        let every = MaxPoolOptions::new([1, 1]).with_stride([self.stride; 2]);
        let map = if self.stride > 1 { max_pool2d(input, every) } else { input };
        let [batch, channels, height, width] = map.dims();
        match self.output - channels {
            0 => map,
            more => {
                let zeros =
                    Tensor::zeros([batch, more, height, width], (&map.device(), map.dtype()));
                Tensor::cat(vec![map, zeros], 1)
            }
        }
    }
}

/// The layer's convolution, padded so that stride 1 keeps the size.
fn convolve(layer: &Conv2d, map: Tensor<4>, stride: usize) -> Tensor<4> {
    let weight = layer.weight();
    let padding = weight.dims()[2] / 2;
    convolution(map, weight, stride, padding)
}

/// The mean over each feature map.
struct PoolSpec {
    channels: usize,
    fused: Option<MemoryConfig>,
}

#[derive(Module, Debug)]
struct Pool {}

impl StageSpec for PoolSpec {
    fn name(&self) -> &str {
        "pool"
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        ActivationShape::Features([map_shape(input)[0], self.channels])
    }

    fn parameter_count(&self) -> usize {
        0
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        if on.cuda && self.fused.is_some() {
            let [batch, channels, height, width] = map_shape(input);
            return Card::footprint(on, &MeanCosts { size: [batch, height, width], channels });
        }
        Ledger::footprint(on, input, |ledger, map| vec![ledger.mean_of_maps(map)])
    }

    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "fused stages have one"))]
    fn init(&self, device: &Device, _seed: u64) -> Box<dyn Stage> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = kernels(&self.fused, device) {
            return Box::new(fused::FusedMean::new(kernels));
        }
        Box::new(Traced::new("pool", &[], Pool {}))
    }
}

impl Forward for Pool {
    fn forward(&self, input: Activation, _pass: &Pass) -> Activation {
        Activation::Features(module("mean", input.into_map(), mean))
    }
}
