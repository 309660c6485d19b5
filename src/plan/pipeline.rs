//! A pipeline's devices, before any is opened: which stages each has.

use std::ops::Range;

use super::costs::EachStage;
use super::estimate::{Known, message_time};
use super::{Estimator, Machine, MemorySettings, Plan, StepEstimate};
use crate::fault::{Fault, fault, require};
use crate::memory::{Footprint, PipelinePart, Speed, Target};
use crate::model::{Network, is_part_of};
use crate::parallel::{
    BatchNormOver, ParallelConfig, PipelineConfig, PipelinePlace, PipelineSchedule,
    PipelineScheduleConfig, SplitConfig,
};
use crate::screen::counted;

const KEY: &str = "parallel.pipeline";
const SPLIT: &str = "parallel.pipeline.split";
const COPIES: &str = "parallel.pipeline.copies";

/// Refuses a pipeline that this model on so many devices does not allow.
pub(super) fn check(config: &ParallelConfig, devices: usize, model: &Network) -> Result<(), Fault> {
    let Some(pipeline) = &config.pipeline else { return Ok(()) };
    let copies = pipeline.copies;
    let depth = depth(devices, copies)?;
    check_depth(depth, copies, finest(model).stage_names().len())?;
    let help =
        "remove it: with one copy of the pipeline BatchNorm normalises over each micro-batch";
    let local = "`batch_norm = \"local\"` is for several copies of the model";
    let is_right = copies > 1 || config.data.batch_norm == BatchNormOver::Sync;
    require(is_right, "parallel.data.batch_norm", local, help).map_err(|fault| fault.also(KEY))?;
    pipeline.split().map_or(Ok(()), |names| check_split(names, depth, model))
}

/// How many devices each of `copies` copies of a pipeline has.
fn depth(devices: usize, copies: usize) -> Result<usize, Fault> {
    let message = "there are no copies of the pipeline";
    require(copies > 0, COPIES, message, "write 1 or more, or remove it")?;
    let message = "a pipeline needs several devices, and `device.use` names one";
    let help = "name several, such as [\"cuda:0\", \"cuda:1\"], or remove `[parallel.pipeline]`";
    require(devices > 1, "device.use", message, help).map_err(|fault| fault.also(KEY))?;
    let message = format!(
        "{} of a pipeline cannot share {devices} devices evenly, with two or more for each",
        counted(copies, "copy", "copies")
    );
    let help = format!("name {} devices, or another multiple of {copies}", 2 * copies);
    let is_even = devices.is_multiple_of(copies) && devices > copies;
    require(is_even, "device.use", message, help).map_err(|fault| fault.also(COPIES))?;
    Ok(devices / copies)
}

/// The model in as many parts as it can be cut into.
fn finest(model: &Network) -> Network {
    model.cut(|_| true)
}

/// Whether a pipeline over `depth` devices, of which there are `copies`, has some of `parts` for all of them.
fn check_depth(depth: usize, copies: usize, parts: usize) -> Result<(), Fault> {
    let message =
        format!("{depth} devices are more than the {parts} parts that the model can be cut into");
    let help = match copies {
        1 => format!("name {parts} at most"),
        _ => format!("name {} at most for {copies} copies", parts * copies),
    };
    require(depth <= parts, "device.use", message, help).map_err(|fault| fault.also(KEY))
}

/// Whether the stages `names` can each be the first of a device, but for the first one.
fn check_split(names: &[String], depth: usize, model: &Network) -> Result<(), Fault> {
    let finest = finest(model);
    let stages = finest.stage_names();
    let whole = model.whole_stages();
    let layer = stages.iter().find(|name| !whole.contains(name));
    let layer = layer.map(|layer| format!(", and the layers of dense blocks, such as {layer}"));
    let all = whole.join(", ") + &layer.unwrap_or_default();
    let mut split: Vec<usize> = Vec::new();
    for (place, name) in names.iter().enumerate() {
        let key = format!("{SPLIT}[{place}]");
        let Some(stage) = stages.iter().position(|known| known == name) else {
            let likeness = |known: &&&str| strsim::jaro_winkler(known, name);
            let near = stages.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
            let near = near.map(|near| format!("did you mean {near:?}? ")).unwrap_or_default();
            let message = format!("there is no stage called {name:?}");
            return Err(fault(key, message, format!("{near}the stages are {all}")));
        };
        let message = format!("{name:?} is where the first device begins anyway");
        require(stage > 0, &key, message, "name the first stage of each device behind it")?;
        let message = format!("{name:?} does not lie behind {:?}", names[place.saturating_sub(1)]);
        let help = format!("name the stages in their order: {all}");
        require(split.last().is_none_or(|last| *last < stage), key, message, help)?;
        split.push(stage);
    }
    check_split_is_of(depth, split.len())
}

