//! What protects pipelines: stages on several devices give the bits of one device that takes the same
//! micro-batches. The devices are logical ones of the CPU.

#[path = "pipeline/grid.rs"]
mod grid;

#[path = "support/state.rs"]
mod state;
#[path = "support/steps.rs"]
mod steps;

use state::{Values, bits, on_device};
use steps::{
    BATCH_NORM, GROUP_NORM, Network, SIDE, STEPS, batch, configured, count, step, try_step,
};
use trainer::build::Bench;
use trainer::memory::fault::{Armed, strike_rank_after};
use trainer::memory::{Action, Keep};
use trainer::parallel::PipelineSchedule;
use trainer::plan::{BackOff, Estimator, Machine, MemorySettings, Plan, PlanSummary, Planner};
use trainer::train::{HeadLoss, Images};

/// A loss that learns numbers of its own.
const AUC_MARGIN: Network = ["", "loss = \"auc_margin\""];

const SCHEDULES: [&str; 4] = ["sequential", "gpipe", "1f1b", "eager_1f1b"];
const MICRO_BATCHES: &str = "[memory]\nmicro_batch = 3";

/// On one device.
fn alone(network: Network, more: &str) -> Plan {
    configured(network, 1, more).expect("a plan")
}

fn pipeline(network: Network, devices: usize, schedule: &str, more: &str) -> Plan {
    let more = format!("[parallel.pipeline]\nschedule = \"{schedule}\"\n{more}");
    configured(network, devices, &more).expect("a plan")
}

/// Weights, running statistics, averages, the optimizer's state and what losses have learned. All copies of the
/// model have the same bits.
fn state(bench: &Bench) -> Values {
    let first = state_of(bench, 0);
    for copy in 1..bench.trainer.ranks.len() / bench.trainer.depth {
        assert_same(&state_of(bench, copy), &first, &format!("copy {copy}"));
    }
    first
}

/// The same of one copy, of all its devices together. None of them has what another one has.
fn state_of(bench: &Bench, copy: usize) -> Values {
    let depth = bench.trainer.depth;
    let ranks = &bench.trainer.ranks[copy * depth..(copy + 1) * depth];
    let mut all = Values::new();
    for (name, values) in ranks.iter().flat_map(on_device) {
        assert!(all.insert(name.clone(), values).is_none(), "{name} is on two devices");
    }
    let variables = format!("{:?}", ranks[depth - 1].replica.variables());
    all.insert("losses".to_owned(), variables.bytes().map(f32::from).collect());
    all
}

fn assert_same(ours: &Values, exact: &Values, what: &str) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>(), "{what}");
    for (name, bits) in bits(exact) {
        assert!(self::bits(ours)[name] == bits, "{what}: {name} has other bits");
    }
}

/// What ten steps lead to, and their losses.
fn train(plan: &Plan) -> (Values, Vec<HeadLoss>) {
    let mut bench = Bench::new(plan).expect("opens");
    assert_eq!(bench.trainer.ranks.len(), plan.devices.len());
    let losses = (0..STEPS).flat_map(|number| step(&mut bench, number)).collect();
    (state(&bench), losses)
}

#[test]
fn every_schedule_on_any_number_of_devices_gives_the_bits_of_one_device() {
    for network in [BATCH_NORM, GROUP_NORM] {
        let one = train(&alone(network, MICRO_BATCHES));
        for (schedule, devices) in SCHEDULES.iter().flat_map(|one| [2, 3, 4].map(|n| (one, n))) {
            let what = format!("{schedule} over {devices} devices");
            let found = train(&pipeline(network, devices, schedule, MICRO_BATCHES));
            assert_same(&found.0, &one.0, &what);
            assert_eq!(found.1, one.1, "{what}");
        }
    }
}

#[test]
fn a_batch_that_passes_whole_is_normalised_whole() {
    let one = train(&alone(BATCH_NORM, ""));
    for devices in 2..=4 {
        let found = train(&pipeline(BATCH_NORM, devices, "sequential", ""));
        assert_same(&found.0, &one.0, &format!("{devices} devices"));
    }
}

#[test]
fn every_split_gives_the_same_bits() {
    let one = train(&alone(BATCH_NORM, MICRO_BATCHES));
    let names = finest(&alone(BATCH_NORM, ""));
    assert!(names.iter().any(|name| name == "denseblock1.denselayer2"), "{names:?}");
    for name in &names[1..] {
        let more = format!("[parallel.pipeline]\nsplit = [{name:?}]\n{MICRO_BATCHES}");
        let found = train(&configured(BATCH_NORM, 2, &more).expect("a plan"));
        assert_same(&found.0, &one.0, name);
    }
    // A device for each part.
    let found = train(&pipeline(BATCH_NORM, names.len(), "1f1b", MICRO_BATCHES));
    assert_same(&found.0, &one.0, "a device for each part");
}

