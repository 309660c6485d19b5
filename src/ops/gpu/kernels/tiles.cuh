// Element types and what tensor cores need of them. The macro ELEMENT names the type: bf16, f16, tf32 or f32.
//
// A multiplication step takes 32 bytes of the common dimension: 16 elements of bf16 or f16 (mma m16n8k16), 8 of tf32 or
// f32 (mma m16n8k8). Sums are fp32. f32 splits each factor into two TF32 parts and adds three products, each step in a
// fresh accumulator that is then added in fp32 with rounding to nearest, because tensor cores truncate their sums.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned int u32;
typedef unsigned long long u64;

// PER_IMAGE = 1: norms are taken over each image by itself (GroupNorm). The launch has a third dimension, the images; sizes are those
// of one image, and vectors over channels, partial sums and workspaces lie one image behind another. OF_IMAGE moves a pointer to the
// block's image, where an image has `length` elements, and NORM_OF_IMAGE all that a norm has of each channel. Kernels that read `gamma`
// are then given `scale` in its place, and what is missing from S is s1/m + x·s2/m. The moved pointers take registers: where they
// spilled before Hopper, fewer blocks share a multiprocessor there.
#if PER_IMAGE
#define OF_IMAGE(pointer, length) (pointer) += (long long)blockIdx.z * (length)
constexpr bool EACH_IMAGE = true;
#else
#define OF_IMAGE(pointer, length)
constexpr bool EACH_IMAGE = false;
#endif
#define NORM_OF_IMAGE(channels) \
    OF_IMAGE(mean, channels);   \
    OF_IMAGE(rstd, channels);   \
    OF_IMAGE(scale, channels);  \
    OF_IMAGE(shift, channels);  \
    OF_IMAGE(gamma, channels)

__device__ __forceinline__ float max_nan(float a, float b) {  // NaN stays NaN, so that a broken step is seen
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

struct bf16 {
    typedef __nv_bfloat16 storage;
    static constexpr int parts = 1;
    static __device__ __forceinline__ void unpack(const uint4& v, float* f) {
        const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            f[2 * i] = __uint_as_float(w[i] << 16);
            f[2 * i + 1] = __uint_as_float(w[i] & 0xffff0000u);
        }
    }
    static __device__ __forceinline__ u32 pair(float a, float b) {
        __nv_bfloat162 h = __floats2bfloat162_rn(a, b);
        return *(u32*)&h;
    }
    static __device__ __forceinline__ uint4 pack(const float* f) {
        return make_uint4(pair(f[0], f[1]), pair(f[2], f[3]), pair(f[4], f[5]), pair(f[6], f[7]));
    }
    static __device__ __forceinline__ float to_float(storage v) { return __bfloat162float(v); }
    static __device__ __forceinline__ storage from_float(float v) { return __float2bfloat16(v); }
    static __device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    static constexpr u32 one = 0x3f803f80u;
};

struct f16 {
    typedef __half storage;
    static constexpr int parts = 1;
    static __device__ __forceinline__ void unpack(const uint4& v, float* f) {
        const u32 w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 p = __half22float2(*(const __half2*)&w[i]);
            f[2 * i] = p.x;
            f[2 * i + 1] = p.y;
        }
    }
    static __device__ __forceinline__ u32 pair(float a, float b) {
        __half2 h = __floats2half2_rn(a, b);
        return *(u32*)&h;
    }
    static __device__ __forceinline__ uint4 pack(const float* f) {
        return make_uint4(pair(f[0], f[1]), pair(f[2], f[3]), pair(f[4], f[5]), pair(f[6], f[7]));
    }
    static __device__ __forceinline__ float to_float(storage v) { return __half2float(v); }
    static __device__ __forceinline__ storage from_float(float v) { return __float2half(v); }
    static __device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    static constexpr u32 one = 0x3c003c00u;
};

