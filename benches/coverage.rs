//! How often 95% intervals hold the true value of what they are about, by simulation.
//!
//! `cargo bench --bench coverage` prints the tables of docs/evaluation.md in some minutes; `-- 200` draws
//! 200 data sets of each kind instead of 4000. The draws are fixed. The second table is of a grid: patients,
//! share of positives, images of a patient and AUROC, without the bootstrap. The third and the fourth are of what the
//! program takes from the bootstrap, in a quarter of the data sets: a label's AUPRC, means over five labels, differences
//! of two models, and errors of a number.
//!
//! Scores are normal with variance 1; those of positives lie higher, so that the AUROC over images of
//! different patients is the one in the table. A patient has one to five images, which share a part of
//! their score (correlation 0.5) and, where patients are said to be ill, their truth too. The truth of
//! an image is else drawn by itself. The five labels of a mean share half of what a patient shares. A number is normal with
//! variance 1, its errors with a deviation of 0.6.
#![expect(clippy::print_stdout, reason = "a program that measures")]

use std::collections::BTreeMap;

use rand::RngExt;
use rand_distr::StandardNormal;
use trainer::data::Targets;
use trainer::evaluate::bootstrap::Basis;
use trainer::evaluate::{
    Delong, Measured, MetricComparison, MetricTable, Range, Scale, Settings, Undefined, bootstrap,
    compare, compare_heads, evaluate,
};
use trainer::metric::{HeadPredictions, Link, Resampler};
use trainer::model::Task;
use trainer::random;

const DATA_SETS: u64 = 4000;
const RESAMPLES: usize = 1000;
const CORRELATION: f64 = 0.5;

/// How data sets are drawn.
struct Kind {
    name: String,
    patients: usize,
    most_images: usize,
    /// The share of positives.
    positive: f64,
    /// Whether all images of a patient have one truth.
    ill: bool,
    auroc: f64,
    /// By how much positives lie higher: √2 times the normal quantile of the AUROC.
    shift: f64,
}

fn kind(name: &str, patients: usize, most_images: usize, positive: f64) -> Kind {
    let name = name.to_owned();
    Kind { name, patients, most_images, positive, ill: false, auroc: 0.8, shift: SHIFT_80 }
}

/// Every combination of the grid. Fewer than nine patients with positives are too few to say much.
fn grid() -> Vec<Kind> {
    let sizes = [(30, 0.3), (30, 0.5), (60, 0.3), (60, 0.5), (100, 0.1), (100, 0.3), (100, 0.5)];
    let sizes = sizes.into_iter().chain([(300, 0.05), (300, 0.1), (300, 0.3), (300, 0.5)]);
    let shapes = [(1, true, "1 image"), (5, false, "1 to 5 images"), (5, true, "1 to 5, ill")];
    let aurocs = [(0.7, SHIFT_70), (0.8, SHIFT_80), (0.9, SHIFT_90), (0.95, SHIFT_95)];
    let mut kinds = Vec::new();
    for (patients, positive) in sizes {
        for (most_images, ill, images) in shapes {
            for (auroc, shift) in aurocs {
                let share = 100.0 * positive;
                let name = format!("{patients} of {images}, {share:.0}%, {auroc}");
                kinds.push(Kind { name, patients, most_images, positive, ill, auroc, shift });
            }
        }
    }
    kinds
}

const SHIFT_70: f64 = 0.741_614_317_187_115_8;
const SHIFT_90: f64 = 1.812_387_604_873_646_5;
const SHIFT_80: f64 = 1.190_232_162_899_99;
const SHIFT_95: f64 = 2.326_174_307_353_347_6;

/// One data set, with the scores of two models that are equally good.
struct Drawn {
    first: Vec<f64>,
    second: Vec<f64>,
    positive: Vec<bool>,
    patients: Vec<usize>,
}

