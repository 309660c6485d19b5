//! One epoch: training, evaluation, and what follows from the metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tally::Tally;
use super::undefined;
use super::validation::Validation;
use super::{Backoff, BegunEvaluation, BegunStep, Run, RunError, Signal};
use crate::data::{BadImage, Batch, SharedBatches, upcoming};
use crate::report::{
    EndReason, Epoch, EpochBegin, EpochValues, Event, Memory, OutOfMemory, Phase, Progress, Report,
    ReportError, SaveReason, Values, Watched,
};
use crate::screen::counted;
use crate::train::{HeadLoss, TrainError};

/// Steps whose peak of memory is measured exactly in an epoch that measures it, where that costs time: the first makes the
/// state of the optimizer, the second has it.
const METERED_STEPS: usize = 2;

/// The list of images that could not be read, in the run folder.
const SKIPPED_IMAGES: &str = "skipped_images.csv";

/// A pass over images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Training in this epoch, from its batch number `first` on.
    Training {
        /// Counted from 1.
        epoch: usize,
        /// Counted from 0.
        first: usize,
    },
    /// Evaluation of the validation images.
    Validation,
}

/// A step that has begun, with its batch.
struct UnderWay {
    begun: BegunStep,
    batch: Arc<Batch>,
}

impl Run {
    /// Finishes the epoch under way, or returns the signal that interrupted it.
    pub(super) fn epoch(&mut self) -> Result<Option<Signal>, RunError> {
        let begin = Instant::now();
        self.measures = std::mem::take(&mut self.unmeasured);
        let seconds_before = self.state.epoch_seconds;
        let images_before = self.state.tally.images;
        let trained = self.train()?;
        let training = begin.elapsed();
        let images = self.state.tally.images - images_before;
        let validated = match trained {
            None => self.validate()?,
            Some(signal) => Err(signal),
        };
        self.state.epoch_seconds = seconds_before + begin.elapsed().as_secs_f64();
        self.state.seconds += begin.elapsed().as_secs_f64();
        match validated {
            Ok(validation) => self.conclude(validation, images, training).map(|()| None),
            Err(signal) => Ok(Some(signal)),
        }
    }

    fn train(&mut self) -> Result<Option<Signal>, RunError> {
        let (clock, images_before) = (Instant::now(), self.state.tally.images);
        let mut under_way = None;
        let trained = self.train_batches(clock, &mut under_way);
        if under_way.is_some() {
            // It began before whatever else has gone wrong.
            self.end_step(&mut under_way)?;
            self.tell_progress(clock, images_before)?;
        }
        trained
    }

    /// Tells how far training has come in the epoch, since it began at `clock` with so many images done before.
    fn tell_progress(&mut self, clock: Instant, images_before: usize) -> Result<(), ReportError> {
        let done = self.state.tally.images;
        self.reports.event(&Event::Progress(Progress {
            phase: Phase::Train,
            done_images: done,
            total_images: self.train_loader.dataset().len(),
            loss: self.state.tally.loss(&self.plan.heads).unwrap_or(f64::NAN),
            images_per_second: rate(done - images_before, clock.elapsed()),
            devices: self.trainer.devices(),
            waited: self.trainer.waited(clock.elapsed().as_secs_f64()),
        }))
    }

