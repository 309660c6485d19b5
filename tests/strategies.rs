//! What protects gradients: they do not depend on how a step is made to fit in memory.

#![expect(clippy::print_stdout, reason = "a process tells another what it found")]

#[path = "support/wave.rs"]
mod wave;

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor};
use proptest::prelude::*;
use trainer::choice::NoSettings;
use trainer::memory::offload::Store;
use trainer::memory::{
    Activation, BatchStatistics, Chain, CheckpointPlan, DenseLayers, DiskOffloadConfig,
    OffloadConfig, Precision, Schedule, executor, statistics,
};
use trainer::model::{HeadConfig, ModelConfig, Network, Norm};
use trainer::parallel::Part;

/// Images of a batch; odd, so that the last part is smaller.
const IMAGES: usize = 5;
/// Their height and width.
const SIDE: usize = 36;

fn network(text: &str) -> Network {
    let config: BTreeMap<String, ModelConfig> =
        toml::from_str(&format!("[model.{text}")).expect("a model");
    config["model"].resolve([1, SIDE, SIDE]).expect("has sizes")
}

fn densenet(norm: &str, dropout: f64) -> Network {
    network(&format!(
        "densenet]\ngrowth = 4\nblocks = [2, 1]\nstem = 6\nbottleneck = 2\nnorm = \"{norm}\"\n\
         dropout = {dropout:?}"
    ))
}

fn resnet(norm: &str) -> Network {
    network(&format!("resnet]\nform = \"cifar\"\ndepth = 8\nnorm = \"{norm}\""))
}

/// Branches, dropout and, if wanted, a norm over the batch.
fn sequential(norm: &str, dropout: f64) -> Network {
    network(&format!(
        "sequential]\nlayers = [{{ conv = {{ channels = 4, kernel = 5, stride = 3 }} }}, {norm} 'relu', \
         {{ max_pool = {{ kernel = 2 }} }}, {{ branches = {{ join = 'concat', of = [[], \
         [{{ conv = {{ channels = 3, kernel = 3, padding = 1 }} }}, {{ dropout = {{ probability = \
         {dropout:?} }} }}]] }} }}, 'flatten', {{ repeat = {{ times = 3, layers = [{{ linear = {{ \
         features = 9 }} }}, 'sigmoid'] }} }}]"
    ))
}

/// The network under a head with dropout.
fn chain(network: &Network, dropout: f64, precision: Precision) -> Chain {
    let head = "name = \"findings\"\ntask = \"multilabel\"\nlabels = [\"a\", \"b\"]";
    let head: HeadConfig = toml::from_str(head).expect("a head");
    let head = HeadConfig { dropout, ..head };
    let stages = network.stages(precision, DenseLayers::Keep, &[head]);
    Chain::init(&stages, &Device::flex(), 3).cast(precision.parameters())
}

fn wave<const D: usize>(shape: [usize; D], speed: f64) -> Tensor<D> {
    wave::wave(shape, speed, &Device::flex())
}

type Values = BTreeMap<String, Vec<f32>>;

fn values(of: impl Iterator<Item = (String, Tensor<1>)>) -> Values {
    of.map(|(name, value)| (name, value.into_data().iter().collect())).collect()
}

/// The gradients of Σ direction·outputs over a batch in `numbers`, taken in parts of `micro` images as
/// `tree` has it, with what waits off the device in `store`, and the statistics that it
/// leaves.
fn step(
    chain: &Chain,
    tree: &CheckpointPlan,
    micro: usize,
    numbers: DType,
    store: &Store,
) -> (Values, Values) {
    step_of(chain, tree, micro, numbers, SIDE, store)
}

