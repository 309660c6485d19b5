//! Slurm's short ways to write machines and counts.

/// The first machine of a list such as `node[03-05,07],login1`.
pub(super) fn first(list: &str) -> Option<String> {
    let (mut name, mut within, mut chosen) = (String::new(), false, false);
    for sign in list.trim().chars() {
        match (within, sign) {
            (false, '[') => (within, chosen) = (true, false),
            (true, ']') => within = false,
            (true, '-' | ',') => chosen = true,
            (true, _) if chosen => {}
            (false, ',') => break,
            _ => name.push(sign),
        }
    }
    (!name.is_empty() && !within).then_some(name)
}

/// How many tasks each machine has, of a list such as `4(x2),1`.
pub(super) fn tasks(list: &str) -> Option<Vec<usize>> {
    let mut counts = Vec::new();
    for part in list.split(',') {
        let (count, times) = match part.split_once("(x") {
            None => (part, 1),
            Some((count, times)) => (count, times.strip_suffix(')')?.parse().ok()?),
        };
        let count: usize = count.trim().parse().ok()?;
        counts.extend(std::iter::repeat_n(count, times));
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `man scontrol` (`show hostnames`) and `man srun` write them.
    #[test]
    fn the_first_machine_of_a_list_is_found() {
        for (list, expected) in [
            ("localhost", Some("localhost")),
            ("node[03-05,07]", Some("node03")),
            ("tux[1,3],tux9", Some("tux1")),
            ("gpu-a12,gpu-b[1-2]", Some("gpu-a12")),
            ("rack[0-1]n[08-15].cluster", Some("rack0n08.cluster")),
            ("", None),
            ("node[1-", None),
        ] {
            assert_eq!(first(list).as_deref(), expected, "{list}");
        }
    }

    #[test]
    fn counts_are_written_out() {
        for (list, expected) in [
            ("4", Some(vec![4])),
            ("2(x3),1", Some(vec![2, 2, 2, 1])),
            ("1,2", Some(vec![1, 2])),
            ("2(x", None),
            ("many", None),
        ] {
            assert_eq!(tasks(list), expected, "{list}");
        }
    }
}
