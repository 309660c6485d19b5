//! Every kernel of a model at one precision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use burn::tensor::DType;

use super::channels_last::{Affine, ChannelsLast, Over};
use super::gpu::lock;
use super::{Buffer, Element, Gpu, Kernel, Sizes};

/// As PyTorch has it.
pub(super) const EPSILON: f32 = 1e-5;

// Text files that stand in front of kernels.

pub(super) const TILES: &str = include_str!("kernels/tiles.cuh");
pub(super) const CHANNELS: &str = include_str!("kernels/channels.cuh");
pub(super) const GEMM: &str = include_str!("kernels/gemm.cuh");
pub(super) const CONV: &str = include_str!("kernels/conv.cuh");
pub(super) const STEM: &str = include_str!("kernels/stem.cuh");
pub(super) const NORMED: &str = include_str!("kernels/normed.cuh");
pub(super) const EXCHANGE: &str = include_str!("kernels/exchange.cuh");
pub(super) const CHANNEL_NORM: &str = include_str!("kernels/channel_norm.cuh");
pub(super) const HOPPER: &str = include_str!("kernels/hopper.cuh");
pub(super) const ROWS: &str = include_str!("kernels/rows.cuh");
pub(super) const SWIZZLED: &str = include_str!("kernels/swizzled.cuh");
pub(super) const RING: &str = include_str!("kernels/ring.cuh");
pub(super) const RING_COLUMNS: &str = include_str!("kernels/ring_columns.cuh");
pub(super) const DRAWS: &str = include_str!("kernels/draws.cuh");
pub(super) const GROUPS: &str = include_str!("kernels/groups.cuh");
pub(super) const NORM_SUMS: &str = include_str!("kernels/norm_sums.cuh");
pub(super) const POOLED: &str = include_str!("kernels/pooled.cuh");

/// One entry: its name, threads a block, bytes of shared memory that a launch gives a block, headers and
/// text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) threads: u32,
    pub(super) shared: u32,
    pub(super) headers: &'static [&'static str],
    pub(super) text: &'static str,
}

/// Makes an [`Entry`] of the file of its name.
macro_rules! entry {
    ($name:literal, $threads:literal, [$($header:ident),*]) => {
        $crate::ops::gpu::kernels::entry!($name, $threads, 0, [$($header),*])
    };
    ($name:literal, $threads:literal, $shared:expr, [$($header:ident),*]) => {{
        const HEADERS: &[&str] = &[$($crate::ops::gpu::kernels::$header),*];
        $crate::ops::gpu::kernels::entry!($name, $threads, $shared, HEADERS)
    }};
    ($name:literal, $threads:literal, $shared:expr, $headers:expr) => {
        $crate::ops::gpu::kernels::Entry {
            name: $name,
            threads: $threads,
            shared: $shared,
            headers: $headers,
            text: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/src/ops/gpu/kernels/",
                $name,
                ".cu"
            )),
        }
    };
}
pub(super) use entry;

/// What tells a variant for GroupNorm from that for BatchNorm.
const PER_IMAGE: usize = 1_000_000;

const FILL: Entry = entry!("fill", 256, []);

/// The most 32-bit numbers of a small buffer: 8 KiB.
const SMALL: usize = 2 << 10;
/// Those of a piece that small buffers share: 32 KiB, which CubeCL puts where no large buffer lies.
const PIECE: usize = 8 << 10;
/// Small buffers begin at multiples of so many, as the allocator's do.
const ALIGNMENT: usize = 128;

/// Those made by [`Kernels::shared`].
static SHARED: Mutex<Vec<Kernels>> = Mutex::new(Vec::new());

