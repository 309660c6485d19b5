//! Several copies of a pipeline: a grid of devices, of which each column has one copy.
//!
//! A grid must give the bits of as many devices that each have the whole model and share the batch in the same
//! way, whatever its depth; these are held to one device in `tests/data_parallel.rs`, and here once more.

use std::collections::BTreeMap;

use super::*;

fn grid(network: Network, [copies, depth]: [usize; 2], schedule: &str, more: &str) -> Plan {
    let pipeline =
        format!("[parallel.pipeline]\nschedule = \"{schedule}\"\ncopies = {copies}\n{more}");
    configured(network, copies * depth, &pipeline).expect("a plan")
}

/// As many devices as there are copies, each of which has the whole model.
fn row(network: Network, copies: usize, more: &str) -> Plan {
    configured(network, copies, more).expect("a plan")
}

fn assert_near(ours: &Values, exact: &Values, what: &str) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>(), "{what}");
    for (name, exact) in exact {
        let far = ours[name].iter().zip(exact).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-6, "{what}: {name} differs by {far}");
    }
}

const GRIDS: [([usize; 2], &str); 7] = [
    ([2, 2], "sequential"),
    ([2, 2], "gpipe"),
    ([2, 2], "1f1b"),
    ([2, 3], "gpipe"),
    ([3, 2], "1f1b"),
    ([4, 2], "sequential"),
    ([2, 4], "1f1b"),
];

/// Some batches leave copies without images in their last micro-batch, or in all.
#[test]
fn every_grid_gives_the_bits_of_as_many_copies_and_the_numbers_of_one_device() {
    for network in [BATCH_NORM, GROUP_NORM] {
        let mut known = BTreeMap::new();
        for (shape, schedule) in GRIDS {
            let copies = shape[0];
            let (micro, whole) = ([0, 0, 3, 2, 2][copies], [0, 0, 6, 6, 8][copies]);
            let more = |images: usize| format!("[memory]\nmicro_batch = {images}");
            let (of_row, of_one) = known.entry(copies).or_insert_with(|| {
                let row = train(&row(network, copies, &more(micro)));
                (row, train(&alone(network, &more(whole))))
            });
            let found = train(&grid(network, shape, schedule, &more(micro)));
            let what = format!("{schedule} over {shape:?}");
            assert_same(&found.0, &of_row.0, &what);
            assert_eq!(found.1, of_row.1, "{what}");
            assert_near(&found.0, &of_one.0, &what);
        }
    }
}

#[test]
fn batches_that_pass_whole_are_normalised_over_all_copies() {
    let one = train(&alone(BATCH_NORM, ""));
    for shape in [[2, 2], [3, 2]] {
        let found = train(&grid(BATCH_NORM, shape, "sequential", ""));
        assert_near(&found.0, &one.0, &format!("{shape:?}"));
    }
}

#[test]
fn norms_over_each_copy_are_those_of_devices_that_normalise_over_their_own() {
    let local = "[parallel.data]\nbatch_norm = \"local\"\n[memory]\nmicro_batch = 2";
    let of_row = train(&row(BATCH_NORM, 2, local));
    for schedule in SCHEDULES {
        let found = train(&grid(BATCH_NORM, [2, 2], schedule, local));
        assert_same(&found.0, &of_row.0, schedule);
    }
    let synced = train(&grid(BATCH_NORM, [2, 2], "1f1b", "[memory]\nmicro_batch = 2"));
    assert!(bits(&synced.0) != bits(&of_row.0), "norms are over all copies");
}

