//! Runs any schedule over a chain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::measure;
use super::offload::{OffloadError, OffloadTensor, OffloadTicket, Store};
use super::schedule::{Action, Aside, Operation, Schedule};
use super::stage::Statistics;
use super::{Activation, Chain, Gradients, Keep, Pass, Purpose, Saved, UnderWay, fault};
use crate::parallel::course::{self, Doing};
use crate::parallel::{Flow, Link, Member, Part};

/// What a training step's schedule gives before any weight is changed.
#[derive(Debug, Default)]
pub struct StepResult {
    /// The gradient of the sum of the losses, by parameter.
    pub gradients: Gradients,
    /// The statistics of each micro-batch, by running statistic.
    pub statistics: Vec<Statistics>,
}

/// What the randomness of a training step follows from.
#[derive(Debug, Clone, Copy)]
pub struct StepKey<'a> {
    /// Of the run.
    pub seed: u64,
    /// The number of the step, from 0.
    pub step: u64,
    /// For each micro-batch its images, by their places in the global batch. Dropout masks go by an
    /// image's place, so they do not depend on how the batch is split.
    pub parts: &'a [Part],
    /// This device's place among those over whose images norms are taken; none where norms are taken over
    /// its own.
    pub synced: Option<&'a Arc<Member>>,
    /// This device's place among those that share the batch, to which the gradients of a stage [are given](Member::give) as
    /// soon as they are there; none where nobody adds them up, or only afterwards.
    pub row: Option<&'a Member>,
}

impl<'a> StepKey<'a> {
    /// That of a device that computes by itself.
    pub fn alone(seed: u64, step: u64, parts: &'a [Part]) -> Self {
        Self { seed, step, parts, synced: None, row: None }
    }

    /// Images of a micro-batch, where there is one of this number.
    pub fn images(&self, micro: usize) -> Option<usize> {
        self.parts.get(micro).map(|part| part.images.len())
    }

    /// The pass of a micro-batch.
    pub fn pass(&self, purpose: Purpose, micro: usize) -> Pass {
        let part = &self.parts[micro];
        let pass = Pass::new(purpose, self.seed, self.step, part.images.start as u64);
        match self.synced {
            Some(member) => pass.synced(member, part),
            None => pass,
        }
    }
}

/// What is where between two operations.
#[derive(Default)]
struct Places {
    /// The value on its way forward, by micro-batch.
    forward: BTreeMap<usize, Activation>,
    /// The gradient on its way back, by micro-batch.
    back: BTreeMap<usize, Activation>,
    /// Inputs put aside, by micro-batch and stage.
    inputs: BTreeMap<(usize, usize), Activation>,
    /// What stages keep, by micro-batch and stage.
    saved: BTreeMap<(usize, usize), Saved>,
    /// What has been moved off the device, by micro-batch and stage.
    away: BTreeMap<(usize, usize, Aside), OffloadTicket>,
}

/// Runs a training `schedule`. `store` takes what the schedule moves off the device, `input` gives each
/// micro-batch, and `loss` takes the outputs of one and returns the gradient with respect to them.
///
/// # Errors
///
/// When something could not be moved off the device or back.
///
/// # Panics
///
/// When the schedule asks for what is not there: [`Schedule::of_plan`] makes none that does.
pub fn train(
    store: &Store,
    chain: &Chain,
    schedule: &Schedule,
    key: StepKey<'_>,
    input: impl FnMut(usize) -> Activation,
    loss: impl FnMut(usize, Activation) -> Activation,
) -> Result<StepResult, OffloadError> {
    train_part(store, chain, None, schedule, key, input, loss)
}

