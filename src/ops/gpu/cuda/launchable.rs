//! Kernels as CubeCL takes them.

use burn_cubecl::cubecl::ir::attributes::BufferIOAttr;
use burn_cubecl::cubecl::ir::metadata::Info;
use burn_cubecl::cubecl::ir::{ElemType, Scope, UIntKind};
use burn_cubecl::cubecl::prelude::{
    AddressType, CubeDim, ExecutionMode, KernelDefinition, KernelId, KernelMetadata, KernelSettings,
};
use burn_cubecl::cubecl::{CubeKernel, PrecompiledSource};

use crate::ops::gpu::Kernel;

/// What CubeCL is told of a kernel.
#[derive(Debug)]
pub(in crate::ops::gpu) struct Identity {
    id: KernelId,
    uses: Vec<BufferIOAttr>,
}

impl Kernel {
    /// What CubeCL knows it by. It covers a hash of the text, so that a compiled kernel kept from an
    /// earlier version of the text is never used.
    pub(in crate::ops::gpu) fn id(&self) -> &KernelId {
        &self.identity().id
    }

    /// What it does with each of its buffers. CubeCL marks what a launch without memory would have written as lost.
    pub(in crate::ops::gpu) fn uses(&self) -> &[BufferIOAttr] {
        &self.identity().uses
    }

    fn identity(&self) -> &Identity {
        self.0.identity.get_or_init(|| {
            let (entry, text) = (self.entry(), self.text());
            // CubeCL hashes it several times a launch, so that it is short.
            let mut hasher = blake3::Hasher::new();
            let hash = hasher.update(entry.as_bytes()).update(text.as_bytes()).finalize();
            let half = hash.as_bytes().first_chunk().expect("a hash has 32 bytes");
            let info = u128::from_le_bytes(*half);
            let dim = CubeDim::new_1d(self.threads());
            let id = KernelId::new::<Launchable>().info(info).cube_dim(dim.into());
            let used = |only_read: bool| match only_read {
                true => BufferIOAttr::ReadOnly,
                false => BufferIOAttr::ReadWrite,
            };
            Identity { id, uses: self.only_read().into_iter().map(used).collect() }
        })
    }

    pub(in crate::ops::gpu) fn launchable(&self) -> Box<dyn CubeKernel> {
        Box::new(Launchable(self.clone()))
    }
}

/// What CubeCL compiles and keeps.
#[derive(Debug)]
struct Launchable(Kernel);

impl KernelMetadata for Launchable {
    fn name(&self) -> &'static str {
        self.0.entry()
    }

    fn id(&self) -> KernelId {
        self.0.id().clone()
    }

    fn address_type(&self) -> ElemType {
        UIntKind::U32.into()
    }
}

impl CubeKernel for Launchable {
    fn define(&self) -> KernelDefinition {
        let dim = CubeDim::new_1d(self.0.threads()).into();
        let settings = KernelSettings::new(dim, ExecutionMode::Checked, AddressType::U32);
        KernelDefinition { body: Scope::root(settings.clone()), settings, info: Info::default() }
    }

    fn source(&self) -> Option<PrecompiledSource> {
        Some(PrecompiledSource {
            source: self.0.text().to_owned(),
            entrypoint_name: self.0.entry().to_owned(),
            lang: "cuda",
        })
    }
}
