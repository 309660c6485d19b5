//! The folds of a run: opened to be trained, and found again in its folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::{BuildError, differences, resume};
use crate::plan::{FOLD, Plan};
use crate::run::state::{BEST, LAST, is_state};
use crate::run::{CONFIG_FILE, FolderError, FolderMode};

/// The run folders of folds, as they are found in the folder of all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoldFolders {
    /// The folder that they are in.
    pub path: PathBuf,
    /// How many folds the patients are cut into.
    pub folds: usize,
    /// Those that were begun, by their number from 1, in this order.
    pub begun: Vec<(usize, PathBuf)>,
}

impl FoldFolders {
    /// Those in the folder `path`; none where it is a run by itself, or there are none.
    pub fn find(path: &Path) -> Option<Self> {
        if path.join(CONFIG_FILE).exists() || is_state(path) {
            return None;
        }
        let mut begun = Vec::new();
        let mut folds = 0;
        for entry in fs::read_dir(path).ok()?.flatten() {
            let name = entry.file_name().into_string().unwrap_or_default();
            let number = name.strip_prefix(FOLD).and_then(|number| number.parse::<usize>().ok());
            let Some(number) = number else { continue };
            let Some((fold, of)) = fold_of(&entry.path()).filter(|(fold, _)| *fold == number)
            else {
                continue;
            };
            folds = of;
            begun.push((fold, entry.path()));
        }
        begun.sort();
        (!begun.is_empty()).then(|| Self { path: path.to_owned(), folds, begun })
    }

    /// The folder of every fold, in their order: together they have seen every image in validation once.
    ///
    /// # Errors
    /// When a fold is missing or has no saved state, and when two were trained with other configurations.
    pub fn complete(self) -> Result<Vec<PathBuf>, BuildError> {
        let has_state = |path: &Path| [BEST, LAST].iter().any(|name| is_state(&path.join(name)));
        let trained = |fold: usize| {
            self.begun.iter().any(|(number, path)| *number == fold && has_state(path))
        };
        let missing: Vec<usize> = (1..=self.folds).filter(|fold| !trained(*fold)).collect();
        if !missing.is_empty() {
            return Err(BuildError::FoldsMissing { path: self.path, missing, folds: self.folds });
        }
        let configs = self.begun.iter().map(|(_, path)| config(path).unwrap_or_default());
        let configs: Vec<String> = configs.collect();
        for (place, other) in configs.iter().enumerate().skip(1) {
            let free = |key: &str| resume::is_free(key) || key == "data.validation.fold";
            let changes = differences(&configs[0], other, free);
            if !changes.is_empty() {
                let folders = [0, place].map(|place| self.begun[place].1.clone());
                return Err(BuildError::OtherFolds { folders: Box::new(folders), changes });
            }
        }
        Ok(self.begun.into_iter().map(|(_, path)| path).collect())
    }
}

fn config(run: &Path) -> Option<String> {
    fs::read_to_string(run.join(CONFIG_FILE)).ok()
}

/// The fold that the run in the folder `run` validates on, and of how many.
fn fold_of(run: &Path) -> Option<(usize, usize)> {
    let config: toml::Table = toml::from_str(&config(run)?).ok()?;
    let validation = config.get("data")?.get("validation")?;
    let number = |key| usize::try_from(validation.get(key)?.as_integer()?).ok();
    Some((number("fold")?, number("folds")?))
}

/// The plans of all folds of `plan`, to be trained one after another. Nothing is opened or changed.
///
/// # Errors
/// When what is in the folder does not go with `mode`, or a fold was begun with another configuration.
pub fn fold_plans(plan: &Plan, mode: FolderMode) -> Result<Vec<Plan>, BuildError> {
    let all = |plan: &Plan| {
        let folds = plan.data.validation.folds.unwrap_or(0);
        (1..=folds).map(|fold| plan.of_fold(fold)).collect::<Vec<Plan>>()
    };
    let mut plans = all(plan);
    plans.first().map_or(Ok(()), check_above)?;
    let begun: Vec<PathBuf> =
        plans.iter().map(Plan::folder).filter(|folder| folder.exists()).collect();
    let above = plan.run.output.join(&plan.run.name);
    match mode {
        FolderMode::New if !begun.is_empty() => return Err(FolderError::Exists(above).into()),
        FolderMode::Resume if !above.exists() => {
            return Err(FolderError::NothingToResume(above).into());
        }
        _ => {}
    }
    if mode == FolderMode::Resume {
        if plan.init.is_none() {
            // Folds that were not begun start from the weights of those that were.
            let init = begun.iter().find_map(|folder| resume::init_of(folder));
            plans = all(&Plan { init, ..plan.clone() });
        }
        for plan in &plans {
            resume::check_unchanged(&plan.folder(), &plan.to_toml()?, true)?;
        }
    }
    Ok(plans)
}

/// Refuses the folder of a run that is not of folds for the folds of `plan`.
pub(super) fn check_above(plan: &Plan) -> Result<(), BuildError> {
    let folder = plan.folder();
    let above = folder.parent().filter(|_| plan.data.validation.fold.is_some());
    match above.filter(|above| above.join(CONFIG_FILE).exists()) {
        Some(above) => Err(BuildError::NoFolds { path: above.to_owned() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(configs: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, validation) in configs {
            let run = folder.path().join(name);
            fs::create_dir(&run).expect("is made");
            let config = format!("[run]\nname = \"a\"\n[data.validation]\n{validation}");
            fs::write(run.join(CONFIG_FILE), config).expect("is written");
        }
        folder
    }

    #[test]
    fn folds_are_found_by_their_number_in_name_and_configuration() {
        let folder = folder(&[
            ("fold-10", "folds = 10\nfold = 10"),
            ("fold-2", "folds = 10\nfold = 2"),
            ("fold-3", "folds = 10\nfold = 4"),
            ("fold-x", "folds = 10\nfold = 5"),
            ("fold-6", "fraction = 0.5"),
        ]);
        let found = FoldFolders::find(folder.path()).expect("has folds");
        let numbers: Vec<usize> = found.begun.iter().map(|(number, _)| *number).collect();
        assert_eq!((found.folds, numbers), (10, vec![2, 10]));
        assert_eq!(FoldFolders::find(&folder.path().join("fold-2")), None);
        let error = found.complete().expect_err("lacks folds").to_string();
        assert!(error.contains("fold 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 of 10"), "{error}");
    }
}
