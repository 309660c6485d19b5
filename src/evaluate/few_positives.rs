//! The interval of an area under precision over recall where resamples tell nothing: one patient alone is positive, or all
//! positives rank first.
//!
//! Boyd, Eng and Page (2013), "Area under the Precision-Recall Curve: Point Estimates and Confidence Intervals", take the
//! area for a share of the positives, in their binomial interval. Here it is Wilson's, which is there for an area of 1 too.
//! Nothing from 0 to 1 with a mean of A varies by more than A (1 − A) (Bhatia and Davis 2000), so that of one patient the
//! interval errs on the side of a wide one.

use super::estimate::{Z, wilson_of_share};
use super::head::Head;
use super::{Range, Undefined};
use crate::metric::{Example, Resampler};

impl Head<'_> {
    /// The interval of a label's `area`, whose degrees of freedom are these; `None` where resamples tell one, or where no
    /// more than one patient is negative.
    pub(super) fn of_few_positives(
        &self,
        area: Result<f64, Undefined>,
        freedom: Result<f64, Undefined>,
        examples: &[Example],
    ) -> Option<Range> {
        let (area, alone) = (area.ok()?, Err(Undefined::OneCluster { class: "positive" }));
        let of = |positive: bool| examples.iter().filter(move |one| one.positive == positive);
        let negatives = self.resampler.groups_of(of(false).map(|one| one.image));
        if negatives < 2 || (freedom != alone && area < 1.0) {
            return None;
        }
        let positives = effective(&self.resampler, of(true).map(|one| one.image));
        Some(wilson_of_share(area, positives, Z))
    }
}

/// As many images as say, by themselves, what these do where those of a patient are all alike (Kish 1965).
pub(super) fn effective(resampler: &Resampler, images: impl Iterator<Item = usize>) -> f64 {
    let images = resampler.sums(images.map(|image| (image, 1.0)));
    let sum: f64 = images.iter().sum();
    sum * sum / images.iter().map(|count| count * count).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::data::Targets;
    use crate::evaluate::{
        Estimate, Measured, Settings, Undefined, compare_heads, evaluate, wilson,
    };
    use crate::metric::HeadPredictions;
    use crate::model::Task;

    const LABEL: &str = "Mass";

    /// Of the images with these scores, of which so many, the first, are positive.
    fn area(scores: &[f32], positives: usize, patients: &[usize]) -> Estimate {
        let values = (0..scores.len()).map(|image| f32::from(u8::from(image < positives)));
        let values: Vec<f32> = values.collect();
        let head = HeadPredictions {
            task: Task::Binary,
            labels: vec![LABEL.to_owned()],
            outputs: scores.to_vec(),
            targets: Targets { mask: vec![1.0; values.len()], values, width: 1 },
        };
        let heads = BTreeMap::from([("mass".to_owned(), head)]);
        let found = &evaluate(&heads, patients, None, &Settings::default())["mass"];
        let table = found.auprc.as_ref().expect("ranks");
        // The mean of one label is the label's.
        assert_eq!((table.mean, table.low), (table.labels[LABEL].value, table.labels[LABEL].low));
        table.labels[LABEL]
    }

    #[test]
    fn an_area_of_1_has_wilsons_interval_of_all_positive_patients() {
        let scores: Vec<f32> = (0..30).map(|image| (30 - image) as f32).collect();
        let alone: Vec<usize> = (0..30).collect();
        for positives in [1, 2, 7] {
            let found = area(&scores, positives, &alone);
            let expected = wilson(positives, positives).expect("positives");
            let told = (found.value, found.low, found.high, found.undefined);
            assert_eq!(told, (Some(1.0), Some(expected.low), Some(1.0), None), "{positives}");
        }
        // Two images of each patient say as much as one that is like the other.
        let twice: Vec<usize> = (0..30).map(|image| image / 2).collect();
        assert_eq!(area(&scores, 14, &twice).low, area(&scores, 7, &alone).low);
        // More tells the bootstrap, where it tells something.
        let mut other = scores;
        other.swap(1, 9);
        assert!(area(&other, 2, &alone).low < wilson(2, 2).map(|range| range.low));
    }

    #[test]
    fn one_positive_patient_says_something_of_many_negatives_and_nothing_of_its_own() {
        let found = area(&[1.0, 2.0, 0.0, -1.0], 1, &[0, 1, 2, 3]);
        assert_eq!(found.value, Some(0.5));
        assert!(
            found.low.is_some_and(|low| low < 0.1) && found.high.is_some_and(|high| high > 0.9)
        );
        for patients in [[0, 0, 0, 0], [0, 1, 1, 1]] {
            let found = area(&[1.0, 2.0, 0.0, -1.0], 1, &patients);
            let alone = Some(Undefined::OneCluster { class: "positive" });
            assert_eq!((found.low, found.undefined), (None, alone));
        }
    }

    #[test]
    fn models_are_compared_on_one_positive_patient() {
        let model = |values: [f64; 5]| Measured {
            task: Task::Binary,
            labels: vec![LABEL.to_owned()],
            values: values.to_vec(),
            truth: (0..5).map(|image| Some(f64::from(u8::from(image == 0)))).collect(),
        };
        let (first, second) = (model([0.9, 0.1, 0.2, 0.3, 0.4]), model([0.2, 0.8, 0.1, 0.7, 0.3]));
        let of = |second: &Measured, patients: &[usize]| {
            let settings = Settings::default();
            let found = compare_heads(&first, second, patients, &settings).expect("compares");
            ["auprc", "auroc"].map(|metric| found.metrics[metric].labels[LABEL])
        };
        for found in of(&second, &[0, 1, 2, 3, 4]) {
            let (low, high) = (found.low.expect("defined"), found.high.expect("defined"));
            let difference = found.difference.expect("defined");
            assert!(-1.5 < low && low < difference && difference < high && high < 1.5, "{found:?}");
            assert_eq!(low <= 0.0 && 0.0 <= high, found.p_value >= Some(0.05), "{found:?}");
        }
        for found in of(&first, &[0, 1, 2, 3, 4]) {
            assert_eq!((found.low, found.high, found.p_value), (Some(0.0), Some(0.0), Some(1.0)));
        }
        for found in of(&second, &[0, 1, 1, 1, 1]) {
            assert_eq!(found.undefined, Some(Undefined::OneCluster { class: "positive" }));
        }
    }
}
