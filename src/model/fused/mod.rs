//! DenseNet's and ResNet's stages on hand-written CUDA kernels: the same parameters, names and arithmetic as the
//! stages beside them, forward and backward by hand.
//!
//! Maps stay in the GPU's layout and precision between them. In a DenseNet every channel's statistics
//! travel with it, computed once where the channel is written, and a block's maps lie in one buffer,
//! which the stage before it makes and writes its output into.

mod block;
mod mean;
mod plain_stem;
mod pool;
mod residual;
mod stem;
mod store;
mod transition;

pub(super) use block::FusedBlock;
pub(super) use mean::FusedMean;
pub(super) use plain_stem::FusedPlainStem;
pub(super) use pool::FusedPool;
pub(super) use residual::FusedResidual;
pub(super) use stem::FusedStem;
pub(super) use transition::FusedTransition;

use burn::tensor::{Device, Tensor};

use crate::memory::{Activation, MemoryConfig, Precision};
use crate::ops::cuda::{Columns, DeviceMap, Element, Gpu, Kernels, Moments, Sums};

/// The kernels that fused stages on `device` use; `None` on another device than a GPU, and where
/// parameters are to be held in 16 bits, which the kernels read in 32.
pub(super) fn kernels(device: &Device, memory: &MemoryConfig) -> Option<Kernels> {
    let element = match memory.precision {
        Precision::Fp32 => Element::F32,
        Precision::Tf32 => Element::Tf32,
        Precision::Bf16 => Element::Bf16,
        Precision::Fp16 => Element::F16,
        Precision::Half => return None,
    };
    Gpu::of(device).map(|gpu| Kernels::new(gpu, element))
}

/// The maps given to a stage, and whether they came as a tensor, as which their gradient is to go.
fn device_map(kernels: &Kernels, input: Activation) -> (DeviceMap, bool) {
    match input {
        Activation::Device(map) => (*map, false),
        other => (DeviceMap::of_tensor(kernels, other.into_map()), true),
    }
}

/// The statistics of a map's channels, computed where nobody has.
fn moments(kernels: &Kernels, map: &DeviceMap) -> Moments {
    let channels = map.columns.channels();
    match &map.moments {
        Some(moments) => moments.slice(0..channels),
        None => {
            let moments = kernels.moments(channels);
            kernels.map_statistics(&map.columns, &moments);
            moments
        }
    }
}

/// The gradient with respect to a stage's output as values.
fn gradient_columns(kernels: &Kernels, gradient: Activation) -> Columns {
    match gradient {
        Activation::Device(map) => {
            assert!(map.pending.is_none(), "a stage was given S for a gradient");
            map.columns
        }
        other => DeviceMap::of_tensor(kernels, other.into_map()).columns,
    }
}

/// [`gradient_columns`] for the stage to write over.
fn own_gradient(kernels: &Kernels, gradient: Activation) -> Columns {
    let shared = !matches!(gradient, Activation::Device(_));
    let columns = gradient_columns(kernels, gradient);
    if !shared {
        return columns;
    }
    let own = kernels.columns(columns.pixels(), columns.channels());
    kernels.copy(&columns, &own);
    own
}

/// The gradient with respect to a block's maps as S and what is missing of it.
fn pending_gradient(kernels: &Kernels, gradient: Activation, moments: &Moments) -> (Columns, Sums) {
    match gradient {
        Activation::Device(map) if map.pending.is_some() => {
            let DeviceMap { columns, pending, .. } = *map;
            (columns, pending.expect("was just seen"))
        }
        other => {
            // The gradient is rstd·S where nothing is missing of it.
            let gradient = other.into_map();
            let channels = moments.channels();
            let deviation: Tensor<1> = kernels.gpu().tensor(moments.deviation(), [channels]);
            let summed = gradient / deviation.reshape([1, channels, 1, 1]);
            let sums = Sums::new(kernels.filled(channels, 0.0), kernels.filled(channels, 0.0));
            (DeviceMap::of_tensor(kernels, summed).columns, sums)
        }
    }
}

/// S of a norm's input, as a gradient for the block before; the gradient itself as a tensor where
/// the input came as one.
fn input_gradient(
    kernels: &Kernels,
    map: &DeviceMap,
    moments: &Moments,
    (summed, sums): (Columns, Sums),
    as_tensor: bool,
) -> Activation {
    let (gpu, size) = (kernels.gpu().clone(), map.size);
    if as_tensor {
        kernels.input_gradient(&summed, &map.columns, moments, &sums, &summed);
        let gradient = DeviceMap { gpu, columns: summed, size, moments: None, pending: None };
        return Activation::Map(gradient.to_tensor());
    }
    let pending = Some(sums);
    Activation::Device(Box::new(DeviceMap { gpu, columns: summed, size, moments: None, pending }))
}
