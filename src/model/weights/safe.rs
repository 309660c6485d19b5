//! SafeTensors files.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use burn::tensor::{DType, f16};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, View};

use super::decode::{Float, to_f32};
use super::{NamedTensor, Weights, WeightsError, XRV_LEVELS};
use crate::paths::read_file;

/// [`write_with`] in 32 bits and without texts.
///
/// # Errors
/// As there.
pub fn write(tensors: &[NamedTensor]) -> Result<Vec<u8>, WeightsError> {
    write_with(DType::F32, tensors, &BTreeMap::new())
}

/// The texts in the metadata of the file at `path`; none of a file that is no SafeTensors.
///
/// # Errors
/// When the file cannot be read.
pub fn notes(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let failed = |source| WeightsError::Io { path: path.to_owned(), source };
    let bytes = read_file(path, u64::MAX - 1).map_err(failed)?;
    let metadata = SafeTensors::read_metadata(&bytes).ok();
    let notes = metadata.and_then(|(_, metadata)| metadata.metadata().clone());
    Ok(notes.unwrap_or_default().into_iter().collect())
}

/// The bytes of a SafeTensors file with these tensors in `numbers`, 32-bit or fp16, as PyTorch's tools
/// read it, and with these texts in its metadata.
///
/// The same tensors give the same bytes, in whatever order they come.
///
/// # Errors
/// When two tensors have one name, or a tensor's numbers do not fit its shape.
pub fn write_with(
    numbers: DType,
    tensors: &[NamedTensor],
    metadata: &BTreeMap<String, String>,
) -> Result<Vec<u8>, WeightsError> {
    let halves = numbers == DType::F16;
    let mut seen = BTreeSet::new();
    for tensor in tensors {
        if !seen.insert(&tensor.name) {
            return Err(WeightsError::Write(format!("{:?} is there twice", tensor.name)));
        }
        if tensor.shape.iter().product::<usize>() != tensor.data.len() {
            return Err(WeightsError::Write(format!(
                "{:?} has shape {:?} and {} numbers",
                tensor.name,
                tensor.shape,
                tensor.data.len()
            )));
        }
    }
    let views = tensors.iter().map(|tensor| (tensor.name.as_str(), Written { tensor, halves }));
    let format = std::iter::once(("format".to_owned(), "pt".to_owned()));
    let notes = metadata.iter().map(|(key, text)| (key.clone(), text.clone()));
    let metadata = in_order(format.chain(notes));
    safetensors::serialize(views, Some(metadata))
        .map_err(|error| WeightsError::Write(error.to_string()))
}

/// A map that goes by its keys' order. Each map has a random order of its own, in which it is written;
/// with the few keys of metadata, one of the next has the right one.
fn in_order(entries: impl Iterator<Item = (String, String)> + Clone) -> HashMap<String, String> {
    loop {
        let map: HashMap<String, String> = entries.clone().collect();
        if map.keys().is_sorted() {
            return map;
        }
    }
}

/// Makes the bytes of one tensor at a time.
struct Written<'a> {
    tensor: &'a NamedTensor,
    /// Whether its numbers are written in fp16.
    halves: bool,
}

impl View for Written<'_> {
    fn dtype(&self) -> Dtype {
        if self.halves { Dtype::F16 } else { Dtype::F32 }
    }

    fn shape(&self) -> &[usize] {
        &self.tensor.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let numbers = &self.tensor.data;
        match self.halves {
            true => in_bytes(numbers, |number| f16::from_f32(number).to_le_bytes()).into(),
            false => in_bytes(numbers, f32::to_le_bytes).into(),
        }
    }

    fn data_len(&self) -> usize {
        self.tensor.data.len() * if self.halves { size_of::<f16>() } else { size_of::<f32>() }
    }
}

/// The bytes of all `numbers`. Collected byte by byte they take twenty times as long.
fn in_bytes<const N: usize>(numbers: &[f32], of: impl Fn(f32) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; numbers.len() * N];
    let (places, _) = bytes.as_chunks_mut();
    places.iter_mut().zip(numbers).for_each(|(place, number)| *place = of(*number));
    bytes
}

