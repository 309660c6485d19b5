//! Which devices a run uses, before any is opened.

use std::fmt;

use crate::config::DeviceUse;
use crate::fault::{Fault, fault};

/// A device that a run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePlan {
    /// The first GPU, else the CPU.
    Auto,
    /// The CPU; with a number where it stands for one of several devices.
    Cpu(Option<usize>),
    /// The CUDA device with this number, counted from 0.
    Cuda(usize),
}

const KEY: &str = "device.use";
const HELP: &str = "write \"auto\", \"cpu\", \"cuda\" (the first GPU) or \"cuda:1\"; several devices as \
                    [\"cuda:0\", \"cuda:1\"], every GPU as \"all\"";

impl DevicePlan {
    /// The devices of a run, all different and of one kind; at least one.
    pub fn parse(device: &DeviceUse) -> Result<Vec<Self>, Fault> {
        let names = match device {
            DeviceUse::One(name) if name == "all" => {
                let help = "write \"auto\" or \"cpu\", or name the GPUs of another machine, such as \
                            [\"cuda:0\", \"cuda:1\"]";
                return Err(fault(KEY, "\"all\" is every GPU, and there is none here", help));
            }
            DeviceUse::One(name) => return Ok(vec![Self::parse_one(name)?]),
            DeviceUse::Several(names) => names,
        };
        let devices: Vec<Self> =
            names.iter().map(|name| Self::parse_one(name)).collect::<Result<_, _>>()?;
        let [first, rest @ ..] = devices.as_slice() else {
            return Err(fault(KEY, "`device.use` names no device", HELP));
        };
        let twice = (1..devices.len()).find(|place| devices[..*place].contains(&devices[*place]));
        if let Some(place) = twice {
            let message = format!("`device.use` names {:?} twice", names[place]);
            let help = match devices[place] {
                Self::Cpu(_) => "write [\"cpu:0\", \"cpu:1\"] for two devices on the CPU",
                _ => "name each device once",
            };
            return Err(fault(KEY, message, help));
        }
        match rest.iter().find(|device| !device.is_alike(*first)) {
            None => Ok(devices),
            Some(other) => {
                let message = format!("`{first}` and `{other}` cannot share a run");
                Err(fault(KEY, message, "name several GPUs, such as [\"cuda:0\", \"cuda:1\"]"))
            }
        }
    }

    /// Whether both can be devices of one run.
    fn is_alike(self, other: Self) -> bool {
        match (self, other) {
            (Self::Cuda(_), Self::Cuda(_)) => true,
            (Self::Cpu(one), Self::Cpu(other)) => one.is_some() && other.is_some(),
            _ => false,
        }
    }

    /// The device called `name`.
    ///
    /// # Errors
    /// When it names none.
    pub fn parse_one(name: &str) -> Result<Self, Fault> {
        let found = match (name, name.split_once(':')) {
            ("auto", _) => Some(Self::Auto),
            ("cpu", _) => Some(Self::Cpu(None)),
            ("cuda", _) => Some(Self::Cuda(0)),
            (_, Some(("cuda", digits))) => number(digits).map(Self::Cuda),
            (_, Some(("cpu", digits))) => number(digits).map(|number| Self::Cpu(Some(number))),
            _ => None,
        };
        found.ok_or_else(|| fault(KEY, format!("unknown device {name:?}"), HELP))
    }
}

/// A device's number. `parse` alone would also take `+1`.
fn number(digits: &str) -> Option<usize> {
    let plain = digits.len() < 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

impl fmt::Display for DevicePlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Cpu(None) => formatter.write_str("cpu"),
            Self::Cpu(Some(number)) => write!(formatter, "cpu:{number}"),
            Self::Cuda(number) => write!(formatter, "cuda:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<Vec<DevicePlan>, Fault> {
        DevicePlan::parse(&DeviceUse::One(name.to_owned()))
    }

    fn several(names: &[&str]) -> Result<Vec<DevicePlan>, Fault> {
        DevicePlan::parse(&DeviceUse::Several(names.iter().map(|name| (*name).into()).collect()))
    }

    #[test]
    fn a_device_reads_back_as_it_is_written() {
        let cpus = [DevicePlan::Cpu(None), DevicePlan::Cpu(Some(0)), DevicePlan::Cpu(Some(3))];
        let cards = [DevicePlan::Cuda(0), DevicePlan::Cuda(7)];
        for device in [DevicePlan::Auto].into_iter().chain(cpus).chain(cards) {
            assert_eq!(parse(&device.to_string()), Ok(vec![device]));
        }
        assert_eq!(parse("cuda"), Ok(vec![DevicePlan::Cuda(0)]));
    }

    #[test]
    fn what_names_no_device_is_refused() {
        for name in [
            "", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:0,1", "cuda0",
            "cpu:", "cpu:x", "gpu:0", "auto:0",
        ] {
            parse(name).expect_err(name);
        }
    }

    #[test]
    fn several_devices_are_of_one_kind_and_each_is_named_once() {
        let found = several(&["cuda:1", "cuda", "cuda:2"]);
        assert_eq!(found, Ok(vec![DevicePlan::Cuda(1), DevicePlan::Cuda(0), DevicePlan::Cuda(2)]));
        let found = several(&["cpu:0", "cpu:1"]);
        assert_eq!(found, Ok(vec![DevicePlan::Cpu(Some(0)), DevicePlan::Cpu(Some(1))]));
        let message = |names: &[&str]| several(names).expect_err("is refused").to_string();
        assert!(message(&["cuda", "cuda:0"]).contains("names \"cuda:0\" twice"));
        assert!(message(&["cpu", "cpu"]).contains("twice"));
        assert!(message(&["cuda:0", "cpu"]).contains("`cuda:0` and `cpu` cannot share a run"));
        assert!(message(&["cpu", "cpu:0"]).contains("cannot share"));
        assert!(message(&["auto", "cuda:1"]).contains("cannot share"));
        assert!(message(&[]).contains("names no device"));
    }
}
