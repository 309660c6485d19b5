//! One device among those that compute a batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, Device, Tensor, TensorData};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Part;
use super::course::{Doing, waiting};
use super::group::Group;
use super::processes::Attempt;
use crate::memory::{Bucket, Gradients, Stage, check_allocated};
use crate::ops::gpu::{Exchange, ExchangedSums, Given, Synced};
use crate::ops::is_gpu;

/// One device's place among those that compute a batch together, for one piece of work.
#[derive(Debug)]
pub struct Member {
    rank: usize,
    ranks: usize,
    /// The devices among which it is, of all that meet: in front of every name.
    line: String,
    meeting: Meeting,
    /// What cards exchange by.
    exchange: Option<Exchange>,
    /// What is remembered of this piece of work.
    remembered: Mutex<HashMap<String, Vec<Tensor<1>>>>,
    /// What kernels have put together of all cards in it.
    rows: ExchangedSums,
    /// The gradients that have been given to the other cards in it.
    given: Mutex<(Vec<String>, Given)>,
}

/// Where the devices meet.
#[derive(Debug)]
enum Meeting {
    /// In one process.
    Threads(Arc<Group>),
    /// Each device in a process of its own.
    Processes(Attempt),
}

impl Member {
    pub(super) fn new(
        [rank, ranks]: [usize; 2],
        line: String,
        group: Arc<Group>,
        exchange: Option<Exchange>,
    ) -> Self {
        Self::at(Meeting::Threads(group), [rank, ranks], line, exchange)
    }

    /// A device that computes by itself.
    pub fn alone() -> Self {
        Self::new([0, 1], String::new(), Arc::default(), None)
    }

    /// A device that is a process.
    pub(super) fn of_process(attempt: Attempt, exchange: Option<Exchange>) -> Self {
        let place = [attempt.rank(), attempt.ranks()];
        Self::at(Meeting::Processes(attempt), place, String::new(), exchange)
    }

    fn at(
        meeting: Meeting,
        [rank, ranks]: [usize; 2],
        line: String,
        exchange: Option<Exchange>,
    ) -> Self {
        let (remembered, rows, given) = Default::default();
        Self { rank, ranks, line, meeting, exchange, remembered, rows, given }
    }

