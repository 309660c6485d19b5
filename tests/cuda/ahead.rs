//! Kernels compiled ahead of their launch.

use std::fs;

use burn::tensor::Device;
use trainer::build::resolve_device;
use trainer::memory::DryAllocator;
use trainer::ops::gpu::{Compiler, DryGpu, Gpu, Kernel, Sizes};

use super::values;

fn kernel(addend: usize) -> Kernel {
    let text = "extern \"C\" __global__ void add(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += ADDEND; }";
    Kernel::new("add", 32, &[("ADDEND", &addend)], &[text])
}

/// Needs NVRTC and the CUDA headers (CUDA_PATH) and no GPU.
#[test]
fn what_is_compiled_once_is_read_afterwards_and_what_is_damaged_is_compiled_again() {
    let temporary = tempfile::tempdir().expect("a folder");
    let compiler = || {
        let compiler = Compiler::for_capability((9, 0)).expect("CUDA headers");
        compiler.with_folder(temporary.path())
    };
    let kernels: Vec<Kernel> = (0..9).map(kernel).collect();
    let mut told = Vec::new();
    assert_eq!(compiler().compile(&kernels, |done, all| told.push((done, all))), 9);
    assert_eq!(told, (0..=9).map(|done| (done, 9)).collect::<Vec<_>>());
    let nothing = |_, _| panic!("there is nothing to tell");
    assert_eq!(compiler().compile(&kernels, nothing), 0);
    let mut files = fs::read_dir(temporary.path()).expect("is there").map(|f| f.expect("f").path());
    let (cut, flipped) = (files.next().expect("a file"), files.next().expect("a file"));
    let mut bytes = fs::read(&cut).expect("reads");
    fs::write(&cut, &bytes[..bytes.len() / 2]).expect("writes");
    bytes = fs::read(&flipped).expect("reads");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&flipped, bytes).expect("writes");
    assert_eq!(compiler().compile(&kernels, |_, _| ()), 2);
    assert_eq!(compiler().compile(&kernels, nothing), 0);
    let broken = Kernel::new("broken", 32, &[], &["this is no C++"]);
    assert_eq!(compiler().compile(std::slice::from_ref(&broken), |_, _| ()), 1);
    assert_eq!(
        compiler().compile(std::slice::from_ref(&broken), |_, _| ()),
        1,
        "it is tried again"
    );
}

#[test]
fn a_kernel_compiled_ahead_is_found_by_its_launch() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    // No other test launches it, and no earlier process has compiled it.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let addend = now.expect("a time").as_millis() as usize % 1_000_000;
    let kernel = kernel(addend);
    let x = gpu.upload(&[0.5; 32]);
    let launch = |gpu: &Gpu, x| gpu.launch(&kernel, [1, 1, 1], &[x], &Sizes::new().int(32).int(0));
    let dry = DryGpu::new(DryAllocator::default(), false);
    let counted = Gpu::dry(&dry);
    let room = counted.floats(32);
    launch(&counted, &room);
    launch(&counted, &room);
    let found = dry.kernels();
    assert_eq!(found.len(), 1);
    let compiler = Compiler::new(&gpu).expect("a compiler");
    assert!(!compiler.is_ready(&kernel));
    assert_eq!(compiler.compile(&found, |_, _| ()), 1);
    assert!(compiler.is_ready(&kernel), "CubeCL finds it");
    launch(&gpu, &x);
    assert_eq!(values::<1>(gpu.tensor(&x, [32])), [0.5 + addend as f32; 32]);
    assert!(Gpu::of(&Device::flex()).is_none());
}
