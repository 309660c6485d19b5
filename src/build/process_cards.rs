//! The cards of several processes, and what they exchange sums by.

use burn::tensor::Device;

use super::BuildError;
use crate::ops::gpu::Exchanges;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Gpu, MOST_CARDS};
#[cfg(feature = "cuda")]
use crate::parallel::processes::{Card, Elsewhere};
use crate::parallel::processes::{Cards, Processes};
use crate::plan::DevicePlan;
#[cfg(feature = "cuda")]
use crate::screen::tell_progress;

/// The cards of `processes`, of which this one has `device`, called `name`; nothing where they compute on CPUs.
///
/// # Errors
/// When they are too many, when the driver does not know the card, and when another process has failed.
#[cfg(feature = "cuda")]
pub(super) fn cards(
    processes: &Processes,
    device: &Device,
    name: DevicePlan,
) -> Result<Option<Cards>, BuildError> {
    let Some(gpu) = Gpu::of(device) else { return Ok(None) };
    let ranks = processes.ranks();
    if ranks > MOST_CARDS {
        let told = format!("{ranks} processes were started, and at most {MOST_CARDS} cards can");
        return Err(BuildError::Cards(told));
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let own = Card {
        name: name.to_string(),
        identity: gpu.identity().map_err(BuildError::Cards)?,
        machine: boot.unwrap_or_else(|_| processes.roster()[processes.rank()].host.clone()),
        multiprocessors: gpu.multiprocessors(),
        over_tcp: processes.is_over_tcp(),
    };
    Ok(Some(Cards(processes.gather_values("cards", &own)?)))
}

/// There are none without CUDA.
#[cfg(not(feature = "cuda"))]
pub(super) fn cards(_: &Processes, _: &Device, _: DevicePlan) -> Result<Option<Cards>, BuildError> {
    Ok(None)
}

/// What `cards` exchange sums by, and what a person should know of it: the memory of each other where all reach
/// that, with `room` bytes for gradients that the others give a card, else TCP.
///
/// # Errors
/// What the driver says, and when another process has failed.
#[cfg(feature = "cuda")]
pub(super) fn exchanges(
    processes: &Processes,
    device: &Device,
    cards: &Cards,
    room: u64,
) -> Result<Vec<Exchanges>, BuildError> {
    let Some(gpu) = Gpu::of(device) else { return Ok(Vec::new()) };
    let place = [processes.rank(), processes.ranks()];
    let exchanges = match through_memory(processes, &gpu, place, cards, room)? {
        Ok(exchanges) => {
            tell_progress("the processes' cards exchange sums through each other's memory");
            exchanges
        }
        Err(reason) => {
            let warning = format!(
                "the processes' cards exchange sums through the host's memory and TCP, as {reason}; that is \
                 slower than through each other's memory"
            );
            let carrying = processes.clone();
            let carry = Box::new(move |message| carrying.carry(message));
            let mut relayed = Exchanges::relayed(&gpu, place, carry).map_err(BuildError::Cards)?;
            relayed.warning = Some(warning);
            relayed
        }
    };
    processes.serve_card(exchanges.delivery(), exchanges.stopping());
    // Nothing is sent before all have come so far.
    processes.gather("exchange", &[])?;
    Ok(vec![exchanges])
}

/// There are none without CUDA.
#[cfg(not(feature = "cuda"))]
pub(super) fn exchanges(
    _: &Processes,
    _: &Device,
    _: &Cards,
    _: u64,
) -> Result<Vec<Exchanges>, BuildError> {
    Ok(Vec::new())
}

/// What cards exchange by that reach each other's memory, or why they do not; all processes come to the same.
#[cfg(feature = "cuda")]
fn through_memory(
    processes: &Processes,
    gpu: &Gpu,
    place: [usize; 2],
    cards: &Cards,
    room: u64,
) -> Result<Result<Exchanges, String>, Elsewhere> {
    let offered = match cards.apart() {
        None => Exchanges::offer(gpu, place[1], room),
        Some(reason) => Err(reason.to_owned()),
    };
    let own = offered.as_ref().map(|offered| offered.handle().to_vec()).map_err(Clone::clone);
    let all = processes.gather_values("memory of cards", &own)?;
    let handles: Result<Vec<Vec<u8>>, String> = all.into_iter().collect();
    let opened = match (offered, handles) {
        (Ok(offered), Ok(handles)) => {
            Exchanges::of_process(gpu, place, offered, &handles, cards.multiprocessors(), room)
        }
        (_, Err(reason)) | (Err(reason), _) => Err(reason),
    };
    let own = opened.as_ref().map(|_| ()).map_err(Clone::clone);
    let all: Vec<Result<(), String>> = processes.gather_values("reach of cards", &own)?;
    Ok(all.into_iter().collect::<Result<(), _>>().and(opened))
}
