//! A DenseNet's sizes, resolved from a published depth or from numbers given by hand.

use super::{DensenetConfig, Norm};
use crate::fault::{Fault, fault};

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
        let given = [
            ("growth", self.growth.is_some()),
            ("blocks", self.blocks.is_some()),
            ("stem", self.stem.is_some()),
        ];
        if let Some((key, _)) = given.iter().find(|(_, given)| *given) {
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

    fn custom(&self) -> Result<(usize, Vec<usize>, usize), Fault> {
        match (self.growth, &self.blocks, self.stem) {
            (Some(growth), Some(blocks), Some(stem)) => Ok((growth, blocks.clone(), stem)),
            (None, None, None) => Err(fault(
                "",
                "the network's size is not given",
                "give `depth = 121` (or 161, 169, 201), or `growth`, `blocks` and `stem`",
            )),
            (growth, blocks, stem) => {
                let absent = [
                    ("growth", growth.is_none()),
                    ("blocks", blocks.is_none()),
                    ("stem", stem.is_none()),
                ];
                let absent: Vec<&str> =
                    absent.iter().filter(|(_, absent)| *absent).map(|(key, _)| *key).collect();
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
        if let Some((key, _)) = positive.iter().find(|(_, number)| *number == 0) {
            return Err(fault(*key, format!("`{key}` is 0"), "write 1 or more"));
        }
        if let Some((key, number)) = positive.iter().find(|(_, number)| *number > LARGEST) {
            let help = format!("write {LARGEST} or less");
            return Err(fault(*key, format!("`{key}` is {number}, which is too large"), help));
        }
        if self.blocks.is_empty() {
            return Err(fault("blocks", "`blocks` is empty", "such as `blocks = [6, 12, 24, 16]`"));
        }
        if self.blocks.len() > MOST_BLOCKS {
            let message = format!(
                "{} blocks halve an image more often than its size allows",
                self.blocks.len()
            );
            return Err(fault("blocks", message, format!("write {MOST_BLOCKS} blocks or fewer")));
        }
        let layers = self.blocks.iter().position(|layers| !(1..=LARGEST).contains(layers));
        if let Some(block) = layers {
            let message = format!("a block has 1 to {LARGEST} layers, not {}", self.blocks[block]);
            let help = "write the number of dense layers of this block";
            return Err(fault(format!("blocks[{block}]"), message, help));
        }
        // NaN fails both comparisons.
        if !(self.compression > 0.0 && self.compression <= 1.0) {
            let message = format!(
                "`compression` is {}, which is not a share of the channels",
                self.compression
            );
            return Err(fault("compression", message, "write a number above 0, at most 1"));
        }
        if !(self.dropout >= 0.0 && self.dropout < 1.0) {
            let message = format!("`dropout` is {}, which is not a probability", self.dropout);
            return Err(fault(
                "dropout",
                message,
                "write a number from 0 up to but not including 1",
            ));
        }
        let narrow = self.channels().iter().any(|c| (*c as f64 * self.compression) < 1.0);
        if narrow && self.blocks.len() > 1 {
            let message = format!("with `compression` {} no channel is left", self.compression);
            return Err(fault("compression", message, "write a larger share"));
        }
        Ok(())
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
