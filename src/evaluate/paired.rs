//! By how much two models differ on the same images, metric by metric.
//!
//! The AUROCs of a label are compared by DeLong's paired test, in the form that the settings name; all
//! else by the paired bootstrap over patients, which takes both models over the same resamples.

use std::collections::BTreeMap;

use serde::Serialize;

use super::bootstrap::{Form, difference, form_of_mean, freedom_of_classes, freedom_of_images};
use super::few_positives::effective;
use super::midranks::midranks;
use super::repeated::{ClassMetric, ErrorMetric, class_brier, mae, r2, right, rmse, squared};
use super::{AurocMethod, Measured, Settings, Undefined, compare};
use crate::metric::ranking::{Ranking, Tied};
use crate::metric::{Example, Resampler, auprc, auroc};
use crate::model::Task;

/// Two heads that predict the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeadComparison {
    /// What their outputs mean.
    pub task: Task,
    /// By the name of the metric, such as `auroc`.
    pub metrics: BTreeMap<&'static str, ComparisonTable>,
}

/// A metric of both.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparisonTable {
    /// That of the head: the mean over the labels that have a value for both.
    pub mean: MetricComparison,
    /// By label; none where the metric is the head's alone.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, MetricComparison>,
}

/// One value of each, and how far the difference may be off.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MetricComparison {
    /// The first model's.
    pub first: Option<f64>,
    /// The second's.
    pub second: Option<f64>,
    /// The second's less the first's.
    pub difference: Option<f64>,
    /// The lower end of the difference's 95% interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// How likely a difference as great as this is, either way, between models that are equally good.
    pub p_value: Option<f64>,
    /// Why something is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undefined: Option<Undefined>,
}

/// Two heads that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// They predict different things.
    #[error("they predict different labels")]
    OtherLabels,
    /// The truth is told in two ways.
    #[error("the truth about `{label}` in image number {} is another in each", image + 1)]
    OtherTruth {
        /// The label.
        label: String,
        /// The image, from 0.
        image: usize,
    },
}

/// Compares two heads on the same images, the `second` with the `first`. `patients` holds the number of
/// each image's patient. Where only one of the two tells the truth about an image, it holds for both.
///
/// # Errors
/// Heads with different tasks, labels or truths.
///
/// # Panics
/// If the images are not as many as there are patients.
pub fn compare_heads(
    first: &Measured,
    second: &Measured,
    patients: &[usize],
    settings: &Settings,
) -> Result<HeadComparison, PairError> {
    if first.task != second.task || first.labels != second.labels {
        return Err(PairError::OtherLabels);
    }
    let labels = first.labels.len();
    assert_eq!(first.values.len(), patients.len() * labels, "a value for each image and label");
    assert_eq!(first.values.len(), second.values.len(), "the same images");
    let truth = first.truth.iter().zip(&second.truth).enumerate();
    let truth = truth.map(|(place, (&one, &other))| match (one, other) {
        (Some(one), Some(other)) if one != other => {
            let label = first.labels[place % labels].clone();
            Err(PairError::OtherTruth { label, image: place / labels })
        }
        _ => Ok(one.or(other)),
    });
    let truth = truth.collect::<Result<_, _>>()?;
    let resampler = Resampler::new(patients.len(), Some(patients), settings.seed);
    let pair = Pair { models: [first, second], truth, patients, settings, resampler };
    Ok(HeadComparison { task: first.task, metrics: pair.metrics() })
}

/// Two models and what is true of the images.
struct Pair<'a> {
    models: [&'a Measured; 2],
    truth: Vec<Option<f64>>,
    patients: &'a [usize],
    settings: &'a Settings,
    resampler: Resampler,
}

/// The values that a metric has for a model, label by label, told how often each image occurs.
type Metric<'a> = Box<dyn Fn(usize, &[u64]) -> Option<f64> + Sync + 'a>;

