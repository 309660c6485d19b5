//! A card that does not go on, as an error that names what the driver says.

/// Errors of the CUDA driver after which every later call of the process on the card fails: number, name and
/// what it means.
const FAULTS: [(u32, &str, &str); 16] = [
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "it is not available any more"),
    (100, "CUDA_ERROR_NO_DEVICE", "the driver does not see it any more"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE", "its memory has an error that cannot be corrected"),
    (220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "its link to another card has failed"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel used an illegal address"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel took longer than the system allows"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the driver has given up the process's work on it"),
    (710, "CUDA_ERROR_ASSERT", "a kernel has stopped itself"),
    (714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel corrupted its stack"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel ran an illegal instruction"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used a misaligned address"),
    (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address of another memory"),
    (718, "CUDA_ERROR_INVALID_PC", "a kernel left its code"),
    (719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"),
    (911, "CUDA_ERROR_EXTERNAL_DEVICE", "something outside of the card has failed"),
    (999, "CUDA_ERROR_UNKNOWN", "the driver does not say why; it may have fallen off the bus"),
];

/// How CubeCL names the number of an error.
const NUMBERED: &str = "failed with status ";

/// The card does not go on. Nothing can be read from it any more, or computed on it by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the GPU is lost: {meaning} ({name}, error {number} of the CUDA driver)")]
pub struct DeviceLost {
    number: u32,
    name: &'static str,
    meaning: &'static str,
}

impl DeviceLost {
    /// What to do.
    pub const HELP: &str = "what a run saved is kept; the same command with --resume goes on from it\n  = help: `dmesg | \
        grep Xid` and `nvidia-smi -q` say what happened to the card; if it needs a restart of the machine, go on with \
        another card meanwhile (`device.use`)\n  = help: if it happens again on a card that is well, please report it";

    /// What an error or panic that says `text` means, if it is about a card that does not go on.
    pub fn in_text(text: &str) -> Option<Self> {
        let is_number = |number: u32| {
            text.match_indices(NUMBERED).any(|(at, _)| {
                let rest = &text[at + NUMBERED.len()..];
                let end = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
                rest[..end] == number.to_string()
            })
        };
        let found =
            FAULTS.into_iter().find(|(number, name, _)| text.contains(name) || is_number(*number));
        found.map(|(number, name, meaning)| Self { number, name, meaning })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::OutOfMemory;

    #[test]
    fn a_lost_card_is_known_by_name_and_by_number_and_is_not_short_of_memory() {
        let poisoned = "could not read from the device: The device is poisoned\nCaused by:\n  The bytes were never \
                        written\nCaused by:\n  cuStreamSynchronize failed with status 700\nBacktrace:\n";
        let lost = DeviceLost::in_text(poisoned).expect("is lost");
        assert!(lost.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS, error 700"), "{lost}");
        let named =
            "DriverError(CUDA_ERROR_ECC_UNCORRECTABLE, \"uncorrectable ECC error encountered\")";
        let lost = DeviceLost::in_text(named).expect("is lost");
        assert!(lost.to_string().contains("memory has an error"), "{lost}");
        for other in
            ["failed with status 7001", "failed with status 2", "CUDA_ERROR_OUT_OF_MEMORY", ""]
        {
            assert_eq!(DeviceLost::in_text(other), None, "{other}");
        }
        // What waits for memory that a lost card does not give says that it has none.
        let both =
            "the reservation behind it failed\nCaused by:\n  cuMemAlloc failed with status 719";
        assert_eq!(OutOfMemory::in_text(both), None);
    }
}
