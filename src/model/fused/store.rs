//! The parameters of a fused stage, each kind in one buffer.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::Tensor;

use crate::memory::{Gradients, Member, Pack, Parameter, Pass, Purpose, Statistics};
use crate::model::layers::MOMENTUM;
use crate::ops::cuda::{
    Buffer, Form, Kernels, Moments, NormBuffers, Packed, Packing, Record, Segment,
};

/// The parameters of a stage: its convolutions' weights, its norms' scales and shifts, and its running
/// statistics, each kind in one tensor.
pub(super) struct Store {
    kernels: Kernels,
    packs: [Pack; 3],
    packing: Option<Packing>,
    /// What the kernels read; made again when a parameter has changed.
    values: RefCell<Option<Arc<Values>>>,
}

/// The parameters as the kernels read them, in the order of the stage's layers.
pub(super) struct Values {
    /// Each norm's scale and shift.
    pub norms: Vec<NormBuffers>,
    /// Each norm's running statistics.
    pub running: Vec<Moments>,
    /// The weights in each of the forms asked for.
    pub packed: Vec<Packed>,
}

/// Room for the gradients of a stage's parameters.
pub(super) struct Room {
    all: [Buffer; 2],
    /// Each weight's.
    pub weights: Vec<Buffer>,
    /// Each norm's.
    pub norms: Vec<NormBuffers>,
}

/// Room for the statistics of a batch.
pub(super) struct Records {
    all: Buffer,
    /// Each norm's.
    pub norms: Vec<Record>,
}

const WEIGHTS: usize = 0;
const NORMS: usize = 1;
const RUNNING: usize = 2;

impl Store {
    /// The parameters of a stage, and the forms in which its kernels want the weights: which weight,
    /// by its place among the stage's, and which form.
    pub fn new(kernels: Kernels, parameters: Vec<Parameter>, forms: &[(usize, Form)]) -> Self {
        let kind = |parameter: &Parameter| match (parameter.trained, parameter.shape.len()) {
            (true, 1) => NORMS,
            (true, _) => WEIGHTS,
            (false, _) => RUNNING,
        };
        let mut kinds: [Vec<Parameter>; 3] = Default::default();
        for parameter in parameters {
            kinds[kind(&parameter)].push(parameter);
        }
        let device = kinds[NORMS][0].value.device();
        let packs = kinds.map(|parameters| {
            let trained = parameters.first().is_some_and(|parameter| parameter.trained);
            let (members, values): (Vec<_>, Vec<_>) = parameters
                .into_iter()
                .map(|parameter| {
                    let Parameter { name, shape, value, .. } = parameter;
                    (Member { name, shape }, value)
                })
                .unzip();
            let value = match values.is_empty() {
                true => Tensor::empty([0], &device),
                false => Tensor::cat(values, 0),
            };
            Pack { members: members.into(), trained, value }
        });
        let places: Vec<(Member, Range<usize>)> =
            packs[WEIGHTS].places().map(|(member, place)| (member.clone(), place)).collect();
        let segment = |&(weight, form): &(usize, Form)| {
            let (member, place) = &places[weight];
            let [output, input, kernel] = [member.shape[0], member.shape[1], member.shape[2]];
            Segment { source: place.start, form, output, input, kernel }
        };
        let segments: Vec<Segment> = forms.iter().map(segment).collect();
        let packing = (!segments.is_empty()).then(|| kernels.packing(kernels.gpu(), &segments));
        Self { kernels, packs, packing, values: RefCell::default() }
    }

    /// The kernels.
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The parameters as the kernels read them.
    pub fn values(&self) -> Arc<Values> {
        Arc::clone(self.values.borrow_mut().get_or_insert_with(|| Arc::new(self.read())))
    }

    fn read(&self) -> Values {
        let buffer = |kind: usize| Buffer::of_tensor(self.packs[kind].value.clone());
        let norms = buffer(NORMS);
        let packed = match &self.packing {
            Some(packing) => self.kernels.pack(&buffer(WEIGHTS), packing),
            None => Vec::new(),
        };
        let running = buffer(RUNNING);
        let running = self.pairs(RUNNING, &running);
        Values {
            norms: norm_buffers(self.pairs(NORMS, &norms)),
            running: running.map(|(mean, variance)| Moments::running(mean, variance)).collect(),
            packed,
        }
    }

