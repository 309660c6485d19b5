//! Tensors taken from a saved state, complete and without any left over.

use std::collections::BTreeMap;
use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};

use super::OptimError;

/// Removes `name` from the saved `tensors` and brings it to `device` bit for bit; `None` where it
/// is not there.
pub(super) fn take(
    what: &'static str,
    tensors: &mut BTreeMap<String, TensorData>,
    name: &str,
    expected: usize,
    device: &Device,
) -> Result<Option<Tensor<1>>, OptimError> {
    let Some(data) = tensors.remove(name) else { return Ok(None) };
    let name = name.to_owned();
    let (found, dtype) = (data.num_elements(), data.dtype());
    if data.shape().as_slice() != [expected] {
        return Err(OptimError::Length { what, name, found, expected });
    }
    if !dtype.is_float() {
        return Err(OptimError::Type { what, name, found: dtype });
    }
    Ok(Some(Tensor::from_data(data, (device, dtype))))
}

/// The numbers `range` of the saved tensor `name`, which must have `length` of them; `None` where that is none.
///
/// # Errors
/// When it has another length.
pub fn saved_part(
    what: &'static str,
    name: &str,
    data: &TensorData,
    length: usize,
    range: Range<usize>,
) -> Result<Option<TensorData>, OptimError> {
    let found = data.num_elements();
    if found != length {
        return Err(OptimError::Length { what, name: name.to_owned(), found, expected: length });
    }
    let (numbers, size) = (data.dtype(), data.dtype().size());
    let bytes = data.as_bytes()[range.start * size..range.end * size].to_vec();
    let part = || TensorData::from_bytes_vec(bytes, [range.len()], numbers);
    Ok((!range.is_empty()).then(part))
}

/// An error unless nothing is missing and nothing is left over.
pub(super) fn complete(
    what: &'static str,
    missing: Vec<String>,
    foreign: Vec<String>,
) -> Result<(), OptimError> {
    if !missing.is_empty() {
        return Err(OptimError::Missing { what, names: missing });
    }
    if !foreign.is_empty() {
        return Err(OptimError::Foreign { what, names: foreign });
    }
    Ok(())
}
