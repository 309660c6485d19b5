//! What needs a GPU: `cargo test --features cuda-tests --test cuda -- --test-threads 1`.
#![cfg(feature = "cuda-tests")]
#![expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]

use burn::tensor::{DType, Device, Tensor, TensorData};
use std::collections::BTreeMap;
use trainer::build::resolve_device;
use trainer::memory::offload::Store;
use trainer::memory::{
    Activation, ActivationShape, BucketMember, Chain, CheckpointPlan, DenseLayers, Keep, Pass,
    Precision, Purpose, Schedule, StageSpec, Statistics, executor,
};
use trainer::model::{DensenetConfig, ModelConfig, Network, Norm};
use trainer::ops::gpu::{Buffer, Gpu, Kernel, Sizes};
use trainer::parallel::Part;

#[path = "cuda/ahead.rs"]
mod ahead;
#[path = "cuda/beside.rs"]
mod beside;
#[path = "support/not_finite.rs"]
mod broken;
#[path = "cuda/cube.rs"]
mod cube;
#[path = "cuda/decided.rs"]
mod decided;
#[path = "cuda/footprint.rs"]
mod footprint;
#[path = "cuda/general.rs"]
mod general;
#[path = "cuda/images.rs"]
mod images;
#[path = "cuda/losses.rs"]
mod losses;
#[path = "cuda/not_finite.rs"]
mod not_finite;
#[path = "cuda/offload.rs"]
mod offload;
#[path = "cuda/optim.rs"]
mod optim;
#[path = "cuda/precision.rs"]
mod precision;
#[path = "cuda/resnet.rs"]
mod resnet;
#[path = "support/state.rs"]
mod state;
#[path = "support/wave.rs"]
mod wave;

use wave::wave;

/// Numbers between −1 and 1 that follow no pattern, the same everywhere.
fn noise<const D: usize>(shape: [usize; D], seed: u64, device: &Device) -> Tensor<D> {
    let mut state = seed;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    let values: Vec<f32> = (0..shape.iter().product()).map(|_: usize| draw()).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(DType::F32).into_data().iter().collect()
}

#[test]
fn a_kernel_works_on_slices_of_tensors_and_burn_goes_on_with_what_it_wrote() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    for (storage, name, tolerance) in
        [(DType::F32, "float", 1e-6), (DType::BF16, "__nv_bfloat16", 1e-2)]
    {
        let text = include_str!("cuda/affine_relu.cu");
        let kernel = Kernel::new("affine_relu", 256, &[("STORAGE", &name)], &[text]);
        let (pixels, all, from, channels) = (333, 40, 8, 24);
        let map = |device: &Device| wave([pixels, all], 0.7, device).mul_scalar(3.0);
        let scale = |device: &Device| wave([channels], 0.3, device).add_scalar(1.0);
        let shift = |device: &Device| wave([channels], 0.9, device);
        let block = Buffer::of_tensor(map(&device).cast(storage)); // queued work comes first
        let out = gpu.empty(pixels * channels, storage);
        let sizes = Sizes::new().int(pixels).int(channels).int(all).int(channels);
        let (gamma, beta) = (Buffer::of_tensor(scale(&device)), Buffer::of_tensor(shift(&device)));
        let grid = [(pixels * channels).div_ceil(256), 1, 1];
        gpu.launch(&kernel, grid, &[&block.from(from), &gamma, &beta, &out], &sizes);
        let ours = gpu.tensor(&out, [pixels, channels]).mul_scalar(2.0).add_scalar(1.0);

        let cpu = Device::flex();
        let slice = map(&cpu).narrow(1, from, channels);
        let expected = slice * scale(&cpu).unsqueeze::<2>() + shift(&cpu).unsqueeze::<2>();
        let expected = values(expected.clamp_min(0.0).mul_scalar(2.0).add_scalar(1.0));
        for (ours, expected) in values(ours).iter().zip(expected) {
            assert!(
                (ours - expected).abs() <= tolerance * expected.abs().max(1.0),
                "{ours} {expected}"
            );
        }
    }
}

