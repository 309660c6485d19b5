//! How the parameters of a fused stage lie in memory: each kind in one buffer.

use std::ops::Range;
use std::sync::Arc;

use super::Value;
use crate::model::fuse::StagePadding;
use crate::ops::gpu::{
    Buffer, ChannelParts, ChannelStats, Form, Kernels, NormBuffers, Packed, Packing, Padding,
    ParameterGradients, Record, Segment,
};

/// The kinds of parameters.
pub(super) const WEIGHTS: usize = 0;
pub(super) const NORMS: usize = 1;
pub(super) const RUNNING: usize = 2;

/// Where a stage's convolutions' weights, its norms' scales and shifts, and its running statistics lie,
/// each kind in one buffer.
///
/// Where rows have channels of zeros, kernels are given copies of the parameters with zeros among them, and
/// what they find of the parameters is copied without.
pub(super) struct Layout {
    /// How many numbers of each kind there are.
    lengths: [usize; 3],
    /// Where each parameter lies among those of its kind, as kernels are given them.
    places: [Vec<Range<usize>>; 3],
    segments: Vec<Segment>,
    /// The parameters of each kind, where kernels are given zeros among their numbers; else none.
    padded: [Vec<PaddedParameter>; 3],
    /// How the channels of the output lie, where there are channels of zeros.
    output: Option<Arc<ChannelParts>>,
}

/// A parameter among whose numbers there are zeros.
struct PaddedParameter {
    /// Where it begins, as kernels are given it.
    start: usize,
    shape: Vec<usize>,
    /// Of the first sides of its shape, how channels lie along them.
    sides: Vec<Arc<ChannelParts>>,
}

/// What is made ready of a layout once.
pub(super) struct Tables {
    packing: Option<Packing>,
    padding: [Option<Padding>; 3],
    /// Of pooled features.
    features: Option<Padding>,
}

/// The parameters as the kernels read them, in the order of the stage's layers.
pub(in crate::model) struct Values {
    /// Each norm's scale and shift.
    pub norms: Vec<NormBuffers>,
    /// Each norm's running statistics.
    pub running: Vec<ChannelStats>,
    /// The weights in each of the forms asked for.
    pub packed: Vec<Packed>,
}

/// Room for the gradients of a stage's parameters.
pub(in crate::model) struct Room {
    /// Those of all weights, and of all norms.
    pub all: [Buffer; 2],
    /// Each weight's.
    pub weights: Vec<Buffer>,
    /// Each norm's.
    pub norms: Vec<NormBuffers>,
}

impl Room {
    /// That of a weight and of a norm of the same index.
    pub fn gradients(&self, index: usize) -> ParameterGradients<'_> {
        ParameterGradients { weight: &self.weights[index], norm: &self.norms[index] }
    }
}

/// Room for the statistics of a batch.
pub(in crate::model) struct Records {
    /// Those of all norms.
    pub all: Buffer,
    /// Each norm's.
    pub norms: Vec<Record>,
}

/// Which kind a parameter of this shape is, `trained` or a running statistic.
pub(super) fn kind(shape: &[usize], trained: bool) -> usize {
    match (trained, shape.len()) {
        (true, 1) => NORMS,
        (true, _) => WEIGHTS,
        (false, _) => RUNNING,
    }
}

