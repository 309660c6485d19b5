//! A transition.

use super::store::{Store, parameters_of_store};
use super::{device_map, gradient_columns, input_gradient, moments};
use crate::memory::measure::{ended, within};
use crate::memory::offload::Piece;
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::ops::Window;
use crate::ops::cuda::{Affine, Columns, Convolution, DeviceMap, Form, Kernels, Moments};

/// Norm, ReLU, 1×1 convolution to fewer channels, 2×2 average pooling.
pub(in crate::model) struct FusedTransition {
    name: String,
    store: Store,
    channels: usize,
    room: usize,
}

struct Kept {
    map: DeviceMap,
    came_as_tensor: bool,
    moments: Moments,
    affine: Affine,
}

impl FusedTransition {
    /// With these parameters, to `channels` channels in rows with room for `room`.
    pub fn new(
        name: &str,
        kernels: Kernels,
        parameters: Vec<Parameter>,
        channels: usize,
        room: usize,
    ) -> Self {
        let forms = [(0, Form::Forward), (0, Form::InputGradient)];
        let store = Store::new(kernels, parameters, &forms);
        Self { name: name.to_owned(), store, channels, room }
    }
}

/// A 1×1 convolution of maps whose pixels lie in one line.
fn pointwise(map: &Columns) -> Convolution {
    Convolution { size: [1, 1, map.pixels()], window: Window::PIXEL }
}

impl Stage for FusedTransition {
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
        let (moments, affine) = within("norm", || {
            let moments = match pass.trains() {
                true => moments(kernels, &map),
                false => values.running[0].clone(),
            };
            let affine = kernels.affine(&moments, &values.norms[0], map.columns.pixels(), record);
            (moments, affine)
        });
        let [batch, height, width] = map.size;
        let size = [batch, height / 2, width / 2];
        let columns = kernels.columns(size.iter().product(), self.room).slice(0..self.channels);
        let weight = &values.packed[0];
        let pooled =
            within("norm, relu, pool", || kernels.transition_pool(&map.columns, map.size, &affine));
        let part =
            within("conv", || kernels.conv_forward(&pointwise(&pooled), &pooled, weight, &columns));
        let next = pass.trains().then(|| {
            let moments = kernels.moments(self.room);
            kernels.channel_statistics(&part, &moments.slice(0..self.channels));
            moments
        });
        self.store.report(records, statistics);
        let gpu = kernels.gpu().clone();
        let output = DeviceMap { gpu, columns, size, moments: next, pending: None };
        let kept = Kept { map, came_as_tensor, moments, affine };
        (Activation::Device(Box::new(output)), (keep == Keep::All).then(|| Saved(Box::new(kept))))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let Kept { map, came_as_tensor, moments, affine } = *saved.open::<Kept>(&self.name);
        let gradient = gradient_columns(kernels, gradient);
        let room = self.store.room();
        let columns = &map.columns;
        let summed = kernels.columns(columns.pixels(), columns.channels());
        let norm = &values.norms[0];
        let (pooled, part) = kernels.transition_backward_input(
            &gradient,
            &values.packed[1],
            columns,
            map.size,
            &moments,
            &affine,
            norm,
            &summed,
        );
        let sums = kernels.sums(columns.channels());
        kernels.channel_sums(&part, norm, &room.norms[0], &sums, true);
        ended("norm, relu, pool");
        let weight = &room.weights[0];
        kernels.conv_backward_weight(&pointwise(&pooled), &pooled, &gradient, weight);
        ended("conv");
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
