//! Frozen stages and learning rates of single stages do what PyTorch does with parameters without gradient,
//! modules in evaluation mode and groups of parameters.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn::tensor::{DType, Device, Tensor, TensorData};
use support::Result;
use trainer::build::{Options, build};
use trainer::data::{LabelCounts, Targets};
use trainer::loss::default_loss;
use trainer::memory::offload::Store;
use trainer::memory::{Chain, CheckpointPlan, DenseLayers, Precision, Strategy};
use trainer::model::{HeadConfig, ModelConfig};
use trainer::optim::OptimizerConfig;
use trainer::parallel::{Member, Part, Shard};
use trainer::report::{Event, Phase, Report, ReportError, SaveReason};
use trainer::run::{FolderMode, Run};
use trainer::train::{Inference, Replica, Share, StepGradients, Updater};

const BATCH: usize = 4;
const SIDE: usize = 64;
const OUTPUTS: usize = 5;
/// The stem and the first dense block.
const FROZEN: usize = 2;

const MODEL: &str = "
[model.densenet]
growth = 4
blocks = [2, 2]
stem = 8
[[heads]]
name = \"findings\"
task = \"multilabel\"
labels = { count = 5, prefix = \"y\" }
";

#[derive(serde::Deserialize)]
struct Described {
    model: ModelConfig,
    heads: Vec<HeadConfig>,
}

/// What tests/fixtures/densenet_parity.py has written.
fn fixture() -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read(root.join("tests/fixtures/densenet_parity.safetensors")).expect("is there")
}

/// The network, weights, images and targets of tests/fixtures/densenet_parity.py.
fn replica() -> Replica {
    let Described { model, heads } = toml::from_str(MODEL).expect("a model");
    let network = model.resolve([3, SIDE, SIDE]).expect("has sizes");
    let device = Device::flex();
    let specs = network.stages(Precision::Fp32, DenseLayers::Keep, &heads);
    let mut chain = Chain::init(&specs, &device, 0);
    let bytes = fixture();
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("it is SafeTensors");
    chain.map_parameters(|name, value| {
        let view = file.tensor(&format!("weight/{}", torch_name(name))).expect("has the weight");
        let values: Vec<f32> = (view.data().chunks_exact(4))
            .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
            .collect();
        let data = TensorData::new(values, [value.dims()[0]]);
        Tensor::from_data(data, (&device, DType::F32))
    });
    let counts = LabelCounts { positives: vec![1.0; OUTPUTS], negatives: vec![1.0; OUTPUTS] };
    let loss = default_loss(heads[0].task).init(heads[0].task, OUTPUTS, &counts);
    let strategy = Strategy::plain(chain.stages().len(), BATCH);
    let inference = Inference::new(chain, &heads, device, Precision::Fp32);
    Replica::new(inference, vec![loss], strategy, Store::nowhere(), 0)
}

fn torch_name(name: &str) -> String {
    name.replace("classifier.findings.", "classifier.")
}

fn gradients(replica: &Replica, step: usize) -> StepGradients {
    let wave = |i: usize| ((i as f64 * 0.37).sin() + ((i * i) as f64 * 1e-5).sin()) as f32;
    let values: Vec<f32> = (0..BATCH * 3 * SIDE * SIDE).map(wave).collect();
    let data = TensorData::new(values, [BATCH, 3, SIDE, SIDE]);
    let images = Tensor::<4>::from_data(data, &Device::flex());
    let values: Vec<f32> =
        (0..BATCH * OUTPUTS).map(|i| f32::from((i * 7 + i / 3).is_multiple_of(3))).collect();
    let mask = vec![1.0; values.len()];
    let targets = [Targets { values, mask, width: OUTPUTS }];
    let parts = [Part::alone(0..BATCH)];
    let share = Share {
        images: (&images).into(),
        targets: &targets,
        parts: &parts,
        synced: None,
        row: None,
        next: None,
        link: None,
    };
    let normalizers = replica.normalizers(&targets);
    replica.gradients(share, &normalizers, step, 1.0).expect("computes")
}

fn values(chain: &Chain) -> BTreeMap<String, Vec<f32>> {
    let read = |value: Tensor<1>| value.into_data().iter().collect();
    chain.parameters().into_iter().map(|p| (torch_name(&p.name), read(p.value))).collect()
}

