//! `trainer bench`.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;

use super::overrides::{self, Overrides};
use super::parent::Parent;
use super::{Failure, output, whole};
use crate::build::{self, Taken};
use crate::model::weights::{self, Initial};
use crate::run::Backoff;
use crate::screen::say;

/// Times training steps of a configuration's model, and measures their memory
///
/// The steps are taken on one made-up batch that stays on the device; the data are opened only where
/// --data asks for them. One JSON object is printed. Its times are the median over the second half of
/// the steps. `backoffs` says at which steps memory did not suffice, for how many images at once, and how
/// many there were from then on.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer bench configs/xray_densenet.toml --set train.batch_size=32
  trainer bench configs/quickstart.toml --data --steps 50")]
pub struct Bench {
    /// The configuration, a TOML file
    #[arg(value_name = "CONFIG")]
    config: PathBuf,
    #[command(flatten)]
    overrides: Overrides,
    /// How many steps are taken
    #[arg(long, value_name = "N", default_value_t = 30)]
    steps: usize,
    /// Takes the steps that a run begins with, on the configuration's data
    #[arg(long)]
    data: bool,
    #[command(flatten)]
    parent: Parent,
    /// Starts from the weights in this file, as `trainer run --init` does
    #[arg(long, value_name = "WEIGHTS")]
    init: Option<PathBuf>,
    /// Takes the steps on the tensor `images` in this SafeTensors file
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    images: Option<PathBuf>,
    /// Writes the gradients of one step into this SafeTensors file, by parameter and unclipped
    ///
    /// With this option no step is timed and no weight is changed.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["steps", "data"])]
    gradients: Option<PathBuf>,
}

/// Takes the steps and prints what they took.
pub fn execute(bench: &Bench) -> Result<(), Failure> {
    let start = Instant::now();
    bench.parent.watch()?;
    let mut set = bench.overrides.set.clone();
    set.extend(bench.init.as_deref().map(overrides::init));
    let (plan, source) = super::located_for(&bench.config, &set, build::check_here)?;
    let steps = match bench.data {
        true => build::Bench::on_data(&plan),
        false => build::Bench::new(&plan),
    };
    let mut steps = steps.map_err(|error| super::unopened(error, &source))?;
    if let Some(warning) = steps.trainer.warning() {
        say(format_args!("warning: {warning}"));
    }
    bench.images.as_ref().map(|path| steps.take_images(path)).transpose()?;
    if let Some(path) = &bench.gradients {
        return write_gradients(steps, path);
    }
    let mut measured = Vec::new();
    let mut backoffs = Vec::new();
    let mut note = |steps: &mut build::Bench, step: usize| {
        backoffs.extend(steps.backoffs().into_iter().map(|backoff| {
            let Backoff { from, to, wanted, .. } = backoff;
            serde_json::json!({ "step": step + 1, "from": from, "to": to, "wanted": wanted })
        }));
    };
    let mut before = Instant::now();
    // Of each step the time since the one before it ended.
    let mut ended = |taken: Taken| {
        measured.push((before.elapsed().as_secs_f64(), taken));
        before = Instant::now();
    };
    ended(steps.step()?);
    steps.wait();
    let first = start.elapsed().as_secs_f64();
    note(&mut steps, 0);
    for step in 1..bench.steps {
        steps.step_ahead()?.map(&mut ended);
        note(&mut steps, step);
    }
    steps.end_last()?.map(&mut ended);
    let queued = Instant::now();
    steps.wait();
    let tail = queued.elapsed().as_secs_f64();
    let losses: Vec<f64> = measured.iter().map(|(_, taken)| taken.loss).collect();
    let (seconds, images) = median(measured);
    let batch = plan.train.batch_size;
    let memory = steps.memory();
    let estimate = steps.estimate(&plan);
    let report = serde_json::json!({
        "case": format!(
            "{}-b{batch}-s{}-{}-train", plan.run.name, plan.data.image.size[0],
            serde_json::to_value(plan.memory.precision).unwrap_or_default().as_str().unwrap_or("")
        ),
        "device": steps.device(),
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "ours": {
            "ms": seconds * 1e3,
            "images_per_second": images / seconds,
            "live": memory.live,
            "peak": memory.peak,
            "peak_kind": memory.peak_kind,
            "predicted_peak": estimate.peak,
            "predicted_held": steps.predicted_held(&plan),
            "recomputed_percent": estimate.recompute_percent,
            "reserved": memory.reserved,
            "smi": memory.smi,
        },
        "backoffs": backoffs,
        "seconds_to_first_step": first,
        "ms_after_queued": tail * 1e3,
        "loss": losses.last(),
        "losses": losses,
    });
    output::print(&report.to_string())
}

/// The seconds and images of the step of median speed, of the second half of the steps on full batches,
/// or of all steps where no batch was full.
fn median(mut steps: Vec<(f64, Taken)>) -> (f64, f64) {
    if steps.iter().any(|(_, taken)| taken.is_full) {
        steps.retain(|(_, taken)| taken.is_full);
    }
    let mut second = steps.split_off(steps.len() / 2);
    let rate = |(seconds, taken): &(f64, Taken)| taken.images as f64 / seconds;
    second.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    let (seconds, taken) = second[second.len() / 2];
    (seconds, taken.images as f64)
}

