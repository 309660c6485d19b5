//! What several models are decided by together.

use super::{EvaluateConfig, Fitted, FittedHead, FittedPoint, PredictionTable, ensemble};

/// What an ensemble's outputs, those of [`ensemble`], are calibrated and decided by.
#[derive(Debug, Clone, PartialEq)]
pub struct EnsembleFit {
    /// Calibration and thresholds; nothing where decisions are made at 0.5.
    pub fitted: Option<Fitted>,
    /// Where they are from.
    pub basis: EnsembleBasis,
    /// The ensemble's outputs for the validation images, where its members have the same ones.
    pub validation: Option<PredictionTable>,
}

/// Where calibration and thresholds of an ensemble are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsembleBasis {
    /// Fitted on the ensemble's own outputs for the validation images.
    Validation,
    /// The means of the members' thresholds, since the members have no validation images in common.
    Members,
    /// Nowhere: there is a member without thresholds.
    Nothing,
}

impl EnsembleBasis {
    /// What a person should know of it.
    pub fn warning(self) -> Option<&'static str> {
        match self {
            Self::Validation => None,
            Self::Members => Some(
                "the runs were not validated on the same images, so nothing is fitted for the ensemble: \
                 its probabilities are the mean of theirs, and its thresholds are the mean of theirs",
            ),
            Self::Nothing => Some(
                "not all runs have thresholds, so nothing is fitted for the ensemble: decisions are made \
                 at 0.5",
            ),
        }
    }
}

/// What the ensemble of `members` is calibrated and decided by: each has its outputs for its validation
/// images and what was fitted to them, where they are known. Where all were validated on the same
/// images, `config` is fitted on the ensemble's outputs for these; else a label is decided at the mean of
/// the members' thresholds, and not where one of them has none.
pub fn fit_ensemble(
    members: &[(Option<&PredictionTable>, Option<&Fitted>)],
    config: &EvaluateConfig,
) -> EnsembleFit {
    if let Some(validation) = same_validation(members) {
        let fitted = Some(config.fit(&validation));
        let validation = Some(validation);
        return EnsembleFit { fitted, basis: EnsembleBasis::Validation, validation };
    }
    let fitted: Option<Vec<&Fitted>> = members.iter().map(|(_, fitted)| *fitted).collect();
    let fitted = fitted.and_then(|fitted| mean_thresholds(&fitted));
    let basis = if fitted.is_some() { EnsembleBasis::Members } else { EnsembleBasis::Nothing };
    EnsembleFit { fitted, basis, validation: None }
}

/// The ensemble's outputs for the validation images, where all members have the same ones.
fn same_validation(
    members: &[(Option<&PredictionTable>, Option<&Fitted>)],
) -> Option<PredictionTable> {
    let tables = members.iter().map(|(validation, fitted)| Some(((*validation)?, *fitted)));
    let tables: Vec<_> = tables.collect::<Option<_>>()?;
    let together = ensemble(&tables)?;
    let same = tables.iter().all(|(table, _)| table.images() == together.images());
    same.then_some(together)
}

