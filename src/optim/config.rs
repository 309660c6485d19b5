//! What the user writes under `[train.optimizer]` and `[train.schedule]`.
//!
//! Defaults are PyTorch's.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::NoSettings;

/// `[train.optimizer.…]`. Every name and default means what it means in `torch.optim`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerConfig {
    /// Stochastic gradient descent, with momentum where that is given.
    Sgd(SgdConfig),
    /// Adam with L2 regularisation (Kingma and Ba 2015).
    Adam(AdamConfig),
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    #[serde(rename = "adamw")]
    AdamW(AdamWConfig),
    /// RMSprop: the gradient is divided by the root of its running mean square.
    Rmsprop(RmspropConfig),
    /// Adagrad (Duchi et al. 2011): the gradient is divided by the root of the sum of its squares
    /// so far.
    Adagrad(AdagradConfig),
    /// Lion (Chen et al. 2023, arXiv:2302.06675): each weight moves by the sign of the momentum.
    Lion(LionConfig),
    /// PESG (Yuan et al. 2021, arXiv:2012.03173), LibAUC's for the AUC-margin loss: SGD whose weights are drawn
    /// towards their mean over the stage before.
    Pesg(PesgConfig),
}

/// `[train.optimizer.sgd]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SgdConfig {
    /// The learning rate; above 0.
    #[schemars(example = 0.1)]
    pub lr: f64,
    /// The share of the last update that the next one keeps; from 0 to below 1.
    #[schemars(example = 0.9)]
    pub momentum: f64,
    /// The share of the gradient that does not enter the momentum. It needs `momentum` above 0.
    #[schemars(example = 0.1)]
    pub dampening: f64,
    /// Whether the gradient looks ahead along the momentum (Nesterov). It needs `momentum` above 0
    /// and `dampening` 0.
    pub nesterov: bool,
    /// The strength of L2 regularisation.
    #[schemars(example = 1e-4)]
    pub weight_decay: f64,
}

impl Default for SgdConfig {
    fn default() -> Self {
        Self { lr: 1e-3, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

/// `[train.optimizer.pesg]`. Defaults are LibAUC's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PesgConfig {
    /// The learning rate; above 0. The third number that the AUC-margin loss learns rises at it too.
    #[schemars(example = 0.05)]
    pub lr: f64,
    /// The share of the gradient in each update, the rest being the last update; from 0 to below 1, and 0 is no momentum.
    /// So it is in LibAUC; elsewhere momentum is the share of the last update.
    #[schemars(example = 0.8)]
    pub momentum: f64,
    /// The number that each element of a gradient is cut off at, up and down.
    #[schemars(example = 0.5)]
    pub clip_value: f64,
    /// How strongly weights are drawn towards the reference: those at first, then their mean over the last stage.
    #[schemars(example = 1e-3)]
    pub epoch_decay: f64,
    /// Steps of a stage, at least 1. LibAUC's examples end a stage where they lower the learning rate, after half of the epochs.
    #[schemars(example = 2000)]
    pub stage_steps: u64,
    /// The strength of L2 regularisation.
    #[schemars(example = 1e-4)]
    pub weight_decay: f64,
}

impl Default for PesgConfig {
    fn default() -> Self {
        Self {
            lr: 0.1,
            momentum: 0.9,
            clip_value: 1.0,
            epoch_decay: 2e-3,
            stage_steps: 1000,
            weight_decay: 1e-5,
        }
    }
}

/// `[train.optimizer.adam]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamConfig {
    /// The learning rate; above 0.
    #[schemars(example = 3e-4)]
    pub lr: f64,
    /// How much of the running mean and of the running square of the gradient each step keeps; each
    /// from 0 to below 1.
    #[schemars(example = [0.9, 0.99])]
    pub betas: [f64; 2],
    /// A small number that keeps the denominator above 0.
    #[schemars(example = 1e-6)]
    pub eps: f64,
    /// The strength of L2 regularisation.
    #[schemars(example = 1e-4)]
    pub weight_decay: f64,
    /// Whether the update is divided by the largest running square so far (Reddi et al. 2018).
    pub amsgrad: bool,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0, amsgrad: false }
    }
}

