//! What may change between the parts of one run, and what may not.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{BuildError, OpenData, differences};
use crate::choice::{Choice, NoSettings};
use crate::data::{Fingerprint, SplitList};
use crate::memory::{CheckpointingConfig, MemoryConfig};
use crate::parallel::BatchNormOver;
use crate::plan::{Chosen, Estimator, Machine, MemorySettings, NothingFits, Plan, Planner};
use crate::report::EndReason;
use crate::run::{CONFIG_FILE, METRICS_FILE, RunFolder, TrainState};
use crate::screen::counted;

/// Keys that may differ when a run is resumed, each with all keys below it: none changes what was
/// done so far, and those of `[memory]` no bit of what will be.
const FREE: [&str; 23] = [
    "run.name",
    "run.output",
    "run.log_every",
    "run.pictures",
    "run.save",
    "device",
    "parallel.pipeline",
    "parallel.data.optimizer",
    "data.workers",
    "data.prefetch",
    "data.on_bad_image",
    "data.bad_image_limit",
    "data.cache.off",
    "data.cache.memory",
    "data.cache.disk.folder",
    "train.epochs",
    "train.early_stopping",
    "memory.checkpointing",
    "memory.dense_layers",
    "memory.offload",
    "memory.offload_optimizer",
    "memory.budget",
    "evaluate",
];

/// The configuration is not the one that the run was started with.
#[derive(Debug, thiserror::Error)]
#[error(
    "the run in {} was started with another configuration:\n{}\nPut these keys back to resume it, \
     or start another run with --set run.name=<other>.",
    folder.display(),
    changes.join("\n")
)]
pub struct ChangedKeys {
    folder: PathBuf,
    changes: Vec<String>,
}

/// The data are not those that the run was started on.
#[derive(Debug, thiserror::Error)]
#[error(
    "the data of the run in {} are not those that it was started on:\n{}\nPut them back to resume it, \
     or start another run with --set run.name=<other>.",
    folder.display(),
    changes.join("\n")
)]
pub struct ChangedData {
    folder: PathBuf,
    changes: Vec<String>,
}

/// Refuses data that differ in effect from those of the saved state. States of earlier versions have
/// no fingerprint: [`unknown_data`].
pub(super) fn check_data(
    folder: &RunFolder,
    before: Option<&Fingerprint>,
    data: &OpenData,
) -> Result<(), ChangedData> {
    let now = &data.fingerprint;
    let Some(before) = before.filter(|before| !before.is_same(now)) else { return Ok(()) };
    let mut changes = before.changed_tables(now);
    let [csv, labels] = folder.read_split();
    match SplitList::read(&csv, &labels, before) {
        Some(list) => changes.extend(list.changes(&data.list)),
        None => changes.push(
            "the program cannot tell which images differ: split.csv in the run folder is not as \
             the run wrote it"
                .to_owned(),
        ),
    }
    let changes = changes.iter().map(|change| format!("  {change}")).collect();
    Err(ChangedData { folder: folder.path().to_owned(), changes })
}

/// The weights that the run in `folder` was started from.
pub(super) fn init_of(folder: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(folder.join(CONFIG_FILE)).ok()?;
    let config: toml::Table = toml::from_str(&text).ok()?;
    Some(config.get("model")?.get("init")?.as_str()?.into())
}

/// Refuses a run folder that tells of saved states when there is none.
pub(super) fn check_never_saved(folder: &Path) -> Result<(), BuildError> {
    let told = std::fs::read_to_string(folder.join(METRICS_FILE)).unwrap_or_default();
    let events = told.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_states = |event: &Value| matches!(event["event"].as_str(), Some("saved" | "resumed"));
    let Some(last) = events.rev().find(of_states) else { return Ok(()) };
    let number = |key: &str| last[key].as_u64().unwrap_or_default();
    let (epoch, step) = (number("epoch"), number("step"));
    Err(BuildError::StatesGone { folder: folder.to_owned(), epoch, step })
}