/// By what is multiplied, the entry and its variant.
type Made = HashMap<(Element, &'static str, usize), Kernel>;

/// The kernels of a precision on one GPU, each made ready when it is first used.
#[derive(Debug, Clone)]
pub struct Kernels {
    pub(super) gpu: Gpu,
    pub(super) element: Element,
    pub(super) multiprocessors: usize,
    hopper: bool,
    made: Arc<Mutex<Made>>,
    identity: Arc<Mutex<Option<Affine>>>,
    /// The memory that buffers of a pass share.
    pass: Option<Arc<Mutex<PassMemory>>>,
}

/// What buffers of a pass share.
#[derive(Debug, Default)]
struct PassMemory {
    /// What small ones are cut from.
    small: Option<Rest>,
    /// What others lie in that one kernel leaves and the next one reads, again and again.
    work: Vec<Buffer>,
}

/// A piece of memory of 32-bit numbers, of which those from `used` on are free.
#[derive(Debug)]
struct Rest {
    piece: Buffer,
    used: usize,
}

impl Kernels {
    /// Those for `element` on `gpu`.
    pub fn new(gpu: Gpu, element: Element) -> Self {
        let (multiprocessors, hopper) = (gpu.multiprocessors(), gpu.is_hopper());
        let (made, identity) = (Arc::default(), Arc::default());
        Self { gpu, element, multiprocessors, hopper, made, identity, pass: None }
    }

    /// The same for one pass of a stage, whose small buffers ([`Kernels::small`]) share pieces of memory, and which
    /// takes the memory of some buffers again for others ([`Kernels::work`]). A piece is in use as long as one of
    /// its buffers is.
    ///
    /// An allocation costs the allocator more the more pieces of memory there are, as it goes through all of
    /// them. At small batches a step waits for it: with a piece for each buffer, it is half of what a launch
    /// costs the host.
    pub fn of_a_pass(&self) -> Self {
        Self { pass: Some(Arc::default()), ..self.clone() }
    }

    /// The same, but with factors of products that are not rounded to TF32.
    pub fn with_full_products(&self) -> Self {
        match self.element {
            Element::Tf32 => Self { element: Element::F32, ..self.clone() },
            Element::F32 | Element::Bf16 | Element::F16 => self.clone(),
        }
    }

    /// Those for `element` on `gpu` that every caller shares.
    pub fn shared(gpu: Gpu, element: Element) -> Self {
        let mut all = lock(&SHARED);
        let found = all.iter().find(|kernels| kernels.gpu == gpu && kernels.element == element);
        if let Some(kernels) = found {
            return kernels.clone();
        }
        let kernels = Self::new(gpu, element);
        all.push(kernels.clone());
        kernels
    }

    /// How the elements that they compute with lie in memory.
    pub fn storage(&self) -> DType {
        self.element.storage()
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether kernels written for Hopper can be launched: they take 2-byte elements.
    pub(super) fn hopper(&self) -> bool {
        self.hopper && self.element.storage().size() == 2
    }

    /// Whether those can that multiply 32-bit numbers as three bfloat16 parts.
    pub(super) fn hopper_splits(&self) -> bool {
        self.hopper && self.element == Element::F32
    }

    /// The multiprocessors that there are for each part of a launch over `over`.
    pub(super) fn multiprocessors_for(&self, over: Over) -> usize {
        (self.multiprocessors / over.images()).max(1)
    }

    /// How many elements 16 bytes are.
    pub(super) fn vector(&self) -> usize {
        16 / self.element.storage().size()
    }

    /// Room for a map.
    pub fn empty_map(&self, pixels: usize, channels: usize) -> ChannelsLast {
        ChannelsLast::new(self.elements(pixels * channels), pixels, channels)
    }

    /// Room for activations.
    pub fn elements(&self, length: usize) -> Buffer {
        self.empty(length, self.element.storage())
    }

    /// Room for 32-bit numbers.
    pub(super) fn floats(&self, length: usize) -> Buffer {
        self.empty(length, DType::F32)
    }

    /// Room for elements of some type. That of a pass ([`Kernels::of_a_pass`]) lies where the step's placement has it.
    pub(super) fn empty(&self, length: usize, storage: DType) -> Buffer {
        match self.pass {
            Some(_) => self.gpu.empty_in_pass(length, storage),
            None => self.gpu.empty(length, storage),
        }
    }

    /// Room for a few 32-bit numbers, such as statistics: in memory that it shares with others in a pass
    /// ([`Kernels::of_a_pass`]).
    pub(super) fn small(&self, length: usize) -> Buffer {
        let Some(pass) = self.pass.as_ref().filter(|_| length <= SMALL) else {
            return self.floats(length);
        };
        let rest = &mut lock(pass).small;
        let fits = rest.take().filter(|rest| rest.used + length <= PIECE);
        let Rest { piece, used } =
            fits.unwrap_or_else(|| Rest { piece: self.floats(PIECE), used: 0 });
        let found = piece.range(used..used + length);
        *rest = Some(Rest { piece, used: (used + length).next_multiple_of(ALIGNMENT) });
        found
    }

    /// Room for 32-bit numbers that a kernel leaves for one that soon follows. A pass ([`Kernels::of_a_pass`]) takes the
    /// same memory for the next ones when nobody holds these any more: what it launches runs in order.
    pub(super) fn work(&self, length: usize) -> Buffer {
        let Some(pass) = &self.pass else { return self.floats(length) };
        let work = &mut lock(pass).work;
        // Not a large piece for a few numbers, which would then be missing for many.
        let alike = |held: &Buffer| held.len() / 4 <= length && length / 4 <= held.len();
        let free = |held: &&Buffer| !held.is_shared() && alike(held);
        let fits = |held: &&Buffer| free(held) && held.len() >= length;
        if let Some(held) = work.iter().filter(fits).min_by_key(|held| held.len()) {
            return held.range(0..length);
        }
        // One that is too short is given back first.
        if let Some(short) = work.iter().position(|held| free(&held)) {
            work.swap_remove(short);
        }
        let held = self.floats(length);
        let found = held.range(0..length);
        work.push(held);
        found
    }

    /// `length` numbers `value`.
    pub fn filled(&self, length: usize, value: f32) -> Buffer {
        self.fill(self.floats(length), value)
    }

    /// `out`, whose numbers are all `value` now.
    pub(super) fn fill(&self, out: Buffer, value: f32) -> Buffer {
        let sizes = Sizes::new().int(out.len()).float(value);
        self.gpu.launch(&self.get(FILL), [blocks(out.len(), 1024), 1, 1], &[&out], &sizes);
        out
    }

    /// The affine map that changes nothing, for `channels` channels.
    pub(super) fn identity(&self, channels: usize) -> Affine {
        let made = || {
            // It outlives the pass.
            let [scale, shift] =
                [1.0, 0.0].map(|value| self.fill(self.gpu.floats(channels), value));
            Affine { scale, shift, over: Over::Batch }
        };
        let mut kept = lock(&self.identity);
        let affine = kept.take().filter(|affine| affine.scale.len() >= channels);
        let affine = affine.unwrap_or_else(made);
        kept.insert(affine).clone()
    }

    /// The kernel of `entry`.
    pub(super) fn get(&self, entry: Entry) -> Kernel {
        self.variant(entry, 0, &[])
    }

    /// The kernel of `entry` for norms that are taken over `over`.
    pub(super) fn get_over(&self, entry: Entry, over: Over) -> Kernel {
        self.variant_over(entry, 0, &[], over)
    }

    /// [`Kernels::variant`] for norms that are taken over `over`.
    pub(super) fn variant_over(
        &self,
        entry: Entry,
        variant: usize,
        macros: &[(&str, usize)],
        over: Over,
    ) -> Kernel {
        match over {
            Over::Batch => self.variant(entry, variant, macros),
            Over::Images(_) => {
                let macros = [macros, &[("PER_IMAGE", 1)]].concat();
                self.variant(entry, variant + PER_IMAGE, &macros)
            }
        }
    }

    /// The kernel of `entry` with further macros; `variant` tells their values apart.
    pub(super) fn variant(&self, entry: Entry, variant: usize, macros: &[(&str, usize)]) -> Kernel {
        let mut made = lock(&self.made);
        made.entry((self.element, entry.name, variant))
            .or_insert_with(|| {
                let element = self.element.macro_name();
                let mut all: Vec<(&str, &dyn std::fmt::Display)> = vec![("ELEMENT", &element)];
                all.extend(
                    macros.iter().map(|(name, value)| (*name, value as &dyn std::fmt::Display)),
                );
                let texts = [entry.headers, &[entry.text]].concat();
                Kernel::with_shared(entry.name, entry.threads, entry.shared, &all, &texts)
            })
            .clone()
    }
}

/// How many blocks of `step` cover `count`.
pub(super) fn blocks(count: usize, step: usize) -> usize {
    count.div_ceil(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DryAllocator;
    use crate::ops::gpu::DryGpu;

    /// Numbers of the pieces that buffers of so many 32-bit numbers come to lie in.
    fn pieces(kernels: &Kernels, lengths: &[usize]) -> (Vec<Buffer>, Vec<u64>) {
        let all: Vec<Buffer> = lengths.iter().map(|length| kernels.small(*length)).collect();
        let numbers = all.iter().map(|buffer| buffer.counted().number()).collect();
        (all, numbers)
    }

    #[test]
    fn a_pass_takes_memory_again_that_nobody_holds() {
        let memory = DryAllocator::default();
        let kernels = Kernels::new(Gpu::dry(&DryGpu::new(memory.clone(), true)), Element::Bf16);
        let number = |buffer: &Buffer| buffer.counted().number();
        let apart: Vec<u64> = (0..2).map(|_| number(&kernels.work(1000))).collect();
        assert_eq!(apart, [0, 1], "outside a pass each has its own");

        let pass = kernels.of_a_pass();
        let first = pass.work(1000);
        let second = pass.work(1000);
        assert_eq!([&first, &second].map(number), [2, 3], "the first is still held");
        assert_eq!((first.len(), second.len()), (1000, 1000));
        let part = first.range(0..16);
        drop(first);
        assert_eq!(number(&pass.work(1000)), 4, "a part of the first is held");
        drop(part);
        assert_eq!(number(&pass.work(900)), 2, "what is not longer finds room");
        assert_eq!(number(&pass.work(200)), 5, "but does not take five times as much");
        drop(second);
        let live = memory.live();
        let longer = pass.work(1500);
        assert_eq!(number(&longer), 6, "nothing held is long enough");
        assert_eq!(
            memory.live(),
            live + 4 * (1536 - 1024),
            "one that is too short has gone for it"
        );
        drop((longer, pass));
        assert_eq!(memory.live(), 0);
    }

    #[test]
    fn small_buffers_of_a_pass_share_pieces_that_go_with_them() {
        let memory = DryAllocator::default();
        let kernels = Kernels::new(Gpu::dry(&DryGpu::new(memory.clone(), true)), Element::Bf16);
        let (apart, numbers) = pieces(&kernels, &[1, 200, 1]);
        assert_eq!(numbers, [0, 1, 2], "each has its own outside a pass");
        drop(apart);

        let pass = kernels.of_a_pass();
        // The fourth is not small, and the sixth does not fit behind the others any more.
        let lengths = [SMALL, SMALL, SMALL - 1, SMALL + 1, 1, SMALL, 7];
        let (all, numbers) = pieces(&pass, &lengths);
        assert_eq!(numbers, [3, 3, 3, 4, 3, 5, 5]);
        assert_eq!(all.iter().map(Buffer::len).collect::<Vec<_>>(), lengths);
        // Another pass begins another piece.
        assert_eq!(pieces(&kernels.of_a_pass(), &[1]).1, [6]);
        drop(pass);
        assert_eq!(memory.live(), 4 * (2 * PIECE + SMALL + ALIGNMENT) as u64);
        drop(all);
        assert_eq!(memory.live(), 0);
    }
}