/// Writes the gradients, and prints the loss and which weights were drawn at random.
fn write_gradients(bench: build::Bench, path: &Path) -> Result<(), Failure> {
    let device = bench.device();
    let fresh = bench.initial.as_ref().map_or_else(Vec::new, Initial::random);
    let (gradients, loss) = bench.gradients().map_err(Failure::other)?;
    let bytes = weights::write(&gradients).map_err(Failure::other)?;
    let failed = |error| Failure::other(format!("cannot write {}: {error}", path.display()));
    whole::write(path, bytes).map_err(failed)?;
    let report = serde_json::json!({
        "device": device,
        "command": std::env::args().collect::<Vec<_>>().join(" "),
        "loss": loss,
        "fresh": fresh,
    });
    output::print(&report.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::memory::Parameter;
    use crate::model::weights::NamedTensor;
    use crate::{config, plan};

    const CONFIG: &str = r#"
[run]
name = "tiny"
[device]
use = "cpu"
[data]
image = { size = [32, 32], channels = 1 }
[data.chexpert]
root = "none"
[model.densenet]
growth = 4
blocks = [2, 1]
stem = 8
[[heads]]
name = "findings"
task = "multilabel"
labels = ["Edema", "Pneumonia"]
[train]
epochs = 1
batch_size = 3
clip_norm = 1e-3
[train.optimizer.sgd]
lr = 1.0
"#;

    fn bench(key: &str) -> build::Bench {
        let (file, text) = ("tiny.toml".to_owned(), CONFIG.to_owned());
        let loaded = config::read(file, text, &[key.to_owned()]).expect("a configuration");
        build::Bench::new(&plan::plan(loaded.config).expect("a plan")).expect("opens")
    }

    fn write(path: &Path, tensors: &[NamedTensor]) {
        std::fs::write(path, weights::write(tensors).expect("a file")).expect("is written");
    }

    fn parameters(bench: &build::Bench) -> Vec<NamedTensor> {
        let read = |parameter: Parameter| {
            let data = parameter.value.into_data().iter::<f32>().collect();
            NamedTensor { name: parameter.name, shape: parameter.shape, data }
        };
        bench.trainer.parameters().into_iter().map(read).collect()
    }

    #[test]
    fn the_median_step_is_of_the_second_half_of_full_batches() {
        let taken = |images| Taken { images, is_full: images == 8, loss: 0.0 };
        let steps =
            [(9.0, 8), (9.0, 8), (2.0, 3), (4.0, 8), (1.0, 3), (5.0, 8), (3.0, 8), (1.0, 3)];
        let steps = |full: bool| {
            let kept = steps.into_iter().filter(|(_, images)| full || *images != 8);
            kept.map(|(seconds, images)| (seconds, taken(images))).collect()
        };
        // Of 9, 9, 4, 5 and 3 seconds the second half is 4, 5 and 3.
        assert_eq!(median(steps(true)), (4.0, 8.0));
        assert_eq!(median(steps(false)), (1.0, 3.0));
        assert_eq!(median(vec![(7.0, taken(8))]), (7.0, 8.0));
    }

    #[test]
    fn the_gradients_are_what_a_step_of_rate_one_takes_off() {
        let folder = tempfile::tempdir().expect("a folder");
        let (weights, images) =
            (folder.path().join("w.safetensors"), folder.path().join("i.safetensors"));
        let data = (0..3 * 1024).map(|pixel| (pixel % 7) as f32 / 7.0).collect();
        write(&images, &[NamedTensor { name: "images".into(), shape: vec![3, 1, 32, 32], data }]);

        let mut stepped = bench("train.clip_norm=1e9");
        write(&weights, &parameters(&stepped));
        stepped.take_images(&images).expect("fit");
        let before = parameters(&stepped);
        let loss = stepped.step().expect("a step");
        let after: BTreeMap<_, _> =
            parameters(&stepped).into_iter().map(|p| (p.name, p.data)).collect();

        let mut asked = bench(&overrides::init(&weights));
        assert_eq!(asked.initial.as_ref().expect("is read").random(), [""; 0]);
        asked.take_images(&images).expect("fit");
        let trained = asked
            .trainer
            .first()
            .replica
            .inference
            .chain
            .parameters()
            .iter()
            .filter(|p| p.trained)
            .count();
        let (gradients, asked_loss) = asked.gradients().expect("gradients");
        assert_eq!(asked_loss.to_bits(), loss.loss.to_bits());
        assert_eq!(gradients.len(), trained);
        for gradient in gradients {
            let old = before.iter().find(|p| p.name == gradient.name).expect("a parameter");
            assert_eq!(old.shape, gradient.shape);
            for ((old, new), slope) in
                old.data.iter().zip(&after[&gradient.name]).zip(&gradient.data)
            {
                let name = &gradient.name;
                assert!((old - new - slope).abs() <= 3e-7 * (1.0 + slope.abs()), "{name}");
            }
            assert!(gradient.data.iter().any(|slope| *slope != 0.0), "{}", gradient.name);
        }
    }

    #[test]
    fn images_of_another_shape_are_refused_with_the_shape_wanted() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("i.safetensors");
        let shape = vec![3, 1, 32, 16];
        write(&path, &[NamedTensor { name: "images".into(), shape, data: vec![0.0; 1536] }]);
        let error = bench("run.seed=1").take_images(&path).expect_err("is refused").to_string();
        assert!(error.contains("i.safetensors has no tensor `images` of shape [3, 1, 32, 32]"));
    }
}
