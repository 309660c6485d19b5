//! Steps that have a number which is not finite, and what they tell of it. On whatever device.

use burn::tensor::{Tensor, TensorData};
use trainer::build::Bench;
use trainer::data::Targets;
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

pub fn plan(network: &str, way: &str) -> Plan {
    let text = format!("{CONFIG}{network}{way}");
    let config = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    trainer::plan::plan(config).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A batch of which all labels are known.
pub fn batch(bench: &Bench) -> (Vec<Vec<f32>>, Vec<Targets>) {
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
pub fn refused(bench: &mut Bench, images: &[Vec<f32>], targets: &[Targets], case: &str) -> String {
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

/// Replaces the parameter called `name` on all devices, and returns what it was.
pub fn replace(bench: &mut Bench, name: &str, change: impl Fn(Vec<f32>) -> Vec<f32>) {
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

/// Breaks a label and the weight of each head: the loss is named, or what is behind it.
pub fn break_heads(network: &str, way: &str, name: &str) {
    let mut bench = Bench::new(&plan(network, way)).expect("opens");
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
        assert!(told.contains("it begins on the way back: layers and losses are finite"), "{told}");
        let expected = format!("the gradient of `classifier.{head}.bias` (and of ");
        assert!(told.starts_with(&expected), "{case}: {told}");
    }
}

/// Breaks a pixel of the first image and of the last: they are named.
pub fn break_images(network: &str, way: &str, name: &str) {
    for place in [0, COUNT - 1] {
        let mut bench = Bench::new(&plan(network, way)).expect("opens");
        let (mut images, targets) = batch(&bench);
        images[place][SIDE] = f32::INFINITY;
        let told = refused(&mut bench, &images, &targets, name);
        let expected = format!("; image {} of the batch has pixels that are not finite", place + 1);
        assert!(told.contains(&expected), "{name}: {told}");
    }
}