impl Layout {
    /// Of parameters of these shapes, trained or running statistics, whose weights are wanted in these
    /// forms; `padding` where rows have channels of zeros.
    pub fn new(
        parameters: impl IntoIterator<Item = (Vec<usize>, bool)>,
        forms: &[(usize, Form)],
        padding: Option<&StagePadding>,
    ) -> Self {
        let mut places: [Vec<Range<usize>>; 3] = Default::default();
        let mut padded: [Vec<PaddedParameter>; 3] = Default::default();
        let (mut lengths, mut weights) = ([0; 3], Vec::new());
        for (index, (mut shape, trained)) in parameters.into_iter().enumerate() {
            let kind = kind(&shape, trained);
            let start = places[kind].last().map_or(0, |place| place.end);
            lengths[kind] += shape.iter().product::<usize>();
            if let Some(padding) = padding {
                let sides = &padding.parameters[index];
                let parameter =
                    PaddedParameter { start, shape: shape.clone(), sides: sides.clone() };
                padded[kind].push(parameter);
                shape.iter_mut().zip(sides).for_each(|(side, parts)| *side = parts.room());
            }
            places[kind].push(start..start + shape.iter().product::<usize>());
            if kind == WEIGHTS {
                weights.push(shape);
            }
        }
        let segment = |&(weight, form): &(usize, Form)| {
            let [output, input, kernel] = [0, 1, 2].map(|side| weights[weight][side]);
            Segment { source: places[WEIGHTS][weight].start, form, output, input, kernel }
        };
        let segments = forms.iter().map(segment).collect();
        let output = padding.map(|padding| Arc::clone(&padding.output));
        Self { lengths, places, segments, padded, output }
    }

    /// How many numbers of a kind there are.
    pub fn length(&self, kind: usize) -> usize {
        self.lengths[kind]
    }

    /// How many numbers of a kind kernels are given.
    fn room_for(&self, kind: usize) -> usize {
        self.places[kind].last().map_or(0, |place| place.end)
    }

    /// How the weights are packed for the kernels, and where there are zeros.
    pub fn tables(&self, kernels: &Kernels) -> Tables {
        let packing = (!self.segments.is_empty()).then(|| kernels.packing(&self.segments));
        let of_kind = |kind: usize| {
            let padded = &self.padded[kind];
            let places = || padded.iter().flat_map(PaddedParameter::places).collect();
            let sizes = [self.length(kind), self.room_for(kind)];
            (!padded.is_empty()).then(|| kernels.padding(sizes, places))
        };
        let features = self.output.as_ref().filter(|parts| parts.is_padded());
        let features = features
            .map(|parts| kernels.padding([parts.channels(), parts.room()], || parts.places()));
        Tables { packing, padding: [0, 1, 2].map(of_kind), features }
    }

    /// The parameters, of which `all` gives each kind, as the kernels read them.
    pub fn values(
        &self,
        kernels: &Kernels,
        tables: &Tables,
        all: impl Fn(usize) -> Buffer,
    ) -> Values {
        let all = |kind: usize| match &tables.padding[kind] {
            Some(padding) => kernels.with_zeros(&all(kind), padding, 1),
            None => all(kind),
        };
        let packing = tables.packing.as_ref();
        let packed = packing.map(|packing| kernels.pack(&all(WEIGHTS), packing));
        let running =
            self.pairs(RUNNING, &all).map(|(mean, variance)| ChannelStats::running(mean, variance));
        Values {
            running: running.collect(),
            norms: self.norms(all),
            packed: packed.unwrap_or_default(),
        }
    }

    /// Room for gradients.
    pub fn room(&self, kernels: &Kernels) -> Room {
        let all = [WEIGHTS, NORMS].map(|kind| kernels.gpu().floats(self.room_for(kind)));
        let weights = self.places[WEIGHTS].iter().map(|place| all[WEIGHTS].range(place.clone()));
        Room { weights: weights.collect(), norms: self.norms(|kind| all[kind].clone()), all }
    }

    /// Room for the statistics of a batch, where there are running ones.
    pub fn records(&self, kernels: &Kernels) -> Option<Records> {
        if self.places[RUNNING].is_empty() {
            return None;
        }
        let all = kernels.filled(self.room_for(RUNNING), 0.0);
        let norms = self.pairs(RUNNING, |_| all.clone());
        let norms = norms.map(|(mean, variance)| Record { mean, variance }).collect();
        Some(Records { norms, all })
    }

