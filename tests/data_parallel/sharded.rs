//! Devices that share out the optimizer's state have the bits of devices that each keep all of it.

use trainer::choice::Choice;
use trainer::optim::OptimizerConfig;
use trainer::parallel::OptimizerPlacement;

use super::*;

fn sharded(plan: &Plan) -> Plan {
    Plan { placement: OptimizerPlacement::Sharded, ..plan.clone() }
}

/// What one device has all of, put together: each device has the same weights, and its part of the rest, in the
/// order of the devices. What losses learn is on every device.
fn whole(bench: &Bench) -> Values {
    let all: Vec<Values> = bench.trainer.ranks.iter().map(on_device).collect();
    let is_part = |name: &str| {
        (name.starts_with("optimizer/") && !name.contains("centres"))
            || name.starts_with("average/")
    };
    let mut whole = Values::new();
    for (rank, values) in all.iter().enumerate() {
        for (name, values) in values {
            if is_part(name) {
                whole.entry(name.clone()).or_default().extend(values);
            } else {
                let first = whole.entry(name.clone()).or_insert_with(|| values.clone());
                let same = first.iter().zip(values).all(|(a, b)| a.to_bits() == b.to_bits());
                assert!(same, "device {rank} has another {name}");
            }
        }
    }
    whole
}

/// What ten steps come to, their losses, what evaluation with averaged weights gives, and what steps behind it do.
fn trained(plan: &Plan) -> (Values, Vec<HeadLoss>, Vec<Vec<f32>>) {
    let mut bench = Bench::new(plan).expect("opens");
    let mut losses: Vec<HeadLoss> = (0..4).flat_map(|number| step(&mut bench, number)).collect();
    bench.trainer.swap_average().expect("swaps");
    let rows = (0..4).flat_map(|number| {
        let (values, targets) = batch(number);
        let images = Images::Host { images: &values, shape: [count(number), 1, SIDE, SIDE] };
        bench.trainer.evaluate(images, &targets).expect("evaluates").0
    });
    let rows = rows.collect();
    bench.trainer.swap_average().expect("swaps");
    losses.extend((4..STEPS).flat_map(|number| step(&mut bench, number)));
    (whole(&bench), losses, rows)
}

fn replicated(plan: &Plan) -> (Values, Vec<HeadLoss>, Vec<Vec<f32>>) {
    // All devices have all of it.
    let mut all = trained(&Plan { placement: OptimizerPlacement::Replicated, ..plan.clone() });
    let devices = plan.devices.len();
    for (name, values) in &mut all.0 {
        let is_part = name.starts_with("optimizer/") && !name.contains("centres");
        if is_part || name.starts_with("average/") {
            values.truncate(values.len() / devices);
        }
    }
    all
}

fn assert_same_bits(plan: &Plan, what: &str) {
    let (found, expected) = (trained(&sharded(plan)), replicated(plan));
    assert!(bits(&found.0) == bits(&expected.0), "{what}: other bits");
    assert_eq!((found.1, found.2), (expected.1, expected.2), "{what}");
}

const OPTIMIZERS: [&str; 10] = [
    "[sgd]\nlr = 0.05",
    "[sgd]\nlr = 0.05\nmomentum = 0.9\nnesterov = true\nweight_decay = 1e-4",
    "[adam]\nlr = 1e-3\nweight_decay = 1e-2",
    "[adam]\nlr = 1e-3",
    "[adamw]\nlr = 1e-3\nweight_decay = 0.1",
    "[rmsprop]\nlr = 1e-3\nmomentum = 0.9\ncentered = true",
    "[adagrad]\nlr = 1e-2",
    "[lion]\nlr = 1e-4\nweight_decay = 0.1",
    "[pesg]\nlr = 0.05\nmomentum = 0.9\nepoch_decay = 1e-2\nstage_steps = 3",
    "[pesg]\nlr = 0.05",
];

/// Uneven shards, and biases of fewer numbers than there are devices. Gradients are clipped by the norm of all.
#[test]
fn every_optimizer_has_the_same_bits_with_its_state_shared_out() {
    for (place, settings) in OPTIMIZERS.iter().enumerate() {
        let optimizer: OptimizerConfig = toml::from_str(settings).expect("an optimizer");
        let (devices, network) = (2 + place % 3, [BATCH_NORM, GROUP_NORM][place % 2]);
        let mut plan = plan(network, devices, "");
        plan.train.optimizer = Choice(optimizer);
        assert_same_bits(&plan, &format!("{settings}, {devices} devices"));
    }
}

/// With parts that are added up, stages that are frozen at first or for good, learning rates of stages, losses that learn,
/// states that wait in host memory, and no average.
#[test]
fn everything_that_changes_a_step_gives_the_same_bits_with_shards() {
    const AUC_MARGIN: Network = ["", "loss = \"auc_margin\""];
    let adam: OptimizerConfig = toml::from_str("[adam]\nlr = 1e-3").expect("an optimizer");
    let cases: [(usize, Network, &str); 6] = [
        (3, BATCH_NORM, "[memory]\nmicro_batch = 1\ncheckpointing = \"every\""),
        (4, BATCH_NORM, "[model]\nfreeze = [\"stem\", \"denseblock1\"]"),
        (2, BATCH_NORM, "[model.freeze]\nstages = [\"stem\"]\nepochs = 1"),
        (3, AUC_MARGIN, ""),
        (2, GROUP_NORM, "[memory]\noffload_optimizer = true"),
        (4, BATCH_NORM, "[parallel.data]\nbatch_norm = \"local\""),
    ];
    for (devices, network, more) in cases {
        let mut plan = plan(network, devices, more);
        plan.train.optimizer = Choice(adam.clone());
        plan.train.lr_factors = [("stem".to_owned(), 0.5), ("denseblock2".to_owned(), 3.0)].into();
        assert_same_bits(&plan, &format!("{network:?}, {devices} devices, {more}"));
        plan.train.ema = None;
        assert_same_bits(&plan, &format!("{network:?}, {devices} devices, {more}, no average"));
    }
}