/// [`train`] for a chain that is a part of a pipeline, which other devices are reached from by `link`: only
/// that of the first is asked for `input`, and only that of the last for a `loss`.
///
/// Unwinds with [`Abandoned`](crate::parallel::Abandoned) when another device has failed.
///
/// # Errors
///
/// As there.
///
/// # Panics
///
/// As there.
pub fn train_part(
    store: &Store,
    chain: &Chain,
    link: Option<Link<'_>>,
    schedule: &Schedule,
    key: StepKey<'_>,
    mut input: impl FnMut(usize) -> Activation,
    mut loss: impl FnMut(usize, Activation) -> Activation,
) -> Result<StepResult, OffloadError> {
    const LINKED: &str = "the schedule of a pipeline is run with a link";
    let mut result = StepResult::default();
    let mut places = Places::default();
    let row = key.row.filter(|row| key.parts.first().is_some_and(|part| part.ranks == row.ranks()));
    let last_backward = schedule.last_backward();
    let (repeated, under_way) = (schedule.repeated(), UnderWay::default());
    for (number, operation) in schedule.operations.iter().enumerate() {
        fault::check();
        under_way.at(repeated[number]);
        begin(chain, operation);
        let begun = Instant::now();
        let Operation { stage, micro, action } = *operation;
        let runs = &chain.stages()[stage];
        match action {
            Action::Forward(keep) => {
                let given = places.value(stage, micro, &mut input);
                let pass = match stage < schedule.frozen {
                    true => Pass::evaluation(),
                    false => key.pass(Purpose::First, micro),
                };
                let mut found = Statistics::new();
                let (output, kept) = runs.forward(given, keep, &pass, &mut found);
                if result.statistics.len() <= micro {
                    result.statistics.resize_with(micro + 1, Statistics::new);
                }
                result.statistics[micro].extend(found);
                places.after(stage, micro, output, kept);
            }
            Action::Recompute(keep) => {
                let given = places.value(stage, micro, &mut input);
                let pass = key.pass(Purpose::Recompute, micro);
                let (output, kept) = runs.forward(given, keep, &pass, &mut Statistics::new());
                // What the last of the stages computed again gives is known to have been used.
                places.after(stage, micro, output, kept);
            }
            Action::Checkpoint => {
                let given = places.value(stage, micro, &mut input);
                places.inputs.insert((micro, stage), runs.checkpoint(&given));
                places.forward.insert(micro, given);
            }
            Action::Restore => {
                let input = places.inputs.remove(&(micro, stage));
                let mut input = input.expect("the input is put aside");
                if let Some(ticket) = places.away.remove(&(micro, stage, Aside::Input)) {
                    store.restore(ticket, input.offload_tensors())?;
                }
                places.forward.insert(micro, input);
            }
            Action::Offload(what) => {
                let ticket = store.send(places.offload_tensors(chain, stage, micro, what))?;
                places.away.insert((micro, stage, what), ticket);
            }
            Action::Prefetch(what) => {
                let ticket = places.away.get_mut(&(micro, stage, what));
                store.fetch(ticket.expect("it was moved away"))?;
            }
            Action::Loss => {
                let outputs = places.forward.remove(&micro).expect("the last stage has run");
                places.back.insert(micro, loss(micro, outputs));
            }
            Action::Backward => {
                // Of stages computed again nothing but what they keep is needed.
                places.forward.remove(&micro);
                let gradient = places.back.remove(&micro).expect("a gradient has come this far");
                let mut kept = places.saved.remove(&(micro, stage)).expect("the stage has kept");
                if let Some(ticket) = places.away.remove(&(micro, stage, Aside::Saved)) {
                    store.restore(ticket, runs.offload_tensors(&mut kept))?;
                }
                let gradient = runs.backward(kept, gradient, &mut result.gradients);
                // What is frozen has no use for it.
                let gradient = gradient.filter(|_| stage > schedule.frozen || schedule.returns);
                places.back.extend(gradient.map(|gradient| (micro, gradient)));
                // Behind the last stage of all nothing is computed meanwhile.
                if let Some(row) = row.filter(|_| last_backward[stage] == Some(number))
                    && last_backward.iter().flatten().any(|last| *last > number)
                {
                    row.give(runs.as_ref(), &result.gradients);
                }
            }
            Action::Send(flow) => {
                let sent = places.flowing(flow).remove(&micro).expect("it has come this far");
                link.expect(LINKED).send(flow, micro, sent);
            }
            Action::Receive(flow) => {
                let received = link.expect(LINKED).receive(flow, micro, key.images(micro + 1));
                places.flowing(flow).insert(micro, received);
            }
        }
        if let Some(doing) = doing(action) {
            course::note(begun, doing, || (Some(runs.name().to_owned()), Some(micro)));
        }
        measure::end();
    }
    Ok(result)
}

/// What the course of a step has of an operation. Receiving is noted where it waits.
fn doing(action: Action) -> Option<Doing> {
    match action {
        Action::Forward(_) => Some(Doing::Forward),
        Action::Recompute(_) => Some(Doing::Recomputation),
        Action::Backward => Some(Doing::Backward),
        Action::Loss => Some(Doing::Loss),
        Action::Send(_) => Some(Doing::Send),
        _ => None,
    }
}

/// Notes the memory before a stage's work, where somebody asks.
fn begin(chain: &Chain, operation: &Operation) {
    let name = || chain.stages()[operation.stage].name().to_owned();
    match operation.action {
        Action::Forward(_) => measure::begin("forward", name),
        Action::Recompute(_) => measure::begin("recomputation", name),
        Action::Backward => measure::begin("backward", name),
        Action::Loss => measure::begin("computation", || "loss".to_owned()),
        _ => {}
    }
}

impl Places {
    /// What is on its way in this direction.
    fn flowing(&mut self, flow: Flow) -> &mut BTreeMap<usize, Activation> {
        match flow {
            Flow::Value => &mut self.forward,
            Flow::Gradient => &mut self.back,
        }
    }

    /// What of what is put aside for a stage can be moved.
    fn offload_tensors(
        &mut self,
        chain: &Chain,
        stage: usize,
        micro: usize,
        what: Aside,
    ) -> Vec<OffloadTensor<'_>> {
        match what {
            Aside::Input => {
                let input = self.inputs.get_mut(&(micro, stage));
                input.expect("the input is put aside").offload_tensors()
            }
            Aside::Saved => {
                let kept = self.saved.get_mut(&(micro, stage)).expect("the stage has kept");
                chain.stages()[stage].offload_tensors(kept)
            }
        }
    }

    /// Takes the value that `stage` runs on.
    fn value(
        &mut self,
        stage: usize,
        micro: usize,
        input: &mut impl FnMut(usize) -> Activation,
    ) -> Activation {
        match self.forward.remove(&micro) {
            Some(value) => value,
            None if stage == 0 => input(micro),
            None => panic!("nothing is on its way to stage {stage}"),
        }
    }

    fn after(&mut self, stage: usize, micro: usize, output: Activation, kept: Option<Saved>) {
        self.forward.insert(micro, output);
        self.saved.extend(kept.map(|kept| ((micro, stage), kept)));
    }
}

/// The outputs of the chain for `input`, with running statistics and without dropout.
pub fn evaluate(chain: &Chain, input: Activation) -> Activation {
    let pass = Pass::evaluation();
    chain.stages().iter().fold(input, |flowing, stage| {
        fault::check();
        stage.forward(flowing, Keep::Nothing, &pass, &mut Statistics::new()).0
    })
}
