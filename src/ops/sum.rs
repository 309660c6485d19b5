//! A sum of everything.

use burn::tensor::{DType, Tensor};

/// Numbers of a row, which is summed before the rows are: short enough for the rounding errors of
/// 32-bit sums to stay small.
const ROW: usize = 1024;

/// `[1]`: the sum of all `values`, the same bits every time.
///
/// Burn's own sum has no fixed order: on the CPU its threads add up parts of 4 Mi numbers or more as
/// they come by them, on a GPU four blocks do as they finish. Sums along a dimension have one.
pub fn sum<const D: usize>(values: Tensor<D>) -> Tensor<1> {
    let count = values.shape().num_elements();
    let values = values.reshape([1, count]);
    let rows = count / ROW;
    if rows < 2 {
        return values.sum_dim(1).reshape([1]);
    }
    let whole = values.clone().narrow(1, 0, rows * ROW).reshape([rows, ROW]);
    let whole = sum(whole.sum_dim(1));
    match count - rows * ROW {
        0 => whole,
        rest => whole + values.narrow(1, rows * ROW, rest).sum_dim(1).reshape([1]),
    }
}

/// `[1]`: the sum of the squares of `values`, in 32 bits.
pub fn sum_of_squares(values: Tensor<1>) -> Tensor<1> {
    #[cfg(feature = "cpu")]
    if super::host::is_single_on_cpu(&values) {
        let device = values.device();
        let sum = trainer_cpu::sum_of_squares(super::host::Values::of(values).all());
        return Tensor::from_data([sum as f32], &device);
    }
    sum(values.cast(DType::F32).square())
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    /// Above what Burn sums in parallel, and no multiple of a row.
    const MANY: usize = (5 << 20) + 12345;

    #[test]
    fn a_large_sum_is_the_same_bits_every_time() {
        let values: Vec<f32> = (0..MANY).map(|i| (i as f64 * 0.7).sin() as f32).collect();
        let exact: f64 = values.iter().map(|value| f64::from(*value)).sum();
        let size: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
        let values = Tensor::<1>::from_data(TensorData::new(values, [MANY]), &Device::flex());
        let first = sum(values.clone()).into_scalar::<f32>();
        assert!((f64::from(first) - exact).abs() <= 1e-6 * size, "{first} is not {exact}");
        for _ in 0..100 {
            assert_eq!(sum(values.clone()).into_scalar::<f32>().to_bits(), first.to_bits());
        }
    }

    #[test]
    fn sums_of_any_size_are_right_and_so_are_their_gradients() {
        for count in [1, 7, ROW, 2 * ROW - 1, 2 * ROW, 3 * ROW + 5] {
            let ones = Tensor::<1>::ones([count], &Device::flex()).autodiff().require_grad();
            let total = sum(ones.clone().reshape([count, 1]));
            assert_eq!(total.clone().into_scalar::<f32>(), count as f32);
            let gradient = ones.grad(&total.backward()).expect("a gradient");
            assert!(gradient.into_data().iter::<f32>().all(|value| value == 1.0));
        }
    }
}
