//! From the configuration as written to one with nothing left to default and every check made.
//!
//! Pure: opens no device and no file. Nothing after this reads a [`Config`].

mod advice;
mod arrangement;
mod checks;
mod settings;
mod costs;
mod device;
mod changes;
mod limits;
mod machine;
mod monitor;
mod pipeline;
mod summary;
mod planner;
mod preference;
mod process_device;
mod price;
mod estimate;
mod held;
mod reasons;
mod saved;
mod warnings;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

pub use arrangement::Arrangement;
pub use costs::Costs;
pub use device::DevicePlan;
pub use estimate::{DeviceEstimate, Estimator, StepEstimate};
pub use held::HeldMemory;
pub use machine::Machine;
pub use monitor::{Monitor, Monitors};
pub use planner::{BackOff, Chosen, NothingFits, Planner};
pub use settings::MemorySettings;
pub use summary::{
    AtFirstSummary, ParallelSummary, PipelineDevice, PipelineSummary, PlanSummary, StageSummary,
    StrategySummary,
};

use crate::choice::Choice;
pub use crate::config::Mode;
use crate::config::{Config, RunConfig, TrainConfig};
use crate::data::{DEFAULT_FRACTION, DataConfig, check_labels};
use crate::evaluate::EvaluateConfig;
use crate::fault::{Fault, fault};
use crate::memory::{DenseLayers, MemoryConfig, Precision, StageSpec};
use crate::model::{FreezeAtFirst, FreezeConfig, HeadConfig, ModelConfig, Network, Norm};
use crate::parallel::{BatchNormOver, OptimizerPlacement, PipelineConfig};

/// An experiment with everything decided.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Name, output folder, seed and when to save.
    pub run: RunConfig,
    /// The devices, all of one kind; at least one. Each batch is shared out over all of them.
    pub devices: Vec<DevicePlan>,
    /// What BatchNorm normalises over where there are several devices.
    pub batch_norm: BatchNormOver,
    /// Where the optimizer's state lies where there are several copies of the model.
    pub placement: OptimizerPlacement,
    /// How several devices share the stages of one copy of the model; each has a copy of its own where this
    /// is absent.
    pub pipeline: Option<PipelineConfig>,
    /// Images, labels and the split. Exactly one layout is given, or sources with one each, and a
    /// share for validation where none has a list of its own; what is still absent means "all"
    /// (`views`, `workers`).
    pub data: DataConfig,
    /// The network below the heads.
    pub model: Network,
    /// The file with the weights to start from; drawn at random when absent.
    pub init: Option<PathBuf>,
    /// The stages whose weights stay as they are, as the configuration has them.
    pub freeze: Option<FreezeConfig>,
    /// How many stages those are, from the first on.
    pub freeze_stages: usize,
    /// What is predicted; at least one, with different names. Each names its loss, which fits its
    /// task.
    pub heads: Vec<HeadConfig>,
    /// How it is trained, with the metric of `best` and the directions of metrics written out.
    pub train: TrainConfig,
    /// The metrics that are watched.
    pub monitors: Monitors,
    /// How a step fits in memory.
    pub memory: MemoryConfig,
    /// How the trained model is judged.
    pub evaluate: EvaluateConfig,
}

impl Plan {
    /// The first device.
    pub fn device(&self) -> DevicePlan {
        self.devices[0]
    }

    /// The run's folder; that of a fold is in the folder of all of them.
    pub fn folder(&self) -> PathBuf {
        let folder = self.run.output.join(&self.run.name);
        match self.data.validation.fold {
            Some(fold) => folder.join(format!("{FOLD}{fold}")),
            None => folder,
        }
    }

    /// Refuses folds of which none is named, where one of them is to be trained.
    ///
    /// # Errors
    /// The fault, with what to do.
    pub fn check_fold_named(&self) -> Result<(), Fault> {
        let validation = &self.data.validation;
        let Some(folds) = validation.folds.filter(|_| validation.fold.is_none()) else {
            return Ok(());
        };
        let message = format!("a run trains one of the {folds} folds, and none is named");
        let help = "`trainer run CONFIG --fold 1` trains the first, `--fold all` one after another; \
                    elsewhere write `--set data.validation.fold=1`";
        Err(fault("data.validation.folds", message, help))
    }

