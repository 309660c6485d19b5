//! Labels that few patients have, or that few lack.

use std::collections::BTreeSet;

use super::MeasuredTable;
use crate::model::Task;

/// With fewer patients on either side an interval of a label rests on so few that it is wide, and how wide is itself
/// uncertain (`docs/evaluation.md`, "How right the intervals are").
const FEW: usize = 10;
/// Labels that are named.
const NAMED: usize = 3;

impl MeasuredTable {
    /// What is to be said of the intervals of labels that fewer than ten of the patients have or lack, where
    /// there are such: they are rough.
    pub fn few_patients(&self) -> Option<String> {
        let mut few = Vec::new();
        for (name, head) in self.heads.iter().filter(|(_, head)| head.task != Task::Regression) {
            for (label, known) in head.labels.iter().zip(head.known()) {
                let with = |positive: bool| {
                    let alike = known.iter().filter(|(_, is)| *is == positive);
                    alike.map(|(image, _)| &self.patients[*image]).collect::<BTreeSet<_>>().len()
                };
                let told = match [with(true), with(false)] {
                    // Undefined, which has its reason in the table.
                    [0, _] | [_, 0] => continue,
                    [have, _] if have < FEW => format!("`{name}/{label}` ({have} have it)"),
                    [_, lack] if lack < FEW => format!("`{name}/{label}` ({lack} lack it)"),
                    _ => continue,
                };
                few.push(told);
            }
        }
        let more = few.len().saturating_sub(NAMED);
        few.truncate(NAMED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        (!few.is_empty()).then(|| {
            format!(
                "intervals are rough where fewer than {FEW} patients have a label, or lack it: {}{more}",
                few.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::evaluate::Measured;

    /// Of 40 images of 20 patients: how many of the patients have each label, all images of theirs.
    fn table(task: Task, have: &[usize]) -> MeasuredTable {
        let (width, images) = (have.len(), 40);
        let positive = |image: usize| have.iter().map(move |have| image / 2 < *have);
        let truth = (0..images).flat_map(positive).map(|one| Some(f64::from(u8::from(one))));
        let head = Measured {
            task,
            labels: (0..width).map(|label| format!("L{label}")).collect(),
            values: vec![0.5; images * width],
            truth: truth.collect(),
        };
        MeasuredTable {
            paths: (0..images).map(|image| format!("{image}.png")).collect(),
            patients: (0..images).map(|image| (image / 2).to_string()).collect(),
            heads: BTreeMap::from([("findings".to_owned(), head)]),
        }
    }

    #[test]
    fn labels_that_few_patients_have_or_lack_are_told_of_by_patients_not_by_images() {
        // Nine patients have 18 images.
        let told = table(Task::Multilabel, &[10, 9, 0, 20, 11]).few_patients().expect("few");
        let head = "intervals are rough where fewer than 10 patients have a label, or lack it: ";
        assert_eq!(told, format!("{head}`findings/L1` (9 have it), `findings/L4` (9 lack it)"));
        let told = table(Task::Multilabel, &[1, 2, 3, 4, 5]).few_patients().expect("few");
        assert!(told.ends_with("`findings/L2` (3 have it), and 2 more"), "{told}");
        assert_eq!(table(Task::Multilabel, &[10]).few_patients(), None);
        assert_eq!(table(Task::Regression, &[3]).few_patients(), None);
    }
}