struct single {  // fp32 storage, whatever it is multiplied in
    typedef float storage;
    static __device__ __forceinline__ void unpack(const uint4& v, float* f) {
        f[0] = __uint_as_float(v.x);
        f[1] = __uint_as_float(v.y);
        f[2] = __uint_as_float(v.z);
        f[3] = __uint_as_float(v.w);
    }
    static __device__ __forceinline__ uint4 pack(const float* f) {
        return make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3]));
    }
    static __device__ __forceinline__ u32 pair(float a, float) { return __float_as_uint(a); }  // for code of 2-byte types only
    static __device__ __forceinline__ float to_float(float v) { return v; }
    static __device__ __forceinline__ float from_float(float v) { return v; }
    // v rounded to the nearest TF32 number in its upper 19 bits, which are all that tensor cores read. One instruction on Hopper,
    // where cvt.rna.tf32 takes two to four. A NaN as arithmetic makes it (0x7fffffff) stays: the sum would be a negative integer.
    static __device__ __forceinline__ u32 round(u32 v) { return (u32)max((int)(v + 0x1000u), (int)v); }
    static __device__ __forceinline__ void mma(float* c, const u32* a, const u32* b) {
        asm volatile(
            "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    }
    static constexpr u32 one = 0x3f800000u;
};

struct tf32 : single {
    static constexpr int parts = 1;
};
struct f32 : single {
    static constexpr int parts = 2;
};

typedef ELEMENT element;
typedef element::storage E;

constexpr int V = 16 / sizeof(E);          // elements in 16 bytes
[[maybe_unused]] constexpr int STEP = 32 / sizeof(E);       // elements of the common dimension in one multiplication step
[[maybe_unused]] constexpr bool WIDE = sizeof(E) == 4;

// A factor's registers as the tensor core takes them.
template <int N>
struct factor {
    u32 part[element::parts][N];
    __device__ __forceinline__ void set(const u32* raw) {
#pragma unroll
        for (int i = 0; i < N; i++) {
            if constexpr (element::parts == 2) {
                // The rest has at most 12 bits: what tensor cores leave out of it is below half a unit of fp32.
                u32 high = single::round(raw[i]) & 0xffffe000u;
                part[0][i] = high;
                part[element::parts - 1][i] = __float_as_uint(__uint_as_float(raw[i]) - __uint_as_float(high));
            } else if constexpr (WIDE) {
                part[0][i] = single::round(raw[i]);
            } else {
                part[0][i] = raw[i];
            }
        }
    }
};

__device__ __forceinline__ void multiply(float* c, const factor<4>& a, const factor<2>& b) {
    if constexpr (element::parts == 2) {
        float d[4] = {0.f, 0.f, 0.f, 0.f};
        element::mma(d, a.part[element::parts - 1], b.part[0]);
        element::mma(d, a.part[0], b.part[element::parts - 1]);
        element::mma(d, a.part[0], b.part[0]);
#pragma unroll
        for (int i = 0; i < 4; i++) c[i] += d[i];
    } else {
        element::mma(c, a.part[0], b.part[0]);
    }
}

// Values as they are once stored.
__device__ __forceinline__ float stored(float v) { return element::to_float(element::from_float(v)); }

__device__ __forceinline__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void load_matrices(u32* r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
__device__ __forceinline__ void load_matrices_transposed(u32* r, u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address));
}
__device__ __forceinline__ u32 load_word(u32 address) {
    u32 r;
    asm volatile("ld.shared.b32 %0,[%1];" : "=r"(r) : "r"(address));
    return r;
}

// 16 bytes from global to shared memory in the background; zeros when not `valid`, told by a predicate, since ptxas makes five
// instructions of a number of bytes.
__device__ __forceinline__ void copy_async(u32 shared, const void* global, bool valid) {
    asm volatile("{.reg .pred none; setp.eq.u32 none,%2,0; cp.async.cg.shared.global [%0],[%1],16,none;}" ::"r"(shared),
                 "l"(global), "r"((u32)valid));
}
// The same of BYTES, 4 or 8.
template <int BYTES>
__device__ __forceinline__ void copy_few_async(u32 shared, const void* global, bool valid) {
    asm volatile("{.reg .pred none; setp.eq.u32 none,%2,0; cp.async.ca.shared.global [%0],[%1],%3,none;}" ::"r"(shared),
                 "l"(global), "r"((u32)valid), "n"(BYTES));
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;"); }
template <int N>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

__device__ __forceinline__ uint4 load_vector(const E* p) { return __ldg((const uint4*)p); }
__device__ __forceinline__ void store_vector(E* p, const uint4& v) { *(uint4*)p = v; }

// Sets every number of an array to 0.
__device__ __forceinline__ void clear(float& number) { number = 0.f; }
template <class T, int N>
__device__ __forceinline__ void clear(T (&all)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) clear(all[i]);
}

