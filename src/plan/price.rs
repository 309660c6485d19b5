//! What the choice that `micro_batch = "auto"` has made costs beside the one that it has not, where
//! BatchNorm normalises over the images at once.

use super::preference::preferred;
use super::{Estimator, Machine, MemorySettings, Plan};
use crate::screen::Bytes;

/// Times that differ by less are not worth a word.
const WORTH: f64 = 0.05;

/// What the numbers of whole batches cost: how much faster fewer images at once would be.
pub(super) fn of_numbers(estimator: &Estimator, settings: &MemorySettings) -> Option<String> {
    let Estimator { plan, machine, .. } = estimator;
    let fewer = eligible(plan, machine, |other| !plan.keeps_numbers(other));
    if !plan.keeps_numbers(settings) || fewer.is_empty() {
        return None;
    }
    let now = estimator.estimate(settings).ok()?.seconds;
    let (found, fewer) = preferred(estimator, &fewer)?;
    let faster = found.time / now;
    (faster < 1.0 - WORTH).then(|| {
        format!(
            "micro-batch {} would take {faster:.2} × the time and train with other results",
            fewer.micro_batch
        )
    })
}

/// What whole batches would cost: the least memory that they need, and the time of that.
pub(super) fn of_the_whole(estimator: &Estimator, settings: &MemorySettings) -> Option<String> {
    let Estimator { plan, machine, .. } = estimator;
    if plan.keeps_numbers(settings) {
        return None;
    }
    let whole = eligible(plan, machine, |other| plan.keeps_numbers(other));
    // Within nothing, the policy `budget` takes the least that it can.
    let leanest = Estimator::within(plan, *machine, 0);
    let found = whole.iter().filter_map(|other| Some((leanest.estimate(other).ok()?, other)));
    let (found, least) = found.min_by_key(|(found, _)| found.held)?;
    let now = estimator.estimate(settings).ok()?.seconds;
    let plain = MemorySettings::configured(&plan.memory, plan.device_batch());
    let mut written = least.written_beside(&plain);
    written.push(format!("{:.1} × the time", found.seconds / now));
    Some(format!(
        "with the whole batch at once a step takes {} at least ({})",
        Bytes(found.held),
        written.join(", ")
    ))
}

/// What could have been chosen, of which `is_kind` holds; nothing where nothing was to be chosen.
fn eligible(
    plan: &Plan,
    machine: &Machine,
    is_kind: impl Fn(&MemorySettings) -> bool,
) -> Vec<MemorySettings> {
    match plan.memory.is_auto() {
        true => plan.eligible(machine).into_iter().filter(is_kind).collect(),
        false => Vec::new(),
    }
}