    fn norms(&self, all: impl Fn(usize) -> Buffer) -> Vec<NormBuffers> {
        let norm = |(index, (scale, shift)): (usize, _)| {
            let parts = self.padded[NORMS].get(2 * index).map(|scale| &scale.sides[0]);
            let parts = parts.filter(|parts| parts.is_padded()).cloned();
            NormBuffers { scale, shift, parts }
        };
        self.pairs(NORMS, all).enumerate().map(norm).collect()
    }

    /// The parts of all of a kind that belong to two parameters each.
    fn pairs(
        &self,
        kind: usize,
        all: impl Fn(usize) -> Buffer,
    ) -> impl Iterator<Item = (Buffer, Buffer)> {
        let all = (!self.places[kind].is_empty()).then(|| all(kind));
        let part = move |place: &Range<usize>| all.as_ref().map(|all| all.range(place.clone()));
        self.places[kind]
            .chunks_exact(2)
            .filter_map(move |pair| Some((part(&pair[0])?, part(&pair[1])?)))
    }
}

impl Tables {
    /// The gradients of weights and of norms' parameters in `room`, in the parameters' order.
    pub fn gradients(&self, kernels: &Kernels, Room { all, .. }: Room) -> [Buffer; 2] {
        let [weights, norms] = all;
        [(WEIGHTS, weights), (NORMS, norms)].map(|(kind, all)| self.of_kind(kernels, kind, all))
    }

    /// The statistics in `records`, in the running statistics' order.
    pub fn statistics(&self, kernels: &Kernels, records: Records) -> Buffer {
        self.of_kind(kernels, RUNNING, records.all)
    }

    fn of_kind(&self, kernels: &Kernels, kind: usize, all: Buffer) -> Buffer {
        match &self.padding[kind] {
            Some(padding) => kernels.without_zeros(&all, padding, 1),
            None => all,
        }
    }

    /// A program's output for `images` images, as the stage gives it: pooled features have no zeros among them.
    pub fn output(&self, kernels: &Kernels, output: Value, images: usize) -> Value {
        match (output, &self.features) {
            (Value::Features(features), Some(padding)) => {
                Value::Features(kernels.without_zeros(&features, padding, images))
            }
            (output, _) => output,
        }
    }

    /// The gradient of a stage's output for `images` images, as the program takes it.
    pub fn gradient(&self, kernels: &Kernels, gradient: Value, images: usize) -> Value {
        match (gradient, &self.features) {
            (Value::Features(features), Some(padding)) => {
                Value::Features(kernels.with_zeros(&features, padding, images))
            }
            (gradient, _) => gradient,
        }
    }
}

impl PaddedParameter {
    /// Where each of its numbers lies among those of its kind that kernels are given.
    fn places(&self) -> impl Iterator<Item = usize> + use<> {
        let mut places = vec![0];
        for parts in &self.sides {
            let (along, room) = (parts.places(), parts.room());
            let next =
                places.iter().flat_map(|at| along.iter().map(move |place| at * room + place));
            places = next.collect();
        }
        let inner: usize = self.shape[self.sides.len()..].iter().product();
        let start = self.start;
        let of = move |at| (0..inner).map(move |number| start + at * inner + number);
        places.into_iter().flat_map(of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 3×3 convolution of a dense layer: 5 channels of 12 and 3.
    #[test]
    fn numbers_of_a_weight_keep_their_order_between_zeros() {
        let [output, first, next] = [5, 12, 3].map(ChannelParts::one);
        let sides = vec![Arc::new(output), Arc::new(first.then(&next))];
        let weight = PaddedParameter { start: 40, shape: vec![5, 15, 3, 3], sides };
        let mut wanted = Vec::new();
        for output in 0..5 {
            for input in (0..12).chain(16..19) {
                wanted.extend((0..9).map(|tap| 40 + (output * 24 + input) * 9 + tap));
            }
        }
        assert_eq!(weight.places().collect::<Vec<_>>(), wanted);
    }
}
