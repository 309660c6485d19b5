//! A fused stage on a GPU.

use std::cell::RefCell;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::layout::{Layout, RUNNING, Room, Tables, Values, kind};
use super::program::{layout, over};
use super::{Back, Program, Run, Value};
use crate::memory::offload::OffloadTensor;
use crate::memory::{
    Activation, Bucket, BucketMember, Gradients, Keep, Parameter, Pass, Purpose, Saved, Stage,
    Statistics,
};
use crate::model::fuse::StagePadding;
use crate::ops::gpu::{Buffer, DeviceMap, Images, Kernels, Over, Synced};

/// A program with its parameters, each kind of which lies in one tensor.
pub(super) struct ProgramStage<P> {
    name: String,
    kernels: Kernels,
    program: P,
    layout: Layout,
    buckets: [Option<Bucket>; 3],
    tables: Tables,
    padding: Option<Arc<StagePadding>>,
    /// What the kernels read; made again when a parameter has changed.
    values: RefCell<Option<Arc<Values>>>,
}

/// What a stage keeps of a pass.
struct SavedPass<K> {
    kept: K,
    /// The numbers of the input where it came as a tensor, as which its gradient is to go.
    as_tensor: Option<DType>,
    /// What norms were taken over.
    over: Over,
    /// What norms were taken over, where several cards have some of the images.
    synced: Option<Synced>,
}

impl<P: Program> ProgramStage<P> {
    /// `program` on these kernels of `device`, with these parameters, which may be elsewhere.
    pub fn new(
        name: &str,
        (kernels, device): (Kernels, &Device),
        (parameters, padding): (Vec<Parameter>, Option<Arc<StagePadding>>),
        program: P,
    ) -> Self {
        let shapes =
            parameters.iter().map(|parameter| (parameter.shape.clone(), parameter.trained));
        let layout = layout(&program, shapes, padding.as_deref());
        let mut kinds: [Vec<Parameter>; 3] = Default::default();
        for parameter in parameters {
            kinds[kind(&parameter.shape, parameter.trained)].push(parameter);
        }
        let buckets = kinds.map(|parameters| bucket(parameters, device));
        let tables = layout.tables(&kernels);
        let (name, values) = (name.to_owned(), RefCell::default());
        Self { name, kernels, program, layout, buckets, tables, padding, values }
    }

    /// The parameters as the `kernels` of a pass read them. Passes that train read them once until they change; others, between
    /// which and the next step nothing is to lie in the memory of passes, each for itself.
    fn values(&self, kernels: &Kernels, trains: bool) -> Arc<Values> {
        let mut known = self.values.borrow_mut();
        if let Some(values) = &*known {
            return Arc::clone(values);
        }
        let all = |kind: usize| Buffer::of_tensor(self.bucket(kind).value.clone());
        let values = Arc::new(self.layout.values(kernels, &self.tables, all));
        *known = trains.then(|| Arc::clone(&values));
        values
    }

    /// The input as the program takes it, and its numbers if it came as a tensor.
    fn value(&self, input: Activation) -> (Value, Option<DType>) {
        match input {
            Activation::Device(map) => (Value::Map(*map), None),
            other if P::TAKES_IMAGES => {
                let map = other.into_map();
                let shape = map.dims();
                let buffer = Buffer::of_tensor(map.cast(self.kernels.storage().dtype()));
                (Value::Images(Images { buffer, shape }), None)
            }
            other => {
                let parts = self.padding.as_ref().map(|padding| &padding.input);
                let map = other.into_map();
                let numbers = Some(map.dtype());
                (Value::Map(DeviceMap::of_tensor(&self.kernels, map, parts)), numbers)
            }
        }
    }

    /// The gradient as the program takes it: in memory that it may write over.
    fn gradient(&self, gradient: Activation) -> Value {
        let kernels = &self.kernels;
        let map = match gradient {
            Activation::Device(map) => *map,
            Activation::Features(features) => {
                return Value::Features(Buffer::of_tensor(features.cast(DType::F32)));
            }
            other => {
                let parts = self.padding.as_ref().map(|padding| &padding.output);
                let map = DeviceMap::of_tensor(kernels, other.into_map(), parts);
                let data = kernels.empty_map(map.data.pixels(), map.data.channels());
                kernels.copy(&map.data, &data);
                DeviceMap { data, ..map }
            }
        };
        assert_eq!(
            map.pending.is_some(),
            self.program.takes_sums(),
            "{} was given another gradient",
            self.name
        );
        Value::Map(map)
    }

    /// Adds the gradients in `room` to `gradients`.
    fn add_gradients(&self, room: Room, gradients: &mut Gradients) {
        let all = self.tables.gradients(&self.kernels, room);
        for (all, bucket) in all.iter().zip(&self.buckets) {
            if let Some(bucket) = bucket {
                gradients.add(bucket.key(), self.kernels.gpu().tensor(all, [all.len()]));
            }
        }
    }

    fn bucket(&self, kind: usize) -> &Bucket {
        self.buckets[kind].as_ref().expect("the stage has such parameters")
    }

    /// Its buckets, to be changed. What the kernels have read of them is held no longer, so that it may
    /// be written over.
    fn buckets_mut(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.values.take();
        self.buckets.iter_mut().flatten()
    }
}

