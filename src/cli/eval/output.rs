//! What an evaluation prints and writes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::model::Model;
use super::{Asked, measured};
use crate::cli::{Failure, output, whole};
use crate::data::BadImage;
use crate::evaluate::{Evaluation, Fitted, HeadEvaluation, PredictionTable, PredictionWriter};
use crate::report::{
    EvaluationPage, Event, HeadLabels, REPORT_FILE, Report, SkippedImages, evaluation_page,
    evaluation_text, write_page,
};
use crate::screen::{Frame, counted, say, stdout_columns, tell_progress};

/// The columns of the tables in a file.
const FILE_COLUMNS: usize = 120;

/// The files of an evaluation.
pub(in crate::cli) const EVALUATION_FILE: &str = "evaluation.json";
pub(in crate::cli) const PREDICTIONS_FILE: &str = "predictions.csv";
const TABLES: &str = "tables.txt";
const SKIPPED: &str = "skipped_images.csv";

/// What was found, in the form that `--json` prints. Keys may be added, not renamed.
#[derive(Debug, Serialize)]
pub(super) struct Evaluated {
    #[serde(flatten)]
    evaluation: Evaluation,
    /// Which images these are.
    pub split: String,
    /// The configuration of other data.
    data: Option<PathBuf>,
    /// Whether each image was looked at in several ways.
    tta: bool,
    pub images: usize,
    pub patients: usize,
    /// Images that could not be read.
    skipped: usize,
    /// One, or the members of an ensemble.
    models: Vec<ModelTold>,
    /// Whether each image is predicted by the fold that was not trained on it.
    out_of_fold: bool,
    /// What calibration and thresholds were fitted on.
    fitted_on: Option<&'static str>,
    warnings: Vec<String>,
    /// Each member of an ensemble by itself.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    each: Vec<Evaluated>,
    #[serde(skip)]
    pub heads: Vec<HeadLabels>,
    #[serde(skip)]
    predictions: PredictionTable,
    #[serde(skip)]
    fitted: Option<Fitted>,
    #[serde(skip)]
    skipped_images: Vec<BadImage>,
    #[serde(skip)]
    pub told: String,
}

/// Which model it was.
#[derive(Debug, Serialize)]
struct ModelTold {
    run: PathBuf,
    state: PathBuf,
    /// Where they are known.
    epoch: Option<u64>,
    step: Option<u64>,
}

impl ModelTold {
    /// In words.
    fn told(&self) -> String {
        let trained = self.epoch.zip(self.step);
        let trained = trained.map(|(epoch, step)| format!(", epoch {epoch}, step {step}"));
        format!("{}{}", self.state.display(), trained.unwrap_or_default())
    }
}

impl Evaluated {
    /// A model by itself.
    pub fn of_one(model: &Model, asked: &Asked) -> Self {
        let Model { predictions, fitted, warnings, .. } = model;
        let groups = model.groups_of(predictions);
        let evaluation = measured(predictions, fitted.as_ref(), model, &groups);
        let models = std::slice::from_ref(model);
        let (predictions, fitted, warnings) =
            (predictions.clone(), fitted.clone(), warnings.clone());
        Self::new(models, asked, predictions, fitted, evaluation, warnings, Vec::new())
    }

    /// What was found of `models`, of which there is one, or an ensemble.
    pub fn new(
        models: &[Model],
        asked: &Asked,
        predictions: PredictionTable,
        fitted: Option<Fitted>,
        evaluation: Evaluation,
        mut warnings: Vec<String>,
        each: Vec<Self>,
    ) -> Self {
        warnings.extend(predictions.measured(None).few_patients());
        let mut seen = std::collections::BTreeSet::new();
        warnings.retain(|warning| seen.insert(warning.clone()));
        let told = models.iter().map(|model| ModelTold {
            run: model.run.clone(),
            state: model.state.clone(),
            epoch: model.epoch,
            step: model.step,
        });
        let skipped_images: Vec<BadImage> =
            models.iter().flat_map(|model| model.skipped.clone()).collect();
        Self {
            evaluation,
            split: asked.list.name().to_owned(),
            data: asked.data.clone(),
            tta: asked.tta,
            images: predictions.images(),
            patients: predictions.patient_numbers().iter().max().map_or(0, |last| last + 1),
            skipped: skipped_images.len(),
            models: told.collect(),
            out_of_fold: false,
            fitted_on: fitted.is_some().then_some("validation"),
            warnings,
            each,
            heads: models.first().map(Model::heads).unwrap_or_default(),
            predictions,
            fitted,
            skipped_images,
            told: asked.told(),
        }
    }

