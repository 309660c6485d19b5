//! Which device each of several processes takes that a launcher has started.

use super::DevicePlan;
use crate::config::DeviceUse;
use crate::fault::{Fault, fault};
use crate::parallel::processes::Launch;

const KEY: &str = "device.use";

impl DevicePlan {
    /// The device of this process of `launch`, where `device` is what the configuration names and `cards` are the
    /// numbers of those that this process sees, or why there is none.
    ///
    /// Of `"cuda"`, `"all"` and, where there is a card, `"auto"`, processes of one machine take a card each, in the
    /// order of their local ranks; where they are more than cards, they begin again with the first. A process that
    /// sees one card alone takes that one. Of a list they take a device each.
    ///
    /// # Errors
    /// When `device` names no device, or not one for each process, and when there is no card and one is named.
    pub fn of_process(
        device: &DeviceUse,
        launch: &Launch,
        cards: &Result<Vec<usize>, String>,
    ) -> Result<Self, Fault> {
        let Launch { rank, world, local_rank, local_world, .. } = *launch;
        let one = match device {
            DeviceUse::One(name) => name.as_str(),
            DeviceUse::Several(names) => {
                let devices = Self::parse(device)?;
                let place = match devices.len() {
                    count if count == local_world => local_rank,
                    count if count == world => rank,
                    _ => return Err(unequal(names, launch)),
                };
                return Ok(devices[place]);
            }
        };
        let by_rank = |cards: &[usize]| Self::Cuda(cards[local_rank % cards.len()]);
        match (one, cards) {
            ("auto" | "cuda" | "all", Ok(cards)) if !cards.is_empty() => Ok(by_rank(cards)),
            ("auto", _) => Ok(Self::Cpu(None)),
            ("cuda" | "all", _) => {
                let why = cards.as_ref().err().map_or("there is no card", String::as_str);
                let message =
                    format!("rank {rank} of {world} is to take a GPU, and has none: {why}");
                let help = "ask the launcher for GPUs, such as with --gpus-per-task=1 of srun; \"cpu\" trains on \
                            the CPUs of all processes";
                Err(fault(KEY, message, help))
            }
            _ => Self::parse_one(one),
        }
    }
}