/// Each group of devices with the same stages shares out its own optimizer's state.
#[test]
fn grids_whose_copies_share_out_the_state_have_the_bits_of_those_that_do_not() {
    let of = |shape: [usize; 2], more: &str| {
        let more = format!("{more}\n[memory]\nmicro_batch = 2");
        let plan = grid(BATCH_NORM, shape, "1f1b", &more);
        let mut bench = Bench::new(&plan).expect("opens");
        (0..4).for_each(|number| drop(step(&mut bench, number)));
        bench.trainer.swap_average().expect("swaps");
        bench.trainer.swap_average().expect("swaps");
        (4..STEPS).for_each(|number| drop(step(&mut bench, number)));
        // Weights by copies, and what is kept of them in the order of the devices, which is that of the shards.
        let depth = bench.trainer.depth;
        let (mut weights, mut kept) = (vec![Values::new(); shape[0]], Values::new());
        for (place, rank) in bench.trainer.ranks.iter().enumerate() {
            for (name, values) in on_device(rank) {
                match name.starts_with("optimizer/") || name.starts_with("average/") {
                    true => kept.entry(name).or_default().extend(values),
                    false => drop(weights[place / depth].insert(name, values)),
                }
            }
        }
        (weights, kept)
    };
    for shape in [[2, 2], [3, 2]] {
        let (weights, kept) = of(shape, "[parallel.data]\noptimizer = \"sharded\"");
        let (expected, all) = of(shape, "");
        for (copy, weights) in weights.iter().enumerate() {
            assert_same(weights, &expected[0], &format!("copy {copy} of {shape:?}"));
        }
        let once = |values: &Vec<f32>| values[..values.len() / shape[0]].to_vec();
        let all = all.iter().map(|(name, values)| (name.clone(), once(values))).collect();
        assert_same(&kept, &all, &format!("what is kept over {shape:?}"));
    }
}

/// A stage that is computed again takes the statistics that copies have exchanged.
#[test]
fn every_policy_and_offload_works_inside_every_device_of_a_grid() {
    for network in [BATCH_NORM, GROUP_NORM] {
        let of_row = train(&row(network, 2, MICRO_BATCHES));
        for (place, way) in WAYS.iter().enumerate() {
            let schedule = SCHEDULES[place % 4];
            let more = format!("{MICRO_BATCHES}\n{way}");
            let found = train(&grid(network, [2, 2], schedule, &more));
            assert_same(&found.0, &of_row.0, &format!("{way}, {schedule}"));
        }
    }
}

#[test]
fn gradients_and_evaluations_of_a_grid_are_those_of_its_row() {
    let gradients = |plan: &Plan| Bench::new(plan).expect("opens").gradients().expect("computes");
    let evaluate = |plan: &Plan, number: usize| {
        let mut bench = Bench::new(plan).expect("opens");
        let (values, targets) = batch(number);
        let images = Images::Host { images: &values, shape: [count(number), 1, SIDE, SIDE] };
        bench.trainer.evaluate(images, &targets).expect("evaluates")
    };
    let (row, grid) =
        (row(GROUP_NORM, 2, MICRO_BATCHES), grid(GROUP_NORM, [2, 2], "1f1b", MICRO_BATCHES));
    let ((exact, loss), (found, found_loss)) = (gradients(&row), gradients(&grid));
    assert_eq!((found_loss.to_bits(), found.len()), (loss.to_bits(), exact.len()));
    for (found, exact) in found.iter().zip(&exact) {
        assert!(found.name == exact.name && found.data == exact.data, "{}", found.name);
    }
    for number in 0..4 {
        assert_eq!(evaluate(&grid, number), evaluate(&row, number));
    }
}

#[test]
fn a_loss_that_learns_does_so_on_the_last_device_of_every_copy() {
    let of_row = train(&row(AUC_MARGIN, 2, MICRO_BATCHES));
    let found = train(&grid(AUC_MARGIN, [2, 2], "gpipe", MICRO_BATCHES));
    assert_same(&found.0, &of_row.0, "auc_margin");
}

