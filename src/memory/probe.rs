//! Which layer of a chain is the first to give a number that is not finite.

use std::cell::{Cell, RefCell};

use super::{Activation, Chain, Keep, Pass, Stage, Statistics, fault};

/// What the numbers of something are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extent {
    /// The largest magnitude of those that are finite.
    pub largest: f32,
    /// Where the first is that is not finite.
    pub broken: Option<usize>,
}

/// A layer that is the first to give a number that is not finite.
#[derive(Debug, Clone, PartialEq)]
pub struct BrokenLayer {
    /// Its place among those that were looked at.
    pub place: [usize; 2],
    /// Its name, as torchvision has it; that of the stage where the layers of a stage cannot be told apart.
    pub name: String,
    /// The largest magnitude of what went in, where all of that is finite and known.
    pub largest: Option<f32>,
}

/// Looks at what each layer of a stage gives, while it computes.
#[derive(Debug, Default)]
pub struct Probe {
    looked: Cell<usize>,
    found: RefCell<Option<BrokenLayer>>,
}

impl Extent {
    /// That of `numbers`.
    pub fn of(numbers: impl IntoIterator<Item = f32>) -> Self {
        let mut extent = Self { largest: 0.0, broken: None };
        for (place, number) in numbers.into_iter().enumerate() {
            match number.is_finite() {
                true => extent.largest = extent.largest.max(number.abs()),
                false => extent.broken = extent.broken.or(Some(place)),
            }
        }
        extent
    }

    /// That of what flows between stages. What cannot be read counts as sound: the device's failure is
    /// told elsewhere.
    pub fn of_activation(activation: &Activation) -> Self {
        let data = match activation.clone() {
            Activation::Features(features) => vec![features.try_into_data()],
            Activation::Outputs(outputs) => {
                outputs.into_iter().map(|output| output.try_into_data()).collect()
            }
            map => vec![map.into_map().try_into_data()],
        };
        Self::of(data.iter().flatten().flat_map(|data| data.iter::<f32>()))
    }
}

impl Probe {
    /// Looks at the `output` that `layer` has made of `inputs`.
    pub fn look(&self, layer: &str, inputs: &[Activation], output: &Activation) {
        let place = self.looked.replace(self.looked.get() + 1);
        let known = self.found.borrow().is_some();
        if known || Extent::of_activation(output).broken.is_none() {
            return;
        }
        let inputs: Vec<Extent> = inputs.iter().map(Extent::of_activation).collect();
        let sound = inputs.iter().all(|input| input.broken.is_none());
        let largest = inputs.iter().map(|input| input.largest).reduce(f32::max);
        let (name, largest) = (layer.to_owned(), largest.filter(|_| sound));
        self.found.replace(Some(BrokenLayer { place: [0, place], name, largest }));
    }
}

/// Runs the chain forward on `input` as a training step does, of which the first `frozen` stages are
/// frozen, and looks at what each layer gives. Returns the chain's output, and the first layer whose output
/// is not finite.
pub fn search(
    chain: &Chain,
    frozen: usize,
    pass: &Pass,
    input: Activation,
) -> (Activation, Option<BrokenLayer>) {
    let (mut flowing, mut found) = (input, None);
    for (place, stage) in chain.stages().iter().enumerate() {
        fault::check();
        let evaluates = Pass::evaluation();
        let pass = if place < frozen { &evaluates } else { pass }.probed();
        let mut statistics = Statistics::new();
        flowing = stage.forward(flowing, Keep::Nothing, &pass, &mut statistics).0;
        if found.is_none() {
            let layer = pass.probe().and_then(|probe| probe.found.take());
            let layer = layer.or_else(|| broken_stage(stage.as_ref(), &statistics, &flowing));
            found = layer.map(|layer| BrokenLayer { place: [place, layer.place[1]], ..layer });
        }
    }
    (flowing, found)
}

/// What of a stage is not finite whose layers have not been looked at, as fused ones cannot be: the first
/// norm whose statistics are not, or else the stage itself.
fn broken_stage(
    stage: &dyn Stage,
    statistics: &Statistics,
    output: &Activation,
) -> Option<BrokenLayer> {
    let buckets = stage.buckets().into_iter();
    let of_norm = buckets.filter_map(|bucket| {
        let found = statistics.get(bucket.key())?.clone().try_into_data().ok()?;
        let found: Vec<f32> = found.iter().collect();
        let broken = |place: &std::ops::Range<usize>| {
            Extent::of(found[place.clone()].iter().copied()).broken.is_some()
        };
        let (member, _) = bucket.places().find(|(_, place)| broken(place))?;
        member.name.rsplit_once('.').map(|(norm, _)| norm.to_owned())
    });
    let itself = || Extent::of_activation(output).broken.map(|_| stage.name().to_owned());
    let name = { of_norm }.next().or_else(itself)?;
    Some(BrokenLayer { place: [0, 0], name, largest: None })
}
