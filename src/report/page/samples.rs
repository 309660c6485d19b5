//! Images that are worth a look: where the model is right and sure, wrong and sure, and unsure.

use super::figure::Table;
use super::pictures::{SamplePicture, SamplePictures, Wanted};
use crate::evaluate::PredictionTable;
use crate::metric::HeadPredictions;
use crate::model::Task;

/// Rows of each table.
const ROWS: usize = 8;

/// Samples of one kind.
#[derive(Debug, Clone)]
pub struct Samples {
    /// All of them.
    pub table: Table,
    /// Each, row by row, and in words what is true and what was predicted.
    pub rows: Vec<(Wanted, String)>,
    /// Pictures of the first, with the same words.
    pub pictures: Vec<(SamplePicture, Wanted, String)>,
}

impl Samples {
    /// The same with the pictures that there are.
    pub fn pictured(mut self, pictures: &SamplePictures) -> Self {
        let picture = |(of, told): &(Wanted, String)| {
            Some((pictures.of(of)?.clone(), of.clone(), told.clone()))
        };
        self.pictures = self.rows.iter().take(pictures.each()).filter_map(picture).collect();
        self
    }
}

/// One label of one image, or the class of one.
#[derive(Debug, Clone, Copy)]
struct Sample {
    image: usize,
    label: usize,
    /// The probability of what is true; less the error, for numbers.
    right: f64,
    /// How far the decision is from a toss-up.
    sure: f64,
    /// Whether it is worth showing when it is right: absent findings are not.
    telling: bool,
}

/// A head's outputs, and what they say.
struct Outputs<'a> {
    table: &'a PredictionTable,
    head: &'a HeadPredictions,
    /// `[images, labels]`: probabilities, or numbers.
    values: &'a [f64],
}

/// The best, the worst and the most uncertain of a head's images. `values` are `[images, labels]`:
/// probabilities, or numbers.
pub fn samples(
    name: &str,
    table: &PredictionTable,
    head: &HeadPredictions,
    values: &[f64],
) -> Vec<Samples> {
    let outputs = Outputs { table, head, values };
    let telling = outputs.known().filter(|sample| sample.telling);
    let best = least(telling, |sample| -sample.right);
    let worst = least(outputs.known(), |sample| sample.right);
    let shown = |caption: &str, samples: &[Sample]| outputs.shown(name, caption, samples);
    let mut tables = match head.task {
        Task::Regression => {
            vec![shown("nearest to the truth", &best), shown("farthest from the truth", &worst)]
        }
        _ => {
            let unsure = least(outputs.known(), |sample| sample.sure);
            vec![
                shown("right and most sure", &best),
                shown("wrong, or right and least sure", &worst),
                shown("most uncertain", &unsure),
            ]
        }
    };
    tables.retain(|samples: &Samples| !samples.rows.is_empty());
    tables
}

/// The samples with the least keys, in their order; of equal ones the first.
fn least(samples: impl Iterator<Item = Sample>, key: impl Fn(&Sample) -> f64) -> Vec<Sample> {
    let mut kept: Vec<Sample> = Vec::new();
    for sample in samples {
        let place = kept.partition_point(|other| key(other) <= key(&sample));
        if place < ROWS {
            kept.truncate(ROWS - 1);
            kept.insert(place, sample);
        }
    }
    kept
}

