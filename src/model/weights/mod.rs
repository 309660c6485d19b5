//! Weights in files: SafeTensors written and read, PyTorch's own files read.
//!
//! Everything is f32 here, whatever the file holds; see [`read`].

mod decode;
mod initial;
mod legacy;
mod names;
mod pytorch;
mod safe;
mod torchvision;
mod xrv;

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::paths::{looked_in, read_file};

pub use initial::{Adapted, Initial, InitialError, initial, sees_xrv_levels};
pub use names::{Matched, Mismatch, match_names};
pub use safe::{notes, parse, write, write_with};
pub use torchvision::{NoTorchvision, Renamed, to_torchvision};

/// What the metadata of a SafeTensors file have where its model is for levels from −1024 to 1024: such a
/// file is what an import of torchxrayvision's weights writes.
pub const XRV_LEVELS: (&str, &str) = ("normalize", "xrv");

/// A tensor and its name, in host memory.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedTensor {
    /// Dotted, as PyTorch names parameters and buffers.
    pub name: String,
    /// Empty for a scalar.
    pub shape: Vec<usize>,
    /// In row-major order.
    pub data: Vec<f32>,
}

/// What a file of weights holds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Weights {
    /// The floating-point tensors, in the order of their names.
    pub tensors: Vec<NamedTensor>,
    /// The names of integer and boolean tensors, such as `num_batches_tracked`: no weights, and not
    /// read.
    pub skipped: Vec<String>,
    /// Whether it is a whole model that torchxrayvision saved.
    pub torchxrayvision: bool,
    /// Whether its metadata say that it is for levels from −1024 to 1024; see [`XRV_LEVELS`].
    pub xrv_levels: bool,
}

/// A file of weights could not be read or written.
#[derive(Debug, Error)]
pub enum WeightsError {
    /// The file cannot be opened or read.
    #[error("cannot read the weights in {}{}: {source}", path.display(), looked_in(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Its name says nothing about how to read it.
    #[error(
        "{} does not say what kind of file it is: weights are read from `.safetensors`, and from \
         `.pth`, `.pt`, `.ckpt` and `.bin` as PyTorch writes them",
        .0.display()
    )]
    Kind(PathBuf),
    /// It is damaged, or something else than its name says.
    #[error("{} is no readable {kind} file: {why}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// `SafeTensors` or `PyTorch`.
        kind: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A tensor has a type that cannot be read as f32.
    #[error(
        "{} holds {tensor:?} as {dtype}, which is not read: save it as float32 instead",
        path.display()
    )]
    Dtype {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// Its type, as the file names it.
        dtype: String,
    },
    /// A 64-bit number is too large for f32.
    #[error("{} holds a number in {tensor:?} that is too large for float32", path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
    },
    /// There is no floating-point tensor in it.
    #[error("{} holds no weights: there is no floating-point tensor in it", .0.display())]
    Empty(PathBuf),
    /// Tensors that no file can hold.
    #[error("cannot write the weights: {0}")]
    Write(String),
}

/// Reads the weights in a `.safetensors` file, or in a `.pth`, `.pt`, `.ckpt` or `.bin` file as
/// PyTorch writes it: a state dict, a checkpoint that holds one under `state_dict`, `model_state_dict` or
/// `model`, or a whole model.
///
/// f32, f16, bf16 and f64 are read, all as f32.
///
/// # Errors
/// When the file is missing, damaged, of another kind, or without weights; all name the file.
pub fn read(path: &Path) -> Result<Weights, WeightsError> {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    let weights = match extension.to_ascii_lowercase().as_str() {
        "safetensors" => {
            let failed = |source| WeightsError::Io { path: path.to_owned(), source };
            parse(&read_file(path, u64::MAX - 1).map_err(failed)?, path)?
        }
        "pth" | "pt" | "ckpt" | "bin" => pytorch::read(path)?,
        _ => return Err(WeightsError::Kind(path.to_owned())),
    };
    if weights.tensors.is_empty() {
        return Err(WeightsError::Empty(path.to_owned()));
    }
    Ok(weights)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(serde::Deserialize)]
    struct Expected {
        tensors: BTreeMap<String, ExpectedTensor>,
        integers: Vec<String>,
    }

    #[derive(serde::Deserialize)]
    struct ExpectedTensor {
        shape: Vec<usize>,
        values: Vec<f32>,
    }

    fn fixture(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
    }

    const FILES: [&str; 5] = [
        "weights.safetensors",
        "weights.pth",
        "weights_legacy.pth",
        "weights_state_dict.pth",
        "weights_model.pth",
    ];

    #[test]
    fn what_torch_saved_is_read_in_every_kind_of_file() {
        let text = std::fs::read_to_string(fixture("weights.json")).expect("reads");
        let expected: Expected = serde_json::from_str(&text).expect("is JSON");
        for file in FILES {
            let weights = read(&fixture(file)).expect(file);
            assert_eq!(weights.skipped, expected.integers, "{file}");
            let names: Vec<&String> = weights.tensors.iter().map(|tensor| &tensor.name).collect();
            assert_eq!(names, expected.tensors.keys().collect::<Vec<_>>(), "{file}");
            for tensor in &weights.tensors {
                let wanted = &expected.tensors[&tensor.name];
                assert_eq!(tensor.shape, wanted.shape, "{file}: {}", tensor.name);
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&tensor.data), bits(&wanted.values), "{file}: {}", tensor.name);
            }
        }
    }

    /// Whether a damaged copy is refused by name or still holds tensors that fit their shapes.
    fn assert_contained(path: &Path, context: &str) {
        match read(path) {
            Ok(weights) => {
                for tensor in weights.tensors {
                    let numbers: usize = tensor.shape.iter().product();
                    assert_eq!(tensor.data.len(), numbers, "{context}");
                }
            }
            Err(error) => {
                let message = error.to_string();
                assert!(message.contains(&path.display().to_string()), "{context}: {message}");
            }
        }
    }

    #[test]
    fn a_damaged_file_is_refused_by_name_and_never_panics() {
        let folder = tempfile::tempdir().expect("a folder");
        for file in FILES {
            let bytes = std::fs::read(fixture(file)).expect("reads");
            let path = folder.path().join(file);
            for length in (0..bytes.len()).step_by(41) {
                std::fs::write(&path, &bytes[..length]).expect("writes");
                assert!(read(&path).is_err(), "{file} cut to {length} bytes");
                assert_contained(&path, &format!("{file} cut to {length} bytes"));
            }
            for place in (0..bytes.len()).step_by(11) {
                for flip in [0x01, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[place] ^= flip;
                    std::fs::write(&path, damaged).expect("writes");
                    assert_contained(&path, &format!("{file} with byte {place} ^ {flip:#x}"));
                }
            }
        }
    }

    #[test]
    fn a_file_of_another_kind_says_what_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let message = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("writes");
            read(&path).expect_err("is refused").to_string()
        };
        assert!(message("weights.onnx", "").contains("`.safetensors`"));
        assert!(message("page.pth", "<html>").contains("page.pth is no readable PyTorch file"));
        let error = message("page.safetensors", "<!DOCTYPE html><html>");
        assert!(error.contains("page.safetensors is no readable SafeTensors file"), "{error}");
        let missing = read(&folder.path().join("none.pth")).expect_err("is missing").to_string();
        assert!(missing.contains("none.pth"), "{missing}");
        let folder = read(&folder.path().join("none.safetensors")).expect_err("is missing");
        assert!(matches!(folder, WeightsError::Io { .. }), "{folder}");
    }
}
