//! Kernels compiled before they are launched: many at once, and kept for later processes.
//!
//! CubeCL compiles a kernel when it is first launched, one after another, and hands PTX to the driver,
//! which compiles it a second time. So the kernels of a model are found out first, by a dry run of its
//! stages ([`DryGpu::kernels`](super::super::DryGpu::kernels)). [`Compiler::compile`] makes machine code
//! of them on all threads, or takes what the program was built with or an earlier process has made, and
//! puts it into CubeCL's own cache, where the launch finds it. What is not found there, CubeCL compiles as ever.
//! Kernels that Burn generates are not known before they are launched: [`generated`] hands over what is shipped of them.

mod folder;
mod generated;
mod nvrtc;

use std::ffi::c_char;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;

use burn_cubecl::cubecl::ir::attributes::BufferIOAttr;
use cubecl_cuda::install::{cccl_include_path, cuda_path, include_path};
use cubecl_server::compiler::{KernelCacheKey, build_id_hash, compilation_store};
use cubecl_server::config::cache::CacheConfig;
use cudarc::driver::CudaContext;
use serde::{Deserialize, Serialize};

use crate::ops::gpu::gpu::lock;
use crate::ops::gpu::shipped::Shipped;
use crate::ops::gpu::{Gpu, Kernel};
use folder::Folder;
pub use generated::hand_over_generated;

/// Compiles for one kind of GPU.
#[derive(Debug)]
pub struct Compiler {
    capability: (i32, i32),
    options: Vec<String>,
    folder: Folder,
    /// What the program was built with for such a GPU.
    shipped: Option<Shipped>,
}

/// CubeCL's `PtxCacheEntry`, whose fields are private: what it reads, the driver loads, and that takes
/// machine code as well as PTX.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    entrypoint_name: String,
    shared_mem_bytes: usize,
    ptx: Vec<c_char>,
    /// What the kernel does with each buffer that it is given.
    #[serde(default)]
    io: Option<Vec<BufferIOAttr>>,
}

impl Entry {
    fn new(
        entrypoint_name: String,
        shared_mem_bytes: usize,
        code: Vec<u8>,
        io: Option<Vec<BufferIOAttr>>,
    ) -> Self {
        let ptx = code.into_iter().map(|byte| byte as c_char).collect();
        Self { entrypoint_name, shared_mem_bytes, ptx, io }
    }
}

/// What CubeCL tells code for cards of this compute capability from other code by.
fn fingerprint((major, minor): (i32, i32)) -> String {
    format!("ptx_sm{}-cpp", 10 * major + minor)
}

impl Compiler {
    /// A compiler for `gpu`; `None` where the driver or the CUDA headers do not answer.
    pub fn new(gpu: &Gpu) -> Option<Self> {
        let context = CudaContext::new(gpu.index()).ok()?;
        let capability = context.compute_capability().ok()?;
        let compiler = Self::for_capability(capability)?;
        let shipped = Shipped::open(capability, &nvrtc::version());
        Some(Self { shipped, ..compiler })
    }

    /// A compiler for GPUs of this compute capability; `None` where there are no CUDA headers.
    pub fn for_capability(capability: (i32, i32)) -> Option<Self> {
        cuda_path()?;
        let (major, minor) = capability;
        // As CubeCL has them.
        let special = if major >= 9 { "a" } else { "" };
        let mut options = vec![
            format!("--gpu-architecture=sm_{major}{minor}{special}"),
            format!("--include-path={}", include_path().display()),
            "-lineinfo".to_owned(),
        ];
        let cccl = cccl_include_path();
        if cccl.exists() {
            options.push(format!("--include-path={}", cccl.display()));
        }
        let folder = CacheConfig::Global.root().with_file_name("trainer").join("kernels");
        Some(Self { capability, options, folder: Folder(folder), shipped: None })
    }

    /// Whether it compiles for Hopper.
    pub(in crate::ops::gpu) fn is_for_hopper(&self) -> bool {
        self.capability == (9, 0)
    }

