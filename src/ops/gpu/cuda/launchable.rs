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

    /// What it does with each of its buffers, for as many of the first as its text says it of.
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
            Identity { id, uses: uses(text, entry) }
        })
    }

    pub(in crate::ops::gpu) fn launchable(&self) -> Box<dyn CubeKernel> {
        Box::new(Launchable(self.clone()))
    }
}

/// What the entry of `text` does with each pointer that it is given: one to constants is only read.
/// CubeCL marks what a launch without memory would have written as lost, and where nobody says what
/// that is, all that it was given: the weights too. None where the pointers are not written out.
fn uses(text: &str, entry: &str) -> Vec<BufferIOAttr> {
    let begin = text.find("extern \"C\"").and_then(|at| Some(at + text[at..].find(entry)?));
    let Some(arguments) = begin.and_then(|at| text[at..].strip_prefix(entry)?.strip_prefix('('))
    else {
        return Vec::new();
    };
    let end = arguments.find(')').unwrap_or(arguments.len());
    // Those of a variant stand behind all others.
    let lines = arguments[..end].lines().filter(|line| !line.starts_with('#'));
    let written = lines.collect::<Vec<_>>().join(" ");
    let pointers = written.split(',').filter(|argument| argument.contains('*'));
    let used = |pointer: &str| match pointer.trim_start().starts_with("const ") {
        true => BufferIOAttr::ReadOnly,
        false => BufferIOAttr::ReadWrite,
    };
    pointers.map(used).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_says_which_buffers_it_only_reads() {
        let text = "// adds(x)\nextern \"C\" __global__ void __launch_bounds__(256)\n\
                    adds(const float* __restrict__ x, const E* y,\n     E* __restrict__ out,\n\
                    #if SYNCED\n     const float* table,\n#endif\n     const __grid_constant__ adds_sizes s) { f(x); }";
        use BufferIOAttr::{ReadOnly, ReadWrite};
        assert_eq!(uses(text, "adds"), [ReadOnly, ReadOnly, ReadWrite, ReadOnly]);
        assert_eq!(
            uses("extern \"C\" __global__ void\nmany(EACH(ARGUMENTS) const S s) {}", "many"),
            []
        );
    }
}
