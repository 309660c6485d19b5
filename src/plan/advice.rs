//! Which lever matters for a model, which would do nothing, and why.

use super::levers::{self, Lever, Pulled};
use super::{Bytes, Combination, Machine, Plan, Predictor};

/// Shares of the peak above which a lever helps, and below which it does nothing.
const HELPS: f64 = 0.05;
const NOTHING: f64 = 0.02;

/// What the peak of a step is made of.
struct Peak {
    all: u64,
    /// Weights, gradients and the optimizer's state.
    fixed: u64,
    optimizer: u64,
    /// What is kept for the backward pass where everything is.
    kept: u64,
    /// Whether it is reached in the optimizer's step.
    at_step: bool,
}

impl Peak {
    fn percent(&self, bytes: u64) -> f64 {
        100.0 * bytes as f64 / self.all as f64
    }
}

/// A few sentences on `way`: whether it fits, which lever matters for this model, which would do
/// nothing, and why.
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
    let (all, kept, at_step) = (now.peak, kept.sum(), now.at_step);
    let peak = Peak { all, fixed, optimizer, kept, at_step };
    let mut sentences = vec![made_of(&peak, budget)];
    let pulled = levers::pull(plan, machine, budget, way);
    let saved = |pulled: &Pulled| 1.0 - pulled.peak as f64 / peak.all as f64;
    let mut helps: Vec<&Pulled> = pulled.iter().filter(|p| saved(p) >= HELPS).collect();
    helps.sort_by_key(|pulled| pulled.peak);
    if !helps.is_empty() {
        let told = helps.iter().map(|pulled| told(pulled, saved(pulled)));
        sentences.push(format!("What lowers it: {}.", told.collect::<Vec<_>>().join("; ")));
    }
    let nothing = pulled.iter().filter(|p| saved(p) < NOTHING);
    let (on_weights, on_activations): (Vec<&Pulled>, Vec<&Pulled>) =
        nothing.partition(|pulled| pulled.lever.acts_on_weights());
    if !on_activations.is_empty() {
        sentences.push(format!(
            "{} would do nothing: {}.",
            names(&on_activations),
            why_not_activations(&peak)
        ));
    }
    if !on_weights.is_empty() {
        sentences.push(format!(
            "{} would do nothing: {}.",
            names(&on_weights),
            why_not_weights(&peak)
        ));
    }
    if let Some(tensor) = too_large(machine, costs.largest_tensor) {
        sentences.push(tensor);
    }
    sentences.join(" ")
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

fn told(pulled: &Pulled, saved: f64) -> String {
    let time = match pulled.slowdown {
        slower @ 1.05.. => format!(", {slower:.1} × the time"),
        faster @ ..0.95 => format!(", {faster:.1} × the time"),
        _ => String::new(),
    };
    let other = if pulled.lever.changes_training() { ", other numbers" } else { "" };
    let other = if pulled.lever == Lever::Sgd { ", another optimizer" } else { other };
    format!("`{}` (−{:.0}%{time}{other})", pulled.lever.written(), 100.0 * saved)
}

fn why_not_activations(peak: &Peak) -> String {
    match peak.at_step || peak.fixed > peak.all / 2 {
        true => "activations are not what the peak is made of, and weights, gradients and the \
                 optimizer's state stay as they are"
            .to_owned(),
        false => "what it frees is not there at the peak".to_owned(),
    }
}

fn why_not_weights(peak: &Peak) -> String {
    match peak.percent(peak.optimizer) < 100.0 * HELPS {
        true => format!(
            "weights, gradients and the optimizer's state are {:.0}% of the peak",
            peak.percent(peak.fixed)
        ),
        // It comes back a parameter at a time.
        false => {
            "nearly all of the optimizer's state belongs to one parameter, and is back for its \
                  step"
                .to_owned()
        }
    }
}

fn names(pulled: &[&Pulled]) -> String {
    let mut names: Vec<String> =
        pulled.iter().map(|pulled| format!("`{}`", pulled.lever.written())).collect();
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
