//! `trainer predict`.

mod pictures;

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use self::pictures::Pictures;
use super::overrides::{Overrides, change_evaluate};
use super::trained::{self, Opened};
use super::whole::Partial;
use super::{Failure, Kind};
use crate::build::{LabelCoverage, PredictError, PredictOptions, Predictor};
use crate::data::{Dataset, Listing, list_images};
use crate::evaluate::{Prediction, PredictionError, PredictionLines, PredictionWriter};
use crate::memory::OutOfMemory;
use crate::screen::{counted, say};
use crate::train::TrainError;

/// Predicts images with a trained model
///
/// Images are prepared as in training. The model has the weights that were best on the validation images.
/// Probabilities are calibrated, and decisions are made at the threshold of an operating point; both were
/// fitted on the validation images. Each image has a row, which is written as soon as it is known, in
/// the order in which images are named. An image that cannot be read has a row that says why.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  trainer predict checkpoints/xray scans/ > predictions.csv
  trainer predict checkpoints/xray 0001.dcm 0002.png --format jsonl
  trainer predict checkpoints/xray list.csv --out predictions.csv --heatmap heatmaps --label findings/Edema
  trainer predict checkpoints/adamw scans/ --ensemble checkpoints/sgd
  trainer predict checkpoints/folds scans/
  trainer predict densenet121.safetensors --config my.toml scans/
  trainer predict checkpoints/xray scans/ --conformal 0.1")]
pub struct Predict {
    /// The folder of a run, the folder of one of its states, or a file of weights
    ///
    /// Of a run, the best state is used, or the last if there is no best. The folder of a run's folds
    /// (`trainer run --fold all`) is used as the ensemble of all folds.
    #[arg(value_name = "RUN|WEIGHTS")]
    run: PathBuf,
    /// Images (PNG, JPEG, TIFF or DICOM), folders with all below them, and tables with a column of paths
    ///
    /// The files of a folder are predicted in the order of their paths; files that are no images are
    /// skipped. In a table (CSV, TSV or Parquet) the column is the one that the run's [data.csv] names,
    /// or `path` if it names none; paths are relative to the table's folder.
    #[arg(value_name = "IMAGE|DIR|CSV", required = true)]
    images: Vec<PathBuf>,
    /// The configuration of a file of weights
    ///
    /// The file is SafeTensors, or what PyTorch saved (.pth, .pt, .ckpt, .bin), with all weights of the
    /// configuration's model. Calibration and thresholds are those that `trainer export` has put into it.
    #[arg(long, value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// How predictions are written: as a table, or as a JSON object on each line
    #[arg(long, value_enum, default_value_t = Format::Csv)]
    format: Format,
    /// Writes the predictions to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Runs on this device instead of the configuration's `device.use`: auto, cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// The number of images of a batch; the default is the run's batch size
    ///
    /// As many of them as memory allows go through the network at once. Predictions do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Decides at this operating point, such as `youden` or `sensitivity_0.9`; at the first when this is
    /// left out
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// Another run, or file of weights, whose probabilities count as much; may be given several times
    ///
    /// The probabilities are the mean of the runs' calibrated probabilities. This mean has a calibration
    /// and thresholds of its own, fitted on the validation images as by `trainer eval` of these runs. If
    /// the runs were validated on different images, the mean is not calibrated again, the thresholds are
    /// the mean of the runs' thresholds, and a warning says so. The columns `<head>/<label>/spread` hold
    /// the standard deviation over the runs.
    #[arg(long, value_name = "RUN")]
    ensemble: Vec<PathBuf>,
    /// Looks at each image mirrored and shifted too, as far as training did
    ///
    /// The probabilities are the mean of these views. The columns `<head>/<label>/spread` hold the
    /// standard deviation.
    #[arg(long)]
    tta: bool,
    /// Writes conformal sets: the decisions that remain if a share ERROR may be wrong, such as 0.1
    ///
    /// The columns `<head>/<label>/conformal` hold {0}, {1}, {0,1} or {}. Sets are fitted on the run's
    /// validation images. The program measures how many of such images they cover, and prints it. With
    /// --ensemble all runs must have been validated on the same images. With --tta the validation images
    /// are read and looked at in the same views first.
    #[arg(long, value_name = "ERROR", value_parser = share)]
    conformal: Option<f64>,
    /// Writes a picture of where each label is seen (Grad-CAM) into this folder
    ///
    /// Of several runs it is the mean of each run's own.
    #[arg(long, value_name = "DIR")]
    heatmap: Option<PathBuf>,
    /// Draws heatmaps of this label only; may be given several times
    #[arg(long, value_name = "HEAD/LABEL", requires = "heatmap")]
    label: Vec<String>,
    #[command(flatten)]
    overrides: Overrides,
}

