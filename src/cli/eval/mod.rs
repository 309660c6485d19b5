//! `trainer eval`.

mod by;
mod external;
mod folds;
mod matrix;
mod model;
mod output;
mod overlap;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use self::by::By;
pub(super) use self::folds::apart;
use self::model::Model;
use self::output::Evaluated;
pub(super) use self::output::{EVALUATION_FILE, PREDICTIONS_FILE};
use super::Failure;
use super::overrides::Overrides;
use super::trained;
use crate::build::{List, PredictError};
use crate::evaluate::{
    EnsembleFit, Evaluation, Fitted, Group, PredictionTable, ensemble, evaluate,
    evaluate_subgroups, fit_ensemble,
};
use crate::report::refresh_card;
use crate::run::best_findings;
use crate::screen::say;

/// Measures a trained model on a list of images
///
/// RUN is the folder of a run or the folder of one of its states; with --config it is a file of weights.
/// Of a run, the best state is measured. Calibration and thresholds are those that were fitted on the
/// validation images. Several runs are measured as one ensemble, by the mean of their probabilities. For
/// the folder of folds (`trainer run --fold all`), the fold that was not trained on a validation image
/// measures it, and the ensemble of the folds measures other images. The tables go to standard output
/// and, with evaluation.json, predictions.csv and a page, report.html, to RUN/eval-<split>/. The model
/// card, RUN/MODEL.md, gets the figures too.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer eval checkpoints/xray --split test
  trainer eval checkpoints/xray --split test --by sex,age:40,60,source
  trainer eval checkpoints/xray --data other_hospital.toml --map 'Edema=Oedema'
  trainer eval checkpoints/adamw checkpoints/sgd --split test --out checkpoints/ensemble-test
  trainer eval checkpoints/folds --each
  trainer eval checkpoints/xray --split test --tta
  trainer eval checkpoints/a checkpoints/b --matrix --data hospital_c.toml --out matrix
  trainer eval densenet121.safetensors --config my.toml --split test --out results
  trainer eval checkpoints/xray --set evaluate.calibration=platt --json")]
