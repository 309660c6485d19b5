//! What the user writes under `[model]` and `[[heads]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::loss::LossConfig;
use crate::model::labels;
use crate::model::sequential::SequentialConfig;

/// `[model.…]`: the network below the heads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelConfig {
    /// DenseNet-BC (Huang et al. 2017, arXiv:1608.06993).
    Densenet(DensenetConfig),
    /// ResNet (He et al. 2016, arXiv:1512.03385).
    Resnet(ResnetConfig),
    /// A list of layers.
    Sequential(SequentialConfig),
}

/// `[model.densenet]`: a published `depth`, or `growth`, `blocks` and `stem` by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DensenetConfig {
    /// 121, 161, 169 or 201; sets `growth`, `blocks` and `stem` as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Channels each dense layer adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub growth: Option<usize>,
    /// Dense layers in each block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Vec<usize>>,
    /// Channels after the first convolution.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stem: Option<usize>,
    /// The 1×1 convolution of a layer gives `bottleneck × growth` channels; 4 as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bottleneck: Option<usize>,
    /// A transition keeps this share of the channels; 0.5 as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compression: Option<f64>,
    /// The probability that an output of a dense layer is dropped in training.
    pub dropout: f64,
    /// How activations are normalised.
    pub norm: Norm,
}

/// `[model.resnet]`: a published `depth`, or `block` and `blocks` by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResnetConfig {
    /// 18, 34, 50, 101, 152 or 200; with `form = "cifar"` 6n + 2 (basic blocks) or 9n + 2
    /// (bottlenecks), such as 20, 110, 1001 or 2000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<usize>,
    /// Which of the two published forms.
    pub form: ResnetForm,
    /// The residual block; set by `depth` where only one fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<ResnetBlock>,
    /// Residual blocks in each group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Vec<usize>>,
    /// Channels after the first convolution; 64 as published, 16 for CIFAR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stem: Option<usize>,
    /// How activations are normalised.
    pub norm: Norm,
}

/// A form of ResNet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResnetForm {
    /// 7×7 convolution and max-pooling, four groups; as torchvision has it.
    #[default]
    Imagenet,
    /// 3×3 convolution, three groups, shortcuts without parameters.
    Cifar,
}

/// A residual block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResnetBlock {
    /// Two 3×3 convolutions.
    Basic,
    /// 1×1, 3×3 and 1×1 convolutions, the last to four times the channels.
    Bottleneck,
}

/// How activations are normalised.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// Over the batch (Ioffe and Szegedy 2015).
    #[default]
    Batch,
    /// Over groups of channels of one image (Wu and He 2018), up to 32 groups: independent of the
    /// batch size.
    Group,
}

/// `[[heads]]`: what is predicted from the pooled features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadConfig {
    /// Names the head in metrics (`val/<name>/auroc`) and weights (`classifier.<name>`).
    pub name: String,
    /// What its outputs mean.
    pub task: Task,
    /// The labels, as the data layout names them; for `multiclass`, the classes. Or
    /// `{ count = 3, prefix = "y" }` for `y0`, `y1` and `y2`.
    #[serde(with = "labels")]
    #[schemars(with = "labels::LabelsConfig")]
    pub labels: Vec<String>,
    /// The weight of its loss in the sum over heads.
    #[serde(default = "one")]
    pub weight: f64,
    /// Widths of hidden layers (each with ReLU) between the features and the outputs.
    #[serde(default)]
    pub hidden: Vec<usize>,
    /// The probability that a feature is dropped before each layer of the head in training.
    #[serde(default)]
    pub dropout: f64,
    /// Whether the network's features are the outputs as they are, without a layer of the head's
    /// own.
    #[serde(default, skip_serializing_if = "is_false")]
    pub direct: bool,
    /// For `regression`: learn (number − mean) / standard deviation, label by label, over the known
    /// numbers of the training images. The loss is of these (so `delta` of `huber` counts in standard
    /// deviations); metrics and predictions are in the labels' own units.
    #[serde(default, skip_serializing_if = "is_false")]
    pub standardize: bool,
    /// The loss; `bce` for `multilabel` and `binary`, `cross_entropy` for `multiclass`, `mse` for
    /// `regression` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Choice<LossConfig>>,
}

fn one() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What a head's outputs mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// One logit per label, each positive or negative on its own.
    Multilabel,
    /// One logit for one label.
    Binary,
    /// One logit per class, one class true.
    Multiclass,
    /// One number per label.
    Regression,
}
