//! The last norm and the mean over each map.

use super::store::{Store, parameters_of_store};
use super::{device_map, input_gradient, moments};
use crate::memory::measure::{ended, within};
use crate::memory::offload::Piece;
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::ops::cuda::{Affine, Buffer, DeviceMap, Kernels, Moments};

/// Norm, ReLU, the mean over each feature map.
pub(in crate::model) struct FusedPool {
    name: String,
    store: Store,
}

struct Kept {
    map: DeviceMap,
    came_as_tensor: bool,
    moments: Moments,
    affine: Affine,
}

impl FusedPool {
    /// With these parameters.
    pub fn new(name: &str, kernels: Kernels, parameters: Vec<Parameter>) -> Self {
        Self { name: name.to_owned(), store: Store::new(kernels, parameters, &[]) }
    }
}

impl Stage for FusedPool {
    fn name(&self) -> &str {
        &self.name
    }

    fn forward(
        &self,
        input: Activation,
        keep: Keep,
        pass: &Pass,
        statistics: &mut Statistics,
    ) -> (Activation, Option<Saved>) {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let (map, came_as_tensor) = device_map(kernels, input);
        let records = self.store.records(pass);
        let record = records.as_ref().map(|records| &records.norms[0]);
        let (moments, affine) = within("norm5", || {
            let moments = match pass.trains() {
                true => moments(kernels, &map),
                false => values.running[0].clone(),
            };
            let affine = kernels.affine(&moments, &values.norms[0], map.columns.pixels(), record);
            (moments, affine)
        });
        let (batch, channels) = (map.size[0], map.columns.channels());
        let features = within("norm5, relu, mean", || {
            kernels.global_pool_forward(&map.columns, batch, &affine)
        });
        self.store.report(records, statistics);
        let output = kernels.gpu().tensor(&features, [batch, channels]);
        let kept = Kept { map, came_as_tensor, moments, affine };
        (Activation::Features(output), (keep == Keep::All).then(|| Saved(Box::new(kept))))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let Kept { map, came_as_tensor, moments, affine } = *saved.open::<Kept>(&self.name);
        let gradient = Buffer::of_tensor(gradient.into_features());
        let columns = &map.columns;
        let summed = kernels.columns(columns.pixels(), columns.channels());
        let norm = &values.norms[0];
        let batch = map.size[0];
        let part = kernels
            .global_pool_backward(&gradient, columns, batch, &moments, &affine, norm, &summed);
        let room = self.store.room();
        let sums = kernels.sums(columns.channels());
        kernels.channel_sums(&part, norm, &room.norms[0], &sums, true);
        ended("norm5, relu, mean");
        self.store.add_gradients(room, gradients);
        Some(input_gradient(kernels, &map, &moments, (summed, sums), came_as_tensor))
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn pieces<'a>(&self, saved: &'a mut Saved) -> Vec<Piece<'a>> {
        let map = &mut saved.look::<Kept>(&self.name).map;
        vec![Piece::Buffer(self.store.kernels().gpu().clone(), map.columns.buffer_mut())]
    }

    parameters_of_store!();
}
