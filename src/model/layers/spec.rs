//! A stage of layers before it exists.

use burn::tensor::Device;

use super::{LayerStage, StageLayers, all_layers, dry};
use crate::memory::{ActivationShape, Footprint, Precision, Stage, StageSpec, Target};
use crate::ops::gpu::Kernel;

/// A stage of layers that runs them one after the other.
pub struct LayerStageSpec {
    layers: StageLayers,
    precision: Precision,
    behind_fused: bool,
}

impl LayerStageSpec {
    /// Of these layers, computed in this precision.
    pub fn new(layers: StageLayers, precision: Precision) -> Self {
        Self { layers, precision, behind_fused: false }
    }

    /// The same behind a stage that runs fused on a GPU and gives features of 32 bits there, in which they are
    /// then computed.
    pub fn behind_fused(self) -> Self {
        Self { behind_fused: true, ..self }
    }

    /// The target with the precision that the layers compute in.
    fn target(&self, on: &Target) -> Target {
        let precision = match on.precision {
            Precision::Bf16 | Precision::Fp16 if self.behind_fused && on.cuda => Precision::Fp32,
            precision => precision,
        };
        Target { precision, ..*on }
    }
}

impl StageSpec for LayerStageSpec {
    fn name(&self) -> &str {
        &self.layers.name
    }

    fn output(&self, input: &ActivationShape) -> ActivationShape {
        let batch = input.batch();
        assert_eq!(
            self.layers.input.of_batch(batch),
            *input,
            "{} was planned for that",
            self.name()
        );
        self.layers.output().of_batch(batch)
    }

    fn parameter_count(&self) -> usize {
        let parameters = self.layers.parameters();
        parameters
            .iter()
            .filter(|parameter| parameter.trained)
            .map(|parameter| parameter.count())
            .sum()
    }

    fn layers(&self) -> usize {
        let layers = all_layers(&self.layers.layers).into_iter();
        layers.filter(|layer| layer.op.is_matmul()).count().max(1)
    }

    fn footprint(&self, input: &ActivationShape, on: &Target) -> Footprint {
        dry::footprint(&self.layers, input, &self.target(on))
    }

    fn kernels(&self, input: &ActivationShape, on: &Target) -> Vec<Kernel> {
        dry::kernels(&self.layers, input, &self.target(on))
    }

    fn init(&self, device: &Device, seed: u64) -> Box<dyn Stage> {
        let matmul = self.precision.matmul_precision();
        Box::new(LayerStage::init(self.layers.clone(), matmul, device, seed))
    }
}
