//! A trained model as files for other programs.

use std::collections::BTreeMap;

use burn::tensor::{DType, ExecutionError};

use crate::data::{Normalize, constant_scale};
use crate::evaluate::Fitted;
use crate::model::onnx::{OnnxError, OnnxModel};
use crate::model::weights::{self, NamedTensor, NoTorchvision, WeightsError};
use crate::plan::Plan;
use crate::run::{STANDARDIZE, chain_tensors, notes};
use crate::train::Inference;

/// A model to be exported.
pub struct Export<'a> {
    /// The resolved configuration that it was trained with.
    pub plan: &'a Plan,
    /// Its weights.
    pub inference: &'a Inference,
    /// Its calibration and thresholds, where there are any.
    pub fitted: Option<&'a Fitted>,
}

/// A model cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The device failed.
    #[error("the device failed: {0:?}")]
    Device(#[from] ExecutionError),
    /// It cannot be ONNX.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
    /// torchvision has no such model.
    #[error(transparent)]
    Torchvision(#[from] NoTorchvision),
    /// No file can hold its tensors.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Its images are scaled by what is in each image.
    #[error(
        "`data.image.normalize` is {0}, which follows each image's own levels without the bars of a \
         letterbox: the graph cannot do that. Export without `--normalize-inside` and give the model \
         normalised images."
    )]
    ScaleOfImage(String),
}

impl Export<'_> {
    /// A SafeTensors file with the names that this program gives its weights, which
    /// [`initial`](crate::model::weights::initial) reads.
    ///
    /// # Errors
    /// When the device fails.
    pub fn safetensors(&self) -> Result<Vec<u8>, ExportError> {
        Ok(weights::write_with(DType::F32, &self.tensors()?, &self.of_weights())?)
    }

    /// A SafeTensors file with the names of torchvision's model.
    ///
    /// # Errors
    /// When torchvision has no such model, or the device fails.
    pub fn torchvision(&self) -> Result<Vec<u8>, ExportError> {
        let renamed = weights::to_torchvision(self.plan.model.config(), &self.plan.heads)?;
        let mut tensors = self.tensors()?;
        tensors.iter_mut().for_each(|tensor| tensor.name = renamed.name(&tensor.name));
        Ok(weights::write_with(DType::F32, &tensors, &self.of_weights())?)
    }

    /// An ONNX file; see [`OnnxModel`]. With `normalize_inside` its inputs are grey levels from 0 to 1.
    ///
    /// # Errors
    /// When the graph cannot do what is asked for, or the device fails.
    pub fn onnx(&self, normalize_inside: bool) -> Result<Vec<u8>, ExportError> {
        let values = self.tensors()?.into_iter().map(|tensor| (tensor.name, tensor.data)).collect();
        let heads = self.inference.heads.iter();
        let scale = normalize_inside.then(|| self.scale()).transpose()?;
        let model = OnnxModel {
            name: &self.plan.run.name,
            network: &self.plan.model,
            heads: heads.map(|head| (&head.config, head.standardizer.as_ref())).collect(),
            values: &values,
            scale: scale.as_deref(),
            metadata: &self.metadata(normalize_inside),
        };
        Ok(model.encode()?)
    }

    fn scale(&self) -> Result<Vec<[f32; 2]>, ExportError> {
        let image = &self.plan.data.image;
        constant_scale(&image.normalize, image.channels)
            .ok_or_else(|| ExportError::ScaleOfImage(written(&image.normalize)))
    }

    fn tensors(&self) -> Result<Vec<NamedTensor>, ExportError> {
        Ok(chain_tensors(&self.inference.chain)?)
    }

    /// What travels with weights alone: also how numbers are standardised, which a graph does itself.
    fn of_weights(&self) -> BTreeMap<String, String> {
        let mut metadata = self.metadata(false);
        let heads = self.inference.heads.iter();
        let standardized: BTreeMap<&String, _> = heads
            .filter_map(|head| Some((&head.config.name, head.standardizer.as_ref()?)))
            .collect();
        if !standardized.is_empty() {
            let standardized = serde_json::json!(standardized).to_string();
            metadata.insert(STANDARDIZE.to_owned(), standardized);
        }
        metadata
    }

    /// What travels with the weights: the [`notes`] of a saved state and, where there is one, `fitted`.
    fn metadata(&self, takes_levels: bool) -> BTreeMap<String, String> {
        let mut notes = notes(&self.plan.heads, &self.plan.data.image, takes_levels);
        let fitted = self.fitted.map(|fitted| serde_json::json!(fitted).to_string());
        notes.extend(fitted.map(|fitted| ("fitted".to_owned(), fitted)));
        notes
    }
}

/// As a configuration has it.
fn written(normalize: &Normalize) -> String {
    serde_json::json!(normalize).to_string()
}