/// A block is cut where that helps. Two H100 took 72.1 to 72.6 ms with whole blocks and 63.7 to 64.4 with one that was cut
/// (`benches/results/2026-11-26-h100x4-cuts.log`).
#[test]
fn dense_blocks_are_cut_where_devices_wait_for_each_other_otherwise() {
    let of = |schedule: &str, cards: usize, split: &str| {
        let names: Vec<String> = (0..cards).map(|card| format!("cuda:{card}")).collect();
        let plan = bench(
            "data_parallel",
            &[
                format!("device.use={names:?}"),
                format!("parallel.pipeline={{schedule=\"{schedule}\",split={split}}}"),
                "train.batch_size=512".to_owned(),
                "memory.micro_batch=64".to_owned(),
            ],
        );
        let planner = Planner::choose(&plan, Machine::ASSUMED).expect("is planned");
        let names = stages(planner.plan());
        let begins = planner.plan().stages_of_devices().into_iter().skip(1);
        let begins: Vec<String> = begins.map(|range| names[range.start].clone()).collect();
        let estimate = planner.estimate();
        let seconds: Vec<f64> = estimate.devices.iter().map(|one| one.seconds).collect();
        (begins, seconds, estimate.seconds)
    };
    let is_cut = |begins: &[String]| begins.iter().any(|name| name.contains(".denselayer"));
    for (cards, schedule, whole) in [
        (2, "1f1b", "['denseblock2']"),
        (4, "1f1b", "['denseblock2','denseblock3','denseblock4']"),
        (4, "eager_1f1b", "['denseblock2','denseblock3','denseblock4']"),
    ] {
        let (begins, seconds, together) = of(schedule, cards, "'auto'");
        assert!(is_cut(&begins), "{begins:?}");
        // As it is written down, it is found again.
        let written = of(schedule, cards, &format!("{begins:?}"));
        assert_eq!(written, (begins, seconds, together));
        let whole = of(schedule, cards, whole).2;
        assert!(together < 0.93 * whole, "{together} {whole}");
        assert!(!is_cut(&of("sequential", cards, "'auto'").0));
    }
    // Another way to work at once changes nothing.
    for cards in [2, 4] {
        assert_eq!(of("gpipe", cards, "'auto'").0, of("1f1b", cards, "'auto'").0);
    }
}

/// Where nothing fits, no other split of whole stages needs less.
#[test]
fn where_no_split_fits_the_fullest_device_has_as_little_as_can_be() {
    let plan = |cards: usize, split: &str| {
        let names: Vec<String> = (0..cards).map(|card| format!("cuda:{card}")).collect();
        let pipeline = format!("parallel.pipeline.split={split}");
        let devices = format!("device.use={names:?}");
        large(&[&devices, &pipeline, "memory.micro_batch=16", "train.batch_size=64"])
    };
    let machine = Machine { memory: 1 << 20, ..Machine::ASSUMED };
    let peak = |plan: &Plan| {
        let settings = MemorySettings::configured(&plan.memory, plan.device_batch());
        let found = Estimator::new(plan, machine).estimate(&settings).expect("a right policy");
        assert!(!found.fits);
        found.peak
    };
    let begins = ["denseblock1", "denseblock2", "denseblock3", "denseblock4", "heads"];
    for cards in [2, 3] {
        let found = peak(&plan(cards, "'auto'"));
        for (place, first) in begins.iter().enumerate() {
            let behind = if cards == 2 { &[""][..] } else { &begins[place + 1..] };
            for last in behind {
                let split: Vec<&&str> =
                    [first, last].into_iter().filter(|name| !name.is_empty()).collect();
                let whole = peak(&plan(cards, &format!("{split:?}")));
                assert!(found <= whole, "{cards}: {found}, {whole} with {split:?}");
            }
        }
    }
}

/// What a device may begin with.
fn finest(plan: &Plan) -> Vec<String> {
    let finest = plan.model.cut(|_| true);
    finest.stage_names().into_iter().map(str::to_owned).collect()
}

fn stages(plan: &Plan) -> Vec<String> {
    plan.stages().iter().map(|stage| stage.name().to_owned()).collect()
}

const WAYS: [&str; 6] = [
    "checkpointing = \"every\"",
    "checkpointing = \"sqrt\"",
    "checkpointing = { sequential = { segments = 2 } }",
    "checkpointing = { manual = { after = [\"denseblock1\", \"transition1\"] } }",
    "offload = { disk = { path = \"FOLDER\" } }\noffload_optimizer = true",
    "checkpointing = \"every\"\noffload = { disk = { path = \"FOLDER\" } }",
];

#[test]
fn every_policy_and_offload_works_inside_every_device() {
    for network in [BATCH_NORM, GROUP_NORM] {
        let one = train(&alone(network, MICRO_BATCHES));
        for (place, way) in WAYS.iter().enumerate() {
            let (schedule, devices) = (SCHEDULES[1 + place / 2], 2 + place % 3);
            let more = format!("{MICRO_BATCHES}\n{way}");
            let found = train(&pipeline(network, devices, schedule, &more));
            assert_same(&found.0, &one.0, &format!("{way}, {schedule} over {devices}"));
        }
    }
}

#[test]
fn every_device_keeps_within_a_budget() {
    let of = |checkpointing: &str, more: &str| {
        let memory = format!("{MICRO_BATCHES}\ncheckpointing = \"{checkpointing}\"\n{more}");
        pipeline(BATCH_NORM, 2, "gpipe", &memory)
    };
    let peak = |plan: &Plan| Bench::new(plan).expect("opens").trainer.planner.estimate().peak;
    let [most, least] = ["none", "every"].map(|policy| peak(&of(policy, "")));
    let budget = format!("budget = \"{}kB\"", (most + least) / 2000);
    let plan = of("budget", &budget);
    let bench = Bench::new(&plan).expect("opens");
    let recomputes = |rank: &trainer::run::Rank| {
        let operations = rank.replica.strategy.schedule(2).operations;
        operations.iter().any(|operation| matches!(operation.action, Action::Recompute(_)))
    };
    assert!(bench.trainer.ranks.iter().any(recomputes));
    assert!(
        bench.trainer.planner.estimate().devices.iter().all(|one| one.peak <= (most + least) / 2)
    );
    let one = train(&alone(BATCH_NORM, MICRO_BATCHES));
    assert_same(&train(&plan).0, &one.0, "a budget");
}

