//! Estimates of the memory and time of a training step.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::held::STEPS;
use super::{Costs, Machine, MemorySettings, Plan};
use crate::choice::Choice;
use crate::fault::Fault;
use crate::memory::{
    CheckpointPlan, CheckpointingConfig, DenseLayers, DrivenDevice, Footprint, ManualConfig,
    MemoryConfig, MessageTime, OffloadConfig, PipelinePart, Precision, Schedule, Simulation, Speed,
    Strategy, Surroundings, TradeOff, seconds_together, simulate,
};

/// What a message of so many bytes takes between two devices of a pipeline. On the CPU what is sent stays where it is.
pub(super) fn message_time(machine: Machine, bytes: u64) -> MessageTime {
    let bytes = bytes as f64;
    let bandwidth = if machine.apart { APART_BANDWIDTH } else { MESSAGE_BANDWIDTH };
    let of_cards = MessageTime {
        travelling: bytes / bandwidth,
        of_work: MESSAGE_KERNEL + bytes / MESSAGE_SHARE,
    };
    if machine.cuda { of_cards } else { MessageTime::default() }
}

/// The estimated memory and time of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepEstimate {
    /// The most bytes in use at once.
    pub peak: u64,
    /// The bytes that a process with such steps holds of a card at most, as `nvidia-smi` has it; on the CPU, the same as `peak`.
    pub held: u64,
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
    /// Of a pipeline, what each device takes; the rest is then of the fullest one, and of all together.
    pub devices: Vec<DeviceEstimate>,
}

/// The estimated memory and time of a step of one device of a pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceEstimate {
    /// Its stages.
    pub stages: Range<usize>,
    /// The most bytes in use at once.
    pub peak: u64,
    /// Seconds of its own work.
    pub seconds: f64,
}

/// Seconds to start the kernels of a layer, there and back, however few images there are. Of DenseNet-121 with
/// its 121 layers, 8 images of 320×320 take 15.3 ms on an H100 and 16 images 13.4 ms on an H200
/// (`benches/results/2026-11-22-h200x2-pipeline.log`): 126 and 110 µs a layer.
pub(super) const STARTING: f64 = 1.18e-4;
/// The same where kernels written for Hopper are fewer: 8 images take 4.67 ms on an H100
/// (`benches/results/2026-11-28-h200x4-rows-in-place.log`).
pub(super) const STARTING_ON_HOPPER: f64 = 3.9e-5;
/// Bytes a second from card to card: NVLink on a host with H200 (28 MB of gradients of one other card in
/// 118 µs).
pub(super) const BANDWIDTH: f64 = 2.4e11;
/// Bytes a second of the gradients of all cards, and of their sums, where those of other cards have come meanwhile: the 28 and 50 MB of
/// DenseNet-121 and -169 make steps of four H100 0.19 and 0.36 ms longer (`benches/results/2026-11-27-h100x4-gradients.log`).
pub(super) const SUM_BANDWIDTH: f64 = 7e11;
/// The same of a message of a pipeline on its way from card to card: rows of 448 to 2,048 bytes, of which one begins every 512 to 2,048
/// (`benches/results/2026-11-28-h200x2-landing.log`).
pub(super) const MESSAGE_BANDWIDTH: f64 = 3.7e11;
/// The same through the host's memory, while as much goes back: DenseNet-121 over two to four H200 that are kept apart
/// (`benches/results/2026-11-28-h200x4-late-messages.log`).
const APART_BANDWIDTH: f64 = 2.6e10;
/// Bytes of messages a second by which a card's own work takes longer meanwhile: a kernel that reads and writes memory takes 0.04 ms longer beside a copy of 183 MB
/// (the same log).
const MESSAGE_SHARE: f64 = 4.6e12;
/// Seconds that the kernel takes which tells of a message or of room for one, and waits. So DenseNet-121 is planned to be as much faster on several cards as was measured.
const MESSAGE_KERNEL: f64 = 2.5e-5;
/// Bytes of new weights that a card receives in a second where each updates a shard; the copies of its own shards are among
/// the work. From one model on two H200: a step in which each receives 3.5 GB takes 33 ms longer than with all state on both
/// (`benches/results/2026-11-26-h200x2-shards.log`), and half the optimizer's work, which is reckoned at 8 ms, is saved.
pub(super) const SHARD_BANDWIDTH: f64 = 8e10;

