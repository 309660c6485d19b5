//! What every optimizer has in common: the state of each parameter, saved and loaded by name.

use std::collections::{BTreeMap, BTreeSet};

#[cfg(feature = "cuda")]
use burn::tensor::DType;
use burn::tensor::{Device, Tensor, TensorData, Transaction};

use super::adagrad::Adagrad;
use super::adam::Adam;
use super::adamw::AdamW;
use super::lion::Lion;
use super::pesg::Pesg;
use super::restore::{complete, take};
use super::rmsprop::Rmsprop;
use super::rule::{ParameterState, Rule, Step};
use super::sgd::Sgd;
use super::{OptimError, OptimizerConfig};
use crate::memory::offload::{OffloadTicket, Store};
#[cfg(feature = "cuda")]
use crate::memory::{Gradients, OutOfMemory, check_allocated};
use crate::ops::gpu::Factor;
#[cfg(feature = "cuda")]
use crate::ops::gpu::Gpu;

const STEP: &str = "step";

impl OptimizerConfig {
    /// The optimizer of `parameters`, given by name and number of elements.
    pub fn init(&self, parameters: impl IntoIterator<Item = (String, usize)>) -> Optimizer {
        let rule: Box<dyn Rule> = match self {
            Self::Sgd(config) => Box::new(Sgd(config.clone())),
            Self::Adam(config) => Box::new(Adam(config.clone())),
            Self::AdamW(config) => Box::new(AdamW(config.clone())),
            Self::Rmsprop(config) => Box::new(Rmsprop(config.clone())),
            Self::Adagrad(config) => Box::new(Adagrad(config.clone())),
            Self::Lion(config) => Box::new(Lion(config.clone())),
            Self::Pesg(config) => Box::new(Pesg(config.clone())),
        };
        let parameters =
            parameters.into_iter().map(|(name, length)| (name, Parameter::new(length))).collect();
        Optimizer { rule, parameters, waiting: None }
    }

    /// How many numbers it keeps of each trained one.
    pub fn kept(&self) -> usize {
        self.init([]).rule.leaves().len()
    }

    /// Whether a GPU's kernel takes the steps of all trained numbers together.
    pub fn has_kernel(&self) -> bool {
        self.init([]).kernel().is_some()
    }

    /// The learning rate as configured, which a schedule starts from.
    pub fn lr(&self) -> f64 {
        match self {
            Self::Sgd(config) => config.lr,
            Self::Adam(config) => config.lr,
            Self::AdamW(config) => config.lr,
            Self::Rmsprop(config) => config.lr,
            Self::Adagrad(config) => config.lr,
            Self::Lion(config) => config.lr,
            Self::Pesg(config) => config.lr,
        }
    }
}

/// Whether weight decay acts on a parameter of this rank even when norms and biases are spared:
/// they are exactly the parameters of rank 1 and 0.
pub fn decays(rank: usize) -> bool {
    rank > 1
}

/// `gradient` times `factor`.
pub fn scaled(gradient: Tensor<1>, factor: f64) -> Tensor<1> {
    if factor == 1.0 { gradient } else { gradient.mul_scalar(factor) }
}

/// A parameter and what changes it.
#[derive(Debug, Clone)]
pub struct Update {
    /// Its name.
    pub name: String,
    /// Its learning rate.
    pub lr: f64,
    /// Whether weight decay acts on it.
    pub decay: bool,
    /// Its value, `[n]`, without autodiff.
    pub value: Tensor<1>,
    /// Its gradient, `[n]`.
    pub gradient: Tensor<1>,
}

/// Updates parameters by name and keeps the state of each.
pub struct Optimizer {
    rule: Box<dyn Rule>,
    parameters: BTreeMap<String, Parameter>,
    waiting: Option<Waiting>,
}

/// Where states wait between steps.
struct Waiting {
    store: Store,
    /// The parameters in the order of the last step.
    order: Vec<String>,
}

/// Everything an [`Optimizer`] remembers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptimizerState {
    /// `<parameter>/<tensor>`, the tensors named as in `torch.optim`'s state, bit for bit; present
    /// for each parameter that has taken a step.
    pub tensors: Vec<(String, TensorData)>,
    /// `<parameter>/step`: the steps each parameter has taken, 0 included.
    pub scalars: BTreeMap<String, u64>,
}