/// Whether `split` is one for `depth` devices.
fn check_split_is_of(depth: usize, names: usize) -> Result<(), Fault> {
    let found = names + 1;
    let message = format!(
        "`split` is for {}, and a copy of the pipeline has {depth}",
        counted(found, "device", "devices")
    );
    let help = format!(
        "name {}: the first of every device but the first",
        counted(depth - 1, "stage", "stages")
    );
    require(found == depth, SPLIT, message, help).map_err(|fault| fault.also("device.use"))
}

impl Plan {
    /// How many devices have one copy of the model between them.
    pub fn depth(&self) -> usize {
        match &self.pipeline {
            Some(pipeline) => (self.devices.len() / pipeline.copies).max(1),
            None => 1,
        }
    }

    /// How many copies of the model there are; each batch is shared out over them.
    pub fn copies(&self) -> usize {
        self.devices.len() / self.depth()
    }

    /// The names of the devices that have stage `place` of a pipeline, one of each copy.
    pub(super) fn device_names(&self, place: usize) -> String {
        let names = self.devices.iter().skip(place).step_by(self.depth()).map(ToString::to_string);
        names.collect::<Vec<_>>().join(", ")
    }

    /// The same with `copies` copies of the model, each on as many devices as now.
    ///
    /// # Errors
    /// When BatchNorm has nothing to normalise over then.
    pub(super) fn with_copies(&self, copies: usize) -> Result<Self, Fault> {
        let mut plan = self.clone();
        if let Some(pipeline) = &mut plan.pipeline {
            pipeline.copies = copies;
        }
        plan.on_devices(copies * self.depth())
    }

    /// The same with the split and the schedule of its pipeline decided, where the program is to decide them on `machine`, as is
    /// best for steps as the configuration has them.
    pub fn with_pipeline(&self, machine: Machine) -> Self {
        let settings = MemorySettings::configured(&self.memory, self.device_batch());
        self.with_pipeline_for(machine, &settings)
    }

    /// The same for steps with `settings`.
    pub(super) fn with_pipeline_for(&self, machine: Machine, settings: &MemorySettings) -> Self {
        let is_open = |pipeline: &&PipelineConfig| {
            self.depth() > 1 && (pipeline.split().is_none() || pipeline.schedule().is_none())
        };
        let Some(pipeline) = self.pipeline.as_ref().filter(is_open) else { return self.clone() };
        let by = |schedule| {
            let balance = Balance { plan: self, machine, schedule, settings };
            let split = pipeline.split().map_or_else(|| balanced(&balance), <[_]>::to_vec);
            (schedule, balance.tried(split))
        };
        let usual = PipelineSchedule::OneForwardOneBackward;
        let (schedule, Tried { split, .. }) = match pipeline.schedule() {
            Some(schedule) => by(schedule),
            // Devices of the CPU share its cores.
            None if !machine.cuda => by(usual),
            None => {
                let [usual, eager] = [usual, PipelineSchedule::Eager].map(by);
                if eager.1.is_better_than(&usual.1, WORTH_IT) { eager } else { usual }
            }
        };
        self.decided(schedule, split)
    }

    /// The same with a pipeline of this schedule, whose devices but the first begin with the stages `split`.
    fn decided(&self, schedule: PipelineSchedule, split: Vec<String>) -> Self {
        let mut plan = self.clone();
        if let Some(pipeline) = &mut plan.pipeline {
            pipeline.schedule = PipelineScheduleConfig::Of(schedule);
            pipeline.split = SplitConfig::At(split);
        }
        plan.cut_stages()
    }

    /// The first stage of each device but the first, as far as that is decided.
    fn split(&self) -> &[String] {
        let pipeline = self.pipeline.as_ref().filter(|_| self.depth() > 1);
        pipeline.and_then(PipelineConfig::split).unwrap_or_default()
    }

