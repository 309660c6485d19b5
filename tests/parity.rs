//! The networks are torchvision's, or PyTorch's own: outputs, gradients, running statistics and training agree.

#![expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]

#[path = "parity/precision.rs"]
mod precision;

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::activation::sigmoid;
use burn::tensor::{DType, Device, Tensor, TensorData};
use trainer::memory::offload::Store;
use trainer::memory::{Activation, Chain, CheckpointPlan, Schedule, executor};
use trainer::model::{HeadConfig, ModelConfig, Network, Task};
use trainer::parallel::Part;

const BATCH: usize = 4;
const SIZE: usize = 64;
const OUTPUTS: usize = 5;

struct Oracle(BTreeMap<String, Vec<f32>>);

impl Oracle {
    fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("the fixture is there");
        let file = safetensors::SafeTensors::deserialize(&bytes).expect("it is SafeTensors");
        let values = |data: &[u8]| {
            data.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        };
        // A ResNet's classifier has another name than a DenseNet's.
        let named = |name: &str| name.replace("/fc.", "/classifier.");
        Self(file.iter().map(|(name, view)| (named(name), values(view.data()))).collect())
    }

    fn get(&self, name: &str) -> &[f32] {
        self.0.get(name).unwrap_or_else(|| panic!("the oracle has {name}"))
    }

    fn names(&self, kind: &str) -> Vec<String> {
        self.0.keys().filter_map(|name| Some(name.strip_prefix(kind)?.to_owned())).collect()
    }
}

/// Our name of a parameter, as torchvision has it.
fn torch_name(name: &str) -> String {
    name.replace("classifier.findings.", "classifier.")
}

fn images(precision: DType) -> Activation {
    let count = BATCH * 3 * SIZE * SIZE;
    let wave = |i: usize| ((i as f64 * 0.37).sin() + ((i * i) as f64 * 1e-5).sin()) as f32;
    let values: Vec<f32> = (0..count).map(wave).collect();
    let data = TensorData::new(values, [BATCH, 3, SIZE, SIZE]);
    Activation::Map(Tensor::from_data(data, (&Device::flex(), precision)))
}

fn targets(precision: DType) -> Tensor<2> {
    let count = BATCH * OUTPUTS;
    let values: Vec<f32> = (0..count).map(|i| ((i * 7 + i / 3) % 3 == 0) as u8 as f32).collect();
    Tensor::from_data(TensorData::new(values, [BATCH, OUTPUTS]), (&Device::flex(), precision))
}

fn chain(network: &Network, oracle: &Oracle, precision: DType) -> Chain {
    let head = HeadConfig {
        name: "findings".into(),
        task: Task::Multilabel,
        labels: (0..OUTPUTS).map(|label| label.to_string()).collect(),
        weight: 1.0,
        hidden: vec![],
        dropout: 0.0,
        direct: false,
        standardize: false,
        loss: None,
    };
    let specs = network.stages(Default::default(), Default::default(), &[head]);
    let mut chain = Chain::init(&specs, &Device::flex(), 0);
    let mut ours: Vec<_> = chain.parameters().iter().map(|p| torch_name(&p.name)).collect();
    ours.sort();
    assert_eq!(ours, oracle.names("weight/"), "names map one to one");
    let counted: usize = specs.iter().map(|spec| spec.parameter_count()).sum();
    let trained = chain.parameters().into_iter().filter(|p| p.trained);
    assert_eq!(counted, trained.map(|p| p.value.dims()[0]).sum::<usize>());
    chain.map_parameters(|name, value| {
        let values = oracle.get(&format!("weight/{}", torch_name(name))).to_vec();
        assert_eq!(value.dims()[0], values.len(), "{name}");
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), (&Device::flex(), precision))
    });
    chain
}

fn vector<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(DType::F32).into_data().try_to_vec::<f32>().expect("holds f32")
}

fn largest_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// ‖ours − theirs‖ / ‖theirs‖.
fn relative_error(ours: &[f32], theirs: &[f32]) -> f64 {
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let difference = square(&mut ours.iter().zip(theirs).map(|(a, b)| f64::from(a - b)));
    difference / square(&mut theirs.iter().map(|v| f64::from(*v))).max(1e-12)
}