    /// Trains on the batches of the epoch that are left; `under_way` is the last step, where that has not ended.
    fn train_batches(
        &mut self,
        clock: Instant,
        under_way: &mut Option<UnderWay>,
    ) -> Result<Option<Signal>, RunError> {
        let steps = self.train_loader.batches_per_epoch();
        let (epoch, first) = (self.state.epoch, self.state.batch);
        let images_before = self.state.tally.images;
        let begin = EpochBegin { epoch, first_step_in_epoch: first, steps, phase: Phase::Train };
        self.reports.event(&Event::EpochBegin(begin))?;
        self.trainer.begin_epoch(epoch);
        self.trainer.usage.clear();
        if self.measures {
            self.meter.reset_peak();
        }
        let mut had_images = self.state.tally.images + self.state.skipped_steps > 0;
        let mut batches = self.batches(Pass::Training { epoch, first });
        let mut metered = if self.measures { METERED_STEPS } else { 0 };
        while let Some(batch) = batches.next() {
            if let Some(signal) = self.asked_to_stop(&batch)? {
                return Ok(Some(signal));
            }
            self.look_ahead(&mut batches, || Some(Pass::Validation));
            had_images |= self.train_on(&batch?, metered > 0, under_way)?;
            metered = metered.saturating_sub(1);
            if let Some(message) = self.train_loader.take_warning() {
                self.reports.event(&Event::Warning { message })?;
            }
            if self.state.tally.images > 0 || under_way.is_none() {
                self.tell_progress(clock, images_before)?;
            }
            self.look_at_save()?;
            if self.state.batch < steps && self.all_save(self.is_save_due())? {
                self.end_step(under_way)?;
                self.save(SaveReason::Interval, false, None)?;
            }
        }
        match had_images {
            true => Ok(None),
            false => Err(self.no_images("training")),
        }
    }

    /// Begins a step, and ends the one before it, which is `under_way`; whether the batch had images enough for one.
    fn train_on(
        &mut self,
        batch: &Arc<Batch>,
        metered: bool,
        under_way: &mut Option<UnderWay>,
    ) -> Result<bool, RunError> {
        self.note_bad_images(&batch.skipped)?;
        let images = batch.indices.len();
        let alone = images == 1 && self.train_loader.avoids_single();
        if alone {
            let reason = "one image is left of the batch, and BatchNorm normalises badly over one";
            self.leave_out(reason.to_owned())?;
        } else if images > 0 {
            let learning_rate = self.schedule.lr(self.state.step);
            let step = self.state.step;
            let (trainer, before) = (&mut self.trainer, under_way.as_ref().map(|it| &it.begun));
            let mut begin =
                || trainer.begin_step(batch.into(), &batch.targets, step, learning_rate, before);
            let begun = if metered { self.meter.watch(begin) } else { begin() };
            // While the GPU computes this one, what is to be said of the one before it.
            self.end_step(under_way)?;
            self.tell_backoffs()?;
            match begun {
                Ok(begun) => {
                    self.state.learning_rate = learning_rate;
                    self.state.step += 1;
                    *under_way = Some(UnderWay { begun, batch: Arc::clone(batch) });
                    if !self.trainer.runs_ahead() {
                        self.end_step(under_way)?;
                    }
                }
                Err(skipped @ TrainError::Skipped { .. }) => self.leave_out(skipped.to_string())?,
                Err(source) => {
                    return Err(self.failed_on(batch, self.state.step, source));
                }
            }
        }
        self.state.batch += 1;
        Ok(images > 0 && !alone)
    }

    /// Waits for the step `under_way`, where there is one, and takes note of its losses.
    fn end_step(&mut self, under_way: &mut Option<UnderWay>) -> Result<(), RunError> {
        let Some(UnderWay { begun, batch }) = under_way.take() else { return Ok(()) };
        let (step, learning_rate) = (begun.number, begun.learning_rate);
        let ended = self.trainer.end_step(begun, (&batch).into(), &batch.targets);
        let losses = ended.map_err(|source| self.failed_on(&batch, step, source))?;
        self.state.tally.add(&losses, batch.indices.len());
        self.tell_step(&losses, batch.indices.len(), step + 1, learning_rate)
    }

    /// The error of step number `step`, from 0, on this batch.
    fn failed_on(&self, batch: &Batch, step: usize, source: TrainError) -> RunError {
        let name = |place: usize| self.train_loader.dataset().name_in_table(batch.indices[place]);
        self.error_of(step, source.with_names(name))
    }

    /// Lets the trainer know the batch after the one that it takes next, where that is of use. Once all of `batches` are being
    /// read, those of the pass `after` begin to be, so that its first batch is there when it begins.
    fn look_ahead(&mut self, batches: &mut SharedBatches, after: impl Fn() -> Option<Pass>) {
        if self.trainer.sends_ahead() {
            self.trainer.upcoming = upcoming(batches).cloned();
        }
        if self.train_loader.has_begun_all(batches)
            && self.coming.is_none()
            && let Some(after) = after()
        {
            self.coming = Some((after, self.read(after)));
        }
    }

