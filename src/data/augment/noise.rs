//! Gaussian noise.

use std::f64::consts::{PI, SQRT_2};
use std::ops::Range;
use std::sync::LazyLock;

use rand::{Rng, RngExt};

use super::super::config::AugmentConfig;
use super::super::prepare::{Place, Resized};
use super::each_span;

/// Adds noise of a standard deviation between 0 and `noise` where the image is, and clips.
pub(super) fn apply(
    image: &mut Resized,
    spans: &[Range<usize>],
    config: &AugmentConfig,
    place: Place,
) {
    if config.noise <= 0.0 {
        return;
    }
    let mut random = place.stream("augment/noise");
    let [black, white] = image.range;
    let deviation = (config.noise * random.random::<f64>()) as f32 * (white - black);
    let mut noise = Noise::new(image.size[1]);
    each_span(image, spans, |row| {
        let normals = noise.draw(row.len(), &mut random);
        for (level, normal) in row.iter_mut().zip(normals) {
            *level = (*level + deviation * normal).clamp(black, white);
        }
    });
}

/// Standard normal numbers, 65536 different ones: each is a quantile, chosen by 16 random bits.
/// That is as fine as the images are, and a table is many times faster than any formula.
struct Noise {
    bytes: Vec<u8>,
    quantiles: &'static [f32],
}

/// log₂ of how many positive quantiles there are.
const BITS: u32 = 15;

/// The positive ones, at the middles of equally likely steps: a constant, computed when first needed.
static QUANTILES: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let mut last = 0.0;
    let step = |place: u32| {
        // Newton's method on the probability of more than `z`, whose derivative is the density.
        let beyond = 0.5 - (f64::from(place) + 0.5) / f64::from(2 << BITS);
        let mut z: f64 = last;
        for _ in 0..20 {
            let density = (-z * z / 2.0).exp() / (2.0 * PI).sqrt();
            let change = (0.5 * libm::erfc(z / SQRT_2) - beyond) / density;
            z += change;
            if change.abs() < 1e-12 {
                break;
            }
        }
        last = z;
        z as f32
    };
    (0..1 << BITS).map(step).collect()
});

impl Noise {
    /// For rows of up to so many pixels.
    fn new(width: usize) -> Self {
        Self { bytes: vec![0; 2 * width], quantiles: &QUANTILES }
    }

    fn draw(&mut self, count: usize, random: &mut impl Rng) -> impl Iterator<Item = f32> {
        let bytes = &mut self.bytes[..2 * count];
        random.fill_bytes(bytes);
        bytes.chunks_exact(2).map(|pair| {
            let bits = u16::from_le_bytes([pair[0], pair[1]]);
            let quantile = self.quantiles[usize::from(bits >> 1)];
            // The lowest bit is the sign.
            f32::from_bits(quantile.to_bits() | u32::from(bits) << 31)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::augment::tests::Fixture;
    use crate::random::stream;

    #[test]
    fn quantiles_are_those_of_scipy() {
        let fixture = Fixture::read().noise;
        assert!(fixture.places.len() >= 20);
        assert_eq!(QUANTILES.len(), 1 << BITS);
        for (place, expected) in fixture.places.into_iter().zip(fixture.quantiles) {
            let ours = QUANTILES[place];
            assert!((ours - expected).abs() <= 1e-6 * (1.0 + expected), "{ours} for {expected}");
        }
        assert!(QUANTILES.is_sorted());
    }

    #[test]
    fn noise_has_the_moments_of_a_normal_distribution_and_no_memory() {
        let mut noise = Noise::new(1 << 18);
        let drawn: Vec<f64> =
            noise.draw(1 << 18, &mut stream(3, "test", &[])).map(f64::from).collect();
        let count = drawn.len() as f64;
        let moment = |power: i32| drawn.iter().map(|z| z.powi(power)).sum::<f64>() / count;
        // Five standard errors of each moment: √(1, 2, 15, 96) / √n.
        let expected = [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0_f64)];
        for (power, expected, variance) in expected {
            let allowed = 5.0 * (variance / count).sqrt();
            assert!((moment(power) - expected).abs() < allowed, "{power}: {}", moment(power));
        }
        for lag in [1, 2, 320] {
            let together = drawn.iter().zip(&drawn[lag..]).map(|(a, b)| a * b).sum::<f64>();
            assert!((together / count).abs() < 5.0 / count.sqrt(), "{lag}");
        }
    }
}
