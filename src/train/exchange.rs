//! The gradients of a batch from those of the devices that have computed it.

use std::collections::BTreeMap;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::StepGradients;
use crate::memory::Statistics;
use crate::parallel::{BatchNormOver, Member, Part};

impl StepGradients {
    /// Those of the whole batch, on every device: the sums of what all have found. `share` is the share of
    /// the batch's images that this device has, and `parts` are the parts that it has some of.
    ///
    /// Running statistics move towards the same on all devices. Where norms are taken over the images of
    /// all, a device with images of every part has found these statistics, and the first device has such; else they are the
    /// mean of those of the devices.
    ///
    /// Unwinds with [`Abandoned`](crate::parallel::Abandoned) when another device has failed.
    pub fn of_all(self, member: &Member, over: BatchNormOver, share: f64, parts: &[Part]) -> Self {
        if member.ranks() == 1 {
            return self;
        }
        let Self { mut gradients, statistics, losses, centres } = self;
        let heads = centres.len();
        let (sums, normalizers) = losses.into_parts();
        let (statistics, is_given) = match over {
            // All have found the same where all have images of every part, as the first device has.
            BatchNormOver::Sync => {
                let lacks = parts.iter().any(|part| part.ranks < member.ranks());
                (statistics, member.rank() == 0 && lacks)
            }
            BatchNormOver::Local => {
                let of_share = |(key, value): (String, Tensor<1>)| (key, value.mul_scalar(share));
                (statistics.into_iter().map(of_share).collect(), true)
            }
        };
        let (given, own) = match is_given {
            true => (statistics, Statistics::new()),
            false => (Statistics::new(), statistics),
        };
        let named = |what: Of| move |(key, value)| ((what, key), value);
        let of_heads = |values: Vec<Option<Tensor<1>>>| {
            let each = values.into_iter().enumerate();
            each.filter_map(|(head, value)| Some((head.to_string(), value?)))
        };
        let mut added_up = member.sum_given(&mut gradients);
        let all = gradients.into_iter().map(named(Of::Gradient));
        let all = all.chain(given.into_iter().map(named(Of::Statistic)));
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
        let statistics = take(Of::Statistic);
        added_up.append(&mut take(Of::Gradient));
        Self {
            gradients: added_up,
            statistics: if statistics.is_empty() { own } else { statistics },
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
