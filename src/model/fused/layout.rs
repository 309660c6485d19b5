//! How the parameters of a fused stage lie in memory: each kind in one buffer.

use std::ops::Range;

use crate::ops::gpu::{
    Buffer, ChannelStats, Form, Kernels, NormBuffers, Packed, Packing, ParameterGradients, Record,
    Segment,
};

/// The kinds of parameters.
pub(super) const WEIGHTS: usize = 0;
pub(super) const NORMS: usize = 1;
pub(super) const RUNNING: usize = 2;

/// Where a stage's convolutions' weights, its norms' scales and shifts, and its running statistics lie,
/// each kind in one buffer.
pub(super) struct Layout {
    places: [Vec<Range<usize>>; 3],
    segments: Vec<Segment>,
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
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "only a device is given tensors")
    )]
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
    /// forms.
    pub fn new(
        parameters: impl IntoIterator<Item = (Vec<usize>, bool)>,
        forms: &[(usize, Form)],
    ) -> Self {
        let mut places: [Vec<Range<usize>>; 3] = Default::default();
        let mut weights = Vec::new();
        for (shape, trained) in parameters {
            let kind = kind(&shape, trained);
            let start = places[kind].last().map_or(0, |place| place.end);
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
        Self { places, segments }
    }

    /// How many numbers of a kind there are.
    pub fn length(&self, kind: usize) -> usize {
        self.places[kind].last().map_or(0, |place| place.end)
    }

    /// How the weights are packed for the kernels.
    pub fn packing(&self, kernels: &Kernels) -> Option<Packing> {
        (!self.segments.is_empty()).then(|| kernels.packing(&self.segments))
    }

    /// The parameters, of which `all` gives each kind, as the kernels read them.
    pub fn values(
        &self,
        kernels: &Kernels,
        packing: Option<&Packing>,
        all: impl Fn(usize) -> Buffer,
    ) -> Values {
        let packed = packing.map(|packing| kernels.pack(&all(WEIGHTS), packing));
        let running =
            self.pairs(RUNNING, &all).map(|(mean, variance)| ChannelStats::running(mean, variance));
        Values {
            running: running.collect(),
            norms: self.norms(&all),
            packed: packed.unwrap_or_default(),
        }
    }

    /// Room for gradients.
    pub fn room(&self, kernels: &Kernels) -> Room {
        let all = [WEIGHTS, NORMS].map(|kind| kernels.gpu().floats(self.length(kind)));
        let weights = self.places[WEIGHTS].iter().map(|place| all[WEIGHTS].range(place.clone()));
        Room { weights: weights.collect(), norms: self.norms(|kind| all[kind].clone()), all }
    }

    /// Room for the statistics of a batch, where there are running ones.
    pub fn records(&self, kernels: &Kernels) -> Option<Records> {
        if self.places[RUNNING].is_empty() {
            return None;
        }
        let all = kernels.filled(self.length(RUNNING), 0.0);
        let norms = self.pairs(RUNNING, |_| all.clone());
        let norms = norms.map(|(mean, variance)| Record { mean, variance }).collect();
        Some(Records { norms, all })
    }

    fn norms(&self, all: impl Fn(usize) -> Buffer) -> Vec<NormBuffers> {
        self.pairs(NORMS, all).map(|(scale, shift)| NormBuffers { scale, shift }).collect()
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
