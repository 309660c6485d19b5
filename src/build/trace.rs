//! One training step of a plan, its memory recorded module by module.

use std::path::Path;

use burn::tensor::Device;

use super::{Bench, BuildError, device, meter};
use crate::contain::contained;
use crate::memory::measure::{Meter, record};
use crate::parallel::course::Course;
use crate::plan::{DevicePlan, Plan};
use crate::report::{DeviceCourse, StepFailure, StepTrace, TracedStep, write_page};
use crate::run::{Rank, RunError};
use crate::train::TrainError;

/// A traced step, and the error that ended it early.
pub type Traced = (StepTrace, Result<(), RunError>);

/// Traces steps, one strategy after another.
///
/// All strategies on a device share one meter. What a step leaves for the life of the process, such
/// as the packing buffers of the CPU's threads, thereby counts in every trace and not only in the
/// first.
#[derive(Debug, Default)]
pub struct Tracer {
    meters: Vec<(Device, Meter)>,
}

impl Tracer {
    /// Takes two steps of `plan` on one made-up batch and traces the second: kernels are ready by
    /// then and the optimizer has its state. Where memory does not suffice for the first, or it
    /// fails, that is the one traced. Of several devices the memory is that of the first, with its part of the
    /// batch; of a pipeline, that of the whole model on the first. What each of them does is traced in further
    /// steps, on all of them.
    /// `strategy` names the trace, `set` says what makes it.
    ///
    /// # Errors
    /// When the device cannot be opened.
    pub fn trace(
        &mut self,
        plan: &Plan,
        strategy: String,
        set: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Traced, BuildError> {
        let all = plan;
        let plan = plan.on_first_device();
        let device = device(&plan)?;
        if !self.meters.iter().any(|(known, _)| *known == device) {
            self.meters.push((device.clone(), meter(&device)));
        }
        let known = self.meters.iter().find(|(known, _)| *known == device);
        let meter = known.expect("was just seen or added").1.clone();
        let (mut traced, outcome) =
            trace(Bench::on(&plan, vec![device], meter)?, &plan, strategy, set)?;
        if all.devices.len() > 1 && outcome.is_ok() {
            traced.devices = courses(all)?;
        }
        Ok((traced, outcome))
    }
}

/// What each device of `plan` does in a step; none where no step can be taken.
fn courses(plan: &Plan) -> Result<Vec<DeviceCourse>, BuildError> {
    let mut bench = Bench::new(plan)?;
    for _ in 0..STEPS_BEFORE {
        if bench.step().is_err() {
            return Ok(Vec::new());
        }
    }
    bench.wait();
    bench.trainer.courses = Some(Vec::new());
    if bench.step().is_err() {
        return Ok(Vec::new());
    }
    let ranks = bench.trainer.ranks.iter().zip(&plan.devices);
    let courses = bench.trainer.courses.take().unwrap_or_default().into_iter();
    let of = |((rank, device), course): ((&Rank, &DevicePlan), Course)| {
        let stages = rank.replica.inference.chain.stages();
        let name = |place: usize| stages[place].name().to_owned();
        let stages = [name(0), name(stages.len() - 1)];
        DeviceCourse::new(device.to_string(), stages, course.spans)
    };
    Ok(ranks.zip(courses).map(of).collect())
}

/// Steps before the one whose course is traced: kernels are ready by then, and cards exchange without care.
const STEPS_BEFORE: usize = 3;

/// Seconds that a step may have taken in training for one to be traced after it.
const MOST_SECONDS: f64 = 20.0;

/// Traces a step of the run of `plan` in `folder`, which has ended and whose steps took `seconds`, and
/// writes it there for its page. One that takes long is not traced. `meter` is the run's: what the device keeps
/// from step to step counts in its peaks and in the trace alike.
///
/// # Errors
/// When no step can be taken, or the file not be written, in words.
pub fn trace_run(plan: &Plan, folder: &Path, seconds: f64, meter: &Meter) -> Result<(), String> {
    // One device with the whole model is none of a pipeline's.
    if seconds.is_nan() || seconds > MOST_SECONDS || plan.depth() > 1 {
        return Ok(());
    }
    // Memory is the same with any weights, and the file that training began with may be gone. The page shows the
    // first device's.
    let plan = Plan { init: None, ..plan.on_first_device() };
    // No picture is worth a run.
    let traced = contained(|| {
        let mut tracer = Tracer { meters: vec![(device(&plan)?, meter.clone())] };
        tracer.trace(&plan, plan.run.name.clone(), serde_json::Map::new())
    });
    let (trace, outcome) = traced?.map_err(|error| error.to_string())?;
    outcome.map_err(|error| error.to_string())?;
    let file = folder.join(TracedStep::FILE);
    write_page(&file, &trace.to_json().to_string())
        .map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn trace(
    mut bench: Bench,
    plan: &Plan,
    strategy: String,
    set: serde_json::Map<String, serde_json::Value>,
) -> Result<Traced, BuildError> {
    let mut at_once = bench.trainer.first().replica.strategy.micro_batch.min(plan.train.batch_size);
    let (mut outcome, mut timeline) = step(&mut bench);
    if outcome.is_ok() && bench.trainer.backoffs.is_empty() {
        (outcome, timeline) = step(&mut bench);
    }
    let backoff = bench.trainer.backoffs.last().map(|backoff| {
        at_once = backoff.to;
        let (from, to) = (bench.trainer.backoffs[0].from, backoff.to);
        let again = match from == to {
            true => "more computed again".to_owned(),
            false => to.to_string(),
        };
        let message = format!(
            "the device ran out of memory with {from} images at once; the step was begun again with {again}"
        );
        StepFailure { out_of_memory: true, message }
    });
    let failed = outcome.as_ref().err().map(|error| {
        let out_of_memory =
            matches!(error, RunError::Step { source: TrainError::OutOfMemory { .. }, .. });
        StepFailure { out_of_memory, message: error.to_string() }
    });
    let trained = bench
        .trainer
        .first()
        .replica
        .inference
        .chain
        .parameters()
        .into_iter()
        .filter(|p| p.trained);
    let parameters: usize = trained.map(|p| p.shape.iter().product::<usize>()).sum();
    let (stages, image) =
        (bench.trainer.first().replica.inference.chain.stages().len(), &plan.data.image);
    let trace = StepTrace {
        strategy,
        set,
        model: format!("{}, {parameters} parameters in {stages} stages", plan.run.name),
        images: [plan.train.batch_size, image.channels, image.size[0], image.size[1]],
        at_once,
        device: bench.device(),
        precision: plan.memory.precision.name().to_owned(),
        memory: bench.meter.read(),
        failure: failed.or(backoff),
        timeline,
        devices: Vec::new(),
    };
    Ok((trace, outcome))
}

fn step(bench: &mut Bench) -> (Result<(), RunError>, crate::memory::measure::Timeline) {
    let meter = bench.meter.clone();
    meter.reset_peak();
    meter.watch(|| record(&meter, || bench.step().map(drop)))
}
