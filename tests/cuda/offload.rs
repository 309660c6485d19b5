//! What fused stages keep, moved to the host and back beside the kernels.
//!
//! `cargo test --features cuda-tests --test cuda offload -- --nocapture --test-threads 1` prints what
//! it costs and saves.

use std::time::{Duration, Instant};

use burn::tensor::DType;
use trainer::choice::NoSettings;
use trainer::memory::executor::StepResult;
use trainer::memory::offload::{OffloadTensor, Store};
use trainer::memory::{
    CheckpointPlan, DenseLayers, DiskOffloadConfig, Keep, OffloadConfig, Pass, Precision, Purpose,
    Statistics,
};
use trainer::model::{ResnetBlock, ResnetConfig, ResnetForm};
use trainer::ops::gpu::{Downloads, Identity, Uploads};
use trainer::parallel::Part;

use super::{
    Activation, Buffer, Chain, Device, Gpu, Schedule, StageSpec, Tensor, chain, densenet, executor,
    network, noise, resolve_device, values,
};

fn host() -> Store {
    Store::open(&OffloadConfig::Host(NoSettings {})).expect("opens")
}

/// A training pass of a chain up to its features, with Σ features for a loss.
fn pass(chain: &Chain, tree: &CheckpointPlan, images: &[Tensor<4>], store: &Store) -> StepResult {
    let result = executor::train(
        store,
        chain,
        &Schedule::of_plan(tree, chain.stages().len(), images.len()),
        executor::StepKey::alone(1, 0, &[Part::alone(0..16), Part::alone(16..32)]),
        |part| Activation::Map(images[part].clone()),
        |_, outputs| {
            let outputs = outputs.into_features();
            Activation::Features(noise(outputs.dims(), 5, &outputs.device()))
        },
    );
    result.expect("moves away and back")
}

type Bits = Vec<(String, Vec<u32>)>;

fn bits(result: StepResult) -> Bits {
    let bits = |value: &Tensor<1>| values(value.clone()).into_iter().map(f32::to_bits).collect();
    result.gradients.iter().map(|(name, value)| (name.to_owned(), bits(value))).collect()
}

/// Holds that moving away what stages keep, and inputs where they are computed again as `trees` have it,
/// changes no bit of the gradients of keeping everything.
fn agree(
    name: &str,
    stages: &[Box<dyn StageSpec>],
    shape: [usize; 4],
    trees: impl Fn(usize) -> Vec<CheckpointPlan>,
) {
    let device = resolve_device("cuda").expect("a GPU");
    let chain = chain(stages, &device);
    let count = chain.stages().len();
    let images: Vec<Tensor<4>> = (0..2).map(|part| noise(shape, 3 + part, &device)).collect();
    let plain = bits(pass(&chain, &CheckpointPlan::keep_all(count), &images, &Store::nowhere()));
    assert!(plain.iter().all(|(_, bits)| bits.iter().any(|bits| *bits != 0)), "{name}");
    let folder = tempfile::tempdir().expect("a folder");
    let disk = DiskOffloadConfig { path: folder.path().to_owned() };
    let stores = [host(), Store::open(&OffloadConfig::Disk(disk)).expect("opens")];
    let moves_saved = chain.moves_saved();
    assert!(moves_saved[..count - 1].iter().all(|moves| *moves), "{name}: {moves_saved:?}");
    for tree in trees(count) {
        for store in &stores {
            for _ in 0..3 {
                let away = tree.clone().offloaded(&moves_saved);
                let ours = bits(pass(&chain, &away, &images, store));
                let differ = ours.iter().zip(&plain).filter(|(ours, plain)| ours != plain);
                let differ: Vec<&str> = differ.map(|(ours, _)| ours.0.as_str()).collect();
                assert!(differ.is_empty(), "{name}: {differ:?} under {tree:?}");
            }
        }
    }
}

