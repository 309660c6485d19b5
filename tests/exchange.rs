//! Other programs run what is exported, and compute what ours does; what they wrote is imported.
//!
//! `tests/fixtures/exchange.py` holds the other side: onnxruntime, torchvision, timm, torchxrayvision.

#![expect(clippy::print_stdout, reason = "the figures are read with --nocapture")]

#[path = "exchange/full.rs"]
mod full;
#[path = "exchange/onnx.rs"]
mod onnx;
#[path = "exchange/xrv.rs"]
mod xrv;

use std::collections::BTreeMap;

use burn::tensor::{Device, Tensor, TensorData};
use trainer::config;
use trainer::memory::Chain;
use trainer::plan::{Plan, plan};
use trainer::train::{Images, Inference};

/// The plan of a configuration's text, for images of another size.
fn plan_of(text: &str, [height, width]: [usize; 2]) -> Plan {
    let size = [format!("data.image.size=[{height}, {width}]")];
    let loaded = config::read("test.toml".to_owned(), text.to_owned(), &size).expect("reads");
    plan(loaded.config).unwrap_or_else(|fault| panic!("{text}\n{fault}"))
}

/// The plan's model with these values, which are all that it has.
fn model(plan: &Plan, mut values: BTreeMap<String, Vec<f32>>) -> Inference {
    let device = Device::flex();
    let mut chain = Chain::init(&plan.stages(), &device, 0);
    chain.map_parameters(|name, _| {
        let values = values.remove(name).unwrap_or_else(|| panic!("no values for {name}"));
        let count = values.len();
        Tensor::from_data(TensorData::new(values, [count]), &device)
    });
    Inference::new(chain, &plan.heads, device, plan.memory.precision)
}

/// The heads' outputs by name.
fn outputs(model: &Inference, values: &[f32], shape: [usize; 4]) -> BTreeMap<String, Vec<f32>> {
    let images: Vec<Vec<f32>> =
        values.chunks_exact(values.len() / shape[0]).map(<[f32]>::to_vec).collect();
    let images = Images::Host { images: &images, shape };
    let outputs = model.outputs(images, shape[0]).expect("computes");
    model.heads.iter().map(|head| head.config.name.clone()).zip(outputs).collect()
}

fn largest_difference(ours: &[f32], theirs: &[f32]) -> f32 {
    assert_eq!(ours.len(), theirs.len());
    let difference = |(a, b): (&f32, &f32)| {
        assert!(a.is_finite() && b.is_finite());
        (a - b).abs()
    };
    ours.iter().zip(theirs).map(difference).fold(0.0, f32::max)
}

/// Grey levels that any machine computes alike.
fn levels([batch, channels, height, width]: [usize; 4]) -> Vec<f32> {
    let level = |i: usize| ((i * 31 + i / 7 * 17) % 256) as f32 / 255.0;
    (0..batch * channels * height * width).map(level).collect()
}