/// What is kept of one parameter.
struct Parameter {
    length: usize,
    steps: u64,
    kept: ParameterState,
    /// What is kept, while it is off the device.
    away: Option<OffloadTicket>,
}

impl Parameter {
    fn new(length: usize) -> Self {
        Self { length, steps: 0, kept: ParameterState::default(), away: None }
    }
}

impl Optimizer {
    /// What its state is called.
    pub const WHAT: &str = "optimizer state";

    /// The same with all states in `store` between steps: each is to be brought back by
    /// [`Optimizer::fetch`] before its parameter takes a step and moved away by [`Optimizer::park`]
    /// behind it.
    pub fn wait_in(self, store: Store) -> Self {
        Self { waiting: Some(Waiting { store, order: Vec::new() }), ..self }
    }

    /// Whether states wait off the device between steps.
    pub fn waits_away(&self) -> bool {
        self.waiting.is_some()
    }

    /// Brings the state of `name` to the device, and begins to bring that of the parameter that came
    /// behind it in the last step.
    ///
    /// # Errors
    ///
    /// When it cannot be brought; the state is lost.
    pub fn fetch(&mut self, name: &str) -> Result<(), OptimError> {
        let Some(Waiting { store, order }) = &self.waiting else { return Ok(()) };
        if let Some(parameter) = self.parameters.get_mut(name)
            && let Some(ticket) = parameter.away.take()
        {
            store.restore(ticket, parameter.kept.offload_tensors())?;
        }
        let next = order.iter().position(|known| known == name).and_then(|at| order.get(at + 1));
        if let Some(next) = next.and_then(|next| self.parameters.get_mut(next))
            && let Some(ticket) = &mut next.away
        {
            store.fetch(ticket)?;
        }
        Ok(())
    }

    /// Moves the state of `name` off the device.
    ///
    /// # Errors
    ///
    /// When that of the parameter before it could not be moved.
    pub fn park(&mut self, name: &str) -> Result<(), OptimError> {
        let Some(Waiting { store, order }) = &mut self.waiting else { return Ok(()) };
        if !order.iter().any(|known| known == name) {
            order.push(name.to_owned());
        }
        if let Some(parameter) = self.parameters.get_mut(name) {
            parameter.away = Some(store.send(parameter.kept.offload_tensors())?);
        }
        Ok(())
    }

    /// The new value of `name` (`[n]`, no autodiff) for its `gradient` (`[n]`) at learning rate
    /// `lr`. `decay` says whether weight decay acts on it.
    ///
    /// Gradients must be finite: what they leave in the state stays there.
    pub fn step(
        &mut self,
        name: &str,
        lr: f64,
        decay: bool,
        value: Tensor<1>,
        gradient: Tensor<1>,
    ) -> Tensor<1> {
        let length = value.dims()[0];
        let parameter =
            self.parameters.entry(name.to_owned()).or_insert_with(|| Parameter::new(length));
        parameter.steps += 1;
        let step = Step { lr, decay, number: parameter.steps };
        #[cfg(feature = "cpu")]
        if crate::ops::comes_in_parts(&[&value, &gradient]) {
            return step_in_parts(self.rule.as_ref(), step, value, gradient, &mut parameter.kept);
        }
        self.rule.step(step, value, gradient, &mut parameter.kept)
    }

    /// Takes a step with `updates`, their gradients multiplied by `factor`, and returns the new values by name.
    ///
    /// Kernels step those together that are on a GPU and of 32 bits, where the optimizer has one; they write over
    /// values that nobody else holds. The others take [`Optimizer::step`] one after another, and cannot where the
    /// factor is [`Factor::OnGpu`].
    ///
    /// # Panics
    /// Where they would have to.
    pub fn step_all(
        &mut self,
        factor: Factor<'_>,
        updates: Vec<Update>,
    ) -> BTreeMap<String, Tensor<1>> {
        #[cfg(feature = "cuda")]
        let (mut stepped, updates) = self.step_on_gpu(factor, updates);
        #[cfg(not(feature = "cuda"))]
        let mut stepped = BTreeMap::new();
        for Update { name, lr, decay, value, gradient } in updates {
            let Factor::Known(factor) = factor else { panic!("no kernel steps `{name}`") };
            let value = self.step(&name, lr, decay, value, scaled(gradient, factor));
            stepped.insert(name, value);
        }
        stepped
    }

