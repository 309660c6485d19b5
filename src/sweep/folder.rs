//! A sweep on disk: what it measures, its rows in three formats and on a page, and what each child said.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::row::{Row, Set, Status, relate};
use super::{Planned, Sweep, Work, page, shard, table, trained};
use crate::build::differences;
use crate::disk::{self, DiskError, DiskResult};
use crate::plan::Plan;
use crate::run::{LockError, RunLock};

/// What the sweep measures.
const IDENTITY: &str = "sweep.toml";
pub(super) const LOGS: &str = "logs";
/// The run folders of combinations that are trained.
const RUNS: &str = "runs";
/// The rows.
const ROWS: &str = "sweep.json";

/// Keys that may differ when a sweep goes on: none changes what is measured. The device does, and every row
/// tells which it was.
const FREE: [&str; 4] = ["device.use", "run.name", "run.output", "run.save"];

/// A sweep that could not go on. What was saved stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// Another process has the folder.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The folder holds another sweep.
    #[error(
        "{} holds another sweep:\n{}\nPut these back to go on with it, give this sweep another \
         folder with --out, or replace what is there with {overwrite}.",
        folder.display(),
        changes.join("\n")
    )]
    Another {
        /// The folder.
        folder: PathBuf,
        /// What differs, a line each.
        changes: Vec<String>,
        /// The flags that replace it.
        overwrite: &'static str,
    },
    /// The rows cannot be read.
    #[error("{} cannot be read: {source}\nRemove it, or start anew with --overwrite.", path.display())]
    Rows {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// A value cannot be written down.
    #[error("the configuration cannot be saved as TOML: {0}")]
    Config(#[from] toml::ser::Error),
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl SweepError {
    /// Makes the system's error one of this kind.
    pub(super) fn at(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::System { action, path, source }
    }
}

/// The files of one combination.
pub(super) struct Files {
    pub(super) config: PathBuf,
    pub(super) log: PathBuf,
    pub(super) printed: PathBuf,
    /// Its run folder, where it is trained.
    pub(super) run: PathBuf,
}

/// The folder of a sweep, locked, and the rows found in it.
#[derive(Debug)]
pub struct SweepFolder {
    path: PathBuf,
    /// Where its rows are written: the folder itself, or of a shard one in it.
    rows: PathBuf,
    found: Vec<Row>,
    /// Of a whole sweep those of all its shards too.
    _locks: Vec<RunLock>,
}

impl SweepFolder {
    /// Opens the folder at `path` for `sweep`, making it where it is missing; with `overwrite` what is in it is
    /// removed, for a shard what is of that.
    ///
    /// # Errors
    /// When another process has it, it holds another sweep, or it cannot be read or written.
    pub fn open(path: &Path, sweep: &Sweep, overwrite: bool) -> Result<Self, SweepError> {
        let rows = sweep.shard.map_or(path.to_owned(), |shard| shard.folder(path));
        made(&path.join(LOGS))?;
        made(&rows)?;
        let mut locks = vec![RunLock::acquire(&rows)?];
        match sweep.shard {
            Some(shard) => shard.check_alone(path)?,
            None => {
                for folder in shard::folders(path)? {
                    locks.push(RunLock::acquire(&folder)?);
                }
            }
        }
        let mut folder = Self { path: path.to_owned(), rows, found: Vec::new(), _locks: locks };
        folder.remove_leftovers(sweep).map_err(unremoved)?;
        let identity = identity(sweep)?;
        match overwrite {
            false => folder.find(&identity, sweep)?,
            true => folder.clear(&identity, sweep)?,
        }
        replace(&folder.rows.join(IDENTITY), identity.as_bytes())?;
        Ok(folder)
    }

    /// Removes what an earlier start has left.
    fn clear(&self, identity: &str, sweep: &Sweep) -> Result<(), SweepError> {
        if sweep.shard.is_some() {
            // A shard leaves the rows of the whole sweep as they are, and is gathered with them.
            is_of(&self.path, identity, "--overwrite and without --shard")?;
        }
        self.remove(sweep).map_err(unremoved)
    }

    /// What a start anew removes. Only a sweep's own folder has runs in it, and it is locked.
    fn removable(&self, sweep: &Sweep) -> Vec<PathBuf> {
        let rows = std::iter::once(self.rows.join(ROWS));
        match sweep.shard {
            None => rows.chain([shard::SHARDS, RUNS].map(|name| self.path.join(name))).collect(),
            Some(_) => {
                let runs = sweep.own().map(|(_, of)| self.trained_plan(of).folder());
                rows.chain(runs).collect()
            }
        }
    }

    /// Removes rows and runs. What is measured stays until it is replaced: a start that comes after a kill or a
    /// power loss finds the sweep as it was, or without rows and runs, or the new one.
    fn remove(&self, sweep: &Sweep) -> DiskResult {
        let gone: Vec<PathBuf> =
            self.removable(sweep).into_iter().filter(|path| disk::exists(path)).collect();
        gone.iter().try_for_each(|path| disk::rename(path, &removing(path)))?;
        let above: BTreeSet<&Path> = gone.iter().filter_map(|path| path.parent()).collect();
        above.into_iter().try_for_each(disk::sync_folder)?;
        self.remove_leftovers(sweep)
    }

    /// Removes what a start has left that was cut off while it removed rows and runs.
    fn remove_leftovers(&self, sweep: &Sweep) -> DiskResult {
        let left = self.removable(sweep).into_iter().map(|path| removing(&path));
        left.filter(|left| disk::exists(left)).try_for_each(|left| disk::remove_tree(&left))
    }

    /// Takes up the rows of earlier starts of the whole sweep and of its shards; for a shard, those of its own
    /// combinations.
    fn find(&mut self, identity: &str, sweep: &Sweep) -> Result<(), SweepError> {
        let mut folders = shard::folders(&self.path)?;
        folders.push(self.path.clone());
        let mut tables = Vec::new();
        for folder in folders {
            if is_of(&folder, identity, "--overwrite")? {
                tables.push(read(&folder.join(ROWS))?);
            }
        }
        // The newest first: a shard may have been started anew.
        tables.sort_by_key(|(written, _)| std::cmp::Reverse(*written));
        for row in tables.into_iter().flat_map(|(_, rows)| rows) {
            match self.found.iter_mut().find(|other| other.set == row.set) {
                // What failed in one place may have been measured in another.
                Some(other) if other.status == Status::Failed => *other = row,
                Some(_) => {}
                None => self.found.push(row),
            }
        }
        if sweep.shard.is_some() {
            self.found.retain(|row| sweep.own().any(|(_, of)| of.set == row.set));
        }
        Ok(())
    }

    /// Takes the row with these values that is kept: when an earlier start left one that has not failed.
    pub(super) fn take_kept(&mut self, set: &Set) -> Option<Row> {
        let kept = |row: &Row| row.set == *set && row.status != Status::Failed;
        let at = self.found.iter().position(kept)?;
        Some(self.found.remove(at))
    }

    /// Takes the row with these values, when an earlier start left one.
    pub(super) fn take(&mut self, set: &Set) -> Option<Row> {
        let at = self.found.iter().position(|row| row.set == *set)?;
        Some(self.found.remove(at))
    }

    /// Writes `rows`, and after them those found and not taken, in every format, with the
    /// percentages of all filled in.
    pub(super) fn save(
        &mut self,
        keys: &[String],
        rows: &mut [Row],
        reference: Option<&Set>,
    ) -> Result<(), SweepError> {
        relate(rows, &mut self.found, reference);
        let all: Vec<Row> = rows.iter().chain(&self.found).cloned().collect();
        let path = self.rows.join(ROWS);
        let wrong = |source| SweepError::Rows { path: path.clone(), source };
        let json = serde_json::to_vec_pretty(&all).map_err(wrong)?;
        replace(&path, &json)?;
        replace(&self.rows.join("sweep.csv"), table::csv(keys, &all).as_bytes())?;
        replace(&self.rows.join("sweep.md"), table::markdown(keys, &all).as_bytes())
    }

    /// Writes the page of `rows` and of those found and not taken.
    ///
    /// # Errors
    /// When it cannot be written, in words.
    pub(super) fn write_page(&self, sweep: &Sweep, rows: &[Row]) -> Result<(), String> {
        let all: Vec<Row> = rows.iter().chain(&self.found).cloned().collect();
        let above = if sweep.shard.is_some() { shard::ABOVE } else { "" };
        page::write(sweep, &all, &self.rows, &format!("{above}{RUNS}"))
    }

    /// Where the combination `of` leaves its files.
    pub(super) fn files(&self, of: &Planned) -> Files {
        let stem = stem(&of.name);
        let file = |kind: &str| self.path.join(LOGS).join(format!("{stem}.{kind}"));
        let run = self.trained_plan(of).folder();
        Files { config: file("toml"), log: file("log"), printed: file("json"), run }
    }

    /// The plan of `of`, to be trained in a run folder of the sweep's.
    pub(super) fn trained_plan(&self, of: &Planned) -> Plan {
        trained::plan_in(&of.plan, &self.path.join(RUNS), &run_name(&of.name))
    }

    /// Where what each combination said is kept.
    pub fn logs(&self) -> PathBuf {
        self.path.join(LOGS)
    }
}

/// What must stay the same for rows to belong together.
fn identity(sweep: &Sweep) -> Result<String, toml::ser::Error> {
    let mut table = toml::Table::new();
    let mut keys = sweep.keys.clone();
    keys.sort();
    let synthetic = matches!(sweep.work, Work::Steps { synthetic: true, .. });
    let data = if synthetic { "synthetic" } else { "the configuration's" };
    table.insert("data".to_owned(), data.into());
    table.insert("keys".to_owned(), keys.into());
    table.insert("program".to_owned(), env!("CARGO_PKG_VERSION").into());
    let (unit, count) = match sweep.work {
        Work::Steps { steps, .. } => ("steps", steps),
        Work::Epochs(epochs) => ("epochs", epochs),
    };
    table.insert(unit.to_owned(), i64::try_from(count).unwrap_or(i64::MAX).into());
    let mut all = toml::Table::new();
    all.insert("sweep".to_owned(), table.into());
    all.extend(sweep.rest.as_table().cloned().unwrap_or_default());
    let text = toml::to_string(&all)?;
    Ok(format!(
        "# What this sweep measures, the swept keys left out. It is held against the next start.\n\n{text}"
    ))
}

/// Whether rows are in `folder`. Another sweep's are refused; `overwrite` are the flags that replace them.
fn is_of(folder: &Path, identity: &str, overwrite: &'static str) -> Result<bool, SweepError> {
    let file = folder.join(IDENTITY);
    if !file.exists() {
        return Ok(false);
    }
    let before = fs::read_to_string(&file).map_err(SweepError::at("read", &file))?;
    let changes = differences(&before, identity, |key| FREE.contains(&key));
    match changes.is_empty() {
        true => Ok(true),
        false => Err(SweepError::Another { folder: folder.to_owned(), changes, overwrite }),
    }
}

/// The rows in the file at `path`, none where it is missing, and when they were written.
fn read(path: &Path) -> Result<(Option<SystemTime>, Vec<Row>), SweepError> {
    match fs::read(path) {
        Ok(bytes) => {
            let rows = serde_json::from_slice(&bytes)
                .map_err(|source| SweepError::Rows { path: path.to_owned(), source })?;
            let written = fs::metadata(path).and_then(|file| file.modified());
            Ok((Some(written.map_err(SweepError::at("read", path))?), rows))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok((None, Vec::new())),
        Err(error) => Err(SweepError::at("read", path)(error)),
    }
}

fn unremoved(error: DiskError) -> SweepError {
    SweepError::at("remove", &error.path)(error.source)
}

/// The name of what is removed, which no start takes for rows or runs.
fn removing(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    path.with_file_name(format!(".removing-{name}"))
}

/// Makes the folder at `path`, and those above it where they are missing, to stay.
pub(super) fn made(path: &Path) -> Result<(), SweepError> {
    disk::create_folders(path).map_err(|error| SweepError::at("make", &error.path)(error.source))
}

/// Puts `bytes` at `path` so that a reader finds all of the old file or all of the new one.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), SweepError> {
    disk::replace(path, bytes).map_err(|error| SweepError::at("write", path)(error.source))
}

/// A file's name for the combination called `name`: no two are the same.
fn stem(name: &str) -> String {
    let plain = |sign: char| match sign {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '_' | '-' | '=' => sign,
        _ => '_',
    };
    let parts = name.split(", ").map(|part| part.chars().map(plain).collect());
    let whole = parts.collect::<Vec<String>>().join("+");
    let short: String = whole.chars().take(80).collect();
    // What was left as it is can be read back, and so is no other's.
    match short.replace('+', ", ") == name {
        true => short,
        false => format!("{short}-{}", &blake3::hash(name.as_bytes()).to_hex()[..8]),
    }
}

/// A run's name for the combination called `name`: in run names there is neither `=` nor `+`.
fn run_name(name: &str) -> String {
    let plain: String =
        stem(name).chars().map(|c| if "=+".contains(c) { '-' } else { c }).collect();
    let plain = plain.trim_start_matches('.');
    format!("{plain}-{}", &blake3::hash(name.as_bytes()).to_hex()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::crash::{Bound, Crashes, FileTree};
    use crate::disk::watch::Watch;

    /// The sweep that measures so many steps.
    fn sweep(steps: usize) -> Sweep {
        Sweep {
            program: PathBuf::new(),
            keys: vec!["train.batch_size".to_owned()],
            rest: toml::Table::new().into(),
            combinations: Vec::new(),
            work: Work::Steps { steps, synthetic: true },
            reference: None,
            devices: Vec::new(),
            shard: None,
        }
    }

    /// The first `number` rows of that sweep.
    fn rows(steps: usize, number: usize) -> Vec<Row> {
        let set = |size: usize| Set::from([("train.batch_size".to_owned(), (size as i64).into())]);
        let row = |size| Row { epochs: Some(steps), ..Row::new(set(size), Status::Failed) };
        (0..number).map(row).collect()
    }

    fn save(folder: &mut SweepFolder, steps: usize, number: usize) {
        let keys = ["train.batch_size".to_owned()];
        folder.found.clear();
        folder.save(&keys, &mut rows(steps, number), None).expect("saves");
    }

    /// What a run of the sweep leaves in its folder.
    fn train(folder: &SweepFolder, steps: usize) {
        let run = folder.path.join(RUNS).join("one");
        disk::create_folders(&run).expect("makes");
        for name in ["config.toml", "last"] {
            disk::replace(&run.join(name), steps.to_string().as_bytes()).expect("writes");
        }
    }

    /// Opens a disk that was found as the next start does, whichever sweep it holds.
    fn check(found: &Path, promise: u64) -> Result<(), String> {
        let path = found.join("sweep");
        // Promises of the second sweep are 10 and more; 9 is made while it replaces the first.
        let (second, least) = (promise >= 10, [promise % 10, 0][usize::from(promise == 9)]);
        if promise == 0 && !path.exists() {
            return Ok(());
        }
        let open = |steps| SweepFolder::open(&path, &sweep(steps), false);
        let (steps, folder) = match open(1) {
            Err(SweepError::Another { .. }) => (2, open(2)),
            other => (1, other),
        };
        drop(folder.map_err(|error| error.to_string())?);
        // What the first start left is met by the second.
        let folder = open(steps).map_err(|error| error.to_string())?;
        if second && steps == 1 || promise < 9 && steps == 2 {
            return Err(format!("{promise} was promised, and the sweep found is {steps}"));
        }
        let number = folder.found.len();
        if number < least as usize || folder.found != rows(steps, number) {
            return Err(format!("{least} rows of sweep {steps} were saved: {:?}", folder.found));
        }
        let run = path.join(RUNS).join("one");
        for name in ["config.toml", "last"] {
            let text = fs::read_to_string(run.join(name)).ok();
            if text.as_ref().is_some_and(|text| *text != steps.to_string()) {
                return Err(format!("{name} in a run of sweep {steps} is {text:?}"));
            }
            if text.is_none() && least >= 2 {
                return Err(format!("{name} of the run that a row tells of is gone"));
            }
        }
        Ok(())
    }

    #[test]
    fn a_power_loss_at_any_moment_of_a_sweep_loses_no_saved_row_and_mixes_no_two_sweeps() {
        let parent = tempfile::tempdir().expect("a folder");
        let path = parent.path().join("sweep");
        let (watch, before) = (Watch::over(parent.path()), FileTree::of(parent.path()));
        let mut folder = SweepFolder::open(&path, &sweep(1), false).expect("opens");
        save(&mut folder, 1, 1);
        watch.promise(1);
        train(&folder, 1);
        save(&mut folder, 1, 2);
        watch.promise(2);
        drop(folder);
        let mut folder = SweepFolder::open(&path, &sweep(1), false).expect("opens");
        save(&mut folder, 1, 3);
        watch.promise(3);
        drop(folder);
        watch.promise(9);
        let mut folder = SweepFolder::open(&path, &sweep(2), true).expect("opens");
        watch.promise(10);
        save(&mut folder, 2, 1);
        watch.promise(11);
        train(&folder, 2);
        save(&mut folder, 2, 2);
        watch.promise(12);
        let crashes = Crashes::new(parent.path(), before, &watch.log());
        crashes.assert_complete(parent.path());
        let tried = crashes.check(Bound::asked(), check);
        tried.assert_nothing_lost("a sweep replaced by another", 150);
    }

    #[test]
    fn combinations_have_run_folders_of_their_own() {
        let names = ["a.b=1, a.c=x", "a.b=1-a.c=x", "a.b=1, a.c=y", ".=1", "a.b=1, a.c=-x"];
        let runs = names.map(run_name);
        for (place, run) in runs.iter().enumerate() {
            assert!(!runs[..place].contains(run), "{run}");
            let letter = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!(run.chars().all(letter) && !run.starts_with('.') && run.len() <= 128, "{run}");
        }
        assert!(runs[0].starts_with("a.b-1-a.c-x-"), "{}", runs[0]);
    }

    #[test]
    fn combinations_have_file_names_of_their_own() {
        assert_eq!(stem("train.batch_size=4"), "train.batch_size=4");
        assert_eq!(stem("a.b=1, a.c=x"), "a.b=1+a.c=x");
        assert_ne!(stem("a.b=1+a.c=x"), "a.b=1+a.c=x");
        let one = stem("memory.checkpointing={sequential={segments=4}}, train.batch_size=4");
        let other = stem("memory.checkpointing=[sequential=[segments=4]], train.batch_size=4");
        assert!(one.starts_with("memory.checkpointing=_sequential=_segments=4__+train"), "{one}");
        assert_ne!(one, other);
        let long = stem(&"x".repeat(5000));
        assert!(long.len() < 100, "{long}");
        assert!(!stem("../../etc=1").contains('/'));
    }
}
