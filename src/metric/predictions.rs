//! A head's outputs over a whole data set, and what they are worth.

use std::collections::BTreeMap;

use super::accuracy::multiclass_accuracy;
use super::bootstrap::Resampler;
use super::interval::Interval;
use super::names::{CLASSIFICATION, Metric, REGRESSION, is_per_label};
use super::ranking::Ranking;
use super::{Example, mean};
use crate::data::Targets;
use crate::model::{HeadConfig, Task};
use crate::screen::counted;

/// The outputs and targets of one head, collected batch by batch.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadPredictions {
    /// What the outputs mean.
    pub task: Task,
    /// The labels or classes, in the order of the outputs.
    pub labels: Vec<String>,
    /// `[images, labels]`: logits, or numbers for `regression`.
    pub outputs: Vec<f32>,
    /// The truth about the same images.
    pub targets: Targets,
}

impl HeadPredictions {
    /// No predictions yet.
    pub fn new(head: &HeadConfig) -> Self {
        let width = if head.task == Task::Multiclass { 1 } else { head.labels.len() };
        Self {
            task: head.task,
            labels: head.labels.clone(),
            outputs: Vec::new(),
            targets: Targets { values: Vec::new(), mask: Vec::new(), width },
        }
    }

    /// Adds a batch: `outputs` is `[images, labels]`, row by row.
    pub fn extend(&mut self, outputs: &[f32], targets: &Targets) {
        debug_assert_eq!(targets.width, self.targets.width);
        debug_assert_eq!(outputs.len() * targets.width, targets.values.len() * self.labels.len());
        self.outputs.extend_from_slice(outputs);
        self.targets.values.extend_from_slice(&targets.values);
        self.targets.mask.extend_from_slice(&targets.mask);
    }

    /// How many images were added.
    pub fn images(&self) -> usize {
        self.targets.mask.len().checked_div(self.targets.width).unwrap_or(0)
    }

    /// Every metric of [`super::metric_names`]; `None` where it is undefined.
    ///
    /// Labels are decided at 0.5 of the sigmoid (a logit from 0 up is positive), classes by the
    /// greatest logit (the first of equal ones). AUROC, AUPRC and F1 of a class are one-versus-rest
    /// by its softmax. The head's own are unweighted means over labels or classes; its multiclass
    /// accuracy is that over images.
    pub fn metrics(&self) -> BTreeMap<String, Option<f64>> {
        let mut metrics = BTreeMap::new();
        if self.task == Task::Regression {
            let errors: Vec<Vec<f64>> = (0..self.labels.len()).map(|l| self.errors(l)).collect();
            for metric in REGRESSION {
                let values: Vec<Option<f64>> = errors.iter().map(|e| (metric.compute)(e)).collect();
                let broken = errors.iter().flatten().any(|error| !error.is_finite());
                self.insert(&mut metrics, metric.name, &values, head_mean(&values, broken));
            }
            return metrics;
        }
        let examples = self.examples();
        let broken = examples.iter().any(|label| is_broken(label));
        for Metric { name, compute, .. } in CLASSIFICATION {
            let of_label = |label: &Vec<Example>| compute(label).filter(|_| !is_broken(label));
            let values: Vec<Option<f64>> = examples.iter().map(of_label).collect();
            let of_head = if self.task == Task::Multiclass && name == "accuracy" {
                multiclass_accuracy(&examples).filter(|_| !broken)
            } else {
                head_mean(&values, broken)
            };
            self.insert(&mut metrics, name, &values, of_head);
        }
        metrics
    }

    /// The 95% interval of `auroc`, and of `auroc/<label>` where [`HeadPredictions::metrics`] has
    /// it, over `resamples` of the images. Images with the same number in `groups` (one for each
    /// image: its patient) are drawn together, since they are not independent. `None` where AUROC
    /// is undefined; nothing for `regression`. The same seed gives the same intervals.
    ///
    /// # Panics
    ///
    /// If `groups` is not as long as there are images.
    pub fn intervals(
        &self,
        seed: u64,
        resamples: usize,
        groups: Option<&[usize]>,
    ) -> BTreeMap<String, Option<Interval>> {
        let mut intervals = BTreeMap::new();
        if self.task == Task::Regression {
            return intervals;
        }
        let examples = self.examples();
        // A label without finite scores has no ranking: an empty one, undefined in every resample.
        let ranking = |label: &Vec<Example>| Ranking::new(label).unwrap_or_default();
        let rankings: Vec<Ranking> = examples.iter().map(ranking).collect();
        let found = Resampler::new(self.images(), groups, seed).auroc(&rankings, resamples);
        let broken = examples.iter().any(|label| is_broken(label));
        self.insert(&mut intervals, "auroc", &found.each, found.mean.filter(|_| !broken));
        intervals
    }

    /// Why those of `metrics`, which [`HeadPredictions::metrics`] gave, that are undefined are so.
    pub fn reasons(&self, metrics: &BTreeMap<String, Option<f64>>) -> BTreeMap<String, String> {
        let undefined = metrics.iter().filter(|(_, value)| value.is_none());
        let mut names = undefined.map(|(name, _)| name).peekable();
        if names.peek().is_none() {
            return BTreeMap::new();
        }
        let of_labels = self.label_reasons();
        let of_head = self.head_reason(&of_labels);
        names
            .map(|name| {
                let label = name.split_once('/').map(|(_, label)| label);
                let place = label.and_then(|label| self.labels.iter().position(|l| l == label));
                let reason = place.map_or(&of_head, |place| &of_labels[place].text);
                (name.clone(), reason.clone())
            })
            .collect()
    }