/// [`step`] with images of `side` pixels.
fn step_of(
    chain: &Chain,
    tree: &CheckpointPlan,
    micro: usize,
    numbers: DType,
    side: usize,
    store: &Store,
) -> (Values, Values) {
    let parts: Vec<_> = (0..IMAGES).step_by(micro).map(|at| at..(at + micro).min(IMAGES)).collect();
    let alone: Vec<Part> = parts.iter().cloned().map(Part::alone).collect();
    let (images, direction) = (wave([IMAGES, 1, side, side], 0.7), wave([IMAGES, 2], 1.3));
    let result = executor::train(
        store,
        chain,
        &Schedule::of_plan(tree, chain.stages().len(), parts.len()),
        executor::StepKey::alone(11, 4, &alone),
        |part| {
            let part = &parts[part];
            Activation::Map(images.clone().narrow(0, part.start, part.len()).cast(numbers))
        },
        |part, outputs| {
            let part = &parts[part];
            let outputs = outputs.into_outputs().remove(0);
            assert_eq!((outputs.dims(), outputs.dtype()), ([part.len(), 2], numbers));
            let direction = direction.clone().narrow(0, part.start, part.len());
            Activation::Outputs(vec![direction.cast(numbers)])
        },
    );
    let result = result.expect("moves away and back");
    let found = result.statistics.into_iter().zip(&parts).map(|(s, part)| (s, part.len()));
    let found = statistics::combine(found.collect(), BatchStatistics::Mean);
    let gradients = result.gradients.iter().map(|(name, value)| (name.to_owned(), value.clone()));
    (values(gradients), values(found.into_iter()))
}

/// A way to take some stages forward and back, whichever.
fn trees(stages: usize) -> BoxedStrategy<CheckpointPlan> {
    let keep = |rest: Option<CheckpointPlan>, offload| CheckpointPlan::Keep {
        offload,
        rest: rest.map(Box::new),
    };
    if stages == 1 {
        return any::<bool>().prop_map(move |offload| keep(None, offload)).boxed();
    }
    let kept = (trees(stages - 1), any::<bool>());
    let kept = kept.prop_map(move |(rest, offload)| keep(Some(rest), offload));
    let aside = (1..stages).prop_flat_map(move |count| {
        let parts = (trees(stages - count), trees(count), any::<bool>());
        parts.prop_map(move |(later, again, offload)| CheckpointPlan::Checkpoint {
            count,
            offload,
            later: Box::new(later),
            again: Box::new(again),
        })
    });
    prop_oneof![kept, aside].boxed()
}

fn assert_near(ours: &Values, exact: &Values, tolerance: f64) {
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>());
    for (name, exact) in exact {
        let square = |v: f64| v * v;
        let size: f64 = exact.iter().map(|v| square(f64::from(*v))).sum();
        let pairs = ours[name].iter().zip(exact);
        let error: f64 = pairs.map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
        assert!(error.sqrt() <= tolerance * size.sqrt(), "{name}: {}", (error / size).sqrt());
    }
}

