//! What the devices of a run have done in training: images, and how long they have waited for each other.

use serde::{Deserialize, Serialize};

use super::{Run, RunError, Trainer};
use crate::parallel::course::Waited;
use crate::report::DeviceSpeed;

/// What a device has done in training steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Images that have gone through its stages.
    pub images: usize,
    /// What it has waited for.
    pub waited: Waited,
}

impl Usage {
    /// Adds a step of `images` images.
    pub fn add(&mut self, images: usize, waited: &Waited) {
        self.images += images;
        let add = |sum: &mut Option<f64>, more: Option<f64>| {
            if let Some(more) = more {
                *sum.get_or_insert(0.0) += more;
            }
        };
        add(&mut self.waited.gradients, waited.gradients);
        add(&mut self.waited.norms, waited.norms);
        self.waited.stages += waited.stages;
    }
}

impl Trainer {
    /// How many devices train the model, those of other processes included.
    pub fn devices(&self) -> usize {
        self.processes.as_ref().map_or(self.ranks.len(), |processes| processes.ranks())
    }

    /// The share of `seconds` of training steps that the devices of this process have waited for others, on
    /// average; `None` of a device that trains alone.
    pub fn waited(&self, seconds: f64) -> Option<f64> {
        let all: f64 = self.usage.iter().map(|usage| usage.waited.seconds()).sum();
        let share = all / (seconds * self.usage.len() as f64);
        (self.devices() > 1 && share.is_finite()).then_some(share)
    }
}

impl Run {
    /// What each device has done in `seconds` of training; nothing of a device that trains alone.
    ///
    /// # Errors
    /// When another process has failed.
    pub(super) fn device_speeds(&mut self, seconds: f64) -> Result<Vec<DeviceSpeed>, RunError> {
        let own = std::mem::take(&mut self.trainer.usage);
        if self.trainer.devices() < 2 {
            return Ok(Vec::new());
        }
        let (names, all) = match &self.trainer.processes {
            None => (self.plan.devices.iter().map(ToString::to_string).collect(), own),
            Some(processes) => {
                let own = serde_json::to_vec(&own).unwrap_or_default();
                let all = processes.gather("usage", &own)?.into_iter();
                let all = all.flat_map(|usage| {
                    serde_json::from_slice::<Vec<Usage>>(&usage).unwrap_or_default()
                });
                let names = (0..processes.ranks()).map(|rank| format!("rank {rank}"));
                (names.collect::<Vec<_>>(), all.collect())
            }
        };
        let speed = |(device, Usage { images, waited }): (String, Usage)| DeviceSpeed {
            device,
            images_per_second: images as f64 / seconds,
            waited_percent: 100.0 * waited.seconds() / seconds,
            waited,
        };
        Ok(names.into_iter().zip(all).map(speed).collect())
    }
}
