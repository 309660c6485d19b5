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
}

impl Peak {
    fn share(&self, bytes: u64) -> f64 {
        bytes as f64 / self.all as f64
    }

    /// Everything but what is fixed.
    fn activations(&self) -> u64 {
        self.all.saturating_sub(self.fixed)
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
    let peak = Peak { all: now.peak, fixed, optimizer };
    let mut sentences = vec![made_of(&peak, budget)];
    let pulled = levers::pull(plan, machine, budget, way);
    let saved = |pulled: &Pulled| 1.0 - pulled.peak as f64 / peak.all as f64;
    let mut helps: Vec<&Pulled> = pulled.iter().filter(|p| saved(p) >= HELPS).collect();
    helps.sort_by(|a, b| a.peak.cmp(&b.peak));
    if !helps.is_empty() {
        let told = helps.iter().map(|pulled| told(pulled, saved(pulled)));
        sentences.push(format!("What lowers it: {}.", told.collect::<Vec<_>>().join("; ")));
    }
    let nothing = pulled.iter().filter(|p| saved(p) < NOTHING);
    let (on_weights, on_activations): (Vec<&Pulled>, Vec<&Pulled>) =
        nothing.partition(|pulled| pulled.lever.acts_on_weights());
    if !on_activations.is_empty() {
        sentences.push(format!(
            "{} would do nothing, because {}.",
            names(&on_activations),
            why_not_activations(&peak)
        ));
    }
    if !on_weights.is_empty() {
        sentences.push(format!(
            "{} would do nothing, because the optimizer's state is {} of {}.",
            names(&on_weights),
            Bytes(peak.optimizer),
            Bytes(peak.all)
        ));
    }
    if let Some(tensor) = too_large(machine, costs.largest_tensor) {
        sentences.push(tensor);
    }
    sentences.join(" ")
}

fn made_of(peak: &Peak, budget: u64) -> String {
    let fits = match peak.all <= budget {
        true => format!("fits in {}", Bytes(budget)),
        false => format!("does not fit in {}", Bytes(budget)),
    };
    format!(
        "The predicted peak of {} {fits}; {} of it ({:.0}%) are weights, gradients and the \
         optimizer's state, {} are activations and workspace.",
        Bytes(peak.all),
        Bytes(peak.fixed),
        100.0 * peak.share(peak.fixed),
        Bytes(peak.activations()),
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
    match peak.share(peak.fixed) > 0.5 {
        true => "it acts on activations, and they are not what the peak is made of".to_owned(),
        false => "the peak is reached elsewhere".to_owned(),
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
