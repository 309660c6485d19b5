//! Which images of a data set are trained on, and which are only looked at.

use std::collections::BTreeMap;

use rand::Rng;

use super::config::ValidationConfig;
use super::dataset::Purpose;
use super::error::DataError;
use super::folds;
use super::layout::{List, Row};
use super::same_image;
use super::source::Source;
use crate::random::stream;
use crate::screen::counted;

/// The share of patients set aside where neither the configuration nor the layout says.
pub const DEFAULT_FRACTION: f64 = 0.1;

/// The rows of a data set on each side.
#[derive(Debug)]
pub(super) struct Sides {
    pub train: Vec<Row>,
    pub validation: Vec<Row>,
    /// The official test list, where it is asked for and there is one.
    pub test: Option<Vec<Row>>,
    /// What a person should know of the rows.
    pub warnings: Vec<String>,
}

/// Reads a data set's lists and splits them: validation has the share of patients asked for, the fold
/// or the list asked for; else the layout's own validation list; else [`DEFAULT_FRACTION`] of the patients.
/// A share or a fold is of the training list only, so that no image of another list is ever trained on.
/// `strata` says what folds are to have alike of each row.
pub(super) fn read(
    source: &Source,
    config: &ValidationConfig,
    seed: u64,
    purpose: Purpose,
    strata: impl FnOnce(&[Row]) -> Vec<Vec<usize>>,
) -> Result<Sides, DataError> {
    let own = source.layout.lists();
    if purpose == Purpose::External {
        return read_all(source, own);
    }
    let with_test = purpose.has_test();
    let asked = config.list.map(List::from);
    let default = || own.contains(&List::Validation).then_some(List::Validation);
    let parted = config.fraction.is_some() || config.folds.is_some();
    let list = if parted { None } else { asked.or_else(default) };
    let mut wanted: Vec<List> = [List::Train].into_iter().chain(list).collect();
    if with_test && own.contains(&List::Test) && !wanted.contains(&List::Test) {
        wanted.push(List::Test);
    }
    let mut lists = source.layout.read(&source.vocabulary, &source.needed(), &wanted)?;
    lists.retain(|_, rows| !rows.is_empty());
    check_disjoint(&lists)?;
    let mut warnings = Vec::from_iter(same_image::check_within(source, &lists)?);
    let empty = |list: List| DataError::EmptyList { place: source.name.clone(), list: list.name() };
    let train = lists.remove(&List::Train).ok_or_else(|| empty(List::Train))?;
    let validation = match list {
        Some(list) => match lists.get(&list) {
            Some(rows) => Some(rows.clone()),
            None if asked.is_some() => return Err(empty(list)),
            None => None,
        },
        None => None,
    };
    let test = if with_test { lists.remove(&List::Test) } else { None };
    if let Some(validation) = validation {
        return Ok(Sides { train, validation, test, warnings });
    }
    let sides = match config.fold() {
        Some((fold, folds)) => {
            let few = |patients| {
                let place = source.name.clone();
                DataError::FewPatients { place, patients, folds }
            };
            folds::in_fold(&train, &strata(&train), fold, folds, seed).map_err(few)?
        }
        None => {
            let fraction = config.fraction.unwrap_or(DEFAULT_FRACTION);
            let empty = |patients, side| {
                let place = source.name.clone();
                DataError::EmptySplit { place, fraction, patients, side }
            };
            by_patient(&train, fraction, seed, empty)?
        }
    };
    let (mut stay, mut aside) = (Vec::new(), Vec::new());
    for (row, set_aside) in train.into_iter().zip(sides) {
        if set_aside { aside.push(row) } else { stay.push(row) }
    }
    warnings.extend(untold_patients(source));
    Ok(Sides { train: stay, validation: aside, test, warnings })
}

/// The images of all lists, only looked at. They are not split, so a patient may be in several lists.
fn read_all(source: &Source, own: &[List]) -> Result<Sides, DataError> {
    let lists = source.layout.read(&source.vocabulary, &source.needed(), own)?;
    let warnings = Vec::from_iter(same_image::check_within(source, &lists)?);
    let validation: Vec<Row> = lists.into_values().flatten().collect();
    match validation.is_empty() {
        true => Err(DataError::EmptyList { place: source.name.clone(), list: List::Train.name() }),
        false => Ok(Sides { train: Vec::new(), validation, test: None, warnings }),
    }
}

