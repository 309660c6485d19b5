//! From predictions to an evaluation.

use std::collections::{BTreeMap, BTreeSet};

use super::bootstrap::{Basis, freedom_of_classes, freedom_of_mean, ranges};
use super::confusion::share;
use super::jackknife;
use super::{
    AurocMethod, Calibration, Confusion, ConfusionMatrix, Criterion, Delong, Estimate, Fitted,
    FittedHead, FittedPoint, Group, HeadEvaluation, MetricTable, PointEvaluation, Reliability,
    Settings, SubgroupEvaluation, Undefined, brier, multiclass_brier, part,
};
use crate::metric::ranking::Ranking;
use crate::metric::{Example, HeadPredictions, Link, Resampler, auprc, auroc};
use crate::model::Task;

/// Evaluates heads by name. `patients` holds the number of each image's patient; `fitted` is what was
/// fitted on other images, without which probabilities stay as they are and decisions are made at 0.5.
///
/// # Panics
/// If a head has not as many images as `patients`.
pub fn evaluate(
    heads: &BTreeMap<String, HeadPredictions>,
    patients: &[usize],
    fitted: Option<&Fitted>,
    settings: &Settings,
) -> BTreeMap<String, HeadEvaluation> {
    let of = |name: &String| fitted.and_then(|fitted| fitted.heads.get(name));
    let evaluated = |(name, head): (&String, &HeadPredictions)| {
        (name.clone(), Head::new(head, patients, of(name), settings).evaluate())
    };
    heads.iter().map(evaluated).collect()
}

/// The same for each group of images by itself.
///
/// # Panics
/// As [`evaluate`], or if a group has an image beyond the others.
pub fn evaluate_subgroups(
    heads: &BTreeMap<String, HeadPredictions>,
    patients: &[usize],
    groups: &[Group],
    fitted: Option<&Fitted>,
    settings: &Settings,
) -> Vec<SubgroupEvaluation> {
    let evaluated = |group: &Group| {
        let of_group: Vec<usize> = group.images.iter().map(|&image| patients[image]).collect();
        let heads = heads.iter().map(|(name, head)| (name.clone(), part(head, &group.images)));
        SubgroupEvaluation {
            group: group.name.clone(),
            images: group.images.len(),
            patients: distinct(&of_group),
            heads: evaluate(&heads.collect(), &of_group, fitted, settings),
        }
    };
    groups.iter().map(evaluated).collect()
}

fn distinct(patients: &[usize]) -> usize {
    patients.iter().collect::<BTreeSet<_>>().len()
}

/// A head's predictions with all that its metrics need.
pub(super) struct Head<'a> {
    pub predictions: &'a HeadPredictions,
    pub patients: &'a [usize],
    fitted: Option<&'a FittedHead>,
    settings: &'a Settings,
    pub resampler: Resampler,
    /// `[images, labels]`, calibrated.
    pub probabilities: Vec<f64>,
}

impl<'a> Head<'a> {
    fn new(
        predictions: &'a HeadPredictions,
        patients: &'a [usize],
        fitted: Option<&'a FittedHead>,
        settings: &'a Settings,
    ) -> Self {
        let resampler = Resampler::new(predictions.images(), Some(patients), settings.seed);
        let calibration = fitted.and_then(|fitted| fitted.calibration.as_ref());
        let HeadPredictions { task, labels, outputs, .. } = predictions;
        let probabilities = Calibration::probabilities(calibration, *task, labels, outputs);
        Self { predictions, patients, fitted, settings, resampler, probabilities }
    }

    fn evaluate(&self) -> HeadEvaluation {
        let mut found = HeadEvaluation {
            task: self.predictions.task,
            images: self.predictions.images(),
            patients: distinct(self.patients),
            auroc: None,
            auprc: None,
            ece: None,
            brier: None,
            reliability: BTreeMap::new(),
            operating_points: BTreeMap::new(),
            accuracy: None,
            confusion_matrix: None,
            mae: None,
            rmse: None,
            r2: None,
        };
        if self.predictions.task == Task::Regression {
            self.regression(&mut found);
            return found;
        }
        let examples = self.predictions.examples();
        self.ranking(&mut found, &examples);
        if self.predictions.task == Task::Multiclass {
            self.classes(&mut found);
        } else {
            self.labels(&mut found, &examples);
        }
        found
    }

