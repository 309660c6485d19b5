//! The network below the heads, whichever it is, with every size given.

use super::{
    ArchitectureFault, DensenetArchitecture, Layer, ModelConfig, Norm, ResnetArchitecture,
    SequentialArchitecture, Size, SizedLayer,
};
use crate::memory::{ActivationShape, MemoryConfig, StageSpec};

/// The network below the heads.
#[derive(Debug, Clone, PartialEq)]
pub enum Network {
    /// A DenseNet.
    Densenet(DensenetArchitecture),
    /// A ResNet.
    Resnet(ResnetArchitecture),
    /// A list of layers.
    Sequential(SequentialArchitecture),
}

impl ModelConfig {
    /// The network's name, as its table has it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Densenet(_) => "densenet",
            Self::Resnet(_) => "resnet",
            Self::Sequential(_) => "sequential",
        }
    }

    /// Every size of the network, for images of these channels, height and width.
    ///
    /// # Errors
    ///
    /// A key that is missing, wrong or contradicts another.
    pub fn resolve(&self, image: [usize; 3]) -> Result<Network, ArchitectureFault> {
        match self {
            Self::Densenet(config) => config.resolve().map(Network::Densenet),
            Self::Resnet(config) => config.resolve().map(Network::Resnet),
            Self::Sequential(config) => config.resolve(image).map(Network::Sequential),
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
    /// How activations are normalised.
    pub fn norm(&self) -> Norm {
        match self {
            Self::Densenet(architecture) => architecture.norm,
            Self::Resnet(architecture) => architecture.norm,
            Self::Sequential(architecture) => architecture.norm(),
        }
    }

    /// The stages from images with `channels` channels to pooled features.
    pub fn stages(&self, channels: usize, memory: &MemoryConfig) -> Vec<Box<dyn StageSpec>> {
        match self {
            Self::Densenet(architecture) => architecture.stages(channels, memory),
            Self::Resnet(architecture) => architecture.stages(channels, memory),
            Self::Sequential(architecture) => architecture.stages(),
        }
    }

    /// The fewest numbers of a channel that are normalised over a batch of one image with these
    /// channels, height and width; `None` where nothing is normalised over the batch.
    pub fn least_normalised(&self, image: [usize; 3]) -> Option<usize> {
        if self.norm() != Norm::Batch {
            return None;
        }
        if let Self::Sequential(architecture) = self {
            let stages = architecture.stages.iter();
            return stages.filter_map(|stage| least_normalised(&stage.layers)).min();
        }
        // Maps only shrink, and those that a stage puts out or takes are normalised in it.
        let [channels, height, width] = image;
        let mut shape = ActivationShape::Map([1, channels, height, width]);
        let stages = self.stages(channels, &MemoryConfig::default());
        let maps = stages.iter().filter_map(|stage| {
            shape = stage.output(&shape);
            match shape {
                ActivationShape::Map([_, _, height, width]) => Some(height * width),
                _ => None,
            }
        });
        maps.min()
    }

    /// Whether its stages run fused on CUDA.
    ///
    /// # Errors
    ///
    /// What does not allow it, to follow "which".
    pub fn fusible(&self) -> Result<(), String> {
        match self {
            Self::Densenet(architecture) => architecture.fusible(),
            Self::Resnet(architecture) => architecture.fusible(),
            Self::Sequential(_) => Err("a list of layers"),
        }
        .map_err(|reason| reason.to_owned())
    }

    /// Channels that the heads see.
    pub fn features(&self) -> usize {
        match self {
            Self::Densenet(architecture) => architecture.features(),
            Self::Resnet(architecture) => architecture.features(),
            Self::Sequential(architecture) => architecture.features,
        }
    }

    /// The configuration that resolves to this.
    pub fn to_config(&self) -> ModelConfig {
        match self {
            Self::Densenet(architecture) => ModelConfig::Densenet(architecture.to_config()),
            Self::Resnet(architecture) => ModelConfig::Resnet(architecture.to_config()),
            Self::Sequential(architecture) => ModelConfig::Sequential(architecture.to_config()),
        }
    }

    /// The key, within the model's table, that decides into how few pixels a side shrinks, and the
    /// least side of an image of which something is left; `None` where [`ModelConfig::resolve`] has
    /// seen to that.
    pub fn least_side(&self) -> Option<(&'static str, usize)> {
        match self {
            // The stem halves twice, rounding up; each transition halves, rounding down.
            Self::Densenet(architecture) => {
                Some(("blocks", (4 << (architecture.blocks.len() - 1)) - 3))
            }
            // Everything rounds up.
            Self::Resnet(_) => Some(("blocks", 1)),
            Self::Sequential(_) => None,
        }
    }
}

/// The fewest numbers of a channel that one of the layers normalises over a batch of one image.
fn least_normalised(layers: &[SizedLayer]) -> Option<usize> {
    let least = |layer: &SizedLayer| match (&layer.layer, layer.output) {
        (Layer::BatchNorm(_), Size::Map([_, height, width])) => Some(height * width),
        (Layer::BatchNorm(_), Size::Features(_)) => Some(1),
        (Layer::Branches(_, branches), _) => {
            branches.iter().filter_map(|branch| least_normalised(branch)).min()
        }
        _ => None,
    };
    layers.iter().filter_map(least).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least(model: &str, side: usize) -> Option<usize> {
        let config: ModelConfig = toml::from_str(model).expect("a model");
        let image = [1, side, side];
        config.resolve(image).expect("a network").least_normalised(image)
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
