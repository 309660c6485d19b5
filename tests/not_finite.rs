//! A number that is not finite is told where it begins: in a layer, a head's loss, a parameter or an image,
//! however the step is taken. It changes nothing.

#[path = "support/not_finite.rs"]
mod not_finite;
#[path = "support/state.rs"]
mod state;

use std::collections::BTreeMap;

use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{DType, Device, Tensor, TensorData};
use not_finite::{batch, break_heads, break_images, plan, refused, replace};
use serde_json::Value;
use state::{bits, on_device};
use trainer::build::Bench;
use trainer::memory::fault::spoil;
use trainer::model::heads_stage;
use trainer::model::layers::{Op, all_layers};
use trainer::plan::Plan;

const DENSENET: &str = "[model.densenet]\ngrowth = 4\nblocks = [2, 1]\nstem = 6\n";

/// Networks in which every kind of layer is.
const NETWORKS: [&str; 6] = [
    DENSENET,
    "[model.densenet]\ngrowth = 4\nblocks = [2, 1]\nstem = 6\ndropout = 0.2\nnorm = \"group\"\n",
    "[model.resnet]\nform = \"cifar\"\ndepth = 8\nstem = 4\n",
    "[model.resnet]\nblock = \"basic\"\nblocks = [1, 1]\nstem = 4\n",
    "[model.resnet]\nblock = \"bottleneck\"\nblocks = [1, 1]\nstem = 4\n",
    r#"[model.sequential]
layers = [
    { conv = { channels = 4, kernel = 3 } }, "batch_norm", "relu",
    { branches = { join = "concat", of = [[], [{ conv = { channels = 4, kernel = 3, padding = 1 } }, "sigmoid"]] } },
    { branches = { join = "add", of = [[{ conv = { channels = 7, kernel = 1 } }], [{ conv = { channels = 7, kernel = 1 } }, "relu"]] } },
    { max_pool = { kernel = 2 } }, { mean_pool = { kernel = 3 } }, "flatten", { dropout = { probability = 0.1 } }, { linear = { features = 9 } }, "batch_norm", "relu",
]
"#,
];

/// Ways to take a step.
const WAYS: [(&str, &str); 8] = [
    ("whole batches", ""),
    ("micro-batches", "[memory]\nmicro_batch = 2"),
    (
        "computed again",
        "[memory]\nmicro_batch = 3\n[memory.checkpointing.sequential]\nsegments = 3",
    ),
    ("offloaded", "[memory]\noffload = \"host\""),
    ("three devices", "[device]\nuse = [\"cpu:0\", \"cpu:1\", \"cpu:2\"]"),
    (
        "a pipeline",
        "[device]\nuse = [\"cpu:0\", \"cpu:1\"]\n[memory]\nmicro_batch = 2\n[parallel.pipeline]\nschedule = \"1f1b\"",
    ),
    ("bf16", "[memory]\nprecision = \"bf16\"\nmicro_batch = 2"),
    ("fp16", "[memory]\nprecision = \"fp16\"\nmicro_batch = 2"),
];

/// The names of the layers, each with the device of a copy of the model that has it.
fn layers(plan: &Plan, bench: &Bench) -> Vec<(&'static str, usize)> {
    let mut stages = plan.model.layers().to_vec();
    stages.push(heads_stage(&plan.heads, plan.model.features()));
    let devices = bench.trainer.planner.plan().stages_of_devices();
    let device = |stage: usize| devices.iter().position(|stages| stages.contains(&stage));
    let mut found = Vec::new();
    for (place, stage) in stages.iter().enumerate() {
        for layer in all_layers(&stage.layers) {
            if !matches!(layer.op, Op::Branches(..)) {
                let name: &'static str = layer.name.clone().leak();
                found.push((name, device(place).unwrap_or(0)));
            }
        }
    }
    found
}

/// Everything that a step may change.
fn state(bench: &Bench) -> BTreeMap<String, Vec<u32>> {
    let of = |(rank, of)| {
        let values = on_device(of);
        let bits = bits(&values);
        bits.into_iter()
            .map(move |(name, bits)| (format!("{rank}/{name}"), bits))
            .collect::<Vec<_>>()
    };
    bench.trainer.ranks.iter().enumerate().flat_map(of).collect()
}

