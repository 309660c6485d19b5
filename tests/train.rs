//! What protects training in parts: a batch that several replicas share gives the gradients that one
//! replica with all of it gives.

use std::collections::BTreeMap;
use std::ops::Range;

#[path = "support/wave.rs"]
mod wave;

use burn::tensor::{Device, Tensor};
use trainer::data::{LabelCounts, Targets};
use trainer::loss::default_loss;
use trainer::memory::offload::Store;
use trainer::memory::{Chain, DenseLayers, Precision, Strategy};
use trainer::model::{HeadConfig, ModelConfig};
use trainer::parallel::Part;
use trainer::train::{HeadLoss, Inference, Replica, Share, StepGradients};

const IMAGES: usize = 6;
const SIDE: usize = 36;
const STEP: usize = 4;

/// Dropout before convolutions and before every linear layer, and a norm that does not mix images.
const MODEL: &str = r#"
[model.densenet]
growth = 4
blocks = [2, 1]
stem = 6
norm = "group"
dropout = 0.2
[[heads]]
name = "findings"
task = "multilabel"
labels = ["a", "b"]
weight = 0.7
dropout = 0.25
hidden = [5]
[[heads]]
name = "age"
task = "regression"
labels = ["years"]
dropout = 0.25
"#;

#[derive(serde::Deserialize)]
struct Described {
    model: ModelConfig,
    heads: Vec<HeadConfig>,
}

/// A replica that takes at most `micro_batch` images at once; all have the same weights.
fn replica(micro_batch: usize) -> Replica {
    let Described { model, heads } = toml::from_str(MODEL).expect("a model");
    let network = model.resolve([1, SIDE, SIDE]).expect("has sizes");
    let device = Device::flex();
    let chain =
        Chain::init(&network.stages(Precision::Fp32, DenseLayers::Keep, &heads), &device, 3);
    let losses = heads.iter().map(|head| {
        let labels = head.labels.len();
        let counts = LabelCounts { positives: vec![1.0; labels], negatives: vec![1.0; labels] };
        default_loss(head.task).init(head.task, labels, &counts)
    });
    let strategy = Strategy::plain(chain.stages().len(), micro_batch);
    let losses = losses.collect();
    let inference = Inference::new(chain, &heads, device, Precision::Fp32);
    Replica::new(inference, losses, strategy, Store::nowhere(), 11)
}

fn images() -> Tensor<4> {
    wave::wave([IMAGES, 1, SIDE, SIDE], 0.7, &Device::flex())
}

/// The halves know different numbers of labels, and the first none of the second head's.
fn targets() -> Vec<Targets> {
    let mask = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0];
    let values = mask.iter().enumerate().map(|(at, known)| known * (at % 3 % 2) as f32).collect();
    let findings = Targets { values, mask: mask.to_vec(), width: 2 };
    let mask = vec![0.0, 0.0, 0.0, 1.0, 0.0, 1.0];
    let years = Targets { values: vec![0.0, 0.0, 0.0, 1.3, 0.0, -0.6], mask, width: 1 };
    vec![findings, years]
}

/// The gradients of some images of the batch.
fn gradients(replica: &Replica, images: Range<usize>, normalizers: &[f64]) -> StepGradients {
    gradients_of(replica, &self::images(), &targets(), images, normalizers)
}

/// The same of images that are taken for the first of a batch.
fn misplaced(replica: &Replica, part: Range<usize>, normalizers: &[f64]) -> StepGradients {
    let images = images().narrow(0, part.start, part.len());
    let targets: Vec<Targets> =
        targets().iter().map(|targets| targets.part(part.clone())).collect();
    gradients_of(replica, &images, &targets, 0..part.len(), normalizers)
}

fn gradients_of(
    replica: &Replica,
    images: &Tensor<4>,
    targets: &[Targets],
    share: Range<usize>,
    normalizers: &[f64],
) -> StepGradients {
    let parts = replica.strategy.parts(share.len()).into_iter();
    let parts: Vec<Part> =
        parts.map(|part| Part::alone(share.start + part.start..share.start + part.end)).collect();
    let images = images.into();
    let share =
        Share { images, targets, parts: &parts, synced: None, row: None, next: None, link: None };
    replica.gradients(share, normalizers, STEP, 1.0).expect("computes")
}

