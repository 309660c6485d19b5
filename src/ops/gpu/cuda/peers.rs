//! Memory that several cards reach: those of one process, or each of a process of its own.
#![expect(
    unsafe_code,
    reason = "the driver maps memory into several cards by its C interface alone"
)]

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cubecl_server::config::memory::CudaAllocator;
use cubecl_server::config::{CubeClRuntimeConfig, RuntimeConfig};
use cudarc::driver::sys::{
    self, CUdevice, CUipcMem_flags_enum, CUipcMemHandle, CUmemAccess_flags_enum, CUmemAccessDesc,
    CUmemAllocationGranularity_flags_enum, CUmemAllocationProp, CUmemAllocationType_enum,
    CUmemLocation, CUmemLocationType_enum,
};
use cudarc::driver::{CudaContext, DriverError, result};

use crate::parallel::{P2P_DISABLE, is_p2p_disabled};

/// Memory for the exchanges between cards: a part for each, and a word of the host's.
///
/// Each card maps the parts of the others. `cuCtxEnablePeerAccess` would map all that CubeCL allocates, too: the driver would then wait
/// for every card when one of them frees memory, and a card that waits in a kernel for another one would wait for ever. See [`let_reach`].
#[derive(Debug)]
pub(in crate::ops::gpu) struct Peers {
    /// Where each card's part begins.
    addresses: Vec<u64>,
    parts: Vec<Part>,
    /// Not 0 when nobody is to wait any longer: 1 when a card has failed, 2 when one has given up.
    word: Part,
}

/// Memory that one or several cards reach, which is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    address: u64,
    /// That of the card through which it was taken.
    context: Option<Arc<CudaContext>>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Memory of one card that all of them have mapped.
    Mapped { size: usize, handle: sys::CUmemGenericAllocationHandle },
    /// Memory of the host that all cards have mapped, at the same addresses.
    Host,
    /// Memory of this process's card that other processes may open.
    Offered,
    /// What another process has offered, as this process's card reaches it.
    Opened,
}

impl Peers {
    fn new(parts: Vec<Part>, word: Part) -> Self {
        Self { addresses: parts.iter().map(Part::address).collect(), parts, word }
    }

