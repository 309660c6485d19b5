//! A trained model and what it says of the images.

use std::path::{Path, PathBuf};

use super::Asked;
use super::by::Fields;
use super::{external, overlap};
use crate::build::{EvaluationList, List, Trained, open_list};
use crate::cli::Failure;
use crate::cli::overrides::change_evaluate;
use crate::cli::trained::Opened;
use crate::data::{BadImage, View};
use crate::evaluate::{Fitted, Group, PredictionTable, ensemble, in_common};
use crate::plan::Plan;
use crate::report::{Counting, HeadLabels};
use crate::run::{ListOutputs, list_outputs};
use crate::screen::{counted, tell_progress};

/// A trained model, and what it says of the images that are measured on.
pub(super) struct Model {
    /// As the command line names it.
    pub run: PathBuf,
    /// The folder of its run; none of a file of weights.
    pub folder: Option<PathBuf>,
    /// The state, or the file of weights.
    pub state: PathBuf,
    /// Epochs and steps that it was trained for, where that is known.
    pub epoch: Option<u64>,
    pub step: Option<u64>,
    /// The run's, with its own data.
    pub plan: Plan,
    /// What it says of the images.
    pub predictions: PredictionTable,
    /// The images that could not be read.
    pub skipped: Vec<BadImage>,
    /// What these predictions are calibrated and decided by.
    pub fitted: Option<Fitted>,
    /// What was fitted on the validation images, for outputs of images as they are.
    pub own_fit: Option<Fitted>,
    /// In how many ways each image was looked at.
    pub views: usize,
    /// What it says of the validation images, where that is known.
    pub validation: Option<PredictionTable>,
    /// What a person should know, a sentence each.
    pub warnings: Vec<String>,
    groups: Vec<Fields>,
}

impl Model {
    /// Opens the model at `path` and asks it about the images.
    pub fn open(path: &Path, asked: &Asked) -> Result<Self, Failure> {
        let Opened { trained, plan, folder, warnings } =
            Opened::at(path, asked.config.as_deref(), &asked.set)?;
        let on = match &asked.data {
            Some(data) => external::with_data(&plan, data, &asked.labels, &asked.set)?,
            None => plan.clone(),
        };
        let list = opened(&on, asked.list)?;
        check_known(&list, asked)?;
        let mut warnings = [warnings, list.warnings.clone()].concat();
        warnings.extend(told_of_list(asked, folder.is_some()));
        let found = outputs(&trained, &on, &list, View::default(), asked)?;
        let ListOutputs { predictions, indices, skipped } = found;
        let groups = asked.by.iter().map(|by| {
            let fields = by.fields(&list.dataset, &list.sources, &indices, &predictions)?;
            fields.check().map(|()| fields)
        });
        let groups = groups.collect::<Result<Vec<Fields>, Failure>>()?;
        let own = asked.data.is_none() && asked.list == List::Validation;
        let validation = if own { Some(predictions.clone()) } else { None };
        let (own_fit, validation) = fitted(&trained, &plan, asked, validation, &mut warnings)?;
        let views = if asked.tta { View::all(&plan.data.augment) } else { vec![View::default()] };
        let (predictions, fitted) = match asked.tta {
            false => (predictions, own_fit.clone()),
            true => {
                let mut tables = vec![predictions];
                for &view in &views[1..] {
                    tables.push(outputs(&trained, &on, &list, view, asked)?.predictions);
                }
                let tables = tables.iter().map(|table| (table, own_fit.as_ref()));
                let together = ensemble(&tables.collect::<Vec<_>>());
                let together = together.ok_or_else(|| Failure::other("a view has other heads"))?;
                (together, own_fit.as_ref().map(Fitted::of_calibrated))
            }
        };
        if asked.data.is_some() {
            warnings.extend(overlap::told(&plan, &list.dataset, validation.as_ref()));
        }
        if !skipped.is_empty() {
            let images = counted(skipped.len(), "image", "images");
            warnings.push(format!("{images} could not be read and are left out: {}", skipped[0]));
        }
        let trained_for =
            folder.is_some().then_some((trained.state.tag.epoch, trained.state.tag.step));
        Ok(Self {
            run: path.to_owned(),
            folder,
            state: trained.state.folder.clone(),
            epoch: trained_for.map(|(epoch, _)| epoch),
            step: trained_for.map(|(_, step)| step),
            plan,
            predictions,
            skipped,
            fitted,
            own_fit,
            views: views.len(),
            validation,
            warnings,
            groups,
        })
    }

