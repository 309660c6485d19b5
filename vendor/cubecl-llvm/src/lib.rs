//! The items of `cubecl-llvm` that `cubecl-cuda` names, with a compiler that always refuses.
//!
//! `cubecl-cuda` compiles against both of its back ends whichever it uses. With its feature `cpp`
//! every kernel goes through NVRTC, so nothing here runs; see README.md.

use std::convert::Infallible;
use std::ffi::c_char;
use std::fmt;

use cubecl_environment::backtrace::BackTrace;
use cubecl_ir::nvidia::SmArch;
use cubecl_server::compiler::{CompilationError, Compiler};
use cubecl_server::kernel::{BufferIOAttr, KernelDefinition};

use crate::nvptx::ptx_version::PtxVersion;

/// What the back end would have made code for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LlvmTarget {
    /// NVIDIA's virtual instruction set.
    #[default]
    Nvptx,
}

/// Refuses every kernel.
#[derive(Debug, Clone, Default)]
pub struct PlironCompiler {
    /// Named by the error.
    pub target: LlvmTarget,
}

/// What `cubecl-cuda` would have told the back end; read by nothing.
#[derive(Debug, Clone, Default)]
pub struct PlironOptions {
    /// An AMD architecture; there is none.
    pub arch: Option<Infallible>,
    /// The card's architecture.
    pub sm_arch: Option<SmArch>,
    /// The newest PTX the driver loads.
    pub ptx_version: Option<PtxVersion>,
    /// Whether scalars travel in the kernel's parameter block.
    pub grid_constants: bool,
}

/// What the back end would have made; no value of it is ever made.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum PlironArtifact {
    /// A kernel for an NVIDIA card.
    NvptxCode(NvptxModule),
}

impl fmt::Display for PlironArtifact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvptxCode(module) => formatter.write_str(&module.ir),
        }
    }
}

/// A kernel as PTX.
#[derive(Debug, Clone)]
pub struct NvptxModule {
    /// The text, ending in NUL.
    pub ptx: Vec<c_char>,
    /// The kernel's symbol.
    pub entrypoint: String,
    /// The text before it was lowered.
    pub ir: String,
    /// Bytes of shared memory each launch needs.
    pub shared_memory_size: usize,
    /// What the kernel does with each buffer, in the order of bindings.
    pub io: Vec<BufferIOAttr>,
}

impl Compiler for PlironCompiler {
    type Representation = PlironArtifact;
    type CompilationOptions = PlironOptions;

    fn compile(
        &mut self,
        _: KernelDefinition,
        _: &PlironOptions,
    ) -> Result<PlironArtifact, CompilationError> {
        Err(CompilationError::Generic {
            reason: format!(
                "the LLVM back end ({:?}) is not in this build: enable the feature `cpp` of \
                 `cubecl-cuda`, which compiles kernels with NVRTC",
                self.target
            ),
            backtrace: BackTrace::capture(),
        })
    }

    fn extension(&self) -> &'static str {
        "ll"
    }

    fn lang_tag(&self) -> &'static str {
        "llvm"
    }
}

/// NVIDIA's part of the back end.
pub mod nvptx {
    /// The version of PTX that a driver loads.
    pub mod ptx_version {
        use std::fmt;

        /// Stands for the newest PTX that a driver loads, by the driver's own version: no PTX is
        /// made here, and the caches keyed by it only need it to differ between drivers.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct PtxVersion(i32);

        impl PtxVersion {
            /// For the driver of CUDA `driver`, as `cuDriverGetVersion` reports it (12.8 is 12080).
            pub fn for_driver(driver: i32) -> Option<Self> {
                Some(Self(driver))
            }
        }

        impl fmt::Display for PtxVersion {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "driver{}", self.0)
            }
        }
    }
}

/// What the back end's targets have in common.
pub mod shared {
    /// Which features of a card the back end can make code for.
    pub mod lowered_features {
        use cubecl_ir::DeviceProperties;

        /// What the back end would have made code for.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum GpuTarget {
            /// NVIDIA's virtual instruction set.
            Nvptx,
        }

        /// Leaves `properties` as they are: every kernel is refused, whatever it uses.
        pub fn restrict_features(_properties: &mut DeviceProperties, _target: GpuTarget) {}
    }
}
