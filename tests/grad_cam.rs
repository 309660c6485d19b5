//! Grad-CAM is that of PyTorch: maps of torchvision's networks agree with Captum's.

use std::collections::BTreeMap;
use std::path::Path;

use burn::tensor::{Device, Tensor, TensorData};
use serde::Deserialize;
use trainer::memory::{Chain, Precision};
use trainer::model::weights::{self, NamedTensor};
use trainer::model::{HeadConfig, ModelConfig, Network, Task};
use trainer::train::{GradCam, Images, Inference};

const BATCH: usize = 4;
const SIZE: usize = 64;
const OUTPUTS: usize = 5;

#[derive(Deserialize)]
struct Oracle {
    densenet: Maps,
    resnet: Maps,
}

/// `[labels, images, height, width]`.
#[derive(Deserialize)]
struct Maps {
    shape: [usize; 4],
    values: Vec<f32>,
}

fn oracle() -> Oracle {
    let text = std::fs::read_to_string("tests/fixtures/grad_cam.json").expect("the fixture");
    serde_json::from_str(&text).expect("it is JSON")
}

fn network(table: &str) -> Network {
    let config: ModelConfig = toml::from_str(table).expect("reads");
    config.resolve([3, SIZE, SIZE]).expect("resolves")
}

/// Random weights, and two heads: one that the maps are not of, and another.
fn drawn(network: &Network) -> Inference {
    let head = |name: &str| HeadConfig {
        name: name.into(),
        task: Task::Multilabel,
        labels: (0..OUTPUTS).map(|label| label.to_string()).collect(),
        weight: 1.0,
        hidden: vec![],
        dropout: 0.0,
        direct: false,
        standardize: false,
        loss: None,
    };
    let heads = [head("other"), head("findings")];
    let specs = network.stages(Precision::Fp32, Default::default(), &heads);
    let chain = Chain::init(&specs, &Device::flex(), 0);
    Inference::new(chain, &heads, Device::flex(), Precision::Fp32)
}

/// The second head is the classifier of `fixture`, whose weights these are.
fn inference(network: &Network, fixture: &str) -> Inference {
    let mut inference = drawn(network);
    let tensors = weights::read(&Path::new("tests/fixtures").join(fixture)).expect("reads").tensors;
    // A ResNet's classifier has another name than a DenseNet's.
    let ours = |name: &str| {
        name.replace("/fc.", "/classifier.").replace("/classifier.", "/classifier.findings.")
    };
    let tensors: BTreeMap<String, NamedTensor> =
        tensors.into_iter().map(|tensor| (ours(&tensor.name), tensor)).collect();
    inference.chain.map_parameters(|name, value| match tensors.get(&format!("weight/{name}")) {
        Some(tensor) => {
            let data = TensorData::new(tensor.data.clone(), [tensor.data.len()]);
            Tensor::from_data(data, &Device::flex())
        }
        None => {
            assert!(name.contains(".other."), "{name} is in the fixture");
            value
        }
    });
    inference
}

fn images() -> Vec<Vec<f32>> {
    let wave = |i: usize| ((i as f64 * 0.37).sin() + ((i * i) as f64 * 1e-5).sin()) as f32;
    let size = 3 * SIZE * SIZE;
    (0..BATCH).map(|image| (image * size..(image + 1) * size).map(wave).collect()).collect()
}

fn agree(network: &Network, fixture: &str, theirs: &Maps) {
    let inference = inference(network, fixture);
    let cam = GradCam::new(network, &inference).expect("there is a map");
    let each = images();
    let shape = [BATCH, 3, SIZE, SIZE];
    let images = Images::Host { images: &each, shape };
    let outputs: Vec<[usize; 2]> = (0..OUTPUTS).map(|label| [1, label]).collect();
    let ours = cam.maps(&inference, images, &outputs).expect("computes");
    assert_eq!([ours.len(), ours[0].len()], theirs.shape[..2]);
    assert_eq!(ours[0][0].size, theirs.shape[2..]);
    let ours: Vec<f32> = ours.into_iter().flatten().flat_map(|map| map.values).collect();
    let largest = theirs.values.iter().copied().fold(0.0, f32::max);
    assert!(largest > 0.0, "there is something to compare");
    assert_eq!(ours.len(), theirs.values.len());
    for (place, (ours, theirs)) in ours.iter().zip(&theirs.values).enumerate() {
        assert!((ours - theirs).abs() < 1e-4 * largest, "{place}: {ours} and {theirs}");
    }
}

#[test]
fn maps_of_a_densenet_are_those_of_captum() {
    let network = network("densenet = { growth = 4, blocks = [2, 2], stem = 8, bottleneck = 4 }");
    agree(&network, "densenet_parity.safetensors", &oracle().densenet);
}

#[test]
fn maps_of_a_resnet_are_those_of_captum() {
    let network = network("resnet = { block = 'basic', blocks = [1, 1, 1, 1], stem = 2 }");
    agree(&network, "resnet_basic_parity.safetensors", &oracle().resnet);
}

#[test]
fn the_map_of_a_list_of_layers_is_that_behind_its_last_convolution() {
    let sequential = |layers: &str| network(&format!("sequential.layers = [{layers}]"));
    let convolution = "{ conv = { channels = 4, kernel = 3, stride = 2, padding = 1 } }";
    let network = sequential(&format!("{convolution}, 'relu', 'global_pool'"));
    let mut inference = drawn(&network);
    // Behind a ReLU and under positive weights the map has the logit, which has no bias, as its sum.
    inference.chain.map_parameters(|name, value| match name.starts_with("classifier") {
        true => value.abs(),
        false => value,
    });
    let cam = GradCam::new(&network, &inference).expect("there is a map");
    let each = images();
    let images = Images::Host { images: &each, shape: [BATCH, 3, SIZE, SIZE] };
    let maps = cam.maps(&inference, images, &[[1, 2]]).expect("computes").remove(0);
    let logits = inference.outputs(images, BATCH).expect("computes").remove(1);
    for (map, logits) in maps.iter().zip(logits.chunks_exact(OUTPUTS)) {
        assert_eq!(map.size, [SIZE / 2; 2]);
        let sum: f32 = map.values.iter().sum();
        assert!(logits[2] > 0.0 && (sum - logits[2]).abs() < 1e-4 * sum, "{sum} {logits:?}");
    }
    let none = sequential("'flatten', { linear = { features = 3 } }");
    assert!(GradCam::new(&none, &drawn(&none)).is_err());
}