    /// The same with its files in `folder`.
    pub fn with_folder(self, folder: impl Into<std::path::PathBuf>) -> Self {
        Self { folder: Folder(folder.into()), ..self }
    }

    /// Makes `kernels` ready to be launched. `progress` is told how many of how many are compiled,
    /// beginning with 0; it is not called where all are there already. Returns how many it
    /// compiled. A kernel that cannot be compiled is left for its launch to complain of.
    pub fn compile(&self, kernels: &[Kernel], mut progress: impl FnMut(usize, usize)) -> usize {
        let version = nvrtc::version();
        let options = self.options.join("\n");
        let name = |kernel: &Kernel| Folder::name(&[kernel.text(), &options, &version]);
        let names: Vec<String> = kernels.iter().map(name).collect();
        let mut shipped = self.shipped.clone();
        let mut known = |kernel: &Kernel, name: &str| {
            let shipped = shipped.as_mut().and_then(|shipped| shipped.read(kernel));
            shipped.or_else(|| self.folder.read(name))
        };
        let mut codes: Vec<Option<Vec<u8>>> =
            kernels.iter().zip(&names).map(|(kernel, name)| known(kernel, name)).collect();
        let mut missing: Vec<usize> =
            (0..kernels.len()).filter(|place| codes[*place].is_none()).collect();
        // The longest first, so that no thread ends with one while the others have none.
        missing.sort_by_key(|place| std::cmp::Reverse(kernels[*place].text().len()));
        if !missing.is_empty() {
            progress(0, missing.len());
        }
        let next = AtomicUsize::new(0);
        let (sender, receiver) = mpsc::channel();
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, NonZero::get);
            for _ in 0..threads.min(missing.len()) {
                let (sender, next, missing) = (sender.clone(), &next, &missing);
                scope.spawn(move || {
                    while let Some(place) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let code = nvrtc::compile(kernels[*place].text(), &self.options).ok();
                        let _ = sender.send((*place, code));
                    }
                });
            }
            drop(sender);
            for (done, (place, code)) in receiver.iter().enumerate() {
                if let Some(code) = &code {
                    self.folder.write(&names[place], code);
                }
                codes[place] = code;
                progress(done + 1, missing.len());
            }
        });
        self.hand_over(kernels, codes);
        missing.len()
    }

    /// Puts machine code where CubeCL looks for it; what is there already and is another is replaced.
    fn hand_over(&self, kernels: &[Kernel], codes: Vec<Option<Vec<u8>>>) {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = lock(&ONE);
        let fingerprint = fingerprint(self.capability);
        let Some(mut store) = compilation_store::<KernelCacheKey, Entry>("cuda", fingerprint)
        else {
            return;
        };
        let build = build_id_hash();
        for (kernel, code) in kernels.iter().zip(codes) {
            let Some(code) = code else { continue };
            let _ = kernel.0.ready.set(());
            let key = KernelCacheKey::new(kernel.id(), build);
            let entry = Entry::new(kernel.entry().to_owned(), kernel.shared() as usize, code, None);
            if store.remove(&key).as_ref() != Some(&entry) {
                store.purge_key(&key);
                let _ = store.insert(key, entry);
            }
        }
    }

    /// Whether CubeCL finds the machine code that [`Compiler::compile`] makes: not where its cache is
    /// switched off or cannot be written.
    pub(in crate::ops::gpu) fn is_heard(&self) -> bool {
        let probe = Kernel::probe();
        self.compile(std::slice::from_ref(&probe), |_, _| {});
        self.is_ready(&probe)
    }

    /// Whether CubeCL would find the machine code of `kernel`.
    pub fn is_ready(&self, kernel: &Kernel) -> bool {
        let fingerprint = fingerprint(self.capability);
        let store = compilation_store::<KernelCacheKey, Entry>("cuda", fingerprint);
        let key = KernelCacheKey::new(kernel.id(), build_id_hash());
        store.is_some_and(|mut store| store.remove(&key).is_some())
    }
}
