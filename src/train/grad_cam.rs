//! Where in an image an output comes from: Grad-CAM.

use std::collections::BTreeMap;

use burn::tensor::activation::relu;
use burn::tensor::{DType, ExecutionError, Tensor};

use super::{Images, Inference};
use crate::memory::{Activation, Chain, Gradients, Keep, Pass, StageSpec, Statistics};
use crate::model::layers::{LayerStageSpec, Op, Size, StageLayers};
use crate::model::{Network, heads_stage};

/// Gradient-weighted class activation maps (Selvaraju et al. 2017, "Grad-CAM", equations 1 and 2) of a
/// trained model.
///
/// The map of an output is ReLU(Σₖ αₖ Aₖ). A is the last feature map: what the last stage with a
/// convolution gives (of a DenseNet its last dense block, of a ResNet its last residual block). αₖ is
/// the mean over the pixels of the gradient of the output (a logit) with respect to Aₖ. Running
/// statistics are used and nothing is dropped out, as in a prediction.
pub struct GradCam {
    /// How many stages of the model come before.
    before: usize,
    /// The layers from there to the last feature map.
    body: Chain,
    /// The layers from the feature map to the outputs.
    tail: Chain,
}

/// A model without a feature map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the network has no convolution, so there is no feature map to make a heatmap of")]
pub struct NoFeatureMap;

/// The class activation map of one output for one image.
#[derive(Debug, Clone, PartialEq)]
pub struct ActivationMap {
    /// Height and width: those of the feature map.
    pub size: [usize; 2],
    /// `[height, width]`, 0 or more: how much a place speaks for the output.
    pub values: Vec<f32>,
}

impl GradCam {
    /// For `inference`, whose model is `network` with its heads.
    ///
    /// # Errors
    /// When the network has no convolution.
    pub fn new(network: &Network, inference: &Inference) -> Result<Self, NoFeatureMap> {
        let stages = network.layers();
        let (before, cut) = last_map(stages).ok_or(NoFeatureMap)?;
        let [body, rest] = split(&stages[before], cut);
        let heads: Vec<_> = inference.heads.iter().map(|head| head.config.clone()).collect();
        let tail = rest.into_iter().chain(stages[before + 1..].iter().cloned());
        let tail = tail.chain([heads_stage(&heads, network.features())]);
        let chain = |stages: Vec<StageLayers>| plain(stages, inference);
        Ok(Self { before, body: chain(body.into_iter().collect()), tail: chain(tail.collect()) })
    }

    /// For each of `outputs`, a head and one of its outputs by their places, the map of each image.
    ///
    /// # Errors
    /// When the device fails.
    ///
    /// # Panics
    /// If there is no such output.
    pub fn maps(
        &self,
        inference: &Inference,
        images: Images<'_>,
        outputs: &[[usize; 2]],
    ) -> Result<Vec<Vec<ActivationMap>>, ExecutionError> {
        let input = inference.input(images, 0..images.count());
        let before = &inference.chain.stages()[..self.before];
        let stages = before.iter().chain(self.body.stages());
        let map = stages.fold(input, |flowing, stage| {
            let pass = Pass::evaluation();
            stage.forward(flowing, Keep::Nothing, &pass, &mut Statistics::new()).0
        });
        let map = map.into_map();
        outputs.iter().map(|&output| self.map(map.clone(), output)).collect()
    }

    /// The maps of an output, where `map` is the feature map, `[images, channels, height, width]`.
    fn map(
        &self,
        map: Tensor<4>,
        output: [usize; 2],
    ) -> Result<Vec<ActivationMap>, ExecutionError> {
        let gradient = self.gradient(map.clone(), output).cast(DType::F32);
        let weights = gradient.mean_dim(3).mean_dim(2); // [images, channels, 1, 1]
        let maps = relu((map.cast(DType::F32) * weights).sum_dim(1)); // [images, 1, height, width]
        let [_, _, height, width] = maps.dims();
        let values: Vec<f32> = maps.try_into_data()?.iter::<f32>().collect();
        let each = values.chunks_exact(height * width);
        Ok(each.map(|map| ActivationMap { size: [height, width], values: map.to_vec() }).collect())
    }

    /// The gradient of an output with respect to the feature map. Images do not influence each other,
    /// so that of all together has that of each.
    fn gradient(&self, map: Tensor<4>, [head, output]: [usize; 2]) -> Tensor<4> {
        let pass = Pass::evaluation();
        let mut flowing = Activation::Map(map);
        let mut kept = Vec::new();
        for stage in self.tail.stages() {
            let (next, saved) = stage.forward(flowing, Keep::All, &pass, &mut Statistics::new());
            kept.push(saved.expect("it was asked to keep"));
            flowing = next;
        }
        let of_outputs = flowing.into_outputs().into_iter().enumerate().map(|(place, values)| {
            let zeros = values.zeros_like();
            if place != head {
                return zeros;
            }
            let [images, _] = zeros.dims();
            zeros.slice_assign(
                [0..images, output..output + 1],
                values.narrow(1, output, 1).ones_like(),
            )
        });
        let mut gradient = Activation::Outputs(of_outputs.collect());
        for (stage, saved) in self.tail.stages().iter().zip(kept).rev() {
            let found = stage.backward(saved, gradient, &mut Gradients::default());
            gradient = found.expect("its input is no image");
        }
        gradient.into_map()
    }
}

/// The last stage with a convolution (or branches), and behind which of its layers the last map is.
fn last_map(stages: &[StageLayers]) -> Option<(usize, usize)> {
    let is_map = |size: &Size| matches!(size, Size::Map(_));
    let makes = |stage: &StageLayers| {
        stage.layers.iter().any(|layer| {
            matches!(layer.op, Op::Conv { .. } | Op::Branches(..)) && is_map(&layer.output)
        })
    };
    let stage = stages.iter().rposition(makes)?;
    let layer = stages[stage].layers.iter().rposition(|layer| is_map(&layer.output))?;
    Some((stage, layer + 1))
}

/// The first `cut` layers of a stage, and those behind, where there are any.
fn split(stage: &StageLayers, cut: usize) -> [Option<StageLayers>; 2] {
    let (front, behind) = stage.layers.split_at(cut);
    let output = front.last().map_or(&stage.input, |last| &last.output);
    let rest = StageLayers {
        name: format!("{}.rest", stage.name),
        layers: behind.to_vec(),
        input: output.clone(),
        first: false,
    };
    let front = StageLayers { layers: front.to_vec(), ..stage.clone() };
    [Some(front), (!behind.is_empty()).then_some(rest)]
}

/// Stages that run layer by layer, with the weights that `inference` has. Fused stages differentiate
/// what a training step computes: their norms go by the batch.
fn plain(stages: Vec<StageLayers>, inference: &Inference) -> Chain {
    let spec = |stage| -> Box<dyn StageSpec> {
        Box::new(LayerStageSpec::new(stage, inference.precision()))
    };
    let specs: Vec<_> = stages.into_iter().map(spec).collect();
    let mut chain = Chain::init(&specs, inference.device(), 0);
    let parameters = inference.chain.parameters().into_iter();
    let mut values: BTreeMap<_, _> =
        parameters.map(|parameter| (parameter.name, parameter.value)).collect();
    chain.map_parameters(|name, value| values.remove(name).unwrap_or(value));
    chain
}