    /// AUROC and AUPRC, which calibration does not change.
    fn ranking(&self, found: &mut HeadEvaluation, examples: &[Vec<Example>]) {
        // A label without finite scores has no ranking: an empty one, undefined in every resample.
        let ranking = |label: &Vec<Example>| Ranking::new(label).unwrap_or_default();
        let rankings: Vec<Ranking> = examples.iter().map(ranking).collect();
        let delong: Vec<Result<Delong, Undefined>> =
            examples.iter().map(|e| self.delong(e)).collect();
        let auprc_of = |label: usize, times: &[u64]| {
            auprc::of_groups(&rankings[label].tied(|image| times[image]))
        };
        let auroc_of = |label: usize, times: &[u64]| {
            auroc::of_groups(&rankings[label].tied(|image| times[image]))
        };
        let once = vec![1; self.predictions.images()];
        let value = |label: usize, metric: &dyn Fn(usize, &[u64]) -> Option<f64>| {
            let defined = delong[label].as_ref().map_err(|reason| *reason);
            defined.and_then(|_| metric(label, &once).ok_or(Undefined::NoKnownLabel))
        };
        let auprc: Vec<Result<f64, Undefined>> =
            (0..examples.len()).map(|label| value(label, &auprc_of)).collect();
        let freedom = |label: &Vec<Example>| {
            freedom_of_classes(&self.resampler, label.iter().map(|one| (one.image, one.positive)))
        };
        let freedom: Vec<Result<f64, Undefined>> = examples.iter().map(freedom).collect();
        let mut table = self.bootstrapped(auprc.clone(), Link::Logit, &freedom, auprc_of);
        for (place, (label, area)) in self.predictions.labels.iter().zip(&auprc).enumerate() {
            if let Some(range) = self.of_few_positives(*area, freedom[place], &examples[place]) {
                let estimate = Estimate::new(*area, Ok(range));
                table.labels.insert(label.clone(), estimate);
                if auprc.len() == 1 {
                    table = MetricTable::new(estimate, table.labels);
                }
            }
        }
        // A mean spreads less than its labels but is as much too high: resamples hide a part of that.
        if freedom.iter().flatten().count() > 1 {
            let basis = Basis { link: Link::Logit, freedom: freedom_of_mean(&freedom) };
            let labels = 0..examples.len();
            let range = jackknife::range(&self.resampler, basis, |times| {
                crate::metric::mean(labels.clone().filter_map(|label| auprc_of(label, times)))
            });
            table = MetricTable::new(Estimate::new(mean(&auprc), range), table.labels);
        }
        found.auprc = Some(table);
        // To the last digit those that training tells, which DeLong's sums are not.
        let areas: Vec<Result<f64, Undefined>> =
            (0..examples.len()).map(|label| value(label, &auroc_of)).collect();
        let mut table = self.bootstrapped(areas.clone(), Link::Logit, &freedom, auroc_of);
        if self.settings.auroc != AurocMethod::Bootstrap {
            let labels = self.predictions.labels.iter().zip(areas);
            for ((label, area), delong) in labels.zip(delong) {
                let range = delong.and_then(|delong| delong.range(self.settings.scale));
                table.labels.insert(label.clone(), Estimate::new(area, range));
            }
        }
        found.auroc = Some(table);
    }

    fn delong(&self, examples: &[Example]) -> Result<Delong, Undefined> {
        let scores: Vec<f64> = examples.iter().map(|example| example.score).collect();
        let positive: Vec<bool> = examples.iter().map(|example| example.positive).collect();
        let patients: Vec<usize> = examples.iter().map(|one| self.patients[one.image]).collect();
        let clustered = self.settings.auroc == AurocMethod::ClusteredDelong;
        Delong::new(&scores, &positive, clustered.then_some(&patients))
    }

    /// Calibration and decisions of labels that are each there or not.
    fn labels(&self, found: &mut HeadEvaluation, examples: &[Vec<Example>]) {
        let (mut errors, mut scores) = (Vec::new(), Vec::new());
        for (place, label) in self.predictions.labels.iter().enumerate() {
            let width = self.predictions.labels.len();
            let (probabilities, positive): (Vec<f64>, Vec<bool>) = examples[place]
                .iter()
                .map(|one| (self.probabilities[one.image * width + place], one.positive))
                .unzip();
            let curve = Reliability::new(&probabilities, &positive, self.settings.bins);
            errors.push(curve.as_ref().map(Reliability::ece).map_err(|reason| *reason));
            found.reliability.extend(curve.ok().map(|curve| (label.clone(), curve)));
            scores.push(brier(&probabilities, &positive));
            let points = self.points(label).into_iter();
            let evaluated = points.map(|point| {
                (point.criterion.name(), evaluated(&point, &probabilities, &positive))
            });
            found.operating_points.insert(label.clone(), evaluated.collect());
        }
        found.ece = Some(self.without_ranges(&errors));
        found.brier = Some(self.without_ranges(&scores));
    }

    /// The label's fitted points; 0.5 where nothing was fitted.
    fn points(&self, label: &str) -> Vec<FittedPoint> {
        let fitted = self.fitted.and_then(|fitted| fitted.operating_points.get(label));
        fitted.cloned().unwrap_or_else(|| {
            let criterion = Criterion::Threshold(0.5);
            vec![FittedPoint { criterion, threshold: Some(0.5), undefined: None }]
        })
    }

