//! Training steps and evaluation on one device or several, in another way where a device runs out of
//! memory.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;

use super::outputs_of_all::of_all;
use super::usage::Usage;
use crate::data::{Batch, Dataset, Targets};
use crate::memory::measure::broken_off;
use crate::memory::{OutOfMemory, Parameter, Placement};
use crate::ops::gpu::{Buffer, Exchanges};
use crate::parallel::course::{Course, Doing, note, recorded};
use crate::parallel::processes::Processes;
use crate::parallel::{
    BatchNormOver, Failure, GridExchanges, Part, Seat, Shard, Threads, on_ranks, shares,
};
use crate::plan::{BackOff, Planner};
use crate::train::{
    BatchPart, CheckedGradients, Evaluated, Evaluating, HeadLoss, Images, NotFinite, Origin,
    Replica, Share, StepLosses, TrainError, Updater,
};

/// Trains a model, and evaluates it.
pub struct Trainer {
    /// The model on each device. Each has a copy of it with the same weights; in a pipeline, each has a
    /// part of one: first come the parts of the first copy, then those of the second.
    pub ranks: Vec<Rank>,
    /// How many devices have one copy of the model between them: 1 but for a pipeline.
    pub depth: usize,
    /// The threads of cards, where there are several.
    pub threads: Option<Threads>,
    /// What cards exchange sums by: those with the same part of the model among each other. None where there
    /// is one copy, or no card.
    pub exchanges: Vec<Exchanges>,
    /// What the cards of each copy send each other activations by, where they are a pipeline.
    pub messages: Vec<Exchanges>,
    /// The processes that train one model, each with one device.
    pub processes: Option<Processes>,
    /// What norms are taken over.
    pub batch_norm: BatchNormOver,
    /// What has chosen how steps are taken, and does again where memory does not suffice.
    pub planner: Planner,
    /// Whether the allocator's pages have grown with what the first step asked for, and the next step needs the
    /// larger ones alone. The allocator would keep the others until memory does not suffice.
    pub outgrows_pages: bool,
    /// The batch after the one that is computed next, where it is known: it is copied to the devices meanwhile.
    pub upcoming: Option<Arc<Batch>>,
    /// Where memory has not sufficed since somebody asked.
    pub backoffs: Vec<Backoff>,
    /// What each device of this process has done in training steps since somebody asked.
    pub usage: Vec<Usage>,
    /// What each device has done in the last step, where somebody asked by beginning it.
    pub courses: Option<Vec<Course>>,
}

/// The model on one device.
pub struct Rank {
    /// The model and its gradients.
    pub replica: Replica,
    /// What changes its weights.
    pub updater: Updater,
}

/// A step that has begun: on GPUs that decide by themselves it may not have ended.
#[derive(Debug)]
pub struct BegunStep {
    /// Its number, from 0.
    pub number: usize,
    /// Its learning rate.
    pub learning_rate: f64,
    /// Those of all devices of this process, which are the same.
    losses: Vec<StepLosses>,
}

/// An evaluation that has begun, of a batch that copies of the model share.
#[derive(Debug)]
pub struct BegunEvaluation(Vec<Evaluating>);

impl BegunEvaluation {
    /// Waits for its end. The outputs and losses are those of all devices.
    ///
    /// # Errors
    /// When a device fails.
    pub fn end(self) -> Result<Evaluated, TrainError> {
        let mut each = self.0.into_iter().map(Evaluating::wait);
        let (mut rows, mut losses) = each.next().expect("there is a device")?;
        for more in each {
            let (more_rows, more_losses) = more?;
            rows.iter_mut().zip(more_rows).for_each(|(rows, more)| rows.extend(more));
            losses.iter_mut().zip(more_losses).for_each(|(loss, more)| loss.sum += more.sum);
        }
        Ok((rows, losses))
    }
}

/// What is done with a batch.
#[derive(Debug, Clone, Copy)]
enum Work {
    Step,
    Evaluation,
}

/// Memory did not suffice for so many images at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Images at once that did not fit.
    pub from: usize,
    /// Images at once from then on; as many where more of them is computed again.
    pub to: usize,
    /// Whether it was in an evaluation. Steps are then taken as before.
    pub evaluating: bool,
    /// The bytes asked for last, where they are known.
    pub wanted: Option<u64>,
}

impl Trainer {
    /// The model on the first device.
    pub fn first(&self) -> &Rank {
        &self.ranks[0]
    }

