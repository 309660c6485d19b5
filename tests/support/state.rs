//! The numbers that a training has come to.

use std::collections::BTreeMap;

use trainer::run::Rank;

/// Numbers by name.
pub type Values = BTreeMap<String, Vec<f32>>;

/// Weights, running statistics, averages and the optimizer's state on a device.
pub fn on_device(rank: &Rank) -> Values {
    let parameters = rank.replica.inference.chain.parameters().into_iter();
    let weights = parameters.map(|p| (p.name, p.value.into_data()));
    let kept = rank.updater.optimizer.state().expect("is read").tensors.into_iter();
    let kept = kept.map(|(name, data)| (format!("optimizer/{name}"), data));
    let average = rank.updater.ema.as_ref().map(|ema| ema.state().expect("is read"));
    let average = average.into_iter().flatten();
    let average = average.map(|(name, data)| (format!("average/{name}"), data));
    let all = weights.chain(kept).chain(average);
    all.map(|(name, data)| (name, data.iter().collect())).collect()
}

/// The same numbers, bit by bit.
pub fn bits(values: &Values) -> BTreeMap<&str, Vec<u32>> {
    let of = |values: &Vec<f32>| values.iter().map(|value| value.to_bits()).collect();
    values.iter().map(|(name, values)| (name.as_str(), of(values))).collect()
}
