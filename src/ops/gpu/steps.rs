//! Optimizer steps of many parameters at once.

use std::sync::LazyLock;

use super::arrays::{ARRAYS, HEADER, Places};
use super::{Buffer, Gpu, Kernel, Sizes};

/// Elements of a parameter that one block takes.
const STEP: usize = 1024;

/// A parameter that takes a step; every buffer holds as many 32-bit numbers as it.
#[derive(Debug)]
pub struct Stepped {
    /// Its value, written over where nobody else holds its memory.
    pub value: Buffer,
    /// Its gradient.
    pub gradient: Buffer,
    /// Whether weight decay acts on it.
    pub decays: bool,
    /// What the optimizer keeps of it, written over: Adam's mean and square, SGD's momentum. What is
    /// there before the first step is not read.
    pub kept: Vec<Buffer>,
}

impl Stepped {
    /// What a kernel is given that takes `room` kept buffers and writes the new value into `out`.
    fn buffers<'a>(&'a self, room: usize, out: &'a Buffer) -> Vec<&'a Buffer> {
        let Self { value, gradient, kept, .. } = self;
        // What the kernel does not touch may be anything.
        let unused = std::iter::repeat_n(value, room - kept.len());
        [value, gradient].into_iter().chain(kept).chain(unused).chain([out]).collect()
    }
}

/// What a step's gradients are multiplied by.
#[derive(Debug, Clone, Copy)]
pub enum Factor<'a> {
    /// By this number.
    Known(f64),
    /// By what `Gpu::step_factor` finds, which also decides whether the step is taken.
    OnGpu(&'a Buffer),
}

impl Factor<'_> {
    /// What a GPU decides, where it does.
    pub fn decided(&self) -> Option<&Buffer> {
        match self {
            Self::Known(_) => None,
            Self::OnGpu(decided) => Some(decided),
        }
    }

    /// The number; 1 where only the GPU knows it.
    pub fn known(&self) -> f64 {
        match self {
            Self::Known(factor) => *factor,
            Self::OnGpu(_) => 1.0,
        }
    }
}

/// What one of Adam's steps computes with: see `kernels/adam_step.cu`.
#[derive(Debug, Clone, Copy)]
pub struct AdamStep<'a> {
    /// Whether it is the first step of these parameters.
    pub first: bool,
    /// What gradients are multiplied by.
    pub factor: Factor<'a>,
    /// lr / (1 − β₁ᵗ).
    pub size: f64,
    /// sqrt(1 − β₂ᵗ).
    pub root: f64,
    /// β₁ and β₂.
    pub betas: [f64; 2],
    /// Added to the denominator.
    pub eps: f64,
    /// What values are multiplied by first: decoupled weight decay.
    pub keep: f64,
    /// L2 regularisation.
    pub l2: f64,
}

/// What one of SGD's steps computes with: see `kernels/sgd_step.cu`.
#[derive(Debug, Clone, Copy)]
pub struct SgdStep<'a> {
    /// Whether it is the first step of these parameters.
    pub first: bool,
    /// What gradients are multiplied by.
    pub factor: Factor<'a>,
    /// The learning rate.
    pub lr: f64,
    /// Share of the last update kept; at 0 no momentum is kept.
    pub momentum: f64,
    /// Share of the gradient left out of the momentum.
    pub dampening: f64,
    /// Looks ahead along the momentum.
    pub nesterov: bool,
    /// L2 regularisation.
    pub l2: f64,
}

/// The kernel of [`AdamStep`].
pub static ADAM_STEP: LazyLock<Kernel> =
    LazyLock::new(|| kernel("adam_step", include_str!("kernels/adam_step.cu")));

/// The kernel of [`SgdStep`].
pub static SGD_STEP: LazyLock<Kernel> =
    LazyLock::new(|| kernel("sgd_step", include_str!("kernels/sgd_step.cu")));

fn kernel(entry: &'static str, text: &'static str) -> Kernel {
    Kernel::new(entry, 256, &[], &[HEADER, text])
}

/// How a moving average moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moving {
    /// (1 − share) · average + share · value, as `torch.nn.BatchNorm2d` moves running statistics.
    Statistics,
    /// As `torch.lerp`.
    Lerp,
}

