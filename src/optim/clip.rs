//! Clipping by the norm of all gradients together.

use std::collections::BTreeMap;

#[cfg(feature = "cuda")]
use burn::tensor::DType;
use burn::tensor::Tensor;

use crate::memory::Gradients;
use crate::ops::sum_of_squares;

use super::OptimError;

/// The Euclidean norm of all gradients together.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientNorm {
    /// The norm; NaN or infinite when a gradient is, or when a sum of squares exceeds `f32`.
    pub total: f64,
    /// The parameters whose gradient has a norm that is not finite, in the order of names.
    pub non_finite: Vec<String>,
}

impl GradientNorm {
    /// Of gradients with these [`squares`], which are added in `f64` in the order of names.
    pub fn of(squares: &BTreeMap<String, f64>) -> Self {
        let total: f64 = squares.values().fold(0.0, |total, sum| total + sum);
        let non_finite = squares.iter().filter(|(_, sum)| !sum.is_finite());
        Self { total: total.sqrt(), non_finite: non_finite.map(|(name, _)| name.clone()).collect() }
    }

    /// Whether a step may be taken with these gradients.
    pub fn is_finite(&self) -> bool {
        self.total.is_finite()
    }

    /// That of the gradients divided by `scale`.
    pub fn divided(self, scale: f64) -> Self {
        Self { total: self.total / scale, ..self }
    }

    /// What gradients of this norm are multiplied by so that theirs is at most `max_norm`:
    /// `min(1, max_norm / (norm + 1e-6))`, as in `torch.nn.utils.clip_grad_norm_`. 1 where the norm is
    /// not finite: no step may be taken with such gradients.
    pub fn factor(&self, max_norm: f64) -> f64 {
        let factor = max_norm / (self.total + 1e-6);
        if self.is_finite() && factor < 1.0 { factor } else { 1.0 }
    }
}

/// The norm of `gradients`: that of their [`squares`].
///
/// # Errors
/// When the device fails.
pub fn norm(gradients: &Gradients) -> Result<GradientNorm, OptimError> {
    Ok(GradientNorm::of(&squares(gradients)?))
}

/// Σ x² of each gradient, by the name of its parameter: summed on the device in `f32`, and read back in
/// one transfer.
///
/// # Errors
/// When the device fails.
pub fn squares(gradients: &Gradients) -> Result<BTreeMap<String, f64>, OptimError> {
    Ok(gradients.keys().cloned().zip(sums_of_squares(gradients)?).collect())
}

/// Σ x² of each gradient.
fn sums_of_squares(gradients: &Gradients) -> Result<Vec<f64>, OptimError> {
    let Some(first) = gradients.values().next() else { return Ok(Vec::new()) };
    #[cfg(feature = "cuda")]
    if let Some(gpu) = crate::ops::gpu::Gpu::of(&first.device()) {
        let all = gradients.values().map(|gradient| gradient.clone().cast(DType::F32));
        return Ok(gpu.sums_of_squares(all.collect())?);
    }
    let _ = first;
    let sums = gradients.values().cloned().map(sum_of_squares);
    Ok(Tensor::cat(sums.collect(), 0).try_into_data()?.iter().collect())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::optim::oracle;

    #[derive(Deserialize)]
    struct Clipping {
        gradients: BTreeMap<String, Vec<f32>>,
        cases: Vec<Case>,
    }

    #[derive(Deserialize)]
    struct Case {
        max_norm: f64,
        norm: f64,
        clipped: BTreeMap<String, Vec<f32>>,
    }

    fn gradients(by_name: &BTreeMap<String, Vec<f32>>) -> Gradients {
        by_name.iter().map(|(name, values)| (name.clone(), oracle::vector(values))).collect()
    }

    #[test]
    fn gradients_are_clipped_as_pytorch_clips_them() {
        let fixture: Clipping = oracle::section("clipping");
        for case in &fixture.cases {
            let all = gradients(&fixture.gradients);
            let norm = norm(&all).expect("reads");
            let factor = norm.factor(case.max_norm);
            let clipped = all.values().map(|gradient| gradient.clone().mul_scalar(factor));
            let clipped: Gradients = all.keys().cloned().zip(clipped).collect();
            assert!((norm.total / case.norm - 1.0).abs() < 1e-6, "{norm:?}");
            assert_eq!(norm.non_finite, Vec::<String>::new());
            assert_eq!(clipped.len(), case.clipped.len());
            for (name, gradient) in &clipped {
                oracle::agree(&oracle::values(gradient), &case.clipped[name], name);
            }
        }
    }

    #[test]
    fn the_norm_of_many_equal_elements_is_exact_to_six_digits() {
        let many = BTreeMap::from([("w".to_owned(), vec![0.1_f32; 3_000_001])]);
        let norm = norm(&gradients(&many)).expect("reads");
        let expected = f64::from(0.1_f32) * 3_000_001_f64.sqrt();
        assert!((norm.total / expected - 1.0).abs() < 1e-6, "{} is not {expected}", norm.total);
    }

    #[test]
    fn gradients_that_are_not_finite_are_named_and_not_scaled() {
        let mixed = BTreeMap::from([
            ("a".to_owned(), vec![1.0, f32::NAN]),
            ("b".to_owned(), vec![3.0, 4.0]),
            ("c".to_owned(), vec![f32::INFINITY; 2]),
        ]);
        let all = gradients(&mixed);
        let norm = norm(&all).expect("reads");
        assert!(!norm.is_finite());
        assert_eq!(norm.non_finite, ["a", "c"]);
        assert_eq!(norm.factor(1.0), 1.0);
    }

    #[test]
    fn no_gradients_have_norm_0() {
        assert_eq!(norm(&Gradients::default()).expect("reads").total, 0.0);
    }
}
