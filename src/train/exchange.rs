//! The gradients of a batch from those of the devices that have computed it.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::StepGradients;
use crate::memory::{Gradients, Statistics};
use crate::parallel::{BatchNormOver, Member};

impl StepGradients {
    /// Those of the whole batch, on every device: the sums of what all have found. `share` is the share of
    /// the batch's images that this device has.
    ///
    /// Running statistics move towards the same on all devices. Where norms are taken over the images of
    /// all, every device has found these statistics; else they are the mean of those of the devices.
    ///
    /// Unwinds with [`Abandoned`](crate::parallel::Abandoned) when another device has failed.
    pub fn of_all(self, member: &Member, over: BatchNormOver, share: f64) -> Self {
        if member.ranks() == 1 {
            return self;
        }
        let Self { gradients, statistics, losses, centres } = self;
        let heads = centres.len();
        let (sums, normalizers) = losses.into_parts();
        let statistics: Statistics = match over {
            // The first device has images of every part.
            BatchNormOver::Sync if member.rank() == 0 => statistics,
            BatchNormOver::Sync => Statistics::new(),
            BatchNormOver::Local => {
                let of_share = |(key, value): (String, Tensor<1>)| (key, value.mul_scalar(share));
                statistics.into_iter().map(of_share).collect()
            }
        };
        let named = |what: Of| move |(key, value)| ((what, key), value);
        let of_heads = |values: Vec<Option<Tensor<1>>>| {
            let each = values.into_iter().enumerate();
            each.filter_map(|(head, value)| Some((head.to_string(), value?)))
        };
        let all = gradients.into_map().into_iter().map(named(Of::Gradient));
        let all = all.chain(statistics.into_iter().map(named(Of::Statistic)));
        let all = all.chain(of_heads(sums).map(named(Of::Loss)));
        let all = all.chain(of_heads(centres).map(named(Of::Centres)));
        let mut sums = member.sum_all(all.collect::<BTreeMap<_, _>>());
        let mut take = |what: Of| -> BTreeMap<String, Tensor<1>> {
            let taken = sums.extract_if(.., |(of, _), _| *of == what);
            taken.map(|((_, key), value)| (key, value)).collect()
        };
        let by_head = |mut of: BTreeMap<String, Tensor<1>>| {
            (0..heads).map(|head| of.remove(&head.to_string())).collect::<Vec<_>>()
        };
        Self {
            gradients: Gradients::from(take(Of::Gradient)),
            statistics: take(Of::Statistic),
            losses: super::LossSums::of_parts(by_head(take(Of::Loss)), normalizers),
            centres: by_head(take(Of::Centres)),
        }
    }
}

/// What is added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Of {
    Gradient,
    Statistic,
    Loss,
    Centres,
}
