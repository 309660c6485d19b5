//! What the user writes under `[evaluate]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    AurocMethod, CalibrationMethod, Criterion, Fitted, FittedHead, PredictionTable, Settings,
};
use crate::fault::{Fault, require};

/// `[evaluate]`: how trained models are judged. Calibration and thresholds are fitted on the validation
/// images at the end of each epoch and saved with the weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// What corrects the probabilities of a head: `"temperature"` (one number divides all logits of the
    /// head), `"platt"` (two numbers for each label; not for `multiclass` heads) or `"none"`.
    #[schemars(example = &"platt")]
    pub calibration: CalibrationUse,
    /// How thresholds of decisions are chosen.
    pub operating_points: OperatingPointsConfig,
    /// Where the interval of a label's AUROC comes from: `"clustered_delong"` (DeLong's method; images
    /// of a patient count together), `"delong"` (every image by itself, which is too narrow where
    /// patients have several) or `"bootstrap"` (over patients).
    #[schemars(example = &"bootstrap")]
    pub auroc_interval: AurocMethod,
    /// How many resamples a bootstrap interval is taken over; at least 100.
    #[schemars(example = 2000)]
    #[schemars(range(min = 100))]
    pub resamples: usize,
    /// How many bins a reliability curve and the expected calibration error have; from 1 to 1000.
    #[schemars(example = 10)]
    #[schemars(range(min = 1, max = 1000))]
    pub bins: usize,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        let Settings { auroc, resamples, bins, .. } = Settings::default();
        Self {
            calibration: CalibrationUse::default(),
            operating_points: OperatingPointsConfig::default(),
            auroc_interval: auroc,
            resamples,
            bins,
        }
    }
}

/// What corrects the probabilities of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalibrationUse {
    /// One number for each head.
    #[default]
    Temperature,
    /// Two numbers for each label.
    Platt,
    /// Nothing: probabilities stay as the model gives them.
    None,
}

impl CalibrationUse {
    fn method(self) -> Option<CalibrationMethod> {
        match self {
            Self::Temperature => Some(CalibrationMethod::Temperature),
            Self::Platt => Some(CalibrationMethod::Platt),
            Self::None => None,
        }
    }
}

/// `[evaluate.operating_points]`: how the thresholds of each label of `multilabel` and `binary` heads are
/// chosen. The first one, in the order of these keys, makes the decisions of `trainer predict`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OperatingPointsConfig {
    /// The threshold with the greatest sensitivity + specificity − 1 (Youden 1950).
    #[schemars(example = false)]
    pub youden: bool,
    /// The highest threshold with at least this sensitivity, for each number of the list, above 0 and
    /// at most 1.
    #[schemars(example = [0.95])]
    pub sensitivity: Vec<f64>,
    /// The lowest threshold with at least this specificity, for each number of the list, above 0 and
    /// at most 1.
    #[schemars(example = [0.9, 0.95])]
    pub specificity: Vec<f64>,
    /// Probabilities that are thresholds themselves, from 0 to 1.
    #[schemars(example = [0.5])]
    pub threshold: Vec<f64>,
}

impl Default for OperatingPointsConfig {
    fn default() -> Self {
        Self { youden: true, sensitivity: vec![0.9], specificity: vec![0.9], threshold: Vec::new() }
    }
}

impl OperatingPointsConfig {
    /// The criteria, in their order.
    pub fn criteria(&self) -> Vec<Criterion> {
        let youden = self.youden.then_some(Criterion::Youden);
        let sensitivity = self.sensitivity.iter().copied().map(Criterion::Sensitivity);
        let specificity = self.specificity.iter().copied().map(Criterion::Specificity);
        let threshold = self.threshold.iter().copied().map(Criterion::Threshold);
        youden.into_iter().chain(sensitivity).chain(specificity).chain(threshold).collect()
    }
}

