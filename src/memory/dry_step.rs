//! Whole steps on sizes alone: what they take, and when.
//!
//! A [`Footprint`] says how much a stage takes. Where a step's buffers come to lie follows from each of them,
//! so here the stages' own code runs, in the order of the executor.

use std::any::Any;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::schedule::{Action, Operation, Schedule};
use super::{BufferLifetime, DryAllocator, DryBuffer, Footprint, Keep, StepOperation};

/// What flows between stages on sizes alone; only stages of a kind know what it is.
pub type DryFlow = Rc<dyn Any>;

/// A stage on sizes alone.
pub trait DryStage {
    /// An input that comes from outside: `images` that were copied ahead, or some of a batch that stays on the
    /// device.
    fn input(&self, images: Option<DryBuffer>) -> DryFlow;

    /// Runs forward on `input`; gives the output and what it `keeps`. `trains` where it is not frozen, and
    /// `first` where it is not run again.
    fn forward(
        &self,
        input: DryFlow,
        keeps: Keep,
        trains: bool,
        first: bool,
    ) -> (DryFlow, Option<Box<dyn Any>>);

    /// `input` as it is put aside to run the stage on once more.
    fn checkpoint(&self, input: &DryFlow) -> DryFlow {
        Rc::clone(input)
    }

    /// The gradient of the input, and those of the parameters.
    fn backward(&self, kept: Box<dyn Any>, gradient: DryFlow) -> (Option<DryFlow>, Vec<DryBuffer>);

    /// Bytes of each of the tensors that its parameters lie in, which are there as long as it is.
    fn parameters(&self) -> Vec<u64>;

    /// The optimizer has changed its parameters.
    fn change(&self) {}
}

/// A stage of which only the footprint is known.
pub struct FootprintStage {
    /// What it costs.
    pub footprint: Footprint,
    /// Bytes of its input.
    pub input: u64,
    /// Its parameters.
    pub parameters: DryBuffer,
    /// Where it takes what it computes from.
    pub memory: DryAllocator,
}

impl DryStage for FootprintStage {
    fn input(&self, images: Option<DryBuffer>) -> DryFlow {
        Rc::new(images.unwrap_or_else(|| self.memory.take(self.input)))
    }

    fn forward(
        &self,
        input: DryFlow,
        keeps: Keep,
        _: bool,
        _: bool,
    ) -> (DryFlow, Option<Box<dyn Any>>) {
        let Footprint { output, saved, saves_input, saves_output, .. } = self.footprint;
        let output: DryFlow = Rc::new(self.memory.take(output));
        if keeps == Keep::Nothing {
            drop(self.memory.take(self.footprint.forward_workspace));
            return (output, None);
        }
        let own = self.memory.take(saved);
        drop(self.memory.take(self.footprint.saving_workspace));
        let kept = (own, saves_input.then_some(input), saves_output.then(|| Rc::clone(&output)));
        (output, Some(Box::new(kept)))
    }

    fn backward(&self, kept: Box<dyn Any>, gradient: DryFlow) -> (Option<DryFlow>, Vec<DryBuffer>) {
        let given: DryFlow = match self.footprint.gradient_in_gradient {
            true => Rc::clone(&gradient),
            false => Rc::new(self.memory.take(self.footprint.gradient)),
        };
        let parameters = self.memory.take(self.footprint.parameter_gradients);
        drop(self.memory.take(self.footprint.backward_workspace()));
        drop((kept, gradient));
        (Some(given), vec![parameters])
    }

    fn parameters(&self) -> Vec<u64> {
        vec![self.parameters.bytes()]
    }
}

/// Steps of a chain on sizes alone.
pub struct DrySteps<'a> {
    /// What counts their memory, one that [records](DryAllocator::recording).
    pub memory: DryAllocator,
    /// The stages, which take their memory from there; their parameters are there already.
    pub stages: Vec<Box<dyn DryStage>>,
    /// What is done in a step.
    pub schedule: &'a Schedule,
    /// How many numbers the optimizer keeps of each parameter.
    pub kept: usize,
    /// Bytes that are in use besides.
    pub others: u64,
    /// Bytes of the images that are copied ahead; none where a batch stays on the device.
    pub ahead: Option<u64>,
    /// Bytes of the losses' gradient, and of what is computed with for it.
    pub loss: [u64; 2],
}

