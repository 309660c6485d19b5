//! Which devices a run uses, before any is opened.

use std::fmt;

use crate::config::DeviceUse;
use crate::fault::{Fault, fault};

/// A device that a run uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DevicePlan {
    /// The first GPU, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The CUDA device with this number, counted from 0.
    Cuda(usize),
}

const KEY: &str = "device.use";
const HELP: &str = "write \"auto\", \"cpu\", \"cuda\" (the first GPU) or \"cuda:1\"";

impl DevicePlan {
    /// The devices of a run, of which there is one.
    pub(super) fn parse(device: &DeviceUse) -> Result<Vec<Self>, Fault> {
        match device {
            DeviceUse::One(name) => Ok(vec![Self::parse_one(name)?]),
            DeviceUse::Several(names) => match names.as_slice() {
                [] => Err(fault(KEY, "`device.use` names no device", HELP)),
                [name] => Ok(vec![Self::parse_one(name)?]),
                [first, ..] => {
                    let help = format!("write one device: `use = \"{first}\"`");
                    Err(fault(KEY, "several devices are not supported yet", help))
                }
            },
        }
    }

    fn parse_one(name: &str) -> Result<Self, Fault> {
        match name {
            "auto" => return Ok(Self::Auto),
            "cpu" => return Ok(Self::Cpu),
            "cuda" => return Ok(Self::Cuda(0)),
            _ => {}
        }
        // `parse` alone would also take `+1`.
        let digits = name.strip_prefix("cuda:").filter(|text| {
            !text.is_empty() && text.len() < 6 && text.bytes().all(|byte| byte.is_ascii_digit())
        });
        digits
            .and_then(|text| text.parse().ok())
            .map(Self::Cuda)
            .ok_or_else(|| fault(KEY, format!("unknown device {name:?}"), HELP))
    }
}

impl fmt::Display for DevicePlan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => formatter.write_str("auto"),
            Self::Cpu => formatter.write_str("cpu"),
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

    #[test]
    fn a_device_reads_back_as_it_is_written() {
        for device in [DevicePlan::Auto, DevicePlan::Cpu, DevicePlan::Cuda(0), DevicePlan::Cuda(7)]
        {
            assert_eq!(parse(&device.to_string()), Ok(vec![device]));
        }
        assert_eq!(parse("cuda"), Ok(vec![DevicePlan::Cuda(0)]));
    }

    #[test]
    fn what_names_no_device_is_refused() {
        for name in
            ["", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda:+1", "cuda:0,1", "cuda0"]
        {
            parse(name).expect_err(name);
        }
    }
}