/// What each device keeps is its part, to a number of each tensor.
#[test]
fn devices_keep_even_parts_of_the_state() {
    let plain = plan(BATCH_NORM, 4, "");
    let numbers = |plan: &Plan| -> Vec<(usize, usize)> {
        let mut bench = Bench::new(plan).expect("opens");
        step(&mut bench, 0);
        let kept = |values: &Values| {
            let of =
                |what: &'static str| values.iter().filter(move |(name, _)| name.starts_with(what));
            let count = |what| of(what).map(|(_, values)| values.len()).sum::<usize>();
            (count("optimizer/"), count("average/"))
        };
        bench.trainer.ranks.iter().map(|rank| kept(&on_device(rank))).collect()
    };
    let (all, parts) = (numbers(&plain), numbers(&sharded(&plain)));
    let tensors = state(&Bench::new(&plain).expect("opens"), 0).len();
    assert_eq!(parts.iter().map(|part| part.0).sum::<usize>(), all[0].0);
    assert_eq!(parts.iter().map(|part| part.1).sum::<usize>(), all[0].1);
    for (kept, averaged) in parts {
        assert!(kept.abs_diff(all[0].0 / 4) <= tensors, "{kept} of {all:?}");
        assert!(averaged.abs_diff(all[0].1 / 4) <= tensors, "{averaged} of {all:?}");
    }
}

/// A step that overflows in fp16 is left out by all, and the next one goes on.
#[test]
fn a_step_that_is_left_out_changes_no_shard() {
    let plain = plan(GROUP_NORM, 3, "[memory]\nprecision = \"fp16\"");
    let of = |plan: &Plan| {
        let mut bench = Bench::new(plan).expect("opens");
        step(&mut bench, 0);
        for rank in &mut bench.trainer.ranks {
            rank.replica.inference.chain.map_parameters(|_, value| value.mul_scalar(1e9));
        }
        let before = whole(&bench);
        let (values, targets) = batch(1);
        let images = Images::Host { images: &values, shape: [count(1), 1, SIDE, SIDE] };
        let left_out = bench.trainer.step(images, &targets, 1, 0.05).expect_err("overflows");
        assert!(matches!(left_out, TrainError::Skipped { .. }), "{left_out}");
        assert!(bits(&whole(&bench)) == bits(&before), "something has changed");
        for rank in &mut bench.trainer.ranks {
            rank.replica.inference.chain.map_parameters(|_, value| value.mul_scalar(1e-9));
        }
        (0..2).for_each(|number| drop(step(&mut bench, number)));
        state(&bench, 0)
    };
    let weights = |mut values: Values| {
        values.retain(|name, _| !name.starts_with("optimizer/") && !name.starts_with("average/"));
        values
    };
    let (found, expected) = (weights(of(&sharded(&plain))), weights(of(&plain)));
    assert!(bits(&found) == bits(&expected), "other bits");
}

#[test]
fn where_memory_does_not_suffice_shards_go_on_as_whole_states_do() {
    let of = |plan: &Plan| {
        let mut bench = Bench::new(plan).expect("opens");
        step(&mut bench, 0);
        keep_least(&mut bench);
        let armed = strike_rank_after(1, 7);
        step(&mut bench, 1);
        assert!(armed.has_struck());
        drop(armed);
        step(&mut bench, 2);
        let backoffs = bench.trainer.backoffs.clone();
        let mut weights = state(&bench, 0);
        weights.retain(|name, _| !name.starts_with("optimizer/") && !name.starts_with("average/"));
        (weights, backoffs)
    };
    let plain = plan(BATCH_NORM, 3, "");
    let (found, expected) = (of(&sharded(&plain)), of(&plain));
    assert!(bits(&found.0) == bits(&expected.0), "other bits");
    assert_eq!((found.1.len(), &found.1), (1, &expected.1));
}

#[test]
fn processes_have_the_shards_of_devices() {
    let plan = sharded(&plan(BATCH_NORM, 3, ""));
    let course = |bench: &mut Bench| {
        (0..3).for_each(|number| drop(step(bench, number)));
        bench.trainer.swap_average().expect("swaps");
        let averaged: Vec<Values> = bench.trainer.ranks.iter().map(on_device).collect();
        bench.trainer.swap_average().expect("swaps");
        (3..6).for_each(|number| drop(step(bench, number)));
        let trained = bench.trainer.ranks.iter().map(on_device);
        averaged.into_iter().zip(trained).collect::<Vec<_>>()
    };
    let expected = course(&mut Bench::new(&plan).expect("opens"));
    let found = processes::in_processes(&plan, |bench, _| course(bench).swap_remove(0));
    for (rank, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(bits(&found.0) == bits(&expected.0), "process {rank} has another average");
        assert!(bits(&found.1) == bits(&expected.1), "process {rank} has other bits");
    }
}

/// One device has nothing to share out.
#[test]
fn one_device_is_told_that_shards_do_nothing() {
    let alone = sharded(&plan(BATCH_NORM, 1, ""));
    let said = |plan: &Plan| plan.warnings().iter().filter(|told| told.contains("sharded")).count();
    assert_eq!((said(&alone), said(&sharded(&plan(BATCH_NORM, 2, "")))), (1, 0));
    assert_eq!(trained(&alone), replicated(&alone));
}
