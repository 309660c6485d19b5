//! The devices of this machine, and which of them a run computes on.
//!
//! CUDA and its compiler NVRTC are loaded when they are first used, so a program built with them
//! runs where they are missing. What is missing is found out here and said in words.

use std::fmt;
use std::num::NonZero;
use std::thread;

use burn::tensor::Device;
use thiserror::Error;

use crate::screen::Bytes;

#[cfg(not(any(feature = "cpu", feature = "cuda")))]
compile_error!("enable the feature `cpu`, `cuda` or both: there is nothing to compute on");

/// An NVIDIA card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its place among the cards the driver shows, counted from 0; the N of `cuda:N`.
    pub index: usize,
    /// What it is, or why it cannot be opened.
    pub details: Result<CardDetails, String>,
}

/// What the driver says of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardDetails {
    /// Such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes that no process holds.
    pub free: u64,
    /// Major and minor number of its compute capability.
    pub compute_capability: (i32, i32),
}

impl fmt::Display for Card {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.details {
            Ok(details) => {
                let (major, minor) = details.compute_capability;
                write!(
                    formatter,
                    "{}, {} of {} free, compute capability {major}.{minor}",
                    details.name,
                    Bytes(details.free),
                    Bytes(details.memory),
                )
            }
            Err(reason) => write!(formatter, "cannot be opened: {reason}"),
        }
    }
}

/// Why no card can be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NoCuda {
    /// The program was built without CUDA.
    #[error("this program was built without the feature `cuda`")]
    NotBuilt,
    /// There is no `libcuda`.
    #[error("no CUDA driver found")]
    NoDriver,
    /// The driver shows no card.
    #[error("the CUDA driver shows no card")]
    NoCard,
    /// The driver answers with an error.
    #[error("the CUDA driver does not work: {0}")]
    Driver(String),
}

/// Why a device cannot be used. It is always the configuration or the command line that asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// Not the name of a device.
    #[error(
        "`{text}` is not a device; write \"auto\", \"cpu\", \"cuda\" or \"cuda:N\" with a number \
         N\n{found}"
    )]
    Unknown {
        /// What was asked for.
        text: String,
        /// What there is.
        found: Found,
    },
    /// The device is not there.
    #[error("the device `{text}` cannot be used: {reason}\n{found}")]
    Missing {
        /// What was asked for.
        text: String,
        /// Why it cannot be used.
        reason: String,
        /// What there is.
        found: Found,
    },
    /// A card is there and kernels for it cannot be compiled.
    #[error(
        "the card is there ({card}) but kernels cannot be compiled for it: {reason}\ninstall the \
         CUDA toolkit 12 or newer (NVRTC and the headers, found through CUDA_PATH and \
         LD_LIBRARY_PATH), or use the device \"cpu\""
    )]
    NoCompiler {
        /// The card.
        card: String,
        /// What is missing.
        reason: String,
    },
}

/// The devices of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The threads of the CPU, where the program was built for it.
    pub cpu_threads: Option<usize>,
    /// The cards, or why there is none.
    pub cards: Result<Vec<Card>, NoCuda>,
}

impl fmt::Display for Found {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("devices here:")?;
        if let Some(threads) = self.cpu_threads {
            write!(formatter, "\n  cpu     {threads} threads")?;
        }
        match &self.cards {
            Ok(cards) => cards
                .iter()
                .try_for_each(|card| write!(formatter, "\n  cuda:{:<2} {card}", card.index)),
            Err(reason) => write!(formatter, "\n  no GPU: {reason}"),
        }
    }
}

/// Looks what devices there are. Never fails and never panics: what is missing is in the answer.
pub fn find_devices() -> Found {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    Found { cpu_threads: cfg!(feature = "cpu").then_some(threads), cards: cuda::cards() }
}