    /// The groups of the images of `predictions`, all of which this model has seen.
    pub fn groups_of(&self, predictions: &PredictionTable) -> Vec<(String, Vec<Group>)> {
        let places = in_common(&[&predictions.paths, &self.predictions.paths]);
        let places = places.get(1).map_or(&[][..], Vec::as_slice);
        let groups = self.groups.iter();
        groups.map(|fields| (fields.by.name.clone(), fields.groups(places))).collect()
    }

    /// The heads and their labels, in the order of the configuration.
    pub fn heads(&self) -> Vec<HeadLabels> {
        let head = self.plan.heads.iter();
        head.map(|head| HeadLabels { name: head.name.clone(), labels: head.labels.clone() })
            .collect()
    }
}

fn opened(plan: &Plan, list: List) -> Result<EvaluationList, Failure> {
    open_list(plan, list).map_err(|error| {
        let help = error.help();
        Failure::data(error).with_help(help)
    })
}

/// Refuses images of which nothing is known.
fn check_known(list: &EvaluationList, asked: &Asked) -> Result<(), Failure> {
    let all: Vec<usize> = (0..list.dataset.len()).collect();
    let known = list.dataset.targets(&all).iter().any(|head| head.mask.contains(&1.0));
    if known {
        return Ok(());
    }
    let images = counted(all.len(), "image", "images");
    let message = format!("no label is known of {images} ({}): nothing to measure", asked.told());
    let help = "`trainer predict` says what a model finds in images without labels";
    Err(Failure::data(message).with_help(Some(help.to_owned())))
}

/// What is to be said of figures on these images, of the model of a run or of a file of weights.
fn told_of_list(asked: &Asked, is_run: bool) -> Option<String> {
    if asked.data.is_some() {
        return None;
    }
    if !is_run && matches!(asked.list, List::Train | List::All) {
        return Some(
            "it is not known whether the model was trained on these images: if it was, it does better on \
             them than on others"
                .to_owned(),
        );
    }
    let told = match asked.list {
        List::Test => return None,
        List::Validation => {
            "calibration and thresholds were fitted on these very images, so that what depends on \
             them (calibration errors, decisions) looks better than on others; the epoch was chosen \
             by them too"
        }
        List::Train => {
            "the model was trained on these images: it does better on them than on others"
        }
        List::All => "the model was trained on some of these images: it does better on them",
    };
    Some(told.to_owned())
}

/// What the model says of a list.
fn outputs(
    trained: &Trained,
    plan: &Plan,
    list: &EvaluationList,
    view: View,
    asked: &Asked,
) -> Result<ListOutputs, Failure> {
    let counting = Counting::new(&asked.told(), list.dataset.len());
    let limit = plan.data.bad_image_limit;
    let loader = list.loader(view);
    let found = list_outputs(&trained.inference, &loader, limit, |done| counting.tell(done))?;
    counting.finish(found.indices.len());
    Ok(found)
}

/// What is fitted on the validation images, and the outputs for them: `validation`, where it is known
/// already; else those of the saved state. Where that has none, the model is asked.
fn fitted(
    trained: &Trained,
    plan: &Plan,
    asked: &Asked,
    validation: Option<PredictionTable>,
    warnings: &mut Vec<String>,
) -> Result<(Option<Fitted>, Option<PredictionTable>), Failure> {
    let saved = match trained.validation() {
        Ok(saved) => saved,
        Err(error) => {
            warnings.push(format!("the outputs for the validation images cannot be used: {error}"));
            None
        }
    };
    // What the run itself was fitted on, though today's data may be others.
    if let Some(validation) = saved.or(validation) {
        return Ok((Some(plan.evaluate.fit(&validation)), Some(validation)));
    }
    let changed = change_evaluate(&asked.set);
    if let Some(fitted) = trained.fitted().map_err(Failure::state)?.filter(|_| !changed) {
        return Ok((Some(fitted), None));
    }
    let state = trained.state.folder.display();
    tell_progress(&format!(
        "{state} has no outputs for the validation images; they are made first"
    ));
    let list = match open_list(plan, List::Validation) {
        Ok(list) => list,
        Err(error) => {
            warnings.push(format!(
                "nothing is fitted, since the validation images cannot be opened, so that decisions \
                 are made at 0.5: {error}"
            ));
            return Ok((None, None));
        }
    };
    let view = View::default();
    let predictions = outputs(trained, plan, &list, view, &Asked::validation())?.predictions;
    Ok((Some(plan.evaluate.fit(&predictions)), Some(predictions)))
}