pub struct Eval {
    /// The folder of a run, of its folds or of a saved state, or a file of weights; several are
    /// measured as an ensemble
    #[arg(value_name = "RUN|WEIGHTS", required = true)]
    runs: Vec<PathBuf>,
    /// The configuration of a file of weights
    ///
    /// The file is SafeTensors, or what PyTorch saved (.pth, .pt, .ckpt, .bin), with all weights of the
    /// configuration's model, such as `trainer export` writes it.
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// The images to measure on; the default is validation, or all with --data
    #[arg(long, value_name = "LIST")]
    split: Option<Split>,
    /// Other data: the [data] of this configuration, read as the run's images are
    ///
    /// The file is a configuration, or holds [data] alone. Images are prepared as in the run
    /// (`data.image`). Labels that the data lack are not measured.
    #[arg(long, value_name = "CONFIG")]
    data: Vec<PathBuf>,
    /// What the other data call a label: OURS=THEIRS, with commas between several
    #[arg(long, value_name = "OURS=THEIRS", requires = "data", value_delimiter = ',')]
    map: Vec<String>,
    /// Looks at each image mirrored and shifted too, as far as training did (test-time augmentation)
    ///
    /// The mean of these views is measured, which `trainer predict --tta` writes too.
    #[arg(long)]
    tta: bool,
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
    /// Measures each run on the data of each, and on all --data: trained on × tested on
    ///
    /// Each run is measured on the validation images of the runs and on all images of --data, or on the
    /// list of --split. --data may be given several times. Files (matrix.txt, .csv and .json) are only
    /// written if --out is given.
    #[arg(long, conflicts_with_all = ["map", "each", "config"])]
    matrix: bool,
    /// The folder of the files, instead of RUN/eval-<split>/
    ///
    /// For several runs and for files of weights, files are only written if this is given.
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
#[derive(Debug, Clone)]
struct Asked {
    set: Vec<String>,
    list: List,
    data: Option<PathBuf>,
    labels: BTreeMap<String, String>,
    by: Vec<By>,
    /// The configuration of files of weights.
    config: Option<PathBuf>,
    /// Whether images are looked at in several ways.
    tta: bool,
}

/// Evaluates.
pub fn execute(command: &Eval) -> Result<(), Failure> {
    let mut set = command.overrides.set.clone();
    let device = command.device.clone().map(toml::Value::String);
    set.extend(device.map(|device| format!("device.use={device}")));
    let default = if command.data.is_empty() { List::Validation } else { List::All };
    let asked = Asked {
        set,
        list: command.split.map_or(default, List::from),
        data: command.data.first().cloned(),
        labels: external::labels(&command.map)?,
        by: by::read(&command.by)?,
        config: command.config.clone(),
        tta: command.tta,
    };
    if command.matrix {
        return matrix::execute(command, &asked);
    }
    if command.data.len() > 1 {
        let message = "--data is given several times, and figures are of one data set";
        let help = "add --matrix, which measures on each of them";
        return Err(Failure::configuration(message).with_help(Some(help.to_owned())));
    }
    let out_of_fold = folds::out_of_fold(&command.runs, &asked)?;
    let members = trained::members(&command.runs)?;
    let models = members.iter().map(|run| Model::open(run, &asked));
    let models = models.collect::<Result<Vec<Model>, Failure>>()?;
    check_views(&asked, &models)?;
    let evaluated = match &models[..] {
        models if out_of_fold.is_some() => folds::evaluated(models, &asked, command.each)?,
        [model] => Evaluated::of_one(model, &asked),
        models => of_several(models, &asked, command.each)?,
    };
    let folder = match (&command.out, &models[..]) {
        (Some(folder), _) => Some(folder.clone()),
        (None, [model]) => model.folder.as_ref().map(|folder| folder.join(asked.name())),
        (None, _) => match &command.runs[..] {
            // All models are of this folder.
            [folds] => Some(folds.join(asked.name())),
            _ => None,
        },
    };
    evaluated.tell(folder.as_deref(), command.json)?;
    if let (None, [Model { folder: Some(folder), .. }]) = (&command.out, &models[..])
        && let Err(error) = refresh_card(folder, best_findings)
    {
        say(format_args!("warning: the model card is not up to date: {error}"));
    }
    Ok(())
}

/// Refuses several views where there is only one.
fn check_views(asked: &Asked, models: &[Model]) -> Result<(), Failure> {
    match asked.tta && models.iter().all(|model| model.views == 1) {
        true => Err(Failure::configuration(PredictError::NoViews)),
        false => Ok(()),
    }
}

impl Asked {
    /// The validation list of a run, and nothing else.
    fn validation() -> Self {
        Self {
            set: Vec::new(),
            list: List::Validation,
            data: None,
            labels: BTreeMap::new(),
            by: Vec::new(),
            config: None,
            tta: false,
        }
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
        format!("{}{name}{}", crate::run::EVALUATION, if self.tta { "-tta" } else { "" })
    }

    /// The images in words.
    fn told(&self) -> String {
        let list = match self.list {
            List::All => "all images",
            other => other.name(),
        };
        let views = if self.tta { ", each in several views" } else { "" };
        match &self.data {
            Some(path) => format!("{list} of {}{views}", path.display()),
            None => format!("{list}{views}"),
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
        let are_folds = models.iter().all(|model| model.plan.data.validation.fold.is_some());
        let help = match are_folds {
            true => {
                "name the folder of the folds: each image is then measured by the fold that did not \
                 see it"
            }
            false => {
                "--data names images that all of them are asked about; --matrix measures each run on \
                 the data of each"
            }
        };
        return Err(Failure::data("the runs have no image in common, so no ensemble")
            .with_help(Some(help.to_owned())));
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
    let members = models.iter().map(|model| (model.validation.as_ref(), model.own_fit.as_ref()));
    let members: Vec<_> = members.collect();
    let EnsembleFit { fitted, basis, .. } = fit_ensemble(&members, &first.plan.evaluate);
    warnings.extend(basis.warning().map(str::to_owned));
    let groups = first.groups_of(&predictions);
    let evaluation = measured(&predictions, fitted.as_ref(), first, &groups);
    let parts =
        models.iter().filter(|_| each).map(|model| Evaluated::of_one(model, asked)).collect();
    Ok(Evaluated::new(models, asked, predictions, fitted, evaluation, warnings, parts))
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
