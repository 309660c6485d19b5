//! What changes the weights, given the gradients of a whole batch.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};

use super::{
    HeadLoss, Inference, LeftOut, NotFinite, Replica, StepGradients, StepLosses, TrainError,
};
use crate::memory::{
    Bucket, Chain, Gradients, OutOfMemory, Statistics, check_allocated, fault, measure,
};
use crate::ops::gpu::{Buffer, Factor};
use crate::optim::{
    Ema, GradientNorm, LossScale, OptimError, Optimizer, Update, decays, scaled, squares,
};
use crate::parallel::{Member, Shard};

/// Turns the gradients of a global batch into new weights.
pub struct Updater {
    /// What changes the weights.
    pub optimizer: Optimizer,
    /// The average of the weights, when there is one.
    pub ema: Option<Ema>,
    /// The scale of the loss, where the precision asks for one.
    pub loss_scale: Option<LossScale>,
    /// The norm above which gradients are scaled down.
    pub clip_norm: Option<f64>,
    /// Whether weight decay also acts on norms and biases.
    pub decay_norms_and_biases: bool,
    /// What the learning rate of single buckets is multiplied by, by their keys.
    pub lr_factors: BTreeMap<String, f64>,
    /// What of each bucket it changes: of the optimizer's state and the average it has as much.
    pub shard: Shard,
}

/// Gradients that have been looked at: of a step to be taken, or of one to be left out because something is not
/// finite.
pub struct Assessed(Result<CheckedGradients, NotFinite>);

/// Gradients, statistics and losses of a global batch: all finite, or a GPU will see whether they are.
pub struct CheckedGradients {
    gradients: Gradients,
    /// What the loss was multiplied by.
    loss_scale: f64,
    /// What clipping multiplies the gradients by, where the host knows.
    clip: f64,
    statistics: Statistics,
    losses: StepLosses,
    /// [`StepGradients::centres`].
    centres: Vec<Option<Tensor<1>>>,
}

impl Updater {
    /// What the loss is multiplied by.
    pub fn scale(&self) -> f64 {
        self.loss_scale.map_or(1.0, |scale| scale.scale())
    }

    /// Looks at the gradients of a global batch for `model`, computed with the loss scaled by
    /// [`Updater::scale`]: whether everything is finite, and how far they are clipped. It waits for the
    /// device. Nothing changes.
    ///
    /// Where `model` is a part of a pipeline, all devices of its `column` look at the gradients of the whole
    /// model and come to the same end.
    ///
    /// # Errors
    /// When the device fails.
    pub fn assess(
        &self,
        model: &Inference,
        found: StepGradients,
        column: &Member,
    ) -> Result<Assessed, TrainError> {
        let StepGradients { gradients, statistics, losses, centres } = found;
        // Waits for the device, and the losses after it no more.
        let size = norm_of_all(column, "gradients", &gradients)?;
        // The last device has the heads.
        let losses = column.gather("losses", losses.read()?).pop().unwrap_or_default();
        if let Some(place) = losses.iter().position(|loss| !loss.sum.is_finite()) {
            let head = &model.heads[place].config.name;
            return Ok(Assessed(Err(NotFinite::Loss { head: head.clone() })));
        }
        if !size.is_finite() {
            // Of a step that is left out nobody asks for more.
            let ends = self.loss_scale.is_none_or(LossScale::is_last);
            let of =
                if ends { of_parameters(size, model, &gradients, column)? } else { String::new() };
            return Ok(Assessed(Err(NotFinite::Gradient { of })));
        }
        // A map that overflows in fp16 may leave loss and gradients finite: ReLU makes 0 of −∞.
        if self.loss_scale.is_some() && !norm_of_all(column, "statistics", &statistics)?.is_finite()
        {
            return Ok(Assessed(Err(NotFinite::Statistics)));
        }
        // A failed allocation shows where something is read, and statistics are not.
        let read = statistics.values().cloned();
        check_allocated(read).unwrap_or_else(|out_of_memory| out_of_memory.throw());
        // The step itself takes little beside what has been freed by now.
        fault::check();
        let loss_scale = self.scale();
        let size = size.divided(loss_scale);
        let clip = self.clip_norm.map_or(1.0, |most| size.factor(most));
        Ok(Assessed(Ok(CheckedGradients {
            gradients,
            loss_scale,
            clip,
            statistics,
            losses: StepLosses::Known(losses),
            centres,
        })))
    }

