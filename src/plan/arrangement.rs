//! What sharing each batch over devices comes to: time, memory and bytes that travel.
//!
//! Of GPUs of one host that reach each other's memory. A step on several takes
//!
//! - what the images of one device take, but no less than starting its kernels does;
//! - a little more, where the devices' host threads get in each other's way;
//! - the gradients: of a copy of the whole model, those of the others come while a card computes, and it adds them up; in a grid of
//!   pipelines, at the link's bandwidth, a card is given what all others have of its piece and all other pieces of the sums;
//! - a moment for each exchange of BatchNorm's statistics. New
//!   weights, where devices share out the optimizer's work, are in the estimate of the step.

use serde::Serialize;

use super::estimate::{BANDWIDTH, STARTING, STARTING_ON_HOPPER, SUM_BANDWIDTH};
use super::{Costs, Estimator, Machine, MemorySettings, Plan, Planner};
use crate::fault::Fault;
use crate::parallel::{BatchNormOver, OptimizerPlacement};
use crate::screen::{Bytes, counted};

/// Seconds that cards take to agree on some numbers by kernels that write into each other's memory.
const LATENCY: f64 = 6e-6;
/// The same where kernels written for Hopper exchange on their way, and backward beside other work: 0.39 and 0.45 ms for
/// the 242 exchanges of DenseNet-121 on two and four H100 (BENCHMARKS.md, "Several GPUs").
const LATENCY_ON_HOPPER: f64 = 1.7e-6;
/// How much longer a step takes beside another process on another card that it exchanges nothing with. Where kernels are
/// those written for Hopper, two processes do not notice each other.
const BESIDE_OTHERS: f64 = 1.02;

/// Below this gain devices are as good as idle.
const NOTHING: f64 = 1.2;
/// From this share of linear on nothing is to be said of what is lost.
const GOOD: f64 = 0.85;

/// What some devices that share each batch come to; memory and bytes are those of each device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Arrangement {
    /// How many devices there are.
    pub devices: usize,
    /// Images of a batch that a device has, at most.
    pub device_batch_size: usize,
    /// Images of these that go through the network at once.
    pub micro_batch: usize,
    /// The estimated peak, bytes.
    pub peak: u64,
    /// Whether it fits.
    pub fits: bool,
    /// Seconds of a step.
    pub seconds: f64,
    /// Images of all devices in a second.
    pub images_per_second: f64,
    /// The gain over one device, as a share of the number of devices.
    pub of_linear: f64,
    /// Bytes of gradients that come from the other devices in a step.
    pub gradient_bytes: u64,
    /// Bytes of new weights that come from them, where devices share out the optimizer's work.
    pub weight_bytes: u64,
    /// Bytes of BatchNorm's statistics that come from them, at most.
    pub statistics_bytes: u64,
    /// Seconds of the step that the exchange takes.
    pub exchange_seconds: f64,
}

impl Arrangement {
    /// For the plan's copies of the model, and for 1, 2, 4 and so on of them. None on the CPU, whose devices
    /// share its cores.
    ///
    /// # Errors
    /// A policy that does not fit the chain.
    pub(super) fn all(plan: &Plan, machine: Machine) -> Result<Vec<Self>, Fault> {
        let most = plan.copies();
        if most < 2 || !machine.cuda {
            return Ok(Vec::new());
        }
        let powers = std::iter::successors(Some(1), |count| Some(count * 2));
        let counts = powers.take_while(|count| *count < most).chain([most]);
        // What BatchNorm does not allow on fewer devices is left out.
        let plans = counts.filter_map(|count| plan.with_copies(count).ok());
        let mut all: Vec<Self> =
            plans.map(|plan| Self::new(&plan, machine)).collect::<Result<_, _>>()?;
        let one = all.first().map_or(0.0, |one| one.seconds * one.devices as f64);
        for found in &mut all {
            found.of_linear = one / (found.seconds * found.devices as f64);
        }
        Ok(all)
    }