    /// Its place among the devices, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many devices there are.
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// What cards exchange by, where the devices are cards that do.
    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_ref()
    }

    /// The sum over the first `ranks` devices, which all call this with the same `name`, of tensors of one
    /// length: added up in the order of the devices, so that all get the same bits.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn sum(&self, name: &str, ranks: usize, value: Tensor<1>) -> Tensor<1> {
        if let Some(exchange) = &self.exchange {
            return exchange.sum_of(ranks, value);
        }
        let add = |values: Vec<Tensor<1>>| values.into_iter().reduce(|sum, value| sum + value);
        waiting(Doing::Norms, || match &self.meeting {
            Meeting::Processes(attempt) => attempt.sum(name, ranks, value),
            Meeting::Threads(group) => {
                let sum = self.meet(group, name, ranks, value, add);
                sum.expect("of one or more devices")
            }
        })
    }

    /// What every device brings, in their order, which all get.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn gather_bytes(&self, name: &str, own: Vec<u8>) -> Vec<Vec<u8>> {
        match &self.meeting {
            Meeting::Processes(attempt) => attempt.gather(name, &own),
            Meeting::Threads(group) => self.meet(group, name, self.ranks, own, |all| all),
        }
    }

    /// The tensor `name` of `length` numbers whose [shards](super::Shard) the devices have; a device may have none of
    /// it. It is put on the device and in the numbers `to`.
    ///
    /// Between cards of several processes it goes through the host's memory.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub(super) fn join(
        &self,
        name: &str,
        part: Option<Tensor<1>>,
        length: usize,
        to: (&Device, DType),
    ) -> Tensor<1> {
        if let Some(exchange) = self.exchange.as_ref().filter(|exchange| !exchange.is_relayed()) {
            // A card that has failed may not keep the others waiting for what it cannot launch.
            let allocated = check_allocated(part.clone());
            allocated.unwrap_or_else(|out_of_memory| out_of_memory.throw());
            if let Some(whole) = exchange.gather_of(part.as_ref(), length, to.1) {
                return whole;
            }
        }
        if let Meeting::Threads(group) = &self.meeting
            && !is_gpu(to.0)
        {
            let all = waiting(Doing::Weights, || {
                self.meet(group, name, self.ranks, part, |parts: Vec<Option<Tensor<1>>>| parts)
            });
            return Tensor::cat(all.into_iter().flatten().collect(), 0);
        }
        let own = part.map(|part| part.into_data().as_bytes().to_vec()).unwrap_or_default();
        let bytes = waiting(Doing::Weights, || self.gather_bytes(name, own)).concat();
        Tensor::from_data(TensorData::from_bytes_vec(bytes, [length], to.1), to)
    }

    /// Waits until cards have exchanged what is on its way between them. `device` is this one.
    pub(crate) fn settle(&self, device: &Device) {
        if self.exchange.is_some() {
            // What has failed is told where it is read, or at the end of the work.
            let _ = device.sync();
        }
    }

    /// What every device of a column brings, in their order, which all get.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn gather<T: Clone + Send + 'static>(&self, name: &str, value: T) -> Vec<T> {
        if self.ranks == 1 {
            return vec![value];
        }
        waiting(Doing::Receive, || {
            self.meet(self.group(), name, self.ranks, value, |values| values)
        })
    }

    /// Leaves `value` for the device that [takes](Member::take) it under `name`, and goes on.
    pub(super) fn post<T: Send + 'static>(&self, name: &str, value: T) {
        self.group().post(self.among(name), value);
    }

    /// Waits for what another device has left under `name`.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub(super) fn take<T: Send + 'static>(&self, name: &str) -> T {
        waiting(Doing::Receive, || self.group().take(&self.among(name)))
    }

    /// Waits for the first `ranks` of the devices among which it is; what `combine` makes of their values.
    fn meet<T: Send + 'static, R: Clone + Send + 'static>(
        &self,
        group: &Group,
        name: &str,
        ranks: usize,
        value: T,
        combine: impl FnOnce(Vec<T>) -> R,
    ) -> R {
        group.meet(&self.among(name), (self.rank, ranks), value, combine)
    }

    /// `name` among the devices of its line.
    fn among(&self, name: &str) -> String {
        format!("{}/{name}", self.line)
    }

    /// Where the devices of this process meet: those of a pipeline.
    fn group(&self) -> &Group {
        match &self.meeting {
            Meeting::Threads(group) => group,
            Meeting::Processes(_) => panic!("a pipeline's devices are those of one process"),
        }
    }

    /// The sums over all devices of the tensors of each name. A device that has no tensor of a name adds
    /// nothing to its sum, and gets it all the same.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn sum_all<K: Ord + Clone + Send + Serialize + DeserializeOwned + 'static>(
        &self,
        values: BTreeMap<K, Tensor<1>>,
    ) -> BTreeMap<K, Tensor<1>> {
        if let Some(exchange) = &self.exchange {
            // A card that has failed may not keep the others waiting for what it cannot launch.
            let allocated = check_allocated(values.values().cloned());
            allocated.unwrap_or_else(|out_of_memory| out_of_memory.throw());
            if !exchange.is_relayed() {
                return self.sum_all_by(exchange, values);
            }
        }
        waiting(Doing::Gradients, || match &self.meeting {
            Meeting::Processes(attempt) => attempt.sum_all(values),
            Meeting::Threads(group) => self.meet(group, "sums", self.ranks, values, add_all),
        })
    }

    /// Begins to give all other devices what `gradients` has of `stage`, where these are cards that can be given it: it travels beside
    /// what is computed next. All devices must have these gradients, give them in the same order, and [add them
    /// up](Self::sum_given) before all others.
    pub fn give(&self, stage: &dyn Stage, gradients: &Gradients) {
        let Some(exchange) = &self.exchange else { return };
        let trained = stage.buckets().into_iter().filter(|bucket| bucket.trained);
        let found = |bucket: Bucket| {
            let gradient =
                gradients.get(bucket.key()).filter(|found| found.dtype() == DType::F32)?;
            Some((bucket.key().to_owned(), gradient.clone()))
        };
        let (of_stage, found): (Vec<String>, Vec<_>) = trained.filter_map(found).unzip();
        let (names, given) = &mut *self.given();
        let gave = exchange.give_of(given, found).into_iter();
        names
            .extend(of_stage.into_iter().zip(gave).filter_map(|(name, gave)| gave.then_some(name)));
    }

    /// Takes those out of `gradients` that [were given](Self::give), and gives their sums over all devices. What else is to be added
    /// up must be so after them.
    ///
    /// Unwinds where memory has not sufficed for one of them.
    pub fn sum_given(
        &self,
        gradients: &mut BTreeMap<String, Tensor<1>>,
    ) -> BTreeMap<String, Tensor<1>> {
        let (names, given) = std::mem::take(&mut *self.given());
        let Some(exchange) = self.exchange.as_ref().filter(|_| !names.is_empty()) else {
            return BTreeMap::new();
        };
        // A card that has failed may not keep the others waiting for what it cannot launch.
        let allocated = check_allocated(gradients.values().cloned());
        allocated.unwrap_or_else(|out_of_memory| out_of_memory.throw());
        gradients.retain(|name, _| !names.contains(name));
        names.into_iter().zip(exchange.sums_of_given(&given)).collect()
    }

    fn given(&self) -> MutexGuard<'_, (Vec<String>, Given)> {
        self.given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// [`Member::sum_all`] of cards. What a device lacks counts as zeros.
    fn sum_all_by<K: Ord + Clone + Send + Serialize + DeserializeOwned + 'static>(
        &self,
        exchange: &Exchange,
        mut values: BTreeMap<K, Tensor<1>>,
    ) -> BTreeMap<K, Tensor<1>> {
        let of = |(name, value): (&K, &Tensor<1>)| (name.clone(), (value.dims()[0], value.dtype()));
        let known: BTreeMap<K, (usize, DType)> = values.iter().map(of).collect();
        let merge = |all: Vec<BTreeMap<K, (usize, DType)>>| -> BTreeMap<_, _> {
            all.into_iter().flatten().collect()
        };
        let known = match &self.meeting {
            Meeting::Threads(group) => self.meet(group, "names", self.ranks, known, merge),
            Meeting::Processes(attempt) => merge(attempt.gather_values("names", known)),
        };
        let all =
            known.iter().map(|(name, (length, dtype))| (values.remove(name), *length, *dtype));
        let sums = exchange.sum_of_all(all.collect());
        known.into_keys().zip(sums).collect()
    }

    /// What `make` gives when it is first asked for under `name`: asked again, nothing is computed or
    /// exchanged.
    pub fn remember(&self, name: &str, make: impl FnOnce() -> Vec<Tensor<1>>) -> Vec<Tensor<1>> {
        if let Some(found) = self.remembered().get(name) {
            return found.clone();
        }
        let made = make();
        self.remembered().insert(name.to_owned(), made.clone());
        made
    }

    fn remembered(&self) -> MutexGuard<'_, HashMap<String, Vec<Tensor<1>>>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sums, in the order of the devices, of the tensors of each name that any of them has.
