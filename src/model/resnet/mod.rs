//! ResNet (He et al. 2016, arXiv:1512.03385): its sizes, resolved from a depth or given by hand.

mod layers;

use super::{Norm, ResnetBlock, ResnetConfig, ResnetForm};
use crate::fault::{Fault, fault, require};

/// The published networks for ImageNet (He et al. 2016, table 1; 200 as in He et al. 2016b,
/// arXiv:1603.05027): depth, block, blocks in each group.
const PUBLISHED: [(usize, ResnetBlock, [usize; 4]); 6] = [
    (18, ResnetBlock::Basic, [2, 2, 2, 2]),
    (34, ResnetBlock::Basic, [3, 4, 6, 3]),
    (50, ResnetBlock::Bottleneck, [3, 4, 6, 3]),
    (101, ResnetBlock::Bottleneck, [3, 4, 23, 3]),
    (152, ResnetBlock::Bottleneck, [3, 8, 36, 3]),
    (200, ResnetBlock::Bottleneck, [3, 24, 36, 3]),
];

/// A bottleneck's output has this many times the channels of its 3×3 convolution.
const EXPANSION: usize = 4;

/// Deeper than any network that was trained.
const DEEPEST: usize = 20_000;

/// A ResNet with every size given.
#[derive(Debug, Clone, PartialEq)]
pub struct ResnetArchitecture {
    /// Which of the two published forms.
    pub form: ResnetForm,
    /// The residual block.
    pub block: ResnetBlock,
    /// Residual blocks in each group; each group but the first halves the feature maps and doubles
    /// the channels.
    pub blocks: Vec<usize>,
    /// Channels after the first convolution, and of the 3×3 convolutions of the first group.
    pub stem: usize,
    /// How activations are normalised.
    pub norm: Norm,
}

impl ResnetArchitecture {
    /// The configuration that resolves to this.
    pub fn to_config(&self) -> ResnetConfig {
        ResnetConfig {
            depth: None,
            form: self.form,
            block: Some(self.block),
            blocks: Some(self.blocks.clone()),
            stem: Some(self.stem),
            norm: self.norm,
        }
    }
}

impl ResnetBlock {
    /// How many convolutions it has.
    fn convolutions(self) -> usize {
        match self {
            Self::Basic => 2,
            Self::Bottleneck => 3,
        }
    }

    /// Several of them, in a message.
    fn plural(self) -> &'static str {
        match self {
            Self::Basic => "basic blocks",
            Self::Bottleneck => "bottlenecks",
        }
    }
}

impl ResnetConfig {
    /// Every size of the network.
    ///
    /// # Errors
    ///
    /// When no network of the form has the `depth`, when it contradicts `blocks` or `block`, when
    /// one of these is missing, or when a number is out of its range.
    pub fn resolve(&self) -> Result<ResnetArchitecture, Fault> {
        let (block, blocks) = match (self.depth, self.form) {
            (None, _) => self.custom()?,
            (Some(_), _) if self.blocks.is_some() => {
                let message = "`blocks` contradicts `depth`, which sets it";
                return Err(fault("blocks", message, "remove `depth` or `blocks`"));
            }
            (Some(depth), ResnetForm::Imagenet) => self.published(depth)?,
            (Some(depth), ResnetForm::Cifar) => self.cifar(depth)?,
        };
        let stem = self.stem.unwrap_or(match self.form {
            ResnetForm::Imagenet => 64,
            ResnetForm::Cifar => 16,
        });
        let help = "write a number of channels from 1 to 1024";
        require((1..=1024).contains(&stem), "stem", format!("`stem` is {stem}"), help)?;
        Ok(ResnetArchitecture { form: self.form, block, blocks, stem, norm: self.norm })
    }

