//! Kernels compiled before the first step.
#![cfg_attr(not(feature = "cuda"), expect(unused, reason = "there are none for the CPU"))]

use std::io::IsTerminal;
use std::time::Instant;

use burn::tensor::Device;
use indicatif::{ProgressBar, ProgressStyle};

#[cfg(feature = "cuda")]
use crate::loss::LossConfig;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{
    BCE, Compiler, Gpu, Kernel, Kernels, MOVING_AVERAGE, STEP_FACTOR, SUMS_OF_SQUARES,
    message_kernel,
};
use crate::plan::{Plan, Planner};
use crate::screen::{bar_target, tell_progress};

/// Compiles what the plan's steps on a GPU launch and no earlier process has compiled, with a bar
/// while it does.
#[cfg(feature = "cuda")]
pub(super) fn compile_kernels(plan: &Plan, planner: &Planner, device: &Device) {
    let Some(gpu) = Gpu::of(device) else { return };
    let Some(compiler) = Compiler::new(&gpu) else { return };
    let progress = Progress::new();
    let compiled =
        compiler.compile(&kernels(plan, planner, &gpu), |done, all| progress.tell(done, all));
    progress.end(compiled);
}

/// There is nothing to compile for the CPU.
#[cfg(not(feature = "cuda"))]
pub(super) fn compile_kernels(_: &Plan, _: &Planner, _: &Device) {}

/// The hand-written kernels that the plan's steps and evaluations launch.
#[cfg(feature = "cuda")]
fn kernels(plan: &Plan, planner: &Planner, gpu: &Gpu) -> Vec<Kernel> {
    let mut kernels = planner.kernels();
    kernels.extend(plan.train.optimizer.init([]).kernel());
    kernels.extend(
        [&SUMS_OF_SQUARES, &STEP_FACTOR, &MOVING_AVERAGE].map(|kernel| Kernel::clone(kernel)),
    );
    if plan.heads.iter().any(|head| matches!(head.loss(), LossConfig::Bce(_))) {
        kernels.push(BCE.clone());
    }
    if plan.depth() > 1 {
        kernels.push(message_kernel());
    }
    if plan.copies() > 1 {
        let element = planner.settings().precision.element();
        kernels.extend(Kernels::new(gpu.clone(), element).of_several_cards());
    }
    kernels
}

/// A bar on a terminal, and elsewhere a line at the beginning and one at the end.
struct Progress {
    bar: ProgressBar,
    terminal: bool,
    start: Instant,
}

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::hidden().with_message("compiling kernels");
        if let Ok(style) = ProgressStyle::with_template("{msg} {pos}/{len} {wide_bar}") {
            bar.set_style(style);
        }
        Self { bar, terminal: std::io::stderr().is_terminal(), start: Instant::now() }
    }

    fn tell(&self, done: usize, all: usize) {
        if done == 0 && self.terminal {
            self.bar.set_length(all as u64);
            self.bar.set_draw_target(bar_target());
        } else if done == 0 {
            tell_progress(&format!("compiling {all} kernels, once"));
        }
        self.bar.set_position(done as u64);
    }

    fn end(&self, compiled: usize) {
        self.bar.finish_and_clear();
        if compiled > 0 && !self.terminal {
            let seconds = self.start.elapsed().as_secs_f64();
            tell_progress(&format!("compiled {compiled} kernels in {seconds:.1} s"));
        }
    }
}