    /// The batches of a pass, the first of which may have been read.
    fn batches(&mut self, pass: Pass) -> SharedBatches {
        match self.coming.take() {
            Some((coming, batches)) if coming == pass => batches,
            _ => self.read(pass),
        }
    }

    fn read(&self, pass: Pass) -> SharedBatches {
        let batches = match pass {
            Pass::Training { epoch, first } => self.train_loader.epoch(epoch as u64, first),
            Pass::Validation => self.validation_loader.epoch(0, 0),
        };
        batches.shared()
    }

    /// The error of a pass in which no image could be used.
    fn no_images(&self, list: &'static str) -> RunError {
        let file = self.folder.join(SKIPPED_IMAGES).display().to_string();
        RunError::NoImages { epoch: self.state.epoch, list, file }
    }

    /// Tells of a batch whose step is not taken.
    fn leave_out(&mut self, reason: String) -> Result<(), RunError> {
        self.state.skipped_steps += 1;
        let (epoch, step) = (self.state.epoch, self.state.step + 1);
        Ok(self.reports.event(&Event::SkippedStep { epoch, step, reason })?)
    }

    /// Tells where memory has not sufficed, and remembers it.
    fn tell_backoffs(&mut self) -> Result<(), ReportError> {
        for backoff in std::mem::take(&mut self.trainer.backoffs) {
            self.unmeasured = true;
            self.state.remember(&self.trainer.planner, &self.plan.memory);
            self.reports.event(&Event::OutOfMemory(OutOfMemory {
                epoch: self.state.epoch,
                step: self.state.step + 1,
                requested: backoff.wanted,
                memory: self.meter.read().into(),
                advice: self.goes_on(backoff),
            }))?;
        }
        Ok(())
    }

    /// How the run goes on where memory has not sufficed, and with which numbers.
    fn goes_on(&self, backoff: Backoff) -> String {
        let Backoff { from, to, evaluating, .. } = backoff;
        let images = counted(from, "image", "images");
        if evaluating {
            return format!(
                "no room to evaluate {images} at once; going on with {to}: the same results"
            );
        }
        if from == to {
            return format!(
                "no room for {images} at once; going on with more recomputation: the same results \
                 (`memory.checkpointing = \"budget\"` and a `memory.budget` of less start so)"
            );
        }
        let numbers = match self.plan.parts_matter() {
            true => format!("over which BatchNorm normalises: other results than with {from}"),
            false => "which gives the same gradient".to_owned(),
        };
        format!(
            "no room for {images} at once; going on with {to}, {numbers} (`memory.micro_batch = {to}` \
             starts so)"
        )
    }

    /// Tells the losses of step `step`, counted from 1, where it is one whose losses are told.
    fn tell_step(
        &mut self,
        losses: &[HeadLoss],
        images: usize,
        step: usize,
        learning_rate: f64,
    ) -> Result<(), RunError> {
        let every = self.plan.run.log_every;
        if every == 0 || !step.is_multiple_of(every) {
            return Ok(());
        }
        let mut tally = Tally::default();
        tally.add(losses, images);
        let (epoch, loss) = (self.state.epoch, tally.loss(&self.plan.heads));
        Ok(self.reports.event(&Event::Step { epoch, step, loss, learning_rate })?)
    }

    pub(super) fn step_error(&self, source: TrainError) -> RunError {
        self.error_of(self.state.step, source)
    }

    /// The error of step number `step`, from 0.
    fn error_of(&self, step: usize, source: TrainError) -> RunError {
        if let TrainError::Elsewhere(failure) = source {
            return failure.into();
        }
        RunError::Step { epoch: self.state.epoch, step: step + 1, source }
    }

    fn is_save_due(&self) -> bool {
        let save = &self.plan.run.save;
        let minutes = self.saved_at.elapsed().as_secs_f64() / 60.0;
        (save.every_minutes > 0.0 && minutes >= save.every_minutes)
            || (save.every_steps > 0 && self.state.step.is_multiple_of(save.every_steps))
    }