#[test]
fn launching_costs_the_host_a_few_microseconds() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    let text = include_str!("cuda/affine_relu.cu");
    let kernel = Kernel::new("affine_relu", 256, &[("STORAGE", &"float")], &[text]);
    let (x, out) = (gpu.upload(&[1.0; 256]), gpu.empty(256, DType::F32));
    let sizes = Sizes::new().int(1).int(256).int(256).int(256);
    let round = |count: usize| {
        let start = std::time::Instant::now();
        for _ in 0..count {
            gpu.launch(&kernel, [1, 1, 1], &[&x, &x, &x, &out], &sizes);
        }
        let queued = start.elapsed();
        gpu.wait().expect("runs");
        (queued / count as u32, start.elapsed() / count as u32)
    };
    let first = round(1);
    round(1000);
    let (queued, done) = round(5000);
    println!("first launch {first:?}; then queued in {queued:?}, done in {done:?} each");
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        let tensor = gpu.tensor(&out, [256]);
        std::hint::black_box(Buffer::of_tensor(tensor));
    }
    println!("buffer to tensor and back {:?}", start.elapsed() / 1000);
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(gpu.empty(1 << 20, DType::F32));
    }
    println!("an allocation {:?}", start.elapsed() / 1000);
}

fn densenet(growth: usize, blocks: &[usize], stem: usize) -> DensenetConfig {
    let (growth, blocks, stem) = (Some(growth), Some(blocks.to_vec()), Some(stem));
    DensenetConfig { growth, blocks, stem, ..DensenetConfig::default() }
}

/// The same with dropout, whose masks are those of the CPU.
fn dropping(growth: usize, blocks: &[usize], stem: usize) -> DensenetConfig {
    DensenetConfig { dropout: 0.3, ..densenet(growth, blocks, stem) }
}

/// The same with group norm.
fn grouped(config: DensenetConfig) -> DensenetConfig {
    DensenetConfig { norm: Norm::Group, ..config }
}

/// The network for images `[batch, channels, height, width]`.
fn network(model: impl Into<ModelConfig>, [_, channels, height, width]: [usize; 4]) -> Network {
    model.into().resolve([channels, height, width]).expect("is right")
}

/// What a training pass of a chain up to the pooled features gives, on the host and by parameter.
struct Outcome {
    features: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
    statistics: BTreeMap<String, Vec<f32>>,
}

/// How many draws of images a chain is trained on.
const DRAWS: u64 = 5;

/// A training pass for each of [`DRAWS`] batches of images.
fn train(chain: &Chain, shape: [usize; 4], device: &Device, dtype: DType) -> Vec<Outcome> {
    (0..DRAWS).map(|draw| pass(chain, shape, device, dtype, draw)).collect()
}

/// A training pass whose loss is Σ direction·features.
fn pass(chain: &Chain, shape: [usize; 4], device: &Device, dtype: DType, draw: u64) -> Outcome {
    let buckets = chain.buckets();
    let stages = chain.stages().len();
    let schedule = Schedule::of_plan(&CheckpointPlan::keep_all(stages), stages, 1);
    let mut features = Vec::new();
    let result = executor::train(
        &Store::nowhere(),
        chain,
        &schedule,
        executor::StepKey::alone(1, 0, &[Part::alone(0..1)]),
        |_| Activation::Map(noise(shape, 10 * draw + 3, device).cast(dtype)),
        |_, output| {
            let output = output.into_features();
            let direction = noise(output.dims(), 10 * draw + 5, device).cast(dtype);
            features = values(output);
            Activation::Features(direction)
        },
    );
    let result = result.expect("nothing is moved");
    let split = |key: &str, value: Tensor<1>| {
        let bucket =
            buckets.iter().find(|bucket| bucket.key() == key).expect("a bucket of this key");
        let value = values(value);
        let part = |(member, place): (&BucketMember, std::ops::Range<usize>)| {
            (member.name.clone(), value[place].to_vec())
        };
        bucket.places().map(part).collect::<Vec<_>>()
    };
    let gradients = result.gradients.iter().flat_map(|(key, value)| split(key, value.clone()));
    let statistics = result.statistics[0].iter().flat_map(|(key, value)| split(key, value.clone()));
    Outcome { features, gradients: gradients.collect(), statistics: statistics.collect() }
}