/// Reads the bytes of a SafeTensors file. `path` is for messages.
///
/// # Errors
/// When they are damaged, or hold numbers that cannot be read as f32.
pub fn parse(bytes: &[u8], path: &Path) -> Result<Weights, WeightsError> {
    let damaged = |error: SafeTensorError| WeightsError::Damaged {
        path: path.to_owned(),
        kind: "SafeTensors",
        why: error.to_string(),
    };
    let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
    let (key, levels) = XRV_LEVELS;
    let noted = header.metadata().as_ref().and_then(|metadata| metadata.get(key));
    let xrv_levels = noted.is_some_and(|noted| noted == levels);
    let mut weights = Weights { xrv_levels, ..Weights::default() };
    for (name, view) in file.iter() {
        let kind = match view.dtype() {
            Dtype::F64 => Float::F64,
            Dtype::F32 => Float::F32,
            Dtype::F16 => Float::F16,
            Dtype::BF16 => Float::Bf16,
            Dtype::BOOL
            | Dtype::U8
            | Dtype::I8
            | Dtype::U16
            | Dtype::I16
            | Dtype::U32
            | Dtype::I32
            | Dtype::U64
            | Dtype::I64 => {
                weights.skipped.push(name.to_owned());
                continue;
            }
            other => {
                return Err(WeightsError::Dtype {
                    path: path.to_owned(),
                    tensor: name.to_owned(),
                    dtype: other.to_string(),
                });
            }
        };
        let data = to_f32(kind, view.data()).ok_or_else(|| WeightsError::Range {
            path: path.to_owned(),
            tensor: name.to_owned(),
        })?;
        let (name, shape) = (name.to_owned(), view.shape().to_vec());
        weights.tensors.push(NamedTensor { name, shape, data });
    }
    weights.tensors.sort_by(|a, b| a.name.cmp(&b.name));
    weights.skipped.sort();
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, shape: &[usize], data: &[f32]) -> NamedTensor {
        NamedTensor { name: name.to_owned(), shape: shape.to_vec(), data: data.to_vec() }
    }

    #[test]
    fn every_bit_comes_back_and_the_order_does_not_matter() {
        let odd = f32::from_bits(0x7fc0_1234);
        let tensors = [
            tensor("a", &[2, 2], &[0.0, -0.0, f32::INFINITY, odd]),
            tensor("b", &[], &[f32::MIN_POSITIVE / 2.0]),
            tensor("c", &[0, 3], &[]),
        ];
        let bytes = write(&tensors).expect("writes");
        let read = parse(&bytes, Path::new("memory")).expect("reads");
        assert_eq!(read.tensors.len(), tensors.len());
        for (read, written) in read.tensors.iter().zip(&tensors) {
            assert_eq!((&read.name, &read.shape), (&written.name, &written.shape));
            let bits =
                |data: &[f32]| data.iter().map(|number| number.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&read.data), bits(&written.data));
        }
        let [a, b, c] = tensors;
        assert_eq!(write(&[c, a, b]).expect("writes"), bytes);
    }

    #[test]
    fn a_note_stands_in_the_metadata_and_the_same_note_gives_the_same_bytes() {
        let tensors = [tensor("a", &[1], &[1.0])];
        let note = BTreeMap::from([("standardize".to_owned(), "{\"age\":{}}".to_owned())]);
        let bytes = write_with(DType::F32, &tensors, &note).expect("writes");
        for _ in 0..20 {
            assert_eq!(write_with(DType::F32, &tensors, &note).expect("writes"), bytes);
        }
        let (_, header) = SafeTensors::read_metadata(&bytes).expect("reads");
        let metadata = header.metadata().clone().expect("is there");
        let expected = [("format", "pt"), ("standardize", "{\"age\":{}}")];
        let expected = expected.map(|(key, text)| (key.to_owned(), text.to_owned()));
        assert_eq!(metadata, HashMap::from(expected));
        assert_eq!(parse(&bytes, Path::new("memory")).expect("reads").tensors, tensors);
    }

    #[test]
    fn tensors_that_no_file_can_hold_are_refused() {
        let twice = [tensor("a", &[1], &[1.0]), tensor("a", &[1], &[2.0])];
        let error = write(&twice).expect_err("is refused").to_string();
        assert_eq!(error, "cannot write the weights: \"a\" is there twice");
        let error = write(&[tensor("a", &[2, 3], &[1.0])]).expect_err("is refused").to_string();
        assert_eq!(error, "cannot write the weights: \"a\" has shape [2, 3] and 1 numbers");
    }
}
