//! A residual block.

use super::store::{Records, Room, Store, Values, parameters_of_store};
use super::{device_map, own_gradient};
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::model::layer::Conv2dConfig;
use crate::ops::cuda::{
    Affine, Columns, Convolution, DeviceMap, Form, Kernels, Moments, Normalised, Partials, Shortcut,
};

/// Convolutions, each followed by a norm; ReLU between them and after the shortcut is added.
///
/// The outputs of 3×3 convolutions are kept for the backward pass, and so are the block's input and
/// output, which its neighbours hold as well. What 1×1 convolutions give and what norms make of it
/// is computed again.
pub(in crate::model) struct FusedResidual {
    name: String,
    store: Store,
    sizes: ResidualSizes,
}

/// The sizes of a residual block.
#[derive(Debug, Clone)]
pub(in crate::model) struct ResidualSizes {
    /// The convolutions on the residual path, the first of which reads the block's input; 1×1 ones
    /// behind it have stride 1.
    pub convs: Vec<Conv2dConfig>,
    /// The shortcut's convolution; without one it leaves pixels out and adds channels of zeros.
    pub projection: Option<Conv2dConfig>,
    /// How many times lower and narrower the output is.
    pub stride: usize,
}

struct Kept {
    input: DeviceMap,
    came_as_tensor: bool,
    output: Columns,
    layers: Vec<Layer>,
}

/// A convolution and its norm, after the forward pass.
struct Layer {
    /// The convolution's output; `None` where it is computed again.
    map: Option<Columns>,
    moments: Moments,
    affine: Affine,
}

impl ResidualSizes {
    /// Batch, height and width of what each convolution on the path reads.
    fn inputs(&self, size: [usize; 3]) -> Vec<[usize; 3]> {
        let before = |size: &mut [usize; 3], conv: &Conv2dConfig| {
            let [batch, height, width] = *size;
            let after = [batch, conv.output_size(height), conv.output_size(width)];
            Some(std::mem::replace(size, after))
        };
        self.convs.iter().scan(size, before).collect()
    }

    fn output(&self, [batch, height, width]: [usize; 3]) -> [usize; 3] {
        let side = |side: usize| (side - 1) / self.stride + 1;
        [batch, side(height), side(width)]
    }

    /// The convolutions in the order of their parameters: the shortcut's comes last.
    fn all(&self) -> Vec<Conv2dConfig> {
        self.convs.iter().chain(&self.projection).copied().collect()
    }
}

impl FusedResidual {
    /// With these parameters.
    pub fn new(
        name: &str,
        kernels: Kernels,
        parameters: Vec<Parameter>,
        sizes: ResidualSizes,
    ) -> Self {
        let forms: Vec<(usize, Form)> = (0..sizes.all().len())
            .flat_map(|weight| [(weight, Form::Forward), (weight, Form::InputGradient)])
            .collect();
        Self { name: name.to_owned(), store: Store::new(kernels, parameters, &forms), sizes }
    }

    /// Room for the output of convolution `index` of maps of `size`.
    fn output(&self, index: usize, [batch, height, width]: [usize; 3]) -> Columns {
        let conv = self.sizes.all()[index];
        let pixels = batch * conv.output_size(height) * conv.output_size(width);
        self.store.kernels().columns(pixels, conv.channels[1])
    }

    /// What convolution `index` makes of `map`, of `size`, after the norm and ReLU before it; and what
    /// it leaves of its channels.
    fn convolve(
        &self,
        values: &Values,
        index: usize,
        (map, size): (&Columns, [usize; 3]),
        before: Option<&Affine>,
    ) -> (Columns, Partials) {
        let (kernels, conv) = (self.store.kernels(), self.sizes.all()[index]);
        let (convolution, weight) = (convolution(&conv, size), &values.packed[2 * index]);
        let normal =
            before.filter(|_| conv.kernel > 1).map(|affine| kernels.normalised(map, affine));
        let out = self.output(index, size);
        let part = match (before, &normal) {
            (Some(affine), None) => kernels.layer_forward(map, affine, weight, &out),
            (_, normal) => {
                let map = normal.as_ref().unwrap_or(map);
                kernels.conv_forward(&convolution, map, weight, &out)
            }
        };
        (out, part)
    }

