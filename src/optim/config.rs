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
    /// Stochastic gradient descent.
    Sgd(SgdConfig),
    /// Adam with L2 regularisation (Kingma and Ba 2015).
    Adam(AdamConfig),
    /// Adam with decoupled weight decay (Loshchilov and Hutter 2019).
    #[serde(rename = "adamw")]
    AdamW(AdamWConfig),
    /// RMSprop.
    Rmsprop(RmspropConfig),
    /// Adagrad.
    Adagrad(AdagradConfig),
    /// Lion (Chen et al. 2023, arXiv:2302.06675).
    Lion(LionConfig),
}

/// `[train.optimizer.sgd]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SgdConfig {
    /// Learning rate.
    pub lr: f64,
    /// Share of the last update kept.
    pub momentum: f64,
    /// Share of the gradient left out of the momentum.
    pub dampening: f64,
    /// Looks ahead along the momentum; needs `momentum` above 0 and `dampening` 0.
    pub nesterov: bool,
    /// L2 regularisation.
    pub weight_decay: f64,
}

impl Default for SgdConfig {
    fn default() -> Self {
        Self { lr: 1e-3, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

/// `[train.optimizer.adam]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AdamConfig {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the running mean and of the running square of the gradient.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// L2 regularisation.
    pub weight_decay: f64,
    /// Uses the largest running square so far (Reddi et al. 2018).
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
    /// Learning rate.
    pub lr: f64,
    /// Decay of the running mean and of the running square of the gradient.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Uses the largest running square so far (Reddi et al. 2018).
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
    /// Learning rate.
    pub lr: f64,
    /// Decay of the running square of the gradient.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Share of the last update kept.
    pub momentum: f64,
    /// Normalises by the variance of the gradient instead of its square.
    pub centered: bool,
    /// L2 regularisation.
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
    /// Learning rate.
    pub lr: f64,
    /// Decay of the learning rate with the number of steps.
    pub lr_decay: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// L2 regularisation.
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
    /// Learning rate.
    pub lr: f64,
    /// Interpolation of the update and decay of the running mean.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
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
    /// The optimizer's learning rate throughout.
    Constant(NoSettings),
    /// Warm-up, then a straight line down to `end_factor` at the last step.
    Linear(LinearConfig),
    /// Warm-up, then half a cosine down to `end_factor` at the last step.
    Cosine(CosineConfig),
    /// Multiplied by `gamma` every `every_epochs` epochs.
    Step(StepConfig),
    /// Up and down once (PyTorch's `OneCycleLR` without cycling the momentum).
    OneCycle(OneCycleConfig),
    /// Multiplied by `factor` when a metric has not improved for `patience` epochs.
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
    /// Epochs over which the rate rises from near 0 to the optimizer's; may be a fraction.
    pub warmup_epochs: f64,
    /// The rate at the last step, as a share of the optimizer's.
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
    /// Epochs over which the rate rises from near 0 to the optimizer's; may be a fraction.
    pub warmup_epochs: f64,
    /// The rate at the last step, as a share of the optimizer's.
    pub end_factor: f64,
}

/// `[train.schedule.step]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StepConfig {
    /// Epochs between drops.
    pub every_epochs: usize,
    /// The factor of each drop.
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
    /// The share of the steps spent rising.
    pub pct_start: f64,
    /// The first rate is the highest divided by this.
    pub div_factor: f64,
    /// The last rate is the first divided by this.
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
    /// The metric watched, such as `val/loss` or `val/findings/auroc`.
    pub metric: String,
    /// The factor of each drop, below 1.
    pub factor: f64,
    /// Epochs without improvement before a drop. An epoch in which the metric is undefined does not
    /// count.
    pub patience: usize,
    /// The least change that counts as an improvement.
    pub min_delta: f64,
    /// The rate never goes below this.
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
    /// The share of the average kept at each step, below 1; such as 0.999.
    pub decay: f64,
}
