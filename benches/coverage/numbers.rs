//! What an evaluation and a comparison of a number tell with intervals.

use std::collections::BTreeMap;

use rand::RngExt;
use rand_distr::{Exp1, StandardNormal};
use trainer::data::Targets;
use trainer::evaluate::{Measured, MetricTable, Settings, compare_heads, evaluate};
use trainer::metric::HeadPredictions;
use trainer::model::Task;
use trainer::random;

use crate::kinds::Kind;
use crate::{CORRELATION, Found, RESAMPLES};

const DEVIATION: f64 = 0.6;

pub const NAMES: [&str; 5] = ["MAE", "RMSE", "R²", "difference of MAEs", "difference of RMSEs"];

/// Images with two models' outputs.
struct Numbers {
    values: Vec<f32>,
    outputs: [Vec<f64>; 2],
    patients: Vec<usize>,
}

fn draw_numbers(kind: &Kind, place: [u64; 2]) -> Numbers {
    let mut random = random::stream(3, "coverage", &place);
    let mut drawn = Numbers { values: vec![], outputs: [vec![], vec![]], patients: vec![] };
    for patient in 0..kind.patients {
        let images = random.random_range(1..=kind.most_images);
        let number: f64 = random.sample(StandardNormal);
        // With a variance of 1.
        let mut error = || {
            if !kind.laplace {
                return random.sample::<f64, _>(StandardNormal);
            }
            let size: f64 = random.sample(Exp1);
            if random.random_bool(0.5) { size / 2_f64.sqrt() } else { -size / 2_f64.sqrt() }
        };
        let shared = [error(), error()];
        for _ in 0..images {
            drawn.patients.push(patient);
            drawn.values.push(number as f32);
            for (outputs, shared) in drawn.outputs.iter_mut().zip(shared) {
                let error = match kind.most_images {
                    1 => shared,
                    _ => CORRELATION.sqrt() * shared + (1.0 - CORRELATION).sqrt() * error(),
                };
                outputs.push(number + DEVIATION * error);
            }
        }
    }
    drawn
}

/// The mean of the absolute errors, where they have a deviation of 1.
fn absolute(kind: &Kind) -> f64 {
    match (kind.laplace, kind.most_images) {
        (false, _) => (2.0 / std::f64::consts::PI).sqrt(),
        (true, 1) => 0.5_f64.sqrt(),
        // Of the sum of two with scale ½ each, whose density is (1 + 2 |x|) e^(−2 |x|) / 2.
        (true, _) => 0.75,
    }
}

pub fn draw(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    let Numbers { values, outputs, patients } = draw_numbers(kind, place);
    let settings = Settings { resamples: RESAMPLES, seed: place[1], ..Settings::default() };
    let name = vec!["number".to_owned()];
    let measured = |model: usize| Measured {
        task: Task::Regression,
        labels: name.clone(),
        values: outputs[model].clone(),
        truth: values.iter().map(|&value| Some(f64::from(value))).collect(),
    };
    let pair = compare_heads(&measured(0), &measured(1), &patients, &settings).expect("one label");
    let less = |metric: &str| {
        let found = pair.metrics[metric].mean;
        (found.low.zip(found.high), 0.0)
    };
    let (mae, rmse) = (less("mae"), less("rmse"));
    let predictions = HeadPredictions {
        task: Task::Regression,
        labels: name.clone(),
        outputs: outputs[0].iter().map(|&output| output as f32).collect(),
        targets: Targets { mask: vec![1.0; values.len()], values: values.clone(), width: 1 },
    };
    let heads = BTreeMap::from([("all".to_owned(), predictions)]);
    let found = &evaluate(&heads, &patients, None, &settings)["all"];
    let of = |table: &Option<MetricTable>| table.as_ref().and_then(|one| one.low.zip(one.high));
    vec![
        (of(&found.mae), DEVIATION * absolute(kind)),
        (of(&found.rmse), DEVIATION),
        (of(&found.r2), 1.0 - DEVIATION * DEVIATION),
        mae,
        rmse,
    ]
}
