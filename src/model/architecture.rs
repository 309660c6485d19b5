//! A DenseNet's sizes, resolved from a published depth or from numbers given by hand.

use super::{DensenetConfig, Norm};
use crate::fault::{Fault, fault, require};

/// The published networks (Huang et al. 2017, table 1; 161 as released with it and in torchvision):
/// depth, growth, blocks, stem.
const PUBLISHED: [(usize, usize, [usize; 4], usize); 4] = [
    (121, 32, [6, 12, 24, 16], 64),
    (161, 48, [6, 12, 36, 24], 96),
    (169, 32, [6, 12, 32, 32], 64),
    (201, 32, [6, 12, 48, 32], 64),
];

/// A DenseNet with every size given.
#[derive(Debug, Clone, PartialEq)]
pub struct DensenetArchitecture {
    /// Channels each dense layer adds.
    pub growth: usize,
    /// Dense layers in each block.
    pub blocks: Vec<usize>,
    /// Channels after the first convolution.
    pub stem: usize,
    /// The 1×1 convolution of a layer gives `bottleneck × growth` channels.
    pub bottleneck: usize,
    /// A transition keeps this share of the channels, rounded down.
    pub compression: f64,
    /// The probability that an output of a dense layer is dropped in training.
    pub dropout: f64,
    /// How activations are normalised.
    pub norm: Norm,
}

impl DensenetArchitecture {
    /// Channels after each block, before the transition that follows it.
    pub fn channels(&self) -> Vec<usize> {
        let mut channels = self.stem;
        let mut after = Vec::with_capacity(self.blocks.len());
        for (block, layers) in self.blocks.iter().enumerate() {
            if block > 0 {
                channels = (channels as f64 * self.compression) as usize;
            }
            channels += layers * self.growth;
            after.push(channels);
        }
        after
    }

    /// Whether something is left of an image of these channels, height and width.
    ///
    /// # Errors
    ///
    /// The side that is too small.
    pub fn check_image(&self, [_, height, width]: [usize; 3]) -> Result<(), Fault> {
        // The stem halves twice, rounding up; each transition halves, rounding down.
        let least = (4 << (self.blocks.len() - 1)) - 3;
        let small = [height, width].into_iter().enumerate().find(|(_, side)| *side < least);
        small.map_or(Ok(()), |(place, side)| {
            let message = format!(
                "an image side of {side} pixels is too small: nothing of it is left after the \
                 last block"
            );
            let help = format!("write {least} or more, or fewer `blocks`");
            let key = format!("data.image.size[{place}]");
            Err(fault(key, message, help).also("model.densenet.blocks"))
        })
    }

    /// The configuration that resolves to this.
    pub fn to_config(&self) -> DensenetConfig {
        DensenetConfig {
            depth: None,
            growth: Some(self.growth),
            blocks: Some(self.blocks.clone()),
            stem: Some(self.stem),
            bottleneck: Some(self.bottleneck),
            compression: Some(self.compression),
            dropout: self.dropout,
            norm: self.norm,
        }
    }
}

impl DensenetConfig {
    /// Every size of the network.
    ///
    /// # Errors
    ///
    /// When `depth` is not a published one or contradicts `growth`, `blocks` or `stem`, when one of
    /// these is missing, or when a number is out of its range.
    pub fn resolve(&self) -> Result<DensenetArchitecture, Fault> {
        let (growth, blocks, stem) = match self.depth {
            Some(depth) => self.published(depth)?,
            None => self.custom()?,
        };
        let architecture = DensenetArchitecture {
            growth,
            blocks,
            stem,
            bottleneck: self.bottleneck.unwrap_or(4),
            compression: self.compression.unwrap_or(0.5),
            dropout: self.dropout,
            norm: self.norm,
        };
        architecture.check()?;
        Ok(architecture)
    }

    /// The same with each published depth below its own, deepest first; its blocks are given.
    pub(super) fn shallower(&self) -> impl Iterator<Item = (usize, Self)> + '_ {
        let own = 2 * self.blocks.iter().flatten().sum::<usize>() + 5;
        let depths = PUBLISHED.iter().rev().map(|(depth, ..)| *depth);
        let config = |depth| {
            let &Self { dropout, norm, .. } = self;
            (depth, Self { depth: Some(depth), dropout, norm, ..Self::default() })
        };
        depths.filter(move |depth| *depth < own).map(config)
    }

    fn published(&self, depth: usize) -> Result<(usize, Vec<usize>, usize), Fault> {
        if let Some(key) = self.sizes(true).first() {
            return Err(fault(
                *key,
                format!("`{key}` contradicts `depth`, which sets `growth`, `blocks` and `stem`"),
                format!("remove `depth` or `{key}`"),
            ));
        }
        let known = PUBLISHED.iter().find(|(known, ..)| *known == depth);
        let Some((_, growth, blocks, stem)) = known else {
            return Err(fault(
                "depth",
                format!("there is no published DenseNet of depth {depth}"),
                "the depths are 121, 161, 169 and 201; \
                 or give `growth`, `blocks` and `stem` instead",
            ));
        };
        Ok((*growth, blocks.to_vec(), *stem))
    }

    /// The keys of those of the sizes that `depth` sets that are given, or are not.
    fn sizes(&self, given: bool) -> Vec<&'static str> {
        let Self { growth, blocks, stem, .. } = self;
        let sizes =
            [("growth", growth.is_some()), ("blocks", blocks.is_some()), ("stem", stem.is_some())];
        sizes.into_iter().filter(|(_, is_given)| *is_given == given).map(|(key, _)| key).collect()
    }

    fn custom(&self) -> Result<(usize, Vec<usize>, usize), Fault> {
        match (self.growth, &self.blocks, self.stem) {
            (Some(growth), Some(blocks), Some(stem)) => Ok((growth, blocks.clone(), stem)),
            (None, None, None) => Err(fault(
                "",
                "the network's size is not given",
                "give `depth = 121` (or 161, 169, 201), or `growth`, `blocks` and `stem`",
            )),
            _ => {
                let absent = self.sizes(false);
                Err(fault(
                    absent[0],
                    format!(
                        "`{}` must be given too where there is no `depth`",
                        absent.join("` and `")
                    ),
                    "for DenseNet-121 these are `growth = 32`, `blocks = [6, 12, 24, 16]` and \
                     `stem = 64`",
                ))
            }
        }
    }
}

