//! Protects what a run says of its memory on the CPU: tensors of a known size, in a program whose
//! allocator counts.
#![cfg(feature = "cpu")]

use std::thread;

use burn::tensor::{Device, Tensor, TensorData};
use mimalloc::MiMalloc;
use trainer::memory::measure::{Counting, Meter, PeakKind, apart, hand_over, mark, record};

#[global_allocator]
static ALLOCATOR: Counting<MiMalloc> = Counting::new(MiMalloc);

const MIB: u64 = 1 << 20;

/// `mebibytes` of numbers.
fn tensor(mebibytes: usize) -> Tensor<1> {
    let values = vec![1.0f32; mebibytes << 18];
    Tensor::from_data(TensorData::new(values, [mebibytes << 18]), &Device::flex())
}

/// Bytes are exact but for what the test's own machinery holds.
fn assert_mebibytes(bytes: Option<u64>, expected: u64) {
    let bytes = bytes.expect("the allocator counts");
    assert!(bytes.abs_diff(expected * MIB) < MIB / 16, "{bytes} bytes, not {expected} MiB");
}

// One test: all of a process share one allocator.
#[test]
fn tensors_of_a_step_count_and_nothing_else_does() {
    let table = vec![1u8; 50 << 20];
    let meter = Meter::open(&Device::flex());
    assert_mebibytes(meter.read().live, 0);

    let weights = tensor(8);
    let activation = weights.clone().mul_scalar(2.0);
    let gradient = activation.clone() + weights.clone();
    assert_mebibytes(meter.read().live, 24);
    drop(activation);
    let used = meter.watch(|| meter.read());
    assert_mebibytes(used.live, 16);
    assert_mebibytes(used.peak, 24);
    assert_eq!(used.peak_kind, Some(PeakKind::Allocator));
    assert_eq!((used.reserved, used.smi, used.total), (None, None, None));
    meter.reset_peak();
    assert_mebibytes(meter.read().peak, 16);

    let loaded = || {
        apart();
        vec![0.5f32; 3 << 18]
    };
    let mut batch = thread::spawn(loaded).join().expect("a batch");
    assert_mebibytes(meter.read().live, 16);
    hand_over(&mut batch);
    assert_mebibytes(meter.read().live, 19);
    let images = Tensor::<1>::from_data(TensorData::new(batch, [3 << 18]), &Device::flex());
    assert_mebibytes(meter.read().live, 19);
    drop(images);
    assert_mebibytes(meter.read().live, 16);

    let ((), timeline) = record(&meter, || {
        let output = weights.clone().exp();
        mark(0, || "exp after forward".to_owned());
        drop(output);
        mark(0, || "exp after backward".to_owned());
    });
    let live: Vec<_> = timeline.marks.iter().map(|mark| mark.live).collect();
    [16, 24, 16].iter().zip(live).for_each(|(&expected, live)| assert_mebibytes(live, expected));
    assert_mebibytes(timeline.most(), 24);

    // What was there before is no less, when it goes, than nothing.
    drop((weights, gradient, table));
    assert_mebibytes(meter.read().live, 0);
}
