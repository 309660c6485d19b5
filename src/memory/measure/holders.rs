//! Who else holds the memory of a card.

use std::fmt;

use crate::screen::Bytes;

/// A process that holds memory of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// What it is called, such as `python`.
    pub name: String,
    /// The bytes that it holds.
    pub bytes: u64,
}

/// Processes beyond so many are not worth a word.
const MOST: usize = 3;

/// Nor are those that hold less.
const LEAST: u64 = 64 << 20;

impl fmt::Display for Holder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, name, bytes } = self;
        write!(formatter, "{name} (pid {pid}) holds {}", Bytes(*bytes))
    }
}

impl Holder {
    /// Those that hold most, the largest first.
    pub fn largest(mut all: Vec<Self>) -> Vec<Self> {
        all.retain(|holder| holder.bytes >= LEAST);
        all.sort_by_key(|holder| std::cmp::Reverse(holder.bytes));
        all.truncate(MOST);
        all
    }

    /// Of the processes that the driver `listed` with the bytes that they hold, the others than `own` that
    /// can be named here. In a container the driver lists processes by their numbers outside, this one
    /// among them: what has no name here is left out.
    #[cfg(any(test, feature = "cuda"))]
    fn others(listed: &[(u32, u64)], own: u32, name: impl Fn(u32) -> Option<String>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for &(pid, bytes) in listed.iter().filter(|(pid, _)| *pid != own) {
            // One that draws and computes is listed twice.
            match all.iter_mut().find(|holder| holder.pid == pid) {
                Some(known) => known.bytes = known.bytes.max(bytes),
                None => all.extend(name(pid).map(|name| Self { pid, name, bytes })),
            }
        }
        all
    }
}

/// The other processes that hold memory of the card that CUDA calls `index`, as far as the driver knows
/// them.
#[cfg(feature = "cuda")]
pub fn gpu_holders(index: usize) -> Vec<Holder> {
    let listed = super::nvml::Nvml::open(index).map(|nvml| nvml.processes()).unwrap_or_default();
    let name = |pid: u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    Holder::others(&listed, std::process::id(), name)
}

/// There are no cards without CUDA.
#[cfg(not(feature = "cuda"))]
pub fn gpu_holders(_: usize) -> Vec<Holder> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_told_with_what_they_hold_the_largest_first() {
        let names = |pid: u32| match pid {
            1234 => Some("python".to_owned()),
            7 | 30 => Some("Xorg".to_owned()),
            // Its number is one outside of the container.
            _ => None,
        };
        let listed = [
            (7, 1 << 20),
            (30, 300 << 20),
            (1234, 61 << 30),
            (30, 200 << 20),
            (99, 4),
            (5, 8 << 30),
        ];
        let told = |own| -> Vec<String> {
            let others = Holder::largest(Holder::others(&listed, own, names));
            others.iter().map(ToString::to_string).collect()
        };
        assert_eq!(told(5), ["python (pid 1234) holds 61.0 GiB", "Xorg (pid 30) holds 300 MiB"]);
        assert_eq!(told(1234), ["Xorg (pid 30) holds 300 MiB"]);
    }
}