#[test]
fn a_loss_that_learns_does_so_on_the_last_device() {
    let one = train(&alone(AUC_MARGIN, MICRO_BATCHES));
    assert!(one.0.keys().any(|name| name.contains("centres")), "{:?}", one.0.keys());
    for devices in 2..=3 {
        let found = train(&pipeline(AUC_MARGIN, devices, "gpipe", MICRO_BATCHES));
        assert_same(&found.0, &one.0, &format!("{devices} devices"));
    }
}

#[test]
fn devices_whose_stages_are_frozen_only_compute_forward() {
    for (frozen, epochs) in [(1, ""), (3, ""), (5, ""), (3, ", epochs = 1")] {
        let names = stages(&alone(BATCH_NORM, ""));
        let frozen = match epochs {
            "" => format!("freeze = {:?}", &names[..frozen]),
            epochs => format!("freeze = {{ stages = {:?}{epochs} }}", &names[..frozen]),
        };
        let more = format!("[model]\n{frozen}\n{MICRO_BATCHES}");
        let steps = |plan: &Plan| {
            let mut bench = Bench::new(plan).expect("opens");
            for epoch in 1..=2 {
                bench.trainer.begin_epoch(epoch);
                (0..3).for_each(|number| drop(step(&mut bench, number)));
            }
            state(&bench)
        };
        let one = steps(&alone(BATCH_NORM, &more));
        for devices in [2, 4] {
            let found = steps(&pipeline(BATCH_NORM, devices, "1f1b", &more));
            assert_same(&found, &one, &format!("{frozen} over {devices} devices"));
        }
    }
}

#[test]
fn evaluation_gives_the_rows_and_losses_of_one_device() {
    let evaluate = |plan: &Plan, number: usize| {
        let mut bench = Bench::new(plan).expect("opens");
        let (values, targets) = batch(number);
        let images = Images::Host { images: &values, shape: [count(number), 1, SIDE, SIDE] };
        bench.trainer.evaluate(images, &targets).expect("evaluates")
    };
    for number in [0, 1, 2, 3] {
        let one = evaluate(&alone(BATCH_NORM, MICRO_BATCHES), number);
        for devices in 2..=4 {
            let plan = pipeline(BATCH_NORM, devices, "1f1b", MICRO_BATCHES);
            assert_eq!(evaluate(&plan, number), one, "{devices} devices");
        }
    }
}

#[test]
fn gradients_are_those_of_one_device() {
    let gradients = |plan: &Plan| Bench::new(plan).expect("opens").gradients().expect("computes");
    let (one, loss) = gradients(&alone(GROUP_NORM, MICRO_BATCHES));
    for devices in 2..=4 {
        let (found, found_loss) = gradients(&pipeline(GROUP_NORM, devices, "1f1b", MICRO_BATCHES));
        assert_eq!(found_loss.to_bits(), loss.to_bits());
        assert_eq!(found.len(), one.len());
        for (found, one) in found.iter().zip(&one) {
            assert_eq!((&found.name, &found.shape), (&one.name, &one.shape));
            assert!(found.data == one.data, "{}", found.name);
        }
    }
}

/// Bench and the operation of `rank` that fails in the second step, where nothing is left that would
/// keep less of as many images at once.
fn started(schedule: &str, rank: usize, operation: usize) -> (Bench, Armed) {
    let plan = pipeline(BATCH_NORM, 3, schedule, "[memory]\nmicro_batch = 4");
    let mut bench = Bench::new(&plan).expect("opens");
    step(&mut bench, 0);
    let planner = &mut bench.trainer.planner;
    while planner.clone().back_off(4) == Some(BackOff::Again) {
        planner.back_off(4);
    }
    bench.trainer.begin_epoch(1);
    (bench, strike_rank_after(rank, operation))
}

#[test]
fn where_one_device_has_no_memory_all_try_again_with_smaller_micro_batches() {
    let mut expected = Bench::new(&alone(BATCH_NORM, "[memory]\nmicro_batch = 4")).expect("opens");
    step(&mut expected, 0);
    let half = alone(BATCH_NORM, "[memory]\nmicro_batch = 2");
    let strategy = Bench::new(&half).expect("opens").trainer.first().replica.strategy.clone();
    expected.trainer.ranks[0].replica.strategy = strategy;
    step(&mut expected, 1);
    let expected = state(&expected);
    for schedule in SCHEDULES {
        for rank in 0..3 {
            let (mut counted, armed) = started(schedule, rank, usize::MAX);
            step(&mut counted, 1);
            let count = armed.asked();
            drop(armed);
            assert!(count > 8, "{count}");
            // Another operation of each schedule and device, all of them together.
            let first = SCHEDULES.iter().position(|known| *known == schedule).unwrap_or(0) + rank;
            for operation in (first % 4..count).step_by(4) {
                let (mut bench, armed) = started(schedule, rank, operation);
                step(&mut bench, 1);
                assert!(armed.has_struck(), "operation {operation} of device {rank}");
                let what = format!("{schedule}, after {operation} operations of device {rank}");
                assert_same(&state(&bench), &expected, &what);
                let backoffs = &bench.trainer.backoffs;
                assert_eq!((backoffs[0].from, backoffs[0].to, backoffs.len()), (4, 2, 1));
            }
        }
    }
}