    /// The same with fewer layers, deepest first, and how many it then has; its block and blocks are
    /// given.
    pub(super) fn shallower(&self) -> impl Iterator<Item = (usize, Self)> + '_ {
        let each = self.block.unwrap_or(ResnetBlock::Bottleneck).convolutions();
        let own = each * self.blocks.iter().flatten().sum::<usize>() + 2;
        let depths: Vec<usize> = match self.form {
            ResnetForm::Imagenet => PUBLISHED.iter().rev().map(|(depth, ..)| *depth).collect(),
            ResnetForm::Cifar => {
                let most = self.blocks.iter().flatten().max().copied().unwrap_or(1);
                (1..8).rev().map(|eighths| 3 * each * (most * eighths / 8) + 2).collect()
            }
        };
        let config = |depth| {
            let block = self.block.filter(|_| self.form == ResnetForm::Cifar);
            (depth, Self { depth: Some(depth), block, blocks: None, stem: None, ..self.clone() })
        };
        depths.into_iter().filter(move |depth| (3..own).contains(depth)).map(config)
    }

    fn published(&self, depth: usize) -> Result<(ResnetBlock, Vec<usize>), Fault> {
        let Some((_, block, blocks)) = PUBLISHED.iter().find(|(known, ..)| *known == depth) else {
            return Err(fault(
                "depth",
                format!("there is no published ResNet of depth {depth}"),
                "the depths are 18, 34, 50, 101, 152 and 200; for others give `block` and \
                 `blocks`, or write `form = \"cifar\"`",
            ));
        };
        let agrees = self.block.is_none_or(|given| given == *block);
        let message = format!("`block` contradicts `depth = {depth}`, which sets it");
        require(agrees, "block", message, "remove `depth` or `block`")?;
        Ok((*block, blocks.to_vec()))
    }

    /// 6n + 2 layers of basic blocks or 9n + 2 of bottlenecks, in three groups of n.
    fn cifar(&self, depth: usize) -> Result<(ResnetBlock, Vec<usize>), Fault> {
        let layers = |block: ResnetBlock| 3 * block.convolutions();
        let fits = |block: &ResnetBlock| {
            (8..=DEEPEST).contains(&depth) && (depth - 2).is_multiple_of(layers(*block))
        };
        let all = [ResnetBlock::Basic, ResnetBlock::Bottleneck];
        let mut allowed =
            all.into_iter().filter(|block| self.block.is_none_or(|own| own == *block));
        if let Some(block) = allowed.find(fits) {
            return Ok((block, vec![(depth - 2) / layers(block); 3]));
        }
        let (of, help) = match self.block {
            None => (
                String::new(),
                format!(
                    "write 6n + 2 (basic blocks) or 9n + 2 (bottlenecks) up to {DEEPEST}, such as \
                     20, 110, 1001 or 2000"
                ),
            ),
            Some(block) => {
                let (blocks, each) = (block.plural(), layers(block));
                let near = (depth.clamp(8, DEEPEST).saturating_sub(2) / each).max(1) * each + 2;
                let help = format!("with {blocks} write {each}n + 2, such as {near}");
                (format!(" made of {blocks}"), help)
            }
        };
        Err(fault("depth", format!("there is no ResNet of depth {depth}{of} for CIFAR"), help))
    }

    fn custom(&self) -> Result<(ResnetBlock, Vec<usize>), Fault> {
        let (block, blocks) = match (self.block, &self.blocks) {
            (Some(block), Some(blocks)) => (block, blocks),
            (Some(_), None) => {
                let message = "`block` is given without `blocks`";
                return Err(fault("block", message, "add such as `blocks = [3, 4, 6, 3]`"));
            }
            (None, Some(_)) => {
                let message = "`blocks` is given without `block`";
                let help = "add `block = \"basic\"` or `block = \"bottleneck\"`";
                return Err(fault("blocks", message, help));
            }
            (None, None) => {
                return Err(fault(
                    "",
                    "the network's size is not given",
                    "give `depth = 50` (or 18, 34, 101, 152, 200), or `block` and `blocks`",
                ));
            }
        };
        let message = format!("`blocks` has {} groups", blocks.len());
        let help = "write 1 to 10, such as `blocks = [3, 4, 6, 3]`";
        require((1..=10).contains(&blocks.len()), "blocks", message, help)?;
        for (group, count) in blocks.iter().enumerate() {
            let message = format!("a group has 1 to {DEEPEST} blocks, not {count}");
            let help = "write the number of residual blocks of this group";
            require((1..=DEEPEST).contains(count), format!("blocks[{group}]"), message, help)?;
        }
        Ok((block, blocks.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(depth: usize, form: ResnetForm) -> ResnetConfig {
        ResnetConfig { depth: Some(depth), form, ..Default::default() }
    }

    fn convolutions(architecture: &ResnetArchitecture) -> usize {
        let each = match architecture.block {
            ResnetBlock::Basic => 2,
            ResnetBlock::Bottleneck => 3,
        };
        each * architecture.blocks.iter().sum::<usize>()
    }

    #[test]
    fn the_depth_counts_the_convolutions_of_the_blocks_the_stem_and_the_classifier() {
        let imagenet = [18, 34, 50, 101, 152, 200].map(|depth| (depth, ResnetForm::Imagenet));
        let cifar = [20, 110, 200, 1001, 2000].map(|depth| (depth, ResnetForm::Cifar));
        for (depth, form) in imagenet.into_iter().chain(cifar) {
            let architecture = of(depth, form).resolve().expect("is known");
            assert_eq!(convolutions(&architecture) + 2, depth);
        }
    }

    #[test]
    fn published_depths_give_the_features_of_torchvisions_classifiers() {
        let features = |config: ResnetConfig| {
            let stages = config.resolve().expect("is known").layers([3, 32, 32]).expect("fits");
            stages.last().expect("has stages").output().channels()
        };
        // `torchvision.models.resnetNNN().fc.in_features`
        for (depth, theirs) in [(18, 512), (34, 512), (50, 2048), (101, 2048), (152, 2048)] {
            assert_eq!(features(of(depth, ResnetForm::Imagenet)), theirs);
        }
        assert_eq!(features(of(110, ResnetForm::Cifar)), 64);
    }

    #[test]
    fn cifar_networks_have_as_many_parameters_as_the_paper_counts() {
        // He et al. 2016, table 6, in millions, with the classifier of ten classes.
        for (depth, millions) in [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)] {
            let network = of(depth, ResnetForm::Cifar).resolve().expect("is known");
            let stages = network.layers([3, 32, 32]).expect("fits");
            let parameters = stages.iter().flat_map(|stage| stage.parameters());
            let trained = parameters.filter(|parameter| parameter.trained);
            let below: usize = trained.map(|parameter| parameter.count()).sum();
            let counted = (below + 64 * 10 + 10) as f64 / 1e6;
            assert!((counted - millions).abs() < 0.04, "{depth}: {counted}");
        }
    }

    #[test]
    fn a_resolved_network_resolves_to_itself() {
        for config in [of(50, ResnetForm::Imagenet), of(1001, ResnetForm::Cifar)] {
            let architecture = config.resolve().expect("is known");
            assert_eq!(architecture.to_config().resolve().expect("by hand"), architecture);
        }
    }

    #[test]
    fn a_depth_that_is_proposed_is_one_of_a_network() {
        for block in [ResnetBlock::Basic, ResnetBlock::Bottleneck] {
            for depth in [0, 1, 7, 9, 21, 56, 57, 1001, 999_999] {
                let config = ResnetConfig { block: Some(block), ..of(depth, ResnetForm::Cifar) };
                let Err(fault) = config.resolve() else { continue };
                let help = fault.help.unwrap_or_default();
                let proposed = help.rsplit(' ').next().and_then(|word| word.parse().ok());
                let proposed = proposed.expect("a depth");
                ResnetConfig { depth: Some(proposed), ..config }.resolve().expect("is known");
                assert_ne!(proposed, depth);
            }
        }
    }

    #[test]
    fn sizes_that_no_network_has_are_refused_at_their_key() {
        let hand = ResnetConfig {
            block: Some(ResnetBlock::Basic),
            blocks: Some(vec![1, 1]),
            ..Default::default()
        };
        hand.resolve().expect("is right");
        let wrong = [
            (ResnetConfig::default(), ""),
            (of(51, ResnetForm::Imagenet), "depth"),
            (of(7, ResnetForm::Cifar), "depth"),
            (of(111, ResnetForm::Cifar), "depth"),
            (
                ResnetConfig { block: Some(ResnetBlock::Basic), ..of(50, ResnetForm::Imagenet) },
                "block",
            ),
            (
                ResnetConfig { block: Some(ResnetBlock::Basic), ..of(1001, ResnetForm::Cifar) },
                "depth",
            ),
            (ResnetConfig { depth: Some(18), ..hand.clone() }, "blocks"),
            (ResnetConfig { blocks: None, ..hand.clone() }, "block"),
            (ResnetConfig { block: None, ..hand.clone() }, "blocks"),
            (ResnetConfig { blocks: Some(vec![]), ..hand.clone() }, "blocks"),
            (ResnetConfig { blocks: Some(vec![2, 0]), ..hand.clone() }, "blocks[1]"),
            (ResnetConfig { stem: Some(0), ..hand.clone() }, "stem"),
        ];
        for (config, key) in wrong {
            assert_eq!(config.resolve().expect_err(key).key, key);
        }
    }
}
