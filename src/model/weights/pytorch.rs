//! Files that `torch.save` wrote.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use pytorch_reader::{DType, PytorchError, PytorchReader, Tensor};

use super::decode::{Float, to_f32};
use super::{NamedTensor, Weights, WeightsError};

/// Where checkpoints hold their state dict, if not at the top.
const NESTED: [&str; 3] = ["state_dict", "model_state_dict", "model"];

/// Views may repeat one stored number, so a few bytes may claim to be a tensor of any size. No real
/// checkpoint repeats itself as often as this.
const MOST_REPETITION: u64 = 16;

pub(super) fn read(path: &Path) -> Result<Weights, WeightsError> {
    // The file is a stranger's, and the program that its pickle is, is interpreted.
    catch_unwind(AssertUnwindSafe(|| read_inner(path)))
        .unwrap_or_else(|_| Err(damaged(path, "reading it failed at an unexpected place")))
}

fn read_inner(path: &Path) -> Result<Weights, WeightsError> {
    let failed = |source| WeightsError::Io { path: path.to_owned(), source };
    let file_bytes = std::fs::metadata(path).map_err(failed)?.len();
    let mut tensors: Vec<Tensor> = open(path)?.into_tensors().into_values().collect();
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let claimed =
        tensors.iter().fold(0, |sum: u64, tensor| sum.saturating_add(tensor.byte_len() as u64));
    if claimed > file_bytes.saturating_mul(MOST_REPETITION) {
        let why = format!("it has {file_bytes} bytes and claims to hold {claimed}");
        return Err(damaged(path, &why));
    }
    let mut weights = Weights::default();
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

fn open(path: &Path) -> Result<PytorchReader, WeightsError> {
    for key in NESTED {
        match PytorchReader::with_top_level_key(path, key) {
            Ok(reader) if !reader.is_empty() => return Ok(reader),
            // Something else may be called `model`; and what is wrong with a file that cannot be
            // read at all is said below.
            Ok(_) | Err(_) => {}
        }
    }
    PytorchReader::new(path).map_err(|error| match error {
        PytorchError::Io(source)
            if !matches!(
                source.kind(),
                std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData
            ) =>
        {
            WeightsError::Io { path: path.to_owned(), source }
        }
        other => damaged(path, &other.to_string()),
    })
}

fn damaged(path: &Path, why: &str) -> WeightsError {
    WeightsError::Damaged { path: path.to_owned(), kind: "PyTorch", why: why.to_owned() }
}
