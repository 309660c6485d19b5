//! A residual block.

mod backward;
mod sizes;

use super::device_map;
use super::store::{Records, Store, Values, parameters_of_store};
use sizes::{convolution, names};

use crate::memory::measure::within;
use crate::memory::offload::Piece;
use crate::memory::{Activation, Gradients, Keep, Parameter, Pass, Saved, Stage, Statistics};
use crate::model::fuse::ResidualSizes;
use crate::ops::cuda::{Affine, Columns, DeviceMap, Form, Kernels, Moments, Partials, Shortcut};

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
    fn output(&self, index: usize, size: [usize; 3]) -> Columns {
        let conv = self.sizes.all()[index];
        let pixels = conv.output(size).iter().product();
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
        let name = names(&self.sizes, index)[0];
        let out = || self.output(index, size);
        let Some(affine) = before else {
            return within(name, || {
                let out = out();
                let part = kernels.conv_forward(&convolution, map, weight, &out);
                (out, part)
            });
        };
        let norm = names(&self.sizes, index - 1)[1];
        if conv.window.kernel == 1 {
            return within(format_args!("{norm}, relu, {name}"), || {
                let out = out();
                let part = kernels.layer_forward(map, affine, weight, &out);
                (out, part)
            });
        }
        let normal = within(format_args!("{norm}, relu"), || kernels.normalised(map, affine));
        within(name, || {
            let out = out();
            let part = kernels.conv_forward(&convolution, &normal, weight, &out);
            (out, part)
        })
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
        debug_assert_eq!(conv.window.kernel, 1, "other convolutions' outputs are kept");
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
        within(names(&self.sizes, index)[1], || {
            if !pass.trains() {
                let moments = values.running[index].clone();
                let affine = kernels.affine(&moments, norm, pixels, None);
                return (moments, affine);
            }
            let moments = kernels.moments(map.channels());
            let record = records.map(|records| &records.norms[index]);
            let affine = kernels.channel_norm(part, &moments, norm, pixels, record);
            (moments, affine)
        })
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
            let kept = keep == Keep::All && self.sizes.convs[index].window.kernel > 1;
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
            let norm = names(&self.sizes, last)[1];
            let projected = if self.sizes.projection.is_some() { ", downsample.1" } else { "" };
            within(format_args!("{norm}{projected}, add, relu"), || {
                kernels.residual_forward(&map, &layers[last].affine, &shortcut)
            })
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
    ) -> Option<Activation> {
        let kept = *saved.open::<Kept>(&self.name);
        Some(self.backward_block(kept, gradient, gradients))
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn pieces<'a>(&self, saved: &'a mut Saved) -> Vec<Piece<'a>> {
        let gpu = self.store.kernels().gpu();
        let Kept { input, output, layers, .. } = saved.look::<Kept>(&self.name);
        let maps = layers.iter_mut().filter_map(|layer| layer.map.as_mut());
        let maps = [&mut input.columns, output].into_iter().chain(maps);
        maps.map(|columns| Piece::Buffer(gpu.clone(), columns.buffer_mut())).collect()
    }

    parameters_of_store!();
}