    /// Whether a GPU can decide by itself about the steps of `replica`: the loss is not scaled, and kernels know all that
    /// changes with a step.
    pub fn decides(&self, replica: &Replica) -> bool {
        let model = &replica.inference;
        cfg!(feature = "cuda")
            && model.sends_ahead()
            && model.precision().parameters() == DType::F32
            && self.loss_scale.is_none()
            && self.shard.is_whole()
            && self.optimizer.kernel().is_some()
            && !self.optimizer.waits_away()
            && replica.centre_sizes().is_empty()
    }

    /// Lets the GPU find how far the gradients of a global batch are clipped, and whether the step is taken: only where
    /// everything is finite and the step before it was taken, about which `before` was decided where the host has not
    /// read that. Waits for nothing but the answer whether memory has sufficed, and nothing changes. The model must be one
    /// that the updater [`decides`](Self::decides) about, and whole. The cards of `row` have the same gradients and losses,
    /// and come to the same end.
    pub fn decide(
        &self,
        model: &Inference,
        found: StepGradients,
        before: Option<&Buffer>,
        row: &Member,
    ) -> Assessed {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = crate::ops::gpu::Gpu::of(model.device()) {
            return self.decide_on(&gpu, found, before, row);
        }
        let _ = (found, before, row);
        unreachable!("{:?} is no GPU", model.device())
    }

    #[cfg(feature = "cuda")]
    fn decide_on(
        &self,
        gpu: &crate::ops::gpu::Gpu,
        found: StepGradients,
        before: Option<&Buffer>,
        row: &Member,
    ) -> Assessed {
        let StepGradients { gradients, statistics, losses, centres } = found;
        let (losses, normalizers) = losses.together();
        let all = gradients.values().cloned().collect();
        let decided = gpu.step_factor(all, losses, self.clip_norm, before, row.exchange());
        // It follows from all gradients and losses; statistics are not read.
        let follows = gpu.tensor(&decided, [decided.len()]);
        let made = std::iter::once(follows).chain(statistics.values().cloned());
        check_allocated(made).unwrap_or_else(|out_of_memory| out_of_memory.throw());
        fault::check();
        let reading = gpu.begin_read(&decided);
        let names = gradients.keys().cloned().collect();
        let losses =
            StepLosses::OnGpu(super::step_losses::Outcome { decided, reading, normalizers, names });
        let (loss_scale, clip) = (1.0, 1.0);
        Assessed(Ok(CheckedGradients { gradients, loss_scale, clip, statistics, losses, centres }))
    }

    /// Lets the scale of the loss take note of a step, and returns its gradients where it is to be
    /// taken.
    ///
    /// # Errors
    /// When it is to be left out, or cannot be taken at all.
    pub fn accept(
        &mut self,
        assessed: Assessed,
        learning_rate: f64,
    ) -> Result<CheckedGradients, TrainError> {
        if let Some(loss_scale) = &mut self.loss_scale {
            loss_scale.observe(assessed.0.is_ok());
        }
        assessed.0.map_err(|what| match self.loss_scale {
            None => TrainError::NotFinite { what, learning_rate, origin: None },
            Some(loss_scale) if loss_scale.is_spent() => {
                let skipped = loss_scale.skipped();
                TrainError::Unscalable { what, skipped, learning_rate, origin: None }
            }
            Some(loss_scale) => TrainError::Skipped { what, scale: loss_scale.scale() },
        })
    }

    /// Takes the memory of what is to be kept of parameters that have their first `gradients`: a step that has begun to change
    /// weights could not be taken again without it.
    ///
    /// # Errors
    /// When there is not so much memory. Nothing has changed then.
    pub fn make_ready(&mut self, gradients: &Gradients) -> Result<(), OutOfMemory> {
        if !self.shard.is_whole() || self.optimizer.waits_away() {
            return Ok(());
        }
        if let Some(ema) = &mut self.ema {
            ema.make_ready(gradients.keys().map(String::as_str))?;
        }
        #[cfg(feature = "cuda")]
        self.optimizer.make_ready(gradients)?;
        Ok(())
    }

