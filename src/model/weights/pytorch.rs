//! Files that `torch.save` wrote.

use std::io::{ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pytorch_reader::{DType, PytorchError, PytorchReader, Tensor};
use tempfile::NamedTempFile;

use super::decode::{Float, to_f32};
use super::{NamedTensor, Weights, WeightsError, legacy};
use crate::paths::open_file;

/// Where checkpoints hold their state dict, if not at the top.
const NESTED: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// Views may repeat one stored number, so a few bytes may claim to be a tensor of any size. No real
/// checkpoint repeats itself as often as this.
const MOST_REPETITION: u64 = 16;

/// The package that a model's class is from.
const TORCHXRAYVISION: &[u8] = b"torchxrayvision.models";

/// The bytes that are searched for it.
const BEGINNING: usize = 4096;

pub(super) fn read(path: &Path) -> Result<Weights, WeightsError> {
    // The file is a stranger's, and the program that its pickle is, is interpreted.
    catch_unwind(AssertUnwindSafe(|| read_inner(path)))
        .unwrap_or_else(|_| Err(damaged(path, "reading it failed at an unexpected place")))
}

fn read_inner(path: &Path) -> Result<Weights, WeightsError> {
    let failed = |source| WeightsError::Io { path: path.to_owned(), source };
    let file_bytes = std::fs::metadata(path).map_err(failed)?.len();
    let plain = plain_file(path).map_err(failed)?;
    let opened = open(plain.as_ref().map_or(path, NamedTempFile::path), path)?;
    let mut tensors: Vec<Tensor> = opened.into_tensors().into_values().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let claimed =
        tensors.iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.byte_len() as u64));
    if claimed > file_bytes.saturating_mul(MOST_REPETITION) {
        let why = format!("it has {file_bytes} bytes and claims to hold {claimed}");
        return Err(damaged(path, &why));
    }
    // A whole model's class stands at the beginning of its pickle, which is not compressed.
    let beginning = beginning(path, BEGINNING).map_err(failed)?;
    let mut words = beginning.windows(TORCHXRAYVISION.len());
    let torchxrayvision = words.any(|bytes| bytes == TORCHXRAYVISION);
    let mut weights = Weights { torchxrayvision, ..Weights::default() };
    for tensor in tensors {
        let kind = match tensor.dtype() {
            DType::F64 => Float::F64,
            DType::F32 => Float::F32,
            DType::F16 => Float::F16,
            DType::BF16 => Float::Bf16,
            _ => {
                weights.skipped.push(tensor.name);
                continue;
            }
        };
        let bytes = tensor.read().map_err(|error| damaged(path, &error.to_string()))?;
        let data = to_f32(kind, &bytes).ok_or_else(|| WeightsError::Range {
            path: path.to_owned(),
            tensor: tensor.name.clone(),
        })?;
        let shape = tensor.shape().to_vec();
        weights.tensors.push(NamedTensor { name: tensor.name, shape, data });
    }
    Ok(weights)
}

/// The first bytes of the file, at most so many.
fn beginning(path: &Path, bytes: usize) -> std::io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    open_file(path)?.take(bytes as u64).read_to_end(&mut beginning)?;
    Ok(beginning)
}

/// A copy of the file at `path` that names classes as the reader knows them, where that one does not.
/// Tensors are read from it, so it stays as long as they are.
fn plain_file(path: &Path) -> std::io::Result<Option<NamedTempFile>> {
    if beginning(path, legacy::MAGIC.len())? == legacy::MAGIC
        && let Some(bytes) = legacy::with_plain_classes(&std::fs::read(path)?)
    {
        let mut file = NamedTempFile::new()?;
        file.write_all(&bytes)?;
        return Ok(Some(file));
    }
    Ok(None)
}

/// Opens `file`, which is called `path` in errors.
fn open(file: &Path, path: &Path) -> Result<PytorchReader, WeightsError> {
    for key in NESTED {
        // Something else may be called `model`; and what is wrong with a file that cannot be read at
        // all is said below.
        if let Ok(reader) = PytorchReader::with_top_level_key(file, key)
            && !reader.is_empty()
        {
            return Ok(reader);
        }
    }
    PytorchReader::new(file).map_err(|error| match error {
        PytorchError::Io(source)
            if !matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) =>
        {
            WeightsError::Io { path: path.to_owned(), source }
        }
        other => damaged(path, &other.to_string()),
    })
}

fn damaged(path: &Path, why: &str) -> WeightsError {
    WeightsError::Damaged { path: path.to_owned(), kind: "PyTorch", why: why.to_owned() }
}
