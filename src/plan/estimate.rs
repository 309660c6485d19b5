//! Estimates of the memory and time of a training step.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

use super::{Costs, Machine, MemorySettings, Plan};
use crate::fault::Fault;
use crate::memory::{
    CheckpointPlan, CheckpointingConfig, DenseLayers, Footprint, MemoryConfig, OffloadConfig,
    Precision, Schedule, Simulation, Speed, Strategy, Surroundings, TradeOff, simulate,
};

/// The estimated memory and time of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEstimate {
    /// The most bytes in use at once.
    pub peak: u64,
    /// Seconds of a step, roughly: good for comparing settings.
    pub seconds: f64,
    /// Floating-point operations done again, in percent of those of a step that keeps everything.
    pub recompute_percent: f64,
    /// The most bytes off the device at once.
    pub away: u64,
    /// Whether the peak is reached in the optimizer's step, when no activations are left.
    pub at_step: bool,
    /// Whether it keeps within the budget, and no tensor is larger than can be allocated.
    pub fits: bool,
}

/// Estimates steps of a plan on a machine.
#[derive(Debug)]
pub struct Estimator<'a> {
    plan: &'a Plan,
    machine: Machine,
    /// Bytes that a step may use.
    budget: u64,
    known: HashMap<Key, Rc<Known>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    precision: Precision,
    dense_layers: DenseLayers,
    images: usize,
    offload_optimizer: bool,
}

/// What the stages cost for one size of micro-batch.
#[derive(Debug)]
struct Known {
    costs: Costs,
    speed: Speed,
    /// Micro-batches that are simulated: a third costs as much as the second.
    micros: usize,
    trade_off: OnceCell<TradeOff>,
}

impl Known {
    fn trade_off(&self) -> &TradeOff {
        self.trade_off.get_or_init(|| {
            let Costs { stages, surroundings, frozen, .. } = &self.costs;
            // What is trained is given what the last frozen stage puts out.
            let before = stages[..*frozen].last();
            let input = before.map_or(surroundings.input, |stage| stage.output);
            let surroundings = Surroundings { input, ..*surroundings };
            TradeOff::new(&stages[*frozen..], &surroundings, &self.speed, self.micros)
        })
    }

    fn run(&self, tree: &CheckpointPlan) -> Simulation {
        let Costs { stages, surroundings, frozen, .. } = &self.costs;
        let schedule = Schedule::behind_frozen(*frozen, tree, stages.len(), self.micros);
        simulate(&schedule, stages, surroundings, &self.speed)
    }

    /// The fastest tree that keeps within `budget`; else the one that needs least.
    fn within(&self, budget: u64) -> CheckpointPlan {
        let keep_all = CheckpointPlan::keep_all(self.costs.stages.len() - self.costs.frozen);
        // Nothing is faster, and the trade-off takes long to make.
        if self.run(&keep_all).peak <= budget {
            return keep_all;
        }
        let trade_off = self.trade_off();
        let least = || trade_off.within(trade_off.least());
        trade_off.within(budget).or_else(least).unwrap_or(keep_all)
    }

    /// The same among some trees that trade time for memory, with everything that can wait off the
    /// device waiting there.
    fn within_away(&self, budget: u64) -> CheckpointPlan {
        let moves = &self.costs.moves_saved[self.costs.frozen..];
        let all = CheckpointPlan::keep_all(moves.len()).offloaded(moves);
        let taken = self.run(&all);
        if taken.peak <= budget && taken.waiting == 0.0 {
            return all;
        }
        let none = CheckpointingConfig::default();
        let every = CheckpointingConfig::Every(Default::default());
        let sqrt = CheckpointingConfig::Sqrt(Default::default());
        let names = self.costs.trained();
        let plain = [none, every, sqrt];
        let plain = plain.iter().filter_map(|policy| policy.tree(&names).ok().flatten());
        let trees = plain.chain(self.trade_off().some(OFFLOADED_TREES));
        let taken = trees.map(|tree| {
            let tree = tree.offloaded(moves);
            let taken = self.run(&tree);
            (taken.peak, taken.seconds + taken.waiting, tree)
        });
        let taken: Vec<(u64, f64, CheckpointPlan)> = taken.collect();
        let fits = taken.iter().filter(|(peak, ..)| *peak <= budget);
        let fastest = fits.min_by(|a, b| a.1.total_cmp(&b.1));
        let least = || taken.iter().min_by_key(|(peak, ..)| *peak);
        fastest.or_else(least).map_or(all, |(.., tree)| tree.clone())
    }
}

/// How many trees are tried with what they keep off the device.
const OFFLOADED_TREES: usize = 24;

impl<'a> Estimator<'a> {
    /// Estimates steps of `plan` on `machine`, within the budget that is configured.
    pub fn new(plan: &'a Plan, machine: Machine) -> Self {
        let budget = plan.memory.budget().ok().flatten();
        Self::within(plan, machine, machine.budget(budget))
    }