/// How predictions are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// A table with a row for each image
    Csv,
    /// A JSON object on each line, one for each image
    Jsonl,
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|share| *share > 0.0 && *share < 1.0);
    number.ok_or_else(|| "write a number between 0 and 1, such as 0.1".to_owned())
}

/// Predicts and writes.
pub fn execute(predict: Predict) -> Result<(), Failure> {
    let mut set = predict.overrides.set.clone();
    let device = predict.device.iter().map(|device| toml::Value::String(device.clone()));
    set.extend(device.map(|device| format!("device.use={device}")));
    let runs: Vec<PathBuf> = [&predict.run].into_iter().chain(&predict.ensemble).cloned().collect();
    let members = trained::members(&runs)?;
    let open = |path: &PathBuf| {
        let opened = Opened::at(path, predict.config.as_deref(), &set)?;
        opened.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
        Ok::<_, Failure>((opened.trained, opened.plan))
    };
    let mut models = vec![open(&members[0])?];
    let listing = list_images(&predict.images, &models[0].1.data);
    let Listing { images, passed_over, repeated } = listing.map_err(|error| data(error.into()))?;
    for run in &members[1..] {
        models.push(open(run)?);
    }
    let options = PredictOptions {
        batch: predict.batch.map(|batch| batch as usize),
        point: predict.point.clone(),
        views: predict.tta,
        error: predict.conformal,
        refit: change_evaluate(&predict.overrides.set),
    };
    let predictor = Predictor::new(models, &options).map_err(failure)?;
    tell(&predictor, passed_over, repeated, predict.conformal);
    let images = Arc::new(images);
    let pictures = predict.heatmap.as_deref();
    let pictures =
        pictures.map(|folder| Pictures::open(folder, &predictor, &predict.label, &images));
    let bad = written(&predict, predictor, &images, pictures.transpose()?)?;
    match bad {
        0 => Ok(()),
        bad if bad == images.len() => {
            Err(Failure::data(format!("none of {} could be read", of_images(bad))))
        }
        bad => {
            let is = if bad == 1 { "its row says" } else { "their rows say" };
            say(format_args!(
                "warning: {bad} of {} could not be read; {is} why",
                of_images(images.len())
            ));
            Ok(())
        }
    }
}

fn of_images(count: usize) -> String {
    counted(count, "image", "images")
}

/// Says what a person should know before the first row.
fn tell(predictor: &Predictor, passed_over: usize, repeated: usize, error: Option<f64>) {
    for state in predictor.unfitted() {
        say(format_args!(
            "warning: {} has no calibration and no thresholds: probabilities are as the model gives \
             them, and decisions are made at 0.5. States saved at the end of an epoch have them.",
            state.display()
        ));
    }
    if let Some(warning) = predictor.warning() {
        say(format_args!("warning: {warning}"));
    }
    if passed_over > 0 {
        let files = counted(passed_over, "file is no image and", "files are no images and");
        say(format_args!("{files} passed over"));
    }
    if repeated > 0 {
        let times =
            counted(repeated, "image is named again and has", "images are named again and have");
        say(format_args!("{times} one row"));
    }
    if let Some(error) = error {
        say(format_args!(
            "sets at an error of {error}, fitted on half of the validation patients, cover of the other half:"
        ));
        predictor.coverage().iter().for_each(|label| say(format_args!("  {}", covered(label))));
    }
}

fn covered((head, label, coverage): &LabelCoverage) -> String {
    let share = |[right, all]: [usize; 2]| match all {
        0 => "none".to_owned(),
        all => format!("{:.1}% of {all}", 100.0 * right as f64 / all as f64),
    };
    let positives = share(coverage.positives);
    match coverage.decided {
        [_, 0] => format!("{head}/{label}: {positives} images of the class"),
        decided => format!(
            "{head}/{label}: {positives} positives, {} negatives; a set has one decision for {}",
            share(coverage.negatives),
            share(decided),
        ),
    }
}