    /// The same with its dense blocks cut where a device begins with one of their layers, and nowhere else.
    pub(super) fn cut_stages(self) -> Self {
        let model = self.model.cut(|name| self.split().iter().any(|begin| begin == name));
        self.with_stages_of(model)
    }

    /// The same with its stages as `model` has them, which is its network.
    fn with_stages_of(mut self, model: Network) -> Self {
        self.model = model;
        let freeze = self.freeze.as_ref();
        let frozen = freeze.map_or(Ok(0), |freeze| freeze.stages(self.model.layers()));
        self.freeze_stages =
            frozen.expect("a whole stage has been found, and its parts go by its name");
        self
    }

    /// The stages of each device that has some of one copy of the model; the split has been decided.
    pub fn stages_of_devices(&self) -> Vec<Range<usize>> {
        let names = self.model.stage_names();
        let place = |begin: &String| names.iter().position(|name| name == begin);
        let split: Vec<usize> = self.split().iter().filter_map(place).collect();
        let begins = std::iter::once(0).chain(split.iter().copied());
        begins.zip(split.iter().copied().chain([names.len()])).map(|(from, to)| from..to).collect()
    }

    /// The part of the pipeline that the stages of device `rank` are, where there is one; the stages of
    /// each device are `ranges`.
    pub(super) fn pipeline_part(
        &self,
        rank: usize,
        ranges: &[Range<usize>],
    ) -> Option<PipelinePart> {
        let schedule = self.pipeline.as_ref().filter(|_| ranges.len() > 1)?.schedule()?;
        let place = PipelinePlace { rank, ranks: ranges.len(), schedule };
        Some(PipelinePart { place, returns: self.frozen() < ranges[rank].start })
    }

    /// The fault of a pipeline that its devices do not allow, as many as they are.
    pub(super) fn check_pipeline(&self) -> Result<(), Fault> {
        // One device has the whole model.
        let Some(pipeline) = self.pipeline.as_ref().filter(|_| self.devices.len() > 1) else {
            return Ok(());
        };
        let depth = depth(self.devices.len(), pipeline.copies)?;
        match pipeline.split() {
            None => check_depth(depth, pipeline.copies, finest(&self.model).stage_names().len()),
            Some(names) => check_split_is_of(depth, names.len()),
        }
    }
}

/// The first stage of every device but the first, so that steps are as fast as can be where all devices stay within
/// their budget; where none does, the fullest has as little as can be. A dense block is cut where steps are then faster by more
/// than [`WORTH_IT`] or nothing else stays within the budget.
///
/// Devices begin alike whatever is kept and however several devices work at once, as long as that stays within the
/// budget: so these settings change no bit.
fn balanced(balance: &Balance) -> Vec<String> {
    let plain = MemorySettings {
        checkpointing: Default::default(),
        offload: Default::default(),
        ..balance.settings.clone()
    };
    let schedule = match balance.schedule {
        PipelineSchedule::Gpipe => PipelineSchedule::OneForwardOneBackward,
        own => own,
    };
    let found = Balance { schedule, settings: &plain, ..*balance }.best();
    match balance.tried(found.clone()).fits {
        true => found,
        false => balance.best(),
    }
}

/// By what share steps must be faster for what costs otherwise: a dense block that is cut, which makes messages long, and more
/// micro-batches on their way, which take memory.
const WORTH_IT: f64 = 0.03;

/// How many splits near one that is good are tried.
const MOST_TRIES: usize = 60;

/// What a split is sought for.
struct Balance<'a> {
    plan: &'a Plan,
    machine: Machine,
    schedule: PipelineSchedule,
    settings: &'a MemorySettings,
}

/// A split, how long a step then takes, the most bytes that a device has in use, and whether all keep within their budget.
#[derive(Clone)]
struct Tried {
    split: Vec<String>,
    seconds: f64,
    /// The 8-norm of the devices' own seconds: nearly those of the slowest, and less where the others have less to do.
    smooth: f64,
    peak: u64,
    fits: bool,
}

impl Tried {
    /// Whether it is to be preferred to `other`, of which a step takes more than a share `by` longer where both fit.
    fn is_better_than(&self, other: &Self, by: f64) -> bool {
        match (self.fits, other.fits) {
            (true, true) => self.seconds * (1.0 + by) < other.seconds,
            (false, false) => self.peak < other.peak,
            (fits, _) => fits,
        }
    }

