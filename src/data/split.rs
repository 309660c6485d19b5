//! Setting patients aside for validation.

use std::collections::BTreeMap;

use rand::Rng;

use super::chexpert::Row;
use super::error::DataError;
use crate::random::stream;

/// For each row whether it is for validation: `fraction` of the patients, whole, chosen by `seed`
/// and by nothing else about the table than which patients it has.
pub(super) fn by_patient(rows: &[Row], fraction: f64, seed: u64) -> Result<Vec<bool>, DataError> {
    let mut patients: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows {
        patients.entry(&row.patient).or_insert_with(|| lot(seed, &row.patient));
    }
    let mut lots: Vec<(u64, &str)> = patients.iter().map(|(name, lot)| (*lot, *name)).collect();
    lots.sort_unstable();
    let count = ((fraction * lots.len() as f64).round() as usize).min(lots.len());
    let empty = |side| DataError::EmptySplit { fraction, patients: lots.len(), side };
    if count == lots.len() {
        return Err(empty("training"));
    }
    // The patient with the first lot that stays in training.
    let limit = lots[count];
    if count == 0 {
        return Err(empty("validation"));
    }
    Ok(rows
        .iter()
        .map(|row| (patients[row.patient.as_str()], row.patient.as_str()) < limit)
        .collect())
}

fn lot(seed: u64, patient: &str) -> u64 {
    stream(seed, &format!("split/{patient}"), &[]).next_u64()
}

/// Refuses a patient who is in both lists.
pub(super) fn check_disjoint(train: &[Row], validation: &[Row]) -> Result<(), DataError> {
    let trained: BTreeMap<&str, &Row> =
        train.iter().map(|row| (row.patient.as_str(), row)).collect();
    for row in validation {
        if let Some(other) = trained.get(row.patient.as_str()) {
            return Err(DataError::SharedPatient {
                patient: row.patient.clone(),
                train: other.table.to_path_buf(),
                train_line: other.line,
                validation: row.table.to_path_buf(),
                validation_line: row.line,
            });
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

    fn rows(patients: &[u32]) -> Vec<Row> {
        let row = |(place, patient): (usize, &u32)| Row {
            path: format!("{place}.png").into(),
            table: Path::new("train.csv").into(),
            line: place as u64 + 2,
            patient: format!("patient{patient:05}"),
            lateral: None,
            view: None,
            female: None,
            age: None,
            findings: [None; 14],
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
            match by_patient(&rows, fraction, seed) {
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
                let sides = by_patient(&rows(patients), 0.3, seed).ok()?;
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
        let sides = |seed| by_patient(&rows, 0.2, seed).expect("splits");
        assert_eq!(sides(1), sides(1));
        assert_ne!(sides(1), sides(2));
    }

    #[test]
    fn an_empty_side_says_which() {
        let said = |patients: &[u32], fraction| {
            by_patient(&rows(patients), fraction, 1).expect_err("is refused").to_string()
        };
        insta::assert_snapshot!(said(&[1, 2, 3], 0.1), @"a validation fraction of 0.1 of 3 patients leaves no image for validation");
        insta::assert_snapshot!(said(&[1, 2, 3], 0.9), @"a validation fraction of 0.9 of 3 patients leaves no image for training");
        insta::assert_snapshot!(said(&[1, 1], 0.5), @"a validation fraction of 0.5 of 1 patient leaves no image for training");
    }

    #[test]
    fn a_patient_in_both_lists_is_named_with_both_lines() {
        let (train, mut validation) = (rows(&[1, 2, 3]), rows(&[4, 3]));
        validation.iter_mut().for_each(|row| row.table = Path::new("valid.csv").into());
        let error = check_disjoint(&train, &validation).expect_err("is refused");
        insta::assert_snapshot!(error, @"patient `patient00003` is in both lists: `train.csv`, line 4, and `valid.csv`, line 3");
        assert!(check_disjoint(&train, &validation[..1]).is_ok());
    }
}