    /// What a person should know of how its cards are connected.
    pub fn warning(&self) -> Option<String> {
        // All of a grid have the same cards' connections.
        let mut all = self.exchanges.iter().chain(&self.messages);
        all.find_map(|each| each.warning.clone())
    }

    /// Whether it is of use to say which batch is [`Trainer::upcoming`].
    pub fn sends_ahead(&self) -> bool {
        self.first().replica.inference.sends_ahead()
    }

    /// One copy of the model, in the order of its stages: what is saved.
    pub fn copy(&self) -> &[Rank] {
        &self.ranks[..self.depth]
    }

    /// The device of this copy that has the heads.
    pub fn last(&self) -> &Rank {
        &self.ranks[self.depth - 1]
    }

    /// Every parameter and running statistic of the model, in the order of its stages.
    pub fn parameters(&self) -> Vec<Parameter> {
        let parts = self.copy().iter();
        parts.flat_map(|rank| rank.replica.inference.chain.parameters()).collect()
    }

    /// How many copies of the model there are, in this process and others, each of which computes a part of
    /// every batch.
    fn copies(&self) -> usize {
        self.processes.as_ref().map_or(self.ranks.len() / self.depth, Processes::ranks)
    }

    /// Steps are from now on those of `epoch`, counted from 1.
    pub fn begin_epoch(&mut self, epoch: usize) {
        self.planner.begin_epoch(epoch);
        self.set_strategies();
    }

    /// Steps are from now on taken as the planner has it.
    fn set_strategies(&mut self) {
        let strategies = self.planner.strategies().iter().cycle();
        for (rank, strategy) in self.ranks.iter_mut().zip(strategies) {
            rank.replica.strategy = strategy.clone();
        }
    }

