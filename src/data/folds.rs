//! Patients cut into folds that are alike: as many patients in each, and as many images of each label.
//!
//! This is iterative stratification (Sechidis, Tsoumakas and Vlahavas 2011, "On the stratification of
//! multi-label data") of patients, who may have several images:
//!
//! ```text
//! while a patient without a fold has an image in a stratum:
//!     take the stratum of which the fewest images are left
//!     for each of its patients, the one with the most images in it first:
//!         the fold that lacks most images of the stratum; of equals, the one that lacks most images
//! the other patients, those with the most images first: the fold that lacks most images
//! ```
//!
//! Folds are closed once they are full, so that their sizes differ by one patient at most. What is left
//! equal is decided by lots that follow from the seed and the patient's name: neither the order of the
//! rows nor the number of threads decides anything.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::layout::Row;
use super::split::lot;

/// All images of a patient.
#[derive(Debug, Clone, PartialEq)]
struct Group {
    lot: u64,
    images: i64,
    /// Images in each stratum that has any.
    strata: BTreeMap<usize, i64>,
}

/// For each row whether it is in fold `fold` of `folds`, counted from 1. `strata` has the numbers of the
/// strata of each row.
///
/// # Errors
/// The number of patients, where they are fewer than the folds.
pub(super) fn in_fold(
    rows: &[Row],
    strata: &[Vec<usize>],
    fold: usize,
    folds: usize,
    seed: u64,
) -> Result<Vec<bool>, usize> {
    let mut groups: BTreeMap<&str, Group> = BTreeMap::new();
    for (row, strata) in rows.iter().zip(strata) {
        let new = || Group { lot: lot(seed, &row.patient), images: 0, strata: BTreeMap::new() };
        let group = groups.entry(&row.patient).or_insert_with(new);
        group.images += 1;
        strata.iter().for_each(|stratum| *group.strata.entry(*stratum).or_default() += 1);
    }
    if groups.len() < folds {
        return Err(groups.len());
    }
    let (patients, groups): (Vec<&str>, Vec<Group>) = groups.into_iter().unzip();
    let places: BTreeMap<&str, usize> =
        patients.into_iter().zip(assigned(&groups, folds)).collect();
    Ok(rows.iter().map(|row| places[row.patient.as_str()] + 1 == fold).collect())
}

/// The fold of each group, counted from 0.
fn assigned(groups: &[Group], folds: usize) -> Vec<usize> {
    let strata =
        groups.iter().flat_map(|group| group.strata.keys()).max().map_or(0, |last| last + 1);
    let mut left = vec![0; strata];
    groups
        .iter()
        .flat_map(|group| &group.strata)
        .for_each(|(stratum, images)| left[*stratum] += images);
    let mut parts = Parts::new(groups, left.clone(), folds);
    let mut assigned: Vec<Option<usize>> = vec![None; groups.len()];
    let rarest = |left: &[i64]| {
        let left = left.iter().enumerate().filter(|(_, images)| **images > 0);
        left.min_by_key(|(stratum, images)| (**images, *stratum)).map(|(stratum, _)| stratum)
    };
    while let Some(stratum) = rarest(&left) {
        for place in waiting(groups, &assigned, |group| group.strata.get(&stratum).copied()) {
            assigned[place] = Some(parts.take(&groups[place], Some(stratum)));
            groups[place].strata.iter().for_each(|(stratum, images)| left[*stratum] -= images);
        }
    }
    for place in waiting(groups, &assigned, |group| Some(group.images)) {
        assigned[place] = Some(parts.take(&groups[place], None));
    }
    assigned.into_iter().flatten().collect()
}

/// The groups without a fold that have a `size`, the largest first, equals by lot.
fn waiting(
    groups: &[Group],
    assigned: &[Option<usize>],
    size: impl Fn(&Group) -> Option<i64>,
) -> Vec<usize> {
    let waiting = groups.iter().enumerate().filter(|(place, _)| assigned[*place].is_none());
    let sized =
        waiting.filter_map(|(place, group)| Some((Reverse(size(group)?), group.lot, place)));
    let mut sized: Vec<_> = sized.collect();
    sized.sort_unstable();
    sized.into_iter().map(|(.., place)| place).collect()
}

/// The folds as far as they are filled.
struct Parts {
    /// Groups of each fold.
    groups: Vec<usize>,
    /// How many groups a fold has at least in the end, and how many folds have one more.
    least: usize,
    larger: usize,
    /// For each fold what it lacks of its share of all images, times the number of folds.
    images: Vec<i64>,
    /// The same of each stratum, `[folds][strata]`.
    strata: Vec<Vec<i64>>,
}

impl Parts {
    /// Empty folds for `groups`, which have `strata` images of each stratum together.
    fn new(groups: &[Group], strata: Vec<i64>, folds: usize) -> Self {
        let images = groups.iter().map(|group| group.images).sum();
        Self {
            groups: vec![0; folds],
            least: groups.len() / folds,
            larger: groups.len() % folds,
            images: vec![images; folds],
            strata: vec![strata; folds],
        }
    }

    /// Puts `group` into the fold that lacks most images of `stratum`, or of all; returns that fold.
    fn take(&mut self, group: &Group, stratum: Option<usize>) -> usize {
        let folds = self.groups.len();
        let larger = self.groups.iter().filter(|groups| **groups > self.least).count();
        let room = self.least + usize::from(larger < self.larger);
        let open = (0..folds).filter(|fold| self.groups[*fold] < room);
        let wish = |fold: &usize| {
            let of_stratum = stratum.map(|stratum| self.strata[*fold][stratum]);
            let turn = (*fold as u64 + group.lot % folds as u64) % folds as u64;
            (of_stratum, self.images[*fold], Reverse(turn))
        };
        let fold = open.max_by_key(wish).unwrap_or_default();
        self.groups[fold] += 1;
        self.images[fold] -= folds as i64 * group.images;
        for (stratum, images) in &group.strata {
            self.strata[fold][*stratum] -= folds as i64 * images;
        }
        fold
    }
}

#[cfg(test)]
mod tests;
