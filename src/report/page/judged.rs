//! What the best epoch's outputs for the validation images are worth, in pictures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::head::JudgedHead;
use crate::evaluate::{EvaluateConfig, Fitted, PredictionTable, evaluate};
use crate::model::HeadConfig;

/// The best epoch's outputs, judged head by head.
#[derive(Debug, Clone, Default)]
pub struct Judged {
    /// In the order of the configuration.
    pub heads: Vec<JudgedHead>,
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
}

impl Judged {
    /// Judges the outputs in the best state of the run in `folder`, whose resolved configuration is
    /// `config` and whose state is read by `read`; `None` where there is no state or it holds none.
    ///
    /// # Errors
    /// When a file cannot be read or used, in words.
    pub fn read(folder: &Path, config: &str, read: ReadFindings) -> Result<Option<Self>, String> {
        let Some(Findings { folder, files, .. }) = read(folder)? else { return Ok(None) };
        let Some(outputs) = files.get(PredictionTable::FILE) else { return Ok(None) };
        let settings: Settings =
            toml::from_str(config).map_err(|error| format!("config.toml: {error}"))?;
        let file = folder.join(PredictionTable::FILE);
        let table = PredictionTable::from_csv(outputs, &settings.heads, &file);
        let table = table.map_err(|error| error.to_string())?;
        let file = folder.join(Fitted::FILE);
        let fitted = files.get(Fitted::FILE).map(|text| String::from_utf8_lossy(text));
        let fitted = fitted.map(|text| Fitted::from_json(&text, &file)).transpose();
        let fitted = fitted.map_err(|error| error.to_string())?;
        Ok(Some(Self::new(&table, fitted.as_ref(), &settings)))
    }

    fn new(table: &PredictionTable, fitted: Option<&Fitted>, settings: &Settings) -> Self {
        let patients = table.patient_numbers();
        let how = settings.evaluate.settings(settings.run.seed);
        let found = evaluate(&table.heads, &patients, fitted, &how);
        let head = |HeadConfig { name, .. }: &HeadConfig| {
            JudgedHead::new(name, table, found.get(name)?, fitted)
        };
        Self { heads: settings.heads.iter().filter_map(head).collect() }
    }
}
