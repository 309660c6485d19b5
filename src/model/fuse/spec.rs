//! A fused stage before it exists.

use burn::tensor::Device;

use super::{Fused, FusedStage, StageParameters};
use crate::memory::{
    ActivationShape, DenseLayers, DryAllocator, DryStage, Footprint, Precision, Stage, StageSpec,
    Target,
};
use crate::model::fused::{self, DryFused};
#[cfg(feature = "cuda")]
use crate::model::layers::ParameterSpec;
use crate::model::layers::{LayerStageSpec, StageLayers};
use crate::ops::gpu::Kernel;

/// A stage that runs fused on a GPU, and layer by layer elsewhere.
pub struct FusedStageSpec {
    fused: FusedStage,
    layers: StageLayers,
    parameters: StageParameters,
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "only a GPU has a choice"))]
    run: (Precision, DenseLayers),
    unfused: LayerStageSpec,
}

impl FusedStageSpec {
    /// `layers`, which are `fused`, in this precision; dense layers keep what `dense_layers` says.
    pub fn new(
        Fused { stage: fused, padding }: Fused,
        layers: StageLayers,
        precision: Precision,
        dense_layers: DenseLayers,
    ) -> Self {
        let unfused = LayerStageSpec::new(layers.clone(), precision);
        let parameters = StageParameters { specs: layers.parameters(), padding };
        Self { fused, layers, parameters, run: (precision, dense_layers), unfused }
    }

    /// The stage on sizes alone on a GPU, with memory from `memory`.
    fn on_sizes(
        &self,
        input: &ActivationShape,
        on: &Target,
        memory: &DryAllocator,
    ) -> Box<dyn DryFused> {
        let program = fused::program(&self.fused, on.dense_layers);
        program.dry(&self.parameters, map(input), on, memory)
    }
}

/// Batch, channels, height and width of maps.
fn map(input: &ActivationShape) -> [usize; 4] {
    match *input {
        ActivationShape::Map(shape) => shape,
        _ => panic!("maps were expected"),
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
        if !on.cuda {
            return self.unfused.footprint(input, on);
        }
        self.on_sizes(input, on, &DryAllocator::default()).footprint()
    }

    fn dry(
        &self,
        input: &ActivationShape,
        on: &Target,
        memory: &DryAllocator,
    ) -> Option<Box<dyn DryStage>> {
        on.cuda.then(|| -> Box<dyn DryStage> { self.on_sizes(input, on, memory) })
    }

    fn kernels(&self, input: &ActivationShape, on: &Target) -> Vec<Kernel> {
        self.on_sizes(input, on, &DryAllocator::default()).kernels()
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = fused::kernels(device, self.run.0) {
            // On the device nothing is there but what they end up in, so that they lie close.
            let host = Device::flex();
            let parameters = ParameterSpec::init_all(&self.parameters.specs, &host, seed);
            let parameters = (parameters, self.parameters.padding.clone());
            let program = fused::program(&self.fused, self.run.1);
            return program.stage(&self.layers.name, (kernels, device), parameters);
        }
        self.unfused.init(device, seed)
    }
}
