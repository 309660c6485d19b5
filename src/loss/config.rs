//! What the user writes under `[heads.loss]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::NoSettings;

/// `[heads.loss.…]`: how a head's outputs are compared with its labels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossConfig {
    /// Binary cross-entropy on logits, per label.
    Bce(BceConfig),
    /// Focal loss on logits, per label (Lin et al. 2017, arXiv:1708.02002).
    Focal(FocalConfig),
    /// Softmax cross-entropy over classes.
    CrossEntropy(CrossEntropyConfig),
    /// Squared error.
    Mse(NoSettings),
    /// Absolute error.
    L1(NoSettings),
    /// Squared near zero, absolute beyond `delta` (PyTorch's `HuberLoss`).
    Huber(HuberConfig),
}

/// `[heads.loss.bce]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BceConfig {
    /// The weight of positives: one number per label, or `"balanced"` (negatives / positives among
    /// the training labels); 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pos_weight: Option<ClassWeights>,
    /// Targets move this far towards 0.5: y(1 − s) + s/2. 0 to 1, 1 excluded.
    pub label_smoothing: f64,
}

/// `[heads.loss.focal]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FocalConfig {
    /// How strongly easy examples are discounted; 0 gives cross-entropy.
    pub gamma: f64,
    /// The weight of positives (negatives have 1 − alpha); a negative number switches it off, as in
    /// torchvision's `sigmoid_focal_loss`.
    pub alpha: f64,
}

impl Default for FocalConfig {
    fn default() -> Self {
        Self { gamma: 2.0, alpha: 0.25 }
    }
}

/// `[heads.loss.cross_entropy]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CrossEntropyConfig {
    /// One number per class, or `"balanced"` (images / (classes × images of the class), as in
    /// scikit-learn); 1 when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class_weights: Option<ClassWeights>,
    /// The share of the target spread evenly over all classes. 0 to 1, 1 excluded.
    pub label_smoothing: f64,
}

/// `[heads.loss.huber]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HuberConfig {
    /// Where the squared part ends; above 0.
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
    /// In inverse proportion to how often a class occurs.
    Balanced,
}
