//! What an evaluation and a comparison of five labels tell with intervals.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_distr::StandardNormal;
use trainer::data::Targets;
use trainer::evaluate::{
    Measured, MetricComparison, MetricTable, Settings, compare_heads, evaluate,
};
use trainer::metric::HeadPredictions;
use trainer::model::Task;
use trainer::random;

use crate::kinds::Kind;
use crate::{CORRELATION, Found, RESAMPLES};

/// The area under precision over recall of `kind`, by the trapezoid rule over scores.
fn auprc(kind: &Kind) -> f64 {
    let above = |score: f64| 0.5 * libm::erfc(score / 2_f64.sqrt());
    let density = |score: f64| (-score * score / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let [shift, _] = kind.shifts();
    let area = |score: f64| {
        let right = kind.positive * above(score - shift);
        density(score - shift) * right / (right + (1.0 - kind.positive) * above(score))
    };
    (-8000..10_000).map(|place| f64::from(place) * 1e-3).map(area).sum::<f64>() * 1e-3
}

const LABELS: usize = 5;

/// Two models' scores for five labels of the same images, and the truth.
struct Labels {
    scores: [Vec<f64>; 2],
    positive: Vec<bool>,
    patients: Vec<usize>,
}

fn draw_labels(kind: &Kind, place: [u64; 2]) -> Labels {
    let mut random = random::stream(2, "coverage", &place);
    let [shift, _] = kind.shifts();
    let mut drawn = Labels { scores: [vec![], vec![]], positive: vec![], patients: vec![] };
    for patient in 0..kind.patients {
        let images = random.random_range(1..=kind.most_images);
        let of_all: f64 = random.sample(StandardNormal);
        let of_label: Vec<(bool, f64)> = (0..LABELS)
            .map(|_| {
                let own: f64 = random.sample(StandardNormal);
                (random.random_bool(kind.positive), (of_all + own) / 2_f64.sqrt())
            })
            .collect();
        for _ in 0..images {
            drawn.patients.push(patient);
            for &(ill, shared) in &of_label {
                let positive = if kind.ill { ill } else { random.random_bool(kind.positive) };
                let image: f64 = random.sample(StandardNormal);
                drawn.positive.push(positive);
                for scores in &mut drawn.scores {
                    let own = (image + random.sample::<f64, _>(StandardNormal)) / 2_f64.sqrt();
                    let shift = if positive { shift } else { 0.0 };
                    let noise = CORRELATION.sqrt() * shared + (1.0 - CORRELATION).sqrt() * own;
                    scores.push(shift + noise);
                }
            }
        }
    }
    drawn
}

fn labels() -> Vec<String> {
    (0..LABELS).map(|label| format!("label {label}")).collect()
}

impl Labels {
    fn predictions(&self) -> HeadPredictions {
        let values: Vec<f32> = self.positive.iter().map(|&one| f32::from(u8::from(one))).collect();
        HeadPredictions {
            task: Task::Multilabel,
            labels: labels(),
            outputs: self.scores[0].iter().map(|&score| score as f32).collect(),
            targets: Targets { mask: vec![1.0; values.len()], values, width: LABELS },
        }
    }

    fn measured(&self, model: usize) -> Measured {
        let probability = |score: &f64| 1.0 / (1.0 + (-score).exp());
        let truth = self.positive.iter().map(|&one| Some(f64::from(u8::from(one))));
        Measured {
            task: Task::Multilabel,
            labels: labels(),
            values: self.scores[model].iter().map(probability).collect(),
            truth: truth.collect(),
        }
    }
}

pub const NAMES: [&str; 5] = [
    "AUROC of a label",
    "of a label, by the bootstrap",
    "AUPRC of a label",
    "mean AUROC",
    "mean AUPRC",
];

pub const DIFFERENCES: [&str; 5] =
    ["AUROC of a label", "AUPRC of a label", "Brier score of a label", "mean AUROC", "mean AUPRC"];

/// Of one model.
pub fn draw(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    let drawn = draw_labels(kind, place);
    let settings = Settings { resamples: RESAMPLES, seed: place[1], ..Settings::default() };
    let heads = BTreeMap::from([("all".to_owned(), drawn.predictions())]);
    let found = &evaluate(&heads, &drawn.patients, None, &settings)["all"];
    let [auroc, auprc_] = [&found.auroc, &found.auprc].map(|table| table.as_ref().expect("labels"));
    let label = &labels()[0];
    let mean = |table: &MetricTable| table.low.zip(table.high);
    let own = |table: &MetricTable| table.labels[label].low.zip(table.labels[label].high);
    let boot = heads["all"].intervals(place[1], RESAMPLES, Some(&drawn.patients));
    let boot = boot[&format!("auroc/{label}")].map(|interval| (interval.low, interval.high));
    let area = auprc(kind);
    vec![
        (own(auroc), kind.aurocs[0]),
        (boot, kind.aurocs[0]),
        (own(auprc_), area),
        (mean(auroc), kind.aurocs[0]),
        (mean(auprc_), area),
    ]
}

/// Of two models that are equally good.
pub fn draw_two(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    let drawn = draw_labels(kind, place);
    let settings = Settings { resamples: RESAMPLES, seed: place[1], ..Settings::default() };
    let [first, second] = [0, 1].map(|model| drawn.measured(model));
    let pair = compare_heads(&first, &second, &drawn.patients, &settings).expect("the same labels");
    let label = &labels()[0];
    let less = |one: MetricComparison| (one.low.zip(one.high), 0.0);
    let own = |metric: &str| less(pair.metrics[metric].labels[label]);
    let mean = |metric: &str| less(pair.metrics[metric].mean);
    vec![own("auroc"), own("auprc"), own("brier"), mean("auroc"), mean("auprc")]
}
