//! A kernel as text.

use std::fmt::Write;
use std::sync::Arc;

use burn_cubecl::cubecl::ir::metadata::Info;
use burn_cubecl::cubecl::ir::{ElemType, Scope, UIntKind};
use burn_cubecl::cubecl::prelude::{
    AddressType, CubeDim, ExecutionMode, KernelDefinition, KernelId, KernelMetadata, KernelSettings,
};
use burn_cubecl::cubecl::{CubeKernel, PrecompiledSource};

/// CUDA C++ text with one entry, for one block size and one choice of macros.
///
/// Its identity covers a hash of the text, so that a compiled kernel kept from an earlier version of
/// the text is never used.
#[derive(Debug, Clone)]
pub struct Kernel {
    entry: &'static str,
    text: Arc<str>,
    threads: u32,
    id: KernelId,
}

impl Kernel {
    /// The kernel `entry` of `sources` (headers first), preceded by a `#define` for each of
    /// `macros`, with `threads` threads a block.
    pub fn new(
        entry: &'static str,
        threads: u32,
        macros: &[(&str, &dyn std::fmt::Display)],
        sources: &[&str],
    ) -> Self {
        let mut text = String::new();
        for (name, value) in macros {
            let _ = writeln!(text, "#define {name} {value}");
        }
        for source in sources {
            text.push_str(source);
            text.push('\n');
        }
        let hash = blake3::hash(text.as_bytes()).to_hex().to_string();
        let id = KernelId::new::<Launchable>()
            .info((entry, hash))
            .cube_dim(CubeDim::new_1d(threads).into());
        Self { entry, text: text.into(), threads, id }
    }

    /// The name of its entry.
    pub fn entry(&self) -> &'static str {
        self.entry
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// The text that is compiled.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What CubeCL knows it by.
    pub(super) fn id(&self) -> &KernelId {
        &self.id
    }

    pub(super) fn launchable(&self) -> Box<dyn CubeKernel> {
        Box::new(Launchable(self.clone()))
    }
}

/// What CubeCL compiles and keeps.
#[derive(Debug)]
struct Launchable(Kernel);

impl KernelMetadata for Launchable {
    fn name(&self) -> &'static str {
        self.0.entry
    }

    fn id(&self) -> KernelId {
        self.0.id.clone()
    }

    fn address_type(&self) -> ElemType {
        UIntKind::U32.into()
    }
}

impl CubeKernel for Launchable {
    fn define(&self) -> KernelDefinition {
        let dim = CubeDim::new_1d(self.0.threads).into();
        let settings = KernelSettings::new(dim, ExecutionMode::Checked, AddressType::U32);
        KernelDefinition { body: Scope::root(settings.clone()), settings, info: Info::default() }
    }

    fn source(&self) -> Option<PrecompiledSource> {
        Some(PrecompiledSource {
            source: self.0.text.to_string(),
            entrypoint_name: self.0.entry.to_owned(),
            lang: "cuda",
        })
    }
}
