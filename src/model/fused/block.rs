//! A dense block.

use super::store::{Room, Store, Values, parameters_of_store};
use super::{device_map, pending_gradient};
use crate::memory::measure::{ended, within};
use crate::memory::offload::Piece;
use crate::memory::{
    Activation, DenseLayers, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics,
};
use crate::model::fuse::DenseBlockSizes;
use crate::ops::Window;
use crate::ops::cuda::{
    Affine, Columns, Convolution, DeviceMap, Form, Kernels, Moments, Normalised, Sums,
};

/// Layers, each of which adds `growth` channels to all those before it.
///
/// All maps of the block lie in one buffer, of which each layer writes a slice. The statistics of a
/// channel are computed once, where it is written, and every later norm uses them. Going back, every
/// norm adds its share of a channel's gradient to S and to two sums (see [`crate::ops::cuda::Sums`]),
/// from which the channel's gradient is made once, where it was written.
pub(in crate::model) struct FusedBlock {
    name: String,
    store: Store,
    sizes: DenseBlockSizes,
    keep: DenseLayers,
}

struct Kept {
    /// All of the block's maps.
    map: DeviceMap,
    came_as_tensor: bool,
    moments: Moments,
    layers: Vec<KeptLayer>,
}

/// What a layer needs for its backward pass besides the block's maps.
struct KeptLayer {
    /// The outputs of the 1×1 convolution; `None` where they are recomputed.
    bottleneck: Option<Columns>,
    moments: Moments,
    affines: [Affine; 2],
}

impl FusedBlock {
    /// With these parameters.
    pub fn new(
        name: &str,
        kernels: Kernels,
        parameters: Vec<Parameter>,
        sizes: DenseBlockSizes,
        keep: DenseLayers,
    ) -> Self {
        let forms: Vec<(usize, Form)> = (0..2 * sizes.layers)
            .flat_map(|weight| [(weight, Form::Forward), (weight, Form::InputGradient)])
            .collect();
        let store = Store::new(kernels, parameters, &forms);
        Self { name: name.to_owned(), store, sizes, keep }
    }

    /// The input in a buffer with room for the block's channels: its own, where it has that.
    fn with_room(&self, map: DeviceMap) -> DeviceMap {
        let output = self.sizes.output();
        if map.columns.stride() >= output {
            return map;
        }
        let kernels = self.store.kernels();
        let columns = kernels.columns(map.columns.pixels(), output).slice(0..self.sizes.input);
        kernels.copy(&map.columns, &columns);
        DeviceMap { columns, ..map }
    }

    /// The statistics of the input's channels, with room for those of the block's.
    fn moments(&self, map: &DeviceMap) -> Moments {
        let kernels = self.store.kernels();
        match &map.moments {
            Some(moments) if moments.channels() >= self.sizes.output() => moments.clone(),
            _ => {
                let moments = kernels.moments(self.sizes.output());
                kernels.map_statistics(&map.columns, &moments.slice(0..self.sizes.input));
                moments
            }
        }
    }

    fn convolutions(&self, size: [usize; 3]) -> [Convolution; 2] {
        [
            Convolution { size, window: Window::PIXEL },
            Convolution { size, window: Window { kernel: 3, stride: 1, padding: 1 } },
        ]
    }
}

