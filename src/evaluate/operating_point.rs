//! From which probability up a finding is called present.

use serde::{Deserialize, Serialize};

use super::Undefined;
use super::delong::check;

/// How the threshold of a decision is chosen: fitted on one set of images, to be applied to others.
///
/// An image is decided positive where its probability is at least the threshold. Thresholds are
/// probabilities of the images that are fitted on, as in scikit-learn's `roc_curve`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Criterion {
    /// The greatest sensitivity + specificity − 1 (Youden 1950); of equal ones the highest threshold.
    Youden,
    /// The highest threshold with at least this sensitivity, from 0 to 1.
    Sensitivity(f64),
    /// The lowest threshold with at least this specificity, from 0 to 1.
    Specificity(f64),
    /// This probability itself; nothing is fitted.
    Threshold(f64),
}

/// What one threshold leaves above it.
#[derive(Clone, Copy)]
struct Cut {
    threshold: f64,
    true_positives: usize,
    false_positives: usize,
}

impl Criterion {
    /// The name under which the point is reported: `youden`, `sensitivity_0.9`, `specificity_0.95`,
    /// `threshold_0.5`.
    pub fn name(self) -> String {
        match self {
            Self::Youden => "youden".to_owned(),
            Self::Sensitivity(at_least) => format!("sensitivity_{at_least}"),
            Self::Specificity(at_least) => format!("specificity_{at_least}"),
            Self::Threshold(threshold) => format!("threshold_{threshold}"),
        }
    }

    /// The threshold for `probabilities`, one an image, whose truth is `positive`.
    ///
    /// # Errors
    /// No image, an output that is not finite, one class only, or a share that no threshold reaches.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn fit(self, probabilities: &[f64], positive: &[bool]) -> Result<f64, Undefined> {
        if let Self::Threshold(threshold) = self {
            return Ok(threshold);
        }
        assert_eq!(probabilities.len(), positive.len(), "one probability for each image");
        let positives = check(probabilities, positive)?;
        let negatives = positive.len() - positives;
        let sensitivity = |cut: &Cut| cut.true_positives as f64 / positives as f64;
        let specificity = |cut: &Cut| (negatives - cut.false_positives) as f64 / negatives as f64;
        let cuts = descending(probabilities, positive);
        let unreachable = |measure, at_least| Undefined::Unreachable { measure, at_least };
        let chosen = match self {
            Self::Youden | Self::Threshold(_) => {
                // In whole numbers, so that equal ones are equal.
                let gain = |cut: &Cut| {
                    (cut.true_positives * negatives) as i128
                        - (cut.false_positives * positives) as i128
                };
                cuts.iter().rev().max_by_key(|cut| gain(cut)).ok_or(Undefined::NoKnownLabel)
            }
            Self::Sensitivity(at_least) => cuts
                .iter()
                .find(|cut| sensitivity(cut) >= at_least)
                .ok_or(unreachable("sensitivity", at_least)),
            Self::Specificity(at_least) => cuts
                .iter()
                .rfind(|cut| specificity(cut) >= at_least)
                .ok_or(unreachable("specificity", at_least)),
        };
        chosen.map(|cut| cut.threshold)
    }
}

/// Each distinct probability as a threshold, the highest first.
fn descending(probabilities: &[f64], positive: &[bool]) -> Vec<Cut> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_unstable_by(|&a, &b| probabilities[b].total_cmp(&probabilities[a]));
    let (mut true_positives, mut false_positives) = (0, 0);
    let tied = order.chunk_by(|&a, &b| probabilities[a] == probabilities[b]);
    tied.map(|tied| {
        let found = tied.iter().filter(|&&image| positive[image]).count();
        true_positives += found;
        false_positives += tied.len() - found;
        Cut { threshold: probabilities[tied[0]], true_positives, false_positives }
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCORES: [f64; 6] = [0.1, 0.2, 0.4, 0.4, 0.7, 0.9];
    const TRUTH: [bool; 6] = [false, false, true, false, true, true];

    #[test]
    fn a_share_is_reached_and_the_other_kept_as_great_as_can_be() {
        let fit = |criterion: Criterion| criterion.fit(&SCORES, &TRUTH);
        assert_eq!(fit(Criterion::Sensitivity(0.5)), Ok(0.7));
        assert_eq!(fit(Criterion::Sensitivity(0.67)), Ok(0.4));
        assert_eq!(fit(Criterion::Sensitivity(1.0)), Ok(0.4));
        assert_eq!(fit(Criterion::Specificity(1.0)), Ok(0.7));
        assert_eq!(fit(Criterion::Specificity(0.5)), Ok(0.4));
        assert_eq!(fit(Criterion::Specificity(0.0)), Ok(0.1));
        // 0.4 and 0.7 both gain 2/3.
        assert_eq!(fit(Criterion::Youden), Ok(0.7));
        assert_eq!(fit(Criterion::Threshold(0.3)), Ok(0.3));
    }

    #[test]
    fn what_no_threshold_does_is_undefined() {
        let best_is_negative = Criterion::Specificity(0.9).fit(&[0.9, 0.1], &[false, true]);
        let reason = Undefined::Unreachable { measure: "specificity", at_least: 0.9 };
        assert_eq!(best_is_negative, Err(reason));
        assert_eq!(reason.to_string(), "no threshold reaches a specificity of 0.9");
        let one_class = Criterion::Youden.fit(&SCORES, &[true; 6]);
        assert_eq!(one_class, Err(Undefined::OneClass { positives: 6, images: 6 }));
        assert_eq!(Criterion::Youden.fit(&[], &[]), Err(Undefined::NoKnownLabel));
        assert_eq!(Criterion::Youden.fit(&[f64::NAN], &[true]), Err(Undefined::NotFinite));
    }
}
