//! From a head's outputs to its probabilities and decisions, by what was fitted on validation.

use std::convert::Infallible;

use super::{Calibration, FittedHead, FittedPoint};
use crate::model::{HeadConfig, Task};

/// What is decided where no threshold was fitted.
const HALF: f64 = 0.5;

/// What turns a head's outputs into probabilities and decisions.
#[derive(Debug, Clone, PartialEq)]
pub struct Decider {
    task: Task,
    labels: Vec<String>,
    calibration: Option<Calibration>,
    /// One for each label; `None` where none is defined.
    thresholds: Vec<Option<f64>>,
}

/// An operating point that was not fitted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no operating point `{point}` was fitted for `{head}/{label}`{}", there_are(known))]
pub struct UnknownPoint {
    /// The point asked for.
    pub point: String,
    /// The head.
    pub head: String,
    /// The label.
    pub label: String,
    /// The points that there are.
    pub known: Vec<String>,
}

fn there_are(names: &[String]) -> String {
    match names.is_empty() {
        true => ": the saved state has none".to_owned(),
        false => format!(": there are `{}`", names.join("`, `")),
    }
}

impl Decider {
    /// For a head with what was `fitted` to it. Labels are decided at the fitted point called `point`
    /// ([`Criterion::name`](super::Criterion::name)), the first where none is asked for, and at 0.5
    /// where nothing was fitted.
    ///
    /// # Errors
    /// When the point asked for was not fitted.
    pub fn new(
        head: &HeadConfig,
        fitted: Option<&FittedHead>,
        point: Option<&str>,
    ) -> Result<Self, UnknownPoint> {
        let Some(wanted) = point else { return Ok(Self::first(head.task, &head.labels, fitted)) };
        Self::at(head.task, &head.labels, fitted, |label, points| {
            let found = points.iter().find(|point| point.criterion.name() == wanted);
            found.map(|found| found.threshold).ok_or_else(|| UnknownPoint {
                point: wanted.to_owned(),
                head: head.name.clone(),
                label: label.to_owned(),
                known: points.iter().map(|point| point.criterion.name()).collect(),
            })
        })
    }

    /// For a head of this task and these labels with what was `fitted` to it. Labels are decided at the
    /// first fitted point, and at 0.5 where nothing was fitted.
    pub fn first(task: Task, labels: &[String], fitted: Option<&FittedHead>) -> Self {
        let first = |_: &str, points: &[FittedPoint]| {
            Ok::<_, Infallible>(points.first().map_or(Some(HALF), |point| point.threshold))
        };
        let Ok(decider) = Self::at(task, labels, fitted, first);
        decider
    }

    /// With the threshold that `choose` takes of each label's points.
    fn at<E>(
        task: Task,
        labels: &[String],
        fitted: Option<&FittedHead>,
        choose: impl Fn(&str, &[FittedPoint]) -> Result<Option<f64>, E>,
    ) -> Result<Self, E> {
        let decides = matches!(task, Task::Multilabel | Task::Binary);
        let decided = if decides { labels } else { &[] };
        let threshold = |label: &String| {
            let points = fitted.and_then(|fitted| fitted.operating_points.get(label));
            choose(label, points.map_or(&[], Vec::as_slice))
        };
        Ok(Self {
            task,
            labels: labels.to_vec(),
            calibration: fitted.and_then(|fitted| fitted.calibration.clone()),
            thresholds: decided.iter().map(threshold).collect::<Result<_, _>>()?,
        })
    }

    /// The probabilities of `outputs`, `[images, labels]`; for `regression` the numbers themselves.
    pub fn probabilities(&self, outputs: &[f32]) -> Vec<f64> {
        Calibration::probabilities(self.calibration.as_ref(), self.task, &self.labels, outputs)
    }

    /// What is told of an image with these outputs: for each label its probability, and whether it is
    /// decided to be there. Of the classes of a `multiclass` head the one of the greatest output is
    /// (the first of equal ones). `None` where no threshold is defined, and for `regression`.
    pub fn told(&self, outputs: &[f32]) -> Vec<(f64, Option<bool>)> {
        let probabilities = self.probabilities(outputs);
        let decisions = match self.task {
            // By the outputs, which do not round to the same 1.
            Task::Multiclass => {
                let outputs: Vec<f64> = outputs.iter().map(|&output| f64::from(output)).collect();
                self.decisions(&outputs)
            }
            _ => self.decisions(&probabilities),
        };
        probabilities.into_iter().zip(decisions).collect()
    }

