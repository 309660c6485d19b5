//! Levels to a random power.

use super::super::config::AugmentConfig;
use super::super::prepare::{Place, Resized};
use super::within;

/// Raises to a power between 1/(1 + `gamma`) and 1 + `gamma`, as often below 1 as above.
pub(super) fn apply(image: &mut Resized, config: &AugmentConfig, place: Place) {
    if config.gamma > 0.0 {
        let most = (1.0 + config.gamma).ln();
        raise(image, within(&mut place.stream("augment/gamma"), most).exp() as f32);
    }
}

/// As torchvision's `adjust_gamma`.
pub(super) fn raise(image: &mut Resized, power: f32) {
    for row in image.inside_mut() {
        row.iter_mut().for_each(|level| *level = raised(*level, power));
    }
}

/// `level` to `power`, for levels of 0 to 1 and powers above 0, within 1e-6.
///
/// Without branches and calls, so that several pixels are raised at once: 2 to the power of
/// `power` · log₂ of the level, both by series on a range where few terms suffice.
fn raised(level: f32, power: f32) -> f32 {
    let logarithm = log2(level.max(f32::MIN_POSITIVE));
    let raised = exp2((logarithm * power).max(-126.0));
    if level > 0.0 { raised.min(1.0) } else { 0.0 }
}

/// For normal positive numbers.
fn log2(number: f32) -> f32 {
    // number = m · 2ᵉ with m between √½ and √2.
    let shifted = number.to_bits().wrapping_sub(0x3F35_04F3) as i32;
    let exponent = (shifted >> 23) as f32;
    let m = f32::from_bits(((shifted & 0x007F_FFFF) + 0x3F35_04F3) as u32);
    // ln m = 2·artanh t.
    let t = (m - 1.0) / (m + 1.0);
    let square = t * t;
    let series =
        1.0 + square * (1.0 / 3.0 + square * (1.0 / 5.0 + square * (1.0 / 7.0 + square / 9.0)));
    exponent + t * series * (2.0 * std::f32::consts::LOG2_E)
}

/// For −126 to 0.
fn exp2(exponent: f32) -> f32 {
    // Adding this rounds to a whole number, which then stands in the lowest bits.
    const ROUNDER: f32 = (3 << 22) as f32;
    let rounded = exponent + ROUNDER;
    let x = (exponent - (rounded - ROUNDER)) * std::f32::consts::LN_2;
    let series = 1.0
        + x * (1.0
            + x * (0.5 + x * (1.0 / 6.0 + x * (1.0 / 24.0 + x * (1.0 / 120.0 + x / 720.0)))));
    let whole = (rounded.to_bits() as i32) << 23;
    f32::from_bits((series.to_bits() as i32).wrapping_add(whole) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_16_bit_level_is_raised_to_its_power() {
        for power in [0.25_f32, 0.5, 0.7, 1.0, 1.3, 2.0, 4.0] {
            for value in 0..=u16::MAX {
                let level = f32::from(value) / 65535.0;
                let exact = f64::from(level).powf(f64::from(power));
                let ours = f64::from(raised(level, power));
                assert!((ours - exact).abs() <= 1e-6, "{level}^{power}: {ours} for {exact}");
            }
            assert_eq!((raised(0.0, power), raised(1.0, power)), (0.0, 1.0));
        }
    }
}