    /// The same within `budget` bytes.
    pub fn within(plan: &'a Plan, machine: Machine, budget: u64) -> Self {
        Self { plan, machine, budget, known: HashMap::new() }
    }

    /// The bytes that a step may use.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// What its stages cost, and what is in use besides.
    pub fn costs(&mut self, settings: &MemorySettings) -> Costs {
        self.known(settings).costs.clone()
    }

    /// The memory and time of a step with these settings.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn estimate(&mut self, settings: &MemorySettings) -> Result<StepEstimate, Fault> {
        let tree = self.tree(settings)?;
        let known = self.known(settings);
        let Costs { stages, optimizer_seconds, .. } = &known.costs;
        let taken = known.run(&tree);
        let batch = self.plan.device_batch() as f64;
        let parts = (batch / settings.micro_batch as f64).max(1.0);
        let one = (taken.seconds + taken.waiting) / known.micros as f64;
        let flops: f64 = stages.iter().map(Footprint::flops).sum();
        let again = tree.recomputed(known.costs.frozen..stages.len());
        let again = again.into_iter().map(|stage| stages[stage].forward_flops);
        // An empty sum is −0.
        let again = 0.0 + again.sum::<f64>();
        Ok(StepEstimate {
            peak: taken.peak,
            seconds: one * parts + optimizer_seconds,
            recompute_percent: if flops > 0.0 { 100.0 * again / flops } else { 0.0 },
            at_step: taken.course.iter().all(|(_, most)| *most < taken.peak),
            away: taken.away + known.costs.optimizer_away,
            fits: taken.peak <= self.budget
                && known.costs.largest_tensor <= self.machine.largest_tensor(),
        })
    }

    /// Seconds that no policy goes below.
    pub fn least_seconds(&mut self, settings: &MemorySettings) -> f64 {
        let known = self.known(settings);
        let Costs { stages, optimizer_seconds, frozen, .. } = &known.costs;
        let forward = stages.iter().map(|stage| stage.forward_seconds(&known.speed));
        let back = stages[*frozen..].iter().map(|stage| stage.backward_seconds(&known.speed));
        let parts = self.plan.device_batch() as f64 / settings.micro_batch as f64;
        (forward.sum::<f64>() + back.sum::<f64>()) * parts.max(1.0) + optimizer_seconds
    }

    /// How the executor takes steps with these settings.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn strategy(&mut self, settings: &MemorySettings) -> Result<Strategy, Fault> {
        let fewest = if self.plan.normalises(1) { 1 } else { settings.micro_batch.min(2) };
        Ok(Strategy {
            fewest,
            micro_batch: settings.micro_batch,
            batch_norm: self.plan.memory.batch_norm,
            frozen: self.plan.frozen(),
            tree: self.tree(settings)?,
            stages: self.known(settings).costs.stages.len(),
        })
    }

    fn tree(&mut self, settings: &MemorySettings) -> Result<CheckpointPlan, Fault> {
        let (budget, known) = (self.budget, self.known(settings));
        let names = known.costs.trained();
        // The memory of the CPU is the host's.
        let stays = !self.machine.cuda && matches!(settings.offload.0, OffloadConfig::Host(_));
        let away = settings.offloads() && !stays;
        Ok(match settings.checkpointing.tree(&names)? {
            Some(tree) if away => tree.offloaded(&known.costs.moves_saved[known.costs.frozen..]),
            Some(tree) => tree,
            None if away => known.within_away(budget),
            None => known.within(budget),
        })
    }

    fn known(&mut self, settings: &MemorySettings) -> Rc<Known> {
        let images = settings.micro_batch.min(self.plan.device_batch());
        let &MemorySettings { precision, dense_layers, offload_optimizer, .. } = settings;
        let key = Key { precision, dense_layers, images, offload_optimizer };
        if let Some(known) = self.known.get(&key) {
            return Rc::clone(known);
        }
        let on = self.machine.target(precision, dense_layers);
        let costs = self.plan.costs(&on, images, offload_optimizer);
        let micros = self.plan.device_batch().div_ceil(images).min(2);
        let trade_off = OnceCell::new();
        let known = Rc::new(Known { costs, speed: Speed::of(&on), micros, trade_off });
        self.known.insert(key, Rc::clone(&known));
        known
    }
}

impl Plan {
    /// Simulates a training step with the settings of `memory`.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn simulate(&self, memory: &MemoryConfig, machine: Machine) -> Result<Simulation, Fault> {
        let settings = MemorySettings::configured(memory, self.device_batch());
        let mut estimator = Estimator::new(self, machine);
        let strategy = estimator.strategy(&settings)?;
        let schedule = strategy.schedule(strategy.parts(self.device_batch()).len());
        let Known { costs: Costs { stages, surroundings, .. }, speed, .. } =
            &*estimator.known(&settings);
        Ok(simulate(&schedule, stages, surroundings, speed))
    }
}