    /// The parts of `all` that belong to two members each.
    fn pairs<'a>(
        &'a self,
        kind: usize,
        all: &'a Buffer,
    ) -> impl Iterator<Item = (Buffer, Buffer)> + 'a {
        let places: Vec<Range<usize>> = self.packs[kind].places().map(|(_, place)| place).collect();
        (0..places.len() / 2).map(move |pair| {
            (all.range(places[2 * pair].clone()), all.range(places[2 * pair + 1].clone()))
        })
    }

    /// Room for gradients.
    pub fn room(&self) -> Room {
        let room = |kind: usize| self.kernels.gpu().floats(self.packs[kind].value.dims()[0]);
        let all = [room(WEIGHTS), room(NORMS)];
        let weights = self.packs[WEIGHTS].places().map(|(_, place)| all[WEIGHTS].range(place));
        let (weights, norms) = (weights.collect(), norm_buffers(self.pairs(NORMS, &all[NORMS])));
        Room { all, weights, norms }
    }

    /// Adds the gradients in `room` to `gradients`.
    pub fn add_gradients(&self, room: Room, gradients: &mut Gradients) {
        for (kind, all) in room.all.iter().enumerate() {
            if !all.is_empty() {
                let gradient: Tensor<1> = self.kernels.gpu().tensor(all, [all.len()]);
                gradients.add(self.packs[kind].key(), gradient);
            }
        }
    }

    /// Room for the statistics of the batch, where `pass` is to report them.
    pub fn records(&self, pass: &Pass) -> Option<Records> {
        if pass.purpose() != Purpose::First {
            return None;
        }
        let all = self.kernels.filled(self.packs[RUNNING].value.dims()[0], 0.0);
        let norms = self.pairs(RUNNING, &all).map(|(mean, variance)| Record { mean, variance });
        let norms = norms.collect();
        Some(Records { all, norms })
    }

    /// Reports the statistics of the batch.
    pub fn report(&self, records: Option<Records>, statistics: &mut Statistics) {
        if let Some(Records { all, .. }) = records {
            let value: Tensor<1> = self.kernels.gpu().tensor(&all, [all.len()]);
            statistics.insert(self.packs[RUNNING].key().to_owned(), (value, MOMENTUM));
        }
    }

    /// See [`crate::memory::Stage::packs`].
    pub fn packs(&self) -> Vec<Pack> {
        self.packs.iter().filter(|pack| !pack.members.is_empty()).cloned().collect()
    }

    /// See [`crate::memory::Stage::map_packs`].
    pub fn map_packs(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        // Held no longer, the old values may be written over.
        self.values.take();
        for pack in self.packs.iter_mut().filter(|pack| !pack.members.is_empty()) {
            let empty = Tensor::empty([0], &pack.value.device());
            let value = std::mem::replace(&mut pack.value, empty);
            pack.value = change(&pack.members[0].name, value);
        }
    }

    /// See [`crate::memory::Stage::parameters`].
    pub fn parameters(&self) -> Vec<Parameter> {
        let of_pack = |pack: &Pack| {
            let parameter = |(member, place): (&Member, Range<usize>)| Parameter {
                name: member.name.clone(),
                shape: member.shape.clone(),
                trained: pack.trained,
                value: pack.value.clone().narrow(0, place.start, place.len()),
            };
            pack.places().map(parameter).collect::<Vec<_>>()
        };
        self.packs.iter().flat_map(of_pack).collect()
    }

    /// See [`crate::memory::Stage::map_parameters`].
    pub fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        self.values.take();
        for pack in self.packs.iter_mut().filter(|pack| !pack.members.is_empty()) {
            let changed = pack.places().map(|(member, place)| {
                change(&member.name, pack.value.clone().narrow(0, place.start, place.len()))
            });
            pack.value = Tensor::cat(changed.collect(), 0);
        }
    }
}

fn norm_buffers(pairs: impl Iterator<Item = (Buffer, Buffer)>) -> Vec<NormBuffers> {
    pairs.map(|(scale, shift)| NormBuffers { scale, shift }).collect()
}

/// The methods by which a stage gives out its [`Store`].
macro_rules! parameters_of_store {
    () => {
        fn parameters(&self) -> Vec<crate::memory::Parameter> {
            self.store.parameters()
        }

        fn map_parameters(
            &mut self,
            change: &mut dyn FnMut(&str, burn::tensor::Tensor<1>) -> burn::tensor::Tensor<1>,
        ) {
            self.store.map_parameters(change);
        }

        fn packs(&self) -> Vec<crate::memory::Pack> {
            self.store.packs()
        }

        fn map_packs(
            &mut self,
            change: &mut dyn FnMut(&str, burn::tensor::Tensor<1>) -> burn::tensor::Tensor<1>,
        ) {
            self.store.map_packs(change);
        }
    };
}
pub(super) use parameters_of_store;