/// Everything kept, recomputed in three segments, and stage by stage.
fn policies(count: usize) -> Vec<CheckpointPlan> {
    let thirds = [count / 3, count / 3, count - 2 * (count / 3)];
    vec![
        CheckpointPlan::keep_all(count),
        CheckpointPlan::segments(&thirds),
        CheckpointPlan::segments(&vec![1; count]),
    ]
}

#[test]
fn offload_of_a_fused_densenet_changes_no_bit_of_its_gradients() {
    for precision in [Precision::Fp32, Precision::Bf16] {
        for dense_layers in [DenseLayers::Keep, DenseLayers::Share] {
            let shape = [4, 3, 193, 224];
            let network = network(densenet(32, &[3, 4, 2], 64), shape);
            let stages = network.stages(precision, dense_layers, &[]);
            agree(&format!("{precision:?} {dense_layers:?}"), &stages, shape, policies);
        }
    }
}

#[test]
fn offload_of_lists_of_layers_changes_no_bit_of_their_gradients() {
    lists_agree(|count| vec![CheckpointPlan::keep_all(count)]);
}

#[test]
fn lists_of_layers_that_are_computed_again_give_the_same_bits() {
    lists_agree(policies);
}

fn lists_agree(trees: impl Fn(usize) -> Vec<CheckpointPlan> + Copy) {
    for (image, layers) in super::general::layer_lists() {
        let shape = [3, image[0], image[1], image[2]];
        let stages = network(layers, shape).stages(Precision::Fp32, DenseLayers::Keep, &[]);
        agree(&format!("{image:?}"), &stages, shape, trees);
    }
}

#[test]
fn offload_of_a_fused_resnet_changes_no_bit_of_its_gradients() {
    for (form, block) in
        [(ResnetForm::Imagenet, ResnetBlock::Bottleneck), (ResnetForm::Cifar, ResnetBlock::Basic)]
    {
        let (blocks, stem) = (Some(vec![2, 2]), Some(16));
        let config = ResnetConfig { form, block: Some(block), blocks, stem, ..Default::default() };
        let shape = [4, 3, 129, 128];
        let stages = network(config, shape).stages(Precision::Bf16, DenseLayers::Keep, &[]);
        // The mean keeps nothing, and is the last.
        agree(&format!("{form:?} {block:?}"), &stages, shape, policies);
    }
}

/// The buffers that stages keep, each once.
fn kept(chain: &Chain, images: &Tensor<4>) -> Vec<Buffer> {
    let pass = Pass::new(Purpose::First, 1, 0, 0);
    let mut found: Vec<(Identity, Buffer)> = Vec::new();
    let mut flowing = Activation::Map(images.clone());
    let last = chain.stages().len() - 1;
    for stage in &chain.stages()[..last] {
        let (output, saved) = stage.forward(flowing, Keep::All, &pass, &mut Statistics::new());
        flowing = output;
        let mut saved = saved.expect("keeps");
        for tensor in stage.offload_tensors(&mut saved) {
            let OffloadTensor::Buffer(_, buffer) = tensor else {
                panic!("a fused stage keeps buffers")
            };
            let identity = buffer.identity();
            if found.iter().all(|(known, _)| *known != identity) {
                found.push((identity, buffer.clone()));
            }
        }
    }
    found.into_iter().map(|(_, buffer)| buffer).collect()
}

fn bytes(buffers: &[Buffer]) -> usize {
    buffers.iter().map(|buffer| buffer.len() * buffer.storage().size()).sum()
}

/// The median of some seconds of it.
fn time(gpu: &Gpu, mut work: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..7)
        .map(|_| {
            let begin = Instant::now();
            work();
            gpu.wait().expect("runs");
            begin.elapsed()
        })
        .collect();
    times.drain(..2);
    times.sort_unstable();
    times[times.len() / 2]
}