    /// `bytes` zeros for each of the cards `indices`; and what a person should know where these lie in the
    /// host's memory.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub(in crate::ops::gpu) fn open(
        indices: &[usize],
        bytes: usize,
    ) -> Result<(Self, Option<String>), String> {
        let opened = indices.iter().map(|index| CudaContext::new(*index));
        let contexts: Vec<_> = opened.collect::<Result<_, _>>().map_err(|error| told(&error))?;
        contexts[0].bind_to_thread().map_err(|error| told(&error))?;
        let word = Part::host(mem::size_of::<u32>()).map_err(|error| told(&error))?;
        let cards: Vec<_> =
            contexts.iter().map(|card| (card.ordinal(), card.cu_device())).collect();
        let mapped = reach_each_other(&cards).and_then(|()| {
            let parts = contexts.iter().map(|context| Part::mapped(context, &contexts, bytes));
            parts.collect::<Result<Vec<_>, _>>().map_err(|error| told(&error))
        });
        match mapped {
            Ok(parts) => Ok((Self::new(parts, word), None)),
            Err(reason) => {
                let parts = indices.iter().map(|_| Part::host(bytes));
                let parts = parts.collect::<Result<_, _>>().map_err(|error| told(&error))?;
                let warning = format!(
                    "the cards cannot write into each other's memory ({reason}); what they send each \
                     other goes through the host's, which is slower"
                );
                Ok((Self::new(parts, word), Some(warning)))
            }
        }
    }

    /// Those of a process that has `offered` its part as rank `rank`; `handles` are what all have offered.
    ///
    /// # Errors
    ///
    /// What the driver says where it does not open another part.
    pub(in crate::ops::gpu) fn of_process(
        offered: Offered,
        rank: usize,
        handles: &[Vec<u8>],
    ) -> Result<Self, String> {
        let Offered { part: own, context, .. } = offered;
        context.bind_to_thread().map_err(|error| told(&error))?;
        let word = Part::host(mem::size_of::<u32>()).map_err(|error| told(&error))?;
        let mut own = Some(own);
        let part = |(other, handle): (usize, &Vec<u8>)| match own.take_if(|_| other == rank) {
            Some(own) => Ok(own),
            None => Part::opened(&context, handle).map_err(|error| {
                format!("the memory of rank {other}'s card cannot be opened: {error}")
            }),
        };
        let parts = handles.iter().enumerate().map(part).collect::<Result<_, _>>()?;
        Ok(Self::new(parts, word))
    }

    /// Those of rank `rank` of `ranks` processes that reach no memory of each other's: card `index` writes what
    /// is for the others into one part in the host's memory, and reads what they give it from another.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub(in crate::ops::gpu) fn apart(
        index: usize,
        [rank, ranks]: [usize; 2],
        bytes: usize,
    ) -> Result<Self, String> {
        let open = || {
            CudaContext::new(index)?.bind_to_thread()?;
            Ok([Part::host(bytes)?, Part::host(bytes)?, Part::host(mem::size_of::<u32>())?])
        };
        let [inbox, outbox, word] = open().map_err(|error: DriverError| told(&error))?;
        let mut addresses = vec![outbox.address; ranks];
        addresses[rank] = inbox.address;
        Ok(Self { addresses, parts: vec![inbox, outbox], word })
    }

    /// Where each card's part begins.
    pub(in crate::ops::gpu) fn addresses(&self) -> Vec<u64> {
        self.addresses.clone()
    }

    /// 64-bit word number `at` of card `card`'s part, which lies in the host's memory.
    pub(super) fn word_of(&self, card: usize, at: usize) -> &AtomicU64 {
        // SAFETY: whoever asks knows that the part is the host's and has so many words; it lives as long as this
        // does, and cards write it by whole words.
        unsafe { AtomicU64::from_ptr((self.addresses[card] as *mut u64).add(at)) }
    }

    /// Whether a card has failed.
    pub(in crate::ops::gpu) fn is_stopped(&self) -> bool {
        self.value().load(Ordering::SeqCst) == 1
    }

    /// Whether nobody is to wait any longer.
    pub(in crate::ops::gpu) fn is_over(&self) -> bool {
        self.value().load(Ordering::SeqCst) != 0
    }

    /// Where the word is.
    pub(in crate::ops::gpu) fn word(&self) -> u64 {
        self.word.address
    }

    /// Ends all waiting.
    pub(in crate::ops::gpu) fn stop(&self) {
        self.value().store(1, Ordering::SeqCst);
    }

    /// Lets cards wait again; whether one had given up.
    pub(in crate::ops::gpu) fn clear(&self) -> bool {
        self.value().swap(0, Ordering::SeqCst) == 2
    }

    fn value(&self) -> &AtomicU32 {
        // SAFETY: the host's memory lives as long as this does and is aligned to a page; cards write it
        // by whole words.
        unsafe { AtomicU32::from_ptr(self.word.address as *mut u32) }
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Kernels of all cards use the parts of all.
        self.stop();
        for context in self.parts.iter().filter_map(|part| part.context.as_ref()) {
            let _ = context.synchronize();
        }
    }
}

fn told(error: &DriverError) -> String {
    error.to_string()
}

/// Whether each card can map the memory of every other one.
fn reach_each_other(cards: &[(usize, CUdevice)]) -> Result<(), String> {
    if std::env::var(P2P_DISABLE).is_ok_and(|value| is_p2p_disabled(&value)) {
        return Err(format!("{P2P_DISABLE} is set"));
    }
    for (one, card) in cards {
        for (other, other_card) in cards.iter().filter(|(other, _)| other != one) {
            let mut can = 0;
            // SAFETY: `can` outlives the call; both devices are the driver's.
            let asked = unsafe { sys::cuDeviceCanAccessPeer(&mut can, *card, *other_card) };
            asked.result().map_err(|error| told(&error))?;
            if can == 0 {
                return Err(format!("card {one} does not reach card {other}"));
            }
        }
    }
    Ok(())
}

