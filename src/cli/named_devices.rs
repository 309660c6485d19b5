//! Every GPU of this machine, where a configuration asks for all of them, and the devices of a queue.

use clap::Args;

use super::Failure;
use crate::build::{self, Found, find_devices};
use crate::config::DeviceUse;
use crate::fault::Fault;
use crate::plan::{DevicePlan, Plan};

/// The devices of a queue.
#[derive(Debug, Default, Args)]
pub struct Queue {
    /// Uses these devices at once, one process on each, in place of `device.use`: names, or all
    ///
    /// Each device takes the next process as soon as it is free: `--devices cuda:0,cuda:1`, or `--devices
    /// all` for every GPU that can be used. On the CPU `--devices cpu:0,cpu:1` runs two processes at
    /// once, which share its cores.
    #[arg(long, value_name = "DEVICE,…", value_delimiter = ',')]
    devices: Vec<String>,
}

impl Queue {
    /// Whether there are any.
    pub(super) fn is_given(&self) -> bool {
        !self.devices.is_empty()
    }

    /// The devices, all different; none where none is given.
    ///
    /// # Errors
    /// When a name means no device, or none of this machine, or one is named twice.
    pub(super) fn open(&self) -> Result<Vec<DevicePlan>, Failure> {
        match self.is_given() {
            false => Ok(Vec::new()),
            true => queue(&self.devices, &find_devices()).map_err(|(message, help)| {
                Failure::configuration(message).with_help(Some(help.to_owned()))
            }),
        }
    }
}

/// Looks whether `plan` can be done on each of `devices`; with none, on its own.
///
/// # Errors
/// What the first of them that cannot do it lacks.
pub(super) fn check_on_each(plan: &Plan, devices: &[DevicePlan]) -> Result<(), Fault> {
    if devices.is_empty() {
        return build::check_here(plan);
    }
    devices
        .iter()
        .try_for_each(|device| build::check_here(&Plan { devices: vec![*device], ..plan.clone() }))
}

/// The devices called `names`; else what is wrong, and what to do.
fn queue(names: &[String], found: &Found) -> Result<Vec<DevicePlan>, (String, &'static str)> {
    const HELP: &str = "write --devices cuda:0,cuda:1, or --devices all for every GPU; `trainer devices` lists \
                        what there is";
    let mut given = match names {
        [name] => DeviceUse::One(name.clone()),
        _ => DeviceUse::Several(names.to_vec()),
    };
    if given == DeviceUse::One("all".to_owned()) {
        name_cards(&mut given, found);
    }
    let names = match given {
        DeviceUse::One(name) if name == "all" => {
            return Err((
                "--devices all means every GPU, and none can be used here".to_owned(),
                HELP,
            ));
        }
        DeviceUse::One(name) => vec![name],
        DeviceUse::Several(names) => names,
    };
    let mut devices: Vec<DevicePlan> = Vec::new();
    for name in &names {
        let unknown = |_| (format!("--devices names {name:?}, which is no single device"), HELP);
        let device = DevicePlan::parse_one(name).map_err(unknown)?;
        check_here(device, found).map_err(|message| (message, HELP))?;
        if devices.contains(&device) {
            let help = match device {
                DevicePlan::Cpu(_) => "write --devices cpu:0,cpu:1 for two processes on the CPU",
                _ => "name each device once",
            };
            return Err((format!("--devices names {device} twice"), help));
        }
        devices.push(device);
    }
    if devices.len() > 1 && devices.contains(&DevicePlan::Auto) {
        return Err((
            "--devices names auto beside others, and it may be one of them".to_owned(),
            HELP,
        ));
    }
    Ok(devices)
}

/// Looks whether a GPU that is named can be used, before anything begins.
fn check_here(device: DevicePlan, found: &Found) -> Result<(), String> {
    let DevicePlan::Cuda(index) = device else {
        return Ok(());
    };
    let cards = found.cards.as_ref();
    let cards = cards.map_err(|reason| format!("--devices names {device}: {reason}"))?;
    match cards.iter().find(|card| card.index == index).map(|card| &card.details) {
        None => Err(format!("--devices names {device}, and there is no such GPU here")),
        Some(Err(reason)) => {
            Err(format!("--devices names {device}, which cannot be opened: {reason}"))
        }
        Some(Ok(_)) => Ok(()),
    }
}

/// Puts the GPUs of this machine that can be used in place of `"all"`. Where there is none, it stays.
pub(super) fn name_devices(device: &mut DeviceUse) {
    if *device == DeviceUse::One("all".to_owned()) {
        name_cards(device, &find_devices());
    }
}

fn name_cards(device: &mut DeviceUse, found: &Found) {
    let cards = found.cards.as_deref().unwrap_or_default().iter();
    let usable = cards.filter(|card| card.details.is_ok());
    let mut names: Vec<String> = usable.map(|card| format!("cuda:{}", card.index)).collect();
    match names.len() {
        0 => {}
        1 => *device = DeviceUse::One(names.remove(0)),
        _ => *device = DeviceUse::Several(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Card, CardDetails, NoCuda};

    fn card(index: usize) -> Card {
        let details = CardDetails {
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory: 85_000_000_000,
            free: 84_400_000_000,
            compute_capability: (9, 0),
        };
        Card { index, details: Ok(details) }
    }

    #[test]
    fn all_are_the_cards_that_open() {
        let named = |cards| {
            let mut device = DeviceUse::One("all".to_owned());
            name_cards(&mut device, &Found { cpu_threads: Some(4), cards });
            device
        };
        let broken = Card { index: 1, details: Err("in use".to_owned()) };
        let several = named(Ok(vec![card(0), broken.clone(), card(2)]));
        assert_eq!(several, DeviceUse::Several(vec!["cuda:0".to_owned(), "cuda:2".to_owned()]));
        assert_eq!(named(Ok(vec![broken, card(2)])), DeviceUse::One("cuda:2".to_owned()));
        assert_eq!(named(Err(NoCuda::NoDriver)), DeviceUse::One("all".to_owned()));
    }

    #[test]
    fn a_queue_has_each_device_once_and_none_that_is_not_here() {
        let found = |cards| Found { cpu_threads: Some(4), cards };
        let here = found(Ok(vec![card(0), card(1)]));
        let named = |names: &str, found: &Found| {
            let names: Vec<String> = names.split(',').map(str::to_owned).collect();
            queue(&names, found).map_err(|(message, _)| message)
        };
        let cards = vec![DevicePlan::Cuda(0), DevicePlan::Cuda(1)];
        assert_eq!(named("cuda:0,cuda:1", &here), Ok(cards.clone()));
        assert_eq!(named("all", &here), Ok(cards));
        assert_eq!(named("auto", &here), Ok(vec![DevicePlan::Auto]));
        let cpu = vec![DevicePlan::Cpu(Some(0)), DevicePlan::Cpu(Some(1))];
        assert_eq!(named("cpu:0,cpu:1", &found(Err(NoCuda::NoDriver))), Ok(cpu));
        for (names, message) in [
            ("cuda,cuda:0", "names cuda:0 twice"),
            ("cpu,cpu", "names cpu twice"),
            ("cuda:2", "no such GPU"),
            ("auto,cuda:1", "beside others"),
            ("all,cuda:1", "\"all\", which is no single device"),
            ("gpu", "\"gpu\""),
        ] {
            let told = named(names, &here).expect_err(names);
            assert!(told.contains(message), "{told}");
        }
        for names in ["all", "cuda:0"] {
            assert!(named(names, &found(Err(NoCuda::NoDriver))).is_err(), "{names}");
        }
    }
}
