//! A stage of layers of which only the maps between products are kept.

use burn::tensor::{Device, Tensor};

use super::layers::{Layers, joined, split, sum};
use super::parts::{Joint, LayerPart, parts};
use super::sizes::{Size, SizedLayer};
use crate::memory::layered::{self, Kept, Machine, Part};
use crate::memory::measure::{again, ended};
use crate::memory::offload::Piece;
use crate::memory::{
    Activation, Gradients, Keep, Parameter, Pass, Recording, Saved, Stage, Statistics, Traced,
};
use crate::ops::{Products, products};

/// Layers in a row.
pub(super) struct LayeredStage {
    name: String,
    parts: Vec<TracedPart>,
    /// Whether the gradient of the input is computed.
    asked: bool,
}

type TracedPart = Part<Product, Traced<Layers>, Joint>;

/// A convolution or fully connected layer.
struct Product {
    /// As it is called in a record of memory, such as `conv3`.
    name: String,
    /// The names of its weight and, where it has one, its bias.
    parameters: Vec<String>,
    layer: Traced<Layers>,
}

/// What a [`LayeredStage`] keeps.
struct KeptLayers {
    /// Where the backward pass needs it.
    input: Option<Activation>,
    kept: Kept<Activation>,
    pass: Pass,
    products: Products,
}

impl LayeredStage {
    /// The stage called `name` with weights drawn from `seed`; as the `first` of a chain nobody asks
    /// for the gradient of its input.
    pub fn init(
        name: &str,
        layers: &[SizedLayer],
        input: Size,
        first: bool,
        device: &Device,
        seed: u64,
    ) -> Self {
        let init = Init { stage: name, device, seed };
        let parts = init.parts(parts(layers, input));
        Self { name: name.to_owned(), parts, asked: !first }
    }
}

struct Init<'a> {
    stage: &'a str,
    device: &'a Device,
    seed: u64,
}

impl Init<'_> {
    fn parts(&self, parts: Vec<LayerPart<'_>>) -> Vec<TracedPart> {
        let part = |part: LayerPart<'_>| match part {
            Part::Product(layers) => {
                let layer = self.traced(layers);
                let parameters = layer.parameters().into_iter().map(|found| found.name).collect();
                let name = layer.module().first_name().to_owned();
                Part::Product(Product { name, parameters, layer })
            }
            Part::Between(layers) => Part::Between(self.traced(layers)),
            Part::Branches(joint, rows) => {
                Part::Branches(joint, rows.into_iter().map(|row| self.parts(row)).collect())
            }
        };
        parts.into_iter().map(part).collect()
    }

    fn traced(&self, layers: &[SizedLayer]) -> Traced<Layers> {
        let (layers, names) = Layers::init(layers, self.device, self.seed);
        let names: Vec<(&str, &str)> =
            names.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
        Traced::new(self.stage, &names, layers)
    }
}

impl Stage for LayeredStage {
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
        let mut none = Gradients::default();
        let mut run = Run { pass, statistics, products: products(), gradients: &mut none };
        let keep = keep == Keep::All;
        let needed = keep && layered::needs_input(&run, &self.parts);
        let given = needed.then(|| input.clone());
        let (output, kept) = layered::forward(&mut run, &self.parts, input, keep);
        let saved = keep.then(|| {
            let input = given;
            let kept = KeptLayers { input, kept, pass: pass.again(), products: products() };
            Saved(Box::new(kept))
        });
        (output, saved)
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Activation {
        let KeptLayers { input, kept, pass, products } = *saved.open::<KeptLayers>(&self.name);
        let mut statistics = Statistics::new();
        let mut run = Run { pass: &pass, statistics: &mut statistics, products, gradients };
        let found = layered::backward(&mut run, &self.parts, kept, input, gradient, self.asked);
        found.unwrap_or(Activation::Outputs(Vec::new()))
    }

    fn moves_saved(&self) -> bool {
        true
    }

    fn pieces<'a>(&self, saved: &'a mut Saved) -> Vec<Piece<'a>> {
        let KeptLayers { input, kept, .. } = saved.look::<KeptLayers>(&self.name);
        // Images are held elsewhere too.
        let mut values: Vec<&mut Activation> = input.iter_mut().filter(|_| self.asked).collect();
        kept.collect(&mut values);
        values.into_iter().flat_map(Activation::pieces).collect()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut found = Vec::new();
        each_layer(&self.parts, &mut |layer| found.extend(layer.parameters()));
        found
    }

    fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        each_layer_mut(&mut self.parts, &mut |layer| layer.map_parameters(change));
    }
}

/// Runs layers in a training step.
struct Run<'a> {
    pass: &'a Pass,
    statistics: &'a mut Statistics,
    products: Products,
    gradients: &'a mut Gradients,
}

impl Machine for Run<'_> {
    type Product = Product;
    type Between = Traced<Layers>;
    type Joint = Joint;
    type Value = Activation;
    type Tape = Recording<Layers>;

    fn product(&mut self, product: &Product, input: Activation) -> Activation {
        product.layer.run(input, self.pass, self.statistics)
    }

    fn between(&mut self, layers: &Traced<Layers>, input: Activation) -> Activation {
        layers.run(input, self.pass, self.statistics)
    }

    fn again(
        &mut self,
        layers: &Traced<Layers>,
        input: Activation,
        asked: bool,
    ) -> (Activation, Recording<Layers>) {
        again(|| layers.record(input, asked, self.pass, self.statistics))
    }

    fn between_back(
        &mut self,
        layers: &Traced<Layers>,
        tape: Recording<Layers>,
        gradient: Activation,
    ) -> Option<Activation> {
        layers.back(tape, gradient, self.gradients)
    }

    fn product_back(
        &mut self,
        product: &Product,
        input: Activation,
        gradient: Activation,
        asked: bool,
    ) -> Option<Activation> {
        let layer = product.layer.module();
        let (of_input, found) = layer.product_back(self.products, input, gradient, asked);
        for (name, gradient) in product.parameters.iter().zip(found) {
            self.gradients.add(name, gradient);
        }
        ended(&product.name);
        of_input
    }

    fn trains(&self, layers: &Traced<Layers>) -> bool {
        layers.module().has_parameters()
    }

    fn repeats(&self, layers: &Traced<Layers>) -> bool {
        layers.module().is_relu()
    }

    fn join(&mut self, joint: &Joint, outputs: Vec<Activation>) -> Activation {
        joined(joint.how, outputs)
    }

    fn split(&mut self, joint: &Joint, gradient: Activation) -> Vec<Activation> {
        split(joint.how, &joint.channels, gradient)
    }

    fn add(&mut self, left: Activation, right: Activation) -> Activation {
        sum(left, right)
    }
}

/// Calls `visit` with every layer that may have parameters, in the order they run.
fn each_layer<'a>(parts: &'a [TracedPart], visit: &mut dyn FnMut(&'a Traced<Layers>)) {
    for part in parts {
        match part {
            Part::Product(Product { layer, .. }) | Part::Between(layer) => visit(layer),
            Part::Branches(_, rows) => rows.iter().for_each(|row| each_layer(row, visit)),
        }
    }
}

/// [`each_layer`], to be changed.
fn each_layer_mut(parts: &mut [TracedPart], visit: &mut dyn FnMut(&mut Traced<Layers>)) {
    for part in parts {
        match part {
            Part::Product(Product { layer, .. }) | Part::Between(layer) => visit(layer),
            Part::Branches(_, rows) => rows.iter_mut().for_each(|row| each_layer_mut(row, visit)),
        }
    }
}