/// Writes the rows; how many images could not be read.
fn written(
    predict: &Predict,
    mut predictor: Predictor,
    images: &Arc<Dataset>,
    mut pictures: Option<Pictures>,
) -> Result<usize, Failure> {
    let at = |error: &dyn Display| unwritten(predict.out.as_deref(), error);
    let (partial, to): (Option<Partial>, Box<dyn Write>) = match &predict.out {
        Some(file) => {
            let (partial, file) = Partial::create(file).map_err(|error| at(&error))?;
            (Some(partial), Box::new(file))
        }
        None => (None, Box::new(io::stdout())),
    };
    let bar = bar(images.len());
    let mut rows = Rows::new(to, predict.format, &predictor).map_err(|error| at(&error))?;
    let mut bad = 0;
    let mut predictions = predictor.predict(images.clone());
    while let Some(batch) = predictions.next() {
        let batch = batch.map_err(failure)?;
        bad += batch.images.iter().filter(|image| image.told.is_err()).count();
        match bar.suspend(|| rows.write(&batch.images)) {
            // A reader that has gone has what it wanted.
            Err(PredictionError::Unwritable(error)) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(0);
            }
            wrote => wrote.map_err(|error| at(&error))?,
        }
        if let Some(pictures) = &mut pictures {
            pictures.draw(predictions.predictor(), &batch, images.samples())?;
        }
        bar.inc(batch.images.len() as u64);
    }
    bar.finish_and_clear();
    drop(rows);
    partial.map_or(Ok(()), |partial| partial.finish()).map_err(|error| at(&error))?;
    Ok(bad)
}

/// Where rows go.
enum Rows {
    Csv(Box<PredictionWriter<Box<dyn Write>>>),
    Lines(PredictionLines<Box<dyn Write>>),
}

impl Rows {
    fn new(
        to: Box<dyn Write>,
        format: Format,
        predictor: &Predictor,
    ) -> Result<Self, PredictionError> {
        let header = predictor.header();
        Ok(match format {
            Format::Csv => Self::Csv(Box::new(PredictionWriter::new(to, &header)?)),
            Format::Jsonl => Self::Lines(PredictionLines::new(to, predictor.heads(), &header)),
        })
    }

    /// Writes these images, and hands them on.
    fn write(&mut self, images: &[Prediction]) -> Result<(), PredictionError> {
        match self {
            Self::Csv(writer) => {
                images.iter().try_for_each(|image| writer.write(image))?;
                writer.flush()
            }
            Self::Lines(writer) => {
                images.iter().try_for_each(|image| writer.write(image))?;
                writer.flush()
            }
        }
    }
}

fn unwritten(file: Option<&Path>, error: &dyn Display) -> Failure {
    let place =
        file.map_or_else(|| "standard output".to_owned(), |file| file.display().to_string());
    Failure::other(format!("cannot write the predictions to {place}: {error}"))
}

fn bar(images: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} images, {per_sec}, {eta} left");
    let bar = ProgressBar::new(images as u64);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// What ends the program where images cannot be predicted.
fn failure(error: PredictError) -> Failure {
    let kind = match &error {
        PredictError::OtherHeads { .. }
        | PredictError::NoViews
        | PredictError::NoLabel { .. }
        | PredictError::NoFeatureMap(_)
        | PredictError::NoCommonValidation { .. }
        | PredictError::Point(_) => Kind::Configuration,
        PredictError::NoValidation { .. }
        | PredictError::NotRefitted { .. }
        | PredictError::UnfittedMember { .. }
        | PredictError::Fitted(_)
        | PredictError::Validation(_) => Kind::State,
        PredictError::Data(_)
        | PredictError::ValidationImages { .. }
        | PredictError::OtherValidation { .. } => return data(error),
        PredictError::Outputs(outputs) => outputs.into(),
        PredictError::Train(TrainError::OutOfMemory { .. }) => Kind::OutOfMemory,
        PredictError::Train(TrainError::Device(device)) | PredictError::Device(device)
            if OutOfMemory::in_text(&format!("{device:?}")).is_some() =>
        {
            Kind::OutOfMemory
        }
        PredictError::Train(_) | PredictError::Device(_) => Kind::Other,
    };
    Failure::new(kind, error)
}

/// Images that cannot be found or loaded.
fn data(error: PredictError) -> Failure {
    let help = match &error {
        PredictError::Data(error) | PredictError::ValidationImages { source: error } => {
            error.help()
        }
        _ => None,
    };
    Failure::data(error).with_help(help)
}