/// What is said where a share of the patients is set aside and nothing tells them apart.
fn untold_patients(source: &Source) -> Option<String> {
    let name = &source.name;
    let (key, told) = source.layout.untold_patients()?;
    Some(format!(
        "each image of `data.{name}` counts as a patient of its own, since `data.{name}.{key}` is not \
         given, so images of one patient may be trained on and validated on; {told}"
    ))
}

/// What is said of an official validation list that a share of the training list stands in for.
///
/// A list that cannot be read is not there to be missed.
pub(super) fn unused_list(source: &Source, config: &ValidationConfig) -> Option<String> {
    let key = match (config.fraction, config.folds) {
        (Some(_), _) => "fraction",
        (None, Some(_)) => "folds",
        (None, None) => return None,
    };
    source.layout.lists().contains(&List::Validation).then_some(())?;
    let read = source.layout.read(&source.vocabulary, &source.needed(), &[List::Validation]);
    let images = read.ok()?.remove(&List::Validation)?.len();
    (images > 0).then(|| {
        format!(
            "{} of the validation list of `data.{}` {} neither trained on nor validated on, since \
             `{key}` under [data.validation] sets patients of the training list aside; remove it \
             to validate on that list",
            counted(images, "image", "images"),
            source.name,
            if images == 1 { "is" } else { "are" },
        )
    })
}

/// What is said where patients are cut into folds and it is not said which is meant.
pub(super) fn unnamed_fold(config: &ValidationConfig) -> Option<String> {
    let folds = config.folds.filter(|_| config.fold.is_none())?;
    Some(format!(
        "the patients are cut into {folds} folds, and none is named, so validation is fold 1; \
         `--set data.validation.fold=2` takes another"
    ))
}