/// Estimates steps of a plan on a machine.
#[derive(Debug)]
pub struct Estimator {
    /// The plan whose steps are estimated, with its split decided.
    pub(super) plan: Plan,
    /// The machine that they are estimated for.
    pub(super) machine: Machine,
    /// Bytes that a process may hold.
    pub budget: u64,
    /// The stages of each device that has some of one copy of the model.
    ranges: Vec<Range<usize>>,
    known: RefCell<HashMap<Key, Rc<[Known]>>>,
    /// The bytes in use that policies keep within so that no more is held than may be.
    kept_within: RefCell<Vec<(MemorySettings, u64)>>,
}

/// The settings that costs depend on: the precision, what dense layers keep, the images at once, and whether the optimizer's
/// state waits in host memory.
type Key = (Precision, DenseLayers, usize, bool);

/// What the stages of a device cost for one size of micro-batch.
#[derive(Debug)]
pub(super) struct Known {
    pub costs: Costs,
    speed: Speed,
    /// Micro-batches that are simulated. But for a pipeline, a third costs as much as the second.
    micros: usize,
    /// Which part of a pipeline the stages are.
    part: Option<PipelinePart>,
    trade_off: OnceCell<TradeOff>,
}

impl Known {
    /// `micros` micro-batches of stages that cost `costs`.
    pub fn new(costs: Costs, speed: Speed, micros: usize, part: Option<PipelinePart>) -> Self {
        Self { costs, speed, micros, part, trade_off: OnceCell::new() }
    }

    fn trade_off(&self) -> &TradeOff {
        self.trade_off.get_or_init(|| {
            let Costs { stages, surroundings, frozen, .. } = &self.costs;
            // What is trained is given what the last frozen stage puts out.
            let before = stages[..*frozen].last();
            let input = before.map_or(surroundings.input, |stage| stage.output);
            let surroundings = Surroundings { input, ..*surroundings };
            TradeOff::new(&stages[*frozen..], &surroundings, &self.speed, self.micros.min(2))
        })
    }

    fn schedule(&self, tree: &CheckpointPlan) -> Schedule {
        let Self { costs: Costs { stages, frozen, .. }, micros, part, .. } = self;
        match part {
            Some(part) => Schedule::in_pipeline(*part, *frozen, tree, stages.len(), *micros),
            None => Schedule::behind_frozen(*frozen, tree, stages.len(), *micros),
        }
    }

    fn run(&self, tree: &CheckpointPlan) -> Simulation {
        let Costs { stages, surroundings, .. } = &self.costs;
        simulate(&self.schedule(tree), stages, surroundings, &self.speed)
    }

    /// Everything kept by the stages that are trained.
    fn keep_all(&self) -> CheckpointPlan {
        // Where none is, it counts for nothing.
        CheckpointPlan::keep_all((self.costs.stages.len() - self.costs.frozen).max(1))
    }

    /// How `settings` take the stages forward and back within `budget` bytes, where they leave that open.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the stages.
    fn tree(
        &self,
        settings: &MemorySettings,
        cuda: bool,
        budget: u64,
    ) -> Result<CheckpointPlan, Fault> {
        if self.costs.frozen == self.costs.stages.len() {
            return Ok(self.keep_all());
        }
        let names = self.costs.trained();
        // The memory of the CPU is the host's.
        let stays = !cuda && matches!(settings.offload.0, OffloadConfig::Host(_));
        let away = settings.offloads() && !stays;
        let policy = match &settings.checkpointing.0 {
            // Segments of the whole model end in the parts that have their stages.
            CheckpointingConfig::Manual(config) if self.part.is_some() => {
                let here = |name: &&String| names.contains(&name.as_str());
                let after = config.after.iter().filter(here).cloned().collect();
                CheckpointingConfig::Manual(ManualConfig { after })
            }
            policy => policy.clone(),
        };
        Ok(match policy.checkpoint_plan(&names)? {
            Some(tree) => self.placed(tree, away),
            None => self.within(budget, away),
        })
    }

    /// `tree`, with everything that can wait off the device there where it is to wait `away`.
    fn placed(&self, tree: CheckpointPlan, away: bool) -> CheckpointPlan {
        let trained = &self.costs.stages[self.costs.frozen..];
        let moves_saved: Vec<bool> = trained.iter().map(|stage| stage.moves_saved).collect();
        if away { tree.offloaded(&moves_saved) } else { tree }
    }

    /// The peak of a step with `settings`; where they choose by a budget, of one that runs every stage
    /// again.
    pub fn least_peak(&self, settings: &MemorySettings, cuda: bool) -> u64 {
        let every = CheckpointingConfig::Every(Default::default());
        let checkpointing = match &settings.checkpointing.0 {
            CheckpointingConfig::Budget(_) => Choice(every),
            _ => settings.checkpointing.clone(),
        };
        let settings = MemorySettings { checkpointing, ..settings.clone() };
        // The policy has been checked against the chain.
        let tree = self.tree(&settings, cuda, 0).unwrap_or_else(|_| self.keep_all());
        self.run(&tree).peak
    }

