//! How much of the host's memory there is, and how much of it is free.

use std::path::{Path, PathBuf};

use rustix::process::{Resource, getrlimit};

/// What Linux says of a control group, as far as it says it: the text of its files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Group {
    /// The most bytes that its processes may hold, or `max`.
    limit: Option<String>,
    /// The bytes that they hold, files that were read among them.
    used: Option<String>,
    /// Figures by name.
    stat: Option<String>,
}

/// Bytes of memory that this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HostMemory {
    /// The machine's, or fewer where a control group or `ulimit` says so.
    pub total: u64,
    /// Those of them that nobody holds, or that are given back when asked for: copies of files.
    pub free: u64,
}

impl HostMemory {
    /// Asks Linux; `None` on other systems.
    pub fn read() -> Option<Self> {
        let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let groups: Vec<Group> = files(&own).iter().map(Group::read).collect();
        let limits = [Resource::As, Resource::Data].map(|resource| getrlimit(resource).current);
        Some(Self::of(&meminfo, &groups)?.within(limits.into_iter().flatten()))
    }

    /// No more than `limits`, those that `ulimit -v` and `ulimit -d` set.
    fn within(self, limits: impl IntoIterator<Item = u64>) -> Self {
        limits.into_iter().fold(self, |Self { total, free }, limit| Self {
            total: total.min(limit),
            free: free.min(limit),
        })
    }

    /// What `/proc/meminfo` and the control groups of the process say.
    fn of(meminfo: &str, groups: &[Group]) -> Option<Self> {
        let total = kibibytes(meminfo, "MemTotal:")?;
        let free = kibibytes(meminfo, "MemAvailable:").unwrap_or(total);
        let limits = groups.iter().filter_map(|group| {
            let limit: u64 = group.limit.as_deref()?.trim().parse().ok()?;
            let used: Option<u64> = group.used.as_deref().and_then(|used| used.trim().parse().ok());
            let held = used.unwrap_or(0).saturating_sub(group.given_back());
            Some((limit, limit.saturating_sub(held)))
        });
        let start = Self { total, free: free.min(total) };
        Some(limits.fold(start, |least, (limit, free)| Self {
            total: least.total.min(limit),
            free: least.free.min(free),
        }))
    }
}

impl Group {
    fn read([limit, used, stat]: &[PathBuf; 3]) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).ok();
        Self { limit: text(limit), used: text(used), stat: text(stat) }
    }

    /// Bytes of files that were read and not for long.
    fn given_back(&self) -> u64 {
        let stat = self.stat.as_deref().unwrap_or_default();
        // The first version counts those of the groups below apart.
        let named = |name: &str| {
            let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
            lines.find(|(key, _)| *key == name)?.1.trim().parse().ok()
        };
        named("total_inactive_file").or_else(|| named("inactive_file")).unwrap_or(0)
    }
}

/// The files of the control groups that a process is in, from its own to the outermost, where
/// `/proc/self/cgroup` says `own`: limit, use and figures.
fn files(own: &str) -> Vec<[PathBuf; 3]> {
    let mut all = Vec::new();
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, names) = match controllers {
            "" => ("/sys/fs/cgroup", ["memory.max", "memory.current", "memory.stat"]),
            _ if controllers.split(',').any(|name| name == "memory") => (
                "/sys/fs/cgroup/memory",
                ["memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"],
            ),
            _ => continue,
        };
        let inner = Path::new(path.trim_start_matches('/'));
        all.extend(
            inner.ancestors().map(|group| names.map(|name| Path::new(root).join(group).join(name))),
        );
    }
    all
}

/// Bytes of a figure that Linux gives in units of 1024.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:          123456 kB\n\
                           MemAvailable:    8192000 kB\n";

    fn group(limit: &str, used: &str, stat: &str) -> Group {
        let text = |text: &str| Some(text.to_owned());
        Group { limit: text(limit), used: text(used), stat: text(stat) }
    }

    #[test]
    fn what_ulimit_sets_is_all_that_there_is() {
        let here = HostMemory { total: 100, free: 60 };
        assert_eq!(here.within([]), here);
        assert_eq!(here.within([80, 200]), HostMemory { total: 80, free: 60 });
        assert_eq!(here.within([80, 50]), HostMemory { total: 50, free: 50 });
    }

    #[test]
    fn linux_says_how_much_memory_there_is_and_how_much_is_free() {
        let found = |groups: &[Group]| HostMemory::of(MEMINFO, groups).map(|h| (h.total, h.free));
        let all = (16_384_000 << 10, 8_192_000 << 10);
        assert_eq!(found(&[]), Some(all));
        assert_eq!(found(&[group("max\n", "5\n", ""), Group::default()]), Some(all));
        // Version 1 writes the largest number of pages where there is no limit.
        assert_eq!(found(&[group("9223372036854771712\n", "5\n", "")]), Some(all));
        // The least of all groups counts. Copies of files are given back.
        let inner = group("6000000000\n", "4000000000\n", "anon 3\ninactive_file 1500000000\n");
        let outer = group("9000000000\n", "8800000000\n", "");
        assert_eq!(found(std::slice::from_ref(&inner)), Some((6_000_000_000, 3_500_000_000)));
        assert_eq!(found(&[inner, outer]), Some((6_000_000_000, 200_000_000)));
        let first = group("100\n", "90\n", "inactive_file 1\ntotal_inactive_file 30\n");
        assert_eq!(found(&[first]), Some((100, 40)));
        assert_eq!(HostMemory::of("MemFree: 1 kB\n", &[]), None);
    }

    #[test]
    fn groups_are_looked_for_from_the_own_one_to_the_outermost() {
        let limits = |own: &str| -> Vec<String> {
            files(own).into_iter().map(|[limit, ..]| limit.display().to_string()).collect()
        };
        assert_eq!(
            limits("0::/user.slice/job 1.scope\n"),
            [
                "/sys/fs/cgroup/user.slice/job 1.scope/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
        assert_eq!(limits("0::/\n"), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(
            limits("9:name=systemd:/\n4:memory:/job/7\n1:cpu:/\n"),
            [
                "/sys/fs/cgroup/memory/job/7/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            ]
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory_of_which_some_is_free() {
        let HostMemory { total, free } = HostMemory::read().expect("Linux says it");
        assert!(0 < free && free <= total && total > 64 << 20, "{free} of {total}");
    }
}