    /// Takes optimizer step number `step` (from 0) with a batch, and returns each head's loss. On an
    /// error nothing has changed, but for the scale of the loss where it says so.
    ///
    /// # Errors
    /// When a loss or a gradient is not finite, memory does not suffice, or the device fails.
    pub fn step(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<HeadLoss>, TrainError> {
        let begun = self.begin_step(images, targets, step, learning_rate, None)?;
        self.end_step(begun, images, targets)
    }

    /// Whether a step may begin before the one before it has ended: GPUs of one process, each with the whole model, decide
    /// about their steps by themselves.
    pub fn runs_ahead(&self) -> bool {
        let of_process = self.depth == 1 && self.processes.is_none() && self.courses.is_none();
        of_process && self.ranks.iter().all(|rank| rank.updater.decides(&rank.replica))
    }

    /// [`Trainer::step`] that does not wait for GPUs that decide by themselves. `before` is the step before it where that
    /// has not ended, which is allowed only where the trainer [runs ahead](Self::runs_ahead).
    ///
    /// # Errors
    /// As there; what is not finite may show at the end only.
    pub fn begin_step(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
        before: Option<&BegunStep>,
    ) -> Result<BegunStep, TrainError> {
        let from = Instant::now();
        let before = (0..self.ranks.len()).map(|rank| before?.losses[rank].decided());
        let decide: Option<Vec<_>> = self.runs_ahead().then(|| before.collect());
        let decide = decide.as_deref();
        let checked = self.gradients_since(from, images, targets, step, learning_rate, decide)?;
        let traces = self.courses.is_some().then_some(from);
        let computes_on = self.first().replica.inference.device().clone();
        let shard = self.first().updater.shard;
        let mut ranks: Vec<_> = self.ranks.iter_mut().zip(checked.into_iter().map(Some)).collect();
        let by = Means {
            depth: self.depth,
            threads: self.threads.as_ref(),
            cards: of_weights(&self.exchanges, shard),
            processes: self.processes.as_ref(),
        };
        let applied = by.on_all(&mut ranks, &computes_on, |(rank, checked), seat| {
            let checked = checked.take().expect("is applied once");
            let (losses, course) = recorded(traces, || {
                let begin = Instant::now();
                let Rank { replica, updater } = rank;
                let losses = updater.apply(replica, checked, learning_rate, &seat.row);
                seat.row.settle(replica.inference.device());
                note(begin, Doing::Optimizer, || (None, None));
                losses
            });
            Ok((losses?, course))
        });
        let (losses, courses): (Vec<_>, Vec<_>) = applied.map_err(failed)?.into_iter().unzip();
        if decide.is_some() {
            self.exchanges.iter().for_each(Exchanges::step_launched);
        }
        if std::mem::take(&mut self.outgrows_pages) {
            computes_on.memory_cleanup();
        }
        for (usage, course) in self.usage.iter_mut().zip(&courses) {
            usage.add(0, &course.waited);
        }
        for (all, more) in self.courses.iter_mut().flatten().zip(courses) {
            all.spans.extend(more.spans);
        }
        Ok(BegunStep { number: step, learning_rate, losses })
    }

    /// The gradients of the step that [`Trainer::step`] takes, which are the same on every device; in a
    /// pipeline, those of its part of the model. Nothing changes but the scale of the loss.
    ///
    /// # Errors
    /// As there.
    pub fn gradients(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
    ) -> Result<Vec<CheckedGradients>, TrainError> {
        self.gradients_since(Instant::now(), images, targets, step, learning_rate, None)
    }

    /// The same of a step that has begun at `from`. GPUs decide about it by themselves where `decide` is given, with what
    /// each of them decides about the step before it where that has not ended.
    fn gradients_since(
        &mut self,
        from: Instant,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
        learning_rate: f64,
        decide: Option<&[Option<&Buffer>]>,
    ) -> Result<Vec<CheckedGradients>, TrainError> {
        let traces = self.courses.is_some().then_some(from);
        let normalizers = self.last().replica.normalizers(targets);
        let (count, over) = (images.count(), self.batch_norm);
        let assessed = self.within_memory(count, Work::Step, |rank, seat, parts, next| {
            let Rank { replica, updater } = rank;
            replica.reserve().unwrap_or_else(|out_of_memory| out_of_memory.throw());
            let synced = Some(&seat.row).filter(|_| over == BatchNormOver::Sync);
            let link = replica.link(&seat.column);
            // The cards of a grid of pipelines have room for messages, and add up gradients afterwards.
            let row = Some(&*seat.row).filter(|_| link.is_none());
            let share = Share { images, targets, parts, synced, row, next, link };
            let own: usize = parts.iter().map(|part| part.images.len()).sum();
            let (assessed, course) = recorded(traces, || {
                let found = replica.gradients(share, &normalizers, step, updater.scale())?;
                let found = found.of_all(&seat.row, over, own as f64 / count as f64, parts);
                updater.make_ready(&found.gradients).unwrap_or_else(|without| without.throw());
                match decide {
                    Some(before) => {
                        let before = before[seat.row.rank()];
                        Ok(updater.decide(&replica.inference, found, before, &seat.row))
                    }
                    None => updater.assess(&replica.inference, found, &seat.column),
                }
            });
            Ok((assessed?, own, course))
        })?;
        let assessed = self.take_note(assessed);
        let ranks = self.ranks.iter_mut().zip(assessed);
        // All take note of a step that is left out, and not only the first.
        let accepted: Vec<_> =
            ranks.map(|(rank, assessed)| rank.updater.accept(assessed, learning_rate)).collect();
        let accepted: Result<_, TrainError> = accepted.into_iter().collect();
        accepted.map_err(|mut error| {
            if let Some((what, origin)) = error.not_finite() {
                let found = self.origin(images, targets, step).map(|found| match (found, what) {
                    (Some(found), _) => found,
                    (None, NotFinite::Loss { .. }) => Origin::Nowhere,
                    (None, NotFinite::Gradient { .. } | NotFinite::Statistics) => Origin::Backward,
                });
                *origin = found.ok().map(Box::new);
            }
            error
        })
    }

    /// Waits for a step that has begun with these images and targets, and returns each head's loss.
    ///
    /// # Errors
    /// When a loss or a gradient is not finite (then no step that has begun since changes anything; they too must be
    /// ended), or the device fails.
    pub fn end_step(
        &mut self,
        begun: BegunStep,
        images: Images<'_>,
        targets: &[Targets],
    ) -> Result<Vec<HeadLoss>, TrainError> {
        let BegunStep { number, learning_rate, losses } = begun;
        let ended: Vec<_> = losses.into_iter().map(StepLosses::wait).collect::<Result<_, _>>()?;
        let mut taken = Vec::with_capacity(ended.len());
        for (rank, ended) in self.ranks.iter_mut().zip(ended) {
            match ended {
                Ok(losses) => taken.push(losses),
                Err(left_out) => rank.updater.left_out(&left_out),
            }
        }
        if taken.len() == self.ranks.len() {
            return Ok(taken.swap_remove(0));
        }
        self.exchanges.iter().try_for_each(Exchanges::resume).map_err(TrainError::Stalled)?;
        // With the weights that it began with, the host finds what the GPUs have found.
        let again = self.gradients(images, targets, number, learning_rate);
        let what = || NotFinite::Gradient { of: String::new() };
        let unseen = || TrainError::NotFinite { what: what(), learning_rate, origin: None };
        Err(again.err().unwrap_or_else(unseen))
    }

    /// Computes a step forward once more, something of which is not finite, and returns where that begins:
    /// none where all of it is finite.
    ///
    /// # Errors
    /// When it cannot be computed.
    fn origin(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
        step: usize,
    ) -> Result<Option<Origin>, TrainError> {
        let normalizers = self.last().replica.normalizers(targets);
        let found = self.within_memory(images.count(), Work::Step, |rank, seat, parts, _| {
            let replica = &rank.replica;
            let link = replica.link(&seat.column);
            let share = Share { images, targets, parts, synced: None, row: None, next: None, link };
            let own = replica.origin(share, &normalizers, step)?;
            let own = serde_json::to_vec(&own).unwrap_or_default();
            Ok(seat.row.gather_bytes("origins", own))
        })?;
        let read = |own: Vec<u8>| serde_json::from_slice::<Option<Origin>>(&own).ok().flatten();
        Ok(Origin::first(found.into_iter().flatten().filter_map(read)))
    }

    /// Takes note of what each device has done in a step, and returns what it has found.
    fn take_note<T>(&mut self, done: Vec<(T, usize, Course)>) -> Vec<T> {
        self.usage.resize_with(done.len(), Usage::default);
        let mut courses = Vec::with_capacity(done.len());
        let found =
            done.into_iter().zip(&mut self.usage).map(|((found, images, course), usage)| {
                usage.add(images, &course.waited);
                courses.push(course);
                found
            });
        let found = found.collect();
        if self.courses.is_some() {
            self.courses = Some(courses);
        }
        found
    }

    /// Each head's outputs for a batch, row by row and in the labels' own units, and its loss; with
    /// running statistics and without dropout.
    ///
    /// # Errors
    /// When memory does not suffice or the device fails.
    pub fn evaluate(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
    ) -> Result<Evaluated, TrainError> {
        self.begin_evaluation(images, targets)?.end()
    }

    /// [`Trainer::evaluate`] that does not wait for GPUs of one process that have the whole model each.
    ///
    /// # Errors
    /// As there.
    pub fn begin_evaluation(
        &mut self,
        images: Images<'_>,
        targets: &[Targets],
    ) -> Result<BegunEvaluation, TrainError> {
        let count = images.count();
        let (depth, apart) = (self.depth, self.processes.is_some());
        let each = self.within_memory(count, Work::Evaluation, |rank, seat, parts, next| {
            let replica = &rank.replica;
            let link = replica.link(&seat.column);
            let own = replica.evaluate(images, targets, parts, next, link)?;
            if !apart {
                return Ok(vec![own]);
            }
            let all = of_all(&seat.row, &own.wait()?)?.into_iter();
            Ok(all.map(Evaluating::Known).collect())
        })?;
        // Of each copy, what the device with the heads finds.
        Ok(BegunEvaluation(each.into_iter().skip(depth - 1).step_by(depth).flatten().collect()))
    }

    /// Standardises the numbers of the heads that ask for it by the labels in `train`. Returns what a
    /// person should know of labels that have one value only.
    pub fn fit_standardizers(&mut self, train: &Dataset) -> Vec<String> {
        let ranks = self.ranks.iter_mut();
        let notes = ranks.map(|rank| rank.replica.inference.fit_standardizers(train));
        // All say the same.
        notes.reduce(|first, _| first).unwrap_or_default()
    }

    /// Exchanges the weights and their average, when there is one; done twice, nothing has changed.
    ///
    /// # Errors
    /// When devices exchange shards of it, and one fails.
    pub fn swap_average(&mut self) -> Result<(), TrainError> {
        if self.first().updater.ema.is_none() {
            return Ok(());
        }
        let shard = self.first().updater.shard;
        let computes_on = self.first().replica.inference.device().clone();
        let by = Means {
            depth: self.depth,
            threads: self.threads.as_ref(),
            cards: of_weights(&self.exchanges, shard),
            processes: self.processes.as_ref(),
        };
        let swapped = by.on_all(&mut self.ranks, &computes_on, |rank, seat| {
            let Rank { replica, updater } = rank;
            updater.swap_average(&mut replica.inference.chain, &seat.row);
            seat.row.settle(replica.inference.device());
            Ok(())
        });
        swapped.map(drop).map_err(failed)
    }

    /// What `attempt` at a batch of `images` images gives on each device, which is given its place among
    /// the devices, its parts of the batch and its first part of the upcoming one, and changes nothing: tried
    /// again in another way for as long as memory does not suffice on one of them.
    fn within_memory<T: Send>(
        &mut self,
        images: usize,
        work: Work,
        attempt: impl Fn(&mut Rank, &Seat, &[Part], Option<&BatchPart>) -> Result<T, TrainError> + Sync,
    ) -> Result<Vec<T>, TrainError> {
        let upcoming = self.upcoming.take();
        loop {
            let next: Vec<Option<BatchPart>> = match &upcoming {
                Some(batch) => {
                    let first = |parts: Vec<Part>| {
                        Images::Batch(batch).batch_part(parts.into_iter().next()?.images)
                    };
                    self.shares_of(work, batch.shape[0]).into_iter().map(first).collect()
                }
                None => vec![None; self.copies()],
            };
            let shares = self.shares_of(work, images);
            let cards = GridExchanges { rows: &self.exchanges, columns: &self.messages };
            cards.begin(&self.kind_of_work(&shares));
            let computes_on = self.first().replica.inference.device().clone();
            let by = Means {
                depth: self.depth,
                threads: self.threads.as_ref(),
                cards,
                processes: self.processes.as_ref(),
            };
            let outcome = by.on_all(&mut self.ranks, &computes_on, |rank, seat| {
                let copy = seat.row.rank();
                // The first device of a copy is given the images.
                let next = next[copy].as_ref().filter(|_| seat.column.rank() == 0);
                attempt(rank, seat, &shares[copy], next)
            });
            match outcome {
                Ok(done) => return Ok(done),
                Err(Failure::Error(error)) => return Err(error),
                Err(Failure::Stalled(what)) => return Err(TrainError::Stalled(what)),
                Err(Failure::Elsewhere(failure)) => return Err(failure.into()),
                Err(Failure::OutOfMemory(out_of_memory)) => match work {
                    Work::Step => self.back_off(images, out_of_memory)?,
                    Work::Evaluation => self.evaluate_fewer(images, out_of_memory)?,
                },
            }
        }
    }

    /// What tells attempts apart whose kernels and memory may differ: the strategy, and how many images
    /// devices compute at once.
    fn kind_of_work(&self, shares: &[Vec<Part>]) -> String {
        let sizes = |parts: &Vec<Part>| -> BTreeSet<[usize; 2]> {
            parts.iter().map(|part| [part.images.len(), part.ranks]).collect()
        };
        let sizes: Vec<_> = shares.iter().map(sizes).collect();
        format!("{:?} {sizes:?}", self.first().replica.strategy)
    }

    /// The parts of a batch of `images` images that each copy of the model takes.
    fn shares_of(&self, work: Work, images: usize) -> Vec<Vec<Part>> {
        match work {
            Work::Step => self.shares(images),
            Work::Evaluation => self.evaluation_shares(images),
        }
    }

    /// The parts of a batch of `images` images that each copy of the model trains on.
    fn shares(&self, images: usize) -> Vec<Vec<Part>> {
        let (strategy, copies) = (&self.first().replica.strategy, self.copies());
        let fewest = match self.batch_norm {
            BatchNormOver::Sync => 1,
            BatchNormOver::Local => strategy.fewest,
        };
        shares(&strategy.parts_over(images, copies), copies, fewest)
    }

    /// The parts of a batch of `images` images that each copy of the model evaluates, one after the other.
    fn evaluation_shares(&self, images: usize) -> Vec<Vec<Part>> {
        let strategy = &self.first().replica.strategy;
        let at_once = |Part { images, .. }: Part| {
            let parts = strategy.parts(images.len()).into_iter();
            parts.map(move |part| Part::alone(images.start + part.start..images.start + part.end))
        };
        let shares = shares(std::slice::from_ref(&(0..images)), self.copies(), 1).into_iter();
        shares.map(|parts| parts.into_iter().flat_map(at_once).collect()).collect()
    }

    /// Decides how a step on a batch of `images` images, for which memory has not sufficed, is tried again.
    ///
    /// # Errors
    /// When nothing is left that needs less.
    fn back_off(&mut self, images: usize, out_of_memory: OutOfMemory) -> Result<(), TrainError> {
        let from = self.make_room(images, out_of_memory);
        let Some(back_off) = self.planner.back_off(from) else {
            let advice = self.planner.what_would_fit();
            return Err(TrainError::OutOfMemory { at_once: from, out_of_memory, advice });
        };
        self.set_strategies();
        self.place_passes(self.planner.held().map(|held| held.passes));
        let to = match back_off {
            BackOff::Again => from,
            BackOff::Fewer => self.planner.settings().micro_batch,
        };
        let wanted = out_of_memory.wanted;
        self.backoffs.push(Backoff { from, to, evaluating: false, wanted });
        Ok(())
    }

    /// The passes of steps are to lie as `passes` has it, where one device takes them and that is known; what there was for
    /// them goes. Memory for that is taken now, or else by the next step, which fails where there is not so much.
    pub fn place_passes(&mut self, passes: Option<Placement>) {
        if let [rank] = &mut self.ranks[..] {
            rank.replica.passes = Some(passes.unwrap_or_default());
            let _ = rank.replica.reserve();
        }
    }

    /// The same for an evaluation, whose numbers do not depend on how many images are computed at once:
    /// half as many, until the next epoch begins.
    ///
    /// # Errors
    /// When memory has not sufficed for one image.
    fn evaluate_fewer(
        &mut self,
        images: usize,
        out_of_memory: OutOfMemory,
    ) -> Result<(), TrainError> {
        let from = self.make_room(images, out_of_memory);
        if from <= 1 {
            let advice = self.planner.what_would_fit();
            return Err(TrainError::OutOfMemory { at_once: from, out_of_memory, advice });
        }
        let to = from.div_ceil(2);
        for Rank { replica, .. } in &mut self.ranks {
            (replica.strategy.micro_batch, replica.strategy.fewest) = (to, 1);
        }
        let wanted = out_of_memory.wanted;
        self.backoffs.push(Backoff { from, to, evaluating: true, wanted });
        Ok(())
    }

    /// How many images at once did not fit of a batch of `images` images, after giving back pages that are
    /// as large as what did not fit and of no more use.
    fn make_room(&self, images: usize, out_of_memory: OutOfMemory) -> usize {
        self.ranks.iter().for_each(|rank| rank.replica.inference.free_memory());
        let images = images.div_ceil(self.copies());
        let from = self.first().replica.strategy.micro_batch.min(images);
        broken_off(|| format!("{out_of_memory}, with {from} images at once"));
        from
    }
}

/// What a step ends with that devices have failed at together.
fn failed(failure: Failure<TrainError>) -> TrainError {
    match failure {
        Failure::Error(error) => error,
        Failure::OutOfMemory(out_of_memory) => out_of_memory.throw(),
        Failure::Stalled(what) => TrainError::Stalled(what),
        Failure::Elsewhere(failure) => failure.into(),
    }
}

/// What cards send each other new weights by, where each updates a shard of them.
fn of_weights(rows: &[Exchanges], shard: Shard) -> GridExchanges<'_> {
    if shard.is_whole() {
        return GridExchanges::default();
    }
    let cards = GridExchanges::of_row(rows);
    cards.begin("weights");
    cards
}

/// What devices work together by.
struct Means<'a> {
    depth: usize,
    threads: Option<&'a Threads>,
    cards: GridExchanges<'a>,
    processes: Option<&'a Processes>,
}

impl Means<'_> {
    /// Does `work` on each of `devices`, and on those of other processes, at once. Returns what those of this
    /// process give.
    fn on_all<D: Send, T: Send>(
        &self,
        devices: &mut [D],
        computes_on: &Device,
        work: impl Fn(&mut D, &Seat) -> Result<T, TrainError> + Sync,
    ) -> Result<Vec<T>, Failure<TrainError>> {
        match (self.processes, devices) {
            (Some(processes), [device]) => {
                let exchanges = self.cards.rows.first();
                processes.work(device, computes_on, exchanges, work).map(|done| vec![done])
            }
            (_, devices) => on_ranks(devices, self.depth, self.threads, self.cards, work),
        }
    }
}
