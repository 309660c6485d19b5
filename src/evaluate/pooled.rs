//! The predictions of several models for different images, as those of one list.

use super::PredictionTable;

/// The rows of all `tables`, one after another: such as the validation images of every fold, each with the
/// outputs of the model that was not trained on it. Outputs are as the models give them.
///
/// `None` where there is no table, or one has other heads, tasks or labels than the first.
pub fn pooled(tables: &[&PredictionTable]) -> Option<PredictionTable> {
    let (first, others) = tables.split_first()?;
    let mut all = (*first).clone();
    for table in others {
        if table.heads.len() != all.heads.len() {
            return None;
        }
        for (name, head) in &mut all.heads {
            let own = table.heads.get(name);
            let own = own.filter(|own| own.task == head.task && own.labels == head.labels)?;
            head.extend(&own.outputs, &own.targets);
        }
        all.paths.extend_from_slice(&table.paths);
        all.patients.extend_from_slice(&table.patients);
    }
    Some(all)
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
        assert_eq!(pooled(&[&parts[0], &parts[1]]).as_ref(), Some(&whole));
        assert_eq!(pooled(&[&whole]).as_ref(), Some(&whole));
    }

    #[test]
    fn tables_of_other_labels_are_not_pooled() {
        let (one, mut other) = (table(), table());
        other.heads.get_mut("h").expect("is there").labels.swap(0, 1);
        assert_eq!(pooled(&[&one, &other]), None);
        assert_eq!(pooled(&[]), None);
    }
}
