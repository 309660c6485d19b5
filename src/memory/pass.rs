//! What a stage needs to know about the pass it is part of.

use std::rc::Rc;
use std::sync::Arc;

use super::probe::Probe;
use crate::ops::{Dropout, DropoutKey};
use crate::parallel::{Across, Member, Part};
use crate::random;

/// Why a stage is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To predict: running statistics are used, nothing is dropped out.
    Evaluate,
    /// To train, for the first time in this step: statistics of the batch are used and reported.
    First,
    /// To train, again, because what backward needs was not kept: as [`Purpose::First`], but the
    /// statistics were reported then.
    Recompute,
}

/// A pass over a stage: why, and what its randomness follows from.
///
/// Layers never change themselves. BatchNorm reports the statistics of the batch in the first pass of a
/// step, and they move the running ones once, when the step is taken: however often a stage is
/// recomputed, and not at all when the step is skipped.
#[derive(Debug, Clone)]
pub struct Pass {
    purpose: Purpose,
    seed: u64,
    step: u64,
    first_image: u64,
    synced: Option<(Arc<Member>, Part)>,
    probe: Option<Rc<Probe>>,
}

impl Pass {
    /// A pass for `purpose` in step `step` of a run with `seed`, over images of which the first has the
    /// place `first_image` in the global batch.
    pub fn new(purpose: Purpose, seed: u64, step: u64, first_image: u64) -> Self {
        Self { purpose, seed, step, first_image, synced: None, probe: None }
    }

    /// The same over the images of `part`, where norms are taken over those of all devices. `member` is
    /// this device's place among them.
    pub fn synced(self, member: &Arc<Member>, part: &Part) -> Self {
        Self { synced: Some((Arc::clone(member), part.clone())), ..self }
    }

    /// The same, in which each layer is looked at.
    pub fn probed(&self) -> Self {
        Self { probe: Some(Rc::default()), ..self.clone() }
    }

    /// What looks at each layer, where something does.
    pub fn probe(&self) -> Option<&Probe> {
        self.probe.as_deref()
    }

    /// A pass that predicts.
    pub fn evaluation() -> Self {
        Self::new(Purpose::Evaluate, 0, 0, 0)
    }

    /// The same pass once more: the same masks, and nothing is reported.
    pub fn again(&self) -> Self {
        let purpose = match self.purpose {
            Purpose::First => Purpose::Recompute,
            other => other,
        };
        Self { purpose, ..self.clone() }
    }

    /// The images that the norm of `layer` is taken over, where other devices have some of them.
    pub fn across(&self, layer: &str) -> Option<Across> {
        let (member, part) = self.synced.as_ref()?;
        (part.ranks > 1).then(|| Across::new(member, layer, part))
    }

    /// Why the stage is run.
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Whether the pass trains.
    pub fn trains(&self) -> bool {
        self.purpose != Purpose::Evaluate
    }

    /// The dropout of `layer`; the same when the stage is recomputed.
    pub fn dropout(&self, layer: &str, probability: f64) -> Dropout {
        use rand::Rng;
        let seed = random::stream(self.seed, &format!("dropout/{layer}"), &[self.step]).next_u64();
        Dropout { probability, key: DropoutKey { seed, first_image: self.first_image } }
    }
}
