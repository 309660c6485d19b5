//! The stem of a network for small images.

use super::{Back, Program, Run, Value};
use crate::memory::measure::{ended, within};
use crate::model::fuse::ConvSizes;
use crate::ops::gpu::{Affine, Buffer, ChannelStats, ChannelsLast, DeviceMap, Form};

/// A convolution, norm, ReLU.
pub(super) struct PlainStem {
    /// The convolution.
    pub conv: ConvSizes,
}

pub(super) struct Saved {
    images: DeviceMap,
    convolved: ChannelsLast,
    stats: ChannelStats,
    affine: Affine,
}

impl Program for PlainStem {
    type Saved = Saved;
    const TAKES_IMAGES: bool = true;

    fn forms(&self) -> Vec<(usize, Form)> {
        vec![(0, Form::Forward)]
    }

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<Saved>) {
        let (kernels, weight) = (run.kernels, &run.values.packed[0]);
        let images = DeviceMap::of_images(kernels, input.into_images());
        let size = self.conv.output(images.size);
        let convolution = self.conv.on(images.size);
        let (convolved, part) = within("conv1", || {
            let convolved = kernels.empty_map(size.iter().product(), self.conv.channels[1]);
            let (map, over) = (&images.data, run.over);
            let part = kernels.conv_forward(&convolution, map, weight, &convolved, over);
            (convolved, part)
        });
        let (stats, affine) = within("bn1", || run.norm_of(0, &convolved, &part));
        let data = within("bn1, relu", || kernels.normalised(&convolved, &affine));
        let kept = run.keeps.then_some(Saved { images, convolved, stats, affine });
        (Value::Map(DeviceMap::new(kernels, data, size)), kept)
    }

    fn backward(&self, back: &Back<'_>, kept: Saved, gradient: Value) -> Option<DeviceMap> {
        let (kernels, room) = (back.kernels, back.room);
        let Saved { images, convolved, stats, affine } = kept;
        let gradient = gradient.into_map().data;
        let normalised = back.normalised(0, &stats, &affine);
        kernels.norm_backward(&gradient, &convolved, normalised, &room.norms[0], true);
        ended("bn1, relu");
        let convolution = self.conv.on(images.size);
        kernels.conv_backward_weight(&convolution, &images.data, &gradient, &room.weights[0]);
        ended("conv1");
        None
    }

    fn buffers<'a>(&self, kept: &'a mut Saved) -> Vec<&'a mut Buffer> {
        vec![kept.images.data.buffer_mut(), kept.convolved.buffer_mut()]
    }
}
