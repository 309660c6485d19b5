//! What is kept of the weights beside them, for a saved state: the optimizer's state and the average. Where several
//! devices have shards of it, these are put together, so that a state does not depend on the devices.

use std::collections::{BTreeMap, BTreeSet};

use burn::tensor::{DType, TensorData};

use super::snapshot::GatherError;
use super::trainer::{Rank, Trainer};
use super::{Run, RunError};
use crate::memory::Bucket;
use crate::optim::{Ema, OptimError, OptimizerState};
use crate::parallel::processes::{Elsewhere, pack, unpack};

/// What is kept of the weights on a device.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Kept {
    /// The optimizer's state.
    pub optimizer: OptimizerState,
    /// The average of the weights; empty where there is none.
    pub averages: Tensors,
}

type Tensors = Vec<(String, TensorData)>;

impl Trainer {
    /// What is kept of the weights on each of the devices that have one copy of the model. Of several processes that
    /// have shards of it all must ask, and only the first is told.
    ///
    /// # Errors
    /// When a device or another process has failed.
    pub(super) fn kept(&self) -> Result<Option<Vec<Kept>>, RunError> {
        let is_whole = |rank: &Rank| rank.updater.shard.is_whole();
        if is_whole(self.first()) {
            let own = self.copy().iter().map(Kept::of);
            return Ok(Some(own.collect::<Result<_, _>>().map_err(RunError::Unsaved)?));
        }
        let shards: Vec<Vec<Kept>> = match &self.processes {
            None => {
                let of_place = |place: usize| -> Result<Vec<Kept>, GatherError> {
                    self.ranks.iter().skip(place).step_by(self.depth).map(Kept::of).collect()
                };
                let all = (0..self.depth).map(of_place).collect::<Result<_, _>>();
                all.map_err(RunError::Unsaved)?
            }
            Some(processes) => {
                let own = Kept::of(self.first()).map_err(RunError::Unsaved)?.to_bytes();
                let Some(all) = processes.collect("what is kept", own)? else { return Ok(None) };
                let of_rank = |(rank, bytes): (usize, &Vec<u8>)| {
                    Kept::from_bytes(bytes).ok_or_else(|| {
                        let message =
                            format!("what rank {rank} has sent to be saved cannot be read");
                        Elsewhere { rank, message, code: 1, lost: true }
                    })
                };
                vec![all.iter().enumerate().map(of_rank).collect::<Result<_, _>>()?]
            }
        };
        let whole = shards
            .into_iter()
            .zip(self.copy())
            .map(|(shards, rank)| Kept::of_shards(shards, &rank.replica.inference.chain.buckets()));
        Ok(Some(whole.collect()))
    }
}

impl Run {
    /// Whether a state is to be saved now that is `due` by the clock or the steps of this process. Processes that have
    /// shards of it all save when the first does.
    ///
    /// # Errors
    /// When a process has failed.
    pub(super) fn all_save(&self, due: bool) -> Result<bool, RunError> {
        let by_clock = self.plan.run.save.every_minutes > 0.0;
        match &self.trainer.processes {
            Some(processes) if by_clock && self.plan.optimizer_shards() > 1 => {
                let word = processes.is_first().then(|| vec![u8::from(due)]);
                Ok(processes.share("whether to save", word)? == [1])
            }
            _ => Ok(due),
        }
    }
}

impl Kept {
    /// That of a device.
    fn of(rank: &Rank) -> Result<Self, GatherError> {
        let read = || -> Result<Self, OptimError> {
            let averages = rank.updater.ema.as_ref().map(Ema::state).transpose()?;
            let optimizer = rank.updater.optimizer.state()?;
            Ok(Self { optimizer, averages: averages.unwrap_or_default() })
        };
        Ok(read()?)
    }

    /// `shards` of what is kept of `buckets`, in the order of the devices, put together.
    fn of_shards(shards: Vec<Self>, buckets: &[Bucket]) -> Self {
        let keys: BTreeSet<&str> = buckets.iter().map(Bucket::key).collect();
        let (mut tensors, mut averages, mut scalars) = (Vec::new(), Vec::new(), BTreeMap::new());
        for Self { optimizer, averages: more } in shards {
            tensors.extend(optimizer.tensors);
            averages.extend(more);
            scalars.extend(optimizer.scalars);
        }
        let optimizer = OptimizerState { tensors: joined(tensors, &keys), scalars };
        Self { optimizer, averages: joined(averages, &keys) }
    }