/// What is said where a run is resumed that has saved nothing.
pub(super) fn unsaved(folder: &Path) -> String {
    format!(
        "nothing was saved in {} before the run was stopped, so it starts from its beginning",
        folder.display()
    )
}

/// What is said where a run goes on from a state that does not know its data.
pub(super) fn unknown_data(state: &Path) -> String {
    format!(
        "{} was saved by an earlier version without a fingerprint of its data, so the program \
         cannot check that the data are the same; later states have one",
        state.display()
    )
}

/// Refuses a resolved configuration that differs from the one in the run folder in what decided
/// about the training so far. A run killed before it saved its configuration may change at will.
///
/// Tables may have moved where `tables_are_known` from the saved state by what they hold.
pub(super) fn check_unchanged(
    folder: &Path,
    resolved: &str,
    tables_are_known: bool,
) -> Result<(), ChangedKeys> {
    let Ok(before) = std::fs::read_to_string(folder.join(CONFIG_FILE)) else { return Ok(()) };
    let moved =
        |key: &str| tables_are_known && key.starts_with("data.") && key.ends_with("csv.table");
    let changes = differences(&before, resolved, |key| is_free(key) || moved(key));
    match changes.is_empty() {
        true => Ok(()),
        false => Err(ChangedKeys { folder: folder.to_owned(), changes }),
    }
}

pub(super) fn is_free(key: &str) -> bool {
    // Data may move.
    if key.starts_with("data.") && key.ends_with(".root") {
        return true;
    }
    FREE.contains(&key)
}

/// How the steps of a resumed run are taken: as the saved state remembers it, but for what has been
/// changed since, where it remembers anything.
///
/// # Errors
/// When nothing keeps within a budget that is to be kept within.
pub(super) fn planner(
    plan: &Plan,
    machine: Machine,
    saved: Option<&TrainState>,
) -> Result<Planner, NothingFits> {
    let planner = remembered(plan, machine, saved)?;
    // What BatchNorm normalises over stays the same on another number of devices.
    let together = saved.and_then(|saved| saved.images_together);
    let together = together.filter(|_| plan.batch_norm == BatchNormOver::Sync);
    Ok(match together.filter(|images| *images != planner.images_together()) {
        Some(images) if plan.parts_matter() => planner.with_images_together(images),
        _ => planner,
    })
}

/// What is said where a run goes on with other results, as another number of devices computes at once.
pub(super) fn other_parts(plan: &Plan, planner: &Planner, saved: &TrainState) -> Option<String> {
    let (before, now) = (saved.images_together?, planner.images_together());
    let change = match plan.batch_norm {
        BatchNormOver::Sync => (before != now)
            .then(|| format!("over {before} images at once, and does over {now} from here on"))?,
        BatchNormOver::Local => {
            let (devices, devices_now) = (saved.devices?, planner.plan().copies());
            let each = |images: usize, devices: usize| {
                let images = counted(images.div_ceil(devices), "image", "images");
                match devices {
                    1 => format!("over {images} at once on one device"),
                    _ => format!("over {images} at once on each of {devices} devices"),
                }
            };
            let (before, now) = (each(before, devices), each(now, devices_now));
            (devices != devices_now).then(|| format!("{before}, and does {now} from here on"))?
        }
    };
    plan.parts_matter().then(|| {
        format!(
            "BatchNorm normalised {change}, since the devices differ: the model trains with other \
             results than without the change"
        )
    })
}

fn remembered(
    plan: &Plan,
    machine: Machine,
    saved: Option<&TrainState>,
) -> Result<Planner, NothingFits> {
    let Some(TrainState { memory: Some(chosen), memory_config, .. }) = saved else {
        return Planner::choose(plan, machine);
    };
    let chosen = chosen.clone();
    let Some(before) = memory_config.as_ref().filter(|before| **before != plan.memory) else {
        return Ok(Planner::resumed(plan, machine, chosen));
    };
    let asked_for = Estimator::new(plan, machine).budget;
    let budget = if before.budget == plan.memory.budget { chosen.budget } else { asked_for };
    let settings = changed(chosen.settings, before, &plan.memory);
    let planner = Planner::resumed(plan, machine, Chosen { settings, budget });
    let (settings, estimate) = (planner.settings(), planner.estimate());
    // A budget lowered where memory has not sufficed is kept within as well as can be.
    match settings.keeps_within() && budget == asked_for && !estimate.fits {
        true => Err(planner.does_not_fit(false, budget)),
        false => Ok(planner),
    }
}