#[test]
fn what_is_not_finite_on_one_device_is_named_and_changes_nothing_on_any() {
    for spoiled in 0..3 {
        let plan = pipeline(GROUP_NORM, 3, "1f1b", MICRO_BATCHES);
        let mut bench = Bench::new(&plan).expect("opens");
        let mut one = Bench::new(&alone(GROUP_NORM, MICRO_BATCHES)).expect("opens");
        let chain = &bench.trainer.ranks[spoiled].replica.inference.chain;
        let name = chain.parameters().into_iter().find(|p| p.trained).expect("there is one").name;
        for bench in [&mut bench, &mut one] {
            for rank in &mut bench.trainer.ranks {
                let huge = |known: &str, value: burn::tensor::Tensor<1>| match known == name {
                    true => value.mul_scalar(f32::MAX),
                    false => value,
                };
                rank.replica.inference.chain.map_parameters(huge);
            }
        }
        let before = state(&bench);
        let (ours, exact) = (try_step(&mut bench, 1), try_step(&mut one, 1));
        let ours = ours.expect_err("is not finite").to_string();
        assert_eq!(ours, exact.expect_err("is not finite").to_string());
        assert_same(&state(&bench), &before, &name);
    }
}

/// In fp16 some steps may be left out, on all devices or on none.
#[test]
fn every_precision_gives_the_bits_of_one_device() {
    for precision in ["bf16", "fp16"] {
        let memory = format!("{MICRO_BATCHES}\nprecision = \"{precision}\"");
        let steps = |plan: &Plan| {
            let mut bench = Bench::new(plan).expect("opens");
            let outcomes: Vec<String> =
                (0..4).map(|number| format!("{:?}", try_step(&mut bench, number))).collect();
            let scales = bench.trainer.ranks.iter().map(|rank| rank.updater.scale());
            let scales: Vec<f64> = scales.collect();
            assert!(scales.iter().all(|scale| *scale == scales[0]), "{scales:?}");
            (state(&bench), outcomes, scales[0])
        };
        let one = steps(&alone(BATCH_NORM, &memory));
        let found = steps(&pipeline(BATCH_NORM, 3, "1f1b", &memory));
        assert_same(&found.0, &one.0, precision);
        assert_eq!((found.1, found.2), (one.1, one.2), "{precision}");
    }
}

/// GPipe keeps every micro-batch until the last has come; 1F1B as many as there are devices from each to
/// the end (Narayanan et al. 2021, section 2.2); eager 1F1B two for each of those behind it.
#[test]
fn devices_keep_as_many_micro_batches_as_their_schedule_says() {
    for (schedule, devices) in SCHEDULES.iter().flat_map(|one| [2, 3, 4].map(|n| (one, n))) {
        let plan = pipeline(BATCH_NORM, devices, schedule, "[memory]\nmicro_batch = 2");
        let bench = Bench::new(&plan).expect("opens");
        for (rank, of) in bench.trainer.ranks.iter().enumerate() {
            let strategy = &of.replica.strategy;
            let (mut kept, mut most) = (0_usize, 0);
            for operation in &strategy.schedule(4).operations {
                match operation.action {
                    Action::Forward(Keep::All) if operation.stage == 0 => kept += 1,
                    Action::Backward if operation.stage == 0 => kept -= 1,
                    _ => {}
                }
                most = most.max(kept);
            }
            let expected = match *schedule {
                "sequential" => 1,
                "gpipe" => 4,
                "1f1b" => 4.min(devices - rank),
                _ => 4.min(2 * (devices - rank) - 1),
            };
            assert_eq!((most, kept), (expected, 0), "{schedule}, device {rank} of {devices}");
        }
    }
}

#[test]
fn a_micro_batch_that_is_chosen_gives_the_bits_of_one_device_with_it() {
    let auto = "[memory]\nmicro_batch = \"auto\"";
    for network in [BATCH_NORM, GROUP_NORM] {
        let plan = pipeline(network, 3, "1f1b", auto);
        let chosen = Bench::new(&plan).expect("opens").trainer.planner.settings().micro_batch;
        let one = train(&alone(network, &format!("[memory]\nmicro_batch = {chosen}")));
        assert_same(&train(&plan).0, &one.0, &format!("{chosen} images at once"));
    }
}

