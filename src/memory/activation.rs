//! What flows between stages.

use burn::tensor::Tensor;

use super::offload::OffloadTensor;

#[cfg(feature = "cuda")]
use crate::ops::gpu::DeviceMap;

/// The value that one stage hands to the next, or the gradient with respect to it.
#[derive(Debug, Clone)]
pub enum Activation {
    /// Images or feature maps, `[batch, channels, height, width]`.
    Map(Tensor<4>),
    /// Pooled features, `[batch, features]`.
    Features(Tensor<2>),
    /// One tensor per head, `[batch, outputs]` each.
    Outputs(Vec<Tensor<2>>),
    /// Feature maps between fused stages.
    #[cfg(feature = "cuda")]
    Device(Box<DeviceMap>),
}

/// The shape of an [`Activation`], known before any device is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActivationShape {
    /// `[batch, channels, height, width]`.
    Map([usize; 4]),
    /// `[batch, features]`.
    Features([usize; 2]),
    /// `[batch, outputs]` per head.
    Outputs(Vec<[usize; 2]>),
}

impl ActivationShape {
    /// How many images.
    pub fn batch(&self) -> usize {
        match self {
            Self::Map([batch, ..]) | Self::Features([batch, _]) => *batch,
            Self::Outputs(outputs) => outputs.first().map_or(0, |[batch, _]| *batch),
        }
    }
}

impl Activation {
    /// The feature maps.
    ///
    /// # Panics
    ///
    /// When the activation is something else: the chain was put together wrongly.
    pub fn into_map(self) -> Tensor<4> {
        match self {
            Self::Map(map) => map,
            #[cfg(feature = "cuda")]
            Self::Device(map) => map.to_tensor(),
            other => panic!("a stage expected feature maps and was given {:?}", other.shape()),
        }
    }

    /// The pooled features.
    ///
    /// # Panics
    ///
    /// When the activation is something else: the chain was put together wrongly.
    pub fn into_features(self) -> Tensor<2> {
        match self {
            Self::Features(features) => features,
            other => panic!("a stage expected features and was given {:?}", other.shape()),
        }
    }

    /// The heads' outputs.
    ///
    /// # Panics
    ///
    /// When the activation is something else: the chain was put together wrongly.
    pub fn into_outputs(self) -> Vec<Tensor<2>> {
        match self {
            Self::Outputs(outputs) => outputs,
            other => panic!("the chain ended in {:?} instead of outputs", other.shape()),
        }
    }

    /// Its shape.
    pub fn shape(&self) -> ActivationShape {
        match self {
            Self::Map(map) => ActivationShape::Map(map.dims()),
            Self::Features(features) => ActivationShape::Features(features.dims()),
            Self::Outputs(outputs) => {
                ActivationShape::Outputs(outputs.iter().map(Tensor::dims).collect())
            }
            #[cfg(feature = "cuda")]
            Self::Device(map) => ActivationShape::Map(map.shape()),
        }
    }

    /// What of it can be moved off the device.
    pub fn offload_tensors(&mut self) -> Vec<OffloadTensor<'_>> {
        match self {
            Self::Map(map) => vec![OffloadTensor::Map(map)],
            Self::Features(features) => vec![OffloadTensor::Features(features)],
            Self::Outputs(outputs) => outputs.iter_mut().map(OffloadTensor::Features).collect(),
            #[cfg(feature = "cuda")]
            Self::Device(map) => {
                let gpu = map.gpu.clone();
                vec![OffloadTensor::Buffer(gpu, map.data.buffer_mut())]
            }
        }
    }

    /// The same values in autodiff: as a fresh leaf, whose gradient can be asked for, or as a constant.
    pub(crate) fn into_autodiff(self, leaf: bool) -> Self {
        fn of<const D: usize>(values: Tensor<D>, leaf: bool) -> Tensor<D> {
            let values = values.autodiff();
            if leaf { values.require_grad() } else { values }
        }
        match self {
            Self::Map(map) => Self::Map(of(map, leaf)),
            Self::Features(features) => Self::Features(of(features, leaf)),
            Self::Outputs(outputs) => {
                Self::Outputs(outputs.into_iter().map(|output| of(output, leaf)).collect())
            }
            #[cfg(feature = "cuda")]
            Self::Device(map) => Self::Map(of(map.to_tensor(), leaf)),
        }
    }

    /// The same values without autodiff.
    pub(crate) fn into_values(self) -> Self {
        match self {
            Self::Map(map) => Self::Map(map.without_autodiff()),
            Self::Features(features) => Self::Features(features.without_autodiff()),
            Self::Outputs(outputs) => {
                Self::Outputs(outputs.into_iter().map(Tensor::without_autodiff).collect())
            }
            #[cfg(feature = "cuda")]
            Self::Device(map) => Self::Device(map),
        }
    }

    /// The gradient of each leaf made by [`Activation::into_autodiff`]; zero where nothing depends on it.
    pub(crate) fn gradient(&self, gradients: &mut burn::tensor::Gradients) -> Self {
        fn of<const D: usize>(leaf: &Tensor<D>, all: &mut burn::tensor::Gradients) -> Tensor<D> {
            leaf.grad_remove(all).unwrap_or_else(|| leaf.clone().without_autodiff().zeros_like())
        }
        match self {
            Self::Map(map) => Self::Map(of(map, gradients)),
            Self::Features(features) => Self::Features(of(features, gradients)),
            Self::Outputs(outputs) => {
                Self::Outputs(outputs.iter().map(|output| of(output, gradients)).collect())
            }
            #[cfg(feature = "cuda")]
            Self::Device(_) => unreachable!("leaves are tensors"),
        }
    }
}