#[derive(serde::Deserialize)]
struct Course {
    loss: f64,
    /// Of each parameter's change the sum times a wave, and the norm.
    changes: BTreeMap<String, [f64; 2]>,
}

/// A schedule whose first stages are frozen.
fn freeze(replica: &mut Replica, frozen: usize) {
    let stages = replica.inference.chain.stages().len();
    let tree = CheckpointPlan::keep_all(stages - frozen);
    replica.strategy = Strategy { frozen, tree, ..Strategy::plain(stages, BATCH) };
}

#[test]
fn frozen_stages_and_learning_rates_of_stages_are_those_of_pytorch() {
    let text = include_str!("fixtures/fine_tuning.json");
    let courses: BTreeMap<String, Vec<Course>> = serde_json::from_str(text).expect("reads");
    for (name, settings) in [
        ("sgd", "[sgd]\nlr = 1e-3\nmomentum = 0.9\nweight_decay = 0.01"),
        ("adamw", "[adamw]\nlr = 1e-3\nweight_decay = 0.1\neps = 1e-3"),
    ] {
        let config: OptimizerConfig = toml::from_str(settings).expect("an optimizer");
        let mut replica = replica();
        let start = values(&replica.inference.chain);
        let factors = [0.5, 1.0, 1.0, 0.1, 1.0, 3.0];
        let stages = replica.inference.chain.stages();
        assert_eq!(stages.len(), factors.len(), "{:?}", replica.inference.chain.names());
        let keys = stages.iter().zip(factors).flat_map(|(stage, factor)| {
            stage.buckets().into_iter().map(move |bucket| (bucket.key().to_owned(), factor))
        });
        let sizes = replica.inference.chain.buckets().into_iter().filter(|bucket| bucket.trained);
        let sizes = sizes.map(|bucket| (bucket.key().to_owned(), bucket.value.dims()[0]));
        let mut updater = Updater {
            optimizer: config.init(sizes),
            ema: None,
            loss_scale: None,
            clip_norm: None,
            decay_norms_and_biases: true,
            lr_factors: keys.collect(),
            shard: Shard::WHOLE,
        };
        for step in 0..4 {
            freeze(&mut replica, if step < 2 { FROZEN } else { 0 });
            let found = gradients(&replica, step);
            let assessed =
                updater.assess(&replica.inference, found, &Member::alone()).expect("is finite");
            let checked = updater.accept(assessed, 1e-3).expect("is taken");
            let losses =
                updater.apply(&mut replica, checked, 1e-3, &Member::alone()).expect("steps");
            let losses = losses.wait().expect("are known").expect("is taken");
            let Some(course) = [1, 3].iter().position(|at| *at == step) else { continue };
            let theirs = &courses[name][course];
            let loss = losses[0].mean().expect("labels are known");
            assert!((loss - theirs.loss).abs() < 1e-5, "{name}: {loss} for {}", theirs.loss);
            let now = values(&replica.inference.chain);
            assert_eq!(now.len(), theirs.changes.len());
            for (parameter, [projection, norm]) in &theirs.changes {
                let pairs = now[parameter].iter().zip(&start[parameter]);
                let change: Vec<f64> = pairs.map(|(a, b)| f64::from(*a) - f64::from(*b)).collect();
                let ours = change.iter().enumerate().map(|(i, c)| c * (0.37 * i as f64).sin());
                let (ours, size) = (ours.sum::<f64>(), change.iter().map(|c| c * c).sum::<f64>());
                let what = format!("{name}, step {step}, {parameter}");
                // Exactly nothing where they are frozen.
                let allowed = 5e-3 * norm;
                assert!((size.sqrt() - norm).abs() <= allowed, "{what}: {} {norm}", size.sqrt());
                assert!((ours - projection).abs() <= allowed, "{what}: {ours} {projection}");
            }
        }
    }
}