/// Against every size that could be chosen, each planned as if it had been written.
#[test]
fn the_micro_batch_chosen_is_the_fastest_of_all_that_fit_and_normalise_over_enough() {
    let set = |micro: &str, schedule: &str, norm: &str| {
        let micro = format!("memory.micro_batch={micro}");
        let schedule = format!("parallel.pipeline.schedule='{schedule}'");
        let norm = format!("model.densenet.norm='{norm}'");
        large(&[
            "device.use=['cuda:0','cuda:1','cuda:2']",
            "data.image.size=[320,320]",
            "train.batch_size=64",
            "memory.checkpointing='none'",
            "memory.offload='none'",
            "memory.dense_layers='keep'",
            &micro,
            &schedule,
            &norm,
        ])
    };
    let mut seen = std::collections::BTreeSet::new();
    let cases = [("1f1b", "batch"), ("gpipe", "batch"), ("1f1b", "group")];
    for ((schedule, norm), memory) in
        cases.into_iter().flat_map(|case| [80.0, 1.2, 0.7].map(|memory| (case, memory)))
    {
        let memory = (memory * 1e9) as u64;
        let machine = Machine { memory, ..Machine::ASSUMED };
        let of = |micro: usize| {
            let planner = Planner::choose(&set(&micro.to_string(), schedule, norm), machine);
            let planner = planner.expect("is tried");
            let estimate = planner.estimate();
            let enough = norm == "group" || micro >= 16;
            estimate
                .fits
                .then(|| (!enough, estimate.seconds, micro, planner.plan().stages_of_devices()))
        };
        let fitting = [64, 32, 16, 8, 4, 2, 1].into_iter().filter_map(of);
        let best = fitting.min_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let found = Planner::choose(&set("'auto'", schedule, norm), machine);
        let found = found
            .ok()
            .map(|planner| (planner.settings().micro_batch, planner.plan().stages_of_devices()));
        seen.extend(found.as_ref().map(|(micro, _)| *micro));
        let best = best.map(|(_, _, micro, stages)| (micro, stages));
        assert_eq!(found, best, "{schedule}, {norm}, {memory} bytes");
    }
    assert!(seen.len() > 1, "{seen:?}");
}

fn large(set: &[&str]) -> Plan {
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
    bench("densenet121", &set)
}

#[test]
fn a_plan_tells_what_each_device_has_and_takes() {
    let cards = "device.use=['cuda:0','cuda:1','cuda:2']";
    let plan = |schedule: &str| {
        let schedule = format!("parallel.pipeline.schedule='{schedule}'");
        let size = "data.image.size=[320,320]";
        large(&[cards, &schedule, size, "memory.micro_batch=16", "train.batch_size=128"])
    };
    let machine = Machine::ASSUMED;
    let [gpipe, alternate] = ["gpipe", "1f1b"].map(|schedule| {
        let summary = PlanSummary::new(&plan(schedule), &machine).expect("a right policy");
        assert!(summary.parallel.is_none());
        summary.pipeline.expect("a pipeline")
    });
    assert_eq!((gpipe.micro_batches, gpipe.devices.len()), (8, 3));
    // (p − 1) / (m + p − 1)
    assert!((gpipe.bubble - 0.2).abs() < 1e-12 && gpipe.idle >= 0.2, "{gpipe:?}");
    assert_eq!(gpipe.devices.iter().map(|device| device.alive).collect::<Vec<_>>(), [8; 3]);
    assert_eq!(alternate.devices.iter().map(|device| device.alive).collect::<Vec<_>>(), [3, 2, 1]);
    for (gpipe, alternate) in gpipe.devices.iter().zip(&alternate.devices) {
        assert_eq!(gpipe.stages, alternate.stages);
        assert!(alternate.peak < gpipe.peak, "{alternate:?} {gpipe:?}");
    }
    let all = stages(&plan("gpipe"));
    assert_eq!(
        (&gpipe.devices[0].stages[0], &gpipe.devices[2].stages[1]),
        (&all[0], &all[all.len() - 1])
    );
    // The slowest of three is much faster than one with everything.
    let slowest = gpipe.devices.iter().map(|device| device.seconds).fold(0.0, f64::max);
    let set = ["data.image.size=[320,320]", "memory.micro_batch=16", "train.batch_size=128"];
    let one = Planner::choose(&large(&set), machine).expect("is planned").estimate().seconds;
    assert!(slowest < 0.6 * one, "{slowest} {one}");
}