    fn to_bytes(&self) -> Vec<u8> {
        let Self { optimizer: OptimizerState { tensors, scalars }, averages } = self;
        let headed = |is_average: bool, (name, data): &'_ (String, TensorData)| {
            serde_json::to_string(&(is_average, name, data.dtype())).unwrap_or_default()
        };
        let scalars = serde_json::to_vec(scalars).unwrap_or_default();
        let all = tensors.iter().map(|tensor| (false, tensor));
        let all = all.chain(averages.iter().map(|tensor| (true, tensor)));
        let all: Vec<(String, &[u8])> =
            all.map(|(is, tensor)| (headed(is, tensor), tensor.1.as_bytes())).collect();
        let all = all.iter().map(|(head, bytes)| (head.as_str(), *bytes));
        pack([("", scalars.as_slice())].into_iter().chain(all))
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut parts = unpack(bytes)?.into_iter();
        let (_, scalars) = parts.next()?;
        let mut kept = Self::default();
        kept.optimizer.scalars = serde_json::from_slice(&scalars).ok()?;
        for (head, bytes) in parts {
            let (is_average, name, dtype): (bool, String, DType) =
                serde_json::from_str(&head).ok()?;
            let length = bytes.len() / dtype.size();
            if length * dtype.size() != bytes.len() {
                return None;
            }
            let data = TensorData::from_bytes_vec(bytes, [length], dtype);
            match is_average {
                true => kept.averages.push((name, data)),
                false => kept.optimizer.tensors.push((name, data)),
            }
        }
        Some(kept)
    }
}

/// Those of `tensors` that belong to `keys`, and have one name, one behind another. Of the others, which all devices
/// have, the first.
fn joined(tensors: Tensors, keys: &BTreeSet<&str>) -> Tensors {
    let mut by_name: BTreeMap<String, Vec<TensorData>> = BTreeMap::new();
    for (name, data) in tensors {
        by_name.entry(name).or_default().push(data);
    }
    let join = |(name, mut parts): (String, Vec<TensorData>)| {
        let key = name.split('/').next().unwrap_or_default();
        if !keys.contains(key) {
            parts.truncate(1);
        }
        let numbers = parts[0].dtype();
        let length: usize = parts.iter().map(TensorData::num_elements).sum();
        let bytes = parts.iter().map(|part| part.as_bytes()).collect::<Vec<_>>().concat();
        (name, TensorData::from_bytes_vec(bytes, [length], numbers))
    };
    by_name.into_iter().map(join).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor};

    use super::*;
    use crate::memory::BucketMember;

    fn data(values: &[f32]) -> TensorData {
        TensorData::new(values.to_vec(), [values.len()])
    }

    fn kept(tensors: &[(&str, &[f32])], averages: &[(&str, &[f32])]) -> Kept {
        let named = |all: &[(&str, &[f32])]| -> Tensors {
            all.iter().map(|(name, values)| ((*name).to_owned(), data(values))).collect()
        };
        let step = |name: &str| (format!("{}/step", name.split('/').next().unwrap_or_default()), 3);
        let scalars = tensors.iter().map(|(name, _)| step(name)).collect();
        Kept {
            optimizer: OptimizerState { tensors: named(tensors), scalars },
            averages: named(averages),
        }
    }

    #[test]
    fn what_a_process_sends_to_be_saved_comes_as_it_was() {
        let sent =
            kept(&[("a/exp_avg", &[1.0, -0.0]), ("b/exp_avg", &[f32::MAX])], &[("a", &[2.0])]);
        let bytes = sent.to_bytes();
        assert_eq!(Kept::from_bytes(&bytes), Some(sent));
        assert_eq!(Kept::from_bytes(&bytes[..bytes.len() - 1]), None);
        assert_eq!(Kept::from_bytes(&[]), None);
    }

    #[test]
    fn shards_are_put_together_and_what_all_devices_have_is_taken_once() {
        let member = BucketMember { name: "a".to_owned(), shape: vec![3] };
        let value = Tensor::zeros([3], &Device::flex());
        let buckets = [Bucket { members: [member].into(), trained: true, value }];
        let loss: (&str, &[f32]) = ("loss.head.centres/exp_avg", &[7.0, 8.0]);
        let shards = vec![
            kept(&[("a/exp_avg", &[1.0]), loss], &[("a", &[4.0])]),
            // A device without a number of it.
            kept(&[loss], &[]),
            kept(&[("a/exp_avg", &[2.0, 3.0]), loss], &[("a", &[5.0, 6.0])]),
        ];
        let whole = kept(&[("a/exp_avg", &[1.0, 2.0, 3.0]), loss], &[("a", &[4.0, 5.0, 6.0])]);
        assert_eq!(Kept::of_shards(shards, &buckets), whole);
    }
}
