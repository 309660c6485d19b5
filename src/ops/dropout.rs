//! Dropout whose mask follows from a key and from each image's place in the batch.

use burn::tensor::{Device, Tensor, TensorData};

/// What the mask of a dropout layer follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DropoutKey {
    /// Of the layer in one step of a run.
    pub seed: u64,
    /// The place in the global batch of the first image.
    pub first_image: u64,
}

/// Dropout of one layer in one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// The probability that an element is dropped; from 0 to below 1.
    pub probability: f64,
    /// What the mask follows from.
    pub key: DropoutKey,
}

impl Dropout {
    /// Of 2³² draws so many keep an element.
    pub(super) fn threshold(&self) -> u32 {
        ((1.0 - self.probability) * 2f64.powi(32)) as u32
    }

    /// What elements that are kept are multiplied by.
    pub(super) fn scale(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }
}

/// Sets elements of `values`, `[images, …]`, to zero with `probability` and scales the others up by
/// 1 / (1 − probability) (Srivastava et al. 2014).
///
/// The mask of an image follows from the key's seed and the image's place in the batch alone: it does
/// not depend on the device, on how many images are taken at once or on the device that takes them,
/// and it is the same when the layer is run again.
pub fn dropout<const D: usize>(values: Tensor<D>, dropout: Dropout) -> Tensor<D> {
    let mask = mask(values.dims(), dropout, &values.device().inner());
    let mask = mask.mul_scalar(1.0 / (1.0 - dropout.probability)).cast(values.dtype());
    let recorded = values.is_autodiff();
    values * if recorded { mask.autodiff() } else { mask }
}

/// 1 where an element is kept, else 0.
fn mask<const D: usize>(shape: [usize; D], dropout: Dropout, device: &Device) -> Tensor<D> {
    let elements: usize = shape[1..].iter().product();
    #[cfg(feature = "cuda")]
    if let Some(gpu) = super::gpu::Gpu::of(device) {
        use super::gpu::{Element, Kernels, dropout_mask};

        let kernels = Kernels::shared(gpu.clone(), Element::F32);
        let mask = dropout_mask(&kernels, [shape[0], elements], dropout);
        return gpu.tensor(&mask, shape);
    }
    let (threshold, key) = (dropout.threshold(), dropout.key);
    let mut values = Vec::with_capacity(shape[0] * elements);
    for image in 0..shape[0] as u64 {
        let place = key.first_image + image;
        let draws =
            (0..elements.div_ceil(4) as u64).flat_map(|block| philox(key.seed, place, block));
        values.extend(draws.take(elements).map(|draw| f32::from(u8::from(draw < threshold))));
    }
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Four random numbers: Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
/// 3") with `seed` as its key and the counter (`block`, `stream`).
fn philox(seed: u64, stream: u64, block: u64) -> [u32; 4] {
    let halves = |number: u64| [number as u32, (number >> 32) as u32];
    let [[k0, k1], [c0, c1], [c2, c3]] = [seed, block, stream].map(halves);
    let (mut counter, mut key) = ([c0, c1, c2, c3], [k0, k1]);
    for _ in 0..10 {
        let [low0, high0] = halves(0xD251_1F53 * u64::from(counter[0]));
        let [low1, high1] = halves(0xCD9E_8D57 * u64::from(counter[2]));
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join([low, high]: [u32; 2]) -> u64 {
        u64::from(low) | u64::from(high) << 32
    }

    /// The known answers of Random123 1.14.0 (`tests/kat_vectors`) for philox4x32, 10 rounds.
    #[test]
    fn philox_gives_its_published_numbers() {
        let known = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for ([c0, c1, c2, c3], key, expected) in known {
            assert_eq!(philox(join(key), join([c2, c3]), join([c0, c1])), expected);
        }
    }

    const KEY: DropoutKey = DropoutKey { seed: 0x1234_5678_9abc_def0, first_image: 3 };

    fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().iter().collect()
    }

    fn of(probability: f64, key: DropoutKey) -> Dropout {
        Dropout { probability, key }
    }

    fn ones(images: usize) -> Tensor<4> {
        Tensor::ones([images, 5, 7, 9], &Device::flex())
    }

    #[test]
    fn images_have_the_same_masks_however_many_are_taken_at_once() {
        let whole = values(dropout(ones(4), of(0.3, KEY)));
        let parts = [(0, 1), (1, 2), (3, 1)].map(|(first, images)| {
            let first_image = KEY.first_image + first;
            values(dropout(ones(images), of(0.3, DropoutKey { first_image, ..KEY })))
        });
        assert_eq!(parts.concat(), whole);
        let images: Vec<&[f32]> = whole.chunks(5 * 7 * 9).collect();
        assert!(images.iter().skip(1).all(|image| *image != images[0]), "masks repeat");
        assert_ne!(whole, values(dropout(ones(4), of(0.3, DropoutKey { seed: 1, ..KEY }))));
    }

    #[test]
    fn as_many_elements_are_dropped_as_was_asked_for_and_the_rest_is_scaled_up() {
        for probability in [0.1, 0.5, 0.9] {
            let found = values(dropout(
                Tensor::<2>::ones([8, 50_000], &Device::flex()),
                of(probability, KEY),
            ));
            let scale = (1.0 / (1.0 - probability)) as f32;
            assert!(found.iter().all(|value| *value == 0.0 || *value == scale));
            let dropped = found.iter().filter(|value| **value == 0.0).count() as f64;
            let count = found.len() as f64;
            // Five standard deviations of a binomial.
            let most = 5.0 * (count * probability * (1.0 - probability)).sqrt();
            assert!((dropped - probability * count).abs() < most, "{probability}: {dropped}");
        }
    }

    #[test]
    fn values_without_autodiff_stay_without_it() {
        let values = Tensor::<2>::ones([2, 3], &Device::flex());
        assert!(!dropout(values.clone(), of(0.5, KEY)).is_autodiff());
        assert!(dropout(values.autodiff(), of(0.5, KEY)).is_autodiff());
    }
}
