//! Other data that the model has seen in training.

use crate::build::open_own;
use crate::data::{Dataset, shared_images};
use crate::evaluate::{PredictionTable, in_common};
use crate::plan::Plan;
use crate::screen::counted;

/// Images that are named.
const NAMED: usize = 3;

/// What is to be said of other data, the images of `dataset`, that have images of the run: those that it
/// trained on, and those that it was validated on. Where the run's own data cannot be opened, only what
/// `validation` names is known.
pub(super) fn told(
    plan: &Plan,
    dataset: &Dataset,
    validation: Option<&PredictionTable>,
) -> Vec<String> {
    let names = dataset.names();
    let whose =
        ["training images of the run", "validation images of the run, which it was fitted on"];
    match open_own(plan) {
        Ok(own) => {
            let lists = own.iter().zip(whose);
            let told = lists
                .filter_map(|(own, whose)| sentence(&names, &shared_images(dataset, own), whose));
            told.collect()
        }
        Err(error) => {
            let unknown = format!(
                "it is not known whether the model was trained on some of these images, since its own data \
                 cannot be opened: {error}"
            );
            let common = validation.map(|validation| in_common(&[&names, &validation.paths]));
            let common = common.and_then(|common| common.into_iter().next()).unwrap_or_default();
            [unknown].into_iter().chain(sentence(&names, &common, whose[1])).collect()
        }
    }
}

fn sentence(names: &[String], shared: &[usize], whose: &str) -> Option<String> {
    let first: Vec<String> =
        shared.iter().take(NAMED).map(|&place| format!("`{}`", names[place])).collect();
    let images =
        counted(shared.len(), "image of these data is one of the", "images of these data are");
    let such_as = first.join(", ");
    (!shared.is_empty())
        .then(|| format!("{images} {whose} (the same file, or the same bytes), such as {such_as}"))
}