impl EvaluateConfig {
    /// Refuses numbers that mean nothing.
    ///
    /// # Errors
    /// The first [`Fault`], its key below `evaluate`.
    pub fn check(&self) -> Result<(), Fault> {
        let points = &self.operating_points;
        for (name, shares, zero) in [
            ("sensitivity", &points.sensitivity, false),
            ("specificity", &points.specificity, false),
            ("threshold", &points.threshold, true),
        ] {
            for (place, &share) in shares.iter().enumerate() {
                let holds = (0.0..=1.0).contains(&share) && (zero || share > 0.0);
                let key = format!("operating_points.{name}[{place}]");
                let message = format!("`{name}` is out of range: {share}");
                let from = if zero { "from 0 to 1" } else { "above 0 and at most 1" };
                require(holds, key, message, format!("write a number {from}, such as 0.9"))?;
                let key = format!("operating_points.{name}[{place}]");
                let message = format!("{share} is there twice");
                let once = !shares[..place].contains(&share);
                require(once, key, message, "write each number once")?;
            }
        }
        let resamples = self.resamples >= 100;
        let message = format!("{} resamples give no interval", self.resamples);
        require(resamples, "resamples", message, "write 100 or more, such as 1000")?;
        let message = format!("`bins` is out of range: {}", self.bins);
        require((1..=1000).contains(&self.bins), "bins", message, "write 1 to 1000, such as 15")
    }

    /// How an evaluation is made, with the draws of the bootstrap fixed by `seed`.
    pub fn settings(&self, seed: u64) -> Settings {
        Settings {
            auroc: self.auroc_interval,
            resamples: self.resamples,
            seed,
            bins: self.bins,
            ..Settings::default()
        }
    }

    /// Fits calibration and thresholds of every head on predictions, which are those of the validation
    /// images.
    pub fn fit(&self, validation: &PredictionTable) -> Fitted {
        let criteria = self.operating_points.criteria();
        let fit = |(name, head)| {
            (String::clone(name), FittedHead::fit(head, self.calibration.method(), &criteria))
        };
        Fitted::new(validation.heads.iter().map(fit).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_mean_nothing_are_refused_at_their_key() {
        let points = |points| EvaluateConfig { operating_points: points, ..Default::default() };
        let none = || OperatingPointsConfig {
            youden: false,
            sensitivity: Vec::new(),
            specificity: Vec::new(),
            threshold: Vec::new(),
        };
        let said = [
            points(OperatingPointsConfig { sensitivity: vec![0.9, 0.0], ..none() }),
            points(OperatingPointsConfig { specificity: vec![f64::NAN], ..none() }),
            points(OperatingPointsConfig { threshold: vec![0.5, 0.5], ..none() }),
            EvaluateConfig { resamples: 99, ..Default::default() },
            EvaluateConfig { bins: 0, ..Default::default() },
        ];
        let said = said.map(|config| config.check().expect_err("wrong").to_string());
        insta::assert_snapshot!(said.join("\n"), @r"
        operating_points.sensitivity[1]: `sensitivity` is out of range: 0
        operating_points.specificity[0]: `specificity` is out of range: NaN
        operating_points.threshold[1]: 0.5 is there twice
        resamples: 99 resamples give no interval
        bins: `bins` is out of range: 0
        ");
        let right = [points(none()), EvaluateConfig::default()];
        assert!(right.iter().all(|config| config.check().is_ok()));
    }

    #[test]
    fn criteria_keep_the_order_of_the_keys() {
        let points = OperatingPointsConfig {
            threshold: vec![0.5],
            sensitivity: vec![0.8, 0.9],
            ..Default::default()
        };
        let names: Vec<String> = points.criteria().into_iter().map(Criterion::name).collect();
        let expected =
            ["youden", "sensitivity_0.8", "sensitivity_0.9", "specificity_0.9", "threshold_0.5"];
        assert_eq!(names, expected);
    }
}
