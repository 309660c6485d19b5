//! What the driver says of a card's memory, as `nvidia-smi` shows it.

use std::fmt::Write;

use cudarc::driver::CudaContext;
use nvml_wrapper::Nvml as Library;
use nvml_wrapper::enums::device::UsedGpuMemory;

/// The management library (NVML) and the card it is asked about.
pub(super) struct Nvml {
    library: Library,
    /// By which the library knows the card; its own numbering is another than CUDA's.
    uuid: String,
}

impl Nvml {
    /// Of the card that CUDA calls `index`; `None` where the library is missing or does not know it.
    pub fn open(index: usize) -> Option<Self> {
        let library = Library::init().ok()?;
        let bytes = CudaContext::new(index).ok()?.uuid().ok()?.bytes.map(i8::cast_unsigned);
        // A part of a card (MIG) goes by another name than a card.
        let names = ["GPU", "MIG"].map(|kind| name(kind, bytes));
        let uuid = names.into_iter().find(|uuid| library.device_by_uuid(uuid.as_str()).is_ok())?;
        Some(Self { library, uuid })
    }

    /// The processes that use the card, with the bytes that each holds, as far as they are known.
    pub fn processes(&self) -> Vec<(u32, u64)> {
        let Ok(device) = self.library.device_by_uuid(self.uuid.as_str()) else { return Vec::new() };
        let computing = device.running_compute_processes().unwrap_or_default();
        let drawing = device.running_graphics_processes().unwrap_or_default();
        let all = computing.into_iter().chain(drawing);
        all.filter_map(|process| match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some((process.pid, bytes)),
            UsedGpuMemory::Unavailable => None,
        })
        .collect()
    }

    /// Bytes that this process holds; where the driver does not know it by its number, which in a
    /// container is another one than outside, bytes that all processes hold.
    pub fn used(&self) -> Option<u64> {
        let device = self.library.device_by_uuid(self.uuid.as_str()).ok()?;
        let processes = device.running_compute_processes().unwrap_or_default();
        let ours = processes.into_iter().find(|process| process.pid == std::process::id());
        match ours.map(|process| process.used_gpu_memory) {
            Some(UsedGpuMemory::Used(bytes)) => Some(bytes),
            _ => Some(device.memory_info().ok()?.used),
        }
    }
}

/// `GPU-00010203-0405-0607-0809-0a0b0c0d0e0f`.
fn name(kind: &str, bytes: [u8; 16]) -> String {
    let mut name = kind.to_owned();
    for (place, byte) in bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&place) {
            name.push('-');
        }
        let _ = write!(name, "{byte:02x}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_named_as_nvidia_smi_names_it() {
        let bytes = std::array::from_fn(|place| place as u8 * 17);
        assert_eq!(name("GPU", bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