    /// The fastest tree that keeps within `budget`; else the one that needs least.
    fn within(&self, budget: u64, away: bool) -> CheckpointPlan {
        let all = self.placed(self.keep_all(), away);
        let taken = self.run(&all);
        // Nothing is faster, and the trade-off takes long to make.
        if taken.peak <= budget && taken.waiting == 0.0 {
            return all;
        }
        if away || self.part.is_some() {
            return self.among(budget, away).unwrap_or(all);
        }
        let trade_off = self.trade_off();
        let least = || trade_off.within(trade_off.least());
        trade_off.within(budget).or_else(least).unwrap_or(all)
    }

    /// The same among some trees that trade time for memory.
    fn among(&self, budget: u64, away: bool) -> Option<CheckpointPlan> {
        let none = CheckpointingConfig::default();
        let every = CheckpointingConfig::Every(Default::default());
        let sqrt = CheckpointingConfig::Sqrt(Default::default());
        let names = self.costs.trained();
        let plain = [none, every, sqrt];
        let plain = plain.iter().filter_map(|policy| policy.checkpoint_plan(&names).ok().flatten());
        let trees = plain.chain(self.trade_off().some(TRIED_TREES));
        let taken = trees.map(|tree| {
            let tree = self.placed(tree, away);
            let taken = self.run(&tree);
            (taken.peak, taken.seconds + taken.waiting, tree)
        });
        let taken: Vec<(u64, f64, CheckpointPlan)> = taken.collect();
        let fits = taken.iter().filter(|(peak, ..)| *peak <= budget);
        let fastest = fits.min_by(|a, b| a.1.total_cmp(&b.1));
        let least = || taken.iter().min_by_key(|(peak, ..)| *peak);
        fastest.or_else(least).map(|(.., tree)| tree.clone())
    }
}

/// How often a policy is given less to keep within, as more is held than in use.
const TRIED_BUDGETS: usize = 6;

/// How many trees are tried where the trade-off does not say what they need: with what they keep off the
/// device, and in a pipeline.
const TRIED_TREES: usize = 24;

impl Estimator {
    /// Estimates steps of `plan` on `machine`, within the budget that is configured.
    pub fn new(plan: &Plan, machine: Machine) -> Self {
        let budget = plan.memory.budget().ok().flatten();
        Self::within(plan, machine, machine.budget(budget))
    }

    /// The same within `budget` bytes.
    pub fn within(plan: &Plan, machine: Machine, budget: u64) -> Self {
        let plan = plan.with_pipeline(machine);
        let ranges = plan.stages_of_devices();
        let (known, kept_within) = Default::default();
        Self { plan, machine, budget, ranges, known, kept_within }
    }

    /// What its stages cost, and what is in use besides; of a pipeline, on all devices together.
    pub fn costs(&self, settings: &MemorySettings) -> Costs {
        if let [one] = &self.known(settings)[..] {
            return one.costs.clone();
        }
        let images = settings.micro_batch.min(self.plan.device_batch());
        let on = self.machine.target(settings.precision, settings.dense_layers);
        self.plan.costs(&on, images, settings.offload_optimizer)
    }