    /// Whether the slowest devices have less to do than in `other`.
    fn is_more_even_than(&self, other: &Self) -> bool {
        match (self.fits, other.fits) {
            (true, true) => self.smooth < other.smooth,
            _ => self.is_better_than(other, 0.0),
        }
    }
}

impl Balance<'_> {
    fn on(&self) -> Target {
        self.machine.target(self.settings.precision, self.settings.dense_layers)
    }

    fn images(&self) -> usize {
        self.settings.micro_batch.min(self.plan.device_batch())
    }

    fn place(&self, rank: usize) -> PipelinePlace {
        PipelinePlace { rank, ranks: self.plan.depth(), schedule: self.schedule }
    }

    /// The best split that is found.
    fn best(&self) -> Vec<String> {
        let whole = self.plan.each_stage(&self.on(), self.images());
        let of_stages = self.of_stages(&whole);
        // Devices that take turns are no faster for another one.
        if self.schedule == PipelineSchedule::Sequential
            && let Some((split, true)) = &of_stages
        {
            return split.clone();
        }
        let finest = self.plan.clone().with_stages_of(finest(&self.plan.model));
        let parts = finest.each_stage(&self.on(), self.images());
        let cut = self.of_layers(&whole, &parts).map(|split| self.climbed(&parts, split));
        let whole = of_stages.map(|(split, _)| self.climbed(&whole, split));
        let found = match (whole, cut) {
            (Some(whole), Some(cut)) if cut.is_better_than(&whole, WORTH_IT) => Some(cut),
            (whole, cut) => whole.or(cut),
        };
        found.map(|found| found.split).unwrap_or_default()
    }

    fn tried(&self, split: Vec<String>) -> Tried {
        let plan = self.plan.decided(self.schedule, split.clone());
        let found = Estimator::new(&plan, self.machine).estimate(self.settings);
        match found {
            Ok(StepEstimate { seconds, devices, peak, fits, .. }) => {
                let smooth =
                    devices.iter().map(|device| device.seconds.powi(8)).sum::<f64>().powf(0.125);
                Tried { split, seconds, smooth, peak, fits }
            }
            // Of a policy that does not fit the stages; it is refused elsewhere.
            Err(_) => {
                let seconds = f64::INFINITY;
                Tried { split, seconds, smooth: seconds, peak: u64::MAX, fits: false }
            }
        }
    }

    /// The best split that is found from `split` on, in which devices begin with other ones of the stages `each`. Where no device can begin elsewhere by itself
    /// and make steps faster, splits that leave less to do to those that are not the slowest lead on.
    fn climbed(&self, each: &EachStage, split: Vec<String>) -> Tried {
        let mut best = self.tried(split);
        loop {
            let top = self.walked(each, best, |found, here| found.is_better_than(here, 0.0));
            best = self.walked(each, top.clone(), Tried::is_more_even_than);
            if !best.is_better_than(&top, 0.0) {
                return top;
            }
        }
    }

    /// The best of the splits on a way from `here` on: a device, or all from it on, begin a few of the stages `each` earlier or later, as long as that
    /// `leads_on` from the one before.
    fn walked(
        &self,
        each: &EachStage,
        mut here: Tried,
        leads_on: impl Fn(&Tried, &Tried) -> bool,
    ) -> Tried {
        let name = |at: usize| each.names[at].clone();
        let mut best = here.clone();
        let mut steps = [4, 2, 1].into_iter().peekable();
        let mut tries = 0;
        while let Some(&step) = steps.peek() {
            let mut has_moved = false;
            let ranks = here.split.len();
            let alone = (0..ranks).map(|device| device..device + 1);
            let moved = alone.chain((0..ranks.saturating_sub(1)).map(|device| device..ranks));
            for (devices, later) in
                moved.flat_map(|devices| [(devices.clone(), false), (devices, true)])
            {
                let place = |begin: &String| each.names.iter().position(|name| name == begin);
                let mut at: Vec<usize> = here.split.iter().filter_map(place).collect();
                for at in &mut at[devices] {
                    *at = if later { *at + step } else { at.wrapping_sub(step) };
                }
                let is_split = at.is_sorted_by(|a, b| a < b)
                    && at.iter().all(|at| (1..each.names.len()).contains(at));
                if !is_split || tries == MOST_TRIES {
                    continue;
                }
                tries += 1;
                let found = self.tried(at.into_iter().map(name).collect());
                if found.is_better_than(&best, 0.0) {
                    best = found.clone();
                }
                if leads_on(&found, &here) {
                    (here, has_moved) = (found, true);
                }
            }
            if !has_moved {
                steps.next();
            }
        }
        best
    }

    /// The best split in which no stage is cut, and whether all devices keep within their budget; `None` where
    /// there are not as many stages.
    fn of_stages(&self, each: &EachStage) -> Option<(Vec<String>, bool)> {
        let (plan, ranks) = (self.plan, self.plan.depth());
        let (on, images) = (self.on(), self.images());
        let seconds = seconds(each, &Speed::of(&on));
        let time = |range: Range<usize>, _: usize| self.seconds_of(each, &seconds, range);
        let budget = self.machine.budget(plan.memory.budget().ok().flatten());
        let budget = self.machine.in_use(budget);
        let micros = plan.device_batch().div_ceil(images);
        let fits = |range: Range<usize>, rank: usize| {
            let part = PipelinePart { place: self.place(rank), returns: each.frozen < range.start };
            let offload = self.settings.offload_optimizer;
            let costs = plan.costs_of(each, range, &on, images, offload);
            let known = Known::new(costs, Speed::of(&on), micros, Some(part));
            known.least_peak(self.settings, self.machine.cuda) <= budget
        };
        let bytes = |range: Range<usize>, rank: usize| {
            let alive = self.place(rank).alive(micros) as f64;
            let of = |stage: &Footprint| {
                let standing = stage.standing + 2 * stage.parameter_gradients;
                standing as f64 + alive * stage.kept() as f64
            };
            each.stages[range].iter().map(of).sum()
        };
        let stages = each.names.len();
        let found = split(stages, ranks, time, fits);
        let fits = found.is_some();
        let found = found.or_else(|| split(stages, ranks, bytes, |_, _| true))?;
        Some((found.into_iter().map(|stage| each.names[stage].clone()).collect(), fits))
    }

    /// The split in which the slowest device is as fast as can be where each layer of a dense block may begin one. `whole`
    /// are the stages, and `each` their parts.
    fn of_layers(&self, whole: &EachStage, each: &EachStage) -> Option<Vec<String>> {
        let speed = Speed::of(&self.on());
        let mut parts = seconds(each, &speed);
        // A stage takes as long as it does whole, shared out as its parts by themselves take.
        let mut from = 0;
        for (name, seconds) in whole.names.iter().zip(seconds(whole, &speed)) {
            let is_of = |part: &&String| is_part_of(part, name);
            let to = from + each.names[from..].iter().take_while(is_of).count();
            let sum: f64 = parts[from..to].iter().sum();
            if sum > 0.0 {
                parts[from..to].iter_mut().for_each(|part| *part *= seconds / sum);
            }
            from = to;
        }
        let time = |range: Range<usize>, _: usize| self.seconds_of(each, &parts, range);
        let found = split(each.names.len(), self.plan.depth(), time, |_, _| true)?;
        Some(found.into_iter().map(|stage| each.names[stage].clone()).collect())
    }

    /// Seconds of a device's work on a micro-batch where its stages are `range`, each of which takes so long: with those by which messages make it longer that go
    /// through each end of them, there and back.
    fn seconds_of(&self, each: &EachStage, seconds: &[f64], range: Range<usize>) -> f64 {
        let work: f64 = seconds[range.clone()].iter().sum();
        let number = self.settings.precision.activations().size() as u64;
        let before = range.start.checked_sub(1);
        let behind = Some(range.end - 1).filter(|last| last + 1 < each.names.len());
        let messages = before.into_iter().chain(behind);
        let of_work = |stage| message_time(self.machine, number * each.outputs[stage]).of_work;
        work + messages.map(|stage| 2.0 * of_work(stage)).sum::<f64>()
    }
}