    /// [`Self::convolve`] once more, of a 1×1 convolution.
    fn convolve_again(
        &self,
        values: &Values,
        index: usize,
        (map, size): (&Columns, [usize; 3]),
        before: Option<&Affine>,
    ) -> Columns {
        let (kernels, conv) = (self.store.kernels(), self.sizes.all()[index]);
        debug_assert_eq!(conv.kernel, 1, "other convolutions' outputs are kept");
        let (out, weight) = (self.output(index, size), &values.packed[2 * index]);
        match before {
            Some(affine) => kernels.layer_forward_alone(map, affine, weight, &out),
            None => kernels.conv_forward_alone(&convolution(&conv, size), map, weight, &out),
        }
        out
    }

    /// The norm behind convolution `index`, of whose output the forward kernel left `part`.
    fn norm(
        &self,
        values: &Values,
        index: usize,
        (map, part): (&Columns, &Partials),
        pass: &Pass,
        records: Option<&Records>,
    ) -> (Moments, Affine) {
        let (kernels, norm) = (self.store.kernels(), &values.norms[index]);
        let pixels = map.pixels();
        if !pass.trains() {
            let moments = values.running[index].clone();
            let affine = kernels.affine(&moments, norm, pixels, None);
            return (moments, affine);
        }
        let moments = kernels.moments(map.channels());
        let record = records.map(|records| &records.norms[index]);
        let affine = kernels.channel_norm(part, &moments, norm, pixels, record);
        (moments, affine)
    }

    /// The output of convolution `index` on the path, whether it was kept or not.
    fn map(&self, values: &Values, input: &DeviceMap, layers: &[Layer], index: usize) -> Columns {
        if let Some(map) = &layers[index].map {
            return map.clone();
        }
        let size = self.sizes.inputs(input.size)[index];
        let Some(before) = index.checked_sub(1) else {
            return self.convolve_again(values, 0, (&input.columns, size), None);
        };
        let map = self.map(values, input, layers, before);
        self.convolve_again(values, index, (&map, size), Some(&layers[before].affine))
    }
}

fn convolution(conv: &Conv2dConfig, size: [usize; 3]) -> Convolution {
    let Conv2dConfig { kernel, stride, padding, .. } = *conv;
    Convolution { size, kernel, stride, padding }
}

impl Stage for FusedResidual {
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
        let (input, came_as_tensor) = device_map(kernels, input);
        let records = self.store.records(pass);
        let mut layers: Vec<Layer> = Vec::new();
        let mut map = input.columns.clone();
        for (index, size) in self.sizes.inputs(input.size).into_iter().enumerate() {
            let before = layers.last().map(|layer| &layer.affine);
            let (out, part) = self.convolve(&values, index, (&map, size), before);
            map = out;
            let (moments, affine) =
                self.norm(&values, index, (&map, &part), pass, records.as_ref());
            let kept = keep == Keep::All && self.sizes.convs[index].kernel > 1;
            layers.push(Layer { map: kept.then(|| map.clone()), moments, affine });
        }
        let last = layers.len() - 1;
        let size = self.sizes.output(input.size);
        if self.sizes.projection.is_some() {
            let index = layers.len();
            let (map, part) = self.convolve(&values, index, (&input.columns, input.size), None);
            let (moments, affine) =
                self.norm(&values, index, (&map, &part), pass, records.as_ref());
            layers.push(Layer { map: Some(map), moments, affine });
        }
        let columns = {
            let shortcut = match layers.get(last + 1) {
                Some(Layer { map: Some(map), affine, .. }) => {
                    Shortcut { map, size, stride: 1, affine: Some(affine) }
                }
                _ => {
                    let (map, stride) = (&input.columns, self.sizes.stride);
                    Shortcut { map, size: input.size, stride, affine: None }
                }
            };
            kernels.residual_forward(&map, &layers[last].affine, &shortcut)
        };
        if let Some(projection) = layers.get_mut(last + 1) {
            projection.map = None;
        }
        self.store.report(records, statistics);
        let saved = (keep == Keep::All).then(|| {
            let output = columns.clone();
            Saved(Box::new(Kept { input, came_as_tensor, output, layers }))
        });
        let gpu = kernels.gpu().clone();
        let output = DeviceMap { gpu, columns, size, moments: None, pending: None };
        (Activation::Device(Box::new(output)), saved)
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Activation {
        let (kernels, values) = (self.store.kernels(), self.store.values());
        let Kept { input, came_as_tensor, output, mut layers } = *saved.open::<Kept>(&self.name);
        let gradient = own_gradient(kernels, gradient);
        let room = self.store.room();
        let sizes = self.sizes.inputs(input.size);
        let last = sizes.len() - 1;

        // Nothing else needs the last convolution's output: its gradient takes its place.
        let mut flowing = self.map(&values, &input, &layers, last);
        let (normalised, norm) = (normalised(&values, &layers, last), &room.norms[last]);
        kernels.residual_backward(&gradient, &flowing, &output, normalised, norm);
        drop(output);
        layers[last].map = None;
        let columns = self.backward_shortcut(&values, &input, &layers, gradient, &room);

        for index in (1..=last).rev() {
            let map = self.map(&values, &input, &layers, index - 1);
            layers[index - 1].map = None;
            flowing =
                self.backward_layer(&values, index, (&map, sizes[index]), &layers, &flowing, &room);
        }
        let first = convolution(&self.sizes.convs[0], input.size);
        kernels.conv_backward_weight(&first, &input.columns, &flowing, &room.weights[0]);
        kernels.conv_backward_input_added(&first, &flowing, &values.packed[1], &columns);
        self.store.add_gradients(room, gradients);
        let gradient = DeviceMap { columns, moments: None, pending: None, ..input };
        match came_as_tensor {
            true => Activation::Map(gradient.to_tensor()),
            false => Activation::Device(Box::new(gradient)),
        }
    }