fn draw(kind: &Kind, place: [u64; 2]) -> Drawn {
    let mut random = random::stream(1, "coverage", &place);
    let mut drawn = Drawn { first: vec![], second: vec![], positive: vec![], patients: vec![] };
    for patient in 0..kind.patients {
        let images = random.random_range(1..=kind.most_images);
        let ill = random.random_bool(kind.positive);
        let shared: f64 = random.sample(StandardNormal);
        for _ in 0..images {
            let positive = if kind.ill { ill } else { random.random_bool(kind.positive) };
            // Half of what is an image's own is the image's, the other half the model's.
            let image: f64 = random.sample(StandardNormal);
            let mut score = || {
                let own = (image + random.sample::<f64, _>(StandardNormal)) / 2_f64.sqrt();
                let shift = if positive { kind.shift } else { 0.0 };
                shift + CORRELATION.sqrt() * shared + (1.0 - CORRELATION).sqrt() * own
            };
            drawn.first.push(score());
            drawn.second.push(score());
            drawn.positive.push(positive);
            drawn.patients.push(patient);
        }
    }
    drawn
}

/// A way to an interval: its name, whether it is of a difference (which is 0), and the interval.
type Method = (&'static str, bool, fn(&Drawn, u64) -> Result<Range, Undefined>);

fn delong(drawn: &Drawn, clustered: bool, scale: Scale) -> Result<Range, Undefined> {
    let clusters = clustered.then_some(&drawn.patients[..]);
    Delong::new(&drawn.first, &drawn.positive, clusters)?.range(scale)
}

const METHODS: [Method; 8] = [
    ("plain DeLong, logit", false, |drawn, _| delong(drawn, false, Scale::Logit)),
    ("plain DeLong, plain", false, |drawn, _| delong(drawn, false, Scale::Plain)),
    ("clustered DeLong, logit", false, |drawn, _| delong(drawn, true, Scale::Logit)),
    ("clustered DeLong, score", false, |drawn, _| delong(drawn, true, Scale::Score)),
    ("clustered DeLong, plain", false, |drawn, _| delong(drawn, true, Scale::Plain)),
    ("clustered difference of two", true, |drawn, _| {
        let clusters = Some(&drawn.patients[..]);
        compare(&drawn.first, &drawn.second, &drawn.positive, clusters).map(|found| found.range)
    }),
    ("bootstrap over patients", false, |drawn, seed| {
        let groups = Resampler::new(drawn.positive.len(), Some(&drawn.patients), seed);
        let ranked = Ranked::new(drawn);
        let freedom =
            bootstrap::freedom_of_classes(&groups, drawn.positive.iter().copied().enumerate());
        let basis = Basis { link: Link::Logit, freedom };
        bootstrap::range(&groups, RESAMPLES, basis, |times| ranked.auroc(times))
    }),
    ("its quantiles alone", false, |drawn, seed| {
        let groups = Resampler::new(drawn.positive.len(), Some(&drawn.patients), seed);
        let ranked = Ranked::new(drawn);
        let found = groups.each(RESAMPLES, |times| ranked.auroc(times));
        let mut found: Vec<f64> = found.into_iter().flatten().collect();
        found.sort_unstable_by(f64::total_cmp);
        let quantile = |share: f64| found.get((share * (found.len() - 1) as f64).round() as usize);
        let ends = (quantile(0.025), quantile(0.975));
        let (Some(&low), Some(&high)) = ends else { return Err(Undefined::EveryResample) };
        Ok(Range { low, high })
    }),
];

/// Images in the order of their scores, which are all different.
struct Ranked(Vec<(usize, bool)>);

impl Ranked {
    fn new(drawn: &Drawn) -> Self {
        let mut images: Vec<usize> = (0..drawn.first.len()).collect();
        images.sort_by(|&a, &b| drawn.first[a].total_cmp(&drawn.first[b]));
        Self(images.into_iter().map(|image| (image, drawn.positive[image])).collect())
    }

    fn auroc(&self, times: &[u64]) -> Option<f64> {
        let (mut positives, mut negatives, mut right) = (0, 0, 0);
        for &(image, positive) in &self.0 {
            if positive {
                positives += times[image];
                right += times[image] * negatives;
            } else {
                negatives += times[image];
            }
        }
        let pairs = positives * negatives;
        (pairs > 0).then(|| right as f64 / pairs as f64)
    }
}

/// The area under precision over recall of `kind`, by the trapezoid rule over scores.
fn auprc(kind: &Kind) -> f64 {
    let above = |score: f64| 0.5 * libm::erfc(score / 2_f64.sqrt());
    let density = |score: f64| (-score * score / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let area = |score: f64| {
        let right = kind.positive * above(score - kind.shift);
        density(score - kind.shift) * right / (right + (1.0 - kind.positive) * above(score))
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
                    let shift = if positive { kind.shift } else { 0.0 };
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

/// An interval's ends where there is one, and what it should hold.
type Found = (Option<(f64, f64)>, f64);

const OF_LABELS: [&str; 6] = [
    "AUPRC of a label",
    "mean AUROC",
    "mean AUPRC",
    "difference of mean AUROCs",
    "of a label's AUPRCs",
    "of a label's Brier scores",
];

fn of_labels(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    let drawn = draw_labels(kind, place);
    let settings = Settings { resamples: RESAMPLES, seed: place[1], ..Settings::default() };
    let heads = BTreeMap::from([("all".to_owned(), drawn.predictions())]);
    let found = &evaluate(&heads, &drawn.patients, None, &settings)["all"];
    let [first, second] = [0, 1].map(|model| drawn.measured(model));
    let pair = compare_heads(&first, &second, &drawn.patients, &settings).expect("the same labels");
    let label = &labels()[0];
    let mean = |table: &MetricTable| table.low.zip(table.high);
    let [auroc, auprc_] = [&found.auroc, &found.auprc].map(|table| table.as_ref().expect("labels"));
    let less = |one: MetricComparison| (one.low.zip(one.high), 0.0);
    let one = auprc_.labels[label];
    let area = auprc(kind);
    vec![
        (one.low.zip(one.high), area),
        (mean(auroc), kind.auroc),
        (mean(auprc_), area),
        less(pair.metrics["auroc"].mean),
        less(pair.metrics["auprc"].labels[label]),
        less(pair.metrics["brier"].labels[label]),
    ]
}

const DEVIATION: f64 = 0.6;
const OF_NUMBERS: [&str; 4] = ["MAE", "RMSE", "R²", "difference of MAEs"];

fn of_numbers(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    let mut random = random::stream(3, "coverage", &place);
    let (mut values, mut patients) = (vec![], vec![]);
    let mut outputs = [vec![], vec![]];
    for patient in 0..kind.patients {
        let images = random.random_range(1..=kind.most_images);
        let number: f64 = random.sample(StandardNormal);
        let shared: [f64; 2] = [random.sample(StandardNormal), random.sample(StandardNormal)];
        for _ in 0..images {
            patients.push(patient);
            values.push(number as f32);
            for (outputs, shared) in outputs.iter_mut().zip(shared) {
                let own: f64 = random.sample(StandardNormal);
                let error = CORRELATION.sqrt() * shared + (1.0 - CORRELATION).sqrt() * own;
                outputs.push(number + DEVIATION * error);
            }
        }
    }
    let settings = Settings { resamples: RESAMPLES, seed: place[1], ..Settings::default() };
    let name = vec!["number".to_owned()];
    let measured = |model: usize| Measured {
        task: Task::Regression,
        labels: name.clone(),
        values: outputs[model].clone(),
        truth: values.iter().map(|&value| Some(f64::from(value))).collect(),
    };
    let pair = compare_heads(&measured(0), &measured(1), &patients, &settings).expect("one label");
    let less = pair.metrics["mae"].mean;
    let predictions = HeadPredictions {
        task: Task::Regression,
        labels: name,
        outputs: outputs[0].iter().map(|&output| output as f32).collect(),
        targets: Targets { mask: vec![1.0; values.len()], values, width: 1 },
    };
    let heads = BTreeMap::from([("all".to_owned(), predictions)]);
    let found = &evaluate(&heads, &patients, None, &settings)["all"];
    let of = |table: &Option<MetricTable>| table.as_ref().and_then(|one| one.low.zip(one.high));
    vec![
        (of(&found.mae), DEVIATION * (2.0 / std::f64::consts::PI).sqrt()),
        (of(&found.rmse), DEVIATION),
        (of(&found.r2), 1.0 - DEVIATION * DEVIATION),
        (less.low.zip(less.high), 0.0),
    ]
}

fn main() {
    let asked = std::env::args().find_map(|argument| argument.parse::<u64>().ok());
    let kinds = [
        kind("200 patients of 1 image, 50% positive", 200, 1, 0.5),
        kind("500 patients of 1 image, 10% positive", 500, 1, 0.1),
        Kind {
            auroc: 0.95,
            shift: SHIFT_95,
            ..kind("200 patients of 1 image, 30% positive, AUROC 0.95", 200, 1, 0.3)
        },
        kind("200 patients of 1 to 5 images, 30% positive", 200, 5, 0.3),
        Kind { ill: true, ..kind("200 patients of 1 to 5 images, 30% ill", 200, 5, 0.3) },
        Kind {
            ill: true,
            auroc: 0.95,
            shift: SHIFT_95,
            ..kind("200 patients of 1 to 5 images, 30% ill, AUROC 0.95", 200, 5, 0.3)
        },
        kind("1000 patients of 1 image, 2% positive", 1000, 1, 0.02),
        Kind { ill: true, ..kind("1000 patients of 1 to 5 images, 5% ill", 1000, 5, 0.05) },
        kind("40 patients of 1 image, 50% positive", 40, 1, 0.5),
        Kind { ill: true, ..kind("60 patients of 1 to 5 images, 30% ill", 60, 5, 0.3) },
        Kind { ill: true, ..kind("30 patients of 1 to 5 images, 30% ill", 30, 5, 0.3) },
        Kind {
            auroc: 0.95,
            shift: SHIFT_95,
            ..kind("60 patients of 1 image, 30% positive, AUROC 0.95", 60, 1, 0.3)
        },
    ];
    let sets = asked.unwrap_or(DATA_SETS);
    let of_method = |method: &Method, kind: &Kind, place: [u64; 2]| {
        let (_, of_difference, range) = *method;
        let found = range(&draw(kind, place), place[1]).ok();
        let truth = if of_difference { 0.0 } else { kind.auroc };
        (found.map(|range| (range.low, range.high)), truth)
    };
    for (kinds, methods) in [(&kinds[..], &METHODS[..]), (&grid()[..], &METHODS[2..5])] {
        let names: Vec<&str> = methods.iter().map(|(name, ..)| *name).collect();
        print(kinds, &names, sets, |kind, place| {
            methods.iter().map(|method| of_method(method, kind, place)).collect()
        });
    }
    print(&kinds, &OF_LABELS, sets / 4, of_labels);
    let sizes = [(200, 1), (200, 5), (60, 1), (60, 5), (30, 1), (30, 5)];
    let sizes = sizes.map(|(patients, most)| {
        let images = if most == 1 { "1 image" } else { "1 to 5 images" };
        kind(&format!("{patients} patients of {images}"), patients, most, 0.5)
    });
    print(&sizes, &OF_NUMBERS, sets / 4, of_numbers);
}

/// The share of intervals that hold the truth, of `sets` data sets of each kind.
fn print(kinds: &[Kind], names: &[&str], sets: u64, found: impl Fn(&Kind, [u64; 2]) -> Vec<Found>) {
    println!("| data | {} |\n|---|{}", names.join(" | "), "--:|".repeat(names.len()));
    let mut extremes = vec![[f64::INFINITY, f64::NEG_INFINITY]; names.len()];
    for (number, kind) in kinds.iter().enumerate() {
        let mut held = vec![0_u64; names.len()];
        for set in 0..sets {
            // A data set without an interval counts as one whose interval does not hold the truth.
            let holds = |(range, truth): Found| {
                range.is_some_and(|(low, high)| low <= truth && truth <= high)
            };
            let found = found(kind, [number as u64, set]).into_iter().map(holds);
            held.iter_mut().zip(found).for_each(|(held, holds)| *held += u64::from(holds));
        }
        let shares: Vec<f64> = held.iter().map(|&n| 100.0 * n as f64 / sets as f64).collect();
        for (share, [least, most]) in shares.iter().zip(&mut extremes) {
            (*least, *most) = (least.min(*share), most.max(*share));
        }
        let shares: Vec<String> = shares.iter().map(|share| format!("{share:.1}%")).collect();
        println!("| {} | {} |", kind.name, shares.join(" | "));
    }
    let all = extremes.iter().map(|[least, most]| format!("{least:.1}% to {most:.1}%"));
    println!("| all | {} |\n", all.collect::<Vec<_>>().join(" | "));
}
