//! A number that is not finite is told where it begins: in a layer, a head's loss, a parameter or an image,
//! however the step is taken. It changes nothing.

#[path = "support/state.rs"]
mod state;

use std::collections::BTreeMap;

use burn::tensor::activation::{relu, sigmoid};
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{DType, Device, Tensor, TensorData};
use serde_json::Value;
use state::{bits, on_device};
use trainer::build::Bench;
use trainer::data::Targets;
use trainer::memory::fault::spoil;
use trainer::model::heads_stage;
use trainer::model::layers::{Op, each_layer};
use trainer::optim::LossScale;
use trainer::plan::Plan;
use trainer::train::{Images, TrainError};

const COUNT: usize = 6;
const SIDE: usize = 32;

const CONFIG: &str = r#"
[run]
name = "not-finite"
[data]
image = { size = [32, 32], channels = 1 }
[data.phantom]
root = "unused"
patients = 8
size = 32
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Cardiomegaly", "Pleural Effusion"]
dropout = 0.2
hidden = [5]
[[heads]]
name = "view"
task = "multiclass"
labels = ["PA", "AP"]
[[heads]]
name = "age"
task = "regression"
labels = ["Age"]
[train]
epochs = 1
batch_size = 6
clip_norm = 1.0
[train.optimizer.adamw]
lr = 1e-2
eps = 1e-4
[train.ema]
decay = 0.9
"#;

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

fn plan(network: &str, way: &str) -> Plan {
    let text = format!("{CONFIG}{network}{way}");
    let config = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    trainer::plan::plan(config).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The names of the layers, each with the device of a copy of the model that has it.
fn layers(plan: &Plan, bench: &Bench) -> Vec<(&'static str, usize)> {
    let mut stages = plan.model.layers().to_vec();
    stages.push(heads_stage(&plan.heads, plan.model.features()));
    let devices = bench.trainer.planner.stages_of_devices();
    let device = |stage: usize| devices.iter().position(|stages| stages.contains(&stage));
    let mut found = Vec::new();
    for (place, stage) in stages.iter().enumerate() {
        each_layer(&stage.layers, &mut |layer| {
            if !matches!(layer.op, Op::Branches(..)) {
                let name: &'static str = layer.name.clone().leak();
                found.push((name, device(place).unwrap_or(0)));
            }
        });
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

/// A batch of which all labels are known.
fn batch(bench: &Bench) -> (Vec<Vec<f32>>, Vec<Targets>) {
    let pixel = |at: usize| ((at as f32 * 0.37).sin() + 1.0) / 2.0;
    let pixels: Vec<f32> = (0..COUNT * SIDE * SIDE).map(pixel).collect();
    let images = pixels.chunks_exact(SIDE * SIDE).map(<[f32]>::to_vec).collect();
    let heads = &bench.trainer.ranks[0].replica.inference.heads;
    let targets = heads.iter().map(|head| {
        let width = if head.config.name == "findings" { 2 } else { 1 };
        let values = (0..COUNT * width).map(|at| (at % 3 % 2) as f32).collect();
        Targets { values, mask: vec![1.0; COUNT * width], width }
    });
    (images, targets.collect())
}

/// The error of a step that cannot be taken.
fn refused(bench: &mut Bench, images: &[Vec<f32>], targets: &[Targets], case: &str) -> String {
    // The next step that is left out is the last.
    for rank in &mut bench.trainer.ranks {
        let scale = rank.updater.loss_scale.as_mut();
        scale.into_iter().for_each(|scale| *scale = LossScale::starting_at(2f64.powi(-20)));
    }
    let images = Images::Host { images, shape: [COUNT, 1, SIDE, SIDE] };
    let error = bench.trainer.step(images, targets, 0, 1e-2).expect_err(case);
    assert!(
        matches!(error, TrainError::NotFinite { .. } | TrainError::Unscalable { .. }),
        "{case}: {error}"
    );
    error.to_string()
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

/// Replaces the parameter called `name` on all devices, and returns what it was.
fn replace(bench: &mut Bench, name: &str, change: impl Fn(Vec<f32>) -> Vec<f32>) {
    for rank in &mut bench.trainer.ranks {
        rank.replica.inference.chain.map_parameters(|found, value| {
            if found != name {
                return value;
            }
            let (device, numbers) = (value.device(), value.dtype());
            let values = change(value.into_data().iter().collect());
            let length = values.len();
            Tensor::from_data(TensorData::new(values, [length]), (&device, numbers))
        });
    }
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
fn a_head_is_named_whose_label_or_weight_is_not_finite() {
    for (name, way) in WAYS {
        let mut bench = Bench::new(&plan(DENSENET, way)).expect("opens");
        let (images, targets) = batch(&bench);
        for (place, head) in ["findings", "view", "age"].into_iter().enumerate() {
            let case = format!("{head}, {name}");
            let mut wrong = targets.clone();
            // A class is a whole number.
            if head != "view" {
                wrong[place].values[0] = f32::NAN;
                let told = refused(&mut bench, &images, &wrong, &case);
                let expected =
                    format!("it begins in the loss of head `{head}`, whose outputs are finite");
                assert!(told.contains(&expected), "{case}: {told}");
                assert!(told.starts_with(&format!("the loss of head `{head}` ")), "{case}: {told}");
            }
            let weigh = |bench: &mut Bench, weight: f64| {
                for rank in &mut bench.trainer.ranks {
                    rank.replica.inference.heads[place].config.weight = weight;
                }
            };
            weigh(&mut bench, f64::INFINITY);
            let told = refused(&mut bench, &images, &targets, &case);
            weigh(&mut bench, 1.0);
            assert!(
                told.contains("it begins on the way back: layers and losses are finite"),
                "{told}"
            );
            let expected = format!("the gradient of `classifier.{head}.bias` (and of ");
            assert!(told.starts_with(&expected), "{case}: {told}");
        }
    }
}

#[test]
fn an_image_is_named_that_has_a_pixel_which_is_not_finite() {
    for ((name, way), place) in WAYS.into_iter().flat_map(|way| [(way, 0), (way, COUNT - 1)]) {
        let mut bench = Bench::new(&plan(DENSENET, way)).expect("opens");
        let (mut images, targets) = batch(&bench);
        images[place][SIDE] = f32::INFINITY;
        let told = refused(&mut bench, &images, &targets, name);
        let expected = format!("; image {} of the batch has pixels that are not finite", place + 1);
        assert!(told.contains(&expected), "{name}: {told}");
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
