//! `trainer eval`.

mod by;
mod external;
mod model;
mod output;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::by::By;
use self::model::Model;
use self::output::Evaluated;
pub(super) use self::output::{EVALUATION_FILE, PREDICTIONS_FILE};
use super::Failure;
use super::overrides::Overrides;
use crate::build::List;
use crate::evaluate::{
    Evaluation, Fitted, Group, PredictionTable, ensemble, evaluate, evaluate_subgroups,
};

/// Measures a trained model on a list of images
///
/// RUN is the folder of a run, of which the best state is taken, or the folder of one of its states.
/// Calibration and thresholds are those that were fitted on the validation images. Several runs are
/// measured as one ensemble, by the mean of their probabilities. The tables go to standard output; they
/// are also written to RUN/eval-<split>/, with evaluation.json, predictions.csv and a page, report.html.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer eval checkpoints/xray --split test
  trainer eval checkpoints/xray --split test --by sex,age:40,60,source
  trainer eval checkpoints/xray --data other_hospital.toml --map 'Edema=Oedema'
  trainer eval checkpoints/fold-* --split test --each --out checkpoints/ensemble-test
  trainer eval checkpoints/xray --set evaluate.calibration=platt --json")]
pub struct Eval {
    /// The folder of a run or of a saved state; of several, the ensemble is measured
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// The images: validation when it is left out, or all with --data
    #[arg(long, value_name = "LIST")]
    split: Option<Split>,
    /// Other data: the [data] of this configuration, read as the run's images are
    ///
    /// The file is a configuration, or holds [data] alone. What its images become (`data.image`) is as
    /// in the run. Labels that it lacks are not measured.
    #[arg(long, value_name = "CONFIG")]
    data: Option<PathBuf>,
    /// What the other data call a label: OURS=THEIRS, with commas between several
    #[arg(long, value_name = "OURS=THEIRS", requires = "data", value_delimiter = ',')]
    map: Vec<String>,
    /// Measures parts of the images too: by columns of their table, `source`, or a head of classes
    ///
    /// A number is cut into bands at the edges that follow it: `sex,age:40,60` has the ages below 40,
    /// from 40 up to 60, and from 60.
    #[arg(long, value_name = "COLUMN[:EDGE,…],…")]
    by: Vec<String>,
    #[command(flatten)]
    overrides: Overrides,
    /// Runs on this device instead of the configuration's `device.use`: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Shows each of several runs by itself too
    #[arg(long)]
    each: bool,
    /// The folder of the files, instead of RUN/eval-<split>/
    ///
    /// For several runs files are only written where this is given.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Prints the content of evaluation.json instead of the tables
    #[arg(long)]
    json: bool,
}

/// A list of images, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Split {
    /// The images that were trained on
    Train,
    /// The images that the run was validated on
    Validation,
    /// The official test list
    Test,
    /// All images
    All,
}

impl From<Split> for List {
    fn from(split: Split) -> Self {
        match split {
            Split::Train => Self::Train,
            Split::Validation => Self::Validation,
            Split::Test => Self::Test,
            Split::All => Self::All,
        }
    }
}

/// What is asked for, read from the command line.
#[derive(Debug)]
struct Asked {
    set: Vec<String>,
    list: List,
    data: Option<PathBuf>,
    labels: BTreeMap<String, String>,
    by: Vec<By>,
}

/// Evaluates.
pub fn execute(command: &Eval) -> Result<(), Failure> {
    let mut set = command.overrides.set.clone();
    let device = command.device.clone().map(toml::Value::String);
    set.extend(device.map(|device| format!("device.use={device}")));
    let default = if command.data.is_some() { List::All } else { List::Validation };
    let asked = Asked {
        set,
        list: command.split.map_or(default, List::from),
        data: command.data.clone(),
        labels: external::labels(&command.map)?,
        by: by::read(&command.by)?,
    };
    let models = command.runs.iter().map(|run| Model::open(run, &asked));
    let models = models.collect::<Result<Vec<Model>, Failure>>()?;
    let evaluated = match &models[..] {
        [model] => Evaluated::of_one(model, &asked),
        models => of_several(models, &asked, command.each)?,
    };
    let folder = match (&command.out, &models[..]) {
        (Some(folder), _) => Some(folder.clone()),
        (None, [model]) => Some(model.folder.join(asked.name())),
        (None, _) => None,
    };
    evaluated.tell(folder.as_deref(), command.json)
}