/// Of frozen stages there are no gradients and no statistics; of the others the same under each policy.
#[test]
fn what_is_trained_has_the_same_gradients_under_every_policy() {
    let mut replica = replica();
    freeze(&mut replica, FROZEN);
    let stages = replica.inference.chain.stages().len();
    let read = |found: &StepGradients| -> BTreeMap<String, Vec<f32>> {
        let gradients =
            found.gradients.iter().map(|(name, value)| (name.to_owned(), value.clone()));
        let moving = found.statistics.iter().map(|(name, value)| (name.clone(), value.clone()));
        gradients.chain(moving).map(|(name, v)| (name, v.into_data().iter().collect())).collect()
    };
    let expected = read(&gradients(&replica, 0));
    let trained: Vec<String> = replica.inference.chain.stages()[FROZEN..]
        .iter()
        .flat_map(|stage| stage.buckets().into_iter().map(|bucket| bucket.key().to_owned()))
        .collect();
    assert_eq!(expected.len(), trained.len());
    assert!(trained.iter().all(|key| expected.contains_key(key)));
    for lengths in [&[1, 1, 1, 1][..], &[2, 2], &[3, 1]] {
        let tree = CheckpointPlan::segments(lengths);
        replica.strategy = Strategy { tree, frozen: FROZEN, ..Strategy::plain(stages, BATCH) };
        assert!(read(&gradients(&replica, 0)) == expected, "{lengths:?}");
    }
}

/// The configuration of `support` with its first stages frozen for two of three epochs.
fn write(folder: &Path, data: &Path, name: &str, epochs: &str) -> PathBuf {
    let place = folder.join(name);
    std::fs::create_dir(&place).expect("is made");
    let config = support::write_config(&place, data);
    let text = std::fs::read_to_string(&config).expect("reads");
    let frozen = "\"stem\", \"features.denseblock1\"";
    let freeze = match epochs {
        "" => format!("[{frozen}]"),
        epochs => format!("{{ stages = [{frozen}], epochs = {epochs} }}"),
    };
    let text = text
        .replace("[model.densenet]", &format!("[model]\nfreeze = {freeze}\n[model.densenet]"))
        .replace("[train.optimizer.adamw]", "lr_factors = { pool = 0.5, heads = 2 }\n$0")
        .replace("$0", "[train.optimizer.adamw]");
    std::fs::write(&config, text).expect("is written");
    config
}

fn open(config: &Path, mode: FolderMode) -> Run {
    let loaded = trainer::config::load(config, &[]).expect("a right configuration");
    let plan = trainer::plan::plan(loaded.config).expect("a right plan");
    build(plan, &Options { mode }).expect("opens")
}

/// Ends the process, as it were, behind so many batches.
struct Kill(usize);

impl Report for Kill {
    fn event(&mut self, event: &Event) -> std::result::Result<(), ReportError> {
        if matches!(event, Event::Progress(progress) if progress.phase == Phase::Train) {
            self.0 = self.0.wrapping_sub(1);
        }
        match self.0 {
            0 => Err(ReportError {
                action: "survive",
                file: "the cut".into(),
                source: std::io::Error::other("killed by the test"),
            }),
            _ => Ok(()),
        }
    }
}

type Tensors = BTreeMap<String, Vec<u8>>;

fn saved(file: &Path) -> Tensors {
    let bytes = std::fs::read(file).expect("is saved");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("SafeTensors");
    file.iter().map(|(name, view)| (name.to_owned(), view.data().to_vec())).collect()
}

fn is_frozen(name: &str) -> bool {
    let prefixes = ["features.conv0.", "features.norm0.", "features.denseblock1."];
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

#[test]
fn a_run_that_thaws_is_the_same_wherever_it_is_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let config = write(folder.path(), &data, "whole", "2");
    let mut run = open(&config, FolderMode::New);
    let steps = run.train_loader.batches_per_epoch();
    run.execute().expect("trains");
    drop(run);
    let expected = Result::of(&folder.path().join("whole/tiny"));
    for (name, at) in [
        ("while frozen", steps + 2),
        ("before the first step of all", 2 * steps),
        ("after the first step of all", 2 * steps + 2),
    ] {
        let config = write(folder.path(), &data, name, "2");
        let mut killed = open(&config, FolderMode::New);
        killed.reports.add(Kill(at));
        assert!(killed.execute().is_err(), "{name}");
        drop(killed);
        open(&config, FolderMode::Resume).execute().expect("trains on");
        Result::of(&folder.path().join(name).join("tiny")).assert_equals(&expected, name);
    }
}

