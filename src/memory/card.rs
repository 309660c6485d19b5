//! What a stage on hand-written kernels costs: its buffers, taken and dropped in the order in which it
//! does.

use std::cell::Cell;
use std::rc::Rc;

use super::{DryAllocator, DryBuffer, Footprint, Target};

/// CubeCL counts what was asked for, not what it rounds that up to; its least is 16 bytes, which few
/// buffers are below.
const UNIT: u64 = 16;
/// Of an H100. The sums of weight gradients are split into more parts the more there are.
const MULTIPROCESSORS: usize = 132;

/// A GPU's memory, as kernels' buffers are taken from it.
#[derive(Debug)]
pub struct Card {
    meter: Rc<DryAllocator>,
    element: u64,
    work: Cell<Work>,
}

/// Floating-point operations and bytes moved.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    flops: f64,
    traffic: f64,
}

/// How a fused stage runs on a [`Card`].
pub trait CardStage {
    /// What it keeps for its backward pass.
    type Kept;

    /// The input, with the room that the stage before leaves in it.
    fn input(&self, card: &Card) -> DryBuffer;

    /// Takes what the forward pass takes; returns the output and what may be kept.
    fn forward(&self, card: &Card, input: DryBuffer, keep: bool) -> (DryBuffer, Self::Kept);

    /// Takes what the backward pass takes; returns the gradient of the input, `None` where there is
    /// none.
    fn backward(&self, card: &Card, kept: Self::Kept, gradient: DryBuffer) -> Option<DryBuffer>;

    /// The memory that the gradient of its output comes in.
    fn gradient(&self, card: &Card) -> DryBuffer;

    /// Numbers in its weights and in its norms' scales and shifts, each together in one tensor.
    fn parameters(&self) -> [usize; 2];

    /// Numbers in its running statistics.
    fn statistics(&self) -> usize;

    /// Numbers in its weights in the forms that kernels read.
    fn packed(&self, card: &Card) -> usize;
}

impl Card {
    fn new(on: &Target) -> Self {
        let element = on.precision.bytes();
        Self { meter: DryAllocator::new(UNIT), element, work: Cell::default() }
    }

    /// What `stage` costs.
    pub fn footprint<S: CardStage>(on: &Target, stage: &S) -> Footprint {
        let of_parameters = stage.parameters().map(|numbers| 4 * numbers as u64);
        let plain = Self::new(on);
        let input = stage.input(&plain);
        plain.meter.restart();
        let (output, kept) = stage.forward(&plain, input.clone(), false);
        drop(kept);
        let in_input = output.is(&input);
        let forward_workspace = plain.meter.peak() - plain.meter.live();
        let Work { flops: forward_flops, traffic: forward_traffic } = plain.work.get();

        let card = Self::new(on);
        let input = stage.input(&card);
        card.meter.restart();
        let (output, kept) = stage.forward(&card, input.clone(), true);
        let size = output.bytes();
        let (all, most) = (card.meter.live(), card.meter.peak());
        // Who else holds the input and the output once the caller holds them no more.
        let (saves_input, saves_output) =
            (!input.is_unique() && !in_input, output.holders() > if in_input { 2 } else { 1 });
        let shared = if in_input { input.bytes() } else { input.bytes() + size };
        let saved = all - shared;

        // When it goes back, the stage behind it holds its output no more.
        drop(output);
        card.work.set(Work::default());
        let gradient = stage.gradient(&card);
        card.meter.restart();
        let start = card.meter.live();
        let of_input = stage.backward(&card, kept, gradient.clone());
        let gradient_in_gradient = of_input.as_ref().is_some_and(|found| found.is(&gradient));
        let found = match (&of_input, gradient_in_gradient) {
            (Some(of_input), false) => of_input.bytes(),
            _ => 0,
        };
        let parameter_gradients = of_parameters.iter().sum();
        // The gradients of the parameters are taken by the caller.
        let backward_workspace = (card.meter.peak() - start).saturating_sub(found);
        let Work { flops: backward_flops, traffic: backward_traffic } = card.work.get();
        let of_statistics = 4 * stage.statistics() as u64;
        Footprint {
            // The batch's statistics stay until the step is taken.
            standing: 2 * of_statistics + card.element * stage.packed(&card) as u64,
            largest_parameter: of_parameters.into_iter().max().unwrap_or(0),
            largest_array: plain.meter.largest().max(card.meter.largest()),
            output: size,
            output_in_input: in_input,
            checkpoint: 0,
            saved,
            saves_input,
            saves_output,
            moves_saved: saves_input || saves_output || saved > 0,
            forward_workspace,
            saving_workspace: most - all,
            gradient: found,
            gradient_in_gradient,
            backward_workspace,
            parameter_gradients,
            layers: 1.0,
            forward_flops,
            backward_flops,
            forward_traffic,
            backward_traffic,
        }
    }

    /// A map.
    pub fn map(&self, pixels: usize, channels: usize) -> DryBuffer {
        self.meter.take(self.element * (pixels * channels) as u64)
    }

    /// 32-bit numbers.
    pub fn floats(&self, numbers: usize) -> DryBuffer {
        self.meter.take(4 * numbers as u64)
    }

    /// Mean, variance and deviation of so many channels.
    pub fn moments(&self, channels: usize) -> DryBuffer {
        self.floats(3 * channels)
    }

    /// Two numbers for each channel: an affine map, or sums.
    pub fn pairs(&self, channels: usize) -> DryBuffer {
        self.floats(2 * channels)
    }

    /// What a kernel leaves of channels in `rows` parts.
    pub fn partials(&self, rows: usize, channels: usize) -> DryBuffer {
        self.floats(rows * (2 * channels + 1))
    }

    /// The parts of the gradient of a weight of `output` × `input` numbers, summed over `pixels`.
    pub fn split(&self, pixels: usize, output: usize, input: usize) -> DryBuffer {
        let tile = |columns: usize| if columns <= 64 { 64 } else { 128 };
        let tiles = output.div_ceil(tile(output)) * input.div_ceil(tile(input));
        let wanted = (2 * MULTIPROCESSORS / tiles).max(1);
        let per = 32 * pixels.div_ceil(32 * wanted);
        self.floats(pixels.div_ceil(per) * output * input)
    }

    /// Rows of a packed weight begin where kernels can load them.
    pub fn row(&self, numbers: usize) -> usize {
        numbers.next_multiple_of(4 * 16 / self.element as usize)
    }

    /// The multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        MULTIPROCESSORS
    }

    /// A kernel multiplies: `products` multiplications and additions.
    pub fn multiply(&self, products: f64) {
        let Work { flops, traffic } = self.work.get();
        self.work.set(Work { flops: flops + 2.0 * products, traffic });
    }

    /// A kernel reads or writes so many channels of so many pixels.
    pub fn pass(&self, pixels: usize, channels: usize) {
        let Work { flops, traffic } = self.work.get();
        let moved = self.element as f64 * (pixels * channels) as f64;
        self.work.set(Work { flops, traffic: traffic + moved });
    }
}
