//! DenseNet-BC (Huang et al. 2017, arXiv:1608.06993) as layers, with torchvision's names.

use super::layers::{Init, Join, Op, Row, Size, StageLayers, last_output};
use super::{DensenetArchitecture, Norm};
use crate::fault::Fault;
use crate::ops::Window;

impl DensenetArchitecture {
    /// The layers from images of these channels, height and width to pooled features, in stages:
    /// `stem`, then `denseblock1`, `transition1`, …, `pool`.
    ///
    /// # Errors
    ///
    /// When nothing is left of the image after a pooling.
    pub fn layers(&self, image: [usize; 3]) -> Result<Vec<StageLayers>, Fault> {
        let mut stages = vec![self.stem(image)?];
        for (index, &layers) in self.blocks.iter().enumerate() {
            stages.push(self.block(index + 1, layers, last_output(&stages))?);
            if index + 1 < self.blocks.len() {
                stages.push(self.transition(index + 1, last_output(&stages))?);
            }
        }
        let mut pool = Row::new("features.", last_output(&stages));
        pool.push("norm5", self.norm.op(pool.output()))?;
        pool.push("relu", Op::Relu)?;
        pool.push("mean", Op::GlobalPool)?;
        stages.push(pool.stage("pool", false));
        Ok(stages)
    }

    /// 7×7 convolution with stride 2, norm, ReLU, 3×3 max-pooling with stride 2.
    fn stem(&self, image: [usize; 3]) -> Result<StageLayers, Fault> {
        let mut stem = Row::new("features.", Size::Map(image));
        let window = Window::same(7, 2);
        stem.push("conv0", convolution([image[0], self.stem], window))?;
        stem.push("norm0", self.norm.op(stem.output()))?;
        stem.push("relu0", Op::Relu)?;
        stem.push("pool0", Op::MaxPool(Window::same(3, 2)))?;
        Ok(stem.stage("stem", true))
    }

    /// Layers, each of which puts `growth` channels behind all those before it.
    fn block(&self, number: usize, layers: usize, input: Size) -> Result<StageLayers, Fault> {
        let name = format!("denseblock{number}");
        let mut block = Row::new(format!("features.{name}."), input);
        for layer in 1..=layers {
            let label = format!("denselayer{layer}");
            let prefix = format!("features.{name}.{label}.");
            let added = self.dense_layer(prefix, block.output().clone())?;
            block.push(label, Op::Branches(Join::Concat, vec![Vec::new(), added.layers()]))?;
        }
        Ok(block.stage(name, false))
    }

    /// Norm, ReLU, 1×1 convolution to the bottleneck, norm, ReLU, 3×3 convolution.
    fn dense_layer(&self, prefix: String, input: Size) -> Result<Row, Fault> {
        let (width, bottleneck) = (input.channels(), self.bottleneck * self.growth);
        let spatial = Window::same(3, 1);
        let mut layer = Row::new(prefix, input);
        layer.push("norm1", self.norm.op(layer.output()))?;
        layer.push("relu1", Op::Relu)?;
        layer.push("conv1", convolution([width, bottleneck], Window::PIXEL))?;
        layer.push("norm2", self.norm.op(layer.output()))?;
        layer.push("relu2", Op::Relu)?;
        layer.push("conv2", convolution([bottleneck, self.growth], spatial))?;
        if self.dropout > 0.0 {
            layer.push("dropout", Op::Dropout(self.dropout))?;
        }
        Ok(layer)
    }

    /// Norm, ReLU, 1×1 convolution to fewer channels, 2×2 average pooling.
    fn transition(&self, number: usize, input: Size) -> Result<StageLayers, Fault> {
        let name = format!("transition{number}");
        let width = input.channels();
        let reduced = (width as f64 * self.compression) as usize;
        let mut transition = Row::new(format!("features.{name}."), input);
        transition.push("norm", self.norm.op(transition.output()))?;
        transition.push("relu", Op::Relu)?;
        transition.push("conv", convolution([width, reduced], Window::PIXEL))?;
        transition.push("pool", Op::AvgPool(Window::HALF))?;
        Ok(transition.stage(name, false))
    }
}

fn convolution(channels: [usize; 2], window: Window) -> Op {
    Op::Conv { channels, window, bias: false, init: Init::KaimingFanIn }
}

impl Norm {
    /// The layer for an input of this size.
    pub(super) fn op(self, input: &Size) -> Op {
        match self {
            Self::Batch => Op::BatchNorm(input.channels()),
            Self::Group => Op::GroupNorm(input.channels()),
        }
    }
}
