//! The stem.

use super::gradient_columns;
use super::store::{Store, parameters_of_store};
use crate::memory::measure::{ended, within};
use crate::memory::offload::Piece;
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::ops::cuda::{Buffer, Columns, DeviceMap, Form, Images, Kernels, Moments};

/// 7×7 convolution with stride 2, norm, ReLU, 3×3 max-pooling with stride 2.
///
/// It gives no gradient with respect to the images: nothing uses one.
pub(in crate::model) struct FusedStem {
    name: String,
    store: Store,
    labels: [String; 4],
    channels: usize,
    room: usize,
}

struct Kept {
    images: Images,
    convolved: Columns,
    moments: Moments,
    index: Buffer,
}

impl FusedStem {
    /// With these parameters, for `channels` channels in rows with room for `room`; `labels` is what
    /// the convolution, norm, ReLU and pooling are called.
    pub fn new(
        name: &str,
        kernels: Kernels,
        parameters: Vec<Parameter>,
        labels: [String; 4],
        channels: usize,
        room: usize,
    ) -> Self {
        let store = Store::new(kernels, parameters, &[(0, Form::Stem)]);
        Self { name: name.to_owned(), store, labels, channels, room }
    }
}

impl Stage for FusedStem {
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
        let map = input.into_map();
        let shape = map.dims();
        let images =
            Images { shape, buffer: Buffer::of_tensor(map.cast(burn::tensor::DType::F32)) };
        let [conv, norm, relu, pool] = &self.labels;
        let (convolved, part) =
            within(conv, || kernels.stem_forward(&images, &values.packed[0], self.channels));
        let records = self.store.records(pass);
        let record = records.as_ref().map(|records| &records.norms[0]);
        let (moments, affine) = within(norm, || {
            let moments = match pass.trains() {
                true => {
                    let moments = kernels.moments(self.channels);
                    kernels.channel_statistics(&part, &moments);
                    moments
                }
                false => values.running[0].clone(),
            };
            let affine = kernels.affine(&moments, &values.norms[0], convolved.pixels(), record);
            (moments, affine)
        });
        let [height, width] = images.pooled();
        let size = [shape[0], height, width];
        let (columns, (index, part)) = within(format_args!("{norm}, {relu}, {pool}"), || {
            let columns = kernels.columns(size.iter().product(), self.room).slice(0..self.channels);
            let pooled = kernels.stem_pool_forward(&images, &convolved, &affine, &columns);
            (columns, pooled)
        });
        let next = pass.trains().then(|| {
            let moments = kernels.moments(self.room);
            kernels.channel_statistics(&part, &moments.slice(0..self.channels));
            moments
        });
        self.store.report(records, statistics);
        let gpu = kernels.gpu().clone();
        let output = DeviceMap { gpu, columns, size, moments: next, pending: None };
        let kept = Kept { images, convolved, moments, index };
        (Activation::Device(Box::new(output)), (keep == Keep::All).then(|| Saved(Box::new(kept))))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let kept = saved.open::<Kept>(&self.name);
        let gradient = gradient_columns(kernels, gradient);
        let room = self.store.room();
        kernels.stem_backward(
            &kept.images,
            &kept.convolved,
            &kept.moments,
            &values.norms[0],
            &kept.index,
            &gradient,
            &room.weights[0],
            &room.norms[0],
        );
        let [conv, norm, relu, pool] = &self.labels;
        ended(format_args!("{conv}, {norm}, {relu}, {pool}"));
        self.store.add_gradients(room, gradients);
        None
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn pieces<'a>(&self, saved: &'a mut Saved) -> Vec<Piece<'a>> {
        let gpu = self.store.kernels().gpu();
        let Kept { images, convolved, index, .. } = saved.look::<Kept>(&self.name);
        let buffers = [&mut images.buffer, convolved.buffer_mut(), index];
        buffers.map(|buffer| Piece::Buffer(gpu.clone(), buffer)).into()
    }

    parameters_of_store!();
}
