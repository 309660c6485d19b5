//! ResNet as layers, one stage for each residual block, with torchvision's names.

use super::{EXPANSION, ResnetArchitecture, ResnetBlock, ResnetForm};
use crate::fault::Fault;
use crate::model::layers::{Init, Join, Layer, Op, Row, Size, StageLayers, last_output};
use crate::ops::Window;

impl ResnetArchitecture {
    /// The layers from images of these channels, height and width to pooled features, in stages:
    /// `stem`, then `layer1.0`, `layer1.1`, …, `pool`.
    ///
    /// # Errors
    ///
    /// None for images of a pixel or more: all windows are padded.
    pub fn layers(&self, image: [usize; 3]) -> Result<Vec<StageLayers>, Fault> {
        let mut stages = vec![self.stem(image)?];
        for (group, &blocks) in self.blocks.iter().enumerate() {
            for index in 0..blocks {
                let stride = if group > 0 && index == 0 { 2 } else { 1 };
                let name = format!("layer{}.{index}", group + 1);
                stages.push(self.block(name, self.stem << group, stride, last_output(&stages))?);
            }
        }
        let mut pool = Row::new("", last_output(&stages));
        pool.push("mean", Op::GlobalPool)?;
        stages.push(pool.stage("pool", false));
        Ok(stages)
    }

    /// For ImageNet a 7×7 convolution with stride 2, norm, ReLU and 3×3 max-pooling with stride 2; for
    /// CIFAR a 3×3 convolution, norm and ReLU.
    fn stem(&self, image: [usize; 3]) -> Result<StageLayers, Fault> {
        let imagenet = self.form == ResnetForm::Imagenet;
        let window = if imagenet { Window::same(7, 2) } else { Window::same(3, 1) };
        let mut stem = Row::new("", Size::Map(image));
        self.convolve(&mut stem, 1, [image[0], self.stem], window)?;
        stem.push("relu", Op::Relu)?;
        if imagenet {
            stem.push("maxpool", Op::MaxPool(Window::same(3, 2)))?;
        }
        Ok(stem.stage("stem", true))
    }

    /// Two 3×3 convolutions, or 1×1, 3×3 and 1×1, each followed by a norm, with ReLU between them and
    /// after the shortcut is added.
    fn block(
        &self,
        name: String,
        width: usize,
        stride: usize,
        input: Size,
    ) -> Result<StageLayers, Fault> {
        let prefix = format!("{name}.");
        let channels = input.channels();
        // A bottleneck strides in its 3×3 convolution, as torchvision has it; in the paper in the first.
        let convolutions = match self.block {
            ResnetBlock::Basic => {
                vec![([channels, width], Window::same(3, stride)), ([width; 2], Window::same(3, 1))]
            }
            ResnetBlock::Bottleneck => vec![
                ([channels, width], Window::same(1, 1)),
                ([width; 2], Window::same(3, stride)),
                ([width, EXPANSION * width], Window::same(1, 1)),
            ],
        };
        let mut path = Row::new(&prefix, input.clone());
        for (index, (channels, window)) in convolutions.into_iter().enumerate() {
            if index > 0 {
                path.push("relu", Op::Relu)?;
            }
            self.convolve(&mut path, index + 1, channels, window)?;
        }
        let shortcut = self.shortcut(&prefix, path.output().channels(), stride, input.clone())?;
        let mut block = Row::new(&prefix, input);
        block.push("", Op::Branches(Join::Add, vec![path.layers(), shortcut]))?;
        block.push("relu", Op::Relu)?;
        Ok(block.stage(name, false))
    }

    /// A convolution, 1×1 with a norm, where the block changes the shape. For CIFAR shortcuts have no
    /// parameters (He et al. 2016, 4.2, option A): pixels are left out and channels of zeros added.
    fn shortcut(
        &self,
        prefix: &str,
        output: usize,
        stride: usize,
        input: Size,
    ) -> Result<Vec<Layer>, Fault> {
        let channels = input.channels();
        let window = Window::same(1, stride);
        let mut shortcut = Row::new(prefix, input);
        let changes = stride > 1 || channels != output;
        if changes && self.form == ResnetForm::Imagenet {
            shortcut.push("downsample.0", convolution([channels, output], window))?;
            shortcut.push("downsample.1", self.norm.op(shortcut.output()))?;
            return Ok(shortcut.layers());
        }
        if stride > 1 {
            shortcut.push("every", Op::MaxPool(window))?;
        }
        if channels != output {
            shortcut.push("zeros", Op::PadChannels(output - channels))?;
        }
        Ok(shortcut.layers())
    }

    /// Puts convolution and norm `number` behind `row`.
    fn convolve(
        &self,
        row: &mut Row,
        number: usize,
        channels: [usize; 2],
        window: Window,
    ) -> Result<(), Fault> {
        row.push(format!("conv{number}"), convolution(channels, window))?;
        row.push(format!("bn{number}"), self.norm.op(row.output()))
    }
}

fn convolution(channels: [usize; 2], window: Window) -> Op {
    Op::Conv { channels, window, bias: false, init: Init::KaimingFanOut }
}
