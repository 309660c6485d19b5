use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

fn rows(patients: &[usize]) -> Vec<Row> {
    let row = |(place, patient): (usize, &usize)| Row {
        path: format!("{place}.png").into(),
        item: None,
        table: Path::new("train.csv").into(),
        line: place as u64 + 2,
        patient: format!("patient{patient:05}"),
        values: Vec::new(),
    };
    patients.iter().enumerate().map(row).collect()
}

/// The fold of each row, counted from 1.
fn folds_of(patients: &[usize], strata: &[Vec<usize>], folds: usize, seed: u64) -> Vec<usize> {
    let rows = rows(patients);
    let mut found = vec![0; rows.len()];
    for fold in 1..=folds {
        let is_in = in_fold(&rows, strata, fold, folds, seed).expect("enough patients");
        for (place, _) in is_in.iter().enumerate().filter(|(_, is_in)| **is_in) {
            assert_eq!(found[place], 0, "row {place} is in two folds");
            found[place] = fold;
        }
    }
    assert!(!found.contains(&0), "a row is in no fold");
    found
}

/// How many patients each fold has.
fn sizes(patients: &[usize], found: &[usize], folds: usize) -> Vec<usize> {
    let of = |fold: usize| {
        let own = patients.iter().zip(found).filter(|(_, found)| **found == fold);
        own.map(|(patient, _)| patient).collect::<BTreeSet<_>>().len()
    };
    (1..=folds).map(of).collect()
}

fn spread(counts: &[usize]) -> usize {
    counts.iter().max().expect("folds") - counts.iter().min().expect("folds")
}

#[derive(Deserialize)]
struct Case {
    name: String,
    folds: usize,
    patients: Vec<usize>,
    columns: usize,
    ones: Vec<Vec<usize>>,
    deviation: Deviation,
    sizes: usize,
}

/// The most images that a patient of the fixture has.
const LARGEST_PATIENT: f64 = 6.0;

#[derive(Deserialize)]
struct Deviation {
    most: f64,
}

impl Case {
    fn all() -> Vec<Self> {
        let fixture = include_str!("../../../tests/fixtures/folds.json");
        serde_json::from_str(fixture).expect("reads")
    }

    /// Each column that is 1, and each that is 0, as a data set's labels are; one class, where the
    /// columns are classes.
    fn strata(&self) -> Vec<Vec<usize>> {
        let of = |ones: &Vec<usize>| match self.name.as_str() {
            "classes" => ones.clone(),
            _ => (0..self.columns).map(|c| 2 * c + usize::from(ones.contains(&c))).collect(),
        };
        self.ones.iter().map(of).collect()
    }

    /// The most images of a column by which a fold has more or fewer than its share.
    fn images_apart(&self, found: &[usize]) -> f64 {
        let images = |column: usize, fold: Option<usize>| {
            let own = self.ones.iter().zip(found).filter(|(_, f)| fold.is_none_or(|of| of == **f));
            own.filter(|(ones, _)| ones.contains(&column)).count() as f64
        };
        let share = |column| images(column, None) / self.folds as f64;
        let pairs = (0..self.columns).flat_map(|c| (1..=self.folds).map(move |fold| (c, fold)));
        pairs.map(|(c, fold)| (images(c, Some(fold)) - share(c)).abs()).fold(0.0, f64::max)
    }

    fn deviation(&self, found: &[usize]) -> f64 {
        let share = |column: usize, fold: Option<usize>| {
            let own = self.ones.iter().zip(found).filter(|(_, f)| fold.is_none_or(|of| of == **f));
            let own: Vec<bool> = own.map(|(ones, _)| ones.contains(&column)).collect();
            own.iter().filter(|one| **one).count() as f64 / own.len() as f64
        };
        let pairs = (0..self.columns).flat_map(|c| (1..=self.folds).map(move |fold| (c, fold)));
        let apart = pairs.map(|(c, fold)| (share(c, Some(fold)) - share(c, None)).abs());
        apart.sum::<f64>() / (self.columns * self.folds) as f64
    }
}

