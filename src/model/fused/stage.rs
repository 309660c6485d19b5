//! A fused stage on a GPU.

use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::layout::{RUNNING, Room, kind};
use super::{Back, Layout, Prepared, Program, Run, Value, Values};
use crate::memory::offload::OffloadTensor;
use crate::memory::{
    Activation, Bucket, BucketMember, Gradients, Keep, Parameter, Pass, Purpose, Saved, Stage,
    Statistics, add_gradient,
};
use crate::model::Norm;
use crate::model::fuse::StagePadding;
use crate::ops::gpu::{Buffer, DeviceMap, Images, Kernels, Over, Synced};

/// A program with its parameters, each kind of which lies in one tensor.
pub(super) struct ProgramStage<P> {
    name: String,
    prepared: Prepared<P>,
    buckets: [Option<Bucket>; 3],
    padding: Option<Arc<StagePadding>>,
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
        program: (P, Norm),
    ) -> Self {
        let shapes =
            parameters.iter().map(|parameter| (parameter.shape.clone(), parameter.trained));
        let layout = Layout::new(shapes, &program.0.forms(), padding.as_deref());
        let mut kinds: [Vec<Parameter>; 3] = Default::default();
        for parameter in parameters {
            kinds[kind(&parameter.shape, parameter.trained)].push(parameter);
        }
        let buckets = kinds.map(|parameters| bucket(parameters, device));
        let prepared = Prepared::new(program, kernels, layout);
        Self { name: name.to_owned(), prepared, buckets, padding }
    }

    fn values(&self, kernels: &Kernels, trains: bool) -> Arc<Values> {
        let all = |kind: usize| Buffer::of_tensor(self.bucket(kind).value.clone());
        self.prepared.values(kernels, trains, all)
    }

    /// The input as the program takes it, and its numbers if it came as a tensor.
    fn value(&self, input: Activation) -> (Value, Option<DType>) {
        match input {
            Activation::Device(map) => (Value::Map(*map), None),
            other if P::TAKES_IMAGES => {
                let map = other.into_map();
                let shape = map.dims();
                let buffer = Buffer::of_tensor(map.cast(self.prepared.kernels.storage()));
                (Value::Images(Images { buffer, shape }), None)
            }
            other => {
                let parts = self.padding.as_ref().map(|padding| &padding.input);
                let map = other.into_map();
                let numbers = Some(map.dtype());
                (Value::Map(DeviceMap::of_tensor(&self.prepared.kernels, map, parts)), numbers)
            }
        }
    }

    /// The gradient as the program takes it: in memory that it may write over.
    fn gradient(&self, gradient: Activation) -> Value {
        let kernels = &self.prepared.kernels;
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
            self.prepared.program.takes_sums(),
            "{} was given another gradient",
            self.name
        );
        Value::Map(map)
    }

    /// Adds the gradients in `room` to `gradients`.
    fn add_gradients(&self, room: Room, gradients: &mut Gradients) {
        let Prepared { kernels, tables, .. } = &self.prepared;
        let all = tables.gradients(kernels, room);
        for (all, bucket) in all.iter().zip(&self.buckets) {
            if let Some(bucket) = bucket {
                add_gradient(gradients, bucket.key(), kernels.gpu().tensor(all, [all.len()]));
            }
        }
    }

    fn bucket(&self, kind: usize) -> &Bucket {
        self.buckets[kind].as_ref().expect("the stage has such parameters")
    }

    /// Its buckets, to be changed. What the kernels have read of them is held no longer, so that it may
    /// be written over.
    fn buckets_mut(&mut self) -> impl Iterator<Item = &mut Bucket> {
        self.prepared.forget_values();
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
        let Prepared { program, kernels: own, layout, tables, .. } = &self.prepared;
        let kernels = &own.of_a_pass();
        let values = &self.values(kernels, pass.trains());
        let batch = input.shape().batch();
        let (input, as_tensor) = self.value(input);
        let reports = pass.purpose() == Purpose::First;
        let all_records = reports.then(|| layout.records(own)).flatten();
        let over = self.prepared.over(batch);
        let across = pass.across(&self.name).filter(|_| over == Over::Batch);
        let cards = across.and_then(|across| across.cards());
        let (records, synced) = (all_records.as_ref(), cards.as_ref());
        let run = Run { kernels, values, records, over, keeps: keep == Keep::All, synced, pass };
        let (output, kept) = program.forward(&run, input);
        let gpu = own.gpu();
        if let Some(records) = all_records {
            let all = tables.statistics(own, records);
            let moving = gpu.tensor(&all, [all.len()]);
            statistics.insert(self.bucket(RUNNING).key().to_owned(), moving);
        }
        let output = match tables.output(own, output, batch) {
            Value::Features(features) => {
                Activation::Features(gpu.tensor(&features, [batch, features.len() / batch]))
            }
            other => {
                let parts = self.padding.as_ref().map(|padding| Arc::clone(&padding.output));
                Activation::Device(Box::new(DeviceMap { parts, ..other.into_map() }))
            }
        };
        let saved = kept.map(|kept| SavedPass { kept, as_tensor, over, synced: cards });
        (output, saved.map(|saved| Saved(Box::new(saved))))
    }

    fn room(&self) -> usize {
        self.prepared.program.room()
    }

    fn checkpoint(&self, input: &Activation) -> Activation {
        let Activation::Device(map) = input else { return input.clone() };
        let Prepared { program, kernels, .. } = &self.prepared;
        match program.checkpoint(&kernels.of_a_pass(), map) {
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
        let Prepared { program, kernels: own, layout, tables, .. } = &self.prepared;
        let kernels = &own.of_a_pass();
        let values = &self.values(kernels, true);
        let SavedPass { kept, as_tensor, over, synced } =
            *saved.open::<SavedPass<P::Saved>>(&self.name);
        let batch = gradient.shape().batch();
        let room = layout.room(own);
        let gradient = tables.gradient(kernels, self.gradient(gradient), batch);
        let back = Back { kernels, values, room: &room, over, synced: synced.as_ref() };
        let found = program.backward(&back, kept, gradient);
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
        let Prepared { program, kernels, .. } = &self.prepared;
        let gpu = kernels.gpu();
        let buffers = program.buffers(&mut saved.look::<SavedPass<P::Saved>>(&self.name).kept);
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
