//! Which of the two kinds of device one is.

use burn::tensor::Device;

/// Whether `device` is an NVIDIA GPU.
pub fn is_gpu(device: &Device) -> bool {
    #[cfg(feature = "cuda")]
    return super::gpu::Gpu::of(device).is_some();
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        false
    }
}
