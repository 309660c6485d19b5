//! The mean over each map.

use burn::tensor::{DType, Tensor};

use super::device_map;
use crate::memory::measure::{ended, within};
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::ops::cuda::{Buffer, DeviceMap, Kernels};

/// The mean over each feature map, where the maps have been through ReLU.
pub(in crate::model) struct FusedMean {
    name: String,
    kernels: Kernels,
}

/// What its backward pass needs: the maps' size and whether they came as a tensor.
struct Kept {
    size: [usize; 3],
    came_as_tensor: bool,
}

impl FusedMean {
    /// On these kernels.
    pub fn new(name: &str, kernels: Kernels) -> Self {
        Self { name: name.to_owned(), kernels }
    }
}

impl Stage for FusedMean {
    fn name(&self) -> &str {
        &self.name
    }

    fn forward(
        &self,
        input: Activation,
        keep: Keep,
        _pass: &Pass,
        _statistics: &mut Statistics,
    ) -> (Activation, Option<Saved>) {
        let kernels = &self.kernels;
        let (DeviceMap { columns, size, .. }, came_as_tensor) = device_map(kernels, input);
        let features = within("mean", || kernels.mean_forward(&columns, size[0]));
        let output = kernels.gpu().tensor(&features, [size[0], columns.channels()]);
        let kept = Kept { size, came_as_tensor };
        (Activation::Features(output), (keep == Keep::All).then(|| Saved(Box::new(kept))))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        _gradients: &mut Gradients,
    ) -> Option<Activation> {
        let Kept { size, came_as_tensor } = *saved.open::<Kept>(&self.name);
        let gradient = Buffer::of_tensor(gradient.into_features().cast(DType::F32));
        let columns = self.kernels.mean_backward(&gradient, size);
        ended("mean");
        let gpu = self.kernels.gpu().clone();
        let gradient = DeviceMap { gpu, columns, size, moments: None, pending: None };
        Some(match came_as_tensor {
            true => Activation::Map(gradient.to_tensor()),
            false => Activation::Device(Box::new(gradient)),
        })
    }

    fn parameters(&self) -> Vec<Parameter> {
        Vec::new()
    }

    fn map_parameters(&mut self, _change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {}
}
