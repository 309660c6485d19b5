//! The predictions of several models for different images, as those of one list.

use std::collections::BTreeMap;

use super::PredictionTable;

/// Predictions that are not those of one list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Other heads, tasks or labels than those of the first.
    #[error("they have other heads or labels")]
    OtherHeads,
    /// An image that two models have predicted.
    #[error("image `{0}` is in two of them")]
    Shared(String),
}

/// The rows of all `tables`, one after another: such as the validation images of every fold, each with the
/// outputs of the model that was not trained on it. Outputs are as the models give them. Of no table at
/// all there are no rows.
///
/// # Errors
/// Tables of other heads, and an image that is in two tables. In one it may be several times.
pub fn pooled(tables: &[&PredictionTable]) -> Result<PredictionTable, PoolError> {
    let first = tables.first().map(|first| (*first).clone());
    let none =
        || PredictionTable { paths: Vec::new(), patients: Vec::new(), heads: BTreeMap::new() };
    let mut all = first.unwrap_or_else(none);
    let mut seen: BTreeMap<&String, usize> = BTreeMap::new();
    for (place, table) in tables.iter().enumerate() {
        if let Some(path) =
            table.paths.iter().find(|path| *seen.entry(path).or_insert(place) != place)
        {
            return Err(PoolError::Shared(path.clone()));
        }
        if table.heads.len() != all.heads.len() {
            return Err(PoolError::OtherHeads);
        }
        for (name, head) in all.heads.iter_mut().filter(|_| place > 0) {
            let own = table.heads.get(name);
            let own = own.filter(|own| own.task == head.task && own.labels == head.labels);
            let own = own.ok_or(PoolError::OtherHeads)?;
            head.extend(&own.outputs, &own.targets);
        }
        if place > 0 {
            all.paths.extend_from_slice(&table.paths);
            all.patients.extend_from_slice(&table.patients);
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::data::Targets;
    use crate::evaluate::part;
    use crate::metric::HeadPredictions;
    use crate::model::Task;

    fn table() -> PredictionTable {
        let labels = vec!["a".to_owned(), "b".to_owned()];
        let targets = Targets {
            values: vec![0.0, 1.0, 0.0, 0.0, 1.0, 1.0],
            mask: vec![1.0, 1.0, 0.0, 1.0, 1.0, 1.0],
            width: 2,
        };
        let outputs = vec![0.5, -1.0, 2.0, 0.25, -3.0, 4.0];
        let head = HeadPredictions { task: Task::Multilabel, labels, outputs, targets };
        PredictionTable {
            paths: ["x", "y", "z"].map(str::to_owned).to_vec(),
            patients: ["1", "1", "2"].map(str::to_owned).to_vec(),
            heads: BTreeMap::from([("h".to_owned(), head)]),
        }
    }

    fn part_of(table: &PredictionTable, images: &[usize]) -> PredictionTable {
        let names = |all: &[String]| images.iter().map(|&image| all[image].clone()).collect();
        let heads = table.heads.iter().map(|(name, head)| (name.clone(), part(head, images)));
        PredictionTable {
            paths: names(&table.paths),
            patients: names(&table.patients),
            heads: heads.collect(),
        }
    }

    #[test]
    fn the_parts_of_a_table_make_the_table_again() {
        let whole = table();
        let parts = [part_of(&whole, &[0]), part_of(&whole, &[1, 2])];
        assert_eq!(pooled(&[&parts[0], &parts[1]]).as_ref(), Ok(&whole));
        assert_eq!(pooled(&[&whole]).as_ref(), Ok(&whole));
        assert_eq!(pooled(&[]).map(|none| none.images()), Ok(0));
    }

    #[test]
    fn tables_of_other_labels_or_with_an_image_of_another_are_not_pooled() {
        let whole = table();
        let (one, mut other) = (part_of(&whole, &[0, 1]), part_of(&whole, &[2]));
        other.heads.get_mut("h").expect("is there").labels.swap(0, 1);
        assert_eq!(pooled(&[&one, &other]), Err(PoolError::OtherHeads));
        let other = part_of(&whole, &[2, 1]);
        assert_eq!(pooled(&[&one, &other]), Err(PoolError::Shared("y".to_owned())));
        let twice = part_of(&whole, &[0, 0]);
        assert_eq!(pooled(&[&twice]).as_ref(), Ok(&twice));
    }
}
