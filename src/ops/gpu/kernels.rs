//! Every kernel of a model at one precision.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::channels_last::{Affine, ChannelsLast};
use super::{Buffer, Element, Gpu, Kernel, Sizes, Storage};

/// As PyTorch has it.
pub(super) const EPSILON: f32 = 1e-5;

/// Text files that stand in front of kernels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header(pub(super) &'static str);

pub(super) const TILES: Header = Header(include_str!("kernels/tiles.cuh"));
pub(super) const CHANNELS: Header = Header(include_str!("kernels/channels.cuh"));
pub(super) const GEMM: Header = Header(include_str!("kernels/gemm.cuh"));
pub(super) const CONV: Header = Header(include_str!("kernels/conv.cuh"));
pub(super) const STEM: Header = Header(include_str!("kernels/stem.cuh"));
pub(super) const NORMED: Header = Header(include_str!("kernels/normed.cuh"));
pub(super) const EXCHANGE: Header = Header(include_str!("kernels/exchange.cuh"));
pub(super) const HOPPER: Header = Header(include_str!("kernels/hopper.cuh"));
pub(super) const ROWS: Header = Header(include_str!("kernels/rows.cuh"));
pub(super) const SWIZZLED: Header = Header(include_str!("kernels/swizzled.cuh"));
pub(super) const RING: Header = Header(include_str!("kernels/ring.cuh"));
pub(super) const RING_COLUMNS: Header = Header(include_str!("kernels/ring_columns.cuh"));
pub(super) const POOLED: Header = Header(include_str!("kernels/pooled.cuh"));

/// One entry: its name, threads a block, bytes of shared memory that a launch gives a block, headers and
/// text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) name: &'static str,
    pub(super) threads: u32,
    pub(super) shared: u32,
    pub(super) headers: &'static [Header],
    pub(super) text: &'static str,
}

/// Makes an [`Entry`] of the file of its name.
macro_rules! entry {
    ($name:literal, $threads:literal, [$($header:ident),*]) => {
        $crate::ops::gpu::kernels::entry!($name, $threads, 0, [$($header),*])
    };
    ($name:literal, $threads:literal, $shared:expr, [$($header:ident),*]) => {
        $crate::ops::gpu::kernels::Entry {
            name: $name,
            threads: $threads,
            shared: $shared,
            headers: &[$($crate::ops::gpu::kernels::$header),*],
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

const FILL: Entry = entry!("fill", 256, []);

/// Those made by [`Kernels::shared`].
static SHARED: Mutex<Vec<Kernels>> = Mutex::new(Vec::new());

/// The kernels of one precision on one GPU, each made ready when it is first used.
#[derive(Debug, Clone)]
pub struct Kernels {
    pub(super) gpu: Gpu,
    pub(super) element: Element,
    pub(super) multiprocessors: usize,
    hopper: bool,
    made: Arc<Mutex<HashMap<(&'static str, usize), Kernel>>>,
    identity: Arc<Mutex<Option<Affine>>>,
}

impl Kernels {
    /// Those for `element` on `gpu`.
    pub fn new(gpu: Gpu, element: Element) -> Self {
        let (multiprocessors, hopper) = (gpu.multiprocessors(), gpu.is_hopper());
        let (made, identity) = (Arc::default(), Arc::default());
        Self { gpu, element, multiprocessors, hopper, made, identity }
    }

    /// Those for `element` on `gpu` that every caller shares.
    pub fn shared(gpu: Gpu, element: Element) -> Self {
        let mut all = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.iter().find(|kernels| kernels.gpu == gpu && kernels.element == element);
        if let Some(kernels) = found {
            return kernels.clone();
        }
        let kernels = Self::new(gpu, element);
        all.push(kernels.clone());
        kernels
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Whether kernels written for Hopper can be launched: they take 2-byte elements.
    pub(super) fn hopper(&self) -> bool {
        self.hopper && self.element.storage().bytes() == 2
    }

    /// Whether those can that multiply 32-bit numbers as three bfloat16 parts.
    pub(super) fn hopper_splits(&self) -> bool {
        self.hopper && self.element == Element::F32
    }

    /// How many elements 16 bytes are.
    pub(super) fn vector(&self) -> usize {
        16 / self.element.storage().bytes()
    }

    /// Room for a map.
    pub fn empty_map(&self, pixels: usize, channels: usize) -> ChannelsLast {
        ChannelsLast::new(self.elements(pixels * channels), pixels, channels)
    }

    /// Room for activations.
    pub(super) fn elements(&self, length: usize) -> Buffer {
        self.gpu.empty(length, self.element.storage())
    }

    /// Room for 32-bit numbers.
    pub(super) fn floats(&self, length: usize) -> Buffer {
        self.gpu.empty(length, Storage::F32)
    }

    /// `length` numbers `value`.
    pub fn filled(&self, length: usize, value: f32) -> Buffer {
        let out = self.floats(length);
        let sizes = Sizes::new().int(length).float(value);
        self.gpu.launch(&self.get(FILL), [blocks(length, 1024), 1, 1], &[&out], &sizes);
        out
    }

    /// The affine map that changes nothing, for `channels` channels.
    pub(super) fn identity(&self, channels: usize) -> Affine {
        let made =
            || Affine { scale: self.filled(channels, 1.0), shift: self.filled(channels, 0.0) };
        let mut kept = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        let affine = kept.take().filter(|affine| affine.scale.len() >= channels);
        let affine = affine.unwrap_or_else(made);
        kept.insert(affine).clone()
    }

    /// The kernel of `entry`.
    pub(super) fn get(&self, entry: Entry) -> Kernel {
        self.variant(entry, 0, &[])
    }

    /// The kernel of `entry` with further macros; `variant` tells their values apart.
    pub(super) fn variant(&self, entry: Entry, variant: usize, macros: &[(&str, usize)]) -> Kernel {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry((entry.name, variant))
            .or_insert_with(|| {
                let element = self.element.macro_name();
                let mut all: Vec<(&str, &dyn std::fmt::Display)> = vec![("ELEMENT", &element)];
                all.extend(
                    macros.iter().map(|(name, value)| (*name, value as &dyn std::fmt::Display)),
                );
                let headers = entry.headers.iter().map(|header| header.0);
                let texts: Vec<&'static str> = headers.chain([entry.text]).collect();
                Kernel::with_shared(entry.name, entry.threads, entry.shared, &all, &texts)
            })
            .clone()
    }
}

/// How many blocks of `step` cover `count`.
pub(super) fn blocks(count: usize, step: usize) -> usize {
    count.div_ceil(step)
}