    /// The same, validated on fold `fold`, counted from 1.
    pub fn of_fold(&self, fold: usize) -> Self {
        let mut plan = self.clone();
        plan.data.validation.fold = Some(fold);
        plan
    }

    /// The same with another network or another size of images, where it passes the checks.
    fn resized(&self, model: &ModelConfig, size: [usize; 2]) -> Option<Self> {
        let mut plan = self.clone();
        plan.data.image.size = size;
        plan.model = checks::network(model, &plan.data.image).ok()?;
        let freeze = plan.freeze.as_ref();
        plan.freeze_stages = freeze.map_or(Ok(0), |f| f.stages(plan.model.layers())).ok()?;
        let plan = plan.cut_stages();
        if plan.stages_of_devices().len() != self.stages_of_devices().len() {
            return None;
        }
        checks::lr_factors(&plan).ok()?;
        let heads = checks::direct_heads(&plan.model, &plan.heads);
        heads.and(checks::checkpointing(&plan)).and(checks::normalised(&plan)).ok()?;
        Some(plan)
    }

    /// The same for lists of at most `images` images: no batch is larger than that.
    pub fn limited_to(&self, images: usize) -> Self {
        let mut plan = self.clone();
        plan.train.batch_size = plan.train.batch_size.min(images.max(1));
        plan
    }

    /// How many devices share the optimizer's state of the same weights: 1 where each keeps all of it.
    pub fn optimizer_shards(&self) -> usize {
        match self.placement {
            OptimizerPlacement::Replicated => 1,
            OptimizerPlacement::Sharded => self.copies(),
        }
    }

    /// The images of a batch that a device has, at most; in a pipeline, that pass it.
    pub fn device_batch(&self) -> usize {
        self.train.batch_size.div_ceil(self.copies())
    }

    /// The same on `count` devices of the kind of its first.
    ///
    /// # Errors
    /// When BatchNorm has nothing to normalise over then, or a pipeline is of other devices.
    pub fn on_devices(&self, count: usize) -> Result<Self, Fault> {
        let device = |number: usize| match self.device() {
            device if count == 1 => device,
            DevicePlan::Cpu(_) => DevicePlan::Cpu(Some(number)),
            DevicePlan::Auto | DevicePlan::Cuda(_) => DevicePlan::Cuda(number),
        };
        let plan = Self { devices: (0..count).map(device).collect(), ..self.clone() };
        let plan = plan.cut_stages();
        plan.check_pipeline().and(checks::normalised(&plan)).map(|()| plan)
    }

    /// The same on its first device alone, which has the batch that it has among all devices, and the whole
    /// model.
    pub fn on_first_device(&self) -> Self {
        let mut plan = self.clone();
        plan.pipeline = None;
        plan.train.batch_size = self.device_batch();
        plan.devices.truncate(1);
        plan.cut_stages()
    }

    /// The images of the smallest part of a batch that BatchNorm normalises over, where a device takes
    /// `micro_batch` at once.
    pub(crate) fn least_part(&self, micro_batch: usize) -> usize {
        let batch = self.train.batch_size;
        let together = micro_batch.saturating_mul(self.copies()).clamp(1, batch);
        let least = match batch % together {
            0 => together,
            left => left,
        };
        match self.batch_norm {
            BatchNormOver::Sync => least,
            // Of what is left, devices that would have too few have none.
            BatchNormOver::Local => least.min(micro_batch),
        }
    }

    /// The images that BatchNorm normalises over where a device takes `micro_batch` at once and the batch is large enough.
    pub(crate) fn normalised_together(&self, micro_batch: usize) -> usize {
        match self.batch_norm {
            BatchNormOver::Sync => micro_batch.saturating_mul(self.copies()),
            BatchNormOver::Local => micro_batch,
        }
    }

    /// Whether BatchNorm, where there is one, has more than one number of each channel to normalise
    /// over in every part of a batch that is taken `micro_batch` at once.
    pub(crate) fn normalises(&self, micro_batch: usize) -> bool {
        if self.least_part(micro_batch) > 1 {
            return true;
        }
        self.model.least_normalised().is_none_or(|numbers| numbers > 1)
    }

    /// The fewest images that may go through the network at once.
    pub(crate) fn fewest_at_once(&self) -> usize {
        let batch = self.device_batch();
        (1..batch).find(|images| self.normalises(*images)).unwrap_or(batch)
    }