    fn note_bad_images(&mut self, images: &[BadImage]) -> Result<(), RunError> {
        if images.is_empty() {
            return Ok(());
        }
        self.reports.event(&Event::SkippedImages { images: images.to_vec() })?;
        let bad = &mut self.state.bad_images;
        bad.extend(images.iter().map(|image| image.path.display().to_string()));
        let limit = self.plan.data.bad_image_limit;
        if bad.len() > limit {
            let list = self.folder.join(SKIPPED_IMAGES).display().to_string();
            return Err(RunError::TooManyBadImages { count: bad.len(), limit, list });
        }
        Ok(())
    }

    fn validate(&mut self) -> Result<Result<Validation, Signal>, RunError> {
        let steps = self.validation_loader.batches_per_epoch();
        let (epoch, phase) = (self.state.epoch, Phase::Validation);
        let begin = EpochBegin { epoch, first_step_in_epoch: 0, steps, phase };
        self.reports.event(&Event::EpochBegin(begin))?;
        let clock = Instant::now();
        let mut validation = Validation::new(&self.plan.heads, &self.validation);
        self.trainer.swap_average().map_err(|source| self.step_error(source))?;
        let outcome = self.evaluate_all(&mut validation, clock)?;
        self.trainer.swap_average().map_err(|source| self.step_error(source))?;
        match outcome {
            Some(signal) => Ok(Err(signal)),
            None if validation.tally.images == 0 => Err(self.no_images("validation")),
            None => Ok(Ok(validation)),
        }
    }

    fn evaluate_all(
        &mut self,
        validation: &mut Validation,
        clock: Instant,
    ) -> Result<Option<Signal>, RunError> {
        let mut batches = self.batches(Pass::Validation);
        let (epoch, last) = (self.state.epoch, self.plan.train.epochs);
        let next = || (epoch < last).then_some(Pass::Training { epoch: epoch + 1, first: 0 });
        let mut metered = self.measures;
        let mut under_way = None;
        while let Some(batch) = batches.next() {
            if let Some(signal) = self.asked_to_stop(&batch)? {
                return Ok(Some(signal));
            }
            self.look_ahead(&mut batches, next);
            let batch = batch?;
            self.note_bad_images(&batch.skipped)?;
            if batch.indices.is_empty() {
                continue;
            }
            let mut begin = || self.trainer.begin_evaluation((&batch).into(), &batch.targets);
            let begun = if metered { self.meter.watch(begin) } else { begin() };
            metered = false;
            self.tell_backoffs()?;
            let begun = begun.map_err(|source| self.step_error(source))?;
            // While a GPU computes this one, what is to be said of the one before it.
            self.end_evaluation(under_way.replace((begun, batch)), validation, clock)?;
            self.look_at_save()?;
        }
        self.end_evaluation(under_way, validation, clock)?;
        Ok(None)
    }

    /// Waits for the evaluation of a batch, where there is one, and takes note of it.
    fn end_evaluation(
        &mut self,
        under_way: Option<(BegunEvaluation, Arc<Batch>)>,
        validation: &mut Validation,
        clock: Instant,
    ) -> Result<(), RunError> {
        let Some((begun, batch)) = under_way else { return Ok(()) };
        let (rows, losses) = begun.end().map_err(|source| self.step_error(source))?;
        validation.add(&self.plan.heads, &batch, &rows, &losses);
        let (done, loss) = (validation.tally.images, validation.tally.loss(&self.plan.heads));
        Ok(self.reports.event(&Event::Progress(Progress {
            phase: Phase::Validation,
            done_images: done,
            total_images: self.validation.len(),
            loss: loss.unwrap_or(f64::NAN),
            images_per_second: rate(done, clock.elapsed()),
            devices: self.trainer.devices(),
            waited: None,
        }))?)
    }

