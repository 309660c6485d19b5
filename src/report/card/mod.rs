//! `MODEL.md`, the model card in the folder of a run (Mitchell et al. 2019, "Model Cards for Model Reporting"),
//! with the metadata that model hubs read.
//!
//! It is made from what the run folder holds, as pages are, and it names no image and no patient. What
//! only its author knows has a place that is kept when the card is written again.

mod authored;
mod claim;
mod evaluations;
mod facts;
mod tables;

use std::fs;
use std::path::Path;

use askama::Template;

use self::authored::{Blocks, is_untouched, sealed};
use self::evaluations::Measured;
use super::page::{Judged, ReadFindings, Record, write};

/// The card of a model, in the folder of its run.
pub const CARD_FILE: &str = "MODEL.md";

/// What the template shows.
#[derive(Template)]
#[template(path = "model_card.md", escape = "none")]
struct CardTemplate {
    tags: String,
    metrics: String,
    index: String,
    blocks: Blocks,
    name: String,
    details: String,
    heads: String,
    lists: String,
    counts: String,
    procedure: String,
    evaluations: Vec<Measured>,
    points: String,
    calibration: String,
    limitations: Vec<String>,
    reproduce: String,
    claim: String,
}

/// Writes the card of the run in `folder`, of which `record` tells and whose best outputs are `judged`,
/// with the words that its author has added. Writes nothing where there is no best epoch yet.
///
/// # Errors
/// When it cannot be written, or its author has changed it in other places than theirs, in words.
pub fn write_card(folder: &Path, record: &Record, judged: Option<&Judged>) -> Result<(), String> {
    if record.best().is_none() {
        return Ok(());
    }
    let file = folder.join(CARD_FILE);
    let old = match fs::read(&file) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).replace("\r\n", "\n")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(format!("cannot read {}: {error}", file.display())),
    };
    if old.as_deref().is_some_and(|old| !is_untouched(old)) {
        return Err(format!(
            "{} was changed outside of its author's places, and is left as it is; move it elsewhere for a \
             new one to be written",
            file.display()
        ));
    }
    let text = card(folder, record, judged, old.as_deref());
    if old.as_ref() == Some(&text) {
        return Ok(());
    }
    write(&file, &text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Writes the card of the run in `folder` anew from what is there, as after an evaluation. `read` reads
/// the best state.
///
/// # Errors
/// As of [`write_card`], and where the folder or the state cannot be read.
pub fn refresh_card(folder: &Path, read: ReadFindings) -> Result<(), String> {
    let record = Record::read(folder).map_err(|error| error.to_string())?;
    let judged = Judged::read(folder, &record.config, read)?;
    write_card(folder, &record, judged.as_ref())
}

/// The text of the card, with the author's words in `old`.
fn card(folder: &Path, record: &Record, judged: Option<&Judged>, old: Option<&str>) -> String {
    let config = record.config.parse::<toml::Table>().unwrap_or_default();
    let evaluations = evaluations::read(folder, record, judged);
    let fitted = judged.and_then(|judged| judged.fitted.as_ref());
    let (points, calibration) = evaluations::fitted_tables(&record.start.heads, fitted);
    let lists = facts::split(folder);
    let run = claim::Run { record, config: &config, lists: &lists, evaluations: &evaluations };
    let claim = claim::checklist(&run, &authored::written(old));
    let list = |texts: Vec<String>| serde_json::json!(texts).to_string();
    let template = CardTemplate {
        tags: list(facts::tags(&config)),
        metrics: list(evaluations::metrics(&evaluations)),
        index: evaluations::index(record, &config, &evaluations),
        blocks: Blocks::new(old),
        name: tables::plain(&record.start.name),
        details: facts::details(record, &config),
        heads: facts::heads(&config),
        lists: facts::lists(&lists, &config),
        counts: facts::counts(&record.start),
        procedure: facts::procedure(record, &config),
        limitations: facts::limitations(record, fitted, &evaluations),
        evaluations,
        points,
        calibration,
        reproduce: facts::reproduce(record),
        claim,
    };
    sealed(&template.render().expect("memory takes what is written"))
}

#[cfg(test)]
mod tests;
