//! How a launcher tells each of the processes that it starts of the others: torchrun, Slurm, Open MPI.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::nodes;
use super::secret::Secret;
use crate::parallel::{P2P_DISABLE, is_p2p_disabled};

/// The environment of a process.
pub type Variables = BTreeMap<String, String>;

/// What has started the processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Launcher {
    /// torchrun, or whatever else sets `RANK`, `WORLD_SIZE`, `MASTER_ADDR` and `MASTER_PORT`.
    Torchrun,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `srun` of Slurm.
    Slurm,
}

/// A process among several that a launcher has started to train one model.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// What has started them.
    pub launcher: Launcher,
    /// Its place among them, from 0.
    pub rank: usize,
    /// How many there are.
    pub world: usize,
    /// Its place among those on this machine, from 0.
    pub local_rank: usize,
    /// How many are on this machine.
    pub local_world: usize,
    /// The machine of rank 0.
    pub host: String,
    /// Where rank 0 listens.
    pub port: u16,
    /// What a process shows that it belongs to the others by.
    pub secret: Secret,
    /// How long to wait until all have come.
    pub join: Duration,
    /// How long nothing may be heard of a process.
    pub silence: Duration,
    /// Whether cards are to exchange nothing but over TCP.
    pub over_tcp: bool,
}

/// What is wrong with what the launcher says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// A variable that belongs to others is not set.
    #[error(
        "{present} is set and {missing} is not\n{launcher} sets both. To train in one process, unset \
         {present}."
    )]
    Missing {
        /// What sets both.
        launcher: Launcher,
        /// The one that is set.
        present: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
    /// A variable is no number that it can be.
    #[error("{name} is {value:?}, and must be {must}")]
    Value {
        /// The variable.
        name: &'static str,
        /// What it holds.
        value: String,
        /// What it may be, as a phrase.
        must: &'static str,
    },
    /// Two variables contradict each other.
    #[error("{0} is {1}, and {2} is {3}: {4}")]
    Inconsistent(&'static str, usize, &'static str, usize, &'static str),
    /// Nothing says where rank 0 is.
    #[error(
        "nothing says on which machine rank 0 is: {} processes were started, {} of them on this machine\n{}",
        .world, .local_world, advice(*.launcher)
    )]
    NoAddress {
        /// What has started them.
        launcher: Launcher,
        /// How many there are.
        world: usize,
        /// How many are on this machine.
        local_world: usize,
    },
}

const JOIN: u64 = 60;
const SILENCE: u64 = 20;
const SECONDS: &str = "a number of seconds from 1";
const COUNT: &str = "a number";

impl Launch {
    /// What the environment says of the processes that train together; `None` where this is one alone.
    ///
    /// # Errors
    /// When what it says does not fit together.
    pub fn find(variables: &Variables) -> Result<Option<Self>, LaunchError> {
        let read = Read(variables);
        // What was started last comes first: torchrun and mpirun run within Slurm.
        let found = match () {
            () if read.any(&["RANK", "WORLD_SIZE"]) && read.any(&["MASTER_ADDR", "LOCAL_RANK"]) => {
                read.torchrun()?
            }
            () if read.any(&["OMPI_COMM_WORLD_SIZE"]) => read.open_mpi()?,
            // Without a step, it is the script of a job, which runs once however many tasks there are.
            () if read.any(&["SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS"])
                && read.any(&["SLURM_PROCID"]) =>
            {
                read.slurm()?
            }
            () => return Ok(None),
        };
        Ok((found.world > 1).then_some(found))
    }

    /// One line on where this process is among the others.
    pub fn told(&self) -> String {
        let Self { launcher, rank, world, local_rank, local_world, host, port, .. } = self;
        format!(
            "{launcher}: rank {rank} of {world}, process {local_rank} of {local_world} on this machine; \
             rank 0 listens at {host}:{port}"
        )
    }
}

/// A place among the processes, by the names of the variables that it comes from.
struct Ranks {
    rank: (&'static str, usize),
    world: (&'static str, usize),
    local_rank: (&'static str, usize),
    local_world: (&'static str, usize),
}

/// Variables that are read.
struct Read<'a>(&'a Variables);

impl Read<'_> {
    fn any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.text(name).is_some())
    }