/// The kernel of moving averages.
pub static MOVING_AVERAGE: LazyLock<Kernel> =
    LazyLock::new(|| kernel("moving_average", include_str!("kernels/moving_average.cu")));

impl Gpu {
    /// The new values of moving `averages`, each with the value that it moves towards, and that value's share. They are
    /// written over where nobody else holds their memory. What is `decided` may be that they stay as they are. See
    /// `kernels/moving_average.cu`.
    pub fn moving_average(
        &self,
        moving: Moving,
        share: f64,
        averages: Vec<[Buffer; 2]>,
        decided: Option<&Buffer>,
    ) -> Vec<Buffer> {
        let stepped = averages.into_iter().map(|[value, gradient]| Stepped {
            value,
            gradient,
            decays: false,
            kept: Vec::new(),
        });
        let stepped: Vec<Stepped> = stepped.collect();
        let factor = decided.map_or(Factor::Known(1.0), Factor::OnGpu);
        let lerp = usize::from(moving == Moving::Lerp);
        self.step(&MOVING_AVERAGE, 0, &stepped, factor, |count, _, on_gpu| {
            let sizes = Sizes::of([count, on_gpu, lerp, 0]);
            sizes.float((1.0 - share) as f32).float(share as f32)
        })
    }

    /// The new values of `parameters`, in their order. A launch for every 32 of them.
    pub fn adam_step(&self, step: &AdamStep<'_>, parameters: &[Stepped]) -> Vec<Buffer> {
        let AdamStep { first, factor, size, root, betas: [beta1, beta2], eps, keep, l2 } = *step;
        let known = factor.known();
        let numbers = [known, size, root, beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps, keep, l2];
        self.step(&ADAM_STEP, 2, parameters, factor, |count, decays, on_gpu| {
            let sizes = Sizes::of([count, usize::from(first)]).bits(decays).int(on_gpu);
            numbers.iter().fold(sizes, |sizes, number| sizes.float(*number as f32))
        })
    }

    /// As [`Gpu::adam_step`].
    pub fn sgd_step(&self, step: &SgdStep<'_>, parameters: &[Stepped]) -> Vec<Buffer> {
        let SgdStep { first, factor, lr, momentum, dampening, nesterov, l2 } = *step;
        let numbers = [factor.known(), lr, momentum, 1.0 - dampening, l2];
        self.step(&SGD_STEP, 1, parameters, factor, |count, decays, on_gpu| {
            let sizes = Sizes::of([count, usize::from(first)]).bits(decays);
            let sizes = sizes.ints([usize::from(nesterov), on_gpu]);
            numbers.iter().fold(sizes, |sizes, number| sizes.float(*number as f32))
        })
    }

    /// `kernel` takes `room` kept buffers of each parameter; `sizes` makes the first fields of a launch
    /// of the number of its parameters, a bit for each that decays, and 1 where the factor is on the GPU.
    fn step(
        &self,
        kernel: &Kernel,
        room: usize,
        parameters: &[Stepped],
        factor: Factor<'_>,
        sizes: impl Fn(usize, u32, usize) -> Sizes,
    ) -> Vec<Buffer> {
        let new = |Stepped { value, .. }: &Stepped| match value.is_held_alone() {
            true => value.clone(),
            false => self.floats(value.len()),
        };
        let values: Vec<Buffer> = parameters.iter().map(new).collect();
        for (chunk, out) in parameters.chunks(ARRAYS).zip(values.chunks(ARRAYS)) {
            let groups =
                chunk.iter().zip(out).map(|(one, out)| (out.len(), one.buffers(room, out)));
            let groups: Vec<_> = groups.collect();
            let bit = |(place, parameter): (usize, &Stepped)| u32::from(parameter.decays) << place;
            let decays = chunk.iter().enumerate().map(bit).sum();
            let (decided, on_gpu) = match factor {
                Factor::Known(_) => (&chunk[0].value, 0),
                Factor::OnGpu(decided) => (decided, 1),
            };
            let sizes = sizes(chunk.len(), decays, on_gpu);
            self.launch_over(kernel, Places::every(STEP), &groups, &[decided], sizes);
        }
        values
    }
}
