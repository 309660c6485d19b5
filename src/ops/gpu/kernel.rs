//! A kernel as text.

use std::sync::{Arc, OnceLock};

use super::pointers::only_read;

/// CUDA C++ text with one entry, for one block size and one choice of macros.
///
/// The text is put together when it is first asked for: a dry run never does.
#[derive(Debug, Clone)]
pub struct Kernel(pub(super) Arc<Source>);

#[derive(Debug)]
pub(super) struct Source {
    entry: &'static str,
    threads: u32,
    /// Bytes of shared memory of a block beside what the text declares.
    shared: u32,
    /// A line for each macro.
    macros: String,
    sources: Vec<&'static str>,
    text: OnceLock<String>,
    #[cfg(feature = "cuda")]
    pub(super) identity: OnceLock<super::cuda::KernelIdentity>,
    /// Set when its machine code lies where a launch finds it with its shared memory.
    #[cfg(feature = "cuda")]
    pub(super) ready: OnceLock<()>,
}

impl Kernel {
    /// The kernel `entry` of `sources` (headers first), preceded by a `#define` for each of
    /// `macros`, with `threads` threads a block.
    pub fn new(
        entry: &'static str,
        threads: u32,
        macros: &[(&str, &dyn std::fmt::Display)],
        sources: &[&'static str],
    ) -> Self {
        Self::with_shared(entry, threads, 0, macros, sources)
    }

    /// [`Kernel::new`] with `shared` bytes of shared memory for each block beside what the text declares:
    /// at most what a block can have on the device, 227 KiB on Hopper.
    pub fn with_shared(
        entry: &'static str,
        threads: u32,
        shared: u32,
        macros: &[(&str, &dyn std::fmt::Display)],
        sources: &[&'static str],
    ) -> Self {
        let line =
            |(name, value): &(&str, &dyn std::fmt::Display)| format!("#define {name} {value}\n");
        Self(Arc::new(Source {
            entry,
            threads,
            shared,
            macros: macros.iter().map(line).collect(),
            sources: sources.to_vec(),
            text: OnceLock::new(),
            #[cfg(feature = "cuda")]
            identity: OnceLock::new(),
            #[cfg(feature = "cuda")]
            ready: OnceLock::new(),
        }))
    }

    /// One that does nothing. CubeCL finds the machine code of others where it finds that of this one.
    pub fn probe() -> Self {
        Self::new("probe", 32, &[], &["extern \"C\" __global__ void probe() {}"])
    }

    /// The name of its entry.
    pub fn entry(&self) -> &'static str {
        self.0.entry
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.0.threads
    }

    /// Bytes of shared memory of a block beside what the text declares.
    pub fn shared(&self) -> u32 {
        self.0.shared
    }

    /// What tells it from the other kernels of one program: its entry and its macros.
    pub fn variant(&self) -> (&'static str, String) {
        (self.0.entry, self.0.macros.clone())
    }

    /// For each pointer that it is given, in order, whether it only reads there. Some variants are not given all of them, but the first.
    pub fn only_read(&self) -> Vec<bool> {
        only_read(self.text(), self.entry())
    }

    /// The text that is compiled.
    pub fn text(&self) -> &str {
        self.0.text.get_or_init(|| {
            let sources = self.0.sources.iter().flat_map(|source| [*source, "\n"]);
            std::iter::once(self.0.macros.as_str()).chain(sources).collect()
        })
    }
}