    /// What a variable holds, unless that is nothing.
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(
        &self,
        name: &'static str,
        must: &'static str,
    ) -> Result<Option<T>, LaunchError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = |_| LaunchError::Value { name, value: text.to_owned(), must };
        text.parse().map(Some).map_err(wrong)
    }

    fn needed(
        &self,
        launcher: Launcher,
        missing: &'static str,
        present: &'static str,
    ) -> Result<usize, LaunchError> {
        let found = self.number(missing, COUNT)?;
        found.ok_or(LaunchError::Missing { launcher, present, missing })
    }

    fn torchrun(&self) -> Result<Launch, LaunchError> {
        let launcher = Launcher::Torchrun;
        let (rank, world) = ("RANK", "WORLD_SIZE");
        let rank = (rank, self.needed(launcher, rank, world)?);
        let world = (world, self.needed(launcher, world, rank.0)?);
        // Kubeflow's operator starts one process in each pod and says nothing of others there.
        let local_world = ("LOCAL_WORLD_SIZE", self.number("LOCAL_WORLD_SIZE", COUNT)?);
        let local_rank = ("LOCAL_RANK", self.number("LOCAL_RANK", COUNT)?);
        let (local_rank, local_world) = match (local_rank, local_world) {
            ((rank, Some(place)), (world, Some(count))) => ((rank, place), (world, count)),
            ((rank, Some(_)), (world, None)) => {
                return Err(LaunchError::Missing { launcher, present: rank, missing: world });
            }
            ((rank, None), (world, count)) => ((rank, 0), (world, count.unwrap_or(1))),
        };
        // torchrun itself listens at the master's port.
        let taken = self.any(&["TORCHELASTIC_RUN_ID"]);
        let job = ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"];
        self.launch(launcher, Ranks { rank, world, local_rank, local_world }, &job, taken, None)
    }

    fn open_mpi(&self) -> Result<Launch, LaunchError> {
        let size = "OMPI_COMM_WORLD_SIZE";
        let number = |name: &'static str| -> Result<(&'static str, usize), LaunchError> {
            Ok((name, self.needed(Launcher::OpenMpi, name, size)?))
        };
        let ranks = Ranks {
            rank: number("OMPI_COMM_WORLD_RANK")?,
            world: number(size)?,
            local_rank: number("OMPI_COMM_WORLD_LOCAL_RANK")?,
            local_world: number("OMPI_COMM_WORLD_LOCAL_SIZE")?,
        };
        let job = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_ess_jobid"];
        self.launch(Launcher::OpenMpi, ranks, &job, false, None)
    }

    fn slurm(&self) -> Result<Launch, LaunchError> {
        let launcher = Launcher::Slurm;
        let rank = ("SLURM_PROCID", self.needed(launcher, "SLURM_PROCID", "SLURM_STEP_NODELIST")?);
        let world = match self.number("SLURM_STEP_NUM_TASKS", COUNT)? {
            Some(tasks) => ("SLURM_STEP_NUM_TASKS", tasks),
            None => ("SLURM_NTASKS", self.needed(launcher, "SLURM_NTASKS", rank.0)?),
        };
        let local_rank = ("SLURM_LOCALID", self.needed(launcher, "SLURM_LOCALID", rank.0)?);
        let node = self.number("SLURM_NODEID", COUNT)?.unwrap_or(0);
        let counts = self.text("SLURM_STEP_TASKS_PER_NODE");
        let count = match counts.map(nodes::tasks) {
            None => None,
            Some(Some(counts)) => counts.get(node).copied(),
            Some(None) => {
                let value = counts.unwrap_or_default().to_owned();
                let must = "a list such as 4(x2),1";
                let name = "SLURM_STEP_TASKS_PER_NODE";
                return Err(LaunchError::Value { name, value, must });
            }
        };
        let local_world = ("SLURM_STEP_TASKS_PER_NODE", count.unwrap_or(world.1));
        let first = self.text("SLURM_STEP_NODELIST").and_then(nodes::first);
        let ranks = Ranks { rank, world, local_rank, local_world };
        self.launch(launcher, ranks, &["SLURM_JOB_ID", "SLURM_STEP_ID"], false, first)
    }

    /// `job` names what is the same in all processes and in no other job's; `host` is where rank 0 is,
    /// unless it is said elsewhere. Where the master's port is `taken`, rank 0 listens at the next.
    fn launch(
        &self,
        launcher: Launcher,
        ranks: Ranks,
        job: &[&str],
        taken: bool,
        host: Option<String>,
    ) -> Result<Launch, LaunchError> {
        let Ranks { rank, world, local_rank, local_world } = ranks;
        let below = "ranks count from 0";
        for ((low, small), (high, large)) in [(rank, world), (local_rank, local_world)] {
            if small >= large {
                return Err(LaunchError::Inconsistent(low, small, high, large, below));
            }
        }
        if local_world.1 > world.1 {
            let (local, world) = (local_world, world);
            let why = "a machine has no more processes than there are";
            return Err(LaunchError::Inconsistent(local.0, local.1, world.0, world.1, why));
        }
        let [rank, world, local_rank, local_world] =
            [rank, world, local_rank, local_world].map(|n| n.1);
        let given = self.text("MASTER_ADDR").map(str::to_owned).or(host);
        let host = match given {
            Some(host) => host,
            None if local_world == world => "127.0.0.1".to_owned(),
            None => return Err(LaunchError::NoAddress { launcher, world, local_world }),
        };
        let job: Vec<&str> = job.iter().filter_map(|name| self.text(name)).collect();
        let job = format!("{launcher} {}", job.join(" "));
        let port_must = "the number of a port, from 1 to 65535";
        let [own, master] = [
            self.number::<u16>("TRAINER_PORT", port_must)?,
            self.number::<u16>("MASTER_PORT", port_must)?,
        ];
        let port = match (own, master) {
            (Some(port), _) => port,
            (None, Some(port)) if taken => port.checked_add(1).unwrap_or(port - 1),
            (None, Some(port)) => port,
            (None, None) => derived_port(&job),
        };
        let secret = match self.text("TRAINER_SECRET") {
            Some(secret) => Secret::given(secret),
            None => Secret::derived(&format!("{job} {host} {port}")),
        };
        let seconds = |name, otherwise| match self.number::<u64>(name, SECONDS)? {
            Some(0) => Err(LaunchError::Value { name, value: "0".to_owned(), must: SECONDS }),
            found => Ok(Duration::from_secs(found.unwrap_or(otherwise))),
        };
        let join = seconds("TRAINER_JOIN_SECONDS", JOIN)?;
        let silence = seconds("TRAINER_SILENCE_SECONDS", SILENCE)?;
        let name = "TRAINER_EXCHANGE";
        let over_tcp = match self.text(name) {
            Some("tcp") => true,
            None | Some("memory") => self.text(P2P_DISABLE).is_some_and(is_p2p_disabled),
            Some(other) => {
                let must = "\"tcp\" or \"memory\"";
                return Err(LaunchError::Value { name, value: other.to_owned(), must });
            }
        };
        Ok(Launch {
            launcher,
            rank,
            world,
            local_rank,
            local_world,
            host,
            port,
            secret,
            join,
            silence,
            over_tcp,
        })
    }
}

/// A port of a job, below those that systems hand out.
fn derived_port(job: &str) -> u16 {
    let hash = blake3::hash(job.as_bytes());
    let [low, high, ..] = *hash.as_bytes();
    15_000 + u16::from_le_bytes([low, high]) % 15_000
}

fn advice(launcher: Launcher) -> &'static str {
    match launcher {
        Launcher::OpenMpi => "Say so with mpirun -x MASTER_ADDR=<machine> -x MASTER_PORT=29500.",
        Launcher::Torchrun | Launcher::Slurm => {
            "Set MASTER_ADDR to its name, and MASTER_PORT to a port that is free there."
        }
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "Open MPI",
            Self::Slurm => "Slurm",
        })
    }
}