    parameters_of_store!();
}

/// Norm `index` with the statistics it was given.
fn normalised<'a>(values: &'a Values, layers: &'a [Layer], index: usize) -> Normalised<'a> {
    let Layer { moments, affine, .. } = &layers[index];
    Normalised { moments, affine, norm: &values.norms[index] }
}

impl FusedResidual {
    /// The shortcut's part of the input's gradient, from that of the sum, whose memory it may take.
    fn backward_shortcut(
        &self,
        values: &Values,
        input: &DeviceMap,
        layers: &[Layer],
        gradient: Columns,
        room: &Room,
    ) -> Columns {
        let kernels = self.store.kernels();
        let (map, channels) = (&input.columns, input.columns.channels());
        let Some(projection) = &self.sizes.projection else {
            if self.sizes.stride == 1 && gradient.channels() == channels {
                return gradient;
            }
            return kernels.shortcut_backward(&gradient, input.size, channels, self.sizes.stride);
        };
        let index = self.sizes.convs.len();
        let projected = self.convolve_again(values, index, (map, input.size), None);
        let normalised = normalised(values, layers, index);
        kernels.norm_backward(&gradient, &projected, normalised, &room.norms[index], false);
        drop(projected);
        let projection = convolution(projection, input.size);
        kernels.conv_backward_weight(&projection, map, &gradient, &room.weights[index]);
        let columns = kernels.columns(map.pixels(), channels);
        let weight = &values.packed[2 * index + 1];
        kernels.conv_backward_input(&projection, &gradient, weight, &columns);
        columns
    }

    /// Takes the gradient of the output of convolution `index` back through it and the norm and ReLU
    /// before it to `map`, the output of the convolution before.
    fn backward_layer(
        &self,
        values: &Values,
        index: usize,
        (map, size): (&Columns, [usize; 3]),
        layers: &[Layer],
        gradient: &Columns,
        room: &Room,
    ) -> Columns {
        let kernels = self.store.kernels();
        let conv = self.sizes.convs[index];
        let convolution = convolution(&conv, size);
        let normalised = normalised(values, layers, index - 1);
        let weight = &room.weights[index];
        let out = if conv.kernel == 1 {
            kernels.layer_weight(map, normalised.affine, gradient, weight);
            kernels.columns(map.pixels(), map.channels())
        } else {
            // What has been normalised is no longer needed then, and the gradient takes its place.
            let normal = kernels.normalised(map, normalised.affine);
            kernels.conv_backward_weight(&convolution, &normal, gradient, weight);
            normal
        };
        let (packed, norm) = (&values.packed[2 * index + 1], &room.norms[index - 1]);
        if conv.stride > 1 {
            kernels.conv_backward_input(&convolution, gradient, packed, &out);
            kernels.norm_backward(&out, map, normalised, norm, true);
            return out;
        }
        let sums = kernels.sums(map.channels());
        let (summed, missing) = (&out, &sums);
        kernels.layer_backward(
            &convolution,
            gradient,
            packed,
            map,
            normalised,
            norm,
            (summed, missing),
            true,
        );
        kernels.input_gradient(summed, map, normalised.moments, missing, summed);
        out
    }
}