    /// Takes the step: changes the weights of `replica`, their average, the running statistics and what
    /// losses learn. Returns each head's loss. The devices of `row` have the same weights, and where each changes a
    /// shard of them, they exchange these.
    ///
    /// A step that a GPU decides about leaves all of that alone where it is left out, but for the optimizer's count of
    /// steps: [`Updater::left_out`] takes that back.
    ///
    /// # Errors
    /// When the optimizer's state cannot be moved to the device or off it, or the device fails.
    pub fn apply(
        &mut self,
        replica: &mut Replica,
        checked: CheckedGradients,
        learning_rate: f64,
        row: &Member,
    ) -> Result<StepLosses, TrainError> {
        let CheckedGradients { gradients, loss_scale, clip, statistics, losses, centres } = checked;
        measure::begin("step", || "optimizer".to_owned());
        let chain = &mut replica.inference.chain;
        let factor = losses.decided().map_or(Factor::Known(clip / loss_scale), Factor::OnGpu);
        self.step(chain, gradients, factor, learning_rate, row)?;
        chain.move_statistics(&statistics, losses.decided());
        if let StepLosses::Known(losses) = &losses {
            self.step_losses(replica, losses, centres, learning_rate)?;
        }
        measure::end();
        Ok(losses)
    }

    /// Takes back what [`Updater::apply`] has counted of a step that a GPU has left out.
    pub fn left_out(&mut self, step: &LeftOut) {
        self.optimizer.left_out(&step.names);
    }

    /// Changes the weights by these gradients times a factor.
    fn step(
        &mut self,
        chain: &mut Chain,
        gradients: Gradients,
        factor: Factor<'_>,
        learning_rate: f64,
        row: &Member,
    ) -> Result<(), OptimError> {
        let Self { optimizer, ema, decay_norms_and_biases, lr_factors, shard, .. } = self;
        let rate = |name: &str| learning_rate * lr_factors.get(name).copied().unwrap_or(1.0);
        let decay = |bucket: Bucket| {
            let decays = *decay_norms_and_biases || decays(bucket.rank());
            (bucket.key().to_owned(), decays)
        };
        let decaying: BTreeMap<String, bool> = chain.buckets().into_iter().map(decay).collect();
        let update = |name: &str, value: Tensor<1>, gradient: &Tensor<1>| {
            let (value, gradient) = shard.of(value).zip(shard.of(gradient.clone()))?;
            let (lr, decay) = (rate(name), decaying[name]);
            Some(Update { name: name.to_owned(), lr, decay, value, gradient })
        };
        let whole = |name: &str, own: Option<Tensor<1>>, to: &(Device, DType, usize)| {
            let (device, numbers, length) = to;
            shard.whole(row, name, own, *length, (device, *numbers))
        };
        if optimizer.waits_away() {
            // One after the other, as the states come and go.
            let mut failed = Ok(());
            chain.map_buckets(|name, value| {
                let Some(gradient) = gradients.get(name) else { return value };
                if failed.is_ok() {
                    failed = optimizer.fetch(name);
                }
                if failed.is_err() {
                    return value;
                }
                let to = (value.device(), value.dtype(), value.dims()[0]);
                let alone = update(name, value, gradient).into_iter().collect();
                let stepped = optimizer.step_all(factor, alone).remove(name);
                if let (Some(ema), Some(own)) = (ema.as_mut(), &stepped) {
                    ema.update(name, own.clone());
                }
                failed = optimizer.park(name);
                whole(name, stepped, &to)
            });
            return failed;
        }
        // The chain lets go of them, so that they may be written over.
        let (mut updates, mut taken) = (Vec::new(), BTreeMap::new());
        chain.map_buckets(|name, value| {
            let Some(gradient) = gradients.get(name) else { return value };
            let to = (value.device(), value.dtype(), value.dims()[0]);
            let empty = Tensor::empty([0], &to.0);
            updates.extend(update(name, value, gradient));
            taken.insert(name.to_owned(), to);
            empty
        });
        let mut stepped = optimizer.step_all(factor, updates);
        if let Some(ema) = ema {
            let own = stepped.iter().map(|(name, own)| (name.clone(), own.clone()));
            ema.update_all(own, factor.decided());
        }
        chain.map_buckets(|name, value| match taken.get(name) {
            Some(to) => whole(name, stepped.remove(name), to),
            None => value,
        });
        Ok(())
    }

