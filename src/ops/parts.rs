//! Arithmetic that works on each number by itself, part by part.

use burn::backend::Flex;
use burn::backend::tensor::FloatTensor;
use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use super::host::{self, Values, is_single_on_cpu};
use super::primitives::{primitive, tensor};

/// Numbers of a part: what is made of them stays in a core's cache.
const PART: usize = 1 << 14;

/// Whether [`in_parts`] takes these: of 32 bits on the CPU, and more than a part.
pub fn comes_in_parts(values: &[&Tensor<1>]) -> bool {
    let many = values.first().is_some_and(|first| first.dims()[0] > PART);
    many && values.iter().all(|one| is_single_on_cpu(one))
}

/// What `work` makes of `changed`, given `read`: all are as long, and what becomes of a number depends on those at its place
/// alone. Threads do it part by part, so that it reads and writes memory once, whatever it makes on the way. What nobody else
/// holds is written over.
pub fn in_parts(
    read: Tensor<1>,
    changed: Vec<Tensor<1>>,
    work: impl Fn(Tensor<1>, Vec<Tensor<1>>) -> Vec<Tensor<1>> + Sync,
) -> Vec<Tensor<1>> {
    let read = Values::of(read);
    let mut changed: Vec<FloatTensor<Flex>> = changed.into_iter().map(writable).collect();
    let mut parts: Vec<(&[f32], Vec<&mut [f32]>)> =
        read.all().chunks(PART).map(|read| (read, Vec::new())).collect();
    for values in &mut changed {
        let values = values.try_storage_mut::<f32>().expect("nobody else holds it");
        parts.iter_mut().zip(values.chunks_mut(PART)).for_each(|(part, own)| part.1.push(own));
    }
    let of = |values: &[f32]| {
        let data = TensorData::new(values.to_vec(), [values.len()]);
        tensor::<Flex, 1>(FloatTensor::<Flex>::from_data(data))
    };
    parts.into_par_iter().for_each(|(read, own)| {
        let made = work(of(read), own.iter().map(|own| of(own)).collect());
        for (own, made) in own.into_iter().zip(made) {
            own.copy_from_slice(Values::of(made).all());
        }
    });
    changed.into_iter().map(tensor::<Flex, 1>).collect()
}

/// The values as all that is held, by nobody else.
fn writable(values: Tensor<1>) -> FloatTensor<Flex> {
    let mut values = primitive::<Flex, 1>(values);
    if host::writable(&mut values).is_some() {
        return values;
    }
    let count = values.layout().num_elements();
    let copied = Values::of(tensor::<Flex, 1>(values)).all().to_vec();
    FloatTensor::<Flex>::from_data(TensorData::new(copied, [count]))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn parts_make_what_the_whole_makes_and_leave_what_others_hold() {
        let device = Device::flex();
        let count = 3 * PART + 77;
        let wave = |speed| crate::wave::wave([count], speed, &device);
        let work = |read: Tensor<1>, changed: Vec<Tensor<1>>| {
            let [first, second] = <[Tensor<1>; 2]>::try_from(changed).expect("two");
            vec![first.clone() * read.clone() + second.clone(), second - first.mul_scalar(0.3)]
        };
        let (read, held) = (wave(0.7), wave(1.3));
        // Some numbers of others, and such as are held twice.
        let within = wave(0.9).narrow(0, 5, count - 5);
        let cut = |values: &Tensor<1>| values.clone().narrow(0, 0, count - 5);
        let given = || vec![cut(&held), within.clone()];
        assert!(comes_in_parts(&[&cut(&read), &within]));
        let data =
            |made: Vec<Tensor<1>>| made.into_iter().map(Tensor::into_data).collect::<Vec<_>>();
        let whole = data(work(cut(&read), given()));
        assert_eq!(data(in_parts(cut(&read), given(), work)), whole);
        assert_eq!(held.into_data(), wave(1.3).into_data());
        assert_eq!(within.into_data(), wave(0.9).narrow(0, 5, count - 5).into_data());
        // What nobody else holds.
        let alone = data(in_parts(wave(0.7), vec![wave(1.3), wave(0.9)], work));
        assert_eq!(alone, data(work(wave(0.7), vec![wave(1.3), wave(0.9)])));
    }
}