    /// Early stopping takes note of its metric, whose value `find` gives; what is told when it ends
    /// training.
    fn stop_early(&mut self, find: impl Fn(&str) -> Option<f64>) -> Option<Event> {
        let stopping = self.plan.train.early_stopping.as_ref()?;
        let monitor = self.plan.monitors.early_stopping.as_ref()?;
        let (epoch, state) = (self.state.epoch, &mut self.state.stopping);
        state.observe(epoch, find(&monitor.metric), monitor, stopping.min_delta);
        let waited = state.without_improvement >= stopping.patience;
        if !waited || epoch < stopping.start_epoch || epoch >= self.plan.train.epochs {
            return None;
        }
        self.state.ended = Some(EndReason::EarlyStopping);
        Some(Event::EarlyStopped {
            epoch,
            metric: monitor.metric.clone(),
            best: state.best,
            best_epoch: state.best_epoch,
            patience: stopping.patience,
        })
    }

    /// The schedule, the best epoch and early stopping take note of the metrics; the epoch, in which `images`
    /// images were trained on in the time `training`, is told and saved.
    fn conclude(
        &mut self,
        validation: Validation,
        images: usize,
        training: Duration,
    ) -> Result<(), RunError> {
        let devices = self.device_speeds(training.as_secs_f64())?;
        let epoch = self.state.epoch;
        let train = self.state.tally.values(&self.plan.heads);
        let mut val = validation.values(&self.plan.heads);
        val.extend(validation.intervals(&self.plan.heads, self.plan.run.seed));
        let reasons = validation.reasons(&self.plan.heads, &val);
        let find = |metric: &str| find(&train, &val, metric);
        let monitors = undefined::monitors(&self.plan.monitors);
        let undefined = undefined::warnings(
            &monitors,
            epoch,
            &mut self.told_undefined,
            |metric| find(metric).is_some(),
            |metric| reasons.get(metric.strip_prefix("val/")?).map(String::as_str),
        );
        let monitored = find(&self.plan.monitors.best.metric);
        if let Some(monitor) = &self.plan.monitors.plateau {
            self.schedule.observe(find(&monitor.metric));
        }
        let is_best = self.state.best.observe(epoch, monitored, &self.plan.monitors.best, 0.0);
        let values = EpochValues { epoch, train: train.clone(), val: val.clone() };
        if is_best {
            self.state.best_values = Some(values.clone());
        }
        self.state.last_values = values;
        self.state.note_undefined(reasons);
        let early = self.stop_early(find);
        if epoch >= self.plan.train.epochs {
            self.state.ended = Some(EndReason::Epochs);
        }
        self.reports.event(&Event::Epoch(Epoch {
            epoch,
            step: self.state.step,
            train,
            val,
            learning_rate: self.state.learning_rate,
            seconds: self.state.epoch_seconds,
            images_per_second: rate(images, training),
            devices,
            memory: Memory {
                predicted_peak: Some(self.trainer.planner.estimate().peak),
                ..self.meter.read().into()
            },
            best: is_best,
            skipped_steps: self.state.skipped_steps,
            loss_scale: self.trainer.first().updater.loss_scale.map(|scale| scale.scale()),
            watched: Some(Watched {
                metric: self.plan.monitors.best.metric.clone(),
                value: monitored,
                best: self.state.best.best,
                best_epoch: self.state.best.best_epoch,
            }),
            undefined: self.state.undefined.clone(),
        }))?;
        for message in undefined {
            self.reports.event(&Event::Warning { message })?;
        }
        early.map_or(Ok(()), |event| self.reports.event(&event))?;
        self.state.schedule = self.schedule.state();
        self.agree_after_epoch()?;
        self.state.next_epoch();
        self.save(SaveReason::EpochEnd, is_best, Some(validation.predictions))
    }
}

/// The value of `train/<name>` or `val/<name>`.
fn find(train: &Values, val: &Values, metric: &str) -> Option<f64> {
    match metric.split_once('/')? {
        ("train", name) => train.get(name).copied().flatten(),
        ("val", name) => val.get(name).copied().flatten(),
        _ => None,
    }
}

fn rate(images: usize, time: Duration) -> f64 {
    images as f64 / time.as_secs_f64()
}
