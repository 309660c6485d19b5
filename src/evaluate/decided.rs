//! From a model's outputs to what people are told: calibrated probabilities and decisions.

use super::table::row;
use super::{
    Decider, Fitted, FittedHead, Measured, MeasuredTable, PredictedLabel, Prediction,
    PredictionHeader, PredictionTable,
};
use crate::metric::HeadPredictions;
use crate::model::Task;

impl PredictionTable {
    /// Calibrated probabilities beside the truth, as `fitted` says; without it probabilities stay as the
    /// model gives them.
    pub fn measured(&self, fitted: Option<&Fitted>) -> MeasuredTable {
        let heads = self.heads.iter().map(|(name, head)| {
            let fitted = fitted.and_then(|fitted| fitted.heads.get(name));
            let labels = (0..self.images()).flat_map(|image| row(head, image));
            let measured = Measured {
                task: head.task,
                labels: head.labels.clone(),
                values: Decider::first(head.task, &head.labels, fitted)
                    .probabilities(&head.outputs),
                truth: labels.map(|label| label.truth).collect(),
            };
            (name.clone(), measured)
        });
        let heads = heads.collect();
        MeasuredTable { paths: self.paths.clone(), patients: self.patients.clone(), heads }
    }

    /// The rows of a table for people, and its header: calibrated probabilities (or numbers), the
    /// decision at the first fitted threshold of each label (at 0.5 where nothing was fitted; of classes
    /// the one with the greatest output), and the truth where `with_truth` is set.
    pub fn decided(
        &self,
        fitted: Option<&Fitted>,
        with_truth: bool,
    ) -> (PredictionHeader, Vec<Prediction>) {
        let mut header = self.header();
        for column in &mut header.labels {
            let task = self.heads.get(&column.head).map(|head| head.task);
            column.decision = task != Some(Task::Regression);
            column.truth = with_truth;
        }
        let heads: Vec<Decided> = self
            .heads
            .iter()
            .map(|(name, head)| Decided::new(head, fitted.and_then(|of| of.heads.get(name))))
            .collect();
        let rows = (0..self.images()).map(|image| Prediction {
            path: self.paths[image].clone(),
            patient: self.patients[image].clone(),
            told: Ok(heads.iter().flat_map(|head| head.row(image, with_truth)).collect()),
        });
        (header, rows.collect())
    }
}

/// A head and what its decisions are made by.
struct Decided<'a> {
    head: &'a HeadPredictions,
    decider: Decider,
}

impl<'a> Decided<'a> {
    fn new(head: &'a HeadPredictions, fitted: Option<&FittedHead>) -> Self {
        Self { head, decider: Decider::first(head.task, &head.labels, fitted) }
    }

    /// What is told of an image.
    fn row(&self, image: usize, with_truth: bool) -> Vec<PredictedLabel> {
        let labels = self.head.labels.len();
        let told = self.decider.told(&self.head.outputs[image * labels..(image + 1) * labels]);
        let truth = row(self.head, image).into_iter().map(|label| label.truth);
        let told = truth.zip(told).map(|(truth, (value, decision))| PredictedLabel {
            value,
            decision,
            truth: truth.filter(|_| with_truth),
            ..Default::default()
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::data::Targets;
    use crate::evaluate::{CalibrationMethod, Criterion};

    fn table() -> PredictionTable {
        let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect();
        let findings = HeadPredictions {
            task: Task::Multilabel,
            labels: labels(&["Edema", "Rare"]),
            outputs: vec![2.0, 0.3, -1.0, -0.2, 0.5, 0.1, -3.0, 0.0],
            targets: Targets {
                values: vec![1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0],
                mask: vec![1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0],
                width: 2,
            },
        };
        let view = HeadPredictions {
            task: Task::Multiclass,
            labels: labels(&["PA", "AP"]),
            outputs: vec![1.0, 0.0, 0.0, 0.0, -1.0, 2.0, 0.5, 0.6],
            targets: Targets { values: vec![0.0, 1.0, 1.0, 0.0], mask: vec![1.0; 4], width: 1 },
        };
        PredictionTable {
            paths: labels(&["a", "b", "c", "d"]),
            patients: labels(&["p", "p", "q", "r"]),
            heads: BTreeMap::from([("findings".to_owned(), findings), ("view".to_owned(), view)]),
        }
    }

    #[test]
    fn decisions_follow_the_first_threshold_and_the_greatest_class() {
        let table = table();
        let criteria = [Criterion::Sensitivity(1.0), Criterion::Youden];
        let fit = |head| FittedHead::fit(head, Some(CalibrationMethod::Temperature), &criteria);
        let fitted = table.heads.iter().map(|(name, head)| (name.clone(), fit(head)));
        let fitted = Fitted::new(fitted.collect());
        let (header, rows) = table.decided(Some(&fitted), true);
        assert!(header.labels.iter().all(|column| column.decision && column.truth));
        let decided = |place: usize| rows.iter().map(|row| row.labels()[place].decision).collect();
        let edema: Vec<Option<bool>> = decided(0);
        let threshold = fitted.heads["findings"].operating_points["Edema"][0].threshold;
        let expected = rows.iter().map(|row| threshold.map(|cut| row.labels()[0].value >= cut));
        assert_eq!(edema, expected.collect::<Vec<_>>());
        assert_eq!(edema, [Some(true); 4], "all are needed for a sensitivity of 1");
        // A label of one class has no threshold, and so no decision.
        assert_eq!(decided(1), [None; 4] as [Option<bool>; 4]);
        assert_eq!(decided(2), [Some(true), Some(true), Some(false), Some(false)]);
        let measured = table.measured(Some(&fitted));
        let values: Vec<f64> = rows
            .iter()
            .flat_map(|row| [row.labels()[0], row.labels()[1]])
            .map(|label| label.value)
            .collect();
        assert_eq!(measured.heads["findings"].values, values);
        assert_eq!(measured.heads["findings"].truth[..2], [Some(1.0), None]);
    }

    #[test]
    fn where_nothing_was_fitted_the_threshold_is_one_half() {
        let (header, rows) = table().decided(None, false);
        assert!(header.labels.iter().all(|column| !column.truth));
        for label in rows.iter().flat_map(|row| &row.labels()[..2]) {
            assert_eq!((label.decision, label.truth), (Some(label.value >= 0.5), None));
        }
    }
}
