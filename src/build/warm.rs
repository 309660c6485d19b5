//! Kernels compiled before the first step.
#![cfg_attr(not(feature = "cuda"), expect(unused, reason = "there are none for the CPU"))]

use std::io::IsTerminal;
use std::time::Instant;

use burn::tensor::{Device, Tensor};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::memory::{Activation, executor};
use crate::plan::{Plan, Planner};

/// Compiles what the plan's steps on a GPU launch and no earlier process has compiled, with a bar
/// while it does.
#[cfg(feature = "cuda")]
pub(super) fn compile_kernels(plan: &Plan, planner: &Planner, device: &Device) {
    use crate::ops::cuda::{Compiler, Gpu};

    let Some(gpu) = Gpu::of(device) else { return };
    let Some(compiler) = Compiler::new(&gpu) else { return };
    let kernels = kernels(plan, planner, device);
    gpu.release_unused();
    let progress = Progress::new();
    let compiled = compiler.compile(&kernels, |done, all| progress.tell(done, all));
    progress.end(compiled);
}

/// There is nothing to compile for the CPU.
#[cfg(not(feature = "cuda"))]
pub(super) fn compile_kernels(_: &Plan, _: &Planner, _: &Device) {}

/// The hand-written kernels that the plan's steps and evaluations launch.
#[cfg(feature = "cuda")]
fn kernels(plan: &Plan, planner: &Planner, device: &Device) -> Vec<crate::ops::cuda::Kernel> {
    // Kernels take the number of images when they run.
    let image = &plan.data.image;
    let shape = [plan.train.batch_size.min(2), image.channels, image.size[0], image.size[1]];
    let images = Activation::Map(Tensor::zeros(shape, device));
    let mut kernels = crate::ops::cuda::rehearsal(|| {
        // A chain of its own: what it keeps of a rehearsal is not what it should be.
        let chain = super::chain(plan, planner, device);
        let schedule = planner.strategy().schedule(1);
        let outputs = |_, outputs: Activation| Activation::Outputs(outputs.into_outputs());
        let result = executor::train(
            &chain,
            &schedule,
            executor::StepKey::whole(0, 0),
            |_| images.clone(),
            outputs,
        );
        let _ = crate::optim::norm(&result.gradients);
        executor::evaluate(&chain, images.clone());
    });
    kernels.extend(plan.train.optimizer.init([]).kernel());
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
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        } else if done == 0 {
            eprintln!("compiling {all} kernels, once");
        }
        self.bar.set_position(done as u64);
    }

    fn end(&self, compiled: usize) {
        self.bar.finish_and_clear();
        if compiled > 0 && !self.terminal {
            eprintln!("compiled {compiled} kernels in {:.1} s", self.start.elapsed().as_secs_f64());
        }
    }
}