/// The chain with norms' parameters and statistics that are neither 0 nor 1.
fn chain(stages: &[Box<dyn StageSpec>], device: &Device) -> Chain {
    let mut chain = Chain::init(stages, device, 7);
    let norms = ["norm", "bn", "downsample.1."];
    chain.map_parameters(|name, value| {
        let length = value.dims()[0];
        let offset = match name.rsplit('.').next() {
            Some("weight") if norms.iter().any(|norm| name.contains(norm)) => 1.0,
            Some("running_var") => 1.0,
            Some("bias" | "running_mean") => 0.1,
            _ => return value,
        };
        wave([length], 1.3, device).mul_scalar(0.3).add_scalar(offset)
    });
    chain
}

/// ‖ours − theirs‖ / ‖theirs‖.
fn error(ours: &[f32], theirs: &[f32]) -> f64 {
    assert_eq!(ours.len(), theirs.len());
    let square = |sum: f64, value: f64| sum + value * value;
    let difference = ours.iter().zip(theirs).map(|(a, b)| f64::from(*a) - f64::from(*b));
    let size = theirs.iter().map(|value| f64::from(*value)).fold(0.0, square).sqrt();
    difference.fold(0.0, square).sqrt() / size.max(1e-12)
}

/// Holds that two runs gave the same bits; says of what does not how far it is apart.
fn assert_same_bits(name: &str, ours: &[Outcome], again: &[Outcome]) {
    let mut parts = Vec::new();
    for (draw, (ours, again)) in ours.iter().zip(again).enumerate() {
        let mut part = |what: &str, ours: &[f32], again: &[f32]| {
            if ours != again {
                parts.push(format!("draw {draw}, {what}: {:.1e}", error(ours, again)));
            }
        };
        part("features", &ours.features, &again.features);
        for (what, ours) in &ours.gradients {
            part(&format!("gradient of {what}"), ours, &again.gradients[what]);
        }
        for (what, ours) in &ours.statistics {
            part(what, ours, &again.statistics[what]);
        }
    }
    assert!(parts.is_empty(), "{name}: two runs differ: {parts:#?}");
}

/// The errors of outcomes: for each the median over the draws. Where a number is rounded across 0, ReLU
/// passes another gradient, so one draw says little about another.
#[derive(Debug)]
struct Errors {
    features: f64,
    statistics: f64,
    /// Of all gradients together.
    gradients: f64,
    /// Of each parameter's gradient.
    each: BTreeMap<String, f64>,
}

impl Errors {
    fn of(name: &str, ours: &[Outcome], exact: &[Outcome]) -> Self {
        let all =
            |map: &BTreeMap<String, Vec<f32>>| map.values().flatten().copied().collect::<Vec<_>>();
        let sorted = |of: &dyn Fn(&Outcome) -> Vec<f32>| {
            let mut errors: Vec<f64> =
                ours.iter().zip(exact).map(|(a, b)| error(&of(a), &of(b))).collect();
            errors.sort_by(f64::total_cmp);
            errors
        };
        let median = |of: &dyn Fn(&Outcome) -> Vec<f32>| sorted(of)[ours.len() / 2];
        let names = |outcome: &Outcome| outcome.gradients.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&ours[0]), names(&exact[0]));
        let each = names(&ours[0]).into_iter();
        let errors = Self {
            features: median(&|outcome| outcome.features.clone()),
            statistics: median(&|outcome| all(&outcome.statistics)),
            gradients: median(&|outcome| all(&outcome.gradients)),
            each: each
                .map(|name| (name.clone(), median(&|outcome| outcome.gradients[&name].clone())))
                .collect(),
        };
        let worst = errors.each.iter().max_by(|a, b| a.1.total_cmp(b.1)).expect("there are some");
        // Apart where a ReLU or a maximum has gone another way in some draws.
        let gradients = sorted(&|outcome| all(&outcome.gradients));
        println!(
            "{name}: features {:.1e}, statistics {:.1e}, gradients {:.1e} ({:.1e} to {:.1e}), the worst {:.1e} {}",
            errors.features,
            errors.statistics,
            errors.gradients,
            gradients[0],
            gradients[gradients.len() - 1],
            worst.1,
            worst.0
        );
        errors
    }
}

