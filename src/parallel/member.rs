//! One device among those that compute a batch.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{DType, Tensor};

use super::Part;
use super::group::Group;
use crate::memory::check_allocated;
use crate::ops::gpu::{Exchange, Rows, Synced};

/// One device's place among those that compute a batch together, for one piece of work.
#[derive(Debug)]
pub struct Member {
    rank: usize,
    ranks: usize,
    group: Arc<Group>,
    /// What cards exchange by.
    exchange: Option<Exchange>,
    /// What is remembered of this piece of work.
    remembered: Mutex<HashMap<String, Vec<Tensor<1>>>>,
    /// What kernels have put together of all cards in it.
    rows: Rows,
}

impl Member {
    pub(super) fn new(
        [rank, ranks]: [usize; 2],
        group: Arc<Group>,
        exchange: Option<Exchange>,
    ) -> Self {
        let (remembered, rows) = (Mutex::default(), Rows::default());
        Self { rank, ranks, group, exchange, remembered, rows }
    }

    /// Its place among the devices, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many devices there are.
    pub fn ranks(&self) -> usize {
        self.ranks
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
        self.group.meet(name, (self.rank, ranks), value, add).expect("of one or more devices")
    }

    /// What all devices bring, in their order; of `None`, who is alone, what it brings itself.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn gather<T: Clone + Send + 'static>(of: Option<&Self>, name: &str, value: T) -> Vec<T> {
        match of {
            Some(member) => {
                member.group.meet(name, (member.rank, member.ranks), value, |values| values)
            }
            None => vec![value],
        }
    }

    /// Leaves `value` for the device that [takes](Member::take) it under `name`, and goes on.
    pub(super) fn post<T: Send + 'static>(&self, name: String, value: T) {
        self.group.post(name, value);
    }

    /// Waits for what another device has left under `name`.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub(super) fn take<T: Send + 'static>(&self, name: &str) -> T {
        self.group.take(name)
    }

    /// The sums over all devices of the tensors of each name. A device that has no tensor of a name adds
    /// nothing to its sum, and gets it all the same.
    ///
    /// Unwinds with [`Abandoned`](super::Abandoned) when one of them has failed.
    pub fn sum_all<K: Ord + Clone + Send + 'static>(
        &self,
        values: BTreeMap<K, Tensor<1>>,
    ) -> BTreeMap<K, Tensor<1>> {
        if let Some(exchange) = &self.exchange {
            return self.sum_all_by(exchange, values);
        }
        let add = |all: Vec<BTreeMap<K, Tensor<1>>>| {
            let mut sums = BTreeMap::<K, Tensor<1>>::new();
            for (name, value) in all.into_iter().flatten() {
                let sum = match sums.remove(&name) {
                    Some(sum) => sum + value,
                    None => value,
                };
                sums.insert(name, sum);
            }
            sums
        };
        self.group.meet("sums", (self.rank, self.ranks), values, add)
    }

    /// [`Member::sum_all`] of cards. What a device lacks counts as zeros.
    fn sum_all_by<K: Ord + Clone + Send + 'static>(
        &self,
        exchange: &Exchange,
        mut values: BTreeMap<K, Tensor<1>>,
    ) -> BTreeMap<K, Tensor<1>> {
        // A card that has failed may not keep the others waiting for what it cannot launch.
        let allocated = check_allocated(values.values().cloned());
        allocated.unwrap_or_else(|out_of_memory| out_of_memory.throw());
        let of = |(name, value): (&K, &Tensor<1>)| (name.clone(), (value.dims()[0], value.dtype()));
        let known: BTreeMap<K, (usize, DType)> = values.iter().map(of).collect();
        let merge = |all: Vec<BTreeMap<K, (usize, DType)>>| -> BTreeMap<_, _> {
            all.into_iter().flatten().collect()
        };
        let known = self.group.meet("names", (self.rank, self.ranks), known, merge);
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

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<String, Vec<Tensor<1>>>> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
