//! A fused stage before it exists.

use burn::tensor::Device;

use super::{DenseBlockSizes, FusedStage, ResidualSizes};
#[cfg(feature = "cuda")]
use crate::memory::Parameter;
use crate::memory::{
    ActivationShape, Card, DenseLayers, Footprint, MemoryConfig, Stage, StageSpec, Target,
};
#[cfg(feature = "cuda")]
use crate::model::fused;
use crate::model::fused_costs::{
    BlockCosts, MeanCosts, PlainStemCosts, PoolCosts, ResidualCosts, StemCosts, TransitionCosts,
};
use crate::model::layers::{LayerStageSpec, StageLayers};
#[cfg(feature = "cuda")]
use crate::ops::cuda::Kernels;

/// A stage that runs fused on a GPU, and layer by layer elsewhere.
pub struct FusedStageSpec {
    fused: FusedStage,
    layers: StageLayers,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU has a choice"))]
    memory: MemoryConfig,
    unfused: LayerStageSpec,
}

impl FusedStageSpec {
    /// `layers`, which are `fused`, run as `memory` says.
    pub fn new(fused: FusedStage, layers: StageLayers, memory: &MemoryConfig) -> Self {
        let unfused = LayerStageSpec::new(layers.clone(), memory.precision);
        Self { fused, layers, memory: memory.clone(), unfused }
    }

    /// What it costs on a GPU.
    fn fused_footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        let ActivationShape::Map(images) = *input else { panic!("maps were expected") };
        let [batch, channels, height, width] = images;
        let size = [batch, height, width];
        match &self.fused {
            FusedStage::Stem { channels: [_, given], room, .. } => {
                Card::footprint(on, &StemCosts { images, channels: [*given, *room] })
            }
            FusedStage::PlainStem(conv) => {
                Card::footprint(on, &PlainStemCosts { size, conv: *conv })
            }
            FusedStage::DenseBlock(sizes) => {
                let DenseBlockSizes { layers, input, growth, bottleneck } = *sizes;
                let pixels = batch * height * width;
                let keep = on.dense_layers == DenseLayers::Keep;
                let block = BlockCosts { pixels, layers, input, growth, bottleneck, keep };
                let checkpoint = on.precision.bytes() * (pixels * input) as u64;
                Footprint { checkpoint, ..Card::footprint(on, &block) }
            }
            FusedStage::Transition { channels: [read, given], room } => {
                let channels = [*read, *given, *room];
                Card::footprint(on, &TransitionCosts { size, channels })
            }
            FusedStage::Residual(ResidualSizes { convs, projection, .. }) => {
                let (convs, projection) = (convs.clone(), *projection);
                Card::footprint(on, &ResidualCosts { size, convs, projection })
            }
            FusedStage::NormPool { channels } => {
                Card::footprint(on, &PoolCosts { size, channels: *channels })
            }
            FusedStage::Pool => Card::footprint(on, &MeanCosts { size, channels }),
        }
    }

    #[cfg(feature = "cuda")]
    fn init_fused(&self, kernels: Kernels, parameters: Vec<Parameter>) -> Box<dyn Stage> {
        let name = &self.layers.name;
        match self.fused.clone() {
            FusedStage::Stem { channels: [_, output], room, labels } => {
                Box::new(fused::FusedStem::new(name, kernels, parameters, labels, output, room))
            }
            FusedStage::PlainStem(conv) => {
                Box::new(fused::FusedPlainStem::new(name, kernels, parameters, conv))
            }
            FusedStage::DenseBlock(sizes) => {
                let keep = self.memory.dense_layers();
                Box::new(fused::FusedBlock::new(name, kernels, parameters, sizes, keep))
            }
            FusedStage::Transition { channels: [_, output], room } => {
                Box::new(fused::FusedTransition::new(name, kernels, parameters, output, room))
            }
            FusedStage::Residual(sizes) => {
                Box::new(fused::FusedResidual::new(name, kernels, parameters, sizes))
            }
            FusedStage::NormPool { .. } => {
                Box::new(fused::FusedPool::new(name, kernels, parameters))
            }
            FusedStage::Pool => Box::new(fused::FusedMean::new(name, kernels)),
        }
    }
}

impl StageSpec for FusedStageSpec {
    fn name(&self) -> &str {
        &self.layers.name
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        self.unfused.output(input)
    }

    fn parameter_count(&self) -> usize {
        self.unfused.parameter_count()
    }

    fn layers(&self) -> usize {
        self.unfused.layers()
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        match on.cuda {
            true => self.fused_footprint(input, on),
            false => self.unfused.footprint(input, on),
        }
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = fused::kernels(device, &self.memory) {
            let parameters = self.layers.parameters();
            let parameters = parameters.iter().map(|spec| spec.init(device, seed)).collect();
            return self.init_fused(kernels, parameters);
        }
        self.unfused.init(device, seed)
    }
}
