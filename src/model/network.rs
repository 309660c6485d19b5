//! The network below the heads.

use super::fuse::{Fused, FusedStageSpec, fuse};
use super::layers::{
    Join, Layer, LayerStageSpec, Op, ParameterSpec, Size, StageLayers, all_layers,
};
use super::{
    DensenetConfig, HEADS, HeadConfig, ModelConfig, Norm, ResnetConfig, SequentialConfig,
    heads_stage,
};
use crate::choice::name_of;
use crate::fault::Fault;
use crate::memory::{DenseLayers, Precision, StageSpec};

/// The network below the heads: stages of layers, with every size given.
#[derive(Debug, Clone, PartialEq)]
pub struct Network {
    config: ModelConfig,
    /// Its stages where none is cut.
    whole: Vec<StageLayers>,
    stages: Vec<StageLayers>,
}

/// Images of up to so many pixels more are tried, where it is asked whether other sizes fit: strides come
/// to less together, as a rule.
const MORE_PIXELS: usize = 64;

impl From<DensenetConfig> for ModelConfig {
    fn from(config: DensenetConfig) -> Self {
        Self::Densenet(config)
    }
}

impl From<ResnetConfig> for ModelConfig {
    fn from(config: ResnetConfig) -> Self {
        Self::Resnet(config)
    }
}

impl From<SequentialConfig> for ModelConfig {
    fn from(config: SequentialConfig) -> Self {
        Self::Sequential(config)
    }
}

impl ModelConfig {
    /// The network's name, as its table has it.
    pub fn name(&self) -> &'static str {
        name_of(self)
    }

    /// The network for images of these channels, height and width.
    ///
    /// # Errors
    ///
    /// A key that is missing, wrong or contradicts another, or an image of which nothing is left.
    pub fn resolve(&self, image: [usize; 3]) -> Result<Network, Fault> {
        let below = |fault: Fault| fault.below(&format!("model.{}", self.name()));
        let (config, stages) = match self {
            Self::Densenet(config) => {
                let architecture = config.resolve().map_err(below)?;
                architecture.check_image(image)?;
                (Self::Densenet(architecture.to_config()), architecture.layers(image))
            }
            Self::Resnet(config) => {
                let architecture = config.resolve().map_err(below)?;
                (Self::Resnet(architecture.to_config()), architecture.layers(image))
            }
            Self::Sequential(config) => (self.clone(), config.resolve(image)),
        };
        let stages = stages.map_err(below)?;
        Ok(Network { config, whole: stages.clone(), stages })
    }

    /// Networks of its kind with fewer layers, deepest first, each after its depth.
    pub fn shallower(&self) -> Vec<(usize, Self)> {
        match self {
            Self::Densenet(own) => own.shallower().map(|(n, config)| (n, config.into())).collect(),
            Self::Resnet(own) => own.shallower().map(|(n, config)| (n, config.into())).collect(),
            Self::Sequential(_) => Vec::new(),
        }
    }

    /// How activations are normalised.
    pub fn norm(&self) -> Norm {
        match self {
            Self::Densenet(config) => config.norm,
            Self::Resnet(config) => config.norm,
            Self::Sequential(config) => config.norm(),
        }
    }
}

impl Network {
    /// The stages of the network, from images to pooled features.
    pub fn layers(&self) -> &[StageLayers] {
        &self.stages
    }

    /// The same with dense blocks cut: a layer of which `begins` holds, given what a stage that begins with it is
    /// called (`denseblock1.denselayer3`), begins a stage. Layers before it stay in the stage that has the block's name.
    pub fn cut(&self, begins: impl Fn(&str) -> bool) -> Self {
        let stages = self.whole.iter().flat_map(|stage| parts(stage, &begins)).collect();
        Self { stages, ..self.clone() }
    }

    /// The names of its stages where none is cut, and of the heads' stage behind them.
    pub fn whole_stages(&self) -> Vec<&str> {
        self.whole.iter().map(|stage| stage.name.as_str()).chain([HEADS]).collect()
    }

    /// The names of its stages, and of the heads' stage behind them.
    pub fn stage_names(&self) -> Vec<&str> {
        self.stages.iter().map(|stage| stage.name.as_str()).chain([HEADS]).collect()
    }