    /// Calibration and decisions of classes of which one is true.
    fn classes(&self, found: &mut HeadEvaluation) {
        let classes = self.predictions.labels.len();
        let targets = &self.predictions.targets;
        let known = (0..self.predictions.images()).filter(|&image| targets.mask[image] != 0.0);
        let (mut rows, mut decided, mut truth) = (Vec::new(), Vec::new(), Vec::new());
        for image in known {
            let row = &self.probabilities[image * classes..(image + 1) * classes];
            // By the outputs, which do not round to the same 1; of equal ones the first.
            let outputs = &self.predictions.outputs[image * classes..(image + 1) * classes];
            let above = |best, class| if outputs[class] > outputs[best] { class } else { best };
            decided.push((0..classes).fold(0, above));
            truth.push(targets.values[image] as usize);
            rows.extend_from_slice(row);
        }
        let confidence: Vec<f64> =
            decided.iter().zip(rows.chunks_exact(classes.max(1))).map(|(&c, row)| row[c]).collect();
        let right: Vec<bool> = decided.iter().zip(&truth).map(|(a, b)| a == b).collect();
        let curve = Reliability::new(&confidence, &right, self.settings.bins);
        let error = curve.as_ref().map(Reliability::ece).map_err(|reason| *reason);
        let alone = |value| MetricTable::new(Estimate::without_range(value), BTreeMap::new());
        found.ece = Some(alone(error));
        found.brier = Some(alone(multiclass_brier(&rows, &truth)));
        let broken = error == Err(Undefined::NotFinite);
        found.reliability.extend(curve.ok().map(|curve| ("top-1".to_owned(), curve)));
        if broken {
            found.accuracy = Some(Estimate::without_range(Err(Undefined::NotFinite)));
            return;
        }
        let right = right.iter().filter(|&&right| right).count();
        found.accuracy = Some(share(right, truth.len(), "known"));
        let images = decided.into_iter().zip(truth);
        found.confusion_matrix = Some(ConfusionMatrix::count(&self.predictions.labels, images));
    }

    /// The table of a metric with intervals by the bootstrap over patients, whose degrees of freedom are told for each
    /// label. `metric` gives that of a label in a resample, told how often each image occurs.
    pub fn bootstrapped(
        &self,
        values: Vec<Result<f64, Undefined>>,
        link: Link,
        freedom: &[Result<f64, Undefined>],
        metric: impl Fn(usize, &[u64]) -> Option<f64> + Sync,
    ) -> MetricTable {
        let count = values.len();
        let all = freedom.iter().copied().chain([freedom_of_mean(freedom)]);
        let bases: Vec<Basis> = all.map(|freedom| Basis { link, freedom }).collect();
        let mut found = ranges(&self.resampler, self.settings.resamples, &bases, |times| {
            let mut all: Vec<Option<f64>> = (0..count).map(|label| metric(label, times)).collect();
            all.push(crate::metric::mean(all.iter().flatten().copied()));
            all
        });
        let of_mean = found.pop().unwrap_or(Err(Undefined::EveryResample));
        let mean = Estimate::new(mean(&values), of_mean);
        let estimates =
            values.into_iter().zip(found).map(|(value, range)| Estimate::new(value, range));
        let labels = self.predictions.labels.iter().cloned().zip(estimates).collect();
        MetricTable::new(mean, labels)
    }

    fn without_ranges(&self, values: &[Result<f64, Undefined>]) -> MetricTable {
        let estimates = values.iter().map(|&value| Estimate::without_range(value));
        let labels = self.predictions.labels.iter().cloned().zip(estimates).collect();
        MetricTable::new(Estimate::without_range(mean(values)), labels)
    }
}

/// The mean over the labels that have a value. A label whose outputs are no numbers undoes it, as in
/// [`crate::metric`].
pub(super) fn mean(values: &[Result<f64, Undefined>]) -> Result<f64, Undefined> {
    if values.contains(&Err(Undefined::NotFinite)) {
        return Err(Undefined::NotFinite);
    }
    let defined = values.iter().filter_map(|value| value.ok());
    let first = values.first().and_then(|value| value.err());
    let alike = first.filter(|first| values.iter().all(|value| *value == Err(*first)));
    crate::metric::mean(defined).ok_or(alike.unwrap_or(Undefined::EveryLabel))
}

fn evaluated(point: &FittedPoint, probabilities: &[f64], positive: &[bool]) -> PointEvaluation {
    let confusion = point.threshold.map(|cut| Confusion::at(cut, probabilities, positive));
    let reason = confusion.and_then(Result::err).map(|reason| reason.to_string());
    let confusion = confusion.and_then(Result::ok);
    PointEvaluation {
        threshold: point.threshold,
        undefined: point.undefined.clone().or(reason),
        confusion,
        measures: confusion.map(|confusion| confusion.measures()),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