/// Milliseconds measured on two and four H200 of steps of DenseNets with eight micro-batches of 64 images, and on one of them
/// (`benches/results/2026-11-28-h200x2-landing.log`, `…x4-landing.log`, `…x2-auto-and-cut-blocks.log`). An H100, of which times are planned, takes 101.4 ms
/// with DenseNet-121 where an H200 takes 90.2.
#[test]
fn several_cards_are_planned_to_be_as_much_faster_than_one_as_was_measured() {
    let layer = |block: usize, layer: usize| format!("denseblock{block}.denselayer{layer}");
    let in_two = |block: usize, number: usize| vec![layer(block, number)];
    let in_four = |first: usize, second: usize, third: usize| {
        vec![layer(1, first), layer(2, second), layer(3, third)]
    };
    let block = |block: usize| format!("denseblock{block}");
    let whole = || [2, 3, 4].map(block).to_vec();
    let schedules = ["eager_1f1b", "1f1b", "gpipe", "sequential"];
    // One card's step.
    let networks = [(121, 90.2), (169, 111.9), (201, 137.9)];
    let measured = [
        (121, in_two(2, 7), [None, Some(54.36), Some(54.85), None]),
        (121, in_two(2, 9), [Some(51.48), None, None, None]),
        (121, in_two(2, 10), [Some(52.21), None, None, None]),
        (121, in_two(2, 6), [Some(56.40), Some(56.45), None, None]),
        (121, in_two(1, 6), [Some(70.62), Some(70.48), None, None]),
        (121, vec![block(2)], [None, None, None, Some(92.75)]),
        (121, in_four(5, 8, 15), [Some(33.66), Some(36.96), None, None]),
        (121, in_four(5, 7, 14), [Some(34.55), Some(36.79), Some(37.84), None]),
        (121, in_four(6, 9, 15), [Some(34.13), Some(38.03), None, None]),
        (121, in_four(5, 5, 10), [Some(37.59), Some(37.50), None, None]),
        (121, in_four(5, 7, 13), [Some(35.44), Some(36.75), None, None]),
        (121, in_four(4, 6, 12), [Some(36.08), Some(36.81), None, None]),
        (121, in_four(4, 4, 12), [None, Some(39.30), None, None]),
        (121, whole(), [Some(36.33), Some(38.97), None, None]),
        (169, vec![block(3)], [Some(64.21), Some(65.20), None, None]),
        (169, whole(), [Some(42.84), Some(44.04), None, None]),
        (169, vec![layer(1, 6), block(3), layer(3, 28)], [Some(45.48), None, None, None]),
        (169, vec![layer(1, 6), block(3), layer(3, 25)], [Some(45.81), None, None, None]),
        (201, in_two(3, 15), [Some(80.09), None, None, None]),
        (201, in_two(3, 10), [None, Some(84.20), None, None]),
        (201, vec![block(2), layer(3, 5), layer(3, 43)], [Some(53.80), None, None, None]),
        (201, vec![block(2), layer(3, 10), layer(3, 40)], [Some(54.12), None, None, None]),
        (201, vec![block(2), layer(3, 15), layer(3, 44)], [None, Some(51.82), None, None]),
        (201, vec![layer(1, 6), layer(3, 8), layer(3, 39)], [Some(56.28), None, None, None]),
    ];
    let seconds = |depth: usize, set: &[String]| {
        let all = ["memory.micro_batch=64", "train.batch_size=512"].map(str::to_owned);
        let depth = [format!("model.densenet.depth={depth}")];
        let plan = bench("data_parallel", &[&all[..], &depth, set].concat());
        Planner::choose(&plan, Machine::ASSUMED).expect("is planned").estimate().seconds
    };
    let mut far = Vec::new();
    for (depth, alone) in networks {
        let one = seconds(depth, &["device.use=['cuda:0']".to_owned()]);
        for (_, split, all) in measured.iter().filter(|(of, ..)| *of == depth) {
            let cards: Vec<String> = (0..=split.len()).map(|card| format!("cuda:{card}")).collect();
            for (schedule, measured) in schedules.iter().zip(all) {
                let Some(measured) = measured else { continue };
                let found = seconds(
                    depth,
                    &[
                        format!("device.use={cards:?}"),
                        format!("parallel.pipeline={{schedule=\"{schedule}\",split={split:?}}}"),
                    ],
                );
                let (planned, measured) = (one / found, alone / measured);
                let off = planned / measured - 1.0;
                if off.abs() >= 0.08 {
                    far.push(format!("{depth} {schedule} {split:?}: {off:+.2}"));
                }
            }
        }
    }
    // It is not known why this one takes longer.
    let known = [
        "169 eager_1f1b [\"denseblock1.denselayer6\", \"denseblock3\", \"denseblock3.denselayer28\"]: +0.12",
    ];
    assert_eq!(far, known);
}

/// Milliseconds measured on H200 that are kept apart, on one of which DenseNet-121 takes 90.8
/// (`benches/results/2026-11-28-h200x4-late-messages.log` and `…x2-late-messages.log`); what blocks that are cut send would be late.
#[test]
fn cards_that_are_apart_are_planned_to_wait_for_long_messages() {
    let apart = Machine { apart: true, ..Machine::ASSUMED };
    let planned = |cards: usize, pipeline: &str| {
        let cards: Vec<String> = (0..cards).map(|card| format!("cuda:{card}")).collect();
        let set = [
            format!("device.use={cards:?}"),
            format!("parallel.pipeline={pipeline}"),
            "memory.micro_batch=64".to_owned(),
            "train.batch_size=512".to_owned(),
        ];
        let set = if cards.len() > 1 { &set[..] } else { &set[2..] };
        let planner = Planner::choose(&bench("data_parallel", set), apart).expect("is planned");
        let pipeline = planner.plan().pipeline.clone();
        let pipeline = pipeline.map(|it| (it.schedule(), it.split().map(<[String]>::to_vec)));
        (planner.estimate().seconds, pipeline)
    };
    let (one, _) = planned(1, "");
    let cut =
        "split=['denseblock1.denselayer6','denseblock2.denselayer10','denseblock3.denselayer16']";
    let whole = "split=['denseblock2','denseblock3','denseblock4']";
    let measured = [
        (2, "split=['denseblock2.denselayer9']", "eager_1f1b", 55.5),
        (2, "split=['denseblock2.denselayer7']", "1f1b", 64.4),
        (3, "split=['denseblock2','denseblock3']", "eager_1f1b", 48.4),
        (4, whole, "eager_1f1b", 39.6),
        (4, cut, "eager_1f1b", 77.5),
        (4, cut, "1f1b", 89.5),
    ];
    let off = measured.map(|(cards, split, schedule, measured)| {
        let (found, _) = planned(cards, &format!("{{schedule='{schedule}',{split}}}"));
        found / one / (measured / 90.8) - 1.0
    });
    assert!(off.iter().all(|off| off.abs() < 0.15), "{off:.2?}");
    let (_, chosen) = planned(4, "{}");
    let whole = ["denseblock2", "denseblock3", "denseblock4"].map(str::to_owned).to_vec();
    assert_eq!(chosen, Some((Some(PipelineSchedule::Eager), Some(whole))));
}

