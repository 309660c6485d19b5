//! What the best epoch's outputs for the validation images are worth, in pictures.

use std::fs;
use std::path::Path;

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
    /// `config`; `None` where the state holds none.
    ///
    /// # Errors
    /// When a file cannot be read or used, in words.
    pub fn read(folder: &Path, config: &str) -> Result<Option<Self>, String> {
        let state = folder.join("best");
        let (outputs, fitted) = (state.join(PredictionTable::FILE), state.join(Fitted::FILE));
        if !outputs.exists() {
            return Ok(None);
        }
        let settings: Settings =
            toml::from_str(config).map_err(|error| format!("config.toml: {error}"))?;
        let read = |file: &Path| {
            fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
        };
        let table = PredictionTable::from_csv(&read(&outputs)?, &settings.heads, &outputs);
        let table = table.map_err(|error| error.to_string())?;
        let fitted = match fitted.exists() {
            true => {
                let text = String::from_utf8_lossy(&read(&fitted)?).into_owned();
                Some(Fitted::from_json(&text, &fitted).map_err(|error| error.to_string())?)
            }
            false => None,
        };
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