/// The device that `text` names: `"auto"` (the first CUDA card, else the CPU), `"cpu"`, `"cuda"`
/// (the first card) or `"cuda:N"`.
///
/// # Errors
/// Text that names no device, and a device that is not there or cannot be used; both say what there
/// is. `"auto"` does not fall back to the CPU where a card is there and cannot be used, since a run
/// would then be slow without anyone knowing why.
pub fn resolve_device(text: &str) -> Result<Device, DeviceError> {
    // Of the cards nothing is known yet, so that this is the first one for "auto".
    let nothing = Found { cpu_threads: None, cards: Ok(Vec::new()) };
    if let Some(Chosen::Card(index)) = choose(text, &nothing) {
        cuda::keep_open(index);
    }
    resolve(text, find_devices())
}

fn resolve(text: &str, found: Found) -> Result<Device, DeviceError> {
    match choose(text, &found) {
        Some(Chosen::Cpu) => cpu(text, found),
        Some(Chosen::Card(index)) => card(text, index, found),
        None => Err(DeviceError::Unknown { text: text.to_owned(), found }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Chosen {
    Cpu,
    Card(usize),
}

fn choose(text: &str, found: &Found) -> Option<Chosen> {
    match text {
        "auto" => Some(match &found.cards {
            Ok(cards) => Chosen::Card(
                cards.iter().find(|card| card.details.is_ok()).map_or(0, |card| card.index),
            ),
            Err(_) if found.cpu_threads.is_some() => Chosen::Cpu,
            Err(_) => Chosen::Card(0),
        }),
        "cpu" => Some(Chosen::Cpu),
        // One of several devices that the CPU stands for.
        _ if text.strip_prefix("cpu:").is_some_and(|number| number.parse::<usize>().is_ok()) => {
            Some(Chosen::Cpu)
        }
        "cuda" => Some(Chosen::Card(0)),
        _ => text.strip_prefix("cuda:")?.parse().ok().map(Chosen::Card),
    }
}

#[cfg(feature = "cpu")]
fn cpu(_: &str, _: Found) -> Result<Device, DeviceError> {
    Ok(Device::flex())
}

#[cfg(not(feature = "cpu"))]
fn cpu(text: &str, found: Found) -> Result<Device, DeviceError> {
    let reason = "this program was built without the feature `cpu`".to_owned();
    Err(DeviceError::Missing { text: text.to_owned(), reason, found })
}

fn card(text: &str, index: usize, found: Found) -> Result<Device, DeviceError> {
    let reason = match &found.cards {
        Err(reason) => reason.to_string(),
        Ok(cards) => match cards.iter().find(|card| card.index == index) {
            None if cards.len() == 1 => "there is 1 card, `cuda:0`".to_owned(),
            None => format!("there are {} cards, counted from 0", cards.len()),
            Some(card) => match &card.details {
                Err(reason) => format!("the card cannot be opened: {reason}"),
                Ok(details) => return cuda::open(index, &details.name),
            },
        },
    };
    Err(DeviceError::Missing { text: text.to_owned(), reason, found })
}

/// The device as a person knows it, such as `cuda:0, NVIDIA H100 80GB HBM3, 78.6 GiB of 79.2 GiB
/// free, compute capability 9.0` or `cpu, 4 threads`.
pub fn describe(device: &Device) -> String {
    let found = find_devices();
    #[cfg(feature = "cpu")]
    if *device == Device::flex() {
        return format!("cpu, {} threads", found.cpu_threads.unwrap_or(1));
    }
    #[cfg(feature = "cuda")]
    for card in found.cards.as_deref().unwrap_or_default() {
        if *device == Device::cuda(card.index) {
            return format!("cuda:{}, {card}", card.index);
        }
    }
    let _ = found;
    format!("{device:?}")
}

#[cfg(not(feature = "cuda"))]
mod cuda {
    use super::{Card, Device, DeviceError, NoCuda};

    pub fn cards() -> Result<Vec<Card>, NoCuda> {
        Err(NoCuda::NotBuilt)
    }

    pub fn keep_open(_: usize) {}

    // Never reached: it takes a card, and `cards` gives none.
    pub fn open(_: usize, name: &str) -> Result<Device, DeviceError> {
        let reason = NoCuda::NotBuilt.to_string();
        Err(DeviceError::NoCompiler { card: name.to_owned(), reason })
    }
}

#[cfg(feature = "cuda")]
mod cuda {
    use std::sync::{Arc, Mutex, PoisonError};

    use cubecl_server::config::cache::CacheConfig;
    use cubecl_server::config::memory::CudaAllocator;
    use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
    use cudarc::driver::sys::{CUlimit, CUresult};
    use cudarc::driver::{CudaContext, DriverError};

    use super::{Card, CardDetails, Device, DeviceError, NoCuda};
    use crate::contain::contained;
    use crate::ops::gpu::hand_over_generated;

    pub fn cards() -> Result<Vec<Card>, NoCuda> {
        // A panic here says that libcuda could not be loaded; everything else is a `Result`.
        let count = contained(CudaContext::device_count)
            .map_err(|_| NoCuda::NoDriver)?
            .map_err(|error| no_cuda(&error))?;
        if count < 1 {
            return Err(NoCuda::NoCard);
        }
        let card = |index| Card { index, details: details(index) };
        Ok((0..count.unsigned_abs() as usize).map(card).collect())
    }

    fn no_cuda(error: &DriverError) -> NoCuda {
        match error.0 {
            CUresult::CUDA_ERROR_NO_DEVICE => NoCuda::NoCard,
            _ => NoCuda::Driver(error.to_string()),
        }
    }

    /// Bytes of stack for each thread that kernels of this program take at most. `scripts/compile_kernels.py` reads them here and
    /// refuses more.
    const STACK: usize = 176;
    const STACK_ON_HOPPER: usize = 96;

    /// The card's primary context. CUDA holds memory for the stacks of all threads that a card can run at once, 1 KiB each
    /// unless it is told a limit: 264 MiB on an H100, of which 25 are left. A kernel that needs a larger stack still gets it
    /// when it is first launched ("CUDA Driver API", `cuCtxSetLimit`).
    fn opened(index: usize) -> Result<Arc<CudaContext>, DriverError> {
        let context = CudaContext::new(index)?;
        let stack = if context.compute_capability()?.0 == 9 { STACK_ON_HOPPER } else { STACK };
        if context.get_limit(CUlimit::CU_LIMIT_STACK_SIZE)? > stack {
            context.set_limit(CUlimit::CU_LIMIT_STACK_SIZE, stack)?;
        }
        Ok(context)
    }

    fn details(index: usize) -> Result<CardDetails, String> {
        let read = || -> Result<CardDetails, DriverError> {
            let context = opened(index)?;
            let (free, memory) = context.mem_get_info()?;
            Ok(CardDetails {
                name: context.name()?,
                memory: memory as u64,
                free: free as u64,
                compute_capability: context.compute_capability()?,
            })
        };
        contained(read)?.map_err(|error| error.to_string())
    }

    /// Keeps the card open, if it can be opened, until the process ends. The driver destroys what it has set up for a
    /// process with a card once nothing of the process has the card open, as between a look at it and its first use.
    pub fn keep_open(index: usize) {
        static OPEN: Mutex<Vec<Arc<CudaContext>>> = Mutex::new(Vec::new());
        if let Ok(Ok(context)) = contained(|| opened(index)) {
            OPEN.lock().unwrap_or_else(PoisonError::into_inner).push(context);
        }
    }

    pub fn open(index: usize, name: &str) -> Result<Device, DeviceError> {
        let missing = |reason| DeviceError::NoCompiler { card: name.to_owned(), reason };
        let headers = cubecl_cuda::install::cuda_path().map(|path| path.join("include"));
        match headers {
            None => return Err(missing("the CUDA headers were not found".to_owned())),
            Some(headers) if !headers.is_dir() => {
                let reason = format!("there are no CUDA headers at {}", headers.display());
                return Err(missing(reason));
            }
            Some(_) => {}
        }
        contained(|| cudarc::nvrtc::compile_ptx("").map(drop))
            .map_err(|_| missing("the library NVRTC was not found".to_owned()))?
            .map_err(|error| missing(format!("the library NVRTC does not work: {error:?}")))?;
        set_up_cubecl();
        hand_over_generated(index);
        Ok(Device::cuda(index))
    }

    /// Compiled kernels stay in the user's cache folder for later processes, and where there are several cards, their copy engines can be let
    /// reach each other's memory, unless the settings were read already; a `cubecl.toml` still decides about everything else. The settings are the
    /// process's, and the same for every device.
    fn set_up_cubecl() {
        let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
        config.compilation.cache = true;
        config.environment.path = CacheConfig::Global;
        if CudaContext::device_count().is_ok_and(|cards| cards > 1) {
            config.memory.cuda.allocator = CudaAllocator::Async;
        }
        CubeClRuntimeConfig::try_set(config);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(cards: Result<Vec<Card>, NoCuda>) -> Found {
        Found { cpu_threads: Some(4), cards }
    }

    fn h100(index: usize) -> Card {
        Card {
            index,
            details: Ok(CardDetails {
                name: "NVIDIA H100 80GB HBM3".to_owned(),
                memory: 85_000_000_000,
                free: 84_400_000_000,
                compute_capability: (9, 0),
            }),
        }
    }

    #[test]
    fn auto_is_the_first_card_that_opens_else_the_cpu() {
        let none = machine(Err(NoCuda::NoDriver));
        assert_eq!(choose("auto", &none), Some(Chosen::Cpu));
        let two = machine(Ok(vec![Card { index: 0, details: Err("in use".to_owned()) }, h100(1)]));
        assert_eq!(choose("auto", &two), Some(Chosen::Card(1)));
    }

    #[test]
    fn names_are_read_exactly() {
        let none = machine(Err(NoCuda::NoDriver));
        assert_eq!(choose("cpu", &none), Some(Chosen::Cpu));
        assert_eq!(choose("cuda", &none), Some(Chosen::Card(0)));
        assert_eq!(choose("cuda:12", &none), Some(Chosen::Card(12)));
        for wrong in ["", "gpu", "CPU", "cuda:", "cuda:-1", "cuda:x", "cuda0", "cuda:0,1"] {
            assert_eq!(choose(wrong, &none), None, "{wrong}");
        }
    }

    #[test]
    fn a_wrong_name_says_what_to_write_and_what_there_is() {
        let error = resolve("gpu", machine(Ok(vec![h100(0)]))).expect_err("is refused");
        assert_eq!(
            error.to_string(),
            "`gpu` is not a device; write \"auto\", \"cpu\", \"cuda\" or \"cuda:N\" with a number N\n\
             devices here:\n  cpu     4 threads\n  cuda:0  NVIDIA H100 80GB HBM3, 78.6 GiB of 79.2 GiB \
             free, compute capability 9.0"
        );
    }

    #[test]
    fn a_card_that_is_not_there_says_what_there_is() {
        let error = resolve("cuda:3", machine(Ok(vec![h100(0)]))).expect_err("is refused");
        assert!(error.to_string().contains("there is 1 card"), "{error}");
        assert!(error.to_string().contains("cuda:0  NVIDIA H100"), "{error}");
        let error = resolve("cuda", machine(Err(NoCuda::NoDriver))).expect_err("is refused");
        assert_eq!(
            error.to_string(),
            "the device `cuda` cannot be used: no CUDA driver found\ndevices here:\n  cpu     4 \
             threads\n  no GPU: no CUDA driver found"
        );
    }

    #[test]
    fn a_card_that_does_not_open_is_never_replaced_by_the_cpu() {
        let broken = Card { index: 0, details: Err("CUDA_ERROR_DEVICE_UNAVAILABLE".to_owned()) };
        let error = resolve("auto", machine(Ok(vec![broken]))).expect_err("is refused");
        assert!(error.to_string().contains("CUDA_ERROR_DEVICE_UNAVAILABLE"), "{error}");
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn the_cpu_is_always_there() {
        let device = resolve_device("cpu").expect("resolves");
        assert!(describe(&device).starts_with("cpu, "), "{}", describe(&device));
    }
}