    /// Why a metric of each label would be undefined; whether it is, depends on the metric.
    fn label_reasons(&self) -> Vec<Reason> {
        if self.task == Task::Regression {
            let errors = (0..self.labels.len()).map(|label| self.errors(label));
            return errors
                .map(|errors| match errors.iter().all(|error| error.is_finite()) {
                    true => Reason::new("no known label"),
                    false => Reason::broken(),
                })
                .collect();
        }
        let reason = |examples: Vec<Example>| {
            let positives = examples.iter().filter(|example| example.positive).count();
            match examples.len() {
                0 => Reason::new("no known label"),
                _ if is_broken(&examples) => Reason::broken(),
                all => {
                    let positives = counted(positives, "positive", "positives");
                    Reason::new(format!("one class only: {positives} of {all}"))
                }
            }
        };
        self.examples().into_iter().map(reason).collect()
    }

    /// Why a mean over the labels is undefined.
    fn head_reason(&self, of_labels: &[Reason]) -> String {
        match (of_labels, of_labels.iter().find(|reason| reason.broken)) {
            ([only], _) | (_, Some(only)) => only.text.clone(),
            ([first, others @ ..], None) if others.iter().all(|other| other.text == first.text) => {
                first.text.clone()
            }
            _ => "undefined for every label".to_owned(),
        }
    }

    fn insert<T: Copy>(
        &self,
        into: &mut BTreeMap<String, Option<T>>,
        metric: &str,
        of_labels: &[Option<T>],
        of_head: Option<T>,
    ) {
        into.insert(metric.to_owned(), of_head);
        if is_per_label(self.task, self.labels.len(), metric) {
            for (label, value) in self.labels.iter().zip(of_labels) {
                into.insert(format!("{metric}/{label}"), *value);
            }
        }
    }

    /// The known labels of each label or class.
    ///
    /// The score is the logit, or the logarithm of the softmax for a `multiclass` head.
    pub(crate) fn examples(&self) -> Vec<Vec<Example>> {
        let mut examples = vec![Vec::new(); self.labels.len()];
        let width = self.targets.width;
        for (image, logits) in self.outputs.chunks_exact(self.labels.len().max(1)).enumerate() {
            let row = image * width..(image + 1) * width;
            let (targets, mask) = (&self.targets.values[row.clone()], &self.targets.mask[row]);
            if self.task == Task::Multiclass {
                if mask[0] != 0.0 {
                    let of_image = one_versus_rest(image, logits, targets[0] as usize);
                    examples.iter_mut().zip(of_image).for_each(|(all, one)| all.push(one));
                }
                continue;
            }
            for label in (0..width).filter(|&label| mask[label] != 0.0) {
                examples[label].push(Example {
                    image,
                    score: f64::from(logits[label]),
                    predicted: logits[label] >= 0.0,
                    positive: targets[label] >= 0.5,
                });
            }
        }
        examples
    }

    /// Output less target, of each image whose label is known.
    fn errors(&self, label: usize) -> Vec<f64> {
        let width = self.targets.width;
        (0..self.images())
            .map(|image| image * width + label)
            .filter(|&place| self.targets.mask[place] != 0.0)
            .map(|place| f64::from(self.outputs[place]) - f64::from(self.targets.values[place]))
            .collect()
    }
}

/// Why a metric of a label is undefined.
struct Reason {
    text: String,
    /// Whether the model failed to give a number, which undoes the head's metrics too.
    broken: bool,
}

impl Reason {
    fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), broken: false }
    }

    fn broken() -> Self {
        Self { text: "an output is NaN or infinite".to_owned(), broken: true }
    }
}

/// Whether the model failed to give a number.
fn is_broken(examples: &[Example]) -> bool {
    examples.iter().any(|example| !example.score.is_finite())
}

fn head_mean(of_labels: &[Option<f64>], broken: bool) -> Option<f64> {
    mean(of_labels.iter().flatten().copied()).filter(|_| !broken)
}

/// One image as an example of each class.
fn one_versus_rest(image: usize, logits: &[f32], truth: usize) -> Vec<Example> {
    let above = |best: usize, class: usize| if logits[class] > logits[best] { class } else { best };
    let decided = (0..logits.len()).fold(0, above);
    let scores = ln_softmax(logits).into_iter().enumerate();
    scores
        .map(|(class, score)| Example {
            image,
            score,
            predicted: class == decided,
            positive: class == truth,
        })
        .collect()
}

/// The logarithm of the softmax: ranks as the softmax does, without rounding confident images to
/// the same 1. All NaN if a logit is not finite.
fn ln_softmax(logits: &[f32]) -> Vec<f64> {
    if logits.iter().any(|logit| !logit.is_finite()) {
        return vec![f64::NAN; logits.len()];
    }
    let mut shifted: Vec<f64> = logits.iter().map(|&logit| f64::from(logit)).collect();
    // In ascending order, so that images whose logits are the same but for their order tie exactly.
    shifted.sort_unstable_by(f64::total_cmp);
    let Some((&greatest, others)) = shifted.split_last() else {
        return Vec::new();
    };
    let ln_sum = others.iter().map(|other| (other - greatest).exp()).sum::<f64>().ln_1p();
    logits.iter().map(|&logit| f64::from(logit) - greatest - ln_sum).collect()
}
