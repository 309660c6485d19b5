//! How much memory there is, how much of it is free, and who holds the rest.

use burn::tensor::Device;

use super::cpu;
use super::device::{CardDetails, Found, find_devices};
use super::host_memory::HostMemory;
use crate::memory::measure::{Holder, gpu_holders};
use crate::ops::is_gpu;
use crate::plan::{DevicePlan, Machine, NothingFits, Plan, Planner};

/// What a plan would run on here and what it is called, where that is here: of several devices the one
/// with the least free memory.
pub fn machine_here(devices: &[DevicePlan]) -> Option<(Machine, String)> {
    match devices.first()? {
        DevicePlan::Cpu(_) => {
            let HostMemory { total, free } = HostMemory::read()?;
            let (hopper, free) = (false, Some(free));
            let (cpu, memory) = (cpu(), total);
            let machine = Machine { cuda: false, hopper, memory, free, cpu, ..Machine::ASSUMED };
            Some((machine, "this machine".to_owned()))
        }
        _ => {
            let found = find_devices();
            let cards: Vec<_> = devices.iter().filter_map(|device| card(&found, *device)).collect();
            let indices: Vec<usize> = cards.iter().map(|(index, ..)| *index).collect();
            let (_, machine, name) =
                cards.into_iter().min_by_key(|(_, machine, _)| machine.free)?;
            Some((Machine { apart: are_apart(&indices), ..machine }, name))
        }
    }
}

/// Whether some of these cards do not reach each other's memory.
fn are_apart(indices: &[usize]) -> bool {
    #[cfg(feature = "cuda")]
    return indices.len() > 1 && crate::ops::gpu::are_apart(indices);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = indices;
        false
    }
}

/// Bytes of memory that this process may use, where the system tells.
pub fn host_memory() -> Option<u64> {
    HostMemory::read().map(|memory| memory.total)
}

/// The card that is meant, with its number: for `auto` the first that can be used.
fn card(found: &Found, device: DevicePlan) -> Option<(usize, Machine, String)> {
    let wanted = match device {
        DevicePlan::Cpu(_) => return None,
        DevicePlan::Auto => None,
        DevicePlan::Cuda(index) => Some(index),
    };
    let cards = found.cards.as_ref().ok()?;
    let mut usable = cards.iter().filter(|card| wanted.is_none_or(|index| card.index == index));
    usable.find_map(|card| {
        let CardDetails { name, memory, free, compute_capability } = card.details.as_ref().ok()?;
        let (hopper, free) = (*compute_capability == (9, 0), Some(*free));
        let (cpu, memory) = (cpu(), *memory);
        let machine = Machine { cuda: true, hopper, memory, free, cpu, ..Machine::ASSUMED };
        Some((card.index, machine, name.clone()))
    })
}

/// What steps on `device`, the first of those that are planned, are predicted for.
pub(super) fn machine(planned: &[DevicePlan], device: &Device) -> Machine {
    if !is_gpu(device) {
        let here = machine_here(&[DevicePlan::Cpu(None)]).map(|(machine, _)| machine);
        return here.unwrap_or(Machine {
            cuda: false,
            hopper: false,
            cpu: cpu(),
            ..Machine::ASSUMED
        });
    }
    let here = machine_here(planned).map(|(machine, _)| machine);
    let machine = here.unwrap_or(Machine { cpu: cpu(), ..Machine::ASSUMED });
    // What this process has taken and not given back is there to be used again.
    let own = device.memory_pool_usage().map_or(0, |usage| usage.bytes_reserved);
    Machine {
        free: machine.free.map(|free| free.saturating_add(own).min(machine.memory)),
        ..machine
    }
}

/// Who else holds memory of the planned devices, such as "python (pid 1234) holds 61.0 GiB of cuda:0".
pub fn in_the_way(devices: &[DevicePlan]) -> Option<String> {
    if matches!(devices.first()?, DevicePlan::Cpu(_)) {
        return None;
    }
    let found = find_devices();
    let cards = devices.iter().filter_map(|device| card(&found, *device));
    let told = cards.flat_map(|(index, ..)| {
        let holders = Holder::largest(gpu_holders(index)).into_iter();
        holders.map(move |holder| format!("{holder} of cuda:{index}"))
    });
    let told: Vec<String> = told.collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// The warning about a step that is estimated to take more than is free, with who holds the rest.
pub(super) fn crowded(plan: &Plan, planner: &Planner) -> Option<String> {
    let warning = planner.crowded()?;
    let others = in_the_way(&plan.devices);
    Some(format!("{warning}{}", others.map(|others| format!(": {others}")).unwrap_or_default()))
}

/// Where nothing fits in what is free, `error` with who holds the rest.
pub(super) fn with_holders(error: NothingFits, plan: &Plan) -> NothingFits {
    if error.written {
        return error;
    }
    match in_the_way(&plan.devices) {
        Some(others) => NothingFits { advice: format!("{} {others}.", error.advice), ..error },
        None => error,
    }
}