fn every_schedule_agrees(network: &Network, precision: Precision) {
    let chain = chain(network, 0.25, precision);
    let (stages, numbers) = (chain.stages().len(), precision.activations());
    let nowhere = Store::nowhere();
    let plain = step(&chain, &CheckpointPlan::keep_all(stages), IMAGES, numbers, &nowhere);
    let folder = tempfile::tempdir().expect("a folder");
    let disk = OffloadConfig::Disk(DiskOffloadConfig { path: folder.path().to_owned() });
    let [host, disk] = [OffloadConfig::Host(NoSettings {}), disk]
        .map(|config| Store::open(&config).expect("opens"));
    let trained = chain.parameters().iter().filter(|parameter| parameter.trained).count();
    assert_eq!(plain.0.len(), trained, "every parameter has a gradient");
    let config = ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let cases = trees(stages);
    let agrees = runner.run(&cases, |tree| {
        for store in [&host, &disk] {
            let ours = step(&chain, &tree, IMAGES, numbers, store);
            prop_assert!(ours == plain, "gradients or statistics differ: {tree:?} {store:?}");
        }
        Ok(())
    });
    agrees.expect("every schedule agrees");
    let every = CheckpointPlan::segments(&vec![1; stages]);
    let away = every.clone().offloaded(&chain.moves_saved());
    for (tree, store) in [(every, &nowhere), (away.clone(), &host), (away, &disk)] {
        assert!(step(&chain, &tree, IMAGES, numbers, store) == plain, "{tree:?}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 0);
}

fn every_split_agrees(network: &Network) {
    assert_eq!(network.norm(), Norm::Group);
    let chain = chain(network, 0.25, Precision::Fp32);
    let stages = chain.stages().len();
    let host = Store::open(&OffloadConfig::Host(NoSettings {})).expect("opens");
    let (whole, _) = step(&chain, &CheckpointPlan::keep_all(stages), IMAGES, DType::F32, &host);
    for micro in [1, 2, 3, 4, IMAGES, 9] {
        let every = CheckpointPlan::segments(&vec![1; stages]);
        let away = every.clone().offloaded(&chain.moves_saved());
        for tree in [CheckpointPlan::keep_all(stages), every, away] {
            let (parts, _) = step(&chain, &tree, micro, DType::F32, &host);
            assert_near(&parts, &whole, 1e-5);
        }
    }
}

#[test]
fn every_schedule_of_a_densenet_gives_the_same_bits() {
    every_schedule_agrees(&densenet("batch", 0.2), Precision::Fp32);
    every_schedule_agrees(&densenet("group", 0.2), Precision::Fp32);
}

#[test]
fn every_schedule_of_a_resnet_gives_the_same_bits() {
    every_schedule_agrees(&resnet("batch"), Precision::Fp32);
}

#[test]
fn every_schedule_of_a_list_of_layers_gives_the_same_bits() {
    every_schedule_agrees(&sequential("'batch_norm',", 0.2), Precision::Fp32);
}

#[test]
fn every_schedule_gives_the_same_bits_in_16_bits() {
    every_schedule_agrees(&densenet("batch", 0.2), Precision::Bf16);
    every_schedule_agrees(&densenet("group", 0.2), Precision::Fp16);
    every_schedule_agrees(&resnet("batch"), Precision::Fp16);
    every_schedule_agrees(&resnet("group"), Precision::Bf16);
    every_schedule_agrees(&resnet("batch"), Precision::Half);
    every_schedule_agrees(&sequential("'batch_norm',", 0.2), Precision::Bf16);
    every_schedule_agrees(&sequential("'batch_norm',", 0.2), Precision::Half);
}

#[test]
fn every_split_of_a_batch_gives_its_gradient() {
    every_split_agrees(&densenet("group", 0.2));
    every_split_agrees(&resnet("group"));
    every_split_agrees(&sequential("", 0.2));
}

/// FNV-1a of the bits of gradients and statistics.
fn digest(found: &(Values, Values)) -> u64 {
    let values = found.0.values().chain(found.1.values()).flatten();
    let bytes = values.flat_map(|value| value.to_bits().to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[test]
#[ignore = "run by the test below, with as many threads as it says"]
fn digests_of_gradients() {
    let wide = "densenet]\ngrowth = 16\nblocks = [2, 2]\nstem = 32\nbottleneck = 4";
    for (network, precision) in [
        (network(wide), Precision::Fp32),
        (network(wide), Precision::Bf16),
        (network("resnet]\ndepth = 18\nstem = 32"), Precision::Fp32),
    ] {
        let chain = chain(&network, 0.0, precision);
        let tree = CheckpointPlan::keep_all(chain.stages().len());
        let found = step_of(&chain, &tree, IMAGES, precision.activations(), 96, &Store::nowhere());
        println!("digest {:x}", digest(&found));
    }
}

#[test]
fn gradients_do_not_depend_on_the_threads_that_compute_them() {
    let digests = |threads: &str| -> Vec<String> {
        let program = std::env::current_exe().expect("its path");
        let arguments = ["digests_of_gradients", "--exact", "--ignored", "--nocapture"];
        let mut command = std::process::Command::new(program);
        let output = command.args(arguments).env("RAYON_NUM_THREADS", threads).output();
        let output = String::from_utf8(output.expect("runs").stdout).expect("UTF-8");
        let found: Vec<String> =
            output.lines().filter(|line| line.starts_with("digest ")).map(str::to_owned).collect();
        assert_eq!(found.len(), 3, "{output}");
        found
    };
    let one = digests("1");
    for threads in ["2", "3", "8", "8"] {
        assert_eq!(digests(threads), one, "{threads} threads");
    }
}
