//! What the user writes under `[model]` and `[[heads]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::choice::Choice;
use crate::loss::{LossConfig, default_loss};
use crate::model::labels;
use crate::model::sequential::SequentialConfig;

/// `[model.…]`: the network below the heads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelConfig {
    /// DenseNet-BC (Huang et al. 2017, arXiv:1608.06993). Its size is a published `depth`, or
    /// `growth`, `blocks` and `stem` by hand.
    Densenet(DensenetConfig),
    /// ResNet (He et al. 2016, arXiv:1512.03385). Its size is a published `depth`, or `block` and
    /// `blocks` by hand.
    Resnet(ResnetConfig),
    /// A list of layers, each run on the output of the one before it. Weights have the names that
    /// `torch.nn.Sequential` of the same layers gives, and are drawn as PyTorch draws them by
    /// default.
    Sequential(SequentialConfig),
}

/// `[model.densenet]`: a published `depth`, or `growth`, `blocks` and `stem` by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DensenetConfig {
    /// A published depth, 121, 161, 169 or 201. It sets `growth`, `blocks` and `stem`, which must
    /// then be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 121)]
    pub depth: Option<usize>,
    /// How many channels each dense layer adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 32)]
    pub growth: Option<usize>,
    /// How many dense layers each block has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = [6, 12, 24, 16])]
    pub blocks: Option<Vec<usize>>,
    /// How many channels the first convolution puts out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 64)]
    pub stem: Option<usize>,
    /// The 1×1 convolution of a dense layer puts out this many times `growth` channels; 4, as
    /// published, when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 4)]
    pub bottleneck: Option<usize>,
    /// The share of its channels that a transition keeps, above 0 and at most 1; 0.5, as published,
    /// when this is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 0.5)]
    pub compression: Option<f64>,
    /// The probability that an output of a dense layer is dropped in training; from 0 to below 1.
    #[schemars(example = 0.2)]
    pub dropout: f64,
    /// What activations are normalised over.
    pub norm: Norm,
}

/// `[model.resnet]`: a published `depth`, or `block` and `blocks` by hand.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResnetConfig {
    /// A published depth, 18, 34, 50, 101, 152 or 200. With `form = "cifar"` it is 6n + 2 (basic
    /// blocks) or 9n + 2 (bottlenecks), such as 20, 110, 1001 or 2000. It sets `blocks`, which must
    /// then be left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 50)]
    pub depth: Option<usize>,
    /// Which of the two published forms the network has.
    pub form: ResnetForm,
    /// The kind of residual block. `depth` sets it where only one kind fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<ResnetBlock>,
    /// How many residual blocks each group has. Each group but the first halves the maps and
    /// doubles the channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = [3, 4, 6, 3])]
    pub blocks: Option<Vec<usize>>,
    /// How many channels the first convolution puts out. When this is left out it is 64, or 16 with
    /// `form = "cifar"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(example = 64)]
    pub stem: Option<usize>,
    /// What activations are normalised over.
    pub norm: Norm,
}

/// A form of ResNet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResnetForm {
    /// For ImageNet, as torchvision has it: a 7×7 convolution and max-pooling, then four groups.
    #[default]
    Imagenet,
    /// For CIFAR: a 3×3 convolution, then three groups, with shortcuts that have no parameters.
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
    /// Over the images that go through the network at once (BatchNorm, Ioffe and Szegedy 2015).
    #[default]
    Batch,
    /// Over groups of channels of one image, up to 32 groups (GroupNorm, Wu and He 2018):
    /// independent of the batch size.
    Group,
}

/// `[[heads]]`: what is predicted from the pooled features.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeadConfig {
    /// The head's name in metrics (`val/<name>/auroc`) and weights (`classifier.<name>`). It may
    /// have letters, digits, `_` and `-`.
    #[schemars(example = &"findings")]
    pub name: String,
    /// What the head's outputs mean.
    pub task: Task,
    /// The labels, as the data set names them; for `multiclass`, the classes. Many numbered ones
    /// are written in short: `{ count = 3, prefix = "y" }` is `y0`, `y1` and `y2`.
    #[serde(with = "labels")]
    #[schemars(with = "labels::LabelsConfig")]
    #[schemars(example = ["Edema", "Pneumonia"])]
    pub labels: Vec<String>,
    /// The weight of the head's loss in the sum over all heads; 0 or more.
    #[serde(default = "one")]
    #[schemars(example = 0.1)]
    pub weight: f64,
    /// The widths of hidden layers, each with ReLU, between the features and the outputs.
    #[serde(default)]
    #[schemars(example = [256])]
    pub hidden: Vec<usize>,
    /// The probability that a feature is dropped in training, before each layer of the head; from 0
    /// to below 1.
    #[serde(default)]
    #[schemars(example = 0.5)]
    pub dropout: f64,
    /// Whether the network's features are the head's outputs as they are, with no layer between.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub direct: bool,
    /// For `regression`: whether the head learns (number − mean) / standard deviation of each label,
    /// over the known numbers of the training images. The loss is of these, so that `delta` of
    /// `huber` counts in standard deviations; metrics and predictions are in the labels' own units.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(example = true)]
    pub standardize: bool,
    /// The loss. When it is left out it is `bce` for `multilabel` and `binary` heads,
    /// `cross_entropy` for `multiclass` heads and `mse` for `regression` heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Choice<LossConfig>>,
}

impl HeadConfig {
    /// The loss; where none is written, the first that is usual for the task.
    pub fn loss(&self) -> LossConfig {
        self.loss.as_ref().map_or_else(|| default_loss(self.task), |loss| loss.0.clone())
    }
}

fn one() -> f64 {
    1.0
}

/// What a head's outputs mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Any of the labels may be present: one logit for each label.
    Multilabel,
    /// One label is present or absent: one logit.
    Binary,
    /// Exactly one of the classes is true: one logit for each class.
    Multiclass,
    /// Each label is a number: one output for each label.
    Regression,
}