/// Seconds of each stage's work.
fn seconds(each: &EachStage, speed: &Speed) -> Vec<f64> {
    let of = |(place, stage): (usize, &Footprint)| {
        let back = if place < each.frozen { 0.0 } else { stage.backward_seconds(speed) };
        stage.forward_seconds(speed) + back
    };
    each.stages.iter().enumerate().map(of).collect()
}

/// A way to give stages to devices: the largest cost and the sum of squares, and the first stage of the last
/// device.
type Way = ([f64; 2], usize);

/// Splits `stages` stages over `ranks` devices: the first stages of all
/// devices but the first, so that the largest `cost` of a device is as small as can be where every device
/// `fits`; of equal ones, that with the least sum of squares. `None` where none fits.
fn split(
    stages: usize,
    ranks: usize,
    cost: impl Fn(Range<usize>, usize) -> f64,
    fits: impl Fn(Range<usize>, usize) -> bool,
) -> Option<Vec<usize>> {
    // For each device, the best ways to give the stages before each place to the devices up to it.
    let mut ways: Vec<Vec<Option<Way>>> = Vec::new();
    for rank in 0..ranks {
        let before = |from: usize| match ways.last() {
            None => (from == 0).then_some([0.0; 2]),
            Some(ways) => ways[from].map(|(cost, _)| cost),
        };
        let way = |end: usize| {
            let with = |from: usize| {
                let [most, squares] = before(from)?;
                let own = cost(from..end, rank);
                Some(([most.max(own), squares + own * own], from))
            };
            let mut found: Vec<_> = (0..end).filter_map(with).collect();
            let order =
                |a: &[f64; 2], b: &[f64; 2]| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1]));
            found.sort_by(|(a, _), (b, _)| order(a, b));
            found.into_iter().find(|(_, from)| fits(*from..end, rank))
        };
        let found = (0..=stages).map(way).collect();
        ways.push(found);
    }
    let mut split = Vec::new();
    let mut end = stages;
    for ways in ways.iter().rev() {
        let (_, from) = ways[end]?;
        split.push(from);
        end = from;
    }
    split.pop();
    split.reverse();
    Some(split)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way to split `stages` stages over `ranks` devices.
    fn every_split(stages: usize, ranks: usize) -> Vec<Vec<usize>> {
        if ranks == 1 {
            return vec![Vec::new()];
        }
        let last = (ranks - 1..stages).flat_map(|last| {
            every_split(last, ranks - 1).into_iter().map(move |split| [split, vec![last]].concat())
        });
        last.collect()
    }

    fn ranges(split: &[usize], stages: usize) -> Vec<Range<usize>> {
        let begins = std::iter::once(0).chain(split.iter().copied());
        begins.zip(split.iter().copied().chain([stages])).map(|(from, to)| from..to).collect()
    }

    #[test]
    fn the_slowest_device_is_as_fast_as_in_any_split_in_which_all_fit() {
        let mut seen = [0; 2];
        for (case, stages) in (0..60).map(|case| (case, 4 + case % 5)) {
            let number =
                |place: usize, of: usize| 1 + (case * 31 + place * 17 + place * place) % of;
            let times: Vec<f64> = (0..stages).map(|place| number(place, 13) as f64).collect();
            let bytes: Vec<usize> = (0..stages).map(|place| number(3 * place + 1, 11)).collect();
            for ranks in 2..=4.min(stages) {
                let room = bytes.iter().sum::<usize>() * (1 + case % 3) / (2 * ranks);
                let time = |range: Range<usize>, _: usize| times[range].iter().sum::<f64>();
                // The first devices have more to keep.
                let fits = |range: Range<usize>, rank: usize| {
                    bytes[range].iter().sum::<usize>() * (ranks - rank) / ranks <= room
                };
                let slowest = |split: &Vec<usize>| {
                    let times = ranges(split, stages).into_iter().map(|range| time(range, 0));
                    times.fold(0.0, f64::max)
                };
                let allowed = |split: &Vec<usize>| {
                    let all_fit = ranges(split, stages).into_iter().enumerate();
                    all_fit.into_iter().all(|(rank, range)| fits(range, rank))
                };
                let all = every_split(stages, ranks).into_iter().filter(allowed);
                let best = all.map(|split| slowest(&split)).reduce(f64::min);
                let found = split(stages, ranks, time, fits);
                seen[usize::from(found.is_some())] += 1;
                assert!(found.as_ref().is_none_or(allowed), "{found:?}");
                assert_eq!(found.as_ref().map(slowest), best, "{stages} {ranks}");
            }
        }
        assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
    }

    #[test]
    fn equal_stages_are_shared_out_equally() {
        let one = |range: Range<usize>, _: usize| range.len() as f64;
        let split = |stages, ranks| split(stages, ranks, one, |_, _| true);
        assert_eq!(split(9, 3), Some(vec![3, 6]));
        assert_eq!(split(4, 4), Some(vec![1, 2, 3]));
        assert_eq!(split(2, 3), None);
    }
}