    /// Whether fewer images at once change the numbers: BatchNorm normalises over them.
    pub(crate) fn parts_matter(&self) -> bool {
        self.model.norm() == Norm::Batch
    }

    /// How many stages, from the first on, are never trained.
    pub fn frozen(&self) -> usize {
        match &self.freeze {
            Some(freeze) if freeze.epochs().is_none() => self.freeze_stages,
            _ => 0,
        }
    }

    /// The epochs in which stages are frozen that are trained later; 0 where none are.
    pub fn frozen_epochs(&self) -> usize {
        self.freeze.as_ref().and_then(FreezeConfig::epochs).unwrap_or(0)
    }

    /// The plan of the steps of these epochs, where there are any.
    pub fn at_first(&self) -> Option<Self> {
        let Some(FreezeConfig::AtFirst(FreezeAtFirst { stages, .. })) = self.freeze.clone() else {
            return None;
        };
        Some(Self { freeze: Some(FreezeConfig::Always(stages)), ..self.clone() })
    }

    /// What the learning rate of each stage is multiplied by, the heads included.
    pub fn lr_factors(&self) -> Vec<f64> {
        // They have been checked.
        checks::lr_factors(self).unwrap_or_default()
    }

    /// The approximate bytes of a saved state: weights, their average and what the optimizer keeps.
    pub fn state_bytes(&self) -> u64 {
        let counts: Vec<usize> =
            self.stages().iter().map(|stage| stage.parameter_count()).collect();
        let copies = 1 + usize::from(self.train.ema.is_some());
        let numbers = copies * counts.iter().sum::<usize>()
            + self.train.optimizer.kept() * counts[self.frozen()..].iter().sum::<usize>();
        (numbers * self.memory.precision.parameters().size()) as u64
    }

    /// The model's stages, from images to the heads' outputs.
    pub fn stages(&self) -> Vec<Box<dyn StageSpec>> {
        self.stages_with(self.memory.precision, self.memory.dense_layers())
    }

    /// The same in another precision and with other dense layers.
    pub fn stages_with(
        &self,
        precision: Precision,
        dense_layers: DenseLayers,
    ) -> Vec<Box<dyn StageSpec>> {
        self.model.stages(precision, dense_layers, &self.heads)
    }
}

/// What the run folders of folds begin with; the fold's number, counted from 1, follows.
pub const FOLD: &str = "fold-";

/// Makes every check and fills in every default.
///
/// # Errors
///
/// The first fault found, with the key that is wrong; [`crate::config::Source::error`] adds where
/// it was written.
pub fn plan(config: Config) -> Result<Plan, Fault> {
    checks::check(&config)?;
    let devices = DevicePlan::parse(&config.device.device)?;
    let model = checks::network(&config.model.network, &config.data.image)?;
    checks::direct_heads(&model, &config.heads)?;
    checks::losses(&config.heads)?;
    check_labels(&config.data, &config.heads)?;
    let named = |head: &HeadConfig| HeadConfig { loss: Some(Choice(head.loss())), ..head.clone() };
    let heads: Vec<HeadConfig> = config.heads.iter().map(named).collect();
    let mut train = config.train;
    let monitors = Monitors::written_out(&mut train, &heads)?;
    let mut data = config.data;
    let chosen = data.validation.list.is_some() || data.validation.folds.is_some();
    if !chosen && !data.has_validation_list() {
        data.validation.fraction.get_or_insert(DEFAULT_FRACTION);
    }
    let memory = match config.memory.is_auto() {
        true => config.memory,
        false => config.memory.with_defaults(),
    };
    let freeze = config.model.freeze;
    let freeze_stages = freeze.as_ref().map_or(Ok(0), |freeze| freeze.stages(model.layers()))?;
    pipeline::check(&config.parallel, devices.len(), &model)?;
    let plan = Plan {
        run: config.run,
        devices,
        batch_norm: config.parallel.data.batch_norm,
        placement: config.parallel.data.optimizer,
        pipeline: config.parallel.pipeline,
        data,
        model,
        init: config.model.init,
        freeze,
        freeze_stages,
        heads,
        train,
        monitors,
        memory,
        evaluate: config.evaluate,
    };
    let plan = plan.cut_stages();
    checks::lr_factors(&plan)?;
    checks::checkpointing(&plan)?;
    plan.check_pipeline()?;
    checks::normalised(&plan)?;
    Ok(plan)
}
