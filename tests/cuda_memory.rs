//! What a GPU says of its memory, and going on after it ran out of it:
//! `cargo test --features cuda-tests --test cuda_memory -- --nocapture --test-threads 1`.
#![cfg(feature = "cuda-tests")]
#![expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]

#[path = "support/harm.rs"]
mod harm;

use std::path::Path;

use burn::tensor::{DType, Device, Tensor};
use trainer::build::{Bench, resolve_device};
use trainer::memory::measure::{Meter, PeakKind, mark, record};
use trainer::memory::{OutOfMemory, check_allocated};
use trainer::ops::gpu::{Buffer, Gpu};
use trainer::plan::Plan;

const MIB: u64 = 1 << 20;

fn gpu() -> (Device, Gpu) {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    (device, gpu)
}

#[test]
fn live_and_peak_are_those_of_buffers_of_known_size() {
    let (device, gpu) = gpu();
    let meter = Meter::open(&device);
    let before = meter.read();
    println!("at the beginning: {before:?}");
    let buffer = |mebibytes: usize| gpu.empty(mebibytes << 18, DType::F32);
    let kept = buffer(64);
    let since = |bytes: Option<u64>| bytes.expect("is known") - before.live.expect("is known");
    // Kernels' sizes stay in small buffers.
    let is_near = |bytes: u64, mebibytes: u64| bytes.abs_diff(mebibytes * MIB) < MIB;
    assert!(is_near(since(meter.read().live), 64));

    // In use only at the launch of a kernel of Burn's: what it reads and what it writes.
    meter.reset_peak();
    let length = meter.watch(|| {
        let inner = buffer(32);
        let other: Tensor<1> = gpu.tensor(&inner, [inner.len()]).add_scalar(1.0);
        other.into_data().num_elements()
    });
    assert_eq!(length, 32 << 18);
    let used = meter.read();
    println!("after work that needed 64 MiB more for a while: {used:?}");
    assert_eq!(used.peak_kind, Some(PeakKind::Launches));
    assert!(is_near(since(used.live), 64), "{used:?}");
    let most = since(used.peak);
    assert!((128 * MIB..161 * MIB).contains(&most), "{most}");
    assert!(used.reserved >= used.live && used.smi > used.reserved && used.total > used.smi);

    let ((), timeline) = record(&meter, || {
        let more = buffer(128);
        mark(0, || "after the forward pass".to_owned());
        drop(more);
        mark(0, || "after the backward pass".to_owned());
    });
    print!("{}", timeline.lines());
    let live: Vec<u64> = timeline.marks.iter().map(|mark| since(mark.live)).collect();
    assert!(live.iter().zip([64, 192, 64]).all(|(&live, expected)| is_near(live, expected)));
    drop(kept);
}

/// All of the card's memory but about `spare` chunks of 256 MiB.
fn ballast(gpu: &Gpu, spare: usize) -> Vec<Buffer> {
    let mut held = chunks_until_full(gpu);
    // What is left of pages that chunks do not fill.
    let mut small = Vec::new();
    for elements in [4 << 20, 64 << 10] {
        loop {
            let chunk = gpu.empty(elements, DType::F32);
            if gpu.check(std::slice::from_ref(&chunk)).is_err() {
                break;
            }
            small.push(chunk);
        }
    }
    held.truncate(held.len() - spare);
    held.extend(small);
    held
}

/// As many buffers of 256 MiB as the card's memory has room for.
fn chunks_until_full(gpu: &Gpu) -> Vec<Buffer> {
    let mut held = Vec::new();
    loop {
        let chunk = gpu.empty(64 << 20, DType::F32);
        if let Err(text) = gpu.check(std::slice::from_ref(&chunk)) {
            let told = OutOfMemory::in_text(&text).expect("is about memory");
            println!("{} chunks, then: {told}", held.len());
            // The allocator asks for a page that the chunk fits in.
            assert!(told.wanted.is_some_and(|bytes| bytes >= 256 * MIB));
            let computed = gpu.tensor(&chunk, [chunk.len()]).add_scalar(1.0);
            assert_eq!(check_allocated([computed]), Err(told));
            break;
        }
        held.push(chunk);
    }
    held
}