/// `settings`, chosen under `before`, with what `now` says otherwise. What decides about bits stays: the
/// images at once.
fn changed(settings: MemorySettings, before: &MemoryConfig, now: &MemoryConfig) -> MemorySettings {
    let checkpointing = match &now.checkpointing {
        Some(policy) if now.checkpointing != before.checkpointing => policy.clone(),
        // It was chosen, for the budget of then.
        None if now.budget != before.budget => Choice(CheckpointingConfig::Budget(NoSettings {})),
        _ => settings.checkpointing,
    };
    let offload = match &now.offload {
        Some(place) if now.offload != before.offload => place.clone(),
        _ => settings.offload,
    };
    let dense_layers = match now.dense_layers {
        Some(written) if now.dense_layers != before.dense_layers => written,
        _ => settings.dense_layers,
    };
    let offload_optimizer = now.offload_optimizer;
    MemorySettings { checkpointing, offload, dense_layers, offload_optimizer, ..settings }
}

/// Lets a run that had ended go on when more epochs or more patience are asked for now.
pub(super) fn reopen(state: &mut TrainState, plan: &Plan) {
    let goes_on = match state.ended {
        None => return,
        Some(EndReason::Epochs) => state.epoch <= plan.train.epochs,
        Some(EndReason::EarlyStopping) => {
            let patient = plan
                .train
                .early_stopping
                .as_ref()
                .is_none_or(|stop| state.stopping.without_improvement < stop.patience);
            patient && state.epoch <= plan.train.epochs
        }
    };
    if goes_on {
        state.ended = None;
    }
}

/// What is said where a run is resumed of which nothing is left to do.
pub(super) fn nothing_left(state: &TrainState, plan: &Plan) -> Option<String> {
    let epochs = counted(state.epoch.saturating_sub(1), "epoch", "epochs");
    Some(match state.ended? {
        EndReason::Epochs => format!(
            "nothing was left to do: the run has finished its {epochs}; to go on, raise \
             `train.epochs` \
             (`--set train.epochs={}`)",
            2 * plan.train.epochs
        ),
        EndReason::EarlyStopping => {
            let stop = plan.train.early_stopping.as_ref()?;
            format!(
                "nothing was left to do: early stopping has ended this run after {}, {} of them without \
                 a better {}; to go on, raise its patience (`--set \
                 train.early_stopping.patience={}`)",
                epochs,
                state.stopping.without_improvement,
                stop.metric,
                2 * state.stopping.without_improvement.max(stop.patience)
            )
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named_with_both_values_unless_it_is_free() {
        let folder = tempfile::tempdir().expect("a folder");
        let before =
            "[run]\nseed = 7\n[train]\nepochs = 3\nbatch_size = 8\n[[heads]]\nweight = 1.0";
        std::fs::write(folder.path().join("config.toml"), before).expect("is written");
        let check = |now: &str| check_unchanged(folder.path(), now, false).map_err(|e| e.changes);
        assert_eq!(check(before), Ok(()));
        assert_eq!(check(&before.replace("epochs = 3", "epochs = 30")), Ok(()));
        assert_eq!(
            check(&before.replace("seed = 7", "seed = 8").replace("1.0", "2.0")),
            Err(vec!["  heads[0].weight was 1.0, is 2.0".into(), "  run.seed was 7, is 8".into()])
        );
        assert_eq!(
            check(&before.replace("batch_size = 8\n", "")),
            Err(vec!["  train.batch_size was 8, is not set".into()])
        );
    }
}
