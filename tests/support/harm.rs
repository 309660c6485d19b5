//! Steps that are harmed: memory is refused in the middle, or a number is none. On whatever device.

#[path = "state.rs"]
mod state;

use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorData};
use state::{bits, on_device};
use trainer::build::Bench;
use trainer::memory::fault::strike_after;
use trainer::plan::Plan;

/// Weights, running statistics, averages and the optimizer's state, its numbers of steps too.
pub fn state(bench: &Bench) -> BTreeMap<String, Vec<u32>> {
    let rank = &bench.trainer.ranks[0];
    let counts = rank.updater.optimizer.state().expect("is read").scalars.into_iter();
    let counts = counts.map(|(name, count)| (format!("optimizer/{name}"), vec![count as u32]));
    let values = on_device(rank);
    let values = bits(&values).into_iter().map(|(name, bits)| (name.to_owned(), bits));
    values.chain(counts).collect()
}

/// What a plan says, after one step.
pub fn started(plan: &Plan) -> Bench {
    let mut bench = Bench::new(plan).expect("opens");
    bench.step().expect("the first step");
    bench
}

/// Refuses memory at each operation of a step, or at `most` of them. The step is taken all the same, with more
/// computed again, and everything has the bits of one undisturbed. Returns how many were refused.
pub fn refuse_each(plan: &Plan, most: usize) -> usize {
    let mut undisturbed = started(plan);
    let armed = strike_after(usize::MAX);
    let loss = undisturbed.step().expect("a step").loss;
    let count = armed.asked();
    drop(armed);
    let (expected, mut tried) = (state(&undisturbed), 0);
    for operation in (0..count).step_by(count.div_ceil(most)) {
        let mut bench = started(plan);
        let before = bench.trainer.planner.estimate().peak;
        let armed = strike_after(operation);
        let taken = bench.step().expect("is tried again");
        assert!(armed.has_struck());
        drop(armed);
        let backoffs = &bench.trainer.backoffs;
        assert_eq!((backoffs.len(), backoffs[0].from), (1, backoffs[0].to), "not computed again");
        assert!(bench.trainer.planner.estimate().peak < before);
        assert_eq!(taken.loss.to_bits(), loss.to_bits(), "after {operation} operations");
        assert!(state(&bench) == expected, "after {operation} operations");
        tried += 1;
    }
    tried
}

/// Puts a NaN into each parameter, one after the other. The step ends with an error that names a head or a
/// parameter, and changes nothing. Returns how many there were.
pub fn break_each(plan: &Plan) -> usize {
    let mut bench = started(plan);
    let before = state(&bench);
    let chain = &bench.trainer.ranks[0].replica.inference.chain;
    let trained = chain.parameters().into_iter().filter(|parameter| parameter.trained);
    let names: Vec<String> = trained.map(|parameter| parameter.name).collect();
    for name in &names {
        let mut kept = None;
        let chain = &mut bench.trainer.ranks[0].replica.inference.chain;
        chain.map_parameters(|found, value| match found == name {
            true => {
                kept = Some(value.clone());
                with_nan(value)
            }
            false => value,
        });
        let told = bench.step().expect_err(name).to_string();
        assert!(told.contains("is not a finite number"), "{name}: {told}");
        assert!(
            told.contains(&format!("`{name}` is not finite before the step")),
            "{name}: {told}"
        );
        // What one head alone has is told of this head.
        let heads = plan.heads.iter().map(|head| &head.name);
        for head in heads.filter(|head| name.starts_with(&format!("classifier.{head}."))) {
            assert!(told.contains(&format!("of head `{head}`")), "{name}: {told}");
        }
        let mut kept = Some(kept.expect("is there"));
        let chain = &mut bench.trainer.ranks[0].replica.inference.chain;
        chain.map_parameters(|found, value| match found == name {
            true => kept.take().expect("once"),
            false => value,
        });
        assert!(state(&bench) == before, "{name}");
    }
    names.len()
}

fn with_nan(value: Tensor<1>) -> Tensor<1> {
    let (device, kind) = (value.device(), value.dtype());
    let mut values: Vec<f32> = value.into_data().iter().collect();
    let middle = values.len() / 2;
    values[middle] = f32::NAN;
    let length = values.len();
    Tensor::from_data(TensorData::new(values, [length]), (&device, kind))
}
