//! The sum of the squares of many numbers.

use rayon::prelude::*;

use crate::norm::sum;

/// Values that a thread takes at once.
const BLOCK: usize = 1 << 14;

/// Σ x²: in 32 bits within blocks, and over them in 64.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let blocks = values.par_chunks(BLOCK).map(|block| sum(block, |value| value * value));
    blocks.collect::<Vec<f64>>().into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_64_bits() {
        for count in [0, 1, 15, BLOCK, 5 * BLOCK + 77] {
            let values: Vec<f32> = (0..count).map(|i| (i as f64 * 0.7).sin() as f32).collect();
            let exact: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            let found = sum_of_squares(&values);
            assert!((found - exact).abs() <= 1e-6 * exact, "{found} for {exact}");
        }
        assert!(sum_of_squares(&[1.0, f32::NAN]).is_nan());
        assert_eq!(sum_of_squares(&[1.0, f32::INFINITY]), f64::INFINITY);
    }
}
