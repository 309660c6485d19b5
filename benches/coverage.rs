//! How often the 95% intervals of an AUROC hold the true one, by simulation.
//!
//! `cargo bench --bench coverage` prints the tables of docs/evaluation.md in some minutes; `-- 200` draws
//! 200 data sets of each kind instead of 4000. The draws are fixed. The second table is of a grid: patients,
//! share of positives, images of a patient and AUROC, without the bootstrap.
//!
//! Scores are normal with variance 1; those of positives lie higher, so that the AUROC over images of
//! different patients is the one in the table. A patient has one to five images, which share a part of
//! their score (correlation 0.5) and, where patients are said to be ill, their truth too. The truth of
//! an image is else drawn by itself.
#![expect(clippy::print_stdout, reason = "a program that measures")]

use rand::RngExt;
use rand_distr::StandardNormal;
use trainer::evaluate::bootstrap::Basis;
use trainer::evaluate::{Delong, Range, Scale, Undefined, bootstrap, compare};
use trainer::metric::{Link, Resampler};
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

const METHODS: [Method; 7] = [
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
        let images = drawn.positive.iter().copied().enumerate();
        let freedom = bootstrap::freedom_of_classes(&groups, images);
        let basis = Basis { link: Link::Logit, freedom };
        bootstrap::range(&groups, RESAMPLES, basis, |times| ranked.auroc(times))
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
    print(&kinds, &METHODS, sets);
    println!();
    print(&grid(), &METHODS[2..5], sets);
}

/// The share of intervals that hold the truth, of `sets` data sets of each kind.
fn print(kinds: &[Kind], methods: &[Method], sets: u64) {
    let names: Vec<&str> = methods.iter().map(|(name, ..)| *name).collect();
    println!("| data | {} |\n|---|{}", names.join(" | "), "--:|".repeat(methods.len()));
    let mut extremes = vec![[f64::INFINITY, f64::NEG_INFINITY]; methods.len()];
    for (number, kind) in kinds.iter().enumerate() {
        let shares = methods.iter().zip(&mut extremes).map(|(method, [least, most])| {
            let (_, of_difference, range) = *method;
            let truth = if of_difference { 0.0 } else { kind.auroc };
            // A data set without an interval counts as one whose interval does not hold the truth.
            let holds = |set: &u64| {
                let range = range(&draw(kind, [number as u64, *set]), *set);
                range.is_ok_and(|range| range.low <= truth && truth <= range.high)
            };
            let held = (0..sets).filter(holds).count();
            let share = 100.0 * held as f64 / sets as f64;
            (*least, *most) = (least.min(share), most.max(share));
            format!("{share:.1}%")
        });
        println!("| {} | {} |", kind.name, shares.collect::<Vec<_>>().join(" | "));
    }
    let all = extremes.iter().map(|[least, most]| format!("{least:.1}% to {most:.1}%"));
    println!("| all | {} |", all.collect::<Vec<_>>().join(" | "));
}
