//! The sum of the squares of many numbers.

use rayon::prelude::*;

/// Values that a thread takes at once.
const BLOCK: usize = 1 << 14;
/// Sums that are taken side by side.
const LANES: usize = 8;

/// Σ x², in 64 bits.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let square = |value: &f32| f64::from(*value) * f64::from(*value);
    let of_block = |block: &[f32]| {
        let (whole, rest) = block.as_chunks::<LANES>();
        let mut sums = [0.0; LANES];
        for values in whole {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += square(value));
        }
        sums.into_iter().sum::<f64>() + rest.iter().map(square).sum::<f64>()
    };
    values.par_chunks(BLOCK).map(of_block).collect::<Vec<f64>>().into_iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_that_of_64_bits_in_order() {
        for count in [0, 1, 15, BLOCK, 5 * BLOCK + 77] {
            let values: Vec<f32> = (0..count).map(|i| (i as f64 * 0.7).sin() as f32).collect();
            let exact: f64 = values.iter().map(|value| f64::from(*value).powi(2)).sum();
            let found = sum_of_squares(&values);
            assert!((found - exact).abs() <= 1e-12 * exact, "{found} for {exact}");
        }
        assert!(sum_of_squares(&[1.0, f32::NAN]).is_nan());
        assert_eq!(sum_of_squares(&[1.0, f32::INFINITY]), f64::INFINITY);
    }
}
