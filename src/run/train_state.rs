//! The state of training: everything that decides what a run does next, but for weights and optimizer.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::data::Fingerprint;
use crate::data::Standardizer;
use crate::loss::AucVariables;
use crate::memory::MemoryConfig;
use crate::optim::{LossScale, ScheduleState};
use crate::plan::{Chosen, Planner};
use crate::report::{EndReason, EpochValues};
use crate::run::monitor::MonitorState;
use crate::run::tally::Tally;

/// The place of a run in its training, and what it has gathered on the way.
///
/// All randomness follows from (seed, epoch, batch, step), so no generator's state is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainState {
    /// The epoch under way, counted from 1.
    pub epoch: usize,
    /// Batches of it that are done.
    pub batch: usize,
    /// Optimizer steps taken since the run began.
    pub step: usize,
    /// The training losses of the epoch under way.
    pub tally: Tally,
    /// Batches of the epoch under way whose step was left out.
    #[serde(default)]
    pub skipped_steps: usize,
    /// The scale of the loss, where losses are scaled.
    #[serde(default)]
    pub loss_scale: Option<LossScale>,
    /// The learning rate of the last step.
    pub learning_rate: f64,
    /// The metric that `best` is saved by.
    pub best: MonitorState,
    /// The metric that early stopping monitors.
    pub stopping: MonitorState,
    /// What the learning-rate schedule remembers.
    pub schedule: ScheduleState,
    /// Seconds of training and evaluation since the run began.
    pub seconds: f64,
    /// Seconds of the epoch under way.
    pub epoch_seconds: f64,
    /// Training images that could not be read, by their index in the data set.
    pub bad_images: BTreeSet<String>,
    /// The values of the last epoch that ended.
    pub last_values: EpochValues,
    /// The values of the best epoch.
    pub best_values: Option<EpochValues>,
    /// Why validation metrics of the best and of the last epoch have no value, by their names without
    /// `val/`.
    #[serde(default)]
    pub undefined: BTreeMap<String, String>,
    /// Why the run is over, when it is.
    pub ended: Option<EndReason>,
    /// The length of `metrics.jsonl` when the state was taken.
    pub metrics_bytes: u64,
    /// How steps are taken, where the configuration leaves that open or memory has not sufficed for
    /// what it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Chosen>,
    /// `[memory]` as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_config: Option<MemoryConfig>,
    /// The images of a full batch that all devices computed at once; unknown in states of versions that
    /// knew one device only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images_together: Option<usize>,
    /// How many devices computed them; unknown in states of versions that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<usize>,
    /// What the run learns from; unknown in states of versions that did not note it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Fingerprint>,
    /// How the numbers of heads are standardised, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub standardize: BTreeMap<String, Standardizer>,
    /// What losses have learned beside the weights, by the names of their heads.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub losses: BTreeMap<String, AucVariables>,
    /// Steps taken by each parameter, as the optimizer counts them.
    pub optimizer: BTreeMap<String, u64>,
}

impl TrainState {
    /// The beginning of a run.
    pub fn start(schedule: ScheduleState) -> Self {
        Self { epoch: 1, schedule, ..Self::default() }
    }

    /// The epoch that a person is shown: at the very end of one, that one.
    pub fn epoch_shown(&self) -> usize {
        if self.batch == 0 { (self.epoch - 1).max(1) } else { self.epoch }
    }

    /// Notes how steps are taken under `config`, where a resumed run could not know.
    pub fn remember(&mut self, planner: &Planner, config: &MemoryConfig) {
        self.memory = planner.chosen();
        self.images_together = Some(planner.images_together());
        self.devices = Some(planner.plan().copies());
        self.memory_config = self.memory.is_some().then(|| config.clone());
    }

    /// Takes note of why metrics of the epoch that has ended are undefined, and keeps what is known of
    /// the best epoch.
    pub fn note_undefined(&mut self, mut reasons: BTreeMap<String, String>) {
        let best = self.best_values.as_ref();
        let of_best = |name: &str| best.is_some_and(|best| best.val.get(name) == Some(&None));
        for (name, reason) in std::mem::take(&mut self.undefined) {
            if of_best(&name) {
                reasons.entry(name).or_insert(reason);
            }
        }
        self.undefined = reasons;
    }

    /// Moves on to the next epoch.
    pub fn next_epoch(&mut self) {
        self.epoch += 1;
        self.batch = 0;
        self.tally = Tally::default();
        self.skipped_steps = 0;
        self.epoch_seconds = 0.0;
    }
}