/// How the fused stages' training passes go at every precision, beside the definition's in fp64: the
/// names of those that are further from it than they may be.
fn compare(
    name: &str,
    shape: [usize; 4],
    dense_layers: &[DenseLayers],
    network: &Network,
) -> Vec<String> {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let mut exact = chain(&network.stages(Precision::Fp32, DenseLayers::Keep, &[]), &cpu);
    let single = train(&exact, shape, &cpu, DType::F32);
    exact.map_parameters(|_, value| value.cast(DType::F64));
    let exact = train(&exact, shape, &cpu, DType::F64);
    let single = Errors::of(&format!("{name} {shape:?} on the CPU in fp32"), &single, &exact);
    let mut failures = Vec::new();
    let precisions = [
        (Precision::Fp32, 1e-5),
        (Precision::Tf32, 1e-3),
        (Precision::Bf16, 1e-2),
        (Precision::Fp16, 1e-2 / 8.0),
    ];
    for (precision, tolerance) in precisions {
        let mut kept: Option<Vec<Outcome>> = None;
        for &dense_layers in dense_layers {
            let fused = chain(&network.stages(precision, dense_layers, &[]), &gpu);
            let ours = train(&fused, shape, &gpu, DType::F32);
            let name = format!("{name} {shape:?} {precision:?} {dense_layers:?}");
            let errors = Errors::of(&name, &ours, &exact);
            // Some gradients all but cancel, and in 32 bits the CPU gives no better ones.
            let best = precision == Precision::Fp32;
            // Where a number is rounded across 0, ReLU passes another gradient: the error of
            // gradients is about the root of that of features, at every precision.
            let gradient = if best { tolerance } else { 10.0 * f64::sqrt(tolerance) * 0.3 };
            let worse =
                |(name, error): (&String, &f64)| *error > (4.0 * single.each[name]).max(tolerance);
            let again = train(&fused, shape, &gpu, DType::F32);
            assert_same_bits(&name, &ours, &again);
            // What is kept of 1×1 convolutions changes no bit.
            assert_same_bits(&name, &ours, kept.as_ref().unwrap_or(&again));
            kept = kept.or(Some(again));
            if errors.features > tolerance
                || errors.statistics > tolerance
                || errors.gradients > gradient
                || best && errors.each.iter().any(worse)
            {
                failures.push(name);
            }
        }
    }
    failures
}

/// How far the features that the GPU predicts are from those of the CPU.
fn evaluate(shape: [usize; 4], network: &Network) -> f64 {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let features = |device: &Device| {
        let chain = chain(&network.stages(Precision::Fp32, DenseLayers::Keep, &[]), device);
        let images = Activation::Map(wave(shape, 0.7, device));
        values(executor::evaluate(&chain, images).into_features())
    };
    error(&features(&gpu), &features(&cpu))
}

