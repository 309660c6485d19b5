//! The share of right decisions.

use super::Example;

/// The share of examples decided as is true; `None` of none.
pub(super) fn accuracy(examples: &[Example]) -> Option<f64> {
    let right = examples.iter().filter(|example| example.predicted == example.positive).count();
    share(right, examples.len())
}

/// The share of images given their own class, of one set of examples per class; `None` of none.
pub(super) fn multiclass_accuracy(classes: &[Vec<Example>]) -> Option<f64> {
    let of_class = |class: &Vec<Example>| {
        class.iter().filter(|example| example.predicted && example.positive).count()
    };
    let images = classes.first().map_or(0, Vec::len);
    share(classes.iter().map(of_class).sum(), images)
}

fn share(right: usize, of: usize) -> Option<f64> {
    (of > 0).then(|| right as f64 / of as f64)
}