fn measure(device: &Device, batch: usize, side: usize, dense_layers: DenseLayers) {
    let gpu = Gpu::of(device).expect("a GPU");
    let shape = [batch, 3, side, side];
    let network = network(densenet(32, &[6, 12, 24, 16], 64), shape);
    let chain = chain(&network.stages(Precision::Bf16, dense_layers, &[]), device);
    let count = chain.stages().len();
    let images = [noise(shape, 3, device)];
    let (store, nowhere) = (host(), Store::nowhere());
    let all = CheckpointPlan::keep_all(count);
    let away = all.clone().offloaded(&chain.moves_saved());

    let (moved, copies) = {
        let (downloads, uploads) = (Downloads::new(&gpu), Uploads::new(&gpu).expect("a stream"));
        let buffers = kept(&chain, &images[0]);
        let sizes: Vec<(usize, DType)> =
            buffers.iter().map(|buffer| (buffer.len(), buffer.storage())).collect();
        let moved = bytes(&buffers);
        let copies = time(&gpu, || {
            let bytes = downloads.begin(&gpu, buffers.clone()).wait().expect("copies");
            let rooms = uploads.room(&gpu, &sizes).expect("fits");
            std::thread::scope(|scope| {
                let upload = || {
                    for (bytes, room) in bytes.into_iter().zip(rooms) {
                        uploads.upload(&bytes, room).expect("copies");
                    }
                };
                scope.spawn(upload);
            });
        });
        (moved, copies)
    };
    device.memory_cleanup();
    let run = |tree: &CheckpointPlan, store: &Store| drop(pass(&chain, tree, &images, store));
    let plain = time(&gpu, || run(&all, &nowhere));
    let ours = time(&gpu, || run(&away, &store));
    let peak = |tree: &CheckpointPlan, store: &Store| {
        gpu.wait().expect("runs");
        gpu.most_bytes_in(|| {
            run(tree, store);
            gpu.wait().expect("runs");
        })
        .1
    };
    let (before, after) = (peak(&all, &nowhere), peak(&away, &store));
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    println!(
        "DenseNet-121, {batch}×{side}², bf16, {dense_layers:?}: peak {:.0} MiB kept, {:.0} MiB away; \
         {:.0} MiB each way, alone in {copies:?}; a pass {plain:?} with all kept, {ours:?} away, \
         {:?} one after the other",
        mib(before),
        mib(after),
        mib(moved as u64),
        plain + copies,
    );
    // Where a single stage's backward pass is what takes most, nothing that is kept adds to it; what
    // comes back early may.
    let batch_is_large = dense_layers == DenseLayers::Keep && batch == 64;
    assert!(after < before + before / 10, "{after} {before}");
    assert!(!batch_is_large || after < before, "{after} {before}");
}

#[test]
fn offload_lowers_the_peak_and_runs_beside_the_computation() {
    let device = resolve_device("cuda").expect("a GPU");
    for (batch, side) in [(64, 320), (4, 1024)] {
        for dense_layers in [DenseLayers::Keep, DenseLayers::Share] {
            measure(&device, batch, side, dense_layers);
        }
    }
}

#[test]
fn offload_brings_back_many_odd_sizes_bit_for_bit_while_kernels_run() {
    let device = resolve_device("cuda").expect("a GPU");
    let store = host();
    let busy: Tensor<2> = noise([2048, 2048], 9, &device);
    for round in 0..20 {
        let mut maps: Vec<Tensor<4>> = (1..9)
            .map(|index| noise([1, index, 33 + 7 * index, 50 + round], index as u64, &device))
            .collect();
        let before: Vec<Vec<f32>> = maps.iter().map(|map| values(map.clone())).collect();
        let mut ticket =
            store.send(maps.iter_mut().map(OffloadTensor::Map).collect()).expect("leaves");
        let more = busy.clone().mul_scalar(1.5).add_scalar(round as f32);
        store.fetch(&mut ticket).expect("begins");
        let more = more.mul_scalar(0.5);
        store.restore(ticket, maps.iter_mut().map(OffloadTensor::Map).collect()).expect("lands");
        let after: Vec<Vec<f32>> = maps.into_iter().map(values).collect();
        assert!(before == after, "round {round}");
        assert_eq!(more.cast(DType::F32).dims(), [2048, 2048]);
    }
}