/// Each on a thread, which has memory of its own; with an evaluation between steps, whose passes lie in theirs.
#[test]
fn steps_hold_the_memory_that_was_chosen_for_them_and_no_more() {
    for (config, set) in [
        ("benches/configs/densenet121.toml", "memory.dense_layers='share'"),
        ("benches/configs/densenet121.toml", "memory.checkpointing='every'"),
        ("benches/configs/densenet121.toml", "memory.micro_batch=16"),
        ("benches/configs/resnet50.toml", "memory.precision='fp32'"),
    ] {
        let measured = std::thread::spawn(move || {
            let (device, _) = gpu();
            let before = Meter::open(&device).read().reserved.expect("is known");
            let plan = plan(config, &[set]);
            let mut steps = Bench::new(&plan).expect("opens");
            for _ in 0..2 {
                steps.step().expect("fits");
                steps.step().expect("fits");
                steps.evaluate().expect("fits");
            }
            let used = steps.memory();
            let held = used.reserved.expect("is known") - before;
            let predicted = steps.predicted_held(&plan).expect("is known");
            println!("{config} {set}: {held} held, {predicted} predicted, {used:?}");
            assert!(held <= predicted, "{config} {set}: {held} of {predicted}");
            drop(steps);
            device.memory_cleanup();
        });
        measured.join().expect("holds no more");
    }
}

fn plan(config: &str, set: &[&str]) -> Plan {
    let set: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
    let loaded = trainer::config::load(Path::new(config), &set);
    trainer::plan::plan(loaded.expect("is right").config).expect("is right")
}

const SMALL: &str = "configs/quickstart.toml";

fn bench() -> Bench {
    let set = ["device.use='cuda'", "data.image.size=[256,256]", "train.batch_size=128"];
    let plan = plan(SMALL, &set);
    Bench::new(&plan).expect("opens")
}

/// Steps that have no memory for their passes yet: where there is some already, what others take later cannot stop them.
fn without_reserve() -> Bench {
    let mut steps = bench();
    let passes = steps.trainer.planner.held().expect("all stages are fused").passes;
    steps.trainer.place_passes(None);
    steps.trainer.ranks[0].replica.passes = Some(passes);
    steps
}

/// Fused layers, and layers that are not.
#[test]
fn memory_refused_anywhere_changes_no_bit_and_numbers_that_are_none_are_named() {
    for norm in ["model.densenet.norm='batch'", "model.densenet.norm='group'"] {
        let small = ["device.use='cuda'", "train.batch_size=16", "train.ema={decay=0.9}", norm];
        let small = plan(SMALL, &small);
        let (refused, broken) = (harm::refuse_each(&small, 24), harm::break_each(&small));
        println!("{norm}: {refused} operations refused, {broken} parameters made NaN");
    }
}

#[test]
fn a_step_that_ran_out_of_memory_can_be_taken_once_there_is_some() {
    let (device, gpu) = gpu();
    let mut undisturbed = bench();
    let expected = [undisturbed.step().expect("fits"), undisturbed.step().expect("fits")];
    println!("a step uses {:?}", undisturbed.memory());
    drop(undisturbed);
    device.memory_cleanup();

    let mut disturbed = without_reserve();
    let images = disturbed.trainer.ranks[0].replica.strategy.micro_batch;
    let held = ballast(&gpu, 0);
    for _ in 0..2 {
        let failed = disturbed.step().expect_err("not one image fits");
        println!("without memory: {failed:?}");
        assert!(format!("{failed:?}").contains("OutOfMemory"));
        assert_eq!(disturbed.trainer.ranks[0].replica.strategy.micro_batch, 1);
        disturbed.trainer.ranks[0].replica.strategy.micro_batch = images;
    }
    drop(held);
    device.memory_cleanup();
    let losses = [disturbed.step().expect("fits"), disturbed.step().expect("fits")];
    println!("losses {losses:?}, undisturbed {expected:?}");
    assert_eq!(losses, expected);
}

#[test]
fn a_run_that_has_its_memory_goes_on_where_others_fill_the_card() {
    let (device, gpu) = gpu();
    let mut undisturbed = bench();
    let expected = [(); 2].map(|()| undisturbed.step().expect("fits"));
    drop(undisturbed);
    device.memory_cleanup();

    let mut disturbed = bench();
    let first = disturbed.step().expect("fits");
    // On a thread of its own, whose pages are others.
    let held = std::thread::spawn(move || ballast(&gpu, 0)).join().expect("fills the card");
    assert_eq!([first, disturbed.step().expect("has its memory")], expected);
    assert!(disturbed.trainer.backoffs.is_empty());
    drop(held);
}

#[test]
fn a_step_that_does_not_fit_goes_on_as_one_that_began_so() {
    let (device, gpu) = gpu();
    let mut disturbed = without_reserve();
    let held = ballast(&gpu, 2);
    let first = disturbed.step().expect("fits in parts");
    drop(held);
    let images = disturbed.trainer.ranks[0].replica.strategy.micro_batch;
    println!("{:?}", disturbed.trainer.backoffs);
    // With more computed again, which changes no bit, or with fewer images at once.
    assert!(!disturbed.trainer.backoffs.is_empty());
    let losses = [first, disturbed.step().expect("fits")];
    drop(disturbed);
    device.memory_cleanup();

    let mut expected = bench();
    expected.trainer.ranks[0].replica.strategy.micro_batch = images;
    assert_eq!(losses, [expected.step().expect("fits"), expected.step().expect("fits")]);
}