    /// The last steps of these parameters were left out by a GPU that decided about them: they do not count.
    pub fn left_out<'a>(&mut self, names: impl IntoIterator<Item = &'a String>) {
        for name in names {
            if let Some(parameter) = self.parameters.get_mut(name) {
                parameter.steps = parameter.steps.saturating_sub(1);
            }
        }
    }

    /// The kernel that [`Optimizer::step_all`] launches, where it has one.
    pub fn kernel(&self) -> Option<crate::ops::gpu::Kernel> {
        self.rule.fused_step().map(|rule| rule.kernel())
    }

    /// Takes the memory of what a kernel keeps of parameters that have their first `gradients`.
    ///
    /// # Errors
    /// When there is not so much memory; then none of it is taken.
    #[cfg(feature = "cuda")]
    pub fn make_ready(&mut self, gradients: &Gradients) -> Result<(), OutOfMemory> {
        if self.rule.fused_step().is_none() {
            return Ok(());
        }
        let leaves = self.rule.leaves();
        let mut taken = Vec::new();
        for (name, gradient) in gradients {
            let gpu = Gpu::of(&gradient.device()).filter(|_| gradient.dtype() == DType::F32);
            let is_new = self.parameters.get(name).is_none_or(|parameter| parameter.steps == 0);
            let Some(gpu) = gpu.filter(|_| is_new) else { continue };
            let length = gradient.dims()[0];
            let parameter = self.parameters.entry(name.to_owned());
            let parameter = parameter.or_insert_with(|| Parameter::new(length));
            for leaf in &leaves {
                let buffer = parameter.kept.take_buffer(leaf, &gpu, length);
                taken.push(gpu.tensor(&buffer, [length]));
                parameter.kept.put_buffer(leaf, &gpu, buffer);
            }
        }
        check_allocated(taken).inspect_err(|_| {
            let new = self.parameters.values_mut().filter(|parameter| parameter.steps == 0);
            new.for_each(|parameter| parameter.kept = ParameterState::default());
        })
    }

    /// Takes a step with those of `updates` that a kernel takes; returns their new values, and the others.
    #[cfg(feature = "cuda")]
    fn step_on_gpu(
        &mut self,
        factor: Factor<'_>,
        updates: Vec<Update>,
    ) -> (BTreeMap<String, Tensor<1>>, Vec<Update>) {
        let Some(rule) = self.rule.fused_step() else { return (BTreeMap::new(), updates) };
        let (mut gpu, mut others) = (None, Vec::new());
        let mut known: BTreeMap<String, Update> = BTreeMap::new();
        for update in updates {
            let Some(found) = super::fused_step::gpu_of(&update) else {
                others.push(update);
                continue;
            };
            gpu = gpu.or(Some(found));
            let new = || Parameter::new(update.value.dims()[0]);
            self.parameters.entry(update.name.clone()).or_insert_with(new);
            known.insert(update.name.clone(), update);
        }
        let Some(gpu) = gpu else { return (BTreeMap::new(), others) };
        // Corrections go by the number of steps, which is one for all but in odd cases, as the learning rate is.
        let mut groups: BTreeMap<(u64, u64), Vec<(Update, &mut ParameterState)>> = BTreeMap::new();
        for (name, parameter) in &mut self.parameters {
            let Some(update) = known.remove(name) else { continue };
            parameter.steps += 1;
            let alike = (update.lr.to_bits(), parameter.steps);
            groups.entry(alike).or_default().push((update, &mut parameter.kept));
        }
        let leaves = self.rule.leaves();
        let step = |((lr, number), group)| {
            rule.step(&gpu, (f64::from_bits(lr), factor, number), &leaves, group)
        };
        let values = groups.into_iter().flat_map(step);
        let stepped = values.map(|(name, value)| (name, gpu.tensor(&value, [value.len()])));
        (stepped.collect(), others)
    }

    /// Everything remembered, read from the device at once.
    pub fn state(&self) -> Result<OptimizerState, OptimError> {
        let (mut names, mut tensors) = (Vec::new(), Vec::new());
        let mut scalars = BTreeMap::new();
        let mut transaction = Transaction::default();
        for (name, parameter) in &self.parameters {
            scalars.insert(format!("{name}/{STEP}"), parameter.steps);
            if let (Some(ticket), Some(Waiting { store, .. })) = (&parameter.away, &self.waiting) {
                let named = parameter.kept.leaves().map(|leaf| format!("{name}/{leaf}"));
                tensors.extend(named.zip(store.read(ticket)?));
                continue;
            }
            for (leaf, tensor) in parameter.kept.iter() {
                names.push(format!("{name}/{leaf}"));
                transaction = transaction.register(tensor);
            }
        }
        tensors.extend(names.into_iter().zip(transaction.try_execute()?));
        Ok(OptimizerState { tensors, scalars })
    }

    /// Goes on from `state`, which must be complete and hold nothing else; on an error nothing
    /// changes.
    pub fn load(&mut self, state: OptimizerState, device: &Device) -> Result<(), OptimError> {
        let OptimizerState { tensors, mut scalars } = state;
        let mut tensors = tensors.into_iter().collect();
        let leaves = self.rule.leaves();
        let mut loaded = BTreeMap::new();
        let mut missing = Vec::new();
        for (name, Parameter { length, .. }) in &self.parameters {
            let mut parameter = Parameter::new(*length);
            let step = format!("{name}/{STEP}");
            match scalars.remove(&step) {
                Some(steps) => parameter.steps = steps,
                None => missing.push(step),
            }
            let stepped = parameter.steps > 0;
            for leaf in leaves.iter().filter(|_| stepped) {
                let full = format!("{name}/{leaf}");
                match take(Self::WHAT, &mut tensors, &full, *length, device)? {
                    Some(tensor) => parameter.kept.put(leaf, tensor),
                    None => missing.push(full),
                }
            }
            if let Some(Waiting { store, .. }) = &self.waiting {
                parameter.away = Some(store.send(parameter.kept.offload_tensors())?);
            }
            loaded.insert(name.clone(), parameter);
        }
        let foreign: BTreeSet<String> = tensors.into_keys().chain(scalars.into_keys()).collect();
        complete(Self::WHAT, missing, foreign.into_iter().collect())?;
        self.parameters = loaded;
        Ok(())
    }
}

