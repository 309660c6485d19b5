//! Which lever matters for a model, which would do nothing or harm, and why.

use super::levers::{self, Pulled};
use super::reasons::{Before, Peak};
use super::{Combination, Machine, Plan, Predictor};
use crate::screen::Bytes;

/// Shares of the peak above which a lever helps, and below which it does nothing.
const HELPS: f64 = 0.05;
const NOTHING: f64 = 0.02;

/// A few sentences on `way`: whether it fits, which lever matters for this model, which would do
/// nothing or harm, and why.
pub(super) fn advice(plan: &Plan, machine: &Machine, budget: u64, way: &Combination) -> String {
    let mut predictor = Predictor::within(plan, *machine, budget);
    let Ok(now) = predictor.predict(way) else { return String::new() };
    let costs = predictor.costs(way);
    let gradients: u64 = costs.stages.iter().map(|stage| stage.parameter_gradients).sum();
    let optimizer = costs.optimizer - costs.optimizer_away;
    let fixed = costs.weights + gradients + optimizer;
    let kept = costs.stages.iter().map(|stage| match stage.output_in_input {
        true => stage.saved,
        false => stage.saved + stage.output,
    });
    let (all, kept, at_step, away) = (now.peak, kept.sum(), now.at_step, now.away);
    let peak = Peak { all, fixed, optimizer, kept, at_step, away };
    let before = Before { plan, machine, way, peak };
    let mut sentences = vec![made_of(&before.peak, budget)];
    let pulled = levers::pull(plan, machine, budget, way);
    let saved = |pulled: &Pulled| 1.0 - pulled.peak as f64 / all as f64;
    let mut helps: Vec<&Pulled> = pulled.iter().filter(|p| saved(p) >= HELPS).collect();
    helps.sort_by_key(|pulled| pulled.peak);
    if !helps.is_empty() {
        let told = helps.iter().map(|pulled| told(plan, pulled, saved(pulled)));
        sentences.push(format!("What lowers it: {}.", told.collect::<Vec<_>>().join("; ")));
    }
    let nothing = pulled.iter().filter(|p| saved(p).abs() < NOTHING);
    for (why, levers) in alike(nothing.map(|pulled| (before.why_nothing(pulled), pulled))) {
        let names = levers.iter().map(|pulled| format!("`{}`", pulled.lever.written()));
        sentences.push(format!("{} would do nothing: {why}.", listed(names.collect())));
    }
    let more = pulled.iter().filter(|p| saved(p) <= -NOTHING);
    for (why, levers) in alike(more.map(|pulled| (before.why_more(pulled), pulled))) {
        let raised = |pulled: &Pulled| times(pulled.peak as f64 / all as f64);
        let names = |pulled: &&Pulled| format!("`{}` ({})", pulled.lever.written(), raised(pulled));
        sentences.push(match levers.as_slice() {
            [one] => {
                let (name, raised) = (one.lever.written(), raised(one));
                format!("`{name}` would raise the peak {raised}: {why}.")
            }
            several => {
                let names = listed(several.iter().map(names).collect());
                format!("{names} would raise the peak: {why}.")
            }
        });
    }
    if let Some(tensor) = too_large(machine, costs.largest_tensor) {
        sentences.push(tensor);
    }
    sentences.join(" ")
}

/// Levers by why they do not help, in the order in which the reasons come.
fn alike<'a, Why: PartialEq>(
    levers: impl Iterator<Item = (Why, &'a Pulled)>,
) -> Vec<(Why, Vec<&'a Pulled>)> {
    let mut all: Vec<(Why, Vec<&Pulled>)> = Vec::new();
    for (why, pulled) in levers {
        match all.iter_mut().find(|(known, _)| *known == why) {
            Some((_, levers)) => levers.push(pulled),
            None => all.push((why, vec![pulled])),
        }
    }
    all
}

/// How much more so many times as much are: `by 12%`, `×2.3`, `×14`.
fn times(ratio: f64) -> String {
    match ratio {
        ..2.0 => format!("by {:.0}%", 100.0 * (ratio - 1.0)),
        2.0..9.95 => format!("×{ratio:.1}"),
        _ => format!("×{ratio:.0}"),
    }
}

fn made_of(peak: &Peak, budget: u64) -> String {
    let fits = if peak.all <= budget { "fits in" } else { "does not fit in" };
    let (rest, place) = match peak.at_step {
        true => (
            "are what the optimizer's step works with",
            format!(
                ", which is where the peak is: activations ({} where all are kept) are gone by then",
                Bytes(peak.kept)
            ),
        ),
        false => ("are activations and what computing them takes", String::new()),
    };
    format!(
        "The predicted peak of {} {fits} {}. {} of it ({:.0}%) are weights, gradients and the \
         optimizer's state, {} {rest}{place}.",
        Bytes(peak.all),
        Bytes(budget),
        Bytes(peak.fixed),
        peak.percent(peak.fixed),
        Bytes(peak.all.saturating_sub(peak.fixed)),
    )
}

fn told(plan: &Plan, pulled: &Pulled, saved: f64) -> String {
    let time = match pulled.slowdown {
        slower @ 1.05.. => format!(", {slower:.1} × the time"),
        faster @ ..0.95 => format!(", {faster:.1} × the time"),
        _ => String::new(),
    };
    let other = pulled.lever.changes(plan).map(|what| format!(", {what}")).unwrap_or_default();
    format!("`{}` (−{:.0}%{time}{other})", pulled.lever.written(), 100.0 * saved)
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