/// Weights, their average and running statistics; and the optimizer keeps nothing of them.
#[test]
fn no_bit_of_what_is_frozen_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    for (name, epochs, thaws) in
        [("always", "", false), ("longer", "9", false), ("first", "2", true)]
    {
        let config = write(folder.path(), &data, name, epochs);
        let mut run = open(&config, FolderMode::New);
        let bytes = |value: Tensor<1>| value.into_data().as_bytes().to_vec();
        let parameters = run.trainer.ranks[0].replica.inference.chain.parameters();
        let start: Tensors = parameters.into_iter().map(|p| (p.name, bytes(p.value))).collect();
        assert!(start.keys().any(|name| is_frozen(name)));
        run.execute().expect("trains");
        drop(run);
        let last = folder.path().join(name).join("tiny/last");
        for file in ["weights.safetensors", "average.safetensors"] {
            let now = saved(&last.join(file));
            for (parameter, value) in &start {
                let changed = now[parameter] != *value;
                assert_eq!(changed, thaws || !is_frozen(parameter), "{name}, {file}, {parameter}");
            }
        }
        let kept = saved(&last.join("optimizer.safetensors"));
        assert_eq!(kept.keys().any(|key| is_frozen(key)), thaws, "{name}");
        assert!(!kept.is_empty());
    }
}

/// torchvision's weights of tests/fixtures/densenet_parity.py, under torchvision's names, in a file.
fn write_torchvision(path: &Path) {
    let bytes = fixture();
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("it is SafeTensors");
    let weights =
        file.iter().filter_map(|(name, view)| Some((name.strip_prefix("weight/")?, view)));
    safetensors::serialize_to_file(weights.collect::<Vec<_>>(), None, path).expect("is written");
}

/// Keeps the weights of the state at the end of each epoch.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Tensors>>>);

impl Report for Kept {
    fn event(&mut self, event: &Event) -> std::result::Result<(), ReportError> {
        if let Event::Saved { folder, reason: SaveReason::EpochEnd, .. } = event {
            self.0.lock().expect("one thread").push(saved(&folder.join("weights.safetensors")));
        }
        Ok(())
    }
}

/// Colour weights in a model of grey images: stem and first block are the file's for two epochs, bit for
/// bit, with the running statistics of their norms, and move in the third.
#[test]
fn weights_of_torchvision_stay_as_they_are_until_their_stages_thaw() {
    let folder = tempfile::tempdir().expect("a folder");
    let init = folder.path().join("colour.safetensors");
    write_torchvision(&init);
    let config = write(folder.path(), &folder.path().join("data"), "thaws", "2");
    let text = std::fs::read_to_string(&config).expect("reads");
    let text = text.replace("[model]\n", &format!("[model]\ninit = {init:?}\n"));
    std::fs::write(&config, text).expect("is written");
    let mut run = open(&config, FolderMode::New);
    let kept = Kept::default();
    run.reports.add(kept.clone());
    run.execute().expect("trains");

    let file = saved(&init);
    let numbers = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
    };
    let (first, plane) = ("features.conv0.weight", 7 * 7);
    let grey = numbers(&file[first])
        .chunks_exact(3 * plane)
        .flat_map(|colour| {
            (0..plane).map(|at| (0..3).map(|channel| colour[channel * plane + at]).sum::<f32>())
        })
        .flat_map(f32::to_le_bytes)
        .collect::<Vec<u8>>();
    let epochs = kept.0.lock().expect("one thread");
    assert_eq!(epochs.len(), 3);
    let mut statistics = 0;
    for (epoch, weights) in epochs.iter().enumerate() {
        for (name, value) in weights.iter().filter(|(name, _)| !name.starts_with("classifier.")) {
            let start = if name == first { &grey } else { &file[name] };
            let stays = is_frozen(name) && epoch < 2;
            assert_eq!(value == start, stays, "{name} after epoch {}", epoch + 1);
            statistics += usize::from(stays && name.contains("running_"));
        }
    }
    assert_eq!(statistics, 2 * 10);
}
