//! What fused stages are: programs of kernels.

use std::cell::RefCell;
use std::sync::Arc;

use super::{Layout, Records, Room, Tables, Values};
use crate::memory::Pass;
use crate::model::Norm;
use crate::ops::gpu::{
    Affine, Argument, Buffer, ChannelNorm, ChannelStats, ChannelsLast, DeviceMap, Form,
    GradientSums, Images, Kernels, Normalised, Over, Partials, Summed, Synced,
};

/// What a fused stage computes. The same code runs on a device and on sizes alone.
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "only a device is given tensors and moves memory")
)]
pub(in crate::model) trait Program: Send + 'static {
    /// What its backward pass needs.
    type Saved: 'static;
    /// Whether its input are images, and not maps.
    const TAKES_IMAGES: bool = false;
    /// Whether a norm of it reads the statistics of its input, which the stage before may have left.
    const READS_STATISTICS: bool = false;
    /// Whether its backward pass needs any memory of the forward pass.
    const KEEPS: bool = true;

    /// Whether the gradient of its output comes as S and what is missing of it (see [`GradientSums`]).
    fn takes_sums(&self) -> bool {
        false
    }

    /// See [`Stage::room`](crate::memory::Stage::room).
    fn room(&self) -> usize {
        0
    }

    /// The forms in which its kernels want the weights: which weight, by its place among the stage's
    /// weights, and which form.
    fn forms(&self) -> Vec<(usize, Form)> {
        Vec::new()
    }

    /// The forward pass: the output, and what the backward pass needs where it is to be kept.
    fn forward(&self, run: &Run<'_>, input: Value) -> (Value, Option<Self::Saved>);

    /// The backward pass: the gradient of the input from that of the output, whose memory it may take.
    /// `None` for images, whose gradient nobody needs.
    fn backward(&self, back: &Back<'_>, kept: Self::Saved, gradient: Value) -> Option<DeviceMap>;

    /// `input` as it is put aside to run the stage on once more, where that is not the input itself.
    fn checkpoint(&self, kernels: &Kernels, input: &DeviceMap) -> Option<DeviceMap> {
        let _ = (kernels, input);
        None
    }

    /// What of `kept` can be moved off the device until it is needed, in a fixed order.
    fn buffers<'a>(&self, kept: &'a mut Self::Saved) -> Vec<&'a mut Buffer> {
        let _ = kept;
        Vec::new()
    }
}

/// What flows between fused stages, or the gradient with respect to it.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "a step has a handful of them")]
pub(in crate::model) enum Value {
    /// Images.
    Images(Images),
    /// Feature maps.
    Map(DeviceMap),
    /// Pooled features in 32 bits, `[batch, channels]`.
    Features(Buffer),
}

impl Value {
    /// Room for maps of `shape` in rows with room for `room` channels, with the statistics of the
    /// channels over what is `known`.
    pub fn map(kernels: &Kernels, shape: [usize; 4], room: usize, known: Option<Over>) -> Self {
        let [batch, channels, height, width] = shape;
        let data = kernels.empty_map(batch * height * width, room).slice(0..channels);
        let stats = known.map(|over| kernels.stats(room, over));
        Self::Map(DeviceMap { stats, ..DeviceMap::new(kernels, data, [batch, height, width]) })
    }

    /// The images.
    pub fn into_images(self) -> Images {
        match self {
            Self::Images(images) => images,
            other => panic!("a stage expected images and was given {other:?}"),
        }
    }

    /// The maps.
    pub fn into_map(self) -> DeviceMap {
        match self {
            Self::Map(map) => map,
            other => panic!("a stage expected maps and was given {other:?}"),
        }
    }

    /// The features.
    pub fn into_features(self) -> Buffer {
        match self {
            Self::Features(features) => features,
            other => panic!("a stage expected features and was given {other:?}"),
        }
    }

    /// The elements.
    pub fn elements(&self) -> &Buffer {
        match self {
            Self::Images(images) => &images.buffer,
            Self::Map(map) => map.data.memory(),
            Self::Features(features) => features,
        }
    }
}

/// A forward pass of a program.
pub(in crate::model) struct Run<'a> {
    /// What it launches.
    pub kernels: &'a Kernels,
    /// Its parameters.
    pub values: &'a Values,
    /// Where the statistics of the batch go, if they are asked for.
    pub records: Option<&'a Records>,
    /// What norms are taken over.
    pub over: Over,
    /// Whether it keeps what the backward pass needs.
    pub keeps: bool,
    /// What norms are taken over, where several cards have some of the images.
    pub synced: Option<&'a Synced>,
    /// The pass that it is part of: whether the model trains, and what random numbers follow from.
    pub pass: &'a Pass,
}

