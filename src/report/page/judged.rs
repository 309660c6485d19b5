//! What the best epoch's outputs for the validation images are worth, in pictures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::head::{JudgedHead, probabilities};
use super::pictures::{SamplePictures, Wanted};
use super::samples::samples;
use crate::evaluate::{EvaluateConfig, Fitted, HeadEvaluation, PredictionTable, evaluate};
use crate::model::HeadConfig;

/// The best epoch's outputs, judged head by head.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// In the order of the configuration; none where the state keeps no outputs.
    pub heads: Vec<JudgedHead>,
    /// The figures, by the head's name.
    pub found: BTreeMap<String, HeadEvaluation>,
    /// Calibration and thresholds.
    pub fitted: Option<Fitted>,
    /// What a person should know of the pictures, a sentence each.
    pub notes: Vec<String>,
}

/// What a saved state holds of the validation images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The state's folder.
    pub folder: PathBuf,
    /// Epochs completed when it was saved.
    pub epoch: u64,
    /// Optimizer steps completed when it was saved.
    pub step: u64,
    /// Contents by the names of the files.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// Reads what the best state of the run in a folder holds, and says in words why it cannot.
pub type ReadFindings = fn(&Path) -> Result<Option<Findings>, String>;

/// What of a configuration the outputs need.
#[derive(Deserialize)]
struct Settings {
    heads: Vec<HeadConfig>,
    #[serde(default)]
    evaluate: EvaluateConfig,
    run: RunSettings,
}

#[derive(Deserialize)]
struct RunSettings {
    seed: u64,
    pictures: Option<usize>,
}

impl Judged {
    /// Judges the outputs in the best state of the run in `folder`, whose resolved configuration is
    /// `config` and whose state is read by `read`; `None` where there is no state.
    ///
    /// # Errors
    /// When a file cannot be read or used, in words.
    pub fn read(folder: &Path, config: &str, read: ReadFindings) -> Result<Option<Self>, String> {
        let Some(findings) = read(folder)? else { return Ok(None) };
        let Some(outputs) = Outputs::of(&findings, config)? else {
            return Ok(Some(Self { fitted: fitted(&findings)?, ..Self::default() }));
        };
        let pictures = match outputs.settings.run.pictures {
            Some(0) => None,
            _ => SamplePictures::read(folder, &findings),
        };
        Ok(Some(Self::new(&outputs, pictures.as_ref())))
    }

    fn new(outputs: &Outputs, pictures: Option<&SamplePictures>) -> Self {
        let Outputs { table, fitted, settings } = outputs;
        let fitted = fitted.as_ref();
        let patients = table.patient_numbers();
        let how = settings.evaluate.settings(settings.run.seed);
        let found = evaluate(&table.heads, &patients, fitted, &how);
        let head = |HeadConfig { name, .. }: &HeadConfig| {
            JudgedHead::new(name, table, found.get(name)?, fitted, pictures)
        };
        let notes = match (pictures, settings.run.pictures) {
            (Some(pictures), _) => pictures.missing().to_vec(),
            (None, Some(0)) => vec!["There are no pictures of samples: run.pictures is 0.".to_owned()],
            (None, _) => vec![
                "Pictures of samples are drawn when the training has ended, and by the command trainer report."
                    .to_owned(),
            ],
        };
        let heads = settings.heads.iter().filter_map(head).collect();
        Self { heads, found, fitted: fitted.cloned(), notes }
    }
}

/// The labels of images of which so many pictures of `each` kind are shown, where the state that
/// `findings` are of, of the run with the resolved configuration `config`, holds outputs.
///
/// # Errors
/// When a file cannot be used, in words.
pub fn wanted(findings: &Findings, config: &str, each: usize) -> Result<Vec<Wanted>, String> {
    let Some(outputs) = Outputs::of(findings, config)? else { return Ok(Vec::new()) };
    let Outputs { table, fitted, settings } = &outputs;
    let of_head = |HeadConfig { name, .. }: &HeadConfig| {
        let predictions = table.heads.get(name)?;
        let probabilities = probabilities(name, predictions, fitted.as_ref());
        Some(samples(name, table, predictions, &probabilities))
    };
    let kinds = settings.heads.iter().filter_map(of_head).flatten();
    let rows = kinds.flat_map(|kind| kind.rows.into_iter().take(each));
    let mut seen = BTreeSet::new();
    // A label of an image may be of two kinds.
    Ok(rows.map(|(wanted, _)| wanted).filter(|wanted| seen.insert(wanted.clone())).collect())
}

/// The outputs of a state, read.
struct Outputs {
    table: PredictionTable,
    fitted: Option<Fitted>,
    settings: Settings,
}

impl Outputs {
    fn of(findings: &Findings, config: &str) -> Result<Option<Self>, String> {
        let Findings { folder, files, .. } = findings;
        let Some(outputs) = files.get(PredictionTable::FILE) else { return Ok(None) };
        let settings: Settings =
            toml::from_str(config).map_err(|error| format!("config.toml: {error}"))?;
        let file = folder.join(PredictionTable::FILE);
        let table = PredictionTable::from_csv(outputs, &settings.heads, &file);
        let table = table.map_err(|error| error.to_string())?;
        Ok(Some(Self { table, fitted: fitted(findings)?, settings }))
    }
}

/// Calibration and thresholds in a state.
fn fitted(Findings { folder, files, .. }: &Findings) -> Result<Option<Fitted>, String> {
    let file = folder.join(Fitted::FILE);
    let text = files.get(Fitted::FILE).map(|text| String::from_utf8_lossy(text));
    let fitted = text.map(|text| Fitted::from_json(&text, &file)).transpose();
    fitted.map_err(|error| error.to_string())
}