/// Beside both as if they had been written. On four cards DenseNet-121 was measured at 33.7 ms by `eager_1f1b` and at 36.7 by `1f1b`, on two at
/// 51.5 and 54.4 (as above).
#[test]
fn the_schedule_chosen_is_the_eager_one_where_it_is_faster_and_fits() {
    let chosen = |set: &[String], schedule: Option<&str>, machine: Machine| {
        let schedule =
            schedule.map(|schedule| format!("parallel.pipeline.schedule=\"{schedule}\""));
        let set: Vec<String> = set.iter().cloned().chain(schedule).collect();
        let planner = Planner::choose(&bench("data_parallel", &set), machine).expect("is tried");
        let pipeline = planner.plan().pipeline.clone().expect("a pipeline");
        let split = pipeline.split().map(<[String]>::to_vec);
        (pipeline.schedule(), split, planner.estimate().clone())
    };
    let mut seen = Vec::new();
    for (depth, cards, memory) in
        [(121, 4, 80.0), (121, 4, 4.5), (121, 4, 3.0), (121, 2, 80.0), (201, 4, 80.0)]
    {
        let cards: Vec<String> = (0..cards).map(|card| format!("cuda:{card}")).collect();
        let set = [
            format!("device.use={cards:?}"),
            "parallel.pipeline={}".to_owned(),
            format!("model.densenet.depth={depth}"),
            "memory.micro_batch=64".to_owned(),
            "train.batch_size=512".to_owned(),
        ];
        let machine = Machine { memory: (memory * 1e9) as u64, ..Machine::ASSUMED };
        let usual = chosen(&set, Some("1f1b"), machine);
        let eager = chosen(&set, Some("eager_1f1b"), machine);
        let is_faster = 1.03 * eager.2.seconds < usual.2.seconds;
        let expected = if eager.2.fits && is_faster { &eager } else { &usual };
        assert_eq!(&chosen(&set, None, machine), expected, "{depth} {cards:?} {memory}");
        seen.push(expected.0);
    }
    use PipelineSchedule::{Eager, OneForwardOneBackward as Usual};
    assert_eq!(seen[..4], [Eager, Usual, Usual, Eager].map(Some));
    let on_cpu = Machine { cuda: false, ..Machine::ASSUMED };
    let set = [
        "device.use=['cpu:0','cpu:1']",
        "parallel.pipeline={}",
        "memory={precision='fp32',micro_batch=4}",
    ];
    assert_eq!(chosen(&set.map(str::to_owned), None, on_cpu).0, Some(Usual));
}

/// With this split DenseNet-201 takes 49.0 ms over four H200, and 53.1 where a search had ended at which no device alone could begin elsewhere
/// (`benches/results/2026-11-28-h200x4-auto-and-apart.log`); with the one that is found 47.9 (`…x4-late-messages.log`).
#[test]
fn splits_are_found_that_no_device_by_itself_leads_to() {
    let seconds = |split: &str| {
        let set = [
            "device.use=['cuda:0','cuda:1','cuda:2','cuda:3']".to_owned(),
            format!("parallel.pipeline={{schedule='eager_1f1b',split={split}}}"),
            "model.densenet.depth=201".to_owned(),
            "memory.micro_batch=64".to_owned(),
            "train.batch_size=512".to_owned(),
        ];
        let plan = bench("data_parallel", &set);
        Planner::choose(&plan, Machine::ASSUMED).expect("is planned").estimate().seconds
    };
    let by_hand = seconds("['denseblock2','denseblock3.denselayer15','denseblock3.denselayer44']");
    let found = seconds("'auto'");
    assert!(found <= by_hand, "{found} {by_hand}");
}

/// 128 channels of 40×40 and 256 of 20×20 in 2 bytes, forward and back, in eight micro-batches.
#[test]
fn the_bytes_that_devices_send_in_a_step_are_counted() {
    for (split, values) in [("denseblock2", 128 * 1600), ("denseblock3", 256 * 400)] {
        let set = [
            "device.use=['cuda:0','cuda:1']".to_owned(),
            format!("parallel.pipeline={{split=['{split}']}}"),
            "memory.micro_batch=64".to_owned(),
            "train.batch_size=512".to_owned(),
        ];
        let summary = PlanSummary::new(&bench("data_parallel", &set), &Machine::ASSUMED);
        let found = summary.expect("a right policy").pipeline.expect("a pipeline");
        let sent = 8 * 64 * values * 2;
        assert!(found.devices.iter().all(|one| one.sends_in_step == sent), "{split}");
    }
}