/// A step of a parameter that threads take part by part, as each number depends on those at its place alone.
#[cfg(feature = "cpu")]
fn step_in_parts(
    rule: &dyn Rule,
    step: Step,
    value: Tensor<1>,
    gradient: Tensor<1>,
    kept: &mut ParameterState,
) -> Tensor<1> {
    let leaves = rule.leaves();
    let known: Option<Vec<Tensor<1>>> = leaves.iter().map(|leaf| kept.take(leaf)).collect();
    let is_first = known.is_none();
    let others = known.unwrap_or_else(|| leaves.iter().map(|_| gradient.zeros_like()).collect());
    let changed = std::iter::once(value).chain(others).collect();
    let stepped = crate::ops::in_parts(gradient, changed, |gradient, changed| {
        let mut changed = changed.into_iter();
        let value = changed.next().expect("the value");
        let mut kept = ParameterState::default();
        if !is_first {
            leaves.iter().zip(changed).for_each(|(leaf, own)| kept.put(leaf, own));
        }
        let value = rule.step(step, value, gradient, &mut kept);
        let own = leaves.iter().map(|leaf| kept.take(leaf).expect("is kept after a step"));
        std::iter::once(value).chain(own).collect()
    });
    let mut stepped = stepped.into_iter();
    let value = stepped.next().expect("the value");
    leaves.iter().zip(stepped).for_each(|(leaf, own)| kept.put(leaf, own));
    value
}

#[cfg(test)]
mod tests;
