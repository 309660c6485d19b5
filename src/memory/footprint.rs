//! What a stage costs, known before any device is opened.

use super::{DenseLayers, Precision, Speed};

/// The CPU that a step runs on, as far as the step's memory depends on it.
///
/// Two things do: each thread unfolds a tile of a convolution in memory of its own, and each thread
/// that has multiplied matrices keeps a packing buffer from its first product on (`L2_SLAB` of the
/// crate `gemm`, of the size of the L2 cache).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Threads that a step is shared out over.
    pub threads: usize,
    /// Bytes of the packing buffers of all threads that multiply.
    pub packing_buffers: u64,
}

impl Cpu {
    /// That of a common server, where nobody says more.
    pub const ASSUMED: Self = Self { threads: 4, packing_buffers: 4 << 20 };
}

/// What a stage is to run on, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Whether on a CUDA device; the CPU otherwise.
    pub cuda: bool,
    /// Whether that is a Hopper card, which has kernels of its own.
    pub hopper: bool,
    /// The host's CPU.
    pub cpu: Cpu,
    /// The numbers that activations are held in.
    pub precision: Precision,
    /// What a dense layer keeps where it runs fused.
    pub dense_layers: DenseLayers,
}

/// The bytes and operations of a stage for an input of one shape, on one kind of device, in one
/// precision.
///
/// Bytes are what an allocator counts: where the output lies in the input's memory it costs nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Footprint {
    /// Bytes in use as long as the stage exists, beside its parameters: running statistics, weights
    /// in the forms that kernels read.
    pub standing: u64,
    /// Bytes of the largest of its parameters; of all of a kind where the stage keeps them in one
    /// tensor.
    pub largest_parameter: u64,
    /// Bytes of the largest array that it takes, forward or back, and of its input.
    pub largest_array: u64,
    /// The memory of the output, with the room that the next stage wants behind it.
    pub output: u64,
    /// Whether the output lies in the input's memory, where that has the room. Only what a stage
    /// gives has it, not what was put aside.
    pub output_in_input: bool,
    /// Bytes that putting the input aside takes beside the input itself: 0 where it is shared, its
    /// own size where it is copied out of memory with room for more.
    pub checkpoint: u64,
    /// What is kept for backward beside input and output.
    pub saved: u64,
    /// Whether what is kept holds on to the input's memory.
    pub saves_input: bool,
    /// Whether what is kept holds on to the output's memory.
    pub saves_output: bool,
    /// Whether what is kept can be moved off the device until it is needed.
    pub moves_saved: bool,
    /// The most bytes in use at once while it runs and keeps nothing, beyond those before and its
    /// output.
    pub forward_workspace: u64,
    /// The same while it runs and keeps what backward needs, beyond those before, its output and
    /// what it keeps.
    pub saving_workspace: u64,
    /// The memory of the gradient of its input.
    pub gradient: u64,
    /// Whether the gradient of its input lies in the memory of the gradient of its output.
    pub gradient_in_gradient: bool,
    /// The most bytes in use at once while it goes back, beyond those before: the gradients that it makes among them,
    /// less what it has let go of by then.
    pub backward_peak: u64,
    /// Bytes of the gradients of its parameters.
    pub parameter_gradients: u64,
    /// Floating-point operations forward; a multiplication and an addition are two.
    pub forward_flops: f64,
    /// The same back, without what recomputation takes.
    pub backward_flops: f64,
    /// Bytes read and written forward at least.
    pub forward_traffic: f64,
    /// The same back.
    pub backward_traffic: f64,
    /// Layers in a row, each of which takes a moment however few images there are.
    pub layers: f64,
}

impl Footprint {
    /// What it costs where it is frozen: it runs forward and keeps nothing.
    pub fn forward_only(self) -> Self {
        Self {
            saved: 0,
            saves_input: false,
            saves_output: false,
            saving_workspace: 0,
            gradient: 0,
            backward_peak: 0,
            parameter_gradients: 0,
            backward_flops: 0.0,
            backward_traffic: 0.0,
            ..self
        }
    }

    /// Bytes of the gradients that it makes beside that of its output.
    pub fn gradients(&self) -> u64 {
        let own = if self.gradient_in_gradient { 0 } else { self.gradient };
        own + self.parameter_gradients
    }

    /// The most bytes in use at once while it goes back, beyond those before and the gradients that it makes.
    pub fn backward_workspace(&self) -> u64 {
        self.backward_peak.saturating_sub(self.gradients())
    }

    /// Bytes that it keeps for the backward pass, its output among them.
    pub fn kept(&self) -> u64 {
        self.saved + if self.output_in_input { 0 } else { self.output }
    }

    /// Floating-point operations forward and back.
    pub fn flops(&self) -> f64 {
        self.forward_flops + self.backward_flops
    }

    /// Seconds of its work forward.
    pub fn forward_seconds(&self, speed: &Speed) -> f64 {
        let (flops, traffic) = (self.forward_flops, self.forward_traffic);
        (flops / speed.flops).max(traffic / speed.bandwidth).max(self.layers * speed.layer)
    }

    /// Seconds of its work back: for each layer a gradient of its input and one of its weights.
    pub fn backward_seconds(&self, speed: &Speed) -> f64 {
        let (flops, traffic) = (self.backward_flops, self.backward_traffic);
        (flops / speed.flops).max(traffic / speed.bandwidth).max(2.0 * self.layers * speed.layer)
    }
}