#[test]
fn a_layer_that_gives_no_number_is_named_however_the_step_is_taken() {
    let mut tried = 0;
    for (network, (name, way)) in NETWORKS.iter().flat_map(|one| WAYS.map(|way| (one, way))) {
        let plan = plan(network, way);
        let mut bench = Bench::new(&plan).expect("opens");
        let before = state(&bench);
        let (images, targets) = batch(&bench);
        for (layer, device) in layers(&plan, &bench) {
            let case = format!("{layer}, {name}, {network}");
            let copies = bench.trainer.ranks.len() / bench.trainer.depth;
            spoil(device + (copies - 1) * bench.trainer.depth, Some(layer));
            let told = refused(&mut bench, &images, &targets, &case);
            spoil(0, None);
            assert!(
                told.contains(&format!("it begins in the layer `{layer}`, ")),
                "{case}: {told}"
            );
            assert!(state(&bench) == before, "{case}");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn a_parameter_that_is_not_finite_is_named() {
    for (network, (name, way)) in NETWORKS.iter().flat_map(|one| WAYS.map(|way| (one, way))) {
        let mut bench = Bench::new(&plan(network, way)).expect("opens");
        let (images, targets) = batch(&bench);
        for parameter in bench.trainer.parameters().into_iter().filter(|one| one.trained) {
            // The sigmoid of infinity is 1.
            let hides = network.contains("sequential") && parameter.name == "3.1.0.bias";
            for wrong in [f32::NAN, f32::INFINITY].into_iter().take(if hides { 1 } else { 2 }) {
                let case = format!("{} {wrong}, {name}, {network}", parameter.name);
                let before: Vec<f32> = parameter.value.clone().into_data().iter().collect();
                let middle = before.len() / 2;
                replace(&mut bench, &parameter.name, |mut values| {
                    values[middle] = wrong;
                    values
                });
                let told = refused(&mut bench, &images, &targets, &case);
                replace(&mut bench, &parameter.name, |_| before.clone());
                let expected = format!("`{}` is not finite before the step", parameter.name);
                assert!(told.contains(&expected), "{case}: {told}");
            }
        }
    }
}

/// The largest weights that there are: what goes in is finite, and what comes out is not.
#[test]
fn a_layer_that_overflows_is_named() {
    let mut tried = 0;
    // Maps in the list of layers are below 1, and come out finite.
    let (_, networks) = NETWORKS.split_last().expect("there are some");
    for (network, (name, way)) in networks.iter().flat_map(|one| WAYS.map(|way| (one, way))) {
        let most = if name == "fp16" { 65504.0 } else { 3.3e38 };
        let mut bench = Bench::new(&plan(network, way)).expect("opens");
        let (images, targets) = batch(&bench);
        for parameter in bench.trainer.parameters() {
            let Some(layer) = parameter.name.strip_suffix(".weight") else { continue };
            // What a head puts out may be just finite.
            if layer.starts_with("classifier.") {
                continue;
            }
            let case = format!("{layer}, {name}, {network}");
            let before: Vec<f32> = parameter.value.clone().into_data().iter().collect();
            replace(&mut bench, &parameter.name, |values| vec![most; values.len()]);
            let told = refused(&mut bench, &images, &targets, &case);
            replace(&mut bench, &parameter.name, |_| before.clone());
            let of_layer = format!(
                "it begins in the layer `{layer}`, whose output is not finite, though its input is (at most "
            );
            assert!(told.contains(&of_layer), "{case}: {told}");
            tried += 1;
        }
    }
    assert!(tried > 200, "{tried}");
}

#[test]
fn heads_and_images_are_named() {
    for (name, way) in WAYS {
        break_heads(DENSENET, way, name);
        break_images(DENSENET, way, name);
    }
}

/// The oracle is PyTorch (tests/fixtures/not_finite.py): what is not a number stays so.
#[test]
fn layers_make_of_numbers_that_are_not_finite_what_pytorch_makes() {
    type Layer = fn(Tensor<4>) -> Tensor<4>;
    // With a few of the units that the last digit has.
    const NUMBERS: [(DType, f32); 3] =
        [(DType::F32, 1e-5), (DType::BF16, 1.0 / 64.0), (DType::F16, 1.0 / 512.0)];
    let layers: [(&str, Layer); 4] = [
        ("relu", relu),
        ("sigmoid", sigmoid),
        ("max_pool", |map| max_pool2d(map, MaxPoolOptions::new([2; 2]).with_stride([2; 2]))),
        ("max_pool_padded", |map| {
            max_pool2d(map, MaxPoolOptions::new([3; 2]).with_stride([2; 2]).with_padding([1; 2]))
        }),
    ];
    let oracle: Value =
        serde_json::from_str(include_str!("fixtures/not_finite.json")).expect("JSON");
    let numbers = |values: &Value| -> Vec<f32> {
        let values = values.as_array().expect("a list").iter();
        values
            .map(|value| value.as_str().and_then(|text| text.parse().ok()).expect("a number"))
            .collect()
    };
    let device = Device::flex().autodiff();
    for ((dtype, unit), (name, layer)) in
        NUMBERS.into_iter().flat_map(|dtype| layers.map(|layer| (dtype, layer)))
    {
        let made = |values: &Value, shape: [usize; 4]| {
            let values = numbers(values)[..shape.iter().product()].to_vec();
            Tensor::<4>::from_data(TensorData::new(values, shape), (&device, dtype))
        };
        let map = made(&oracle["values"], [1, 1, 4, 4]).require_grad();
        let output = layer(map.clone());
        let gradients =
            (output.clone() * made(&oracle["gradients"], output.dims())).sum().backward();
        let found = [("output", output), ("gradient", map.grad(&gradients).expect("has one"))];
        for (what, found) in found {
            let found: Vec<f32> = found.into_data().iter().collect();
            let expected = numbers(&oracle[name][what]);
            let same = |(found, expected): (&f32, &f32)| {
                let close = (found - expected).abs() <= unit * (1.0 + expected.abs());
                found == expected || found.is_nan() && expected.is_nan() || close
            };
            assert!(
                found.iter().zip(&expected).all(same),
                "{name}, {what}, {dtype:?}: {found:?} {expected:?}"
            );
        }
    }
}