/// The means of the thresholds of the criteria that all members have, without a calibration, which each
/// member has had already.
fn mean_thresholds(members: &[&Fitted]) -> Option<Fitted> {
    let (first, others) = members.split_first()?;
    let mean = |head: &str, label: &str, point: &FittedPoint| {
        let of_other = |other: &&Fitted| {
            let points = other.heads.get(head)?.operating_points.get(label)?;
            points.iter().find(|of| of.criterion == point.criterion).map(|of| of.threshold)
        };
        let thresholds: Vec<Option<f64>> = others.iter().map(of_other).collect::<Option<_>>()?;
        let all = [point.threshold].into_iter().chain(thresholds);
        let threshold = all.sum::<Option<f64>>().map(|sum| sum / members.len() as f64);
        let undefined = threshold.is_none().then(|| "a run has no such threshold".to_owned());
        Some(FittedPoint { criterion: point.criterion, threshold, undefined })
    };
    let of_head = |(name, head): (&String, &FittedHead)| {
        let points = head.operating_points.iter().map(|(label, points)| {
            let points = points.iter().filter_map(|point| mean(name, label, point));
            (label.clone(), points.collect())
        });
        let head = FittedHead { operating_points: points.collect(), ..FittedHead::default() };
        (name.clone(), head)
    };
    Some(Fitted::new(first.heads.iter().map(of_head).collect()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::data::Targets;
    use crate::evaluate::Criterion;
    use crate::metric::HeadPredictions;
    use crate::model::Task;

    /// Outputs for these images, of which every second is positive.
    fn table(paths: &[&str], outputs: &[f32]) -> PredictionTable {
        let names: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        let values = (0..paths.len()).map(|image| (image % 2) as f32).collect();
        let targets = Targets { values, mask: vec![1.0; paths.len()], width: 1 };
        let labels = vec!["a".to_owned()];
        let outputs = outputs.to_vec();
        let head = HeadPredictions { task: Task::Binary, labels, outputs, targets };
        let heads = BTreeMap::from([("h".to_owned(), head)]);
        PredictionTable { paths: names.clone(), patients: names, heads }
    }

    fn thresholds(fit: &EnsembleFit) -> Vec<Option<f64>> {
        let points = &fit.fitted.as_ref().expect("is fitted").heads["h"].operating_points["a"];
        points.iter().map(|point| point.threshold).collect()
    }

    #[test]
    fn an_ensemble_is_fitted_on_its_own_outputs_where_all_were_validated_on_the_same_images() {
        let config = EvaluateConfig::default();
        let one = table(&["w", "x", "y", "z"], &[-2.0, 0.5, -0.5, 1.0]);
        // The same images in another order, so that the truth of each is the same.
        let other = table(&["y", "x", "w", "z"], &[0.25, 3.0, -1.0, 0.75]);
        let fits = [config.fit(&one), config.fit(&other)];
        let members = [(Some(&one), Some(&fits[0])), (Some(&other), Some(&fits[1]))];
        let found = fit_ensemble(&members, &config);
        assert_eq!(found.basis, EnsembleBasis::Validation);
        let pairs = [(&one, Some(&fits[0])), (&other, Some(&fits[1]))];
        let together = ensemble(&pairs).expect("the same heads");
        assert_eq!(found.fitted, Some(config.fit(&together)));
        assert_eq!(found.validation, Some(together), "it is what sets of decisions are fitted to");
        assert_eq!(found.basis.warning(), None);
    }

    #[test]
    fn where_validation_images_differ_thresholds_are_the_mean_of_the_members() {
        let config = EvaluateConfig::default();
        let point = |criterion, threshold| FittedPoint { criterion, threshold, undefined: None };
        let fitted = |points| {
            let operating_points = BTreeMap::from([("a".to_owned(), points)]);
            let head = FittedHead { operating_points, ..FittedHead::default() };
            Fitted::new(BTreeMap::from([("h".to_owned(), head)]))
        };
        let [youden, high] = [Criterion::Youden, Criterion::Sensitivity(0.9)];
        let half = Criterion::Threshold(0.5);
        let one =
            fitted(vec![point(youden, Some(0.25)), point(half, Some(0.5)), point(high, Some(0.1))]);
        let other = fitted(vec![point(high, None), point(youden, Some(0.75))]);
        let tables = [table(&["x", "y"], &[0.0, 1.0]), table(&["x", "z"], &[0.0, 1.0])];
        let members = [(Some(&tables[0]), Some(&one)), (Some(&tables[1]), Some(&other))];
        let found = fit_ensemble(&members, &config);
        assert_eq!(found.basis, EnsembleBasis::Members);
        assert_eq!(thresholds(&found), [Some(0.5), None], "of what both have");
        assert!(found.fitted.is_some_and(|fitted| fitted.heads["h"].calibration.is_none()));
        let lacking = fit_ensemble(&[members[0], (None, None)], &config);
        assert_eq!((lacking.fitted, lacking.basis), (None, EnsembleBasis::Nothing));
    }
}