/// Over four H200 the fastest of seven splits (150.2 ms), over two the third of ten (239.8 ms, the fastest 232.5). Whole stages that were
/// planned too long had been split at 158.2 and 256.1 ms (`benches/results/2026-11-27-h200x4-split.log`).
#[test]
fn a_resnet_is_split_where_it_was_measured_to_be_fast() {
    let tried: [&[&str]; 2] = [&["layer3.8"], &["layer2.3", "layer3.8", "layer3.24"]];
    for split in tried {
        let cards: Vec<String> = (0..=split.len()).map(|card| format!("cuda:{card}")).collect();
        let set = [
            format!("device.use={cards:?}"),
            "parallel.pipeline.schedule=\"1f1b\"".to_owned(),
            "model.resnet.depth=152".to_owned(),
            "data.image.size=[320,320]".to_owned(),
            "memory.micro_batch=64".to_owned(),
            "train.batch_size=512".to_owned(),
        ];
        let plan = bench("resnet50", &set);
        let summary = PlanSummary::new(&plan, &Machine::ASSUMED).expect("a right policy");
        let found = summary.pipeline.expect("a pipeline");
        let begins: Vec<&str> =
            found.devices[1..].iter().map(|one| one.stages[0].as_str()).collect();
        assert_eq!(begins, split);
    }
}

/// A configuration of `benches/configs`, as `set` changes it.
fn bench(config: &str, set: &[String]) -> Plan {
    let path = format!("{}/benches/configs/{config}.toml", env!("CARGO_MANIFEST_DIR"));
    let loaded = trainer::config::load(path.as_ref(), set).expect("a right configuration");
    trainer::plan::plan(loaded.config).expect("a right plan")
}

/// Many small micro-batches have short bubbles, and their kernels take as long to start as those of large ones.
#[test]
fn micro_batches_that_are_started_more_slowly_than_computed_are_planned_to_be_slow() {
    let seconds = |micro: usize| {
        let micro = format!("memory.micro_batch={micro}");
        let size = "data.image.size=[320,320]";
        let cards = "device.use=['cuda:0','cuda:1']";
        let plan = large(&[cards, size, &micro, "train.batch_size=128", "parallel.pipeline={}"]);
        let planner = Planner::choose(&plan, Machine::ASSUMED).expect("is planned");
        planner.estimate().seconds
    };
    let [small, middle] = [2, 16].map(seconds);
    assert!(small > 2.0 * middle, "{small} {middle}");
}

#[test]
fn a_model_that_fits_no_device_is_split_so_that_each_part_fits() {
    let set = ["train.batch_size=32", "memory.micro_batch=8"];
    let with = |more: &[&str]| large(&[&set[..], &["data.image.size=[320,320]"], more].concat());
    let estimate = |machine: Machine| {
        Planner::choose(&with(&[]), machine).expect("is tried").estimate().clone()
    };
    // A run may hold nearly all.
    let machine = Machine { memory: estimate(Machine::ASSUMED).held, ..Machine::ASSUMED };
    let one = estimate(machine);
    assert!(!one.fits, "{one:?}");
    let cards = "device.use=['cuda:0','cuda:1','cuda:2','cuda:3']";
    let plan = with(&[cards, "parallel.pipeline.schedule='sequential'"]);
    let found = Planner::choose(&plan, machine).expect("is planned").estimate().clone();
    assert!(found.fits && found.devices.iter().all(|device| device.peak < one.peak), "{found:?}");
}

#[test]
fn impossible_pipelines_are_refused_with_what_to_write() {
    let refused = |devices: usize, more: &str| {
        let fault = configured(BATCH_NORM, devices, more).expect_err("is refused");
        (fault.key.clone(), format!("{fault}; {}", fault.help.clone().unwrap_or_default()))
    };
    let names = finest(&alone(BATCH_NORM, ""));
    let cases = [
        (1, "[parallel.pipeline]", "device.use", "names one"),
        (names.len() + 1, "[parallel.pipeline]", "device.use", "more than the"),
        (
            2,
            "[parallel.pipeline]\nsplit = [\"denseblok2\"]",
            "parallel.pipeline.split[0]",
            "did you mean \"denseblock2\"",
        ),
        (
            2,
            "[parallel.pipeline]\nsplit = [\"nothing\"]",
            "parallel.pipeline.split[0]",
            "the stages are stem",
        ),
        (2, "[parallel.pipeline]\nsplit = [\"stem\"]", "parallel.pipeline.split[0]", "anyway"),
        (
            3,
            "[parallel.pipeline]\nsplit = [\"denseblock2\"]",
            "parallel.pipeline.split",
            "is for 2 devices",
        ),
        (
            3,
            "[parallel.pipeline]\nsplit = [\"denseblock2\", \"denseblock1\"]",
            "parallel.pipeline.split[1]",
            "does not lie behind",
        ),
        (
            2,
            "[parallel.pipeline]\n[parallel.data]\nbatch_norm = \"local\"",
            "parallel.data.batch_norm",
            "one copy",
        ),
    ];
    for (devices, more, key, words) in cases {
        let (found, text) = refused(devices, more);
        assert_eq!(found, key, "{more}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn one_micro_batch_is_warned_of_where_devices_could_work_at_once() {
    let warnings = |schedule: &str, more: &str| pipeline(BATCH_NORM, 2, schedule, more).warnings();
    let of = |warnings: Vec<String>| warnings.iter().any(|text| text.contains("one micro-batch"));
    assert!(of(warnings("gpipe", "")) && of(warnings("1f1b", "")));
    assert!(!of(warnings("sequential", "")) && !of(warnings("1f1b", MICRO_BATCHES)));
}