pub(super) fn add_all<K: Ord>(all: Vec<BTreeMap<K, Tensor<1>>>) -> BTreeMap<K, Tensor<1>> {
    let mut sums = BTreeMap::<K, Tensor<1>>::new();
    for (name, value) in all.into_iter().flatten() {
        let sum = match sums.remove(&name) {
            Some(sum) => sum + value,
            None => value,
        };
        sums.insert(name, sum);
    }
    sums
}

/// The images that a norm is taken over, where several devices have some of them, in one pass of one
/// layer.
#[derive(Debug, Clone)]
pub struct Across {
    member: Arc<Member>,
    /// Of the layer and the images.
    name: String,
    /// How many devices, from the first on, have images.
    ranks: usize,
    /// The images of all of them, and of this one.
    images: [usize; 2],
}

impl Across {
    /// `layer`, run on the images of `part`.
    pub fn new(member: &Arc<Member>, layer: &str, part: &Part) -> Self {
        let name = format!("{layer}/{}", part.together.start);
        let (ranks, images) = (part.ranks, [part.together.len(), part.images.len()]);
        Self { member: Arc::clone(member), name, ranks, images }
    }

    /// How many images there are on all devices.
    pub fn images(&self) -> usize {
        self.images[0]
    }

    /// The same for kernels, where the devices are cards that exchange sums.
    pub fn cards(&self) -> Option<Synced> {
        let Member { exchange, rows, .. } = &*self.member;
        let exchange = exchange.as_ref()?;
        Some(Synced::new(exchange, &self.name, self.ranks, self.images, rows))
    }

    /// The mean over all images, given that over the `images` images of this device; `what` tells means of
    /// one layer apart.
    pub fn mean(&self, what: &str, images: usize, own: Tensor<1>) -> Tensor<1> {
        let own = own.mul_scalar(images as f64 / self.images() as f64);
        self.member.sum(&format!("{}/{what}", self.name), self.ranks, own)
    }

    /// What `make` gives in the first pass of the layer over these images; the same in every later one.
    pub fn remember<const N: usize>(
        &self,
        make: impl FnOnce() -> [Tensor<1>; N],
    ) -> [Tensor<1>; N] {
        let found = self.member.remember(&self.name, || make().into());
        found.try_into().expect("as many as were remembered")
    }
}