impl Asked {
    /// The validation list of a run, and nothing else.
    fn validation() -> Self {
        let (set, by, labels) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { set, list: List::Validation, data: None, labels, by }
    }

    /// The name of the folder of this evaluation in the run's folder.
    fn name(&self) -> String {
        let list = self.list.name();
        let data = self.data.as_deref().and_then(|path| path.file_stem());
        let name = match data.map(|stem| stem.to_string_lossy()) {
            Some(stem) if self.list == List::All => stem.into_owned(),
            Some(stem) => format!("{stem}-{list}"),
            None => list.to_owned(),
        };
        format!("{}{name}", crate::run::EVALUATION)
    }

    /// The images in words.
    fn told(&self) -> String {
        let list = match self.list {
            List::All => "all images",
            other => other.name(),
        };
        match &self.data {
            Some(path) => format!("{list} of {}", path.display()),
            None => list.to_owned(),
        }
    }
}

/// The ensemble of several models.
fn of_several(models: &[Model], asked: &Asked, each: bool) -> Result<Evaluated, Failure> {
    let other = || Failure::configuration("the runs have other heads or labels, so no ensemble");
    let pairs = models.iter().map(|model| (&model.predictions, model.fitted.as_ref()));
    let pairs: Vec<_> = pairs.collect();
    let predictions = ensemble(&pairs).ok_or_else(other)?;
    if predictions.images() == 0 {
        return Err(Failure::data("the runs have no image in common, so no ensemble"));
    }
    let mut warnings: Vec<String> =
        models.iter().flat_map(|model| model.warnings.clone()).collect();
    let most = models.iter().map(|model| model.predictions.images()).max().unwrap_or_default();
    if predictions.images() < most {
        warnings.push(format!(
            "the ensemble is measured on the {} images that all runs have, of {most}",
            predictions.images()
        ));
    }
    let first = &models[0];
    let fitted = fitted_together(models);
    if fitted.is_none() {
        warnings.push(
            "the runs were not validated on the same images, so no thresholds are fitted for the \
             ensemble: decisions are made at 0.5"
                .to_owned(),
        );
    }
    let groups = first.groups_of(&predictions);
    let evaluation = measured(&predictions, fitted.as_ref(), first, &groups);
    let parts =
        models.iter().filter(|_| each).map(|model| Evaluated::of_one(model, asked)).collect();
    Ok(Evaluated::new(models, asked, predictions, fitted, evaluation, warnings, parts))
}

/// What is fitted on the ensemble's own outputs for the validation images, where all models have the
/// same ones.
fn fitted_together(models: &[Model]) -> Option<Fitted> {
    let pairs: Option<Vec<_>> = models
        .iter()
        .map(|model| Some((model.validation.as_ref()?, model.fitted.as_ref())))
        .collect();
    let pairs = pairs?;
    let together = ensemble(&pairs)?;
    let same = pairs.iter().all(|(table, _)| table.images() == together.images());
    same.then(|| models[0].plan.evaluate.fit(&together))
}

/// The evaluation of `predictions`, and of each group of their images by itself.
fn measured(
    predictions: &PredictionTable,
    fitted: Option<&Fitted>,
    model: &Model,
    groups: &[(String, Vec<Group>)],
) -> Evaluation {
    let settings = model.plan.evaluate.settings(model.plan.run.seed);
    let patients = predictions.patient_numbers();
    let heads = evaluate(&predictions.heads, &patients, fitted, &settings);
    let subgroups = groups.iter().map(|(name, groups)| {
        // Within a class of its own a head has nothing to tell apart.
        let mut others = predictions.heads.clone();
        others.remove(name);
        let of = evaluate_subgroups(&others, &patients, groups, fitted, &settings);
        (name.clone(), of)
    });
    Evaluation { heads, subgroups: subgroups.collect() }
}
