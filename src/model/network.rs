//! The network below the heads, whichever it is, with every size given.

use super::{
    ArchitectureFault, DensenetArchitecture, ModelConfig, Norm, ResnetArchitecture,
    SequentialArchitecture,
};
use crate::memory::{MemoryConfig, StageSpec};

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
