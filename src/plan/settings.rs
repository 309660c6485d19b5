//! The settings of `[memory]` that a training step can be taken with.

use serde::{Deserialize, Serialize};

use super::checks::precision_on;
use super::{Machine, Plan};
use crate::choice::{Choice, NoSettings};
use crate::memory::{
    CheckpointingConfig, DenseLayers, MemoryConfig, MicroBatch, OffloadConfig, Precision,
    SequentialConfig,
};

/// The settings of `[memory]` that decide how many bytes and seconds a training step takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemorySettings {
    /// The numbers that activations are held in.
    pub precision: Precision,
    /// Images that go through the network at once; at least 1.
    pub micro_batch: usize,
    /// Which stages keep what their backward pass needs.
    pub checkpointing: Choice<CheckpointingConfig>,
    /// Where what is kept waits.
    pub offload: Choice<OffloadConfig>,
    /// What a dense layer keeps.
    pub dense_layers: DenseLayers,
    /// Whether the optimizer's state waits in host memory.
    pub offload_optimizer: bool,
}

const NONE: CheckpointingConfig = CheckpointingConfig::None(NoSettings {});
pub(super) const BUDGET: CheckpointingConfig = CheckpointingConfig::Budget(NoSettings {});
const HERE: OffloadConfig = OffloadConfig::None(NoSettings {});
pub(super) const HOST: OffloadConfig = OffloadConfig::Host(NoSettings {});

/// Every precision that a configuration can name.
const PRECISIONS: [Precision; 5] =
    [Precision::Fp32, Precision::Tf32, Precision::Bf16, Precision::Fp16, Precision::Half];

impl MemorySettings {
    /// The settings of `memory`, with defaults for what is to be chosen automatically.
    pub fn configured(memory: &MemoryConfig, batch: usize) -> Self {
        let micro_batch = match memory.micro_batch {
            Some(MicroBatch::Images(images)) => images.clamp(1, batch.max(1)),
            Some(MicroBatch::Auto(_)) | None => batch.max(1),
        };
        Self {
            precision: memory.precision,
            micro_batch,
            checkpointing: Choice(memory.checkpointing()),
            offload: Choice(memory.offload()),
            dense_layers: memory.dense_layers(),
            offload_optimizer: memory.offload_optimizer,
        }
    }

    /// What a configuration writes for what is other than in `before`.
    pub(super) fn written_beside(&self, before: &Self) -> Vec<String> {
        let quoted = |key: &str, name: &str| format!("{key} = \"{name}\"");
        let written = [
            (self.precision != before.precision)
                .then(|| quoted("precision", self.precision.name())),
            (self.micro_batch != before.micro_batch)
                .then(|| format!("micro_batch = {}", self.micro_batch)),
            (self.dense_layers != before.dense_layers)
                .then(|| quoted("dense_layers", self.dense_layers.name())),
            (self.checkpointing != before.checkpointing)
                .then(|| quoted("checkpointing", self.checkpointing.name())),
            (self.offload != before.offload).then(|| quoted("offload", self.offload.name())),
            (self.offload_optimizer != before.offload_optimizer)
                .then(|| format!("offload_optimizer = {}", self.offload_optimizer)),
        ];
        written.into_iter().flatten().collect()
    }

    /// Whether the policy is to keep within the budget.
    pub fn keeps_within(&self) -> bool {
        self.checkpointing.0 == BUDGET
    }

    /// Whether anything waits off the device.
    pub fn offloads(&self) -> bool {
        self.offload.0 != HERE
    }
}

/// Each of `all` with each of `values`, which `set` writes into it.
pub(super) fn with_each<T: Clone>(
    all: &[MemorySettings],
    values: &[T],
    set: impl Fn(&mut MemorySettings, T),
) -> Vec<MemorySettings> {
    let with = |settings: &MemorySettings, value: &T| {
        let mut settings = settings.clone();
        set(&mut settings, value.clone());
        settings
    };
    all.iter().flat_map(|settings| values.iter().map(|value| with(settings, value))).collect()
}

impl Plan {
    /// The precisions that the checks allow on a GPU, or on the CPU.
    pub fn precisions(&self, cuda: bool) -> Vec<Precision> {
        let optimizer = &self.train.optimizer;
        let allowed = |precision: &Precision| precision_on(*precision, optimizer, !cuda).is_ok();
        PRECISIONS.into_iter().filter(allowed).collect()
    }

