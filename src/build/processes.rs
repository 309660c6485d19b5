//! What several processes that train one model open together: each its own device and data; the run folder
//! is rank 0's alone, which sends the others what they go on from.

use std::path::PathBuf;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use super::saved::{Saved, train_state};
use super::{BuildError, OpenData, differences, open_device};
use crate::data::DataError;
use crate::memory::Cpu;
use crate::parallel::processes::{Elsewhere, Processes, pack, unpack};
use crate::plan::{DevicePlan, Machine, Plan};
use crate::run::state::{Resumable, SavedState, StateTag};

/// The exit code of a wrong configuration.
const CONFIGURATION: u8 = 2;

/// Refuses processes that were started with other configurations.
pub(super) fn check_alike(processes: &Processes, plan: &Plan) -> Result<(), BuildError> {
    let own = plan.to_toml()?;
    let all = processes.gather("configuration", own.as_bytes())?;
    let Some(rank) = all.iter().position(|other| *other != all[0]) else { return Ok(()) };
    let text = |rank: usize| String::from_utf8_lossy(&all[rank]).into_owned();
    let who = |rank: usize| &processes.roster()[rank];
    let keys = differences(&text(0), &text(rank), |_| false).join("\n");
    let message = format!(
        "rank 0 ({}) and rank {rank} ({}) have different configurations:\n{keys}\nStart all with the same \
         file and the same options.",
        who(0),
        who(rank)
    );
    Err(Elsewhere { rank, message, code: CONFIGURATION, lost: true }.into())
}

/// The processes that train a model together, and which device this one has. The plan names one for each of them.
#[derive(Clone, Copy)]
pub struct Among<'a> {
    /// The processes.
    pub processes: &'a Processes,
    /// The device of this one.
    pub device: DevicePlan,
}

impl Among<'_> {
    /// Opens the device.
    ///
    /// # Errors
    /// When that fails, and when the plan is not one of so many processes.
    pub(super) fn open(&self, plan: &Plan) -> Result<Vec<Device>, BuildError> {
        let (processes, devices) = (self.processes.ranks(), plan.devices.len());
        if plan.pipeline.is_some() {
            return Err(BuildError::PipelineOfProcesses { processes });
        }
        match devices == processes {
            true => Ok(vec![open_device(plan, self.device)?]),
            false => Err(BuildError::DevicesOfProcesses { devices, processes }),
        }
    }
}

/// A machine as small as the smallest of those of the processes, so that all choose the same way to take
/// steps. `sharing` processes have one card.
pub(super) fn smallest_machine(
    processes: &Processes,
    machine: Machine,
    sharing: u64,
) -> Result<Machine, Elsewhere> {
    let Machine { memory, free, cpu, .. } = machine;
    let [memory, free] = [Some(memory), free].map(|bytes| bytes.map(|bytes| bytes / sharing));
    let memory = memory.unwrap_or_default();
    let own = [memory, cpu.threads as u64, cpu.packing_buffers, free.unwrap_or(u64::MAX)];
    let own = own.map(u64::to_le_bytes).concat();
    let all = processes.gather("memory", &own)?;
    let numbers = all.iter().map(|bytes| bytes.as_chunks::<8>().0);
    let numbers: Vec<Vec<u64>> =
        numbers.map(|all| all.iter().map(|number| u64::from_le_bytes(*number)).collect()).collect();
    let of = |place: usize| numbers.iter().filter_map(move |all| all.get(place).copied());
    let cpu = Cpu {
        threads: of(1).max().map_or(cpu.threads, |threads| threads as usize),
        packing_buffers: of(2).max().unwrap_or(cpu.packing_buffers),
    };
    let free = of(3).min().filter(|free| *free < u64::MAX);
    Ok(Machine { memory: of(0).min().unwrap_or(memory), free, cpu, ..machine })
}

/// The data: rank 0 opens them before the others, and draws a phantom where there is to be one.
pub(super) fn data(
    processes: &Processes,
    open: impl FnOnce() -> Result<OpenData, DataError>,
) -> Result<OpenData, BuildError> {
    let opened = |processes: &Processes, word| processes.share("data", word);
    let data = match processes.is_first() {
        true => {
            let data = open()?;
            opened(processes, Some(Vec::new()))?;
            data
        }
        false => {
            opened(processes, None)?;
            open()?
        }
    };
    let seen = serde_json::to_vec(&data.fingerprint).unwrap_or_default();
    processes.agree("data: other images, labels or lists", &seen)?;
    Ok(data)
}

/// What the others are told of the saved state beside its files.
#[derive(Serialize, Deserialize)]
struct Told {
    init: Option<PathBuf>,
    state: Option<(PathBuf, StateTag)>,
}

/// What rank 0 has `found` in the run folder, for all; `plan` is given the weights that the run was started
/// from.
pub(super) fn saved_of_first(
    processes: &Processes,
    found: Option<Saved>,
    plan: &mut Plan,
) -> Result<Option<Saved>, BuildError> {
    const TOLD: &str = "told";
    if processes.is_first() {
        let newest = found.as_ref().and_then(|saved| saved.newest.as_ref());
        let state = newest.map(|newest| &newest.state);
        let of_state = state.map(|state| (state.folder.clone(), state.tag.clone()));
        let told = Told { init: plan.init.clone(), state: of_state };
        let told = serde_json::to_vec(&told).unwrap_or_default();
        let files = state.into_iter().flat_map(|state| &state.files);
        let files = files.map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        processes.share("state", Some(pack([(TOLD, told.as_slice())].into_iter().chain(files))))?;
        return Ok(found);
    }
    let parcel = processes.share("state", None)?;
    let unread = || {
        let message = "what rank 0 has sent of the saved state cannot be read".to_owned();
        Elsewhere { rank: processes.rank(), message, code: 1, lost: true }
    };
    let mut parts = unpack(&parcel).ok_or_else(unread)?.into_iter();
    let (_, told) = parts.next().ok_or_else(unread)?;
    let told: Told = serde_json::from_slice(&told).map_err(|_| unread())?;
    plan.init = told.init;
    let Some((folder, tag)) = told.state else { return Ok(None) };
    let state = SavedState { folder, tag, files: parts.collect() };
    let train_state = Some(train_state(&state)?);
    let newest = Some(Resumable { state, damaged: Vec::new() });
    Ok(Some(Saved { store: None, newest, train_state }))
}