/// Whether some of the cards `indices` cannot map the memory of another one. Opens none of them.
pub fn are_apart(indices: &[usize]) -> bool {
    let card = |index: &usize| Ok((*index, result::device::get(*index as i32)?));
    let cards = || {
        result::init()?;
        indices.iter().map(card).collect::<Result<Vec<_>, DriverError>>()
    };
    cards().is_ok_and(|cards| reach_each_other(&cards).is_err())
}

/// Lets card `by` write into the memory that CubeCL takes on card `owner`, before and after. CubeCL must take it in the order of its streams,
/// from the driver's pool: no card then waits when some of that memory is taken or freed, even while one of them waits in a kernel
/// (`benches/results/2026-11-28-h200x2-landing.log`).
///
/// # Errors
///
/// When CubeCL takes memory otherwise, and what the driver says.
pub(in crate::ops::gpu) fn let_reach(owner: usize, by: usize) -> Result<(), String> {
    if CubeClRuntimeConfig::get().memory.cuda.allocator != CudaAllocator::Async {
        return Err("`allocator` under [memory.cuda] of cubecl.toml is not \"async\"".to_owned());
    }
    let reach = || {
        let [owner, by] = [CudaContext::new(owner)?, CudaContext::new(by)?];
        let mut pool = ptr::null_mut();
        // SAFETY: `pool` outlives the call.
        unsafe { sys::cuDeviceGetMemPool(&mut pool, owner.cu_device()) }.result()?;
        let access = access(by.cu_device());
        // SAFETY: the pool is the device's; `access` outlives the call.
        unsafe { sys::cuMemPoolSetAccess(pool, &access, 1) }.result()
    };
    reach().map_err(|error: DriverError| told(&error))
}

impl Part {
    /// `bytes` zeros of the card of `context` that `all` have mapped.
    fn mapped(
        context: &Arc<CudaContext>,
        all: &[Arc<CudaContext>],
        bytes: usize,
    ) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        // SAFETY: all fields may be zero; those that may not are set.
        let mut wanted: CUmemAllocationProp = unsafe { mem::zeroed() };
        wanted.type_ = CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED;
        wanted.location = location(context.cu_device());
        let mut step = 0;
        let kind = CUmemAllocationGranularity_flags_enum::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: both pointers outlive the call.
        unsafe { sys::cuMemGetAllocationGranularity(&mut step, &wanted, kind) }.result()?;
        let size = bytes.next_multiple_of(step.max(1));
        let (mut handle, mut address) = (0, 0);
        // SAFETY: as above.
        unsafe { sys::cuMemCreate(&mut handle, size, &wanted, 0) }.result()?;
        // SAFETY: as above; any address does.
        let reserved = unsafe { sys::cuMemAddressReserve(&mut address, size, 0, 0, 0) };
        if let Err(error) = reserved.result() {
            // SAFETY: it was created above and is mapped nowhere.
            let _ = unsafe { sys::cuMemRelease(handle) };
            return Err(error);
        }
        // From here on it is given back when it is dropped.
        let kind = Kind::Mapped { size, handle };
        let mapped = Self { address, context: Some(Arc::clone(context)), kind };
        // SAFETY: the addresses are reserved and free, and as many as the memory has bytes.
        unsafe { sys::cuMemMap(address, size, 0, handle, 0) }.result()?;
        let access: Vec<CUmemAccessDesc> =
            all.iter().map(|card| access(card.cu_device())).collect();
        // SAFETY: the addresses are mapped; `access` outlives the call.
        unsafe { sys::cuMemSetAccess(address, size, access.as_ptr(), access.len()) }.result()?;
        // SAFETY: all of it is mapped for this card.
        unsafe { result::memset_d8_sync(address, 0, size) }?;
        context.synchronize()?;
        Ok(mapped)
    }

    /// What another process has offered, of which this is the `handle`, for the card of `context`, which is current.
    fn opened(context: &Arc<CudaContext>, handle: &[u8]) -> Result<Self, String> {
        let mut opaque = CUipcMemHandle { reserved: [0; 64] };
        if handle.len() != opaque.reserved.len() {
            return Err("it was not offered".to_owned());
        }
        for (to, from) in opaque.reserved.iter_mut().zip(handle) {
            *to = *from as _;
        }
        let flags = CUipcMem_flags_enum::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32;
        let mut address = 0;
        // SAFETY: a context is current, and `address` outlives the call.
        let opened = unsafe { sys::cuIpcOpenMemHandle_v2(&mut address, opaque, flags) };
        opened.result().map_err(|error| told(&error))?;
        Ok(Self { address, context: Some(Arc::clone(context)), kind: Kind::Opened })
    }

    /// `bytes` zeros of the host. A context must be current.
    pub(super) fn host(bytes: usize) -> Result<Self, DriverError> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: a context is current.
        let memory: *mut c_void = unsafe { result::malloc_host(bytes, flags) }?;
        // SAFETY: it has so many bytes.
        unsafe { ptr::write_bytes(memory.cast::<u8>(), 0, bytes) };
        Ok(Self { address: memory as u64, context: None, kind: Kind::Host })
    }

    /// Where it begins, for all that reach it.
    pub(super) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let address = self.address;
        // What fails here leaves memory behind, and no more.
        let _ = self.context.as_ref().map(|context| context.bind_to_thread());
        match self.kind {
            // SAFETY: nothing runs that uses the memory, and nobody has the addresses after this.
            Kind::Mapped { size, handle } => unsafe {
                let _ = sys::cuMemUnmap(address, size);
                let _ = sys::cuMemAddressFree(address, size);
                let _ = sys::cuMemRelease(handle);
            },
            // SAFETY: it was allocated by `malloc_host`, and nobody has its address after this.
            Kind::Host => drop(unsafe { result::free_host(address as *mut c_void) }),
            // SAFETY: nothing of this process uses it after this.
            Kind::Offered => drop(unsafe { result::free_sync(address) }),
            // SAFETY: no kernel uses it after this.
            Kind::Opened => drop(unsafe { sys::cuIpcCloseMemHandle(address) }),
        }
    }
}

