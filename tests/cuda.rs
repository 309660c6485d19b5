//! What needs a GPU: `cargo test --features cuda-tests --test cuda`.
#![cfg(feature = "cuda-tests")]

use burn::tensor::{DType, Device, Tensor, TensorData};
use trainer::build::resolve_device;
use trainer::ops::cuda::{Buffer, Gpu, Kernel, Sizes, Storage};

fn wave<const D: usize>(shape: [usize; D], speed: f64, device: &Device) -> Tensor<D> {
    let values: Vec<f32> =
        (0..shape.iter().product()).map(|i: usize| (i as f64 * speed).sin() as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(DType::F32).into_data().iter().collect()
}

#[test]
fn a_kernel_works_on_slices_of_tensors_and_burn_goes_on_with_what_it_wrote() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    for (storage, name, tolerance) in
        [(Storage::F32, "float", 1e-6), (Storage::Bf16, "__nv_bfloat16", 1e-2)]
    {
        let text = include_str!("../src/ops/cuda/kernels/affine_relu.cu");
        let kernel = Kernel::new("affine_relu", 256, &[("STORAGE", &name)], &[text]);
        let (pixels, all, from, channels) = (333, 40, 8, 24);
        let map = |device: &Device| wave([pixels, all], 0.7, device).mul_scalar(3.0);
        let scale = |device: &Device| wave([channels], 0.3, device).add_scalar(1.0);
        let shift = |device: &Device| wave([channels], 0.9, device);
        let dtype = if storage == Storage::F32 { DType::F32 } else { DType::BF16 };
        let block = Buffer::of_tensor(map(&device).cast(dtype)); // queued work comes first
        let out = gpu.empty(pixels * channels, storage);
        let sizes = Sizes::new().int(pixels).int(channels).int(all).int(channels);
        let (gamma, beta) = (Buffer::of_tensor(scale(&device)), Buffer::of_tensor(shift(&device)));
        let grid = [(pixels * channels).div_ceil(256), 1, 1];
        gpu.launch(&kernel, grid, &[&block.from(from), &gamma, &beta, &out], &sizes);
        let ours = gpu.tensor(&out, [pixels, channels]).mul_scalar(2.0).add_scalar(1.0);

        let cpu = Device::flex();
        let slice = map(&cpu).narrow(1, from, channels);
        let expected = slice * scale(&cpu).unsqueeze::<2>() + shift(&cpu).unsqueeze::<2>();
        let expected = values(expected.clamp_min(0.0).mul_scalar(2.0).add_scalar(1.0));
        for (ours, expected) in values(ours).iter().zip(expected) {
            assert!(
                (ours - expected).abs() <= tolerance * expected.abs().max(1.0),
                "{ours} {expected}"
            );
        }
    }
}

#[test]
fn launching_costs_the_host_a_few_microseconds() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    let text = include_str!("../src/ops/cuda/kernels/affine_relu.cu");
    let kernel = Kernel::new("affine_relu", 256, &[("STORAGE", &"float")], &[text]);
    let (x, out) = (gpu.upload(&[1.0; 256]), gpu.empty(256, Storage::F32));
    let sizes = Sizes::new().int(1).int(256).int(256).int(256);
    let round = |count: usize| {
        let start = std::time::Instant::now();
        for _ in 0..count {
            gpu.launch(&kernel, [1, 1, 1], &[&x, &x, &x, &out], &sizes);
        }
        let queued = start.elapsed();
        gpu.wait().expect("runs");
        (queued / count as u32, start.elapsed() / count as u32)
    };
    let first = round(1);
    round(1000);
    let (queued, done) = round(5000);
    println!("first launch {first:?}; then queued in {queued:?}, done in {done:?} each");
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        let tensor = gpu.tensor(&out, [256]);
        std::hint::black_box(Buffer::of_tensor(tensor));
    }
    println!("buffer to tensor and back {:?}", start.elapsed() / 1000);
    let start = std::time::Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(gpu.empty(1 << 20, Storage::F32));
    }
    println!("an allocation {:?}", start.elapsed() / 1000);
}