    /// Changes the numbers that losses learn; `centres` are the gradients of the losses' sums.
    fn step_losses(
        &mut self,
        replica: &mut Replica,
        losses: &[HeadLoss],
        mut centres: Vec<Option<Tensor<1>>>,
        learning_rate: f64,
    ) -> Result<(), TrainError> {
        let weights: Vec<f64> =
            replica.inference.heads.iter().map(|head| head.config.weight).collect();
        let numbers = replica.inference.precision().parameters();
        let device = replica.inference.device().clone();
        for (place, key, loss) in replica.learning() {
            let normalizer = losses[place].normalizer;
            // No label of the head is known.
            let Some(gradient) = centres[place].take().filter(|_| normalizer > 0.0) else {
                continue;
            };
            let values = loss.centres();
            let data = TensorData::new(values.clone(), [values.len()]);
            let value = Tensor::from_data(data.convert_dtype(numbers), (&device, numbers));
            let gradient = gradient.mul_scalar(weights[place] / normalizer).cast(numbers);
            self.optimizer.fetch(&key)?;
            let value = self.optimizer.step(&key, learning_rate, false, value, gradient);
            self.optimizer.park(&key)?;
            let values: Vec<f32> = value.try_into_data()?.iter().collect();
            loss.learn(&values, learning_rate);
        }
        Ok(())
    }

    /// Exchanges the weights of `chain` and their average, when there is one; done twice, nothing has
    /// changed. The devices of `row` have the same weights.
    pub fn swap_average(&mut self, chain: &mut Chain, row: &Member) {
        let shard = self.shard;
        let Some(ema) = &mut self.ema else { return };
        chain.map_buckets(|name, value| {
            let (device, numbers, length) = (value.device(), value.dtype(), value.dims()[0]);
            let average = shard.of(value).map(|own| ema.exchange(name, own));
            shard.whole(row, name, average, length, (&device, numbers))
        });
    }
}

impl CheckedGradients {
    /// The gradients of the loss itself, unclipped, and each head's loss.
    ///
    /// # Errors
    /// When a GPU that has yet to find the losses fails.
    pub fn into_parts(self) -> Result<(Gradients, Vec<HeadLoss>), TrainError> {
        let factor = 1.0 / self.loss_scale;
        let losses = self.losses.wait()?.unwrap_or_else(|LeftOut { .. }| Vec::new());
        let gradients = self.gradients.into_iter();
        let gradients = gradients.map(|(name, gradient)| (name, scaled(gradient, factor)));
        Ok((gradients.collect(), losses))
    }
}

/// Of which parameters a gradient of this `size` is not finite, in words: the one nearest to the losses, and
/// how many more.
fn of_parameters(
    size: GradientNorm,
    model: &Inference,
    gradients: &Gradients,
    column: &Member,
) -> Result<String, TrainError> {
    let names = names_of(&size.non_finite, &model.chain, gradients)?;
    let mut names = column.gather("names", names).concat();
    if names.is_empty() {
        // A sum of squares may overflow where no number does.
        names = size.non_finite;
    }
    Ok(match names.as_slice() {
        [] => " of all parameters together".to_owned(),
        [name] => format!(" of `{name}`"),
        [before @ .., last] => format!(" of `{last}` (and of {} more)", before.len()),
    })
}

/// The parameters whose gradients are not finite in the buckets `keys`.
fn names_of(
    keys: &[String],
    chain: &Chain,
    gradients: &Gradients,
) -> Result<Vec<String>, TrainError> {
    let mut names = Vec::new();
    for bucket in chain.buckets().iter().filter(|bucket| keys.iter().any(|k| k == bucket.key())) {
        let Some(gradient) = gradients.get(bucket.key()) else { continue };
        let values: Vec<f32> = gradient.clone().try_into_data()?.iter().collect();
        let finite = |place: std::ops::Range<usize>| values[place].iter().all(|v| v.is_finite());
        let broken = bucket.places().filter(|(_, place)| !finite(place.clone()));
        names.extend(broken.map(|(member, _)| member.name.clone()));
    }
    Ok(names)
}

/// The norm of what all devices of a copy have, in the order of names: the same as on one device.
fn norm_of_all(column: &Member, what: &str, own: &Gradients) -> Result<GradientNorm, OptimError> {
    let all = column.gather(what, squares(own)?);
    Ok(GradientNorm::of(&all.into_iter().flatten().collect()))
}