#[test]
fn fused_chains_give_the_features_gradients_and_statistics_of_the_definition() {
    let cases = [
        (densenet(8, &[2, 3], 16), [6, 1, 41, 38]),
        (densenet(16, &[1, 2, 2], 16), [3, 3, 65, 64]),
        (densenet(32, &[3, 2], 64), [4, 3, 64, 96]),
        (densenet(32, &[2], 64), [1, 3, 32, 33]),
        // Maps of 16 × 24, whose draws come in whole groups, and of 17 × 9 and 9 × 5, of which they do not.
        (dropping(32, &[3], 64), [4, 3, 64, 96]),
        (dropping(32, &[2, 2], 64), [3, 1, 67, 34]),
        (dropping(16, &[2, 1], 16), [5, 1, 67, 34]),
        (grouped(densenet(8, &[2, 3], 16)), [6, 1, 41, 38]),
        (grouped(densenet(24, &[1, 2, 2], 40)), [3, 3, 65, 64]),
        (grouped(densenet(32, &[3, 2], 64)), [4, 3, 64, 96]),
        (grouped(densenet(32, &[2], 64)), [1, 3, 32, 33]),
        // More images than multiprocessors, and images of many tiles.
        (grouped(densenet(32, &[1], 64)), [140, 1, 12, 10]),
        (grouped(densenet(32, &[2, 1], 64)), [2, 1, 230, 260]),
        (grouped(dropping(32, &[2, 2], 64)), [3, 1, 67, 34]),
        // Widths that are no multiples of 8, for which rows have channels of zeros; of 4 channels, stems run layer by layer.
        (densenet(12, &[2, 3], 20), [3, 1, 40, 36]),
        (densenet(5, &[2, 2], 7), [4, 3, 65, 62]),
        (densenet(12, &[2], 20), [3, 4, 40, 36]),
        (dropping(12, &[2, 1], 24), [3, 1, 67, 34]),
        (grouped(densenet(12, &[2, 3, 1], 20)), [3, 3, 65, 62]),
        (grouped(densenet(5, &[2, 2], 7)), [4, 3, 65, 62]),
        (grouped(densenet(12, &[2], 20)), [3, 4, 40, 36]),
    ];
    let case = |(config, shape): (DensenetConfig, [usize; 4])| {
        let keep = [DenseLayers::Keep, DenseLayers::Share];
        compare("DenseNet", shape, &keep, &network(config, shape))
    };
    let failures: Vec<String> = cases.into_iter().flat_map(case).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// As they lie on several devices; here all parts are on one.
#[test]
fn dense_blocks_that_are_cut_give_the_features_gradients_and_statistics_of_the_definition() {
    let cases = [
        (densenet(8, &[3, 2], 16), [6, 1, 41, 38]),
        (densenet(32, &[3, 2], 64), [4, 3, 64, 96]),
        (dropping(32, &[2, 2], 64), [3, 1, 67, 34]),
        (grouped(densenet(24, &[1, 3], 40)), [3, 3, 65, 64]),
        (densenet(12, &[2, 3], 20), [3, 1, 40, 36]),
    ];
    let case = |(config, shape): (DensenetConfig, [usize; 4])| {
        let keep = [DenseLayers::Keep, DenseLayers::Share];
        compare("cut DenseNet", shape, &keep, &network(config, shape).cut(|_| true))
    };
    let failures: Vec<String> = cases.into_iter().flat_map(case).collect();
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Between stages, as Grad-CAM and other devices are given them.
#[test]
fn maps_of_odd_widths_are_tensors_without_channels_of_zeros() {
    let (gpu, cpu) = (resolve_device("cuda").expect("a GPU"), Device::flex());
    let shape = [2, 1, 40, 36];
    let pass = Pass::new(Purpose::Recompute, 1, 0, 0);
    let specs = network(densenet(12, &[2, 2], 20), shape);
    let specs = specs.stages(Precision::Fp32, DenseLayers::Keep, &[]);
    let mut inputs = [&gpu, &cpu].map(|device| Activation::Map(noise(shape, 3, device)));
    let mut wanted = ActivationShape::Map(shape);
    for spec in &specs[..specs.len() - 1] {
        wanted = spec.output(&wanted);
        let mut maps = Vec::new();
        for (device, input) in [&gpu, &cpu].into_iter().zip(&mut inputs) {
            let (stage, given) = (spec.init(device, 7), input.clone());
            *input = stage.forward(given, Keep::Nothing, &pass, &mut Statistics::new()).0;
            assert_eq!(input.shape(), wanted, "{}", spec.name());
            maps.push(values(input.clone().into_map()));
        }
        let off = error(&maps[0], &maps[1]);
        assert!(off < 1e-5, "{}: {off:.1e}", spec.name());
    }
}

#[test]
fn evaluation_uses_running_statistics_or_those_of_each_image() {
    let shape = [2, 1, 40, 36];
    let odd = densenet(12, &[2, 2], 20);
    for config in [densenet(8, &[2, 2], 16), grouped(densenet(8, &[2, 2], 16)), odd] {
        let difference = evaluate(shape, &network(config, shape));
        assert!(difference < 1e-5, "{difference}");
    }
}