    fn new(plan: &Plan, machine: Machine) -> Result<Self, Fault> {
        let (devices, batch) = (plan.devices.len(), plan.train.batch_size);
        let depth = plan.depth();
        let chosen = Planner::choose(plan, machine).ok();
        let settings = match &chosen {
            Some(planner) => planner.settings().clone(),
            None => MemorySettings::configured(&plan.memory, plan.device_batch()),
        };
        let estimator = Estimator::new(plan, machine);
        let found = estimator.estimate(&settings)?;
        let costs = estimator.costs(&settings);
        let others = (plan.copies() - 1) as u64;
        let parts = plan.device_batch().div_ceil(settings.micro_batch.max(1));
        let norms = match plan.batch_norm {
            BatchNormOver::Sync if others > 0 => plan.model.batch_norms(),
            _ => Vec::new(),
        };
        // A sum and one of squares of each channel forward, and as many back.
        let values = 4 * norms.iter().sum::<usize>() * parts;
        // Of a pipeline each device has some of the layers, about as many as the others.
        let exchanges = (2 * norms.len() * parts).div_ceil(depth);
        let known = estimator.known(&settings);
        let of_each = || known.iter().map(|known| &known.costs);
        let gradients = of_each().map(Costs::gradients).max().unwrap_or(0);
        // Of some those of all others come meanwhile; of the rest a card is given pieces.
        let room = of_each().map(|costs| costs.gradient_room).max().unwrap_or(0);
        let room = room.checked_div(others).unwrap_or(0);
        let given = gradients.min(room);
        let pieces = 2 * others * (gradients - given) / plan.copies() as u64;
        let gradient_bytes = others * given + pieces;
        let gradient_seconds =
            ((others + 2) * given) as f64 / SUM_BANDWIDTH + pieces as f64 / BANDWIDTH;
        let weight_bytes = of_each().map(|costs| costs.weights_received).max().unwrap_or(0);
        let weight_seconds = of_each().map(|costs| costs.weights_seconds).fold(0.0, f64::max);
        let statistics_bytes = others * 4 * values as u64;
        // That of a pipeline has it in its estimate.
        let layers: f64 = costs.stages.iter().map(|stage| stage.layers).sum();
        let start = if machine.hopper { STARTING_ON_HOPPER } else { STARTING };
        let starting = if depth == 1 { layers * parts as f64 * start } else { 0.0 };
        let alone = found.seconds.max(starting);
        let (beside, exchange_seconds) = match others {
            0 => (1.0, 0.0),
            _ => {
                let (beside, latency) = match machine.hopper {
                    true => (1.0, LATENCY_ON_HOPPER),
                    false => (BESIDE_OTHERS, LATENCY),
                };
                let statistics = statistics_bytes as f64 / BANDWIDTH + exchanges as f64 * latency;
                (beside, gradient_seconds + statistics)
            }
        };
        let seconds = alone * beside + exchange_seconds;
        Ok(Self {
            devices,
            device_batch_size: plan.device_batch(),
            micro_batch: settings.micro_batch,
            peak: found.peak,
            fits: found.fits,
            seconds,
            images_per_second: batch as f64 / seconds,
            of_linear: 1.0,
            gradient_bytes,
            weight_bytes,
            statistics_bytes,
            exchange_seconds: exchange_seconds + weight_seconds,
        })
    }
}

