//! Errors of numbers, in the unit of the label.

/// Mean absolute error; `None` of none, or if an error is not finite.
pub(crate) fn mae(errors: &[f64]) -> Option<f64> {
    super::mean(errors.iter().map(|error| error.abs())).filter(|mean| mean.is_finite())
}

/// Root of the mean squared error; `None` of none, or if an error is not finite.
pub(crate) fn rmse(errors: &[f64]) -> Option<f64> {
    super::mean(errors.iter().map(|error| error * error))
        .map(f64::sqrt)
        .filter(|rmse| rmse.is_finite())
}
