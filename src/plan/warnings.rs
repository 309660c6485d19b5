//! What a plan does that its author may not expect: no fault, but said.

use super::{MemorySettings, Plan};
use crate::parallel::{OptimizerPlacement, PipelineSchedule};
use crate::screen::counted;

impl Plan {
    /// What is worth a warning before the training begins, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let each = [
            self.all_warm_up(),
            self.stops_too_late(),
            self.never_thaws(),
            self.freezes_random_weights(),
            self.one_micro_batch(),
            self.shards_for_one(),
        ];
        each.into_iter().flatten().collect()
    }

    /// A training shorter than its warm-up, as a first try with one epoch is.
    fn all_warm_up(&self) -> Option<String> {
        let (name, warmup) = self.train.schedule.warmup_epochs()?;
        (warmup >= self.train.epochs as f64).then(|| {
            format!(
                "the training of {} is all warm-up (`warmup_epochs = {warmup}` under \
                 [train.schedule.{name}]): the learning rate rises to its full value at the last \
                 step and never falls",
                self.epochs(),
            )
        })
    }

    fn stops_too_late(&self) -> Option<String> {
        let start = self.train.early_stopping.as_ref()?.start_epoch;
        (start > self.train.epochs).then(|| {
            format!(
                "early stopping never ends this training: it begins in epoch {start} (`start_epoch` \
                 under [train.early_stopping]), and there is no more than {}",
                self.epochs(),
            )
        })
    }

    fn never_thaws(&self) -> Option<String> {
        let epochs = self.frozen_epochs();
        (epochs >= self.train.epochs && epochs > 0).then(|| {
            format!(
                "what is frozen is never trained: it is frozen for {} (`epochs` under \
                 [model.freeze]), and there is no more than {}",
                counted(epochs, "epoch", "epochs"),
                self.epochs(),
            )
        })
    }

    fn freezes_random_weights(&self) -> Option<String> {
        (self.freeze.is_some() && self.init.is_none()).then(|| {
            "stages are frozen (`freeze` under [model]) whose weights are drawn at random: no file to \
             start from is named (`init`)"
                .to_owned()
        })
    }

    /// A pipeline in which one device works at a time although its schedule lets several.
    fn one_micro_batch(&self) -> Option<String> {
        let several = self.depth() > 1 && !self.memory.is_auto();
        let schedule = self.pipeline.as_ref().filter(|_| several)?.schedule();
        let settings = MemorySettings::configured(&self.memory, self.device_batch());
        let one = settings.micro_batch >= self.device_batch();
        (one && schedule != Some(PipelineSchedule::Sequential)).then(|| {
            format!(
                "a batch goes through the pipeline as one micro-batch, so that one device works at a time: \
                 all can work with several, such as `micro_batch = {}` under [memory]",
                self.device_batch().div_ceil(4 * self.depth()).max(1)
            )
        })
    }

    /// An optimizer's state that is to be shared out where one device has the weights.
    fn shards_for_one(&self) -> Option<String> {
        let alone = self.placement == OptimizerPlacement::Sharded && self.copies() == 1;
        alone.then(|| {
            let one = match self.devices.len() {
                1 => "the run has one device",
                _ => "there is one copy of the pipeline",
            };
            format!(
                "`optimizer = \"sharded\"` under [parallel.data] does nothing: {one}, and it shares out the \
                 optimizer's state over devices that have the same weights"
            )
        })
    }

    fn epochs(&self) -> String {
        counted(self.train.epochs, "epoch", "epochs")
    }
}