    /// What may be kept of 1×1 convolutions' outputs: a choice in DenseNets and ResNets that run fused.
    pub(super) fn dense_layers(&self, cuda: bool, precision: Precision) -> Vec<DenseLayers> {
        match cuda && precision.fuses() && self.model.may_keep_pointwise() {
            true => vec![DenseLayers::Keep, DenseLayers::Share],
            false => vec![self.memory.dense_layers()],
        }
    }

    /// The settings that are compared: every policy, precision, micro-batch and place of what is kept.
    pub fn candidates(&self, machine: &Machine) -> Vec<MemorySettings> {
        let configured = MemorySettings::configured(&self.memory, self.device_batch());
        let mut precisions = self.precisions(machine.cuda);
        if !precisions.contains(&configured.precision) {
            precisions.push(configured.precision);
        }
        let mut all = Vec::new();
        for precision in precisions {
            let layers = self.dense_layers(machine.cuda, precision);
            let of =
                |dense_layers| MemorySettings { precision, dense_layers, ..configured.clone() };
            all.extend(layers.into_iter().map(of));
        }
        let micro_batches = self.micro_batches(Some(configured.micro_batch));
        let all = with_each(&all, &micro_batches, |to, images| to.micro_batch = images);
        let offloads = places(machine, &configured.offload.0);
        let all = with_each(&all, &offloads, |to, place| to.offload = Choice(place));
        let policies = self.policies(&configured.checkpointing.0);
        with_each(&all, &policies, |to, policy| to.checkpointing = Choice(policy))
    }

    /// The settings that are compared where something is chosen automatically: what the user wrote stays.
    /// Of two that are equally good, the first is preferred.
    pub fn eligible(&self, machine: &Machine) -> Vec<MemorySettings> {
        let memory = &self.memory;
        let configured = MemorySettings::configured(memory, self.device_batch());
        let policies = match &memory.checkpointing {
            Some(written) => vec![written.0.clone()],
            None => vec![NONE, BUDGET],
        };
        let offloads = match &memory.offload {
            Some(written) => vec![written.0.clone()],
            None => places(machine, &HERE),
        };
        let dense_layers = match memory.dense_layers {
            Some(written) => vec![written],
            None => self.dense_layers(machine.cuda, memory.precision),
        };
        let micro_batches: Vec<usize> = self.micro_batches(None).into_iter().rev().collect();
        let all = with_each(&[configured], &micro_batches, |to, images| to.micro_batch = images);
        let all = with_each(&all, &offloads, |to, place| to.offload = Choice(place));
        let all = with_each(&all, &dense_layers, |to, layers| to.dense_layers = layers);
        with_each(&all, &policies, |to, policy| to.checkpointing = Choice(policy))
    }

    /// 1, 2, 4 and so on, up to the whole batch, and the one that is configured.
    fn micro_batches(&self, configured: Option<usize>) -> Vec<usize> {
        let batch = self.device_batch().max(1);
        let powers = std::iter::successors(Some(1_usize), |images| Some(images * 2));
        let mut all: Vec<usize> = powers.take_while(|images| *images < batch).collect();
        all.push(batch);
        all.retain(|images| self.normalises(*images));
        all.extend(configured);
        all.sort_unstable();
        all.dedup();
        all
    }

    fn policies(&self, configured: &CheckpointingConfig) -> Vec<CheckpointingConfig> {
        let stages = self.stages().len();
        let root = (stages as f64).sqrt().round() as usize;
        let segments = [2, 4, 8, 16].into_iter().filter(|count| *count < stages && *count != root);
        let sequential =
            segments.map(|segments| CheckpointingConfig::Sequential(SequentialConfig { segments }));
        let [sqrt, every] = [CheckpointingConfig::Sqrt, CheckpointingConfig::Every];
        let others = [sqrt(NoSettings {}), every(NoSettings {}), BUDGET];
        let mut all: Vec<_> = [NONE].into_iter().chain(sequential).chain(others).collect();
        if !all.contains(configured) {
            all.push(configured.clone());
        }
        all
    }
}

/// Where what is kept may wait. A CPU's memory is the host's.
fn places(machine: &Machine, configured: &OffloadConfig) -> Vec<OffloadConfig> {
    let mut all = vec![HERE];
    if machine.cuda {
        all.push(HOST);
    }
    if !all.contains(configured) {
        all.push(configured.clone());
    }
    all
}