impl DensenetArchitecture {
    fn check(&self) -> Result<(), Fault> {
        let positive =
            [("growth", self.growth), ("stem", self.stem), ("bottleneck", self.bottleneck)];
        for (key, number) in positive {
            require(number > 0, key, format!("`{key}` is 0"), "write 1 or more")?;
        }
        for (key, number) in positive {
            let message = format!("`{key}` is {number}, which is too large");
            require(number <= LARGEST, key, message, format!("write {LARGEST} or less"))?;
        }
        let blocks = self.blocks.len();
        let help = "such as `blocks = [6, 12, 24, 16]`";
        require(blocks > 0, "blocks", "`blocks` is empty", help)?;
        let message = format!("{blocks} blocks halve an image more often than its size allows");
        let help = format!("write {MOST_BLOCKS} blocks or fewer");
        require(blocks <= MOST_BLOCKS, "blocks", message, help)?;
        for (block, layers) in self.blocks.iter().enumerate() {
            let message = format!("a block has 1 to {LARGEST} layers, not {layers}");
            let help = "write the number of dense layers of this block";
            require((1..=LARGEST).contains(layers), format!("blocks[{block}]"), message, help)?;
        }
        let Self { compression, dropout, .. } = *self;
        // NaN is in neither range.
        let message =
            format!("`compression` is {compression}, which is not a share of the channels");
        let help = "write a number above 0, at most 1";
        require(compression > 0.0 && compression <= 1.0, "compression", message, help)?;
        let message = format!("`dropout` is {dropout}, which is not a probability");
        let help = "write a number from 0 up to but not including 1";
        require((0.0..1.0).contains(&dropout), "dropout", message, help)?;
        let narrow = self.channels().iter().any(|c| (*c as f64 * compression) < 1.0);
        let message = format!("with `compression` {compression} no channel is left");
        require(!narrow || blocks == 1, "compression", message, "write a larger share")
    }
}

/// Far above every network anyone trains, far below where products of sizes overflow.
const LARGEST: usize = 4096;

/// The stem divides an image's side by 4 and each transition by 2; sides reach a few thousand.
const MOST_BLOCKS: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn by_depth(depth: usize) -> DensenetConfig {
        DensenetConfig { depth: Some(depth), ..Default::default() }
    }

    #[test]
    fn published_depths_count_their_layers() {
        // Depth counts convolutions and the classifier: the stem, two a layer, one a transition.
        for depth in [121, 161, 169, 201] {
            let architecture = by_depth(depth).resolve().expect("is published");
            let layers: usize = architecture.blocks.iter().sum();
            assert_eq!(1 + 2 * layers + (architecture.blocks.len() - 1) + 1, depth);
        }
    }

    #[test]
    fn published_depths_give_the_features_of_torchvisions_classifiers() {
        // `torchvision.models.densenetNNN().classifier.in_features`
        for (depth, features) in [(121, 1024), (161, 2208), (169, 1664), (201, 1920)] {
            let architecture = by_depth(depth).resolve().expect("is published");
            assert_eq!(architecture.channels().last(), Some(&features));
        }
    }

    #[test]
    fn a_resolved_network_resolves_to_itself() {
        let architecture = by_depth(169).resolve().expect("is published");
        assert_eq!(architecture.to_config().resolve().expect("is given by hand"), architecture);
    }

    #[test]
    fn a_size_given_beside_the_depth_is_refused() {
        let config = DensenetConfig { stem: Some(32), ..by_depth(121) };
        assert_eq!(config.resolve().expect_err("contradicts").key, "stem");
    }

    #[test]
    fn sizes_out_of_range_are_refused_at_their_key() {
        let good = DensenetConfig {
            growth: Some(12),
            blocks: Some(vec![3, 3]),
            stem: Some(16),
            ..Default::default()
        };
        let blocks = |blocks: Vec<usize>| DensenetConfig { blocks: Some(blocks), ..good.clone() };
        let compression = |share: f64| DensenetConfig { compression: Some(share), ..good.clone() };
        good.resolve().expect("is right");
        let wrong = [
            (by_depth(120), "depth"),
            (DensenetConfig::default(), ""),
            (DensenetConfig { growth: None, ..good.clone() }, "growth"),
            (DensenetConfig { growth: Some(0), ..good.clone() }, "growth"),
            (DensenetConfig { stem: Some(usize::MAX), ..good.clone() }, "stem"),
            (DensenetConfig { bottleneck: Some(0), ..good.clone() }, "bottleneck"),
            (DensenetConfig { dropout: 1.0, ..good.clone() }, "dropout"),
            (DensenetConfig { dropout: f64::NAN, ..good.clone() }, "dropout"),
            (blocks(vec![]), "blocks"),
            (blocks(vec![3, 0]), "blocks[1]"),
            (blocks(vec![1; 11]), "blocks"),
            (compression(0.0), "compression"),
            (compression(1.5), "compression"),
            (compression(1e-3), "compression"),
        ];
        for (config, key) in wrong {
            assert_eq!(config.resolve().expect_err(key).key, key);
        }
    }
}
