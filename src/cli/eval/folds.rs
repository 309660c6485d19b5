//! The folds of a run, measured as one: each image by the model that was not trained on it.

use std::path::{Path, PathBuf};

use super::model::Model;
use super::output::Evaluated;
use super::{Asked, measured};
use crate::build::{FoldFolders, List};
use crate::cli::Failure;
use crate::evaluate::{Group, PoolError, pooled};

/// The folder whose folds are measured on the images that each was validated on, where `runs` name such
/// a folder and these images are asked for.
///
/// # Errors
/// Where the models have no list of the run's own data in common.
pub(super) fn out_of_fold<'a>(
    runs: &'a [PathBuf],
    asked: &Asked,
) -> Result<Option<&'a Path>, Failure> {
    let own = asked.data.is_none() && matches!(asked.list, List::Train | List::Validation);
    let Some(folds) = runs.iter().find(|run| own && FoldFolders::find(run).is_some()) else {
        return Ok(None);
    };
    match (asked.list, runs) {
        (List::Validation, [_]) => Ok(Some(folds)),
        (list, _) => {
            let (folds, list) = (folds.display(), list.name());
            let message = format!("{folds} holds folds, which have no {list} images in common");
            let help = "name one fold, or the folder of the folds by itself with --split validation, \
                        where each image is measured by the fold that did not see it";
            Err(Failure::configuration(message).with_help(Some(help.to_owned())))
        }
    }
}

/// What the folds say of the images that each was validated on: all of them, once. Calibration and
/// thresholds are fitted on these outputs.
pub(super) fn evaluated(models: &[Model], asked: &Asked, each: bool) -> Result<Evaluated, Failure> {
    let tables: Vec<_> = models.iter().map(|model| &model.predictions).collect();
    let predictions = pooled(&tables).map_err(apart)?;
    let first = &models[0];
    let fitted = Some(first.plan.evaluate.fit(&predictions));
    let evaluation = measured(&predictions, fitted.as_ref(), first, &groups(models));
    let warnings = models.iter().flat_map(|model| model.warnings.clone()).collect();
    let parts =
        models.iter().filter(|_| each).map(|model| Evaluated::of_one(model, asked)).collect();
    let found = Evaluated::new(models, asked, predictions, fitted, evaluation, warnings, parts);
    Ok(found.of_folds())
}

/// What ends the program where folds do not go together.
pub(in crate::cli) fn apart(error: PoolError) -> Failure {
    let help = "the data may have changed between two of them: `trainer run CONFIG --fold all --overwrite` \
                trains them on the same data";
    Failure::data(format!("the predictions of the folds do not go together: {error}"))
        .with_help(Some(help.to_owned()))
}

/// The groups of the images of all models, which stand one after another.
fn groups(models: &[Model]) -> Vec<(String, Vec<Group>)> {
    let mut all: Vec<(String, Vec<Group>)> = Vec::new();
    let mut first = 0;
    for model in models {
        for (name, groups) in model.groups_of(&model.predictions) {
            let place = all.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
                all.push((name, Vec::new()));
                all.len() - 1
            });
            for Group { name, images } in groups {
                let images = images.into_iter().map(|image| first + image);
                match all[place].1.iter_mut().find(|known| known.name == name) {
                    Some(known) => known.images.extend(images),
                    None => all[place].1.push(Group { name, images: images.collect() }),
                }
            }
        }
        first += model.predictions.images();
    }
    all
}