/// `[train.optimizer.adamw]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamWConfig {
    /// The learning rate; above 0.
    #[schemars(example = 3e-4)]
    pub lr: f64,
    /// How much of the running mean and of the running square of the gradient each step keeps; each
    /// from 0 to below 1.
    #[schemars(example = [0.9, 0.99])]
    pub betas: [f64; 2],
    /// A small number that keeps the denominator above 0.
    #[schemars(example = 1e-6)]
    pub eps: f64,
    /// The strength of weight decay, which does not pass through the gradient: each step takes `lr`
    /// times this share off every weight.
    #[schemars(example = 1e-5)]
    pub weight_decay: f64,
    /// Whether the update is divided by the largest running square so far (Reddi et al. 2018).
    pub amsgrad: bool,
}

impl Default for AdamWConfig {
    fn default() -> Self {
        Self { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 1e-2, amsgrad: false }
    }
}

/// `[train.optimizer.rmsprop]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RmspropConfig {
    /// The learning rate; above 0.
    #[schemars(example = 1e-3)]
    pub lr: f64,
    /// How much of the running square of the gradient each step keeps; from 0 to below 1.
    #[schemars(example = 0.9)]
    pub alpha: f64,
    /// A small number that keeps the denominator above 0.
    #[schemars(example = 1e-6)]
    pub eps: f64,
    /// The share of the last update that the next one keeps; from 0 to below 1.
    #[schemars(example = 0.9)]
    pub momentum: f64,
    /// Whether the gradient is divided by its standard deviation, in place of the root of its mean
    /// square.
    pub centered: bool,
    /// The strength of L2 regularisation.
    #[schemars(example = 1e-4)]
    pub weight_decay: f64,
}

impl Default for RmspropConfig {
    fn default() -> Self {
        Self { lr: 1e-2, alpha: 0.99, eps: 1e-8, momentum: 0.0, centered: false, weight_decay: 0.0 }
    }
}

/// `[train.optimizer.adagrad]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdagradConfig {
    /// The learning rate; above 0.
    #[schemars(example = 0.05)]
    pub lr: f64,
    /// How fast the learning rate falls: in step n it is `lr / (1 + (n - 1) * lr_decay)`.
    #[schemars(example = 1e-3)]
    pub lr_decay: f64,
    /// A small number that keeps the denominator above 0.
    #[schemars(example = 1e-8)]
    pub eps: f64,
    /// The strength of L2 regularisation.
    #[schemars(example = 1e-4)]
    pub weight_decay: f64,
}

impl Default for AdagradConfig {
    fn default() -> Self {
        Self { lr: 1e-2, lr_decay: 0.0, eps: 1e-10, weight_decay: 0.0 }
    }
}

/// `[train.optimizer.lion]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LionConfig {
    /// The learning rate; above 0.
    #[schemars(example = 3e-5)]
    pub lr: f64,
    /// How much of the running mean enters an update, and how much of it each step keeps; each from
    /// 0 to below 1.
    #[schemars(example = [0.95, 0.98])]
    pub betas: [f64; 2],
    /// The strength of weight decay, which does not pass through the gradient: each step takes `lr`
    /// times this share off every weight.
    #[schemars(example = 0.1)]
    pub weight_decay: f64,
}

impl Default for LionConfig {
    fn default() -> Self {
        Self { lr: 1e-4, betas: [0.9, 0.99], weight_decay: 0.0 }
    }
}

