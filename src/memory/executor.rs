//! Runs any schedule over a chain.

use std::collections::BTreeMap;

use super::schedule::{Operation, Schedule};
use super::stage::Statistics;
use super::{Activation, Chain, Gradients, Pass, Purpose, Saved};

/// What a training step's schedule gives before any weight is changed.
#[derive(Debug, Default)]
pub struct StepResult {
    /// The gradient of the sum of the losses, by parameter.
    pub gradients: Gradients,
    /// The statistics of the batch, by running statistic.
    pub statistics: Statistics,
}

/// Runs the training `schedule` of step `step`: `input` gives each micro-batch, `loss` takes the
/// outputs of one and returns the gradient with respect to them.
///
/// # Panics
///
/// When the schedule asks for what is not there: schedules are made by policies, whose tests hold
/// them valid.
pub fn train(
    chain: &Chain,
    schedule: &Schedule,
    seed: u64,
    step: u64,
    mut input: impl FnMut(usize) -> Activation,
    mut loss: impl FnMut(usize, Activation) -> Activation,
) -> StepResult {
    let mut result = StepResult::default();
    let mut flowing: BTreeMap<usize, Activation> = BTreeMap::new();
    let mut saved: BTreeMap<(usize, usize), Saved> = BTreeMap::new();
    for operation in &schedule.operations {
        match *operation {
            Operation::Forward { stage, micro, keep } => {
                let given = match stage {
                    0 => input(micro),
                    _ => flowing.remove(&micro).expect("the stage before has run"),
                };
                let pass = Pass::new(Purpose::First, seed, step, micro as u64);
                let (output, kept) =
                    chain.stages()[stage].forward(given, keep, &pass, &mut result.statistics);
                flowing.insert(micro, output);
                saved.extend(kept.map(|kept| ((stage, micro), kept)));
            }
            Operation::Loss { micro } => {
                let outputs = flowing.remove(&micro).expect("the last stage has run");
                flowing.insert(micro, loss(micro, outputs));
            }
            Operation::Backward { stage, micro } => {
                let gradient = flowing.remove(&micro).expect("the loss or the stage after has run");
                let kept = saved.remove(&(stage, micro)).expect("the stage has kept its inputs");
                let stage = &chain.stages()[stage];
                let gradient = stage.backward(kept, gradient, &mut result.gradients);
                flowing.insert(micro, gradient);
            }
        }
    }
    result
}

/// The outputs of the chain for `input`, with running statistics and without dropout.
pub fn evaluate(chain: &Chain, input: Activation) -> Activation {
    let pass = Pass::evaluation();
    let mut flowing = input;
    for operation in Schedule::evaluation(chain.stages().len()).operations {
        if let Operation::Forward { stage, keep, .. } = operation {
            let stage = &chain.stages()[stage];
            (flowing, _) = stage.forward(flowing, keep, &pass, &mut Statistics::new());
        }
    }
    flowing
}