struct Step {
    logits: Vec<f32>,
    loss: f32,
    result: executor::StepResult,
}

fn step(chain: &Chain, precision: DType) -> Step {
    step_of(chain, images(precision), |logits| {
        let count = (BATCH * OUTPUTS) as f64;
        (sigmoid(logits) - targets(precision)).div_scalar(count)
    })
}

/// A step with `images`, where `gradient` gives that of the logits.
fn step_of(chain: &Chain, images: Activation, gradient: impl Fn(Tensor<2>) -> Tensor<2>) -> Step {
    let stages = chain.stages().len();
    let schedule = Schedule::of_plan(&CheckpointPlan::keep_all(stages), stages, 1);
    let (mut logits, mut loss) = (vec![], 0.0);
    let result = executor::train(
        &Store::nowhere(),
        chain,
        &schedule,
        executor::StepKey::alone(0, 0, &[Part::alone(0..1)]),
        |_| images.clone(),
        |_, outputs| {
            let output = outputs.into_outputs().remove(0);
            logits = vector(output.clone());
            let answers = vector(targets(DType::F32));
            let term = |(x, y): (&f32, &f32)| x.max(0.0) - x * y + (-x.abs()).exp().ln_1p();
            loss = logits.iter().zip(&answers).map(term).sum::<f32>() / logits.len() as f32;
            Activation::Outputs(vec![gradient(output)])
        },
    );
    Step { logits, loss, result: result.expect("nothing is moved") }
}

/// The worst relative error over the gradients of all parameters, and whose it is.
fn worst_error(of: &executor::StepResult, oracle: &Oracle, kind: &str) -> (f64, String) {
    let errors = of.gradients.iter().map(|(name, gradient)| {
        let theirs = oracle.get(&format!("{kind}/{}", torch_name(name)));
        (relative_error(&vector(gradient.clone()), theirs), name.to_owned())
    });
    errors.max_by(|a, b| a.0.total_cmp(&b.0)).expect("there are parameters")
}

fn agrees_with_torchvision(network: &Network, fixture: &Path) {
    let oracle = Oracle::read(fixture);
    let mut chain = chain(network, &oracle, DType::F32);
    let first = step(&chain, DType::F32);
    let logits = largest_difference(&first.logits, oracle.get("logits"));
    let loss = (first.loss - oracle.get("loss")[0]).abs();
    println!("logits differ by {logits:.2e}, loss by {loss:.2e}");
    assert!(logits < 1e-4 && loss < 1e-5);

    let names = oracle.names("gradient/");
    assert_eq!(first.result.gradients.len(), names.len(), "every parameter has a gradient");
    gradients_agree(network, &oracle, &first.result);

    let mut moved = self::chain(network, &oracle, DType::F32);
    moved.move_statistics(&first.result.statistics[0], None);
    let mut worst: f64 = 0.0;
    for parameter in moved.parameters().iter().filter(|parameter| !parameter.trained) {
        let theirs = oracle.get(&format!("statistic/{}", parameter.name));
        worst = worst.max(relative_error(&vector(parameter.value.clone()), theirs));
    }
    println!("running statistics: the worst relative error is {worst:.2e}");
    assert!(worst < 1e-4);
    let evaluation = executor::evaluate(&moved, images(DType::F32)).into_outputs().remove(0);
    let difference = largest_difference(&vector(evaluation), oracle.get("evaluation"));
    println!("evaluation logits differ by {difference:.2e}");
    assert!(difference < 1e-4);

    let mut velocity: BTreeMap<String, Tensor<1>> = BTreeMap::new();
    let learning_rate = oracle.get("learning_rate")[0];
    for (index, theirs) in oracle.get("losses").iter().enumerate() {
        let Step { loss, result, .. } = step(&chain, DType::F32);
        println!("step {index}: loss {loss:.6}, torchvision {theirs:.6}");
        assert!((loss - theirs).abs() <= 0.01 * theirs, "step {index}");
        chain.map_parameters(|name, value| match result.gradients.get(name) {
            Some(gradient) => {
                let update = match velocity.remove(name) {
                    Some(velocity) => velocity.mul_scalar(0.9) + gradient.clone(),
                    None => gradient.clone(),
                };
                velocity.insert(name.to_owned(), update.clone());
                value - update.mul_scalar(learning_rate)
            }
            None => value,
        });
        chain.move_statistics(&result.statistics[0], None);
    }
}