/// `[train.schedule.…]`: the learning rate over the steps of the whole training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleConfig {
    /// The rate stays the optimizer's throughout.
    Constant(NoSettings),
    /// The rate rises over the warm-up and then falls in a straight line to `end_factor` at the
    /// last step.
    Linear(LinearConfig),
    /// The rate rises over the warm-up and then falls along half a cosine to `end_factor` at the
    /// last step.
    Cosine(CosineConfig),
    /// The rate is multiplied by `gamma` every `every_epochs` epochs.
    Step(StepConfig),
    /// The rate rises once to the optimizer's, its highest, and falls again (PyTorch's `OneCycleLR`
    /// without a cycle of the momentum).
    OneCycle(OneCycleConfig),
    /// The rate is multiplied by `factor` when a metric has not improved for `patience` epochs.
    Plateau(PlateauConfig),
}

impl Default for ScheduleConfig {
    fn default() -> Self {
        Self::Constant(NoSettings {})
    }
}

/// `[train.schedule.linear]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LinearConfig {
    /// Over how many epochs the rate rises from near 0 to the optimizer's; it may be a fraction. A
    /// warm-up longer than the training ends with it, and a warning says so.
    #[schemars(example = 1.0)]
    pub warmup_epochs: f64,
    /// The rate at the last step, as a share of the optimizer's; from 0 to 1.
    #[schemars(example = 0.01)]
    pub end_factor: f64,
}

impl Default for LinearConfig {
    fn default() -> Self {
        Self { warmup_epochs: 0.0, end_factor: 0.0 }
    }
}

/// `[train.schedule.cosine]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CosineConfig {
    /// Over how many epochs the rate rises from near 0 to the optimizer's; it may be a fraction. A
    /// warm-up longer than the training ends with it, and a warning says so.
    #[schemars(example = 1.0)]
    pub warmup_epochs: f64,
    /// The rate at the last step, as a share of the optimizer's; from 0 to 1.
    #[schemars(example = 0.01)]
    pub end_factor: f64,
}

/// `[train.schedule.step]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StepConfig {
    /// How many epochs lie between two drops of the rate; at least 1.
    #[schemars(example = 30)]
    #[schemars(range(min = 1))]
    pub every_epochs: usize,
    /// What the rate is multiplied by at each drop; above 0 and at most 1.
    #[schemars(example = 0.5)]
    pub gamma: f64,
}

impl Default for StepConfig {
    fn default() -> Self {
        Self { every_epochs: 10, gamma: 0.1 }
    }
}

/// `[train.schedule.one_cycle]`. The optimizer's `lr` is the highest rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OneCycleConfig {
    /// The share of the steps over which the rate rises; between 0 and 1.
    #[schemars(example = 0.2)]
    pub pct_start: f64,
    /// The first rate is the highest divided by this; at least 1.
    #[schemars(example = 10.0)]
    pub div_factor: f64,
    /// The last rate is the first divided by this; above 0.
    #[schemars(example = 1000.0)]
    pub final_div_factor: f64,
}

impl Default for OneCycleConfig {
    fn default() -> Self {
        Self { pct_start: 0.3, div_factor: 25.0, final_div_factor: 1e4 }
    }
}

/// `[train.schedule.plateau]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlateauConfig {
    /// The metric that is watched, such as `val/loss` or `val/findings/auroc`.
    #[schemars(example = &"val/findings/auroc")]
    pub metric: String,
    /// What the rate is multiplied by at each drop; between 0 and 1.
    #[schemars(example = 0.5)]
    pub factor: f64,
    /// How many epochs may pass without an improvement before the rate drops. An epoch in which the
    /// metric is undefined does not count.
    #[schemars(example = 3)]
    pub patience: usize,
    /// The least change that counts as an improvement.
    #[schemars(example = 0.001)]
    pub min_delta: f64,
    /// The rate never drops below this.
    #[schemars(example = 1e-6)]
    pub min_lr: f64,
}

impl Default for PlateauConfig {
    fn default() -> Self {
        Self {
            metric: "val/loss".to_owned(),
            factor: 0.1,
            patience: 10,
            min_delta: 1e-4,
            min_lr: 0.0,
        }
    }
}

/// `train.ema`: an exponential moving average of the weights, evaluated and saved beside them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EmaConfig {
    /// The share of the average that each step keeps; from 0 to below 1.
    #[schemars(example = 0.999)]
    pub decay: f64,
}
