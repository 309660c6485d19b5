//! The labels of an image in words.

use super::super::batch::Targets;
use crate::model::{HeadConfig, Task};

/// A head's labels of the image at `place` of a batch: `findings: Edema, Nodule 0.63; 2 unknown`.
pub(super) fn caption(head: &HeadConfig, targets: &Targets, place: usize) -> String {
    let row = place * targets.width..(place + 1) * targets.width;
    let (values, mask) = (&targets.values[row.clone()], &targets.mask[row]);
    let said = match head.task {
        Task::Multiclass if mask[0] == 0.0 => "unknown".to_owned(),
        Task::Multiclass if targets.width == 1 => head.labels[values[0] as usize].clone(),
        Task::Multiclass => {
            let classes = head.labels.iter().zip(values).filter(|(_, share)| **share > 0.0);
            joined(classes.map(|(class, share)| with_share(class, *share)))
        }
        Task::Regression => {
            let known = head.labels.iter().zip(values).zip(mask);
            joined(known.map(|((label, value), mask)| match *mask != 0.0 {
                true => format!("{label} {value}"),
                false => format!("{label} unknown"),
            }))
        }
        Task::Binary | Task::Multilabel => findings(&head.labels, values, mask),
    };
    format!("{}: {said}", head.name)
}

/// What is present, soft labels with their value, and how many labels are unknown.
fn findings(labels: &[String], values: &[f32], mask: &[f32]) -> String {
    let known = labels.iter().zip(values).zip(mask).filter(|(_, mask)| **mask != 0.0);
    let present = known.filter(|((_, value), _)| **value > 0.0);
    let present = joined(present.map(|((label, value), _)| with_share(label, *value)));
    let unknown = mask.iter().filter(|mask| **mask == 0.0).count();
    match (present.is_empty(), unknown) {
        (true, unknown) if unknown == labels.len() => "unknown".to_owned(),
        (true, 0) => "none".to_owned(),
        (true, unknown) => format!("none; {unknown} unknown"),
        (false, 0) => present,
        (false, unknown) => format!("{present}; {unknown} unknown"),
    }
}

fn with_share(label: &str, share: f32) -> String {
    if share == 1.0 { label.to_owned() } else { format!("{label} {share:.2}") }
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(task: &str, width: usize, values: &[f32], mask: &[f32]) -> String {
        let text = format!("name = 'h'\ntask = '{task}'\nlabels = ['Edema', 'Nodule', 'Mass']");
        let head = toml::from_str(&text).expect("reads");
        let targets = Targets { values: values.to_vec(), mask: mask.to_vec(), width };
        let rows = values.len() / width;
        (0..rows).map(|row| caption(&head, &targets, row)).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn labels_are_said_in_words() {
        let values = [1.0, 0.63, 0.0, 0.0, 0.0, 0.0];
        let findings = |mask: [f32; 6]| said("multilabel", 3, &values, &mask);
        assert_eq!(findings([1.0; 6]), "h: Edema, Nodule 0.63 | h: none");
        assert_eq!(
            findings([1.0, 0.0, 0.0, 0.0, 1.0, 1.0]),
            "h: Edema; 2 unknown | h: none; 1 unknown"
        );
        assert_eq!(findings([0.0; 6]), "h: unknown | h: unknown");
        assert_eq!(said("multiclass", 1, &[2.0, 0.0], &[1.0, 0.0]), "h: Mass | h: unknown");
        let shares = [0.7, 0.3, 0.0, 0.0, 1.0, 0.0];
        assert_eq!(
            said("multiclass", 3, &shares, &[1.0; 6]),
            "h: Edema 0.70, Nodule 0.30 | h: Nodule"
        );
        let mask = [1.0, 0.0, 1.0];
        assert_eq!(
            said("regression", 3, &[61.0, 0.0, -2.5], &mask),
            "h: Edema 61, Nodule unknown, Mass -2.5"
        );
    }
}
