//! What protects data parallelism: several devices give the numbers of one. The devices are logical ones
//! of the CPU.

#[path = "support/state.rs"]
mod state;
#[path = "support/steps.rs"]
mod steps;

use state::{Values, bits, on_device};
use steps::{BATCH_NORM, GROUP_NORM, Network, SIDE, STEPS, batch, configured, count, step};
use trainer::build::Bench;
use trainer::memory::fault::{Armed, strike_rank_after};
use trainer::plan::{BackOff, Plan};
use trainer::train::{HeadLoss, Images, TrainError};

fn plan(network: Network, devices: usize, more: &str) -> Plan {
    configured(network, devices, more).expect("a plan")
}

fn state(bench: &Bench, rank: usize) -> Values {
    on_device(&bench.trainer.ranks[rank])
}

/// What ten steps lead to, and their losses. All devices end with the same bits.
fn train(plan: &Plan) -> (Values, Vec<HeadLoss>) {
    let mut bench = Bench::new(plan).expect("opens");
    let losses = (0..STEPS).flat_map(|number| step(&mut bench, number)).collect();
    let first = state(&bench, 0);
    for rank in 1..plan.devices.len() {
        assert!(bits(&state(&bench, rank)) == bits(&first), "device {rank} has other bits");
    }
    (first, losses)
}

/// The largest difference of a number.
fn distance(ours: &Values, exact: &Values) -> (f32, String) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>());
    let far = |(name, exact): (&String, &Vec<f32>)| {
        let pairs = ours[name].iter().zip(exact);
        (pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max), name.clone())
    };
    exact.iter().map(far).max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are some")
}

fn assert_near(ours: &(Values, Vec<HeadLoss>), exact: &(Values, Vec<HeadLoss>), what: &str) {
    let (far, name) = distance(&ours.0, &exact.0);
    assert!(far < 1e-6, "{what}: {name} differs by {far}");
    for (ours, exact) in ours.1.iter().zip(&exact.1) {
        assert_eq!(ours.normalizer, exact.normalizer, "{what}");
        assert!(
            (ours.sum - exact.sum).abs() <= 1e-5 * exact.sum.abs(),
            "{what}: {ours:?} {exact:?}"
        );
    }
}

#[test]
fn several_devices_with_synchronised_batch_norm_train_as_one_does() {
    let one = train(&plan(BATCH_NORM, 1, ""));
    for devices in 2..=4 {
        assert_near(&train(&plan(BATCH_NORM, devices, "")), &one, &format!("{devices} devices"));
    }
}

#[test]
fn several_devices_with_group_norm_and_dropout_train_as_one_does() {
    let one = train(&plan(GROUP_NORM, 1, ""));
    for devices in 2..=4 {
        assert_near(&train(&plan(GROUP_NORM, devices, "")), &one, &format!("{devices} devices"));
    }
}

const WAYS: [&str; 5] = [
    "[memory]\ncheckpointing = \"every\"",
    "[memory.checkpointing.sequential]\nsegments = 2",
    "[memory.offload.disk]\npath = \"FOLDER\"",
    "[memory]\noffload_optimizer = true",
    "[memory.checkpointing.sequential]\nsegments = 3\n[memory.offload.disk]\npath = \"FOLDER\"",
];

/// Recomputation takes the statistics that the first pass has exchanged.
#[test]
fn on_several_devices_every_strategy_gives_the_same_bits() {
    for (devices, norm) in [(2, BATCH_NORM), (3, GROUP_NORM)] {
        let plain = train(&plan(norm, devices, ""));
        for way in WAYS {
            let found = train(&plan(norm, devices, way));
            assert!(bits(&found.0) == bits(&plain.0), "{devices} devices, {way}");
            assert_eq!(found.1, plain.1, "{devices} devices, {way}");
        }
    }
}

/// Norms are then taken over the parts that all devices compute at once.
#[test]
fn devices_that_take_their_share_in_parts_train_as_one_that_takes_larger_parts() {
    for norm in [BATCH_NORM, GROUP_NORM] {
        let one = train(&plan(norm, 1, "[memory]\nmicro_batch = 4"));
        let two = train(&plan(norm, 2, "[memory]\nmicro_batch = 2"));
        assert_near(&two, &one, "2 devices");
        let four = train(&plan(norm, 4, "[memory]\nmicro_batch = 1"));
        assert_near(&four, &one, "4 devices");
        let again = "[memory]\nmicro_batch = 2\ncheckpointing = \"every\"";
        let again = train(&plan(norm, 2, again));
        assert!(bits(&again.0) == bits(&two.0), "other bits where stages are computed again");
    }
}

/// One device adds the gradients of its parts in the order in which devices add theirs.
#[test]
fn without_a_norm_over_the_batch_devices_give_the_bits_of_parts() {
    let of = |devices: usize, more: &str| {
        let mut bench = Bench::new(&plan(GROUP_NORM, devices, more)).expect("opens");
        (0..3).for_each(|number| drop(step(&mut bench, 4 * number)));
        state(&bench, 0)
    };
    let parts = of(1, "[memory]\nmicro_batch = 2");
    assert!(bits(&of(4, "")) == bits(&parts), "4 devices");
}

