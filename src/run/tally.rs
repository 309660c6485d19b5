//! Losses summed over an epoch.

use serde::{Deserialize, Serialize};

use crate::model::HeadConfig;
use crate::report::Values;
use crate::train::HeadLoss;

/// The losses of the images seen so far in an epoch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// One for each head.
    pub heads: Vec<HeadLoss>,
    /// Images seen.
    pub images: usize,
}

impl Tally {
    /// Adds a batch of `images` images.
    pub fn add(&mut self, heads: &[HeadLoss], images: usize) {
        self.heads.resize(heads.len(), HeadLoss::default());
        for (total, head) in self.heads.iter_mut().zip(heads) {
            total.sum += head.sum;
            total.normalizer += head.normalizer;
        }
        self.images += images;
    }

    /// The heads' means, each times its head's weight; `None` before any label was known.
    pub fn loss(&self, heads: &[HeadConfig]) -> Option<f64> {
        let terms = self.heads.iter().zip(heads);
        let terms = terms.filter_map(|(sum, head)| Some(sum.mean()? * head.weight));
        terms.fold(None, |total, term| Some(total.unwrap_or(0.0) + term))
    }

    /// `loss` and, for each head, `<head>/loss`.
    pub fn values(&self, heads: &[HeadConfig]) -> Values {
        let each = heads.iter().enumerate().map(|(index, head)| {
            let mean = self.heads.get(index).and_then(HeadLoss::mean);
            (format!("{}/loss", head.name), mean)
        });
        std::iter::once(("loss".to_owned(), self.loss(heads))).chain(each).collect()
    }
}