// V floats of a channel vector.
__device__ __forceinline__ void load_floats(const float* p, float* f) {
#pragma unroll
    for (int i = 0; i < V; i += 4) *(float4*)(f + i) = __ldg((const float4*)(p + i));
}

// Division of numbers below 2^31 by one that is fixed in a launch.
struct divider {
    u64 inverse;
    u32 by;
    __device__ __forceinline__ explicit divider(u32 d) : inverse((1ull << 63) / d + 1), by(d) {}
    __device__ __forceinline__ u32 quotient(u32 n) const { return (u32)__umul64hi((u64)n << 1, inverse); }
};

// c += a·b of a warpgroup: 64 rows, N columns, 16 of K. TA, TB: 0 for K-major, 1 for MN-major. `a` as a descriptor, or (K-major) the
// thread's four registers: the wait for such products stands in the same turn of a loop as they do, else the compiler (CUDA 13.0)
// takes the registers for free and overwrites them while they are read. c[N/2]: lane has
// rows warp·16 + lane/4 (+ 8: h), columns 8·j + 2·(lane % 4) + e at c[4·j + 2·h + e].
template <class T, int N, int TA, int TB>
struct product;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// The N/2 sums as the first operands: their numbers, and what they are.
#define SUM_NUMBERS_32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define SUM_NUMBERS_64 SUM_NUMBERS_32 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define SUM_NUMBERS_96 SUM_NUMBERS_64 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define SUM_NUMBERS_128 SUM_NUMBERS_96 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define FOUR_SUMS(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SUMS_32 FOUR_SUMS(0), FOUR_SUMS(4), FOUR_SUMS(8), FOUR_SUMS(12)
#define SUMS_64 SUMS_32, FOUR_SUMS(16), FOUR_SUMS(20), FOUR_SUMS(24), FOUR_SUMS(28)
#define SUMS_96 SUMS_64, FOUR_SUMS(32), FOUR_SUMS(36), FOUR_SUMS(40), FOUR_SUMS(44)
#define SUMS_128 SUMS_96, FOUR_SUMS(48), FOUR_SUMS(52), FOUR_SUMS(56), FOUR_SUMS(60)
// i0 to i5: numbers of the operands behind the sums.
#define WARPGROUP_PRODUCT(T, N, i0, i1, i2, i3, i4, i5)                                                                        \
    template <int TA, int TB>                                                                                                  \
    struct product<T, N, TA, TB> {                                                                                             \
        static __device__ __forceinline__ void add(float* c, u64 a, u64 b) {                                                   \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" SUM_NUMBERS_##N "},%" #i0 ",%" #i1   \
                         ",1,1,1,%" #i2 ",%" #i3 ";"                                                                           \
                         : SUMS_##N                                                                                            \
                         : "l"(a), "l"(b), "n"(TA), "n"(TB));                                                                  \
        }                                                                                                                      \
        static __device__ __forceinline__ void add(float* c, const u32* a, u64 b) {                                            \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #T "." #T " {" SUM_NUMBERS_##N "},{%" #i0 ",%" #i1  \
                         ",%" #i2 ",%" #i3 "},%" #i4 ",1,1,1,%" #i5 ";"                                                        \
                         : SUMS_##N                                                                                            \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TB));                                       \
        }                                                                                                                      \
    };
#define WARPGROUP_PRODUCTS(N, ...) WARPGROUP_PRODUCT(bf16, N, __VA_ARGS__) WARPGROUP_PRODUCT(f16, N, __VA_ARGS__)
WARPGROUP_PRODUCTS(32, 16, 17, 18, 19, 20, 21)
WARPGROUP_PRODUCTS(64, 32, 33, 34, 35, 36, 37)
WARPGROUP_PRODUCTS(96, 48, 49, 50, 51, 52, 53)
WARPGROUP_PRODUCTS(128, 64, 65, 66, 67, 68, 69)
#endif
