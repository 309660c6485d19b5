//! The stem of a network for small images.

use super::own_gradient;
use super::store::{Store, parameters_of_store};
use crate::memory::measure::{ended, within};
use crate::memory::offload::Piece;
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::model::fuse::ConvSizes;
use crate::ops::cuda::{
    Affine, Columns, Convolution, DeviceMap, Form, Kernels, Moments, Normalised,
};

/// A convolution, norm, ReLU.
///
/// It gives no gradient with respect to the images: nothing uses one.
pub(in crate::model) struct FusedPlainStem {
    name: String,
    store: Store,
    conv: ConvSizes,
}

struct Kept {
    images: DeviceMap,
    convolved: Columns,
    moments: Moments,
    affine: Affine,
}

impl FusedPlainStem {
    /// With these parameters.
    pub fn new(name: &str, kernels: Kernels, parameters: Vec<Parameter>, conv: ConvSizes) -> Self {
        let store = Store::new(kernels, parameters, &[(0, Form::Forward)]);
        Self { name: name.to_owned(), store, conv }
    }

    fn convolution(&self, size: [usize; 3]) -> Convolution {
        Convolution { size, window: self.conv.window }
    }
}

impl Stage for FusedPlainStem {
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
        let images = DeviceMap::of_tensor(kernels, input.into_map());
        let size = self.conv.output(images.size);
        let (pixels, channels) = (size.iter().product(), self.conv.channels[1]);
        let (convolution, weight) = (self.convolution(images.size), &values.packed[0]);
        let (convolved, part) = within("conv1", || {
            let convolved = kernels.columns(pixels, channels);
            let part = kernels.conv_forward(&convolution, &images.columns, weight, &convolved);
            (convolved, part)
        });
        let records = self.store.records(pass);
        let record = records.as_ref().map(|records| &records.norms[0]);
        let norm = &values.norms[0];
        let (moments, affine) = within("bn1", || {
            if !pass.trains() {
                let moments = values.running[0].clone();
                let affine = kernels.affine(&moments, norm, pixels, None);
                return (moments, affine);
            }
            let moments = kernels.moments(channels);
            let affine = kernels.channel_norm(&part, &moments, norm, pixels, record);
            (moments, affine)
        });
        let columns = within("bn1, relu", || kernels.normalised(&convolved, &affine));
        self.store.report(records, statistics);
        let gpu = kernels.gpu().clone();
        let output = DeviceMap { gpu, columns, size, moments: None, pending: None };
        let kept = Kept { images, convolved, moments, affine };
        (Activation::Device(Box::new(output)), (keep == Keep::All).then(|| Saved(Box::new(kept))))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let Kept { images, convolved, moments, affine } = *saved.open::<Kept>(&self.name);
        let gradient = own_gradient(kernels, gradient);
        let room = self.store.room();
        let norm = &values.norms[0];
        let normalised = Normalised { moments: &moments, affine: &affine, norm };
        kernels.norm_backward(&gradient, &convolved, normalised, &room.norms[0], true);
        ended("bn1, relu");
        let convolution = self.convolution(images.size);
        kernels.conv_backward_weight(&convolution, &images.columns, &gradient, &room.weights[0]);
        ended("conv1");
        self.store.add_gradients(room, gradients);
        None
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn pieces<'a>(&self, saved: &'a mut Saved) -> Vec<Piece<'a>> {
        let gpu = self.store.kernels().gpu();
        let Kept { images, convolved, .. } = saved.look::<Kept>(&self.name);
        let maps = [&mut images.columns, convolved];
        maps.map(|columns| Piece::Buffer(gpu.clone(), columns.buffer_mut())).into()
    }

    parameters_of_store!();
}
