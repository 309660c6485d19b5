//! How much memory there is.

use burn::tensor::Device;

use super::cpu;
use super::device::{CardDetails, Found, find_devices, is_gpu};
use crate::plan::{DevicePlan, Machine};

/// What a plan would run on here and what it is called, where that is here.
pub fn machine_here(device: DevicePlan) -> Option<(Machine, String)> {
    match device {
        DevicePlan::Cpu(_) => {
            let memory = host_memory()?;
            Some((Machine { cuda: false, memory, cpu: cpu() }, "this machine".to_owned()))
        }
        DevicePlan::Auto => card(&find_devices(), None),
        DevicePlan::Cuda(index) => card(&find_devices(), Some(index)),
    }
}

/// The card of this number, or the first that can be used.
fn card(found: &Found, index: Option<usize>) -> Option<(Machine, String)> {
    let cards = found.cards.as_ref().ok()?;
    let usable = cards.iter().filter(|card| index.is_none_or(|index| card.index == index));
    let CardDetails { name, memory, .. } =
        usable.filter_map(|card| card.details.as_ref().ok()).next()?;
    Some((Machine { cuda: true, memory: *memory, cpu: cpu() }, name.clone()))
}

/// What steps on `device` are predicted for.
pub(super) fn machine(plan: DevicePlan, device: &Device) -> Machine {
    let cuda = is_gpu(device);
    let here = match cuda {
        true => machine_here(plan),
        false => machine_here(DevicePlan::Cpu(None)),
    };
    here.map_or(Machine { cuda, cpu: cpu(), ..Machine::ASSUMED }, |(machine, _)| machine)
}

/// Bytes of memory that this process may use: the machine's, or those of its control group.
fn host_memory() -> Option<u64> {
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse::<u64>().ok());
    let all = std::fs::read_to_string("/proc/meminfo").ok();
    let all = all.as_deref().and_then(total);
    group.into_iter().chain(all).min()
}

/// Bytes of `MemTotal`, which Linux gives in units of 1024.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_says_how_much_memory_there_is() {
        let text = "MemTotal:       16384000 kB\nMemFree:          123456 kB\n";
        assert_eq!(total(text), Some(16_384_000 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }
}