    /// The costs of the device whose peak is the highest.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub(super) fn costs_of_fullest(&self, settings: &MemorySettings) -> Result<Costs, Fault> {
        let (known, trees) = (self.known(settings), self.trees(settings)?);
        let fullest = known.iter().zip(&trees).max_by_key(|(known, tree)| known.run(tree).peak);
        Ok(fullest.expect("there is a device").0.costs.clone())
    }

    /// The memory and time of a step with these settings.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn estimate(&self, settings: &MemorySettings) -> Result<StepEstimate, Fault> {
        let known = self.known(settings);
        let trees = self.trees(settings)?;
        let taken: Vec<Simulation> =
            known.iter().zip(&trees).map(|(known, tree)| known.run(tree)).collect();
        let optimizer_seconds = known.iter().map(|known| known.costs.optimizer_seconds);
        let optimizer_seconds = optimizer_seconds.fold(0.0, f64::max);
        let seconds = match (&known[..], &taken[..]) {
            ([known], [taken]) => {
                let batch = self.plan.device_batch() as f64;
                let parts = (batch / settings.micro_batch as f64).max(1.0);
                (taken.seconds + taken.waiting) / known.micros as f64 * parts
            }
            _ => self.seconds_of_pipeline(&known, &trees, &taken),
        };
        let (mut flops, mut again) = (0.0, 0.0);
        for (Known { costs, .. }, tree) in known.iter().zip(&trees) {
            let Costs { stages, frozen, .. } = costs;
            flops += stages.iter().map(Footprint::flops).sum::<f64>();
            if *frozen < stages.len() {
                let runs = tree.recomputed(*frozen..stages.len());
                again += runs.into_iter().map(|stage| stages[stage].forward_flops).sum::<f64>();
            }
        }
        let away = known.iter().zip(&taken);
        let away = away.map(|(known, taken)| taken.away + known.costs.optimizer_away).sum();
        let fullest = taken.iter().max_by_key(|taken| taken.peak).expect("there is a device");
        let largest = known.iter().map(|known| known.costs.largest_tensor).max().unwrap_or(0);
        let held = self.held_by(settings, &trees, fullest.peak);
        let devices = self.ranges.iter().zip(&taken).map(|(stages, taken)| DeviceEstimate {
            stages: stages.clone(),
            peak: taken.peak,
            seconds: taken.seconds + taken.waiting,
        });
        Ok(StepEstimate {
            peak: fullest.peak,
            held,
            seconds: seconds + optimizer_seconds,
            recompute_percent: if flops > 0.0 { 100.0 * again / flops } else { 0.0 },
            at_step: fullest.course.iter().all(|(_, most)| *most < fullest.peak),
            away,
            fits: held <= self.budget && largest <= self.machine.largest_tensor(),
            devices: if known.len() > 1 { devices.collect() } else { Vec::new() },
        })
    }

    /// The bytes that a process holds at most with steps that have `peak` in use at once. Where it would fit or not by how
    /// buffers lie, that is found out, if it can be. Where something waits off the card, it cannot, and gaps are larger.
    fn held_by(&self, settings: &MemorySettings, trees: &[CheckpointPlan], peak: u64) -> u64 {
        let (machine, most) = (self.machine, self.machine.held_at_most(peak));
        // Of what takes little, gaps may be more of it.
        let surely = machine.held_at_most(peak + peak / 4);
        if surely <= self.budget || machine.with_context(peak) > self.budget {
            return most;
        }
        let held = match &self.strategies_of(settings, trees.to_vec())[..] {
            [strategy] => self.held_with(settings, strategy, STEPS),
            _ => None,
        };
        let waits = settings.offloads() || settings.offload_optimizer;
        held.map_or(if waits { surely } else { most }, |held| machine.with_context(held.bytes()))
    }

    /// Bytes of a micro-batch that each device of a pipeline but the last sends to the one behind.
    pub fn bytes_between(&self, settings: &MemorySettings) -> Vec<u64> {
        let known = self.known(settings);
        known[1..].iter().map(|known| known.costs.surroundings.input).collect()
    }

    /// Seconds that the devices of a pipeline take together.
    fn seconds_of_pipeline(
        &self,
        known: &[Known],
        trees: &[CheckpointPlan],
        taken: &[Simulation],
    ) -> f64 {
        // On the CPU what is started is done at once, and what is sent stays where it is.
        let starting = match self.machine.cuda {
            true if self.machine.hopper => STARTING_ON_HOPPER / 3.0,
            true => STARTING / 3.0,
            false => 0.0,
        };
        let driven = |((known, tree), taken): ((&Known, &CheckpointPlan), &Simulation)| {
            let stages = known.costs.stages.iter();
            let starts = stages.map(|stage| starting * stage.layers).collect();
            DrivenDevice { schedule: known.schedule(tree), alone: taken.clone(), starts }
        };
        let devices: Vec<DrivenDevice> = known.iter().zip(trees).zip(taken).map(driven).collect();
        let bytes = known[1..].iter().map(|known| known.costs.surroundings.input);
        let messages = bytes.map(|bytes| message_time(self.machine, bytes));
        seconds_together(&devices, &messages.collect::<Vec<_>>())
    }

    /// Seconds that no policy goes below.
    pub fn least_seconds(&self, settings: &MemorySettings) -> f64 {
        let parts = self.plan.device_batch() as f64 / settings.micro_batch as f64;
        let of = |Known { costs, speed, .. }: &Known| {
            let Costs { stages, optimizer_seconds, frozen, .. } = costs;
            let forward = stages.iter().map(|stage| stage.forward_seconds(speed));
            let back = stages[*frozen..].iter().map(|stage| stage.backward_seconds(speed));
            (forward.sum::<f64>() + back.sum::<f64>()) * parts.max(1.0) + optimizer_seconds
        };
        self.known(settings).iter().map(of).fold(0.0, f64::max)
    }

    /// How the executor takes steps with these settings, on each device that has some of one copy of the
    /// model.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn strategies(&self, settings: &MemorySettings) -> Result<Vec<Strategy>, Fault> {
        let trees = self.trees(settings)?;
        Ok(self.strategies_of(settings, trees))
    }

    /// The same where each device takes its stages forward and back as `trees` have it.
    fn strategies_of(
        &self,
        settings: &MemorySettings,
        trees: Vec<CheckpointPlan>,
    ) -> Vec<Strategy> {
        let fewest = if self.plan.normalises(1) { 1 } else { settings.micro_batch.min(2) };
        let known = self.known(settings);
        let strategy = |(Known { costs, part, .. }, tree): (&Known, CheckpointPlan)| Strategy {
            fewest,
            micro_batch: settings.micro_batch,
            batch_norm: self.plan.memory.batch_norm,
            frozen: costs.frozen,
            tree,
            stages: costs.stages.len(),
            part: *part,
        };
        known.iter().zip(trees).map(strategy).collect()
    }

    /// How each device takes its stages forward and back: by a policy that keeps within the budget, so that no more than that
    /// is held, where that can be.
    fn trees(&self, settings: &MemorySettings) -> Result<Vec<CheckpointPlan>, Fault> {
        let cuda = self.machine.cuda;
        if !cuda || !settings.keeps_within() {
            return self.trees_within(settings, self.machine.in_use(self.budget));
        }
        let before = self.kept_within.borrow().iter().find(|(known, _)| known == settings).cloned();
        if let Some((_, in_use)) = before {
            return self.trees_within(settings, in_use);
        }
        let mut in_use = self.machine.in_use(self.budget);
        let mut trees = self.trees_within(settings, in_use)?;
        let known = self.known(settings);
        for _ in 0..TRIED_BUDGETS {
            let peak = known.iter().zip(&trees).map(|(known, tree)| known.run(tree).peak).max();
            let peak = peak.unwrap_or(0);
            let held = self.held_by(settings, &trees, peak);
            // Where more is in use than may be, there is nothing leaner.
            if held <= self.budget || peak > in_use {
                break;
            }
            in_use = peak.saturating_sub(held - self.budget);
            trees = self.trees_within(settings, in_use)?;
        }
        self.kept_within.borrow_mut().push((settings.clone(), in_use));
        Ok(trees)
    }

    fn trees_within(
        &self,
        settings: &MemorySettings,
        in_use: u64,
    ) -> Result<Vec<CheckpointPlan>, Fault> {
        let (cuda, known) = (self.machine.cuda, self.known(settings));
        known.iter().map(|known| known.tree(settings, cuda, in_use)).collect()
    }

    /// What the stages of each device cost that has some of one copy of the model.
    pub(super) fn known(&self, settings: &MemorySettings) -> Rc<[Known]> {
        let images = settings.micro_batch.min(self.plan.device_batch());
        let &MemorySettings { precision, dense_layers, offload_optimizer, .. } = settings;
        let key = (precision, dense_layers, images, offload_optimizer);
        if let Some(known) = self.known.borrow().get(&key) {
            return Rc::clone(known);
        }
        let on = self.machine.target(precision, dense_layers);
        let (each, speed) = (self.plan.each_stage(&on, images), Speed::of(&on));
        let of = |(rank, range): (usize, &Range<usize>)| {
            let part = self.plan.pipeline_part(rank, &self.ranges);
            let costs = self.plan.costs_of(&each, range.clone(), &on, images, offload_optimizer);
            let micros = self.plan.device_batch().div_ceil(images);
            Known::new(costs, speed, if part.is_some() { micros } else { micros.min(2) }, part)
        };
        let known: Rc<[Known]> = self.ranges.iter().enumerate().map(of).collect();
        self.known.borrow_mut().insert(key, Rc::clone(&known));
        known
    }
}

impl Plan {
    /// Simulates a training step with the settings of `memory`; of a pipeline, that of the first device.
    ///
    /// # Errors
    ///
    /// A policy that does not fit the chain.
    pub fn simulate(&self, memory: &MemoryConfig, machine: Machine) -> Result<Simulation, Fault> {
        let settings = MemorySettings::configured(memory, self.device_batch());
        let estimator = Estimator::new(self, machine);
        let strategy = estimator.strategies(&settings)?.swap_remove(0);
        let schedule = strategy.schedule(strategy.parts(self.device_batch()).len());
        let Known { costs: Costs { stages, surroundings, .. }, speed, .. } =
            &estimator.known(&settings)[0];
        Ok(simulate(&schedule, stages, surroundings, speed))
    }
}