/// What is on its way and put aside in a step.
#[derive(Default)]
struct Places {
    forward: BTreeMap<usize, DryFlow>,
    back: BTreeMap<usize, DryFlow>,
    inputs: BTreeMap<(usize, usize), DryFlow>,
    saved: BTreeMap<(usize, usize), Box<dyn Any>>,
    gradients: BTreeMap<usize, Vec<DryBuffer>>,
    /// The images of the next input.
    images: Option<DryBuffer>,
}

impl DrySteps<'_> {
    /// Every buffer of `steps` steps; `None` where the schedule moves something off the device.
    pub fn buffers(&self, steps: usize) -> Option<Vec<BufferLifetime>> {
        let _others = self.memory.take(self.others);
        let mut optimizer: Vec<DryBuffer> = Vec::new();
        let mut images = self.ahead.map(|bytes| self.memory.take(bytes));
        for step in 0..steps {
            let mut places = Places { images, ..Places::default() };
            for (number, operation) in self.schedule.operations.iter().enumerate() {
                self.memory.begin(StepOperation { step, operation: number });
                self.run(operation, &mut places)?;
            }
            let Places { gradients, images: next, .. } = places;
            images = next;
            // What it keeps is there from the first step on; new weights are written over the old ones.
            if step == 0 {
                let trained = &self.stages[self.schedule.frozen..];
                let all = trained.iter().flat_map(|stage| stage.parameters());
                let kept = all.flat_map(|bytes| std::iter::repeat_n(bytes, self.kept));
                optimizer.extend(kept.map(|bytes| self.memory.take(bytes)));
            }
            self.stages.iter().for_each(|stage| stage.change());
            drop(gradients);
        }
        drop((optimizer, images));
        Some(self.memory.buffers())
    }

    /// What `stage` takes from outside. The images after it are copied meanwhile.
    fn input(&self, stage: &dyn DryStage, images: &mut Option<DryBuffer>) -> DryFlow {
        let next = self.ahead.map(|bytes| self.memory.take(bytes));
        stage.input(std::mem::replace(images, next))
    }

    fn run(&self, operation: &Operation, places: &mut Places) -> Option<()> {
        let Operation { stage, micro, action } = *operation;
        let runs = self.stages[stage].as_ref();
        let Places { forward, images, .. } = places;
        match action {
            Action::Forward(keep) | Action::Recompute(keep) => {
                let first = matches!(action, Action::Forward(_));
                let trains = stage >= self.schedule.frozen;
                let input = forward.remove(&micro).unwrap_or_else(|| self.input(runs, images));
                let (output, kept) = runs.forward(input, keep, trains, first);
                places.forward.insert(micro, output);
                places.saved.extend(kept.map(|kept| ((micro, stage), kept)));
            }
            Action::Checkpoint => {
                let input = forward.entry(micro).or_insert_with(|| self.input(runs, images));
                places.inputs.insert((micro, stage), runs.checkpoint(input));
            }
            Action::Restore => {
                let input = places.inputs.remove(&(micro, stage))?;
                places.forward.insert(micro, input);
            }
            Action::Loss => {
                let outputs = places.forward.remove(&micro);
                let [gradient, workspace] = self.loss.map(|bytes| self.memory.take(bytes));
                drop((workspace, outputs));
                places.back.insert(micro, Rc::new(gradient));
            }
            Action::Backward => {
                places.forward.remove(&micro);
                let gradient = places.back.remove(&micro)?;
                let kept = places.saved.remove(&(micro, stage))?;
                let (given, parameters) = runs.backward(kept, gradient);
                // A second gradient is added to the first.
                places.gradients.entry(stage).or_insert(parameters);
                let given = given.filter(|_| stage > self.schedule.frozen);
                places.back.extend(given.map(|given| (micro, given)));
            }
            Action::Offload(_) | Action::Prefetch(_) | Action::Send(_) | Action::Receive(_) => {
                return None;
            }
        }
        Some(())
    }
}
