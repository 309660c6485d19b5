//! torchxrayvision's DenseNets (Cohen et al. 2022, arXiv:2111.00595): 18 outputs in a fixed order, for
//! images of levels from −1024 to 1024.
//!
//! <https://github.com/mlmed/torchxrayvision/blob/main/torchxrayvision/models.py>

use super::{NamedTensor, Weights};
use crate::model::{HeadConfig, Task};

/// What the outputs are (`xrv.datasets.default_pathologies`). Models that were trained on fewer have all
/// the same, and leave the others as they were drawn.
const LABELS: [&str; 18] = [
    "Atelectasis",
    "Consolidation",
    "Infiltration",
    "Pneumothorax",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Effusion",
    "Pneumonia",
    "Pleural_Thickening",
    "Cardiomegaly",
    "Nodule",
    "Mass",
    "Hernia",
    "Lung Lesion",
    "Fracture",
    "Lung Opacity",
    "Enlarged Cardiomediastinum",
];

/// The thresholds of the outputs; NaN for those that were not trained.
const THRESHOLDS: &str = "op_threshs";

/// The outputs of a file of torchxrayvision's.
pub(super) struct Outputs {
    /// What stands before every name.
    prefix: String,
    /// What each output is; none for those that are known not to be trained.
    labels: Vec<Option<&'static str>>,
}

/// What became of the outputs.
#[derive(Default)]
pub(super) struct Shared {
    /// The heads that have theirs by their labels.
    pub by_label: Vec<String>,
    /// Labels that there is no output for.
    pub unknown: Vec<String>,
    /// The classifier's tensors, where no head has outputs of theirs.
    pub unused: Vec<String>,
}

impl Outputs {
    /// Those of `weights`, where they are such a model's.
    pub fn of(weights: &Weights) -> Option<Self> {
        let ending = |name: &str, shape: &[usize]| {
            let fits = |tensor: &&NamedTensor| tensor.name.ends_with(name) && tensor.shape == shape;
            weights.tensors.iter().find(fits)
        };
        let thresholds = ending(THRESHOLDS, &[LABELS.len()]);
        let bias = ending("classifier.bias", &[LABELS.len()])?;
        if thresholds.is_none() && !weights.torchxrayvision {
            return None;
        }
        let trained = |at: usize| thresholds.is_none_or(|tensor| !tensor.data[at].is_nan());
        let labels = LABELS.iter().enumerate();
        Some(Self {
            prefix: bias.name.strip_suffix("classifier.bias")?.to_owned(),
            labels: labels.map(|(at, label)| trained(at).then_some(*label)).collect(),
        })
    }

    /// Gives each head that is one linear layer the outputs of its labels, in place of the file's
    /// classifier, whose outputs nothing else has a use for.
    pub fn share_out(&self, tensors: &mut Vec<NamedTensor>, heads: &[HeadConfig]) -> Shared {
        let classifier = format!("{}classifier.", self.prefix);
        let mut shared = Shared::default();
        let of_all: Vec<NamedTensor> =
            tensors.extract_if(.., |tensor| tensor.name.starts_with(&classifier)).collect();
        for head in heads.iter().filter(|head| is_linear(head)) {
            let rows: Vec<Option<usize>> =
                head.labels.iter().map(|label| self.place(label)).collect();
            let lacking = head.labels.iter().zip(&rows).filter(|(_, row)| row.is_none());
            shared.unknown.extend(lacking.map(|(label, _)| label.clone()));
            let Some(rows) = rows.into_iter().collect::<Option<Vec<usize>>>() else { continue };
            let of_head = |tensor| rows_of(tensor, &rows, &classifier, &head.name);
            tensors.extend(of_all.iter().map(of_head));
            shared.by_label.push(head.name.clone());
        }
        if shared.by_label.is_empty() {
            shared.unused = of_all.into_iter().map(|tensor| tensor.name).collect();
        }
        shared
    }

    /// Which output is that of a label.
    fn place(&self, label: &str) -> Option<usize> {
        let wanted = plain(label);
        self.labels.iter().position(|label| label.is_some_and(|label| plain(label) == wanted))
    }
}

/// Whether torchxrayvision's outputs may be those of the head: logits, each of a label of its own.
fn is_linear(head: &HeadConfig) -> bool {
    matches!(head.task, Task::Multilabel | Task::Binary) && head.hidden.is_empty() && !head.direct
}

/// A label as data sets differ in writing it: CheXpert's `Pleural Effusion` is `Effusion`.
fn plain(label: &str) -> String {
    let plain = label.trim().to_lowercase().replace('_', " ");
    if plain == "pleural effusion" { "effusion".to_owned() } else { plain }
}

/// Some rows of a classifier's weight or bias, as those of a head.
fn rows_of(tensor: &NamedTensor, rows: &[usize], classifier: &str, head: &str) -> NamedTensor {
    let width = tensor.shape[1..].iter().product::<usize>();
    let data = rows.iter().flat_map(|row| &tensor.data[row * width..(row + 1) * width]);
    let of = &tensor.name[classifier.len()..];
    NamedTensor {
        name: format!("{classifier}{head}.{of}"),
        shape: [&[rows.len()], &tensor.shape[1..]].concat(),
        data: data.copied().collect(),
    }
}
