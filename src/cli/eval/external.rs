//! `--data` and `--map`: other data than those of the run.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::Failure;
use crate::config::{self, Loaded};
use crate::data::{DataConfig, check_layouts};
use crate::plan::Plan;

/// Reads `--map`: what the other data call the labels on the left.
pub(super) fn labels(map: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |text: &String| {
        let (ours, theirs) = text.split_once('=')?;
        let (ours, theirs) = (ours.trim().to_owned(), theirs.trim().to_owned());
        (!ours.is_empty() && !theirs.is_empty()).then_some((ours, theirs))
    };
    let mut labels = BTreeMap::new();
    for text in map {
        let (ours, theirs) = pair(text).ok_or_else(|| {
            let message = format!("`{text}` in --map is no pair OURS=THEIRS");
            Failure::configuration(message)
        })?;
        if labels.insert(ours.clone(), theirs).is_some() {
            let message = format!("--map names `{ours}` twice");
            return Err(Failure::configuration(message));
        }
    }
    Ok(labels)
}

/// `plan` with the data that the file at `path` names, whose images become what those of the run did.
/// The file is a configuration, or has `[data]` alone. `set` are the overrides of the command line, of
/// which those below `data` are for it.
///
/// # Errors
/// A file that is no configuration, and labels for several data sets.
pub(super) fn with_data(
    plan: &Plan,
    path: &Path,
    labels: &BTreeMap<String, String>,
    set: &[String],
) -> Result<Plan, Failure> {
    let Loaded { config, source } = loaded(plan, path, set)?;
    check_layouts(&config.data).map_err(|fault| source.error(fault))?;
    let mut data: DataConfig = config.data;
    data.image = plan.data.image.clone();
    let several = || {
        let message = format!("--map is for one data set, and {} names several", path.display());
        let help = "write what each calls its labels under `labels` of its [[data.sources]]";
        Failure::configuration(message).with_help(Some(help.to_owned()))
    };
    let data = data.with_labels(labels.clone()).ok_or_else(several)?;
    let mut other = Plan { data, ..plan.clone() };
    // The seed chooses whom a fraction sets aside.
    other.run.seed = config.run.seed;
    Ok(other)
}

/// The configuration at `path`; what it lacks beside `[data]` is that of the run.
fn loaded(plan: &Plan, path: &Path, set: &[String]) -> Result<Loaded, Failure> {
    let mut set: Vec<String> =
        set.iter().filter(|text| text.trim_start().starts_with("data.")).cloned().collect();
    let own = plan.to_toml().map_err(Failure::other)?;
    let own: toml::Table = toml::from_str(&own).map_err(Failure::other)?;
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let Ok(written) = text.parse::<toml::Table>() else {
        // What is wrong with the file is told in the words of every other configuration.
        return Ok(config::load(path, &set)?);
    };
    if text.is_empty() || written.contains_key("model") || !written.contains_key("data") {
        return Ok(config::load(path, &set)?);
    }
    let missing = own.clone().into_iter().filter(|(key, _)| !written.contains_key(key));
    let missing: toml::Table = missing.filter(|(key, _)| key != "data").collect();
    let missing = toml::to_string(&missing).map_err(Failure::other)?;
    if let Some(image) = own.get("data").and_then(|data| data.get("image")) {
        set.insert(0, format!("data.image={image}"));
    }
    let file = path.display().to_string();
    Ok(config::read(file, format!("{}\n{missing}", text.trim_end()), &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_pairs() {
        let read = |pairs: &[&str]| {
            let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
            labels(&pairs).map_err(|failure| failure.to_string())
        };
        let found = read(&["Edema=oedema", "Pleural Effusion = Effusion"]).expect("reads");
        assert_eq!(found["Pleural Effusion"], "Effusion");
        assert!(read(&["Edema"]).expect_err("no pair").contains("OURS=THEIRS"));
        assert!(read(&["a=b", "a=c"]).expect_err("twice").contains("`a` twice"));
    }
}