/// Which arrangement is to be preferred, and which does nothing: a few sentences. What a pipeline comes to
/// is told beside it, where one is planned.
pub(super) fn advice(plan: &Plan, machine: Machine, all: &[Arrangement]) -> String {
    let (devices, copies) = (plan.devices.len(), plan.copies());
    let all_of_them = match devices == copies {
        true => format!("{devices} devices"),
        false => format!("{copies} copies of the pipeline"),
    };
    if !machine.cuda {
        return "Devices on the CPU share its cores: several show what a configuration would do, and are \
                not faster than one."
            .to_owned();
    }
    let (Some(one), Some(several)) = (all.first(), all.last()) else { return String::new() };
    let queue = "let each train one combination of a sweep or one fold (`trainer sweep CONFIG --grid … \
                 --devices all`)";
    let each = counted(several.device_batch_size, "image", "images");
    if !several.fits {
        let sharded = Plan { placement: OptimizerPlacement::Sharded, ..plan.clone() };
        let sharded = Arrangement::new(&sharded, machine).ok();
        let smaller = sharded.filter(|sharded| sharded.fits).map(|sharded| {
            format!(
                "`optimizer = \"sharded\"` under [parallel.data] makes it fit, with the same numbers: each device \
                 then keeps 1/{copies} of the optimizer's state, and the estimated peak is {}.",
                Bytes(sharded.peak)
            )
        });
        let otherwise = "`memory.micro_batch = \"auto\"` looks for a way; where one image by itself does not fit, \
                         only stages on different devices would.";
        return format!(
            "Sharing the batch does not make it fit: every device holds the whole model, and {each} are too \
             much for one as the memory is set. {}",
            smaller.as_deref().unwrap_or(otherwise)
        );
    }
    let gain = one.seconds / several.seconds;
    let share = 100.0 * several.of_linear;
    let exchange = 100.0 * several.exchange_seconds / several.seconds;
    let alone = format!(
        "One alone has no room for {} as the memory is set",
        counted(one.device_batch_size, "image", "images")
    );
    if copies > plan.train.batch_size {
        let batch = counted(plan.train.batch_size, "image", "images");
        return format!(
            "A batch of {batch} gives {all_of_them} less than one each: rather {queue}."
        );
    }
    if gain < NOTHING && !one.fits {
        return format!(
            "{alone}; {all_of_them} have, at {gain:.1} × the images per second that one of unlimited memory would \
             have. The exchange takes {exchange:.0}% of the step."
        );
    }
    if gain < NOTHING {
        return format!(
            "{all_of_them} would do next to nothing: {gain:.1} × the images per second of one. With \
             {each} each a step is bound by what does not shrink with the images: the start of kernels and \
             the exchange. A larger batch would use them; or {queue}."
        );
    }
    let mut told =
        format!("{all_of_them}: {gain:.1} × the images per second of one ({share:.0}% of linear).");
    if !one.fits {
        told += &format!(" {alone}.");
    }
    if several.of_linear < GOOD {
        told += &format!(
            " With {each} each, a larger share goes to the start of kernels and to the exchange ({exchange:.0}% of \
             the step): a larger batch would use them better. Or {queue}."
        );
    }
    told
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn planned(depth: usize, batch: usize, devices: usize, norm: &str) -> Plan {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/configs/densenet121.toml");
        let set = [
            format!("model.densenet.depth={depth}"),
            format!("train.batch_size={batch}"),
            format!("parallel.data.batch_norm={norm:?}"),
        ];
        let loaded = crate::config::load(&path, &set).expect("a right configuration");
        let plan = crate::plan::plan(loaded.config).expect("a right plan");
        plan.on_devices(devices).expect("normalises")
    }

    fn arrangements(plan: &Plan) -> Vec<Arrangement> {
        Arrangement::all(plan, Machine::ASSUMED).expect("a right policy")
    }

    /// Measured with 64 images a card (BENCHMARKS.md, "Several GPUs"), on two H200 before there were kernels
    /// written for them, to 5 points, and then on two and four H100, to 3. DenseNet-169 with four cards or synchronised
    /// BatchNorm is left out there: that host launched too slowly for it (89% to 91%, predicted 95% to 96%). The last ones add up
    /// gradients that have come meanwhile.
    #[test]
    fn the_share_of_linear_is_predicted_as_it_was_measured() {
        let before = Machine { hopper: false, ..Machine::ASSUMED };
        for (machine, devices, depth, norm, measured) in [
            (before, 2, 121, "sync", 4571.0 / (2.0 * 2383.0)),
            (before, 2, 121, "local", 4631.0 / (2.0 * 2383.0)),
            (before, 2, 169, "sync", 3405.0 / (2.0 * 1924.0)),
            (before, 2, 169, "local", 3770.0 / (2.0 * 1924.0)),
            (Machine::ASSUMED, 2, 121, "sync", 9411.0 / (2.0 * 4872.0)),
            (Machine::ASSUMED, 2, 121, "local", 9692.0 / (2.0 * 4872.0)),
            (Machine::ASSUMED, 2, 169, "local", 7872.0 / (2.0 * 3965.0)),
            (Machine::ASSUMED, 4, 121, "sync", 18469.0 / (4.0 * 4872.0)),
            (Machine::ASSUMED, 4, 121, "local", 19085.0 / (4.0 * 4872.0)),
            (Machine::ASSUMED, 2, 169, "sync", 7799.0 / (2.0 * 4028.0)),
            (Machine::ASSUMED, 4, 169, "sync", 15345.0 / (4.0 * 4028.0)),
            (Machine::ASSUMED, 4, 169, "local", 15763.0 / (4.0 * 4028.0)),
        ] {
            // One card is compared with the images of each of several.
            let of = |plan: &Plan| Arrangement::all(plan, machine).expect("a right policy");
            let alone = &of(&planned(depth, 64, devices, norm))[0];
            let plan = planned(depth, 64 * devices, devices, norm);
            let all = of(&plan).pop().expect("there are several");
            let found = all.images_per_second / (devices as f64 * alone.images_per_second);
            let tolerance = if machine.hopper { 0.03 } else { 0.05 };
            let what = format!("{devices} cards, {depth} {norm}");
            assert!((found - measured).abs() < tolerance, "{what}: {found} of {measured}");
            assert!(!advice(&plan, machine, &of(&plan)).contains("nothing"));
        }
    }

    #[test]
    fn every_device_is_sent_the_gradients_of_all_others() {
        let all = arrangements(&planned(121, 512, 6, "sync"));
        assert_eq!(all.iter().map(|one| one.devices).collect::<Vec<_>>(), [1, 2, 4, 6]);
        assert_eq!((all[0].gradient_bytes, all[0].statistics_bytes), (0, 0));
        // torchvision's densenet121 with 14 outputs has 6,968,206 parameters.
        for found in &all {
            let devices = found.devices as u64;
            let exact = (devices - 1) * 4 * 6_968_206;
            // In memory they lie at multiples of some bytes.
            let more = found.gradient_bytes - exact;
            assert!(more * 10_000 <= exact, "{more} more than {exact}");
            let less = found.of_linear <= 1.0 && found.peak <= all[0].peak;
            assert!(less && found.images_per_second >= all[0].images_per_second, "{found:?}");
        }
        let local = arrangements(&planned(121, 512, 2, "local"));
        assert_eq!(local[1].statistics_bytes, 0);
        assert!(local[1].exchange_seconds < all[1].exchange_seconds);
    }

    #[test]
    fn devices_that_would_do_nothing_are_said_to() {
        let usual = Machine { hopper: false, ..Machine::ASSUMED };
        let arrangements = |plan: &Plan| Arrangement::all(plan, usual).expect("a right policy");
        let plan = planned(121, 8, 2, "sync");
        let all = arrangements(&plan);
        assert!(all[1].seconds > 0.9 * all[0].seconds, "{all:?}");
        insta::assert_snapshot!(advice(&plan, usual, &all));
        let plan = planned(121, 64, 4, "sync");
        insta::assert_snapshot!(advice(&plan, usual, &arrangements(&plan)));
        let small = Machine { memory: 1 << 30, ..usual };
        let all = Arrangement::all(&plan, small).expect("a right policy");
        assert!(!all[0].fits && all[2].fits, "{all:?}");
        assert!(advice(&plan, small, &all).contains("One alone has no room for 64 images"));
        let smaller = Machine { memory: 256 << 20, ..usual };
        let all = Arrangement::all(&plan, smaller).expect("a right policy");
        insta::assert_snapshot!(advice(&plan, smaller, &all));
    }
}