    fn decisions(&self, probabilities: &[f64]) -> Vec<Option<bool>> {
        match self.task {
            Task::Regression => vec![None; probabilities.len()],
            Task::Multiclass => {
                let above = |best: usize, class: usize| {
                    if probabilities[class] > probabilities[best] { class } else { best }
                };
                let decided = (0..probabilities.len()).fold(0, above);
                (0..probabilities.len()).map(|class| Some(class == decided)).collect()
            }
            Task::Multilabel | Task::Binary => {
                let decide = |(&probability, threshold): (&f64, &Option<f64>)| {
                    threshold.map(|threshold| probability >= threshold)
                };
                probabilities.iter().zip(&self.thresholds).map(decide).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Criterion;
    use super::*;

    fn head(task: Task) -> HeadConfig {
        let task = serde_json::to_value(task).expect("a task");
        let head = serde_json::json!({ "name": "findings", "task": task, "labels": ["a", "b"] });
        serde_json::from_value(head).expect("reads")
    }

    fn fitted(thresholds: [Option<f64>; 2]) -> FittedHead {
        let point = |threshold| FittedPoint {
            criterion: Criterion::Sensitivity(0.9),
            threshold,
            undefined: None,
        };
        let first =
            FittedPoint { criterion: Criterion::Youden, threshold: Some(0.3), undefined: None };
        let points = |threshold| vec![first.clone(), point(threshold)];
        let labels = ["a", "b"].into_iter().zip(thresholds);
        let operating_points =
            labels.map(|(label, threshold)| (label.to_owned(), points(threshold))).collect();
        FittedHead { operating_points, ..FittedHead::default() }
    }

    fn decided(decider: &Decider, probabilities: [f64; 2]) -> [Option<bool>; 2] {
        decider.decisions(&probabilities).try_into().expect("two labels")
    }

    #[test]
    fn labels_are_decided_at_the_point_asked_for_or_the_first_or_half() {
        let head = head(Task::Multilabel);
        let fitted = fitted([Some(0.6), None]);
        let new = |fitted, point| Decider::new(&head, fitted, point);
        let [yes, no] = [Some(true), Some(false)];
        let half = new(None, None).expect("decides");
        assert_eq!(decided(&half, [0.5, 0.4]), [yes, no]);
        let first = new(Some(&fitted), None).expect("decides");
        assert_eq!(decided(&first, [0.3, 0.29]), [yes, no]);
        let asked = new(Some(&fitted), Some("sensitivity_0.9")).expect("decides");
        assert_eq!(decided(&asked, [0.5, 0.9]), [no, None]);
        let unknown = new(Some(&fitted), Some("sensitivity_0.8")).expect_err("is not fitted");
        let told = "no operating point `sensitivity_0.8` was fitted for `findings/a`: there are \
                    `youden`, `sensitivity_0.9`";
        assert_eq!(unknown.to_string(), told);
        let none = new(None, Some("youden")).expect_err("nothing is fitted").to_string();
        assert!(none.ends_with("the saved state has none"), "{none}");
    }

    #[test]
    fn one_class_is_decided_and_of_numbers_nothing() {
        let classes = Decider::new(&head(Task::Multiclass), None, Some("youden")).expect("decides");
        assert_eq!(decided(&classes, [0.4, 0.6]), [Some(false), Some(true)]);
        assert_eq!(decided(&classes, [0.5, 0.5]), [Some(true), Some(false)]);
        // Both are 1 to the last digit that a probability has.
        let told = classes.told(&[40.0, 80.0]);
        assert_eq!([told[0].1, told[1].1], [Some(false), Some(true)]);
        let numbers = Decider::new(&head(Task::Regression), None, None).expect("decides");
        assert_eq!(decided(&numbers, [7.0, 8.0]), [None, None]);
        assert_eq!(numbers.probabilities(&[7.0, 8.0]), [7.0, 8.0]);
    }
}