/// In 32-bit arithmetic and, to rule out that rounding hides a mistake, in 64-bit arithmetic.
fn gradients_agree(network: &Network, oracle: &Oracle, ours: &executor::StepResult) {
    let double = step(&chain(network, oracle, DType::F64), DType::F64).result;
    let (exact, whose) = worst_error(&double, oracle, "exact");
    println!("64-bit gradients: the worst relative error is {exact:.2e}, in {whose}");
    assert!(exact < 1e-5);
    let (single, whose) = worst_error(ours, oracle, "gradient");
    println!("32-bit gradients: {single:.2e}, in {whose}");
    assert!(single < 1e-3);
}

/// The network of `[model.…]`, written as `name = { … }`.
fn network(table: &str) -> Network {
    let config: ModelConfig = toml::from_str(table).expect("reads");
    config.resolve([3, SIZE, SIZE]).expect("resolves")
}

fn small(table: &str, fixture: &str) {
    agrees_with_torchvision(&network(table), &Path::new("tests/fixtures").join(fixture));
}

#[test]
fn a_small_densenet_agrees_with_torchvision() {
    let table = "densenet = { growth = 4, blocks = [2, 2], stem = 8, bottleneck = 4 }";
    small(table, "densenet_parity.safetensors");
}

#[test]
fn a_small_resnet_of_basic_blocks_agrees_with_torchvision() {
    let table = "resnet = { block = 'basic', blocks = [1, 1, 1, 1], stem = 2 }";
    small(table, "resnet_basic_parity.safetensors");
}

#[test]
fn a_small_resnet_of_bottlenecks_agrees_with_torchvision() {
    let table = "resnet = { block = 'bottleneck', blocks = [1, 2, 1, 1], stem = 2 }";
    small(table, "resnet_bottleneck_parity.safetensors");
}

#[test]
fn layers_of_every_kind_agree_with_pytorchs() {
    let layers = "sequential.layers = [
        { stage = { name = 'stem', layers = [
            { conv = { channels = 6, kernel = 3, stride = 2, padding = 1, bias = false } },
            'batch_norm', 'relu',
        ] } },
        { max_pool = { kernel = 3, stride = 2, padding = 1 } },
        { branches = { join = 'concat', of = [
            [{ conv = { channels = 4, kernel = 1 } }, 'sigmoid'],
            [{ conv = { channels = 4, kernel = 3, padding = 1, bias = false } }, 'batch_norm', 'relu'],
            [{ mean_pool = { kernel = 3, stride = 1, padding = 1 } },
             { branches = { join = 'add', of = [[], [{ conv = { channels = 6, kernel = 1 } }]] } }],
            [{ max_pool = { kernel = 3, stride = 1, padding = 1 } },
             { conv = { channels = 2, kernel = 5, padding = 2 } }],
        ] } },
        { branches = { join = 'add', of = [
            [{ conv = { channels = 16, kernel = 3, padding = 1, bias = false } }, 'batch_norm', 'relu'],
            [],
        ] } },
        { mean_pool = { kernel = 2 } },
        { conv = { channels = 8, kernel = 3 } }, 'sigmoid', 'flatten',
        { linear = { features = 12, bias = false } }, 'batch_norm', 'sigmoid', { dropout = { probability = 0.0 } },
        { repeat = { times = 2, layers = [{ linear = { features = 12 } }, 'sigmoid'] } },
    ]";
    small(layers, "sequential_parity.safetensors");
}

fn full(table: &str, fixture: &str) {
    let folder = std::env::var_os("TRAINER_PARITY").expect("TRAINER_PARITY names the folder");
    agrees_with_torchvision(&network(table), &Path::new(&folder).join(fixture));
}

#[test]
#[ignore = "needs the 56 MB that tests/fixtures/densenet_parity.py --full writes"]
fn densenet121_agrees_with_torchvision() {
    full("densenet = { depth = 121 }", "densenet121.safetensors");
}

#[test]
#[ignore = "needs the 200 MB that tests/fixtures/resnet_parity.py --full writes"]
fn resnet50_agrees_with_torchvision() {
    full("resnet = { depth = 50 }", "resnet50.safetensors");
}
