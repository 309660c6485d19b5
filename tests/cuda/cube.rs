//! One kernel in both languages: CUDA C++ and `#[cube]` Rust, which would be the simpler to keep.
#![expect(unsafe_code, reason = "that a buffer is as long as said is for the one who launches")]

use std::time::Instant;

use burn::tensor::{DType, Tensor, bf16};
use burn_cubecl::cubecl;
use burn_cubecl::cubecl::prelude::*;
use trainer::build::resolve_device;
use trainer::ops::gpu::{Buffer, Gpu, Kernel, Sizes};

use super::{noise, values};

/// Elements of 16 bytes of bf16.
const VECTOR: usize = 8;

/// `kernels/norm_apply.cu` for channels that are multiples of 64: y = relu(scale·x + shift + residual),
/// two pixels of a thread on their way at once. Strides are in
/// vectors.
#[cube(launch_unchecked)]
fn norm_apply<N: Size>(
    x: &[Vector<bf16, N>],
    scale: &[Vector<f32, N>],
    shift: &[Vector<f32, N>],
    residual: &[Vector<bf16, N>],
    y: &mut [Vector<bf16, N>],
    pixels: u32,
    stride_x: u32,
    stride_residual: u32,
    stride_y: u32,
    #[comptime] adds: bool,
    #[comptime] relu: bool,
) {
    let lane = (CUBE_POS_Y * 8 + UNIT_POS % 8) as usize;
    let step = CUBE_COUNT_X * 32;
    let mut pixel = CUBE_POS_X * 32 + UNIT_POS / 8;
    let (a, b) = (scale[lane], shift[lane]);
    while pixel < pixels {
        let both = pixel + step < pixels;
        let next = select(both, pixel + step, pixel);
        let first_x = x[(pixel * stride_x) as usize + lane];
        let second_x = x[(next * stride_x) as usize + lane];
        let mut first = fma(a, Vector::<f32, N>::cast_from(first_x), b);
        let mut second = fma(a, Vector::<f32, N>::cast_from(second_x), b);
        if adds {
            let first_r = residual[(pixel * stride_residual) as usize + lane];
            let second_r = residual[(next * stride_residual) as usize + lane];
            first += Vector::cast_from(first_r);
            second += Vector::cast_from(second_r);
        }
        if relu {
            first = max(first, Vector::new(0.0));
            second = max(second, Vector::new(0.0));
        }
        y[(pixel * stride_y) as usize + lane] = Vector::cast_from(first);
        if both {
            y[(next * stride_y) as usize + lane] = Vector::cast_from(second);
        }
        pixel += 2 * step;
    }
}

/// The median time of a launch in microseconds, of many rounds of many.
fn time(gpu: &Gpu, launch: impl Fn()) -> f64 {
    let round = || {
        let start = Instant::now();
        (0..20).for_each(|_| launch());
        gpu.wait().expect("runs");
        start.elapsed().as_secs_f64() / 20.0 * 1e6
    };
    round();
    let mut rounds: Vec<f64> = (0..31).map(|_| round()).collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

#[test]
fn a_cube_kernel_writes_the_bits_that_cuda_writes() {
    let device = resolve_device("cuda").expect("a GPU");
    let gpu = Gpu::of(&device).expect("a GPU");
    let texts = [
        include_str!("../../src/ops/gpu/kernels/tiles.cuh"),
        include_str!("../../src/ops/gpu/kernels/channels.cuh"),
        include_str!("../../src/ops/gpu/kernels/norm_apply.cu"),
    ];
    let kernel = Kernel::new("norm_apply", 256, &[("ELEMENT", &"bf16")], &texts);
    // Numbers repeat every so many pixels: making all of them on the host takes long.
    let map = |pixels: usize, stride: usize, seed: u64| -> Buffer {
        let some: Tensor<2> = noise([640, stride], seed, &device).cast(DType::BF16);
        Buffer::of_tensor(some.repeat_dim(0, pixels / 640))
    };
    let pixels = 64 * 80 * 80;
    for (channels, stride, adds) in [(256, 256, true), (256, 256, false), (128, 256, false)] {
        let (x, residual) = (map(pixels, stride, 1), map(pixels, stride, 2));
        let vector = |seed| Buffer::of_tensor(noise::<1>([channels], seed, &device));
        let (scale, shift) = (vector(3), vector(4));
        let empty = || {
            let out = gpu.empty(pixels * stride, DType::BF16);
            let zeros: Tensor<1> = gpu.tensor(&out, [out.len()]).zeros_like();
            Buffer::of_tensor(zeros)
        };
        let (theirs, ours) = (empty(), empty());
        let grid = [(pixels / 32).min(8 * gpu.multiprocessors()), channels / 64, 1];
        let cuda = || {
            let mode = if adds { 3 } else { 2 };
            let fields = [pixels, channels, stride, stride, stride, mode];
            let sizes = fields.into_iter().fold(Sizes::new(), Sizes::int);
            gpu.launch(&kernel, grid, &[&x, &scale, &shift, &residual, &theirs], &sizes);
        };
        let cube = || {
            let [across, down, _] = grid.map(|count| count as u32);
            // SAFETY: the buffers are as long as they say.
            let argument = |buffer: &Buffer| unsafe {
                BufferArg::from_raw_parts(buffer.handle(), buffer.len())
            };
            let stride = (stride / VECTOR) as u32;
            // SAFETY: no thread leaves the buffers: pixels and lanes are within the strides.
            unsafe {
                norm_apply::launch_unchecked(
                    gpu.client(),
                    CubeCount::Static(across, down, 1),
                    CubeDim::new_1d(256),
                    VECTOR,
                    argument(&x),
                    argument(&scale),
                    argument(&shift),
                    argument(&residual),
                    argument(&ours),
                    pixels as u32,
                    stride,
                    stride,
                    stride,
                    adds,
                    true,
                );
            }
        };
        cuda();
        cube();
        let whole = |buffer: &Buffer| gpu.tensor::<1>(buffer, [buffer.len()]);
        let difference = whole(&ours).sub(whole(&theirs)).abs().max();
        assert_eq!(values(difference), [0.0], "{channels} of {stride}, residual {adds}");
        let some = values(whole(&ours).narrow(0, 0, 64 * stride));
        assert!(some.iter().any(|value| *value > 0.5), "something has been written");
        let bytes = (pixels * channels * 2 * if adds { 3 } else { 2 }) as f64;
        let (cuda, cube) = (time(&gpu, cuda), time(&gpu, cube));
        let rate = |time: f64| bytes / time / 1e3;
        println!(
            "norm_apply, {channels} channels of {stride}, residual {adds}: CUDA C++ {cuda:.1} µs, \
             {:.0} GB/s; #[cube] {cube:.1} µs, {:.0} GB/s; ratio {:.3}",
            rate(cuda),
            rate(cube),
            cube / cuda
        );
    }
}