/// Memory of this process's card that other processes may open.
#[derive(Debug)]
pub struct Offered {
    part: Part,
    context: Arc<CudaContext>,
    handle: Vec<u8>,
}

impl Offered {
    /// `bytes` zeros on card `index`.
    pub(in crate::ops::gpu) fn new(index: usize, bytes: usize) -> Result<Self, String> {
        // The driver shares whole pages: nothing else lies in these.
        const PAGE: usize = 2 << 20;
        let bytes = bytes.next_multiple_of(PAGE);
        let open = || {
            let context = CudaContext::new(index)?;
            context.bind_to_thread()?;
            // SAFETY: the context is current.
            let address = unsafe { result::malloc_sync(bytes) }?;
            // From here on it is given back when it is dropped.
            let part = Part { address, context: Some(Arc::clone(&context)), kind: Kind::Offered };
            // SAFETY: it has so many bytes.
            unsafe { result::memset_d8_sync(address, 0, bytes) }?;
            context.synchronize()?;
            let mut handle = CUipcMemHandle { reserved: [0; 64] };
            // SAFETY: `handle` outlives the call.
            unsafe { sys::cuIpcGetMemHandle(&mut handle, address) }.result()?;
            let handle = handle.reserved.iter().map(|byte| *byte as u8).collect();
            Ok(Self { part, context, handle })
        };
        open().map_err(|error: DriverError| told(&error))
    }

    /// What another process opens it by.
    pub fn handle(&self) -> &[u8] {
        &self.handle
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    // SAFETY: all fields may be zero.
    let mut location: CUmemLocation = unsafe { mem::zeroed() };
    location.type_ = CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE;
    // The number lies behind the type; since CUDA 13.2 the bindings have it in a union.
    let fields = ptr::from_mut(&mut location).cast::<i32>();
    // SAFETY: the structure has two fields of 32 bits.
    unsafe { fields.add(1).write(device) };
    location
}

fn access(device: CUdevice) -> CUmemAccessDesc {
    // SAFETY: all fields may be zero.
    let mut access: CUmemAccessDesc = unsafe { mem::zeroed() };
    access.location = location(device);
    access.flags = CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    access
}
