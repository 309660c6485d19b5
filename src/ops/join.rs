//! Maps put behind one another, and sums of maps. Burn's run on one thread on the CPU.

use burn::tensor::Tensor;

#[cfg(feature = "cpu")]
use super::host::{Planes, made};

/// Maps of the same height and width, the channels of one behind those of the other.
pub fn joined(maps: Vec<Tensor<4>>) -> Tensor<4> {
    #[cfg(feature = "cpu")]
    if maps.len() > 1 && maps.iter().all(Planes::takes) {
        let [batch, _, height, width] = maps[0].dims();
        let channels: Vec<usize> = maps.iter().map(|map| map.dims()[1]).collect();
        let maps: Vec<Planes> = maps.into_iter().map(Planes::of).collect();
        let counts = channels.iter().map(|channels| channels * height * width);
        let parts: Vec<_> = maps.iter().map(Planes::maps).zip(counts).collect();
        let shape = [batch, channels.iter().sum(), height, width];
        return made(shape, trainer_cpu::joined(batch, &parts));
    }
    Tensor::cat(maps, 1)
}

/// The sum of two maps of the same shape: in the memory of one that nobody else has.
pub fn added(left: Tensor<4>, right: Tensor<4>) -> Tensor<4> {
    #[cfg(feature = "cpu")]
    if Planes::takes(&left) && Planes::takes(&right) {
        let batch = left.dims()[0];
        let [mut left, mut right] = [left, right].map(Planes::of);
        if let Some(sum) = left.writable() {
            trainer_cpu::add(batch, sum, right.maps());
            return left.into_tensor();
        }
        if let Some(sum) = right.writable() {
            trainer_cpu::add(batch, sum, left.maps());
            return right.into_tensor();
        }
        return left.into_tensor() + right.into_tensor();
    }
    left + right
}

#[cfg(all(test, feature = "cpu"))]
mod tests {
    use burn::tensor::{DType, Device, TensorData};

    use super::*;

    fn wave(channels: usize, speed: f64) -> Tensor<4> {
        crate::wave::wave([3, channels, 5, 7], speed, &Device::flex()).cast(DType::F32)
    }

    fn data(map: Tensor<4>) -> TensorData {
        map.into_data()
    }

    /// A map, some channels of one, and one whose values lie in another order.
    fn maps() -> [Tensor<4>; 3] {
        let swapped = crate::wave::wave([3, 4, 7, 5], 2.1, &Device::flex()).cast(DType::F32);
        [wave(4, 0.7), wave(9, 1.3).narrow(1, 2, 4), swapped.swap_dims(2, 3)]
    }

    #[test]
    fn joined_and_added_maps_are_burns() {
        let [dense, part, other] = maps();
        let turned = wave(4, 0.9).flip([3]);
        let all = vec![dense.clone(), part.clone(), other, turned];
        assert_eq!(data(joined(all.clone())), data(Tensor::cat(all.clone(), 1)));
        assert_eq!(data(joined(vec![part.clone()])), data(part.clone()));
        for left in &all {
            for right in &all {
                let expected = data(left.clone() + right.clone());
                assert_eq!(data(added(left.clone(), right.clone())), expected);
                // Of one that nobody else has, and of both.
                let own = |map: &Tensor<4>| Tensor::from_data(data(map.clone()), &map.device());
                assert_eq!(data(added(own(left), right.clone())), expected);
                assert_eq!(data(added(left.clone(), own(right))), expected);
                assert_eq!(data(added(own(left), own(right))), expected);
            }
        }
        assert_eq!(data(dense), data(wave(4, 0.7)), "what others have is not written");
    }

    #[test]
    fn autodiff_sees_what_it_records() {
        let leaf = wave(4, 0.7).autodiff().require_grad();
        let both = added(joined(vec![leaf.clone(), leaf.clone()]), wave(8, 1.3).autodiff());
        let found = both.sum().backward();
        let gradient = leaf.grad(&found).expect("a gradient");
        assert!(gradient.into_data().iter::<f32>().all(|value| value == 2.0));
    }
}
