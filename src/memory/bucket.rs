//! Parameters that lie one after another in one tensor.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};

/// A parameter or running statistic in a [`Bucket`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketMember {
    /// Its name, unique in the model, as torchvision names it.
    pub name: String,
    /// Its shape, as PyTorch has it.
    pub shape: Vec<usize>,
}

impl BucketMember {
    /// How many numbers it has.
    pub fn length(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Parameters or running statistics of one stage that lie one after another in one tensor, so that
/// what acts on all of them alike (a step, an average, a norm) is one operation and not hundreds.
///
/// All of them are trained or none is, and weight decay acts on all of them or on none.
#[derive(Debug, Clone)]
pub struct Bucket {
    /// What it holds, in order; never empty.
    pub members: Arc<[BucketMember]>,
    /// Whether the optimizer changes it.
    pub trained: bool,
    /// All values, `[n]`, without autodiff.
    pub value: Tensor<1>,
}

impl Bucket {
    /// What its gradient, its statistics and the optimizer's state of it go by: the name of its first
    /// member.
    pub fn key(&self) -> &str {
        &self.members[0].name
    }

    /// The rank of its members.
    pub fn rank(&self) -> usize {
        self.members[0].shape.len()
    }

    /// Each member's name, shape and place.
    pub fn places(&self) -> impl Iterator<Item = (&BucketMember, Range<usize>)> {
        places(&self.members)
    }
}

/// Each of `members` and its place in their bucket.
fn places(members: &[BucketMember]) -> impl Iterator<Item = (&BucketMember, Range<usize>)> {
    members.iter().scan(0, |start, member| {
        let range = *start..*start + member.length();
        *start = range.end;
        Some((member, range))
    })
}

/// What is kept of each bucket (`<key>` or `<key>/<what>`) as what is kept of each parameter, under
/// the parameters' names: saved states know nothing of buckets. `buckets` are the members of each.
pub fn split_tensors(
    buckets: &[Arc<[BucketMember]>],
    tensors: Vec<(String, TensorData)>,
) -> Vec<(String, TensorData)> {
    let by_key = by_key(buckets);
    let split = |(name, data): (String, TensorData)| {
        let (key, rest) = split_name(&name);
        match by_key.get(key) {
            Some(members) if members.len() > 1 => {
                let values = in_f32(&data);
                let part = |(member, range): (&BucketMember, Range<usize>)| {
                    let length = range.len();
                    let part = TensorData::new(values[range].to_vec(), [length]);
                    (format!("{}{rest}", member.name), part)
                };
                places(members).map(part).collect()
            }
            _ => vec![(name, data)],
        }
    };
    tensors.into_iter().flat_map(split).collect()
}

/// The reverse of [`split_tensors`]. What is incomplete stays as it is, for the one who loads it to
/// refuse.
pub fn join_tensors(
    buckets: &[Bucket],
    tensors: Vec<(String, TensorData)>,
) -> Vec<(String, TensorData)> {
    let mut tensors: BTreeMap<String, TensorData> = tensors.into_iter().collect();
    for bucket in buckets.iter().filter(|bucket| bucket.members.len() > 1) {
        for rest in suffixes(bucket, tensors.keys()) {
            let names: Vec<String> =
                bucket.members.iter().map(|member| format!("{}{rest}", member.name)).collect();
            let fits = |(name, member): (&String, &BucketMember)| {
                tensors.get(name).is_some_and(|data| data.num_elements() == member.length())
            };
            if names.iter().zip(bucket.members.iter()).all(fits) {
                let parts = names.iter().filter_map(|name| tensors.remove(name));
                let values: Vec<f32> = parts.flat_map(|data| in_f32(&data)).collect();
                let length = values.len();
                tensors
                    .insert(format!("{}{rest}", bucket.key()), TensorData::new(values, [length]));
            }
        }
    }
    tensors.into_iter().collect()
}

/// The numbers of `data` in 32 bits.
pub fn in_f32(data: &TensorData) -> Vec<f32> {
    // Its iterator is called for each number, which takes ten times as long as a copy.
    data.as_slice().map_or_else(|_| data.iter().collect(), <[f32]>::to_vec)
}

/// [`split_tensors`] for numbers: each parameter of a bucket has the bucket's.
pub fn split_scalars(
    buckets: &[Arc<[BucketMember]>],
    scalars: BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    let by_key = by_key(buckets);
    let split = |(name, value): (String, u64)| {
        let (key, rest) = split_name(&name);
        match by_key.get(key) {
            Some(members) => {
                let named = |member: &BucketMember| (format!("{}{rest}", member.name), value);
                members.iter().map(named).collect()
            }
            None => vec![(name, value)],
        }
    };
    scalars.into_iter().flat_map(split).collect()
}

/// The reverse of [`split_scalars`], where the numbers of a bucket's parameters are all there and
/// equal.
pub fn join_scalars(
    buckets: &[Bucket],
    mut scalars: BTreeMap<String, u64>,
) -> BTreeMap<String, u64> {
    for bucket in buckets.iter().filter(|bucket| bucket.members.len() > 1) {
        for rest in suffixes(bucket, scalars.keys()) {
            let names: Vec<String> =
                bucket.members.iter().map(|member| format!("{}{rest}", member.name)).collect();
            let first = scalars.get(&names[0]).copied();
            if first.is_some() && names.iter().all(|name| scalars.get(name).copied() == first) {
                names[1..].iter().for_each(|name| {
                    scalars.remove(name);
                });
            }
        }
    }
    scalars
}

fn by_key(buckets: &[Arc<[BucketMember]>]) -> BTreeMap<&str, &[BucketMember]> {
    buckets.iter().map(|members| (members[0].name.as_str(), &members[..])).collect()
}

/// `key` and `/what`; the latter empty where there is no slash.
fn split_name(name: &str) -> (&str, &str) {
    name.split_at(name.find('/').unwrap_or(name.len()))
}

/// What is kept of a bucket's first member.
fn suffixes<'a>(bucket: &Bucket, names: impl Iterator<Item = &'a String>) -> Vec<String> {
    let of_key = names.filter_map(|name| name.strip_prefix(bucket.key()));
    of_key.filter(|rest| rest.is_empty() || rest.starts_with('/')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn buckets() -> Vec<Bucket> {
        let bucket = |names: &[(&str, &[usize])]| {
            let members: Vec<BucketMember> = names
                .iter()
                .map(|(name, shape)| BucketMember {
                    name: (*name).to_owned(),
                    shape: shape.to_vec(),
                })
                .collect();
            let length: usize = members.iter().map(BucketMember::length).sum();
            let value = Tensor::zeros([length], &Device::flex());
            Bucket { members: members.into(), trained: true, value }
        };
        vec![bucket(&[("a", &[2, 1]), ("b", &[1, 3])]), bucket(&[("c", &[2])])]
    }

    fn members() -> Vec<Arc<[BucketMember]>> {
        buckets().into_iter().map(|bucket| bucket.members).collect()
    }

    fn data(values: &[f32]) -> TensorData {
        TensorData::new(values.to_vec(), [values.len()])
    }

    #[test]
    fn what_is_kept_of_a_pack_is_kept_by_parameter_and_comes_back() {
        let kept = vec![
            ("a/exp_avg".to_owned(), data(&[1.0, 2.0, 3.0, 4.0, 5.0])),
            ("c/exp_avg".to_owned(), data(&[6.0, 7.0])),
        ];
        let split = split_tensors(&members(), kept.clone());
        let expected = [
            ("a/exp_avg".to_owned(), data(&[1.0, 2.0])),
            ("b/exp_avg".to_owned(), data(&[3.0, 4.0, 5.0])),
            ("c/exp_avg".to_owned(), data(&[6.0, 7.0])),
        ];
        assert_eq!(split, expected);
        assert_eq!(join_tensors(&buckets(), split), kept);
        let steps = BTreeMap::from([("a/step".to_owned(), 3), ("c/step".to_owned(), 4)]);
        let split = split_scalars(&members(), steps.clone());
        assert_eq!(split.len(), 3);
        assert_eq!(join_scalars(&buckets(), split), steps);
    }

    #[test]
    fn what_is_incomplete_is_left_to_be_refused() {
        let kept = vec![("a/exp_avg".to_owned(), data(&[1.0, 2.0]))];
        assert_eq!(join_tensors(&buckets(), kept.clone()), kept);
        let steps = BTreeMap::from([("a/step".to_owned(), 3), ("b/step".to_owned(), 4)]);
        assert_eq!(join_scalars(&buckets(), steps.clone()), steps);
    }
}
