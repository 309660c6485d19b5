//! Numbers as files hold them, as f32.

use burn::tensor::{bf16, f16};

/// The floating-point types that are read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Float {
    F64,
    F32,
    F16,
    Bf16,
}

/// The little-endian numbers in `bytes`; `None` when one of them is too large for f32.
pub(super) fn to_f32(kind: Float, bytes: &[u8]) -> Option<Vec<f32>> {
    Some(match kind {
        Float::F32 => numbers(bytes, f32::from_le_bytes),
        Float::F16 => numbers(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
        Float::Bf16 => numbers(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Float::F64 => {
            let narrowed = |bytes| {
                let wide = f64::from_le_bytes(bytes);
                let narrow = wide as f32;
                (narrow.is_infinite() <= wide.is_infinite()).then_some(narrow)
            };
            return numbers(bytes, narrowed).into_iter().collect();
        }
    })
}

fn numbers<const SIZE: usize, T>(bytes: &[u8], read: impl Fn([u8; SIZE]) -> T) -> Vec<T> {
    bytes.as_chunks().0.iter().map(|number| read(*number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_too_large_for_f32_is_not_made_infinite() {
        let read = |number: f64| to_f32(Float::F64, &number.to_le_bytes());
        assert_eq!(read(1e39), None);
        assert_eq!(read(f64::NEG_INFINITY), Some(vec![f32::NEG_INFINITY]));
        assert_eq!(read(0.1), Some(vec![0.1]));
        assert!(read(f64::NAN).expect("is read")[0].is_nan());
    }
}