/// Parameters of one kind in one tensor on `device`; `None` where there are none.
fn bucket(parameters: Vec<Parameter>, device: &Device) -> Option<Bucket> {
    let trained = parameters.first()?.trained;
    let (members, values): (Vec<_>, Vec<_>) = parameters
        .into_iter()
        .map(|Parameter { name, shape, value, .. }| (BucketMember { name, shape }, value))
        .unzip();
    let value = Tensor::cat(values, 0).to_device(device);
    Some(Bucket { members: members.into(), trained, value })
}

impl<P: Program> Stage for ProgramStage<P> {
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
        let kernels = self.kernels.of_a_pass();
        let values = self.values(&kernels, pass.trains());
        let batch = input.shape().batch();
        let (input, as_tensor) = self.value(input);
        let reports = pass.purpose() == Purpose::First;
        let records = reports.then(|| self.layout.records(&self.kernels)).flatten();
        let over = over(self.program.norm(), batch);
        let across = pass.across(&self.name).filter(|_| over == Over::Batch);
        let synced = across.and_then(|across| across.cards());
        let run = Run {
            kernels: &kernels,
            values: &values,
            records: records.as_ref(),
            trains: pass.trains(),
            over,
            keeps: keep == Keep::All,
            synced: synced.as_ref(),
            pass,
        };
        let (output, kept) = self.program.forward(&run, input);
        let gpu = self.kernels.gpu();
        if let Some(records) = records {
            let all = self.tables.statistics(&self.kernels, records);
            let moving = gpu.tensor(&all, [all.len()]);
            statistics.insert(self.bucket(RUNNING).key().to_owned(), moving);
        }
        let output = match self.tables.output(&self.kernels, output, batch) {
            Value::Features(features) => {
                Activation::Features(gpu.tensor(&features, [batch, features.len() / batch]))
            }
            other => {
                let parts = self.padding.as_ref().map(|padding| Arc::clone(&padding.output));
                Activation::Device(Box::new(DeviceMap { parts, ..other.into_map() }))
            }
        };
        (output, kept.map(|kept| Saved(Box::new(SavedPass { kept, as_tensor, over, synced }))))
    }

    fn room(&self) -> usize {
        self.program.room()
    }

    fn checkpoint(&self, input: &Activation) -> Activation {
        let Activation::Device(map) = input else { return input.clone() };
        match self.program.checkpoint(&self.kernels.of_a_pass(), map) {
            Some(aside) => Activation::Device(Box::new(aside)),
            None => input.clone(),
        }
    }

    fn backward(
        &self,
        saved: Saved,
        gradient: Activation,
        gradients: &mut Gradients,
    ) -> Option<Activation> {
        let kernels = self.kernels.of_a_pass();
        let values = self.values(&kernels, true);
        let SavedPass { kept, as_tensor, over, synced } =
            *saved.open::<SavedPass<P::Saved>>(&self.name);
        let batch = gradient.shape().batch();
        let room = self.layout.room(&self.kernels);
        let synced = synced.as_ref();
        let gradient = self.tables.gradient(&kernels, self.gradient(gradient), batch);
        let back = Back { kernels: &kernels, values: &values, room: &room, over, synced };
        let found = self.program.backward(&back, kept, gradient);
        self.add_gradients(room, gradients);
        let parts = self.padding.as_ref().map(|padding| Arc::clone(&padding.input));
        found.map(|found| DeviceMap { parts, ..found }).map(|found| match as_tensor {
            Some(numbers) => Activation::Map(found.to_tensor().cast(numbers)),
            None => Activation::Device(Box::new(found)),
        })
    }

    fn moves_saved(&self) -> bool {
        P::KEEPS
    }

    fn offload_tensors<'a>(&self, saved: &'a mut Saved) -> Vec<OffloadTensor<'a>> {
        let gpu = self.kernels.gpu();
        let buffers = self.program.buffers(&mut saved.look::<SavedPass<P::Saved>>(&self.name).kept);
        buffers.into_iter().map(|buffer| OffloadTensor::Buffer(gpu.clone(), buffer)).collect()
    }

    fn parameters(&self) -> Vec<Parameter> {
        let of_bucket = |bucket: &Bucket| {
            let parameter = |(member, place): (&BucketMember, std::ops::Range<usize>)| Parameter {
                name: member.name.clone(),
                shape: member.shape.clone(),
                trained: bucket.trained,
                value: bucket.value.clone().narrow(0, place.start, place.len()),
            };
            bucket.places().map(parameter).collect::<Vec<_>>()
        };
        self.buckets.iter().flatten().flat_map(of_bucket).collect()
    }

    fn map_parameters(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        for bucket in self.buckets_mut() {
            let changed = bucket.places().map(|(member, place)| {
                change(&member.name, bucket.value.clone().narrow(0, place.start, place.len()))
            });
            let changed = Tensor::cat(changed.collect(), 0);
            // Where it was before, so that what is left behind it does not lie in pieces.
            bucket.value = Tensor::empty([0], &changed.device());
            bucket.value = changed.clone().mul_scalar(1.0);
        }
    }

    fn buckets(&self) -> Vec<Bucket> {
        self.buckets.iter().flatten().cloned().collect()
    }

    fn map_buckets(&mut self, change: &mut dyn FnMut(&str, Tensor<1>) -> Tensor<1>) {
        for bucket in self.buckets_mut() {
            let empty = Tensor::empty([0], &bucket.value.device());
            let value = std::mem::replace(&mut bucket.value, empty);
            bucket.value = change(&bucket.members[0].name, value);
        }
    }
}