/// In fp16 some steps may be left out, on all devices or on none.
#[test]
fn all_devices_of_a_grid_have_one_scale_of_the_loss() {
    let memory = format!("{MICRO_BATCHES}\nprecision = \"fp16\"");
    let steps = |plan: &Plan| {
        let mut bench = Bench::new(plan).expect("opens");
        let outcomes: Vec<String> =
            (0..4).map(|number| format!("{:?}", try_step(&mut bench, number))).collect();
        let scales: Vec<f64> =
            bench.trainer.ranks.iter().map(|rank| rank.updater.scale()).collect();
        assert!(scales.iter().all(|scale| *scale == scales[0]), "{scales:?}");
        (state(&bench), outcomes, scales[0])
    };
    let of_row = steps(&row(BATCH_NORM, 2, &memory));
    let found = steps(&grid(BATCH_NORM, [2, 2], "1f1b", &memory));
    assert_same(&found.0, &of_row.0, "fp16");
    assert_eq!((found.1, found.2), (of_row.1, of_row.2));
}

#[test]
fn what_is_not_finite_on_one_device_of_a_grid_changes_nothing_on_any() {
    for spoiled in 0..4 {
        let plan = grid(GROUP_NORM, [2, 2], "1f1b", MICRO_BATCHES);
        let mut bench = Bench::new(&plan).expect("opens");
        let before = state(&bench);
        let chain = &mut bench.trainer.ranks[spoiled].replica.inference.chain;
        chain.map_parameters(|_, value| value.mul_scalar(f32::MAX));
        assert!(try_step(&mut bench, 1).is_err(), "device {spoiled}");
        let good = 1 - spoiled / 2;
        assert_same(&state_of(&bench, good), &before, &format!("device {spoiled}"));
    }
}

#[test]
fn where_one_device_of_a_grid_has_no_memory_all_try_again_with_smaller_micro_batches() {
    let started = |plan: &Plan| {
        let mut bench = Bench::new(plan).expect("opens");
        step(&mut bench, 0);
        let planner = &mut bench.trainer.planner;
        while planner.clone().back_off(4) == Some(BackOff::Again) {
            planner.back_off(4);
        }
        bench.trainer.begin_epoch(1);
        bench
    };
    let four = "[memory]\nmicro_batch = 4";
    let half = Bench::new(&row(BATCH_NORM, 2, "[memory]\nmicro_batch = 2")).expect("opens");
    let strategy = half.trainer.first().replica.strategy.clone();
    let mut expected = Bench::new(&row(BATCH_NORM, 2, four)).expect("opens");
    step(&mut expected, 0);
    expected.trainer.ranks.iter_mut().for_each(|rank| rank.replica.strategy = strategy.clone());
    step(&mut expected, 1);
    let expected = state(&expected);
    let plan = grid(BATCH_NORM, [2, 2], "1f1b", four);
    for rank in 0..4 {
        let mut counted = started(&plan);
        let armed = strike_rank_after(rank, usize::MAX);
        step(&mut counted, 1);
        let count = armed.asked();
        drop(armed);
        assert!(count > 6, "{count}");
        for operation in (rank % 3..count).step_by(4) {
            let mut bench = started(&plan);
            let armed = strike_rank_after(rank, operation);
            step(&mut bench, 1);
            assert!(armed.has_struck(), "operation {operation} of device {rank}");
            let what = format!("after {operation} operations of device {rank}");
            assert_same(&state(&bench), &expected, &what);
        }
    }
}

#[test]
fn grids_that_devices_cannot_make_are_refused_with_what_to_write() {
    let refused = |devices: usize, more: &str| {
        let more = format!("[parallel.pipeline]\n{more}");
        let fault = configured(BATCH_NORM, devices, &more).expect_err("is refused");
        (fault.key.clone(), format!("{fault}; {}", fault.help.clone().unwrap_or_default()))
    };
    let cases = [
        (4, "copies = 0", "parallel.pipeline.copies", "1 or more"),
        (5, "copies = 2", "device.use", "name 4 devices, or another multiple of 2"),
        (2, "copies = 2", "device.use", "two or more for each"),
        (40, "copies = 2", "device.use", "at most for 2 copies"),
        (6, "copies = 2\nsplit = [\"denseblock2\"]", "parallel.pipeline.split", "has 3"),
    ];
    for (devices, more, key, words) in cases {
        let (found, text) = refused(devices, more);
        assert_eq!(found, key, "{more}");
        assert!(text.contains(words), "{text}");
    }
}
