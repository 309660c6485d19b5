//! What the user writes under `[heads.loss]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::NoSettings;

/// `[heads.loss.…]`: how a head's outputs are compared with its labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossConfig {
    /// Binary cross-entropy on logits, for each label on its own.
    Bce(BceConfig),
    /// Focal loss on logits, for each label on its own (Lin et al. 2017, arXiv:1708.02002):
    /// examples that are easy count less.
    Focal(FocalConfig),
    /// Asymmetric loss on logits, for each label on its own (Ridnik et al. 2021, arXiv:2009.14119):
    /// easy negatives count much less than easy positives, and very easy ones not at all. It is meant
    /// for many labels of which most are absent.
    Asymmetric(AsymmetricConfig),
    /// AUC-margin loss, for each label on its own (Yuan et al. 2021, arXiv:2012.03173; LibAUC's
    /// `AUCMLoss`): how far each positive lies above each negative, which raises AUROC itself. It
    /// learns three numbers for each label beside the weights: two by the optimizer, without weight
    /// decay, and one by gradient ascent at the learning rate.
    AucMargin(AucMarginConfig),
    /// Cross-entropy over the classes, after a softmax.
    CrossEntropy(CrossEntropyConfig),
    /// The squared error.
    Mse(NoSettings),
    /// The absolute error.
    L1(NoSettings),
    /// The squared error near zero and the absolute error beyond `delta` (PyTorch's `HuberLoss`).
    Huber(HuberConfig),
}

/// `[heads.loss.bce]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BceConfig {
    /// How much positives weigh against negatives: one number for each label, or `"balanced"` for
    /// the number of negatives divided by that of positives among the training labels. Both weigh 1
    /// when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"balanced")]
    pub pos_weight: Option<ClassWeights>,
    /// How far targets move towards 0.5: a target y becomes y(1 − s) + s/2. From 0 to below 1.
    #[schemars(example = 0.1)]
    pub label_smoothing: f64,
}

/// `[heads.loss.focal]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FocalConfig {
    /// How strongly easy examples are discounted; 0 gives cross-entropy.
    #[schemars(example = 1.5)]
    pub gamma: f64,
    /// The weight of positives; negatives have 1 − alpha. A negative number weighs both alike, as
    /// in torchvision's `sigmoid_focal_loss`.
    #[schemars(example = 0.5)]
    pub alpha: f64,
}

impl Default for FocalConfig {
    fn default() -> Self {
        Self { gamma: 2.0, alpha: 0.25 }
    }
}

/// `[heads.loss.asymmetric]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AsymmetricConfig {
    /// How strongly easy negatives are discounted; 0 does not discount them.
    #[schemars(example = 2.0)]
    pub gamma_neg: f64,
    /// How strongly easy positives are discounted; 0 does not discount them. With all three settings
    /// at 0 this is binary cross-entropy.
    #[schemars(example = 1.0)]
    pub gamma_pos: f64,
    /// What is subtracted from the probability of a negative: one with a lower probability has no loss
    /// and no gradient. From 0 to below 1.
    #[schemars(example = 0.1)]
    pub clip: f64,
}

impl Default for AsymmetricConfig {
    fn default() -> Self {
        Self { gamma_neg: 4.0, gamma_pos: 0.0, clip: 0.05 }
    }
}

/// `[heads.loss.auc_margin]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AucMarginConfig {
    /// How far the probability of a positive should lie above that of a negative; above 0 and at most
    /// 1.
    #[schemars(example = 0.6)]
    pub margin: f64,
}

impl Default for AucMarginConfig {
    fn default() -> Self {
        Self { margin: 1.0 }
    }
}

/// `[heads.loss.cross_entropy]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrossEntropyConfig {
    /// The weight of each class: one number for each, or `"balanced"` for images / (classes ×
    /// images of the class), as in scikit-learn. All weigh 1 when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = &"balanced")]
    pub class_weights: Option<ClassWeights>,
    /// The share of the target that is spread evenly over all classes; from 0 to below 1.
    #[schemars(example = 0.1)]
    pub label_smoothing: f64,
}

/// `[heads.loss.huber]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HuberConfig {
    /// The error at which the loss turns from squared to absolute; above 0.
    #[schemars(example = 0.5)]
    pub delta: f64,
}

impl Default for HuberConfig {
    fn default() -> Self {
        Self { delta: 1.0 }
    }
}

/// Weights of classes or of positives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ClassWeights {
    /// Worked out from the training labels.
    Rule(WeightRule),
    /// One number per label or class, in the order of `labels`.
    Numbers(Vec<f64>),
}

/// How weights are worked out from the training labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WeightRule {
    /// Weights are in inverse proportion to how often a class occurs.
    Balanced,
}
