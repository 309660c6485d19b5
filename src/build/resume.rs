//! What may change between the parts of one run, and what may not.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::report::EndReason;
use crate::run::Position;

/// Keys that may differ when a run is resumed, each with all keys below it: none changes what was
/// done so far.
const FREE: [&str; 14] = [
    "run.name",
    "run.output",
    "run.log_every",
    "run.save",
    "device",
    "data.workers",
    "data.prefetch",
    "data.on_bad_image",
    "data.bad_image_limit",
    "data.cache.off",
    "data.cache.memory",
    "data.cache.disk.folder",
    "train.epochs",
    "train.early_stopping",
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

/// Refuses a resolved configuration that differs from the one in the run folder in what decided
/// about the training so far. A run killed before it saved its configuration may change at will.
pub(super) fn check_unchanged(folder: &Path, resolved: &str) -> Result<(), ChangedKeys> {
    let Ok(before) = std::fs::read_to_string(folder.join("config.toml")) else { return Ok(()) };
    let changes = differences(&before, resolved, is_free);
    match changes.is_empty() {
        true => Ok(()),
        false => Err(ChangedKeys { folder: folder.to_owned(), changes }),
    }
}

/// The keys that differ between two TOML texts, with both values, but for those that are free.
pub(crate) fn differences(before: &str, now: &str, is_free: impl Fn(&str) -> bool) -> Vec<String> {
    let (before, now) = (keys(before), keys(now));
    let all: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let show = |value: Option<&String>| value.map_or("not set".to_owned(), Clone::clone);
    all.into_iter()
        .filter(|key| before.get(*key) != now.get(*key) && !is_free(key))
        .map(|key| format!("  {key} was {}, is {}", show(before.get(key)), show(now.get(key))))
        .collect()
}

fn is_free(key: &str) -> bool {
    // Data may move.
    if key.starts_with("data.") && key.ends_with(".root") {
        return true;
    }
    FREE.iter().any(|free| {
        key.strip_prefix(free).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// Every value of a configuration by its dotted key.
fn keys(toml: &str) -> BTreeMap<String, String> {
    fn walk(value: &toml::Value, key: String, into: &mut BTreeMap<String, String>) {
        match value {
            toml::Value::Table(table) if !table.is_empty() => {
                for (name, value) in table {
                    let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                    walk(value, key, into);
                }
            }
            toml::Value::Array(items) if items.iter().any(toml::Value::is_table) => {
                for (index, value) in items.iter().enumerate() {
                    walk(value, format!("{key}[{index}]"), into);
                }
            }
            value => {
                into.insert(key, value.to_string());
            }
        }
    }
    let mut keys = BTreeMap::new();
    // A damaged copy compares as empty: then every key is named as changed, which is true.
    let table = toml::from_str(toml).unwrap_or_default();
    walk(&toml::Value::Table(table), String::new(), &mut keys);
    keys
}

/// Lets a run that had ended go on when more epochs or more patience are asked for now.
pub(super) fn reopen(position: &mut Position, plan: &Plan) {
    let goes_on = match position.ended {
        None => return,
        Some(EndReason::Epochs) => position.epoch <= plan.train.epochs,
        Some(EndReason::EarlyStopping) => {
            let patient = plan
                .train
                .early_stopping
                .as_ref()
                .is_none_or(|stop| position.stopping.without_improvement < stop.patience);
            patient && position.epoch <= plan.train.epochs
        }
    };
    if goes_on {
        position.ended = None;
    }
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
        let check = |now: &str| check_unchanged(folder.path(), now).map_err(|e| e.changes);
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
