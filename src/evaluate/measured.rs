//! Calibrated predictions beside the truth, wherever they are from: what two models are compared by.

use std::collections::{BTreeMap, HashMap};

use crate::model::Task;

/// One head's predictions for a list of images.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// What the values mean.
    pub task: Task,
    /// The labels or classes, in the order of the values.
    pub labels: Vec<String>,
    /// `[images, labels]`: probabilities, or numbers for `regression`.
    pub values: Vec<f64>,
    /// `[images, labels]`: 1 or 0, or the number; `None` where it is unknown.
    pub truth: Vec<Option<f64>>,
}

/// Every head's predictions for a list of images.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MeasuredTable {
    /// The images' names.
    pub paths: Vec<String>,
    /// Whose image each is.
    pub patients: Vec<String>,
    /// By the head's name; each with as many images as there are paths.
    pub heads: BTreeMap<String, Measured>,
}

impl Measured {
    /// Those of some of the images, in the order of `images`.
    fn part(&self, images: &[usize]) -> Self {
        let labels = self.labels.len();
        let places = || images.iter().flat_map(|image| image * labels..(image + 1) * labels);
        Self {
            task: self.task,
            labels: self.labels.clone(),
            values: places().map(|place| self.values[place]).collect(),
            truth: places().map(|place| self.truth[place]).collect(),
        }
    }

    /// The images of which each label is known, by their places, and whether they have it. A soft target
    /// counts as having it from 0.5 up.
    pub(super) fn known(&self) -> Vec<Vec<(usize, bool)>> {
        let mut known = vec![Vec::new(); self.labels.len()];
        for (image, row) in self.truth.chunks_exact(self.labels.len().max(1)).enumerate() {
            for (known, truth) in known.iter_mut().zip(row) {
                known.extend(truth.map(|truth| (image, truth >= 0.5)));
            }
        }
        known
    }
}

impl MeasuredTable {
    /// Those of some of the images, in the order of `images`.
    pub fn part(&self, images: &[usize]) -> Self {
        let names = |all: &[String]| images.iter().map(|&image| all[image].clone()).collect();
        Self {
            paths: names(&self.paths),
            patients: names(&self.patients),
            heads: self
                .heads
                .iter()
                .map(|(name, head)| (name.clone(), head.part(images)))
                .collect(),
        }
    }
}

/// Where the images that all lists have stand in each list, in the order of the first. Of an image
/// that a list has several times, the first goes with the first of the others, and so on.
pub fn in_common(lists: &[&[String]]) -> Vec<Vec<usize>> {
    let places: Vec<HashMap<(&str, usize), usize>> =
        lists.iter().map(|list| numbered(list)).collect();
    let Some((first, others)) = lists.first().zip(places.get(1..)) else { return Vec::new() };
    let mut found = vec![Vec::new(); lists.len()];
    let mut own: Vec<(&(&str, usize), &usize)> = places[0].iter().collect();
    own.sort_unstable_by_key(|(_, place)| **place);
    debug_assert_eq!(own.len(), first.len());
    for (key, &place) in own {
        let elsewhere: Option<Vec<usize>> = others.iter().map(|of| of.get(key).copied()).collect();
        let Some(elsewhere) = elsewhere else { continue };
        for (found, place) in found.iter_mut().zip([place].into_iter().chain(elsewhere)) {
            found.push(place);
        }
    }
    found
}

/// The place of each name, which is told with how often it stands before.
fn numbered(list: &[String]) -> HashMap<(&str, usize), usize> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    let mut places = HashMap::with_capacity(list.len());
    for (place, name) in list.iter().enumerate() {
        let before = times.entry(name).or_default();
        places.insert((name.as_str(), *before), place);
        *before += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_in_common_keep_the_order_of_the_first_list() {
        let list = |names: &str| names.chars().map(String::from).collect::<Vec<_>>();
        let lists = [list("abca"), list("caxa"), list("aac")];
        let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
        assert_eq!(in_common(&lists), [[0, 2, 3], [1, 0, 3], [0, 2, 1]]);
        assert_eq!(in_common(&lists[..1]), [[0, 1, 2, 3]]);
        assert!(in_common(&[]).is_empty());
    }
}