impl Pair<'_> {
    fn metrics(&self) -> BTreeMap<&'static str, ComparisonTable> {
        let mut found = BTreeMap::new();
        if self.models[0].task == Task::Regression {
            for (name, of) in [("mae", mae as ErrorMetric), ("rmse", rmse), ("r2", r2)] {
                let form = |label| self.freedom(label).map(|_| Form::StudentOfJackknife);
                found.insert(name, self.by_label(|model| self.of_errors(model, of), form));
            }
            return found;
        }
        let form = |label| self.freedom_of_ranks(label).map(|_| Form::Quantiles);
        let mut areas = self.by_label(|model| self.of_ranking(model, auroc::of_groups), form);
        if self.settings.auroc != AurocMethod::Bootstrap {
            for (place, label) in self.models[0].labels.iter().enumerate() {
                areas.labels.insert(label.clone(), self.delong(place));
            }
            if let [label] = &self.models[0].labels[..] {
                areas.mean = areas.labels[label];
            }
        }
        found.insert("auroc", areas);
        let of_areas = |label| self.form_of_areas(label);
        let areas = self.by_label(|model| self.of_ranking(model, auprc::of_groups), of_areas);
        found.insert("auprc", areas);
        if self.models[0].task == Task::Multiclass {
            for (name, of) in [("accuracy", right as ClassMetric), ("brier", class_brier)] {
                let metrics = self.models.map(|model| self.of_classes(model, of));
                let form = self.freedom(0).map(Form::Student);
                let mean = self.bootstrapped(form, |model, times| metrics[model](times));
                found.insert(name, ComparisonTable { mean, labels: BTreeMap::new() });
            }
            return found;
        }
        let form = |label| self.freedom(label).map(Form::Student);
        found.insert("brier", self.by_label(|model| self.of_errors(model, squared), form));
        let bins = self.settings.bins;
        found.insert("ece", self.by_label(|model| self.calibration_error(model, bins), form));
        found
    }

    /// The images whose truth about a label is known: their number, the model's value and the truth.
    fn known<'a>(
        &'a self,
        model: &'a Measured,
        label: usize,
    ) -> impl Iterator<Item = (usize, f64, f64)> + 'a {
        let labels = model.labels.len();
        (0..self.patients.len()).filter_map(move |image| {
            let place = image * labels + label;
            Some((image, model.values[place], self.truth[place]?))
        })
    }

    /// The degrees of freedom of a metric of the images whose truth about a label is known.
    fn freedom(&self, label: usize) -> Result<f64, Undefined> {
        let known = self.known(self.models[0], label).map(|(image, ..)| image);
        freedom_of_images(&self.resampler, known)
    }

    /// The same of one that ranks positives above negatives.
    fn freedom_of_ranks(&self, label: usize) -> Result<f64, Undefined> {
        let known = self.known(self.models[0], label);
        let images: Vec<(usize, bool)> =
            known.map(|(image, _, truth)| (image, truth >= 0.5)).collect();
        freedom_of_classes(&self.resampler, images.into_iter())
    }

    /// The form of a difference of areas under precision over recall.
    fn form_of_areas(&self, label: usize) -> Result<Form, Undefined> {
        let freedom = self.freedom_of_ranks(label);
        let examples = self.models.map(|model| self.examples(model, label));
        let of = |positive: bool| {
            let examples = examples[0].iter().filter(move |one| one.positive == positive);
            examples.map(|one| one.image)
        };
        let alone = freedom == Err(Undefined::OneCluster { class: "positive" });
        let is_1 = |examples: &[Example]| area(examples, auprc::of_groups) == Some(1.0);
        let says_nothing = alone || freedom.is_ok() && examples.iter().all(|of| is_1(of));
        if says_nothing && self.resampler.groups_of(of(false)) > 1 && !rank_alike(&examples) {
            return Ok(Form::Areas(effective(&self.resampler, of(true))));
        }
        freedom.map(|_| Form::Quantiles)
    }

    fn examples(&self, model: &Measured, label: usize) -> Vec<Example> {
        let known = self.known(model, label);
        let example = |(image, score, truth): (usize, f64, f64)| Example {
            image,
            score,
            predicted: score >= 0.5,
            positive: truth >= 0.5,
        };
        known.map(example).collect()
    }

    fn of_ranking<'a>(&self, model: &Measured, of: fn(&[Tied]) -> Option<f64>) -> Metric<'a> {
        let rankings = (0..model.labels.len()).map(|label| {
            let examples = self.examples(model, label);
            let positives = examples.iter().filter(|example| example.positive).count();
            // As in an evaluation, nothing ranks where there is one class only.
            let both = positives > 0 && positives < examples.len();
            Ranking::new(&examples).filter(|_| both).unwrap_or_default()
        });
        let rankings: Vec<Ranking> = rankings.collect();
        Box::new(move |label, times| of(&rankings[label].tied(|image| times[image])))
    }

    fn of_errors<'a>(&self, model: &Measured, of: ErrorMetric) -> Metric<'a> {
        let known = (0..model.labels.len()).map(|label| self.known(model, label).collect());
        let known: Vec<Vec<(usize, f64, f64)>> = known.collect();
        Box::new(move |label, times| {
            let images = known[label].iter();
            let images = images.map(|&(image, value, truth)| (times[image] as f64, value, truth));
            of(&mut images.filter(|(times, _, _)| *times > 0.0))
        })
    }

    fn calibration_error<'a>(&self, model: &Measured, bins: usize) -> Metric<'a> {
        let ends: Vec<f64> = (1..bins).map(|bin| bin as f64 / bins as f64).collect();
        let binned = (0..model.labels.len()).map(|label| {
            let known = self.known(model, label);
            let bin = |value: f64| ends.partition_point(|end| *end <= value);
            let known = known.map(|(image, value, truth)| {
                (image, bin(value), value - f64::from(u8::from(truth >= 0.5)))
            });
            known.collect()
        });
        let binned: Vec<Vec<(usize, usize, f64)>> = binned.collect();
        Box::new(move |label, times| {
            let (mut gaps, mut images) = (vec![0.0; bins], 0.0);
            for &(image, bin, gap) in &binned[label] {
                gaps[bin] += times[image] as f64 * gap;
                images += times[image] as f64;
            }
            let gap = gaps.iter().map(|gap| gap.abs()).sum::<f64>() / images;
            (images > 0.0).then_some(gap)
        })
    }

    fn of_classes<'a>(
        &'a self,
        model: &'a Measured,
        of: ClassMetric,
    ) -> impl Fn(&[u64]) -> Option<f64> + Sync + 'a {
        let classes = model.labels.len();
        let known = (0..self.patients.len()).filter_map(|image| {
            let row = image * classes..(image + 1) * classes;
            let truth = self.truth[row.clone()].iter().position(|truth| *truth == Some(1.0))?;
            Some((image, of(&model.values[row], truth)))
        });
        let known: Vec<(usize, f64)> = known.collect();
        move |times| {
            let images: u64 = known.iter().map(|(image, _)| times[*image]).sum();
            let sum: f64 = known.iter().map(|(image, value)| times[*image] as f64 * value).sum();
            (images > 0).then(|| sum / images as f64)
        }
    }

    /// The table of a metric, that `of` gives for a model, with the form of each label's interval.
    fn by_label<'a>(
        &self,
        of: impl Fn(&Measured) -> Metric<'a>,
        form: impl Fn(usize) -> Result<Form, Undefined>,
    ) -> ComparisonTable {
        let metrics = self.models.map(of);
        let count = self.models[0].labels.len();
        let forms: Vec<Result<Form, Undefined>> = (0..count).map(form).collect();
        let labels = self.models[0].labels.iter().enumerate().map(|(place, label)| {
            let metric = |model: usize, times: &[u64]| metrics[model](place, times);
            (label.clone(), self.bootstrapped(forms[place], metric))
        });
        let labels = labels.collect();
        let mean = self.bootstrapped(form_of_mean(&forms), |model, times| {
            let both = (0..count).filter_map(|label| {
                let values = [metrics[0](label, times)?, metrics[1](label, times)?];
                Some(values[model])
            });
            crate::metric::mean(both)
        });
        ComparisonTable { mean, labels }
    }

    /// A metric of both models by number, over the images and over resamples of them.
    fn bootstrapped(
        &self,
        form: Result<Form, Undefined>,
        metric: impl Fn(usize, &[u64]) -> Option<f64> + Sync,
    ) -> MetricComparison {
        let once = vec![1; self.patients.len()];
        let [first, second] = [0, 1].map(|model| metric(model, &once));
        let Some(difference_) = second.zip(first).map(|(second, first)| second - first) else {
            return MetricComparison::undefined(first, second, Undefined::OneOfTwo);
        };
        let of = |model: usize| {
            let metric = &metric;
            move |times: &[u64]| metric(model, times)
        };
        let found = difference(&self.resampler, self.settings.resamples, form, of(1), of(0));
        MetricComparison {
            first,
            second,
            difference: Some(difference_),
            low: found.ok().map(|found| found.range.low),
            high: found.ok().map(|found| found.range.high),
            p_value: found.ok().map(|found| found.p_value),
            undefined: found.err(),
        }
    }

    /// The AUROCs of a label, by DeLong's test.
    fn delong(&self, label: usize) -> MetricComparison {
        let [first, second] = self.models.map(|model| self.examples(model, label));
        let scores = |of: &[Example]| of.iter().map(|one| one.score).collect::<Vec<f64>>();
        let positive: Vec<bool> = first.iter().map(|one| one.positive).collect();
        let patients: Vec<usize> = first.iter().map(|one| self.patients[one.image]).collect();
        let clustered = self.settings.auroc == AurocMethod::ClusteredDelong;
        let patients = clustered.then_some(&patients[..]);
        let [area_of_first, area_of_second] =
            [&first, &second].map(|examples| area(examples, auroc::of_groups));
        match compare(&scores(&second), &scores(&first), &positive, patients, self.settings.scale) {
            Ok(found) => MetricComparison {
                first: area_of_first,
                second: area_of_second,
                difference: area_of_second.zip(area_of_first).map(|(second, first)| second - first),
                low: Some(found.range.low),
                high: Some(found.range.high),
                p_value: Some(found.p_value),
                undefined: None,
            },
            // Models that rank all images alike.
            Err(Undefined::NoVariance) if area_of_first == area_of_second => MetricComparison {
                first: area_of_first,
                second: area_of_second,
                difference: Some(0.0),
                low: Some(0.0),
                high: Some(0.0),
                p_value: Some(1.0),
                undefined: None,
            },
            Err(reason) => MetricComparison::undefined(area_of_first, area_of_second, reason),
        }
    }
}

/// The area under a curve of these images.
fn area(examples: &[Example], of: fn(&[Tied]) -> Option<f64>) -> Option<f64> {
    of(&Ranking::new(examples)?.tied(|_| 1))
}

/// Whether two models rank the images alike.
fn rank_alike(examples: &[Vec<Example>; 2]) -> bool {
    let ranks = |of: &Vec<Example>| midranks(&of.iter().map(|one| one.score).collect::<Vec<f64>>());
    ranks(&examples[0]) == ranks(&examples[1])
}

impl MetricComparison {
    /// Two values, of which one may be missing, and no test of their difference.
    fn undefined(first: Option<f64>, second: Option<f64>, reason: Undefined) -> Self {
        let difference = second.zip(first).map(|(second, first)| second - first);
        let undefined = Some(reason);
        Self { first, second, difference, low: None, high: None, p_value: None, undefined }
    }
}

#[cfg(test)]
#[path = "paired_tests.rs"]
mod tests;