    /// What a device ends with whose last stage is `stage`: the whole stage's name, and where only some layers of that
    /// come so far, the last one's.
    pub fn end_of(&self, stage: usize) -> String {
        let names = self.stage_names();
        let whole = self.whole_stages().into_iter().find(|whole| is_part_of(names[stage], whole));
        let whole = whole.unwrap_or(names[stage]);
        let goes_on = names.get(stage + 1).is_some_and(|next| is_part_of(next, whole));
        match self.stages.get(stage).and_then(|stage| stage.layers.last()) {
            Some(last) if goes_on => format!("{whole}.{}", last.label),
            _ => whole.to_owned(),
        }
    }

    /// How activations are normalised.
    pub fn norm(&self) -> Norm {
        self.config.norm()
    }

    /// The stages from images to pooled features, in this precision; with `heads`, to their outputs.
    /// On CUDA they run fused where there are kernels for that (see [`Self::fusible`]), and then keep of 1×1
    /// convolutions' outputs what `dense_layers` says.
    pub fn stages(
        &self,
        precision: Precision,
        dense_layers: DenseLayers,
        heads: &[HeadConfig],
    ) -> Vec<Box<dyn StageSpec>> {
        let fused = precision.fuses().then(|| fuse(&self.stages).ok()).flatten();
        let fused = fused.unwrap_or_else(|| vec![None; self.stages.len()]);
        let behind_fused = fused.last().is_some_and(Option::is_some);
        let heads = (!heads.is_empty()).then(|| -> Box<dyn StageSpec> {
            let spec = LayerStageSpec::new(heads_stage(heads, self.features()), precision);
            Box::new(if behind_fused { spec.behind_fused() } else { spec })
        });
        let spec = |(fused, stage): (Option<Fused>, &StageLayers)| -> Box<dyn StageSpec> {
            let stage = stage.clone();
            match fused {
                Some(fused) => Box::new(FusedStageSpec::new(fused, stage, precision, dense_layers)),
                None => Box::new(LayerStageSpec::new(stage, precision)),
            }
        };
        fused.into_iter().zip(&self.stages).map(spec).chain(heads).collect()
    }

    /// The parameters and running statistics of the network and of `heads` on it, in the order in which
    /// images pass them.
    pub fn parameters(&self, heads: &[HeadConfig]) -> Vec<ParameterSpec> {
        let heads = heads_stage(heads, self.features());
        self.stages.iter().chain([&heads]).flat_map(StageLayers::parameters).collect()
    }

    /// The fewest numbers of a channel that BatchNorm normalises for one image; `None` where nothing
    /// is normalised over the batch.
    pub fn least_normalised(&self) -> Option<usize> {
        let numbers = self.batch_norm_layers().map(|layer| match layer.output {
            Size::Map([_, height, width]) => height * width,
            _ => 1,
        });
        numbers.min()
    }

    /// The channels of each BatchNorm.
    pub fn batch_norms(&self) -> Vec<usize> {
        self.batch_norm_layers().map(|layer| layer.output.channels()).collect()
    }

    fn batch_norm_layers(&self) -> impl Iterator<Item = &Layer> {
        let layers = self.stages.iter().flat_map(|stage| all_layers(&stage.layers));
        layers.filter(|layer| matches!(layer.op, Op::BatchNorm(_)))
    }

    /// Whether its stages run fused on CUDA.
    ///
    /// # Errors
    ///
    /// What does not allow it, to follow "which".
    pub fn fusible(&self) -> Result<(), &'static str> {
        fuse(&self.stages).map(drop)
    }

    /// Whether some of its stages run fused on CUDA and may keep the outputs of 1×1 convolutions or compute
    /// them again, as `memory.dense_layers` says.
    pub fn may_keep_pointwise(&self) -> bool {
        let fused = fuse(&self.stages).unwrap_or_default();
        fused.iter().flatten().any(|fused| fused.stage.may_keep_pointwise())
    }

    /// Whether it takes images of other sizes too, with the same parameters. Layers may ask for one size:
    /// `flatten` before a linear layer, or branches whose maps differ in size for other images.
    pub fn takes_other_sizes(&self) -> bool {
        let Some(Size::Map([channels, height, width])) = self.stages.first().map(|s| &s.input)
        else {
            return false;
        };
        let own = self.parameters(&[]);
        // What differs between sizes does so for a few pixels more, or when maps shrink to a pixel here.
        let more = (1..=MORE_PIXELS).chain([*height.max(width)]);
        more.map(|more| self.config.resolve([*channels, height + more, width + more]))
            .all(|other| other.is_ok_and(|other| other.parameters(&[]) == own))
    }

    /// Channels that the heads see.
    pub fn features(&self) -> usize {
        self.stages.last().map_or(0, |stage| stage.output().channels())
    }

    /// The configuration that resolves to this.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }
}