/// As PyTorch's `DistributedDataParallel` without `SyncBatchNorm`.
#[test]
fn norms_over_each_device_are_others_than_those_over_all() {
    let local = "[parallel.data]\nbatch_norm = \"local\"";
    let parts = plan(BATCH_NORM, 1, "[memory]\nmicro_batch = 4");
    let (one, two) = (first_step(&parts), first_step(&plan(BATCH_NORM, 2, local)));
    let (far, name) = distance(&two, &one);
    assert!(far < 1e-6, "{name} differs by {far} from parts of as many images");
    let (far, _) = distance(&two, &first_step(&plan(BATCH_NORM, 2, "")));
    assert!(far > 1e-4, "{far}");
}

fn first_step(plan: &Plan) -> Values {
    let mut bench = Bench::new(plan).expect("opens");
    step(&mut bench, 0);
    state(&bench, 0)
}

#[test]
fn evaluation_is_shared_out_and_gives_the_rows_of_one_device() {
    let evaluate = |devices: usize, number: usize| {
        let mut bench = Bench::new(&plan(BATCH_NORM, devices, "")).expect("opens");
        let (values, targets) = batch(number);
        let images = Images::Host { images: &values, shape: [count(number), 1, SIDE, SIDE] };
        bench.trainer.evaluate(images, &targets).expect("evaluates")
    };
    for number in [0, 1, 2, 3] {
        let (rows, losses) = evaluate(1, number);
        for devices in 2..=4 {
            let (found, found_losses) = evaluate(devices, number);
            assert_eq!(found, rows, "{devices} devices");
            for (found, loss) in found_losses.iter().zip(&losses) {
                assert_eq!(found.normalizer, loss.normalizer);
                assert!((found.sum - loss.sum).abs() <= 1e-6 * loss.sum.abs());
            }
        }
    }
}

/// Bench and the operation of `rank` that fails in the second step, where nothing is left that would
/// keep less of as many images at once.
fn started(rank: usize, operation: usize) -> (Bench, Armed) {
    let mut bench = Bench::new(&plan(BATCH_NORM, 3, "")).expect("opens");
    step(&mut bench, 0);
    keep_least(&mut bench);
    (bench, strike_rank_after(rank, operation))
}

/// Leaves nothing that would keep less of three images at once.
fn keep_least(bench: &mut Bench) {
    let planner = &mut bench.trainer.planner;
    while planner.clone().back_off(3) == Some(BackOff::Again) {
        planner.back_off(3);
    }
    bench.trainer.begin_epoch(1);
}

#[test]
fn where_one_device_has_no_memory_all_try_again_together() {
    let half = plan(BATCH_NORM, 3, "[memory]\nmicro_batch = 2");
    let mut expected = Bench::new(&plan(BATCH_NORM, 3, "")).expect("opens");
    step(&mut expected, 0);
    let strategy = Bench::new(&half).expect("opens").trainer.first().replica.strategy.clone();
    expected.trainer.ranks.iter_mut().for_each(|rank| rank.replica.strategy = strategy.clone());
    step(&mut expected, 1);
    let (mut counted, armed) = started(0, usize::MAX);
    step(&mut counted, 1);
    let count = armed.asked();
    drop(armed);
    assert!(count > 10, "{count}");
    for (rank, operation) in (0..count).map(|operation| (operation % 3, operation)) {
        let (mut bench, armed) = started(rank, operation);
        step(&mut bench, 1);
        assert!(armed.has_struck(), "operation {operation} of device {rank}");
        for rank in 0..3 {
            let same = bits(&state(&bench, rank)) == bits(&state(&expected, rank));
            assert!(same, "after {operation} operations of device {rank}");
        }
        let backoffs = &bench.trainer.backoffs;
        assert_eq!((backoffs[0].from, backoffs[0].to, backoffs.len()), (3, 2, 1));
    }
}

/// All multiply the loss of the next step by the same.
#[test]
fn a_step_that_overflows_lowers_the_scale_of_the_loss_on_all_devices() {
    let plan = plan(GROUP_NORM, 3, "[memory]\nprecision = \"fp16\"");
    let mut bench = Bench::new(&plan).expect("opens");
    for rank in &mut bench.trainer.ranks {
        rank.replica.inference.chain.map_parameters(|_, value| value.mul_scalar(1e9));
    }
    let (values, targets) = batch(0);
    let images = Images::Host { images: &values, shape: [count(0), 1, SIDE, SIDE] };
    let left_out = bench.trainer.step(images, &targets, 0, 0.05).expect_err("overflows");
    assert!(matches!(left_out, TrainError::Skipped { .. }), "{left_out}");
    let scales = bench.trainer.ranks.iter().map(|rank| rank.updater.scale());
    assert_eq!(scales.collect::<Vec<_>>(), [32768.0; 3]);
}
#[path = "data_parallel/processes.rs"]
mod processes;
#[path = "data_parallel/sharded.rs"]
mod sharded;