impl Stage for FusedBlock {
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
        let map = self.with_room(map);
        let moments = pass.trains().then(|| self.moments(&map));
        let all = map.columns.with_channels(self.sizes.output());
        let records = self.store.records(pass);
        let record = |norm: usize| records.as_ref().map(|records| &records.norms[norm]);
        let [_, spatial] = self.convolutions(map.size);
        let (pixels, growth) = (all.pixels(), self.sizes.growth);
        // Of the norms that have running statistics to use.
        let evaluated =
            |norm: usize| kernels.affine(&values.running[norm], &values.norms[norm], pixels, None);
        let mut kept = Vec::new();
        let mut next = match &moments {
            Some(moments) => {
                let read = moments.slice(0..self.sizes.input);
                kernels.affine(&read, &values.norms[0], pixels, record(0))
            }
            None => evaluated(0),
        };
        for layer in 0..self.sizes.layers {
            within(format_args!("denselayer{}", layer + 1), || {
                let (width, affine1) = (self.sizes.width(layer), next.clone());
                let weight = &values.packed[4 * layer];
                let (bottleneck, part) = within("norm1, relu1, conv1", || {
                    let (read, out) =
                        (all.slice(0..width), kernels.columns(pixels, self.sizes.bottleneck));
                    let part = kernels.layer_forward(&read, &affine1, weight, &out);
                    (out, part)
                });
                let norm = 2 * layer + 1;
                let (between, affine2) = within("norm2", || {
                    let between = kernels.moments(self.sizes.bottleneck);
                    let affine = match pass.trains() {
                        true => {
                            let parameters = &values.norms[norm];
                            kernels.channel_norm(&part, &between, parameters, pixels, record(norm))
                        }
                        false => evaluated(norm),
                    };
                    (between, affine)
                });
                let weight = &values.packed[4 * layer + 2];
                let normal = within("norm2, relu2", || kernels.normalised(&bottleneck, &affine2));
                let added = all.slice(width..width + growth);
                let part =
                    within("conv2", || kernels.conv_forward(&spatial, &normal, weight, &added));
                let last = layer + 1 == self.sizes.layers;
                match &moments {
                    Some(moments) if last => {
                        kernels.channel_statistics(&part, &moments.slice(width..width + growth));
                    }
                    Some(moments) => {
                        let (read, norm) = (moments.slice(0..width + growth), norm + 1);
                        let parameters = &values.norms[norm];
                        next = kernels.channel_norm(&part, &read, parameters, pixels, record(norm));
                    }
                    None if last => {}
                    None => next = evaluated(norm + 1),
                }
                if keep == Keep::All {
                    let bottleneck = (self.keep == DenseLayers::Keep).then_some(bottleneck);
                    let affines = [affine1, affine2];
                    kept.push(KeptLayer { bottleneck, moments: between, affines });
                }
            });
        }
        self.store.report(records, statistics);
        let output = DeviceMap { columns: all, moments: moments.clone(), ..map };
        let saved = moments.filter(|_| keep == Keep::All).map(|moments| {
            let map = output.clone();
            Saved(Box::new(Kept { map, came_as_tensor, moments, layers: kept }))
        });
        (Activation::Device(Box::new(output)), saved)
    }

    fn checkpoint(&self, input: &Activation) -> Activation {
        let Activation::Device(map) = input else { return input.clone() };
        let (columns, kernels) = (&map.columns, self.store.kernels());
        if columns.stride() == columns.channels() {
            return input.clone();
        }
        let compact = kernels.columns(columns.pixels(), columns.channels());
        kernels.copy(columns, &compact);
        // The first run goes on to write the statistics of its own channels behind these.
        let moments = map.moments.as_ref().map(|moments| moments.copied(&map.gpu));
        let map = DeviceMap { columns: compact, moments, ..(**map).clone() };
        Activation::Device(Box::new(map))
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let Kept { map, came_as_tensor, moments, mut layers } = *saved.open::<Kept>(&self.name);
        let moments = moments.slice(0..self.sizes.output());
        let pending = pending_gradient(kernels, gradient, &moments);
        let room = self.store.room();
        for layer in (0..self.sizes.layers).rev() {
            let kept = layers.pop().expect("one for each layer");
            within(format_args!("denselayer{}", layer + 1), || {
                self.backward_layer(layer, &values, &map, &moments, kept, &pending, &room);
            });
        }
        let (summed, sums) = pending;
        let input = 0..self.sizes.input;
        let columns = summed.slice(input.clone());
        let (read, of_input) = (map.columns.slice(input.clone()), moments.slice(input.clone()));
        kernels.input_gradient(&columns, &read, &of_input, &sums.slice(input), &columns);
        self.store.add_gradients(room, gradients);
        let gradient = DeviceMap { columns, moments: None, pending: None, ..map };
        Some(match came_as_tensor {
            true => Activation::Map(gradient.to_tensor()),
            false => Activation::Device(Box::new(gradient)),
        })
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn pieces<'a>(&self, saved: &'a mut Saved) -> Vec<Piece<'a>> {
        let gpu = self.store.kernels().gpu();
        let Kept { map, layers, .. } = saved.look::<Kept>(&self.name);
        let bottlenecks = layers.iter_mut().filter_map(|layer| layer.bottleneck.as_mut());
        let maps = std::iter::once(&mut map.columns).chain(bottlenecks);
        maps.map(|columns| Piece::Buffer(gpu.clone(), columns.buffer_mut())).collect()
    }

    parameters_of_store!();
}

impl FusedBlock {
    /// Makes the gradient of the channels that a layer wrote from S and what is missing of it, takes
    /// it back through the layer, adds the layer's share to both, and writes the gradients of its
    /// parameters.
    #[expect(clippy::too_many_arguments, reason = "a layer's inputs and outputs")]
    fn backward_layer(
        &self,
        layer: usize,
        values: &Values,
        map: &DeviceMap,
        moments: &Moments,
        kept: KeptLayer,
        (summed, sums): &(Columns, Sums),
        room: &Room,
    ) {
        let kernels = self.store.kernels();
        let [pointwise, spatial] = self.convolutions(map.size);
        let (width, growth) = (self.sizes.width(layer), self.sizes.growth);
        let (pixels, middle) = (map.columns.pixels(), self.sizes.bottleneck);
        let [affine1, affine2] = &kept.affines;
        let input = map.columns.slice(0..width);

        let written = width..width + growth;
        let added = summed.slice(written.clone());
        let (values_of, moments_of) =
            (map.columns.slice(written.clone()), moments.slice(written.clone()));
        kernels.input_gradient(&added, &values_of, &moments_of, &sums.slice(written), &added);

        let bottleneck = kept.bottleneck.unwrap_or_else(|| {
            let bottleneck = kernels.columns(pixels, middle);
            kernels.layer_forward_alone(&input, affine1, &values.packed[4 * layer], &bottleneck);
            bottleneck
        });
        let normal = kernels.normalised(&bottleneck, affine2);
        let weight = &room.weights[2 * layer + 1];
        kernels.conv_backward_weight(&spatial, &normal, &added, weight);
        // What has been normalised is no longer needed, and the gradient takes its place.
        let between = (normal, kernels.sums(middle));
        let norm = &values.norms[2 * layer + 1];
        kernels.layer_backward(
            &spatial,
            &added,
            &values.packed[4 * layer + 3],
            &bottleneck,
            Normalised { moments: &kept.moments, affine: affine2, norm },
            &room.norms[2 * layer + 1],
            (&between.0, &between.1),
            true,
        );
        ended("conv2");
        let (between, missing) = between;
        kernels.input_gradient(&between, &bottleneck, &kept.moments, &missing, &between);
        ended("norm2, relu2");

        kernels.layer_weight(&input, affine1, &between, &room.weights[2 * layer]);
        let norm = &values.norms[2 * layer];
        kernels.layer_backward(
            &pointwise,
            &between,
            &values.packed[4 * layer + 1],
            &input,
            Normalised { moments: &moments.slice(0..width), affine: affine1, norm },
            &room.norms[2 * layer],
            (&summed.slice(0..width), &sums.slice(0..width)),
            false,
        );
        ended("norm1, relu1, conv1");
    }
}