/// Whether `name` is that of the stage `whole` or of a part of it that begins with one of its layers.
pub fn is_part_of(name: &str, whole: &str) -> bool {
    name.strip_prefix(whole).is_some_and(|layer| layer.is_empty() || layer.starts_with('.'))
}

/// The parts of a stage that is cut before each layer of which `begins` holds.
fn parts(stage: &StageLayers, begins: impl Fn(&str) -> bool) -> Vec<StageLayers> {
    // What a dense layer gives begins with what it was given, which is therefore all that the layers behind it need.
    let is_dense = |layer: &Layer| matches!(&layer.op, Op::Branches(Join::Concat, rows) if rows.first().is_some_and(Vec::is_empty));
    let mut parts = vec![StageLayers { layers: Vec::new(), ..stage.clone() }];
    for layer in &stage.layers {
        let part = parts.last_mut().expect("the first is there");
        let name = format!("{}.{}", stage.name, layer.label);
        if !part.layers.is_empty() && stage.layers.iter().all(is_dense) && begins(&name) {
            let input = part.output().clone();
            parts.push(StageLayers { name, layers: vec![layer.clone()], input, first: false });
        } else {
            part.layers.push(layer.clone());
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(model: &str, side: usize) -> Option<usize> {
        let config: ModelConfig = toml::from_str(model).expect("a model");
        config.resolve([1, side, side]).expect("a network").least_normalised()
    }

    /// Cutting moves no weight and changes no name.
    #[test]
    fn the_parts_of_a_network_have_the_parameters_and_sizes_of_the_whole() {
        let config: ModelConfig = toml::from_str("[densenet]\ndepth = 121").expect("a model");
        let whole = config.resolve([1, 64, 64]).expect("a network");
        let finest = whole.cut(|_| true);
        // Each block's first layer begins the block.
        assert_eq!(finest.layers().len(), whole.layers().len() + 6 + 12 + 24 + 16 - 4);
        assert_eq!(finest.parameters(&[]), whole.parameters(&[]));
        for pair in finest.layers().windows(2) {
            assert_eq!(pair[0].output(), &pair[1].input, "{}", pair[1].name);
        }
        let one = finest.cut(|name| name == "denseblock3.denselayer9");
        let names = one.stage_names();
        assert_eq!(names[5..8], ["denseblock3", "denseblock3.denselayer9", "transition3"]);
        assert_eq!(one.layers()[5].layers.len(), 8);
        assert_eq!(one.end_of(5), "denseblock3.denselayer8");
        assert_eq!([6, 7].map(|stage| one.end_of(stage)), ["denseblock3", "transition3"]);
        assert_eq!(one.cut(|_| false), whole);
        // Nothing else is cut: what a layer gives is not all that those behind it need.
        let config: ModelConfig = toml::from_str("[resnet]\ndepth = 18").expect("a model");
        let network = config.resolve([1, 64, 64]).expect("a network");
        assert_eq!(network.cut(|_| true), network);
    }

    /// The last maps of torchvision's networks are of 7×7 pixels for images of 224×224.
    #[test]
    fn the_smallest_map_that_is_normalised_is_the_last() {
        let sequential = |layers: &str| format!("[sequential]\nlayers = [{layers}]");
        for (model, side, numbers) in [
            ("[densenet]\ndepth = 121".to_owned(), 224, Some(49)),
            ("[densenet]\ndepth = 121".to_owned(), 32, Some(1)),
            ("[densenet]\ndepth = 121\nnorm = \"group\"".to_owned(), 32, None),
            ("[resnet]\ndepth = 18".to_owned(), 224, Some(49)),
            ("[resnet]\ndepth = 50".to_owned(), 32, Some(1)),
            ("[resnet]\nform = \"cifar\"\ndepth = 20".to_owned(), 32, Some(64)),
            (sequential("\"batch_norm\", \"flatten\""), 8, Some(64)),
            (sequential("\"batch_norm\", \"flatten\", \"batch_norm\""), 8, Some(1)),
            (sequential("\"relu\", \"flatten\""), 8, None),
        ] {
            assert_eq!(least(&model, side), numbers, "{model}");
        }
    }
}
