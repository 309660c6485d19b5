//! Which change matters for a model, which would do nothing or harm, and why.

use super::changes::{self, Tried};
use super::reasons::Before;
use super::{Estimator, Machine, MemorySettings, Plan};
use crate::memory::Footprint;
use crate::screen::Bytes;

/// Shares of the peak above which a change helps, and below which it does nothing.
const HELPS: f64 = 0.05;
const NOTHING: f64 = 0.02;

/// A few sentences on `settings`: whether it fits, which change matters for this model, which would do
/// nothing or harm, and why.
pub(super) fn advice(estimator: &Estimator, settings: &MemorySettings) -> String {
    let Estimator { plan, machine, .. } = estimator;
    let Ok(now) = estimator.estimate(settings) else { return String::new() };
    let Ok(costs) = estimator.costs_of_fullest(settings) else { return String::new() };
    let optimizer = costs.optimizer - costs.optimizer_away;
    let fixed = costs.weights + costs.gradients() + optimizer;
    let kept = costs.stages[costs.frozen..].iter().map(Footprint::kept).sum();
    let all = now.peak;
    let before = Before { estimator, settings, now, fixed, optimizer, kept };
    let mut sentences = vec![made_of(&before)];
    let tried = changes::try_each(estimator, settings);
    let saved = |tried: &Tried| 1.0 - tried.then.peak as f64 / all as f64;
    let mut helps: Vec<&Tried> = tried.iter().filter(|p| saved(p) >= HELPS).collect();
    helps.sort_by(|a, b| a.preference(plan).order(&b.preference(plan)));
    if !helps.is_empty() {
        let described = helps.iter().map(|tried| described(plan, tried, saved(tried)));
        let described: Vec<String> = described.collect();
        sentences.push(format!("What lowers it: {}.", described.join("; ")));
    }
    let nothing = tried.iter().filter(|p| saved(p).abs() < NOTHING);
    for (why, changes) in alike(nothing.map(|tried| (before.why_nothing(tried), tried))) {
        let names = changes.iter().map(|tried| format!("`{}`", tried.change.written()));
        sentences.push(format!("{} would do nothing: {why}.", listed(names.collect())));
    }
    let more = tried.iter().filter(|p| saved(p) <= -NOTHING);
    for (why, changes) in alike(more.map(|tried| (before.why_more(tried), tried))) {
        let raised = |tried: &Tried| times(tried.then.peak as f64 / all as f64);
        let names = |tried: &&Tried| format!("`{}` ({})", tried.change.written(), raised(tried));
        sentences.push(match changes.as_slice() {
            [one] => {
                let (name, raised) = (one.change.written(), raised(one));
                format!("`{name}` would raise the peak {raised}: {why}.")
            }
            several => {
                let names = listed(several.iter().map(names).collect());
                format!("{names} would raise the peak: {why}.")
            }
        });
    }
    sentences.extend(too_large(machine, costs.largest_tensor));
    sentences.join(" ")
}

/// Changes grouped by the reason why they do not help, in the order of the reasons.
fn alike<'a, Why: PartialEq>(
    changes: impl Iterator<Item = (Why, &'a Tried)>,
) -> Vec<(Why, Vec<&'a Tried>)> {
    let mut all: Vec<(Why, Vec<&Tried>)> = Vec::new();
    for (why, tried) in changes {
        match all.iter_mut().find(|(known, _)| *known == why) {
            Some((_, changes)) => changes.push(tried),
            None => all.push((why, vec![tried])),
        }
    }
    all
}

/// The increase that a ratio stands for: `by 12%`, `×2.3`, `×14`.
fn times(ratio: f64) -> String {
    match ratio {
        ..2.0 => format!("by {:.0}%", 100.0 * (ratio - 1.0)),
        2.0..9.95 => format!("×{ratio:.1}"),
        _ => format!("×{ratio:.0}"),
    }
}

fn made_of(before: &Before) -> String {
    let Before { now, fixed, kept, .. } = before;
    let Estimator { machine, budget, .. } = before.estimator;
    let of = if now.devices.len() > 1 { " on the fullest device" } else { "" };
    let fits = if now.held <= *budget { "fits in" } else { "does not fit in" };
    let held = match machine.cuda {
        true => format!(", with at most {} held,", Bytes(now.held)),
        false => String::new(),
    };
    let (rest, place) = match now.at_step {
        true => (
            "are what the optimizer's step works with",
            format!(
                ", which is where the peak is: activations ({} where all are kept) are gone by then",
                Bytes(*kept)
            ),
        ),
        false => ("are activations and what computing them takes", String::new()),
    };
    format!(
        "The estimated peak of {}{of}{held} {fits} {}. {} of it ({:.0}%) are weights, gradients and the \
         optimizer's state, {} {rest}{place}.",
        Bytes(now.peak),
        Bytes(*budget),
        Bytes(*fixed),
        before.percent(*fixed),
        Bytes(now.peak.saturating_sub(*fixed)),
    )
}

fn described(plan: &Plan, tried: &Tried, saved: f64) -> String {
    let price = tried.price(plan).map(|price| format!(", {price}")).unwrap_or_default();
    format!("`{}` (−{:.0}%{price})", tried.change.written(), 100.0 * saved)
}

fn listed(mut names: Vec<String>) -> String {
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} and {last}", names.join(", ")),
        last => last.unwrap_or_default(),
    }
}

/// What is wrong with a tensor of so many bytes, if anything.
fn too_large(machine: &Machine, bytes: u64) -> Option<String> {
    (bytes > machine.largest_tensor()).then(|| {
        format!(
            "One tensor has {}, and none above {} (a quarter of the card) can be allocated: lower \
             `micro_batch`.",
            Bytes(bytes),
            Bytes(machine.largest_tensor())
        )
    })
}
