//! What would fit where a step does not: settings, images, depth.

use super::changes::{self, Change, Tried, price};
use super::preference::{Preference, preferred};
use super::settings::{BUDGET, HOST, with_each};
use super::{Estimator, MemorySettings};
use crate::choice::Choice;
use crate::memory::Precision;
use crate::model::ModelConfig;

/// Image sides that are tried are multiples of it.
const SIDE: usize = 32;

/// What would fit `budget` bytes where a step with `settings` does not.
pub(super) fn what_would_fit(estimator: &Estimator, settings: &MemorySettings) -> String {
    let &Estimator { ref plan, machine, budget, .. } = estimator;
    let ways = ways(estimator, settings).into_iter();
    let mut would: Vec<String> = ways.map(|(_, written)| written).collect();
    let would_fit = |model: &ModelConfig, size: [usize; 2]| {
        plan.resized(model, size).is_some_and(|plan| {
            let estimator = Estimator::within(&plan, machine, budget);
            estimator.estimate(settings).is_ok_and(|found| found.fits)
        })
    };
    let largest = plan.data.image.size[0].max(plan.data.image.size[1]);
    let of_side = |sides| would_fit(plan.model.config(), [sides * SIDE; 2]);
    let sides = most_below(largest.div_ceil(SIDE), of_side);
    if sides > 0 {
        would.push(format!("images of {0}×{0} (`data.image.size = [{0}, {0}]`)", sides * SIDE));
    }
    let depth = plan
        .model
        .config()
        .shallower()
        .into_iter()
        .find(|(_, model)| would_fit(model, plan.data.image.size));
    would.extend(depth.map(|(depth, _)| format!("a depth of {depth}")));
    match would.is_empty() {
        true => "Nothing that this program can change makes it fit: use a smaller model or a larger device."
            .to_owned(),
        false => format!("What would fit: {}.", would.join("; or ")),
    }
}

/// The settings that would fit, the preferred first.
fn ways(estimator: &Estimator, settings: &MemorySettings) -> Vec<(Preference, String)> {
    let Estimator { plan, machine, .. } = estimator;
    let mut ways: Vec<(Preference, String)> = fitting_alone(estimator, settings).collect();
    let together = |precision, images| together(estimator, settings, precision, images);
    if !ways.iter().any(|(preference, _)| preference.same_numbers) {
        ways.extend(together(settings.precision, settings.micro_batch));
    }
    if ways.is_empty() {
        let small = plan.precisions(machine.cuda).into_iter().filter(|p| p.bytes() == 2);
        let mut precisions = std::iter::once(settings.precision).chain(small);
        let fewest = plan.fewest_at_once();
        ways.extend(precisions.find_map(|precision| together(precision, fewest)));
    }
    ways.sort_by(|(a, _), (b, _)| a.order(b));
    ways
}

/// The most images at once that fit.
fn fewer_images(estimator: &Estimator, settings: &MemorySettings) -> Option<Tried> {
    let with =
        |micro_batch| estimator.estimate(&MemorySettings { micro_batch, ..settings.clone() }).ok();
    let fits = |images| with(images).is_some_and(|found| found.fits);
    let fit = most_below(settings.micro_batch, fits);
    let images = (1..=fit).rev().find(|images| estimator.plan.normalises(*images))?;
    let now = estimator.estimate(settings).ok()?;
    Some(Tried::new(Change::MicroBatch(images), with(images)?, &now))
}

/// The largest number below `end` that `fits`, by bisection; 0 where none is found.
fn most_below(end: usize, fits: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while high - low > 1 {
        let middle = (low + high) / 2;
        match fits(middle) {
            true => low = middle,
            false => high = middle,
        }
    }
    low
}

/// The changes of which each by itself is enough, as many images at once as fit among them.
fn fitting_alone(
    estimator: &Estimator,
    settings: &MemorySettings,
) -> impl Iterator<Item = (Preference, String)> {
    let plan = &estimator.plan;
    let images = fewer_images(estimator, settings);
    let others = changes::try_each(estimator, settings).into_iter();
    let others = others.filter(|tried| !matches!(tried.change, Change::MicroBatch(_)));
    let all = images.into_iter().chain(others).filter(|tried| tried.then.fits);
    all.map(|tried| {
        (tried.preference(plan), told(&tried.change.written(), tried.price(plan).as_deref()))
    })
}

/// The preferred of all settings with this precision and so many images at once that are not in
/// `settings`, if one fits: those that lower the peak and change no number besides.
fn together(
    estimator: &Estimator,
    settings: &MemorySettings,
    precision: Precision,
    images: usize,
) -> Option<(Preference, String)> {
    let Estimator { plan, machine, .. } = estimator;
    let mut policies = vec![settings.checkpointing.0.clone(), BUDGET];
    let mut places = vec![settings.offload.0.clone()];
    let mut optimizers = vec![settings.offload_optimizer];
    if machine.cuda {
        places.push(HOST);
        optimizers.push(true);
    }
    policies.dedup();
    places.dedup();
    optimizers.dedup();
    let dense_layers = plan.dense_layers(machine.cuda, precision);
    let of = MemorySettings { precision, micro_batch: images, ..settings.clone() };
    let all = with_each(&[of], &dense_layers, |to, layers| to.dense_layers = layers);
    let all = with_each(&all, &optimizers, |to, waits| to.offload_optimizer = waits);
    let all = with_each(&all, &places, |to, place| to.offload = Choice(place));
    let candidates = with_each(&all, &policies, |to, policy| to.checkpointing = Choice(policy));
    let (found, chosen) = preferred(estimator, &candidates)?;
    let now = estimator.estimate(settings).ok()?.seconds;
    let fewer = images < settings.micro_batch && plan.parts_matter();
    let same_numbers = !fewer && precision == settings.precision;
    let slowdown = found.time / now;
    let written = chosen.written_beside(settings).join(", ");
    let price = price(slowdown, (!same_numbers).then_some("other results"));
    let preference = Preference { fits: true, same_numbers, time: slowdown };
    Some((preference, told(&written, price.as_deref())))
}

fn told(written: &str, price: Option<&str>) -> String {
    format!("`{written}`{}", price.map(|price| format!(" ({price})")).unwrap_or_default())
}