    /// The same, of folds that each predict the images that they were not trained on.
    pub fn of_folds(self) -> Self {
        Self { out_of_fold: true, ..self }
    }

    /// What a person should know, a sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What was found of the head of this name.
    pub fn head(&self, name: &str) -> Option<&HeadEvaluation> {
        self.evaluation.heads.get(name)
    }

    /// What was found of each head, by its name.
    pub fn evaluated(&self) -> &BTreeMap<String, HeadEvaluation> {
        &self.evaluation.heads
    }

    /// Writes the files into `folder`, if there is one, and prints the tables, or the JSON.
    pub fn tell(&self, folder: Option<&Path>, json: bool) -> Result<(), Failure> {
        self.warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
        let as_json = serde_json::to_string_pretty(self).map_err(Failure::other)?;
        if let Some(folder) = folder {
            self.write(folder, &as_json)?;
            tell_progress(&format!(
                "written to {}: {REPORT_FILE}, {TABLES}, {EVALUATION_FILE}, {PREDICTIONS_FILE}",
                folder.display()
            ));
        }
        match json {
            true => output::print(&as_json),
            false => output::print(&self.text(Frame::of_stdout(), stdout_columns())),
        }
    }

    /// The tables, and above them whose they are.
    fn text(&self, frame: Frame, columns: usize) -> String {
        let models = self.models.iter().map(|model| format!("model   {}\n", model.told()));
        let mut text: String = models.collect();
        let images = counted(self.images, "image", "images");
        text += &format!("images  {}: {images}{}\n\n", self.told, self.by());
        text += &evaluation_text(&self.evaluation, &self.heads, frame, columns);
        for each in &self.each {
            text += &format!("\n{}", each.text(frame, columns));
        }
        text
    }

    /// Which of the models predicts an image, where it is not the ensemble.
    fn by(&self) -> &'static str {
        if self.out_of_fold { ", each by the fold that was not trained on it" } else { "" }
    }

    /// The page of it.
    fn page(&self) -> String {
        let images = format!("{}{}", self.told, self.by());
        let models: Vec<String> = self.models.iter().map(ModelTold::told).collect();
        let each = self.each.iter().map(|each| {
            let run = each.models.first().map(|model| model.run.display().to_string());
            (run.unwrap_or_default(), &each.evaluation)
        });
        let each: Vec<(String, &Evaluation)> = each.collect();
        evaluation_page(&EvaluationPage {
            images: &images,
            models: &models,
            is_ensemble: models.len() > 1 && !self.out_of_fold,
            patients: self.patients,
            warnings: &self.warnings,
            evaluation: &self.evaluation,
            heads: &self.heads,
            predictions: &self.predictions,
            fitted: self.fitted.as_ref(),
            skipped: &self.skipped_images,
            each: &each,
        })
    }

    fn write(&self, folder: &Path, json: &str) -> Result<(), Failure> {
        fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
        let write = |name: &str, bytes: &[u8]| {
            let file = folder.join(name);
            whole::write(&file, bytes).map_err(|error| unwritable(&file, &error))
        };
        let last = folder.join(EVALUATION_FILE);
        if last.exists() {
            fs::remove_file(&last).map_err(|error| unwritable(&last, &error))?;
        }
        write(TABLES, self.text(Frame::Ascii, FILE_COLUMNS).as_bytes())?;
        let (header, rows) = self.predictions.decided(self.fitted.as_ref(), true);
        let mut writer = PredictionWriter::new(Vec::new(), &header).map_err(Failure::other)?;
        rows.iter().try_for_each(|row| writer.write(row)).map_err(Failure::other)?;
        write(PREDICTIONS_FILE, &writer.finish().map_err(Failure::other)?)?;
        let skipped = folder.join(SKIPPED);
        if skipped.exists() {
            fs::remove_file(&skipped).map_err(|error| unwritable(&skipped, &error))?;
        }
        if !self.skipped_images.is_empty() {
            let images = self.skipped_images.clone();
            let list = SkippedImages::open(&skipped);
            let listed = list.and_then(|mut list| list.event(&Event::SkippedImages { images }));
            listed.map_err(Failure::other)?;
        }
        if let Some(fitted) = &self.fitted {
            write(Fitted::FILE, fitted.to_json().as_bytes())?;
        }
        let file = folder.join(REPORT_FILE);
        write_page(&file, &self.page()).map_err(|error| unwritable(&file, &error))?;
        // Last: where it is there, the others are of the same evaluation.
        write(EVALUATION_FILE, json.as_bytes())
    }
}

pub(super) fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    let shown = path.display();
    Failure::other(format!("cannot write {shown}: {error}"))
        .with_help(Some("--out names another folder".to_owned()))
}