#[test]
fn labels_are_spread_as_evenly_as_by_others_and_sizes_more_so() {
    for case in Case::all() {
        let strata = case.strata();
        let found: Vec<_> =
            (0..20).map(|seed| folds_of(&case.patients, &strata, case.folds, seed)).collect();
        let deviations: Vec<f64> = found.iter().map(|found| case.deviation(found)).collect();
        let most = deviations.iter().copied().fold(0.0, f64::max);
        let sizes = found.iter().map(|found| spread(&sizes(&case.patients, found, case.folds)));
        let sizes = sizes.max().expect("seeds");
        let (name, theirs) = (&case.name, &case.deviation);
        // StratifiedGroupKFold has classes more alike, and sizes that differ by nine patients.
        assert!(most <= theirs.most || case.sizes > 1, "{name}: {most} and {}", theirs.most);
        let apart = found.iter().map(|found| case.images_apart(found)).fold(0.0, f64::max);
        assert!(apart <= LARGEST_PATIENT, "{name}: {apart} images of a class");
        assert!(sizes <= 1 && sizes <= case.sizes.max(1), "{}: {sizes}", case.name);
    }
}

#[test]
fn another_seed_makes_other_folds() {
    let case = &Case::all()[0];
    let folds = |seed| folds_of(&case.patients, &case.strata(), case.folds, seed);
    assert_eq!(folds(1), folds(1));
    assert_ne!(folds(1), folds(2));
}

#[test]
fn fewer_patients_than_folds_are_counted() {
    let (rows, strata) = (rows(&[1, 1, 2, 2]), vec![Vec::new(); 4]);
    assert_eq!(in_fold(&rows, &strata, 1, 3, 7), Err(2));
    assert_eq!(in_fold(&rows, &strata, 1, 2, 7).map(|sides| sides.len()), Ok(4));
}

/// The patient and the labels of each image.
fn images() -> impl Strategy<Value = Vec<(usize, Vec<usize>)>> {
    let labels = prop::collection::btree_set(0_usize..6, 0..6);
    prop::collection::vec((0_usize..40, labels.prop_map(Vec::from_iter)), 60..200)
}

proptest! {
    #[test]
    fn every_patient_is_in_one_fold_and_sizes_differ_by_one_at_most(
        images in images(), folds in 2_usize..8, seed in any::<u64>(),
    ) {
        let (patients, strata): (Vec<_>, Vec<_>) = images.into_iter().unzip();
        let all = patients.iter().collect::<BTreeSet<_>>().len();
        prop_assume!(all >= folds);
        let found = folds_of(&patients, &strata, folds, seed);
        let sizes = sizes(&patients, &found, folds);
        prop_assert!(spread(&sizes) <= 1, "{sizes:?}");
        prop_assert_eq!(sizes.iter().sum::<usize>(), all);
    }

    #[test]
    fn the_order_of_the_rows_decides_nothing(
        images in images(), folds in 2_usize..6, seed in any::<u64>(),
    ) {
        let (patients, strata): (Vec<_>, Vec<_>) = images.iter().cloned().unzip();
        let (turned, turned_strata): (Vec<_>, Vec<_>) = images.into_iter().rev().unzip();
        prop_assume!(patients.iter().collect::<BTreeSet<_>>().len() >= folds);
        let mut found = folds_of(&turned, &turned_strata, folds, seed);
        found.reverse();
        prop_assert_eq!(folds_of(&patients, &strata, folds, seed), found);
    }

    /// Counts that differ by one are the best there is.
    #[test]
    fn classes_of_patients_with_one_image_are_as_even_as_can_be(
        classes in prop::collection::vec(0_usize..2, 8..120), folds in 2_usize..8, seed in any::<u64>(),
    ) {
        let patients: Vec<usize> = (0..classes.len()).collect();
        let strata: Vec<Vec<usize>> = classes.iter().map(|class| vec![*class]).collect();
        let found = folds_of(&patients, &strata, folds, seed);
        for class in 0..2 {
            let is_in = |image: usize, fold| found[image] == fold && classes[image] == class;
            let count = |fold| (0..classes.len()).filter(|image| is_in(*image, fold)).count();
            let counts: Vec<usize> = (1..=folds).map(count).collect();
            prop_assert!(spread(&counts) <= 1, "class {class}: {counts:?}");
        }
    }
}
