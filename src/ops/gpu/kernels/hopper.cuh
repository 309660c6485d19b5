// What kernels for Hopper (sm_90a) share: barriers in shared memory, when products of warpgroups begin and end, registers moved between warpgroups.
//
// Only 2-byte elements. Sums are fp32. A kernel with this header is launched on a card of compute capability 9.0 alone; for any
// other it compiles to nothing.

// A barrier in shared memory that `count` threads arrive at (and, with `bar_expect`, so many bytes of copies).
__device__ __forceinline__ void bar_init(u32 bar, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void bar_arrive(u32 bar) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void bar_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// A thread's copies begun with `copy_async` arrive at the barrier when they have landed; counts as one of its arrivals.
__device__ __forceinline__ void bar_arrive_after_copies(u32 bar) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void bar_wait(u32 bar, u32 parity) {
    asm volatile(
        "{ .reg .pred p; W: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra D; bra W; D: }" ::"r"(bar), "r"(parity)
        : "memory");
}
// `bytes` (a multiple of 16) from global to shared memory by the copy engine; `bar` is told of them.
__device__ __forceinline__ void bulk_copy(u32 shared, const void* global, u32 bytes, u32 bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
                 "l"(global), "r"(bytes), "r"(bar)
                 : "memory");
}
// What a thread has written to shared memory is seen by products and copies that begin after this.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Begins a ring of STAGES stages, by all threads of a block: from `full` on a barrier for each that `writers` threads arrive at when it
// is written, and behind these one that `readers` arrive at when it has been read.
template <int STAGES>
__device__ __forceinline__ void begin_ring(u32 full, int writers, int readers) {
    if (threadIdx.x < STAGES) {
        bar_init(full + 8 * threadIdx.x, writers);
        bar_init(full + 8 * (STAGES + threadIdx.x), readers);
    }
    publish();
    __syncthreads();
}

// A matrix in shared memory without swizzle, in pieces of 8 rows of 16 bytes (128 bytes side by side). K-major: `lead` bytes from 8
// elements of K to the next 8, `stride` from 8 rows to the next 8. MN-major: `lead` bytes from 8 elements of K to the next, `stride`
// from 8 of M or N to the next.
__device__ __forceinline__ u64 plain_descriptor(u32 address, u32 lead, u32 stride) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(lead >> 4) << 16 | (u64)(stride >> 4) << 32;
}

// A kernel that was launched with less shared memory than it asked for must not go on.
__device__ __forceinline__ void require_shared(u32 bytes) {
    u32 given;
    asm volatile("mov.u32 %0, %dynamic_smem_size;" : "=r"(given));
    if (given < bytes) asm volatile("trap;");
}

template <int N>
__device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N>
__device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }

// Which of the block's warpgroups this is, as a value that the compiler knows to be the same in all lanes (`setmaxnreg` wants that).
__device__ __forceinline__ int warpgroup_index() { return __shfl_sync(~0u, threadIdx.x >> 7, 0); }

// Accumulators must not be touched between these two but by products.
template <int N>
__device__ __forceinline__ void settle(float (&c)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(c[i])::"memory");
}
__device__ __forceinline__ void begin_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void wait_products() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