/// A backward pass of a program.
pub(in crate::model) struct Back<'a> {
    /// What it launches.
    pub kernels: &'a Kernels,
    /// Its parameters.
    pub values: &'a Values,
    /// Where the gradients of its parameters go.
    pub room: &'a Room,
    /// What norms were taken over.
    pub over: Over,
    /// What norms were taken over, where several cards have some of the images.
    pub synced: Option<&'a Synced>,
}

impl<'a> Back<'a> {
    /// Norm `index` with the statistics it was given, and what it did to each channel.
    pub fn normalised(
        &self,
        index: usize,
        stats: &'a ChannelStats,
        affine: &'a Affine,
    ) -> Normalised<'a> {
        Normalised { stats, affine, norm: &self.values.norms[index], synced: self.synced }
    }
}

impl<'a> Run<'a> {
    /// Whether norms use the statistics of the images, or running ones.
    pub fn takes_statistics(&self) -> bool {
        self.pass.trains() || self.over != Over::Batch
    }

    /// Norm `norm` of channels of `pixels` pixels whose statistics in the batch are `batch`: the
    /// statistics that it uses, and what it does to each channel.
    pub fn norm(
        &self,
        norm: usize,
        pixels: usize,
        batch: impl FnOnce() -> ChannelStats,
    ) -> (ChannelStats, Affine) {
        let values = &self.values.norms[norm];
        if let Over::Images(_) = self.over {
            return self.kernels.group_norm(None, &batch(), values);
        }
        let stats = if self.pass.trains() { batch() } else { self.values.running[norm].clone() };
        let record = self.records.map(|records| &records.norms[norm]);
        let pixels = self.pixels(pixels);
        let affine = self.kernels.affine(&stats, values, pixels, record);
        (stats, affine)
    }

    /// The first norm, of the input.
    pub fn norm_of_input(&self, input: Value) -> NormedInput {
        let map = input.into_map();
        let channels = map.data.channels();
        let (stats, affine) = self.norm(0, map.data.pixels(), || self.stats(&map, channels));
        NormedInput { map, stats, affine }
    }

    /// [`Run::norm`] of `map`, of which the kernel that wrote it left `part`.
    pub fn norm_of(
        &self,
        norm: usize,
        map: &ChannelsLast,
        part: &Partials,
    ) -> (ChannelStats, Affine) {
        let (stats, norm) = self.norm_ahead(norm, map, part);
        self.kernels.make_norm(&norm);
        (stats, norm.affine)
    }

    /// [`Run::norm_of`] that the convolution behind it may work out.
    pub fn norm_ahead(
        &self,
        norm: usize,
        map: &ChannelsLast,
        part: &Partials,
    ) -> (ChannelStats, ChannelNorm<'a>) {
        if !self.takes_statistics() {
            let running = || unreachable!("running statistics are used");
            let (stats, affine) = self.norm(norm, map.pixels(), running);
            return (stats, ChannelNorm::from(&affine));
        }
        let stats = self.kernels.stats(map.channels(), self.over);
        self.channel_norm(norm, part, stats, map.pixels())
    }

    /// Norm `norm` of channels of which a kernel has just written the last ones and left `part`, to be put together: the
    /// statistics that it uses, `stats`, and what it does to each channel.
    pub fn channel_norm(
        &self,
        norm: usize,
        part: &Partials,
        stats: ChannelStats,
        pixels: usize,
    ) -> (ChannelStats, ChannelNorm<'a>) {
        if let Over::Images(_) = self.over {
            let norm = &self.values.norms[norm];
            let (stats, affine) = self.kernels.group_norm(Some(part), &stats, norm);
            return (stats, ChannelNorm::from(&affine));
        }
        let record = self.records.map(|records| &records.norms[norm]);
        let (values, pixels) = (&self.values.norms[norm], self.pixels(pixels));
        let norm = self.put_together(
            &format!("norm {norm}"),
            || part.clone(),
            |part, synced| self.kernels.channel_norm(part, &stats, values, pixels, record, synced),
        );
        (stats, norm)
    }

    /// Puts together what a kernel left of channels, into `out`; `what` tells these channels from others of
    /// the stage.
    pub fn statistics(&self, what: &str, part: impl FnOnce() -> Partials, out: &ChannelStats) {
        self.put_together(what, part, |part, synced| {
            ((), self.kernels.channel_statistics(part, out, synced))
        });
    }