/// For each row whether it is for validation: `fraction` of the patients, whole, chosen by `seed`
/// and by nothing else about the table than which patients it has.
///
/// # Errors
/// What `empty` makes of the number of patients and the side that has none.
fn by_patient<E>(
    rows: &[Row],
    fraction: f64,
    seed: u64,
    empty: impl Fn(usize, &'static str) -> E,
) -> Result<Vec<bool>, E> {
    let mut patients: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows {
        patients.entry(&row.patient).or_insert_with(|| lot(seed, &row.patient));
    }
    let mut lots: Vec<(u64, &str)> = patients.iter().map(|(name, lot)| (*lot, *name)).collect();
    lots.sort_unstable();
    let count = ((fraction * lots.len() as f64).round() as usize).min(lots.len());
    if count == lots.len() {
        return Err(empty(lots.len(), "training"));
    }
    // The patient with the first lot that stays in training.
    let limit = lots[count];
    if count == 0 {
        return Err(empty(lots.len(), "validation"));
    }
    Ok(rows
        .iter()
        .map(|row| (patients[row.patient.as_str()], row.patient.as_str()) < limit)
        .collect())
}

pub(super) fn lot(seed: u64, patient: &str) -> u64 {
    stream(seed, &format!("split/{patient}"), &[]).next_u64()
}

/// Refuses a patient who is in two lists.
fn check_disjoint(lists: &BTreeMap<List, Vec<Row>>) -> Result<(), DataError> {
    let mut seen: BTreeMap<&str, (List, &Row)> = BTreeMap::new();
    for (list, rows) in lists {
        for row in rows {
            let (first, other) = *seen.entry(&row.patient).or_insert((*list, row));
            if first != *list {
                return Err(DataError::SharedPatient {
                    patient: row.patient.clone(),
                    lists: [first.name(), list.name()],
                    tables: [other.table.to_path_buf(), row.table.to_path_buf()],
                    lines: [other.line, row.line],
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn empty(patients: usize, side: &'static str) -> (usize, &'static str) {
        (patients, side)
    }

    fn rows(patients: &[u32]) -> Vec<Row> {
        let row = |(place, patient): (usize, &u32)| Row {
            path: format!("{place}.png").into(),
            item: None,
            table: Path::new("train.csv").into(),
            line: place as u64 + 2,
            patient: format!("patient{patient:05}"),
            values: Vec::new(),
        };
        patients.iter().enumerate().map(row).collect()
    }

    proptest! {
        #[test]
        fn no_patient_is_on_both_sides_and_the_share_is_kept(
            patients in prop::collection::vec(0_u32..60, 1..200),
            fraction in 0.0_f64..1.0,
            seed in any::<u64>(),
        ) {
            let rows = rows(&patients);
            let all: BTreeSet<u32> = patients.iter().copied().collect();
            let wanted = (fraction * all.len() as f64).round() as usize;
            match by_patient(&rows, fraction, seed, empty) {
                Err(_) => prop_assert!(wanted == 0 || wanted == all.len()),
                Ok(sides) => {
                    let side = |wanted: bool| -> BTreeSet<u32> {
                        let chosen = patients.iter().zip(&sides).filter(|(_, side)| **side == wanted);
                        chosen.map(|(patient, _)| *patient).collect()
                    };
                    let (train, validation) = (side(false), side(true));
                    prop_assert!(train.is_disjoint(&validation));
                    prop_assert_eq!(validation.len(), wanted);
                    prop_assert!(!train.is_empty() && !validation.is_empty());
                }
            }
        }

        #[test]
        fn the_order_of_the_rows_decides_nothing(
            patients in prop::collection::vec(0_u32..30, 2..80),
            seed in any::<u64>(),
        ) {
            let chosen = |patients: &[u32]| -> Option<BTreeSet<u32>> {
                let sides = by_patient(&rows(patients), 0.3, seed, empty).ok()?;
                let both = patients.iter().zip(sides);
                Some(both.filter(|(_, side)| *side).map(|(patient, _)| *patient).collect())
            };
            let reversed: Vec<u32> = patients.iter().rev().copied().collect();
            prop_assert_eq!(chosen(&patients), chosen(&reversed));
        }
    }

    #[test]
    fn another_seed_sets_other_patients_aside() {
        let rows = rows(&(0..100).collect::<Vec<_>>());
        let sides = |seed| by_patient(&rows, 0.2, seed, empty).expect("splits");
        assert_eq!(sides(1), sides(1));
        assert_ne!(sides(1), sides(2));
    }

    #[test]
    fn an_empty_side_says_which() {
        let said = |patients: &[u32], fraction| {
            by_patient(&rows(patients), fraction, 1, |patients, side| DataError::EmptySplit {
                place: "nih".into(),
                fraction,
                patients,
                side,
            })
            .expect_err("is refused")
            .to_string()
        };
        insta::assert_snapshot!(said(&[1, 2, 3], 0.1), @"a validation fraction of 0.1 of the 3 patients of `data.nih` leaves no image for validation");
        insta::assert_snapshot!(said(&[1, 2, 3], 0.9), @"a validation fraction of 0.9 of the 3 patients of `data.nih` leaves no image for training");
        insta::assert_snapshot!(said(&[1, 1], 0.5), @"a validation fraction of 0.5 of the 1 patient of `data.nih` leaves no image for training");
    }

    #[test]
    fn a_patient_in_any_two_lists_is_named_with_both_lines() {
        let lists = |pairs: [(List, &str, &[u32]); 2]| {
            let of = |(list, table, patients): (List, &str, &[u32])| {
                let mut rows = rows(patients);
                rows.iter_mut().for_each(|row| row.table = Path::new(table).into());
                (list, rows)
            };
            check_disjoint(&pairs.map(of).into())
        };
        let (train, validation) = ((List::Train, "train.csv"), (List::Validation, "valid.csv"));
        let test = (List::Test, "test.csv");
        let said = |a: (List, &str), b: (List, &str)| {
            let both = [(a.0, a.1, &[1, 2, 3][..]), (b.0, b.1, &[4, 3][..])];
            lists(both).expect_err("is refused").to_string()
        };
        insta::assert_snapshot!(said(train, validation), @"patient `patient00003` is in the training and in the validation list: `train.csv`, line 4, and `valid.csv`, line 3");
        insta::assert_snapshot!(said(train, test), @"patient `patient00003` is in the training and in the test list: `train.csv`, line 4, and `test.csv`, line 3");
        insta::assert_snapshot!(said(validation, test), @"patient `patient00003` is in the validation and in the test list: `valid.csv`, line 4, and `test.csv`, line 3");
        let apart = [(List::Train, "a", &[1, 1, 2][..]), (List::Test, "b", &[4, 4][..])];
        assert!(lists(apart).is_ok());
    }
}
