//! The stem.

use super::{Back, Program, Run, Value};
use crate::memory::measure::{ended, within};
use crate::ops::gpu::{Buffer, DeviceMap, Form, SavedStem};

/// 7×7 convolution with stride 2, norm, ReLU, 3×3 max-pooling with stride 2.
pub(super) struct Stem {
    /// Channels of the output.
    pub channels: usize,
    /// Channels that the output's rows have room for.
    pub room: usize,
    /// What the convolution, norm, ReLU and pooling are called.
    pub labels: [String; 4],
}

impl Program for Stem {
    type Saved = SavedStem;
    const TAKES_IMAGES: bool = true;

    fn forms(&self) -> Vec<(usize, Form)> {
        vec![(0, Form::Stem)]
    }

    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<SavedStem>) {
        let (kernels, images) = (run.kernels, input.into_images());
        let [conv, norm, relu, pool] = &self.labels;
        let weight = &run.values.packed[0];
        let (convolved, part) =
            within(conv, || kernels.stem_forward(&images, weight, self.channels, run.over));
        let (stats, affine) = within(norm, || {
            run.norm(0, convolved.pixels(), || {
                let stats = kernels.stats(self.channels, run.over);
                run.statistics("norm 0", || part, &stats);
                stats
            })
        });
        let [height, width] = images.pooled();
        let size = [images.shape[0], height, width];
        let (data, (index, part)) = within(format_args!("{norm}, {relu}, {pool}"), || {
            let data = kernels.empty_map(size.iter().product(), self.room).slice(0..self.channels);
            let pooled = kernels.stem_pool_forward(&images, &convolved, &affine, &data);
            (data, pooled)
        });
        let next = run.next(&part, self.channels, self.room);
        let output = DeviceMap { stats: next, ..DeviceMap::new(kernels, data, size) };
        (Value::Map(output), run.keeps.then_some(SavedStem { images, convolved, stats, index }))
    }

    fn backward(&self, back: &Back<'_>, kept: SavedStem, gradient: Value) -> Option<DeviceMap> {
        let (norm, gradient) = (&back.values.norms[0], gradient.into_map().data);
        let parameters = back.room.gradients(0);
        back.kernels.stem_backward(&kept, norm, &gradient, parameters, back.synced);
        let [conv, norm, relu, pool] = &self.labels;
        ended(format_args!("{conv}, {norm}, {relu}, {pool}"));
        None
    }

    fn buffers<'a>(&self, kept: &'a mut SavedStem) -> Vec<&'a mut Buffer> {
        let SavedStem { images, convolved, index, .. } = kept;
        vec![&mut images.buffer, convolved.buffer_mut(), index]
    }
}