    /// Runs `launch` on what a kernel left of channels, and with what it is to be put together with. Where
    /// cards have put it together in an earlier pass, on what they have found then.
    fn put_together<T>(
        &self,
        what: &str,
        part: impl FnOnce() -> Partials,
        launch: impl FnOnce(&Partials, Option<&'a Synced>) -> (T, Option<Partials>),
    ) -> T {
        let Some(synced) = self.synced else { return launch(&part(), None).0 };
        if let Some(row) = synced.recall(what) {
            return launch(&row, None).0;
        }
        let (made, row) = launch(&part(), Some(synced));
        if let Some(row) = row {
            synced.keep(what, row);
        }
        made
    }

    /// The pixels that norms are taken over, of which this device has `pixels`.
    fn pixels(&self, pixels: usize) -> usize {
        self.synced.map_or(pixels, |synced| synced.pixels(pixels))
    }

    /// The statistics of a map's channels, computed where nobody has, with room for those of `room`
    /// channels.
    pub fn stats(&self, map: &DeviceMap, room: usize) -> ChannelStats {
        match &map.stats {
            Some(stats) if stats.channels() >= room => stats.slice(0..room),
            _ => {
                let stats = self.kernels.stats(room, self.over);
                let out = stats.slice(0..map.data.channels());
                let part = || self.kernels.map_partials(&map.data, self.over);
                self.statistics("input", part, &out);
                stats
            }
        }
    }

    /// The statistics of the output, of which its kernel left `part`, with room for those of `room`
    /// channels: what the dense block behind needs.
    pub fn next(&self, part: &Partials, channels: usize, room: usize) -> Option<ChannelStats> {
        self.takes_statistics().then(|| {
            let stats = self.kernels.stats(room, self.over);
            self.statistics("output", || part.clone(), &stats.slice(0..channels));
            stats
        })
    }
}

/// Maps and the norm that was taken of them.
pub(in crate::model) struct NormedInput {
    pub map: DeviceMap,
    /// The statistics that the norm used.
    pub stats: ChannelStats,
    /// What it did to each channel.
    pub affine: Affine,
}

/// The gradient of a norm's input `map` from S and what is missing of it. It stays so where the
/// channels' statistics came with the map: the block that knows them makes the gradient of it.
pub(super) fn input_gradient(
    back: &Back<'_>,
    map: DeviceMap,
    stats: &ChannelStats,
    data: ChannelsLast,
    sums: GradientSums,
) -> DeviceMap {
    let pending = match map.stats {
        Some(_) => Some(sums),
        None => {
            let summed = Summed { data: &data, map: &map.data, stats, missing: &sums };
            back.kernels.input_gradient(summed, back.synced);
            None
        }
    };
    DeviceMap { data, stats: None, pending, ..map }
}

/// A program with what is made ready for it once.
pub(super) struct Prepared<P> {
    pub program: P,
    /// What its norms are taken over.
    norm: Norm,
    pub kernels: Kernels,
    pub layout: Layout,
    pub tables: Tables,
    /// What the kernels read; made again when a parameter has changed.
    values: RefCell<Option<Arc<Values>>>,
}

impl<P: Program> Prepared<P> {
    /// `program` with `kernels`, where its parameters lie as `layout` says.
    pub fn new((program, norm): (P, Norm), kernels: Kernels, layout: Layout) -> Self {
        let tables = layout.tables(&kernels);
        Self { program, norm, kernels, layout, tables, values: RefCell::default() }
    }

    /// The parameters, of which `all` gives each kind, as the `kernels` of a pass read them. Passes that train read them once
    /// until they change; others, between which and the next step nothing is to lie in the memory of passes, each for itself.
    pub fn values(
        &self,
        kernels: &Kernels,
        trains: bool,
        all: impl Fn(usize) -> Buffer,
    ) -> Arc<Values> {
        let mut known = self.values.borrow_mut();
        if let Some(values) = &*known {
            return Arc::clone(values);
        }
        let values = Arc::new(self.layout.values(kernels, &self.tables, all));
        *known = trains.then(|| Arc::clone(&values));
        values
    }

    /// Lets go of what the kernels have read: a parameter changes.
    pub fn forget_values(&self) {
        self.values.take();
    }

    /// What norms of a batch of so many images are taken over.
    pub fn over(&self, images: usize) -> Over {
        match self.norm {
            Norm::Batch => Over::Batch,
            Norm::Group => Over::Images(images),
        }
    }

    /// An input of `shape` (batch, channels, height, width) as the stage before leaves it.
    pub fn input(&self, shape: [usize; 4]) -> Value {
        if P::TAKES_IMAGES {
            let buffer = self.kernels.elements(shape.iter().product());
            return Value::Images(Images { buffer, shape });
        }
        let known = P::READS_STATISTICS.then(|| self.over(shape[0]));
        Value::map(&self.kernels, shape, self.program.room().max(shape[1]), known)
    }
}