impl Outputs<'_> {
    fn row(&self, image: usize) -> &[f64] {
        let labels = self.head.labels.len();
        &self.values[image * labels..(image + 1) * labels]
    }

    /// What is true of a label of an image, or the number of its class.
    fn truth(&self, image: usize, label: usize) -> f64 {
        f64::from(self.head.targets.values[image * self.head.targets.width + label])
    }

    /// Every label of every image whose truth is known; of `multiclass` heads every image.
    fn known(&self) -> impl Iterator<Item = Sample> {
        let width = self.head.targets.width;
        let all = (0..self.head.targets.mask.len()).filter(|&at| self.head.targets.mask[at] != 0.0);
        all.map(move |at| self.sample(at / width, at % width))
    }

    fn sample(&self, image: usize, label: usize) -> Sample {
        let (row, truth) = (self.row(image), self.truth(image, label));
        let (right, sure, telling) = match self.head.task {
            Task::Regression => (-(row[label] - truth).abs(), 0.0, true),
            Task::Multiclass => {
                let [first, second] = likeliest(row);
                let second = second.map_or(0.0, |class| row[class]);
                (row[truth as usize], first.map_or(0.0, |class| row[class]) - second, true)
            }
            _ => {
                let positive = truth >= 0.5;
                let right = if positive { row[label] } else { 1.0 - row[label] };
                (right, (row[label] - 0.5).abs(), positive)
            }
        };
        Sample { image, label, right, sure, telling }
    }

    fn shown(&self, name: &str, caption: &str, samples: &[Sample]) -> Samples {
        let labels = &self.head.labels;
        let is_class = self.head.task == Task::Multiclass;
        let label = (!is_class).then_some("label");
        let titles = ["image", "patient"].into_iter().chain(label).chain(["truth", "predicted"]);
        let mut table = Table::new(format!("{name}: {caption}"), titles, 1);
        let mut rows = Vec::new();
        for &Sample { image, label, .. } in samples {
            let (row, truth) = (self.row(image), self.truth(image, label));
            let (path, patient) = (&self.table.paths[image], &self.table.patients[image]);
            let (shown, [truth, predicted]) = match self.head.task {
                Task::Regression => (label, [format!("{truth:.4}"), format!("{:.4}", row[label])]),
                Task::Multiclass => {
                    let class = likeliest(row)[0].unwrap_or_default();
                    let decided = format!("{} {:.4}", labels[class], row[class]);
                    (class, [labels[truth as usize].clone(), decided])
                }
                _ => {
                    let truth = if truth >= 0.5 { "present" } else { "absent" };
                    (label, [truth.to_owned(), format!("{:.4}", row[label])])
                }
            };
            let told = match is_class {
                true => format!("truth {truth}, predicted {predicted}"),
                false => format!("{}: truth {truth}, predicted {predicted}", labels[label]),
            };
            let (head, label_of) = (name.to_owned(), labels[shown].clone());
            rows.push((Wanted { head, label: label_of, image: path.clone() }, told));
            let cells = [path.clone(), patient.clone()].into_iter();
            let cells = cells.chain((!is_class).then(|| labels[label].clone()));
            table.rows.push(cells.chain([truth, predicted]).collect());
        }
        Samples { table, rows, pictures: Vec::new() }
    }
}

/// The two classes with the greatest probabilities; of equal ones the first.
fn likeliest(row: &[f64]) -> [Option<usize>; 2] {
    let best = |but: Option<usize>| {
        let classes = (0..row.len()).filter(|class| Some(*class) != but);
        classes.reduce(|best, class| if row[class] > row[best] { class } else { best })
    };
    let first = best(None);
    [first, best(first)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Targets;

    fn table(images: usize) -> PredictionTable {
        PredictionTable {
            paths: (0..images).map(|image| format!("{image}.png")).collect(),
            patients: (0..images).map(|image| format!("p{image}")).collect(),
            heads: Default::default(),
        }
    }

    fn head(
        task: Task,
        labels: &[&str],
        values: &[f32],
        mask: &[f32],
        width: usize,
    ) -> HeadPredictions {
        HeadPredictions {
            task,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            outputs: Vec::new(),
            targets: Targets { values: values.to_vec(), mask: mask.to_vec(), width },
        }
    }

    fn images(samples: &Samples) -> Vec<&str> {
        samples.table.rows.iter().map(|row| row[0].as_str()).collect()
    }

    #[test]
    fn labels_are_ranked_by_the_probability_of_the_truth_and_unknown_ones_left_out() {
        let head = head(
            Task::Binary,
            &["Edema"],
            &[1.0, 0.0, 1.0, 0.0, 1.0],
            &[1.0, 1.0, 1.0, 1.0, 0.0],
            1,
        );
        let tables = samples("findings", &table(5), &head, &[0.9, 0.7, 0.4, 0.1, 0.5]);
        // 0: present 0.9; 1: absent 0.7; 2: present 0.4; 3: absent 0.1.
        assert_eq!(images(&tables[0]), ["0.png", "2.png"]);
        assert_eq!(images(&tables[1]), ["1.png", "2.png", "0.png", "3.png"]);
        assert_eq!(images(&tables[2])[0], "2.png");
        assert_eq!(tables[1].table.rows[0], ["1.png", "p1", "Edema", "absent", "0.7000"]);
    }

    #[test]
    fn classes_are_unsure_where_the_two_likeliest_are_close() {
        let head = head(Task::Multiclass, &["PA", "AP"], &[0.0, 1.0], &[1.0, 1.0], 1);
        let tables = samples("view", &table(2), &head, &[0.55, 0.45, 0.8, 0.2]);
        assert_eq!(tables[1].table.rows[0], ["1.png", "p1", "AP", "PA 0.8000"]);
        assert_eq!(images(&tables[2]), ["0.png", "1.png"]);
    }

    #[test]
    fn numbers_are_ranked_by_their_error() {
        let head = head(Task::Regression, &["age"], &[50.0, 60.0], &[1.0, 1.0], 1);
        let tables = samples("age", &table(2), &head, &[70.0, 61.0]);
        assert_eq!(tables.len(), 2);
        assert_eq!((images(&tables[0])[0], images(&tables[1])[0]), ("1.png", "0.png"));
    }
}
