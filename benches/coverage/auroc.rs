//! Ways to the interval of a label's AUROC.

use rand::RngExt;
use rand_distr::StandardNormal;
use trainer::evaluate::bootstrap::{self, Basis};
use trainer::evaluate::{Delong, Range, Scale, Undefined, compare};
use trainer::metric::{Link, Resampler};
use trainer::random;

use crate::kinds::Kind;
use crate::{CORRELATION, Found, RESAMPLES};

/// One data set, with the scores of two models.
pub struct Drawn {
    first: Vec<f64>,
    second: Vec<f64>,
    positive: Vec<bool>,
    patients: Vec<usize>,
}

fn draw(kind: &Kind, place: [u64; 2]) -> Drawn {
    let mut random = random::stream(1, "coverage", &place);
    let shifts = kind.shifts();
    let mut drawn = Drawn { first: vec![], second: vec![], positive: vec![], patients: vec![] };
    for patient in 0..kind.patients {
        let images = random.random_range(1..=kind.most_images);
        let ill = random.random_bool(kind.positive);
        let shared: f64 = random.sample(StandardNormal);
        for _ in 0..images {
            let positive = if kind.ill { ill } else { random.random_bool(kind.positive) };
            // Half of what is an image's own is the image's, the other half the model's.
            let image: f64 = random.sample(StandardNormal);
            let mut score = |model: usize| {
                let own = (image + random.sample::<f64, _>(StandardNormal)) / 2_f64.sqrt();
                let deviation = CORRELATION.sqrt() * shared + (1.0 - CORRELATION).sqrt() * own;
                if positive { shifts[model] + kind.spreads[model] * deviation } else { deviation }
            };
            drawn.first.push(score(0));
            drawn.second.push(score(1));
            drawn.positive.push(positive);
            drawn.patients.push(patient);
        }
    }
    drawn
}

/// A way to an interval: its name, whether it is of the difference of both and not of the first, and the interval.
pub type Method = (&'static str, bool, fn(&Drawn, u64) -> Result<Range, Undefined>);

fn delong(drawn: &Drawn, clustered: bool, scale: Scale) -> Result<Range, Undefined> {
    let clusters = clustered.then_some(&drawn.patients[..]);
    Delong::new(&drawn.first, &drawn.positive, clusters)?.range(scale)
}

fn difference(drawn: &Drawn, scale: Scale) -> Result<Range, Undefined> {
    let Drawn { first, second, positive, patients } = drawn;
    compare(first, second, positive, Some(patients), scale).map(|found| found.range)
}

pub const METHODS: [Method; 9] = [
    ("plain DeLong, logit", false, |drawn, _| delong(drawn, false, Scale::Logit)),
    ("plain DeLong, plain", false, |drawn, _| delong(drawn, false, Scale::Plain)),
    ("clustered DeLong, logit", false, |drawn, _| delong(drawn, true, Scale::Logit)),
    ("clustered DeLong, score", false, |drawn, _| delong(drawn, true, Scale::Score)),
    ("clustered DeLong, plain", false, |drawn, _| delong(drawn, true, Scale::Plain)),
    ("clustered difference of two", true, |drawn, _| difference(drawn, Scale::Score)),
    ("the same, plain", true, |drawn, _| difference(drawn, Scale::Plain)),
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

/// DeLong's with images of a patient taken together.
pub const DELONG: &[Method] = METHODS.split_at(2).1.split_at(5).0;

/// Of those, the differences.
pub const DIFFERENCES: &[Method] = DELONG.split_at(3).1;

pub fn names(methods: &[Method]) -> Vec<&'static str> {
    methods.iter().map(|(name, ..)| *name).collect()
}

pub fn all(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    of_methods(&METHODS, kind, place)
}

pub fn delong_alone(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    of_methods(DELONG, kind, place)
}

pub fn differences_alone(kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    of_methods(DIFFERENCES, kind, place)
}

fn of_methods(methods: &[Method], kind: &Kind, place: [u64; 2]) -> Vec<Found> {
    let drawn = draw(kind, place);
    let found = |&(_, of_difference, range): &Method| {
        let found = range(&drawn, place[1]).ok();
        let [first, second] = kind.aurocs;
        let truth = if of_difference { first - second } else { first };
        (found.map(|range| (range.low, range.high)), truth)
    };
    methods.iter().map(found).collect()
}