type Values = BTreeMap<String, Vec<f32>>;

fn values(found: StepGradients) -> (Values, Vec<HeadLoss>) {
    let read = |value: &Tensor<1>| value.clone().into_data().iter().collect();
    let gradients = found.gradients.iter().map(|(name, value)| (name.to_owned(), read(value)));
    (gradients.collect(), found.losses.read().expect("reads"))
}

/// The sum of the gradients of two shares, and of their losses.
fn sum(shares: [StepGradients; 2]) -> (Values, Vec<HeadLoss>) {
    let [(mut gradients, mut losses), (others, other_losses)] = shares.map(values);
    for (name, values) in &mut gradients {
        values.iter_mut().zip(&others[name]).for_each(|(value, other)| *value += other);
    }
    for (loss, other) in losses.iter_mut().zip(other_losses) {
        assert_eq!(loss.normalizer, other.normalizer);
        loss.sum += other.sum;
    }
    (gradients, losses)
}

/// The largest difference, relative to the size of the gradient of a parameter.
fn distance(ours: &Values, exact: &Values) -> f64 {
    assert_eq!(ours.keys().collect::<Vec<_>>(), exact.keys().collect::<Vec<_>>());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let each = exact.iter().map(|(name, exact)| {
        let pairs = ours[name].iter().zip(exact);
        let error = norm(&mut pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)));
        error / norm(&mut exact.iter().map(|v| f64::from(*v)))
    });
    each.fold(0.0, f64::max)
}

#[test]
fn the_gradients_of_two_halves_of_a_batch_add_up_to_those_of_the_whole() {
    let normalizers = replica(IMAGES).normalizers(&targets());
    assert_eq!(normalizers, [7.0, 2.0]);
    let whole = values(gradients(&replica(IMAGES), 0..IMAGES, &normalizers));
    let trained = replica(IMAGES).inference.chain.parameters();
    assert_eq!(whole.0.len(), trained.iter().filter(|parameter| parameter.trained).count());
    // Two replicas of one process, each on a thread of its own.
    let replicas = [replica(IMAGES), replica(IMAGES)];
    let halves = std::thread::scope(|scope| {
        let [first, second] = replicas;
        let first = scope.spawn(move || gradients(&first, 0..3, &[7.0, 2.0]));
        let second = scope.spawn(move || gradients(&second, 3..6, &[7.0, 2.0]));
        sum([first, second].map(|half| half.join().expect("computes")))
    });

    // One replica that takes the halves one after the other adds the same two numbers.
    let in_turn = values(gradients(&replica(3), 0..IMAGES, &normalizers));
    assert!(halves.0 == in_turn.0, "other bits than in two micro-batches");

    // The whole adds its at most 6·36·36 products in another order. Rounding each sum to 24 bits, that
    // moves a gradient by about √7776 · 2⁻²⁴ = 5e-6 of the size of what is added.
    let far = distance(&halves.0, &whole.0);
    assert!(far < 1e-5, "{far}");
    for (ours, exact) in halves.1.iter().zip(&whole.1) {
        assert_eq!(ours.normalizer, exact.normalizer);
        assert!((ours.sum / exact.sum - 1.0).abs() < 1e-6, "{ours:?}, {exact:?}");
    }

    // Masks go by the place in the batch, and losses by the labels of the whole batch.
    let wrong = sum([0..3, 3..6].map(|part| misplaced(&replica(IMAGES), part, &normalizers)));
    assert!(distance(&wrong.0, &whole.0) > 0.1);
    let of_half = |part: Range<usize>| {
        let replica = replica(IMAGES);
        let known: Vec<Targets> = targets().iter().map(|all| all.part(part.clone())).collect();
        let normalizers = replica.normalizers(&known);
        values(gradients(&replica, part.clone(), &normalizers)).0
    };
    assert!(
        distance(&of_half(0..3), &values(gradients(&replica(IMAGES), 0..3, &normalizers)).0) > 0.1
    );
}