/// A list that has not one device for each process.
fn unequal(names: &[String], launch: &Launch) -> Fault {
    let Launch { world, local_world, .. } = launch;
    let message = format!(
        "`device.use` names {} devices, and {world} processes were started, {local_world} of them on this \
         machine: each takes one device",
        names.len()
    );
    let help =
        "write --device cuda or --device cpu, or start as many processes as there are devices";
    fault(KEY, message, help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parallel::processes::Variables;

    /// Processes of machines with so many each; the environment of torchrun, Slurm or Open MPI.
    fn launches(by: &str, machines: usize, each: usize) -> Vec<Launch> {
        let world = machines * each;
        let launch = |rank: usize| {
            let local = rank % each;
            let named: Vec<(&str, String)> = match by {
                "torchrun" => vec![
                    ("RANK", rank.to_string()),
                    ("WORLD_SIZE", world.to_string()),
                    ("LOCAL_RANK", local.to_string()),
                    ("LOCAL_WORLD_SIZE", each.to_string()),
                ],
                "slurm" => vec![
                    ("SLURM_PROCID", rank.to_string()),
                    ("SLURM_LOCALID", local.to_string()),
                    ("SLURM_NODEID", (rank / each).to_string()),
                    ("SLURM_STEP_NUM_TASKS", world.to_string()),
                    ("SLURM_STEP_TASKS_PER_NODE", format!("{each}(x{machines})")),
                    ("SLURM_STEP_NODELIST", "node[01-99]".to_owned()),
                ],
                _ => vec![
                    ("OMPI_COMM_WORLD_RANK", rank.to_string()),
                    ("OMPI_COMM_WORLD_SIZE", world.to_string()),
                    ("OMPI_COMM_WORLD_LOCAL_RANK", local.to_string()),
                    ("OMPI_COMM_WORLD_LOCAL_SIZE", each.to_string()),
                ],
            };
            let named = named.into_iter().chain([("MASTER_ADDR", "node01".to_owned())]);
            let variables: Variables =
                named.map(|(name, value)| (name.to_owned(), value)).collect();
            Launch::find(&variables).expect("is consistent").expect("there are others")
        };
        (0..world).map(launch).collect()
    }

    fn one(name: &str) -> DeviceUse {
        DeviceUse::One(name.to_owned())
    }

    fn several(names: &[&str]) -> DeviceUse {
        DeviceUse::Several(names.iter().map(|name| (*name).to_owned()).collect())
    }

    fn taken(device: &DeviceUse, launches: &[Launch], cards: &[usize]) -> Vec<String> {
        let cards = Ok(cards.to_vec());
        let of = |launch| DevicePlan::of_process(device, launch, &cards).expect("there is one");
        launches.iter().map(|launch| of(launch).to_string()).collect()
    }

    #[test]
    fn processes_of_a_machine_take_a_card_each_whoever_starts_them() {
        for by in ["torchrun", "slurm", "mpi"] {
            for name in ["auto", "cuda", "all"] {
                let found = taken(&one(name), &launches(by, 2, 2), &[0, 1, 2, 3]);
                assert_eq!(found, ["cuda:0", "cuda:1", "cuda:0", "cuda:1"], "{by} {name}");
            }
        }
    }

    /// As with `srun --gpu-bind=single:1` or CUDA_VISIBLE_DEVICES set for each process.
    #[test]
    fn a_process_that_sees_one_card_takes_it() {
        let found = taken(&one("cuda"), &launches("slurm", 1, 4), &[0]);
        assert_eq!(found, ["cuda:0"; 4]);
        let found = taken(&one("cuda:0"), &launches("slurm", 1, 4), &[0]);
        assert_eq!(found, ["cuda:0"; 4]);
    }

    #[test]
    fn processes_that_are_more_than_cards_share_them() {
        let found = taken(&one("all"), &launches("torchrun", 1, 3), &[2, 5]);
        assert_eq!(found, ["cuda:2", "cuda:5", "cuda:2"]);
    }

    #[test]
    fn a_list_has_a_device_for_each_process_of_a_machine_or_of_all() {
        let listed = several(&["cuda:3", "cuda:1"]);
        assert_eq!(taken(&listed, &launches("mpi", 1, 2), &[0, 1, 2, 3]), ["cuda:3", "cuda:1"]);
        let found = taken(&listed, &launches("slurm", 2, 2), &[0, 1, 2, 3]);
        assert_eq!(found, ["cuda:3", "cuda:1", "cuda:3", "cuda:1"]);
        let found = taken(&several(&["cpu:0", "cpu:1"]), &launches("slurm", 2, 1), &[]);
        assert_eq!(found, ["cpu:0", "cpu:1"]);
        let wrong = DevicePlan::of_process(&listed, &launches("mpi", 1, 3)[0], &Ok(vec![0]));
        let told = wrong.expect_err("is refused").to_string();
        assert!(told.contains("names 2 devices, and 3 processes were started"), "{told}");
    }

    #[test]
    fn without_a_card_auto_is_the_cpu_and_what_asks_for_one_is_refused() {
        let launch = &launches("torchrun", 1, 2)[1];
        let none = Err("no CUDA driver found".to_owned());
        let found = |name: &str| DevicePlan::of_process(&one(name), launch, &none);
        assert_eq!(found("auto"), Ok(DevicePlan::Cpu(None)));
        assert_eq!(found("cpu"), Ok(DevicePlan::Cpu(None)));
        for name in ["cuda", "all"] {
            let told = found(name).expect_err("is refused").to_string();
            assert!(told.contains("rank 1 of 2"), "{told}");
            assert!(told.contains("no CUDA driver found"), "{told}");
        }
        found("gpu").expect_err("is no device");
    }
}
