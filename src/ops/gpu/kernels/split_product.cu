// C = A·B of fp32 numbers on Hopper's tensor cores: each factor as three bf16 parts, six of their nine products.
//
// C: [M][N] (ld_c) for split z at C + z·M·N. A: [M][K] (COLUMNS = 0) or [K][M] (COLUMNS = 1), B: [N][K] (COLUMNS = 0) or [K][N]
// (COLUMNS = 1), both with rows of ld elements. x = h + m + l, each the rest rounded to bf16, is exact to 2⁻²⁶; left out are
// m·l, l·m and l·l. Tensor cores truncate their sums: 32 of K go into a fresh accumulator, small products first, and it is
// added in fp32 with rounding to nearest. M, N, K and strides are multiples of 4, pointers of 16 bytes.
//
// A persistent block has tiles of 128×128 blockIdx.x, blockIdx.x + G, …, those of a split side by side. Two warpgroups read 64 rows
// of A each from global memory into registers and split them there; another splits B into a ring in shared memory, in pieces
// of 8 rows of 16 bytes. Within 16 of K the order is as vectors of A give it: k = 4·t + 2·h + e lies at 8·h + 2·t + e.
// Headers: tiles.cuh hopper.cuh. Grid min(tiles·splits, SMS), block 384, SHARED_BYTES of dynamic shared memory.
// Bytes: A N/128 times, B M/128 times, mostly from L2. Bound by products: a sixth of the bf16 rate.

#ifndef COLUMNS
#define COLUMNS 0
#endif

struct split_product_sizes {
    int m, n, k, ld_a, ld_b, ld_c;
    int per, splits;  // of K, a multiple of 32, in one of so many splits
};

constexpr int TM = 128, TN = 128, TK = 32, STAGES = 8;
constexpr int HALF = TN * 16, SLICE = 2 * HALF, PART = 2 * SLICE, STAGE = 3 * PART;  // bytes: 8 of K, 16 of K, a part, all
constexpr int SHARED_BYTES = STAGES * STAGE + 128;

// The three parts of a pair of numbers.
__device__ __forceinline__ void split_pair(float a, float b, u32& high, u32& middle, u32& low) {
    high = bf16::pair(a, b);
    a -= __uint_as_float(high << 16), b -= __uint_as_float(high & 0xffff0000u);
    middle = bf16::pair(a, b);
    a -= __uint_as_float(middle << 16), b -= __uint_as_float(middle & 0xffff0000u);
    low = bf16::pair(a, b);
}
__device__ __forceinline__ float4 load4(const float* p, bool there) {
    return there ? __ldg((const float4*)p) : make_float4(0.f, 0.f, 0.f, 0.f);
}
__device__ __forceinline__ float2 load2(const float* p, bool there) {
    return there ? __ldg((const float2*)p) : make_float2(0.f, 0.f);
}

// Where a block is in its work: tile, and range of K.
struct split_product_work {
    int m0, n0, begin, end, split;
    __device__ __forceinline__ split_product_work(const split_product_sizes& s, int index) {
        int tiles_n = (s.n + TN - 1) / TN, tiles = tiles_n * ((s.m + TM - 1) / TM);
        split = index / tiles, index -= split * tiles;
        m0 = index / tiles_n * TM, n0 = index % tiles_n * TN;
        begin = split * s.per, end = min(s.k, begin + s.per);
    }
    static __device__ __forceinline__ int count(const split_product_sizes& s) {
        return (s.n + TN - 1) / TN * ((s.m + TM - 1) / TM) * s.splits;
    }
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// Splits B, 32 of K after 32, into the ring.
__device__ __forceinline__ void produce(const float* __restrict__ b, const split_product_sizes& s, unsigned char* ring, u32 full, u32 empty) {
    int warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31, stage = 0;
    u32 phase = 0;
    for (int index = blockIdx.x; index < split_product_work::count(s); index += gridDim.x) {
        split_product_work work(s, index);
        for (int k0 = work.begin; k0 < work.end; k0 += TK) {
            float4 v[4][2];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                if constexpr (COLUMNS) {  // 8 of N of one of K
                    int k = k0 + (i >> 1) * 16 + (lane >> 1 & 3) * 4 + (i & 1) * 2 + (lane & 1), n = work.n0 + warp * 32 + (lane >> 3) * 8;
                    const float* from = b + (long long)k * s.ld_b + n;
                    v[i][0] = load4(from, k < work.end && n < s.n);
                    v[i][1] = load4(from + 4, k < work.end && n + 4 < s.n);
                } else {  // 8 of K of one of N
                    int k = k0 + (i & 1) * 16 + (lane & 1) * 8, n = work.n0 + warp * 32 + (i >> 1) * 16 + (lane >> 1);
                    const float* from = b + (long long)n * s.ld_b + k;
                    v[i][0] = load4(from, n < s.n && k < work.end);
                    v[i][1] = load4(from + 4, n < s.n && k + 4 < work.end);
                }
            }
            bar_wait(empty + 8 * stage, phase ^ 1);
            unsigned char* to = ring + stage * STAGE;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                u32 part[3][4];
                split_pair(v[i][0].x, v[i][0].y, part[0][0], part[1][0], part[2][0]);
                split_pair(v[i][0].z, v[i][0].w, part[0][1], part[1][1], part[2][1]);
                split_pair(v[i][1].x, v[i][1].y, part[0][2], part[1][2], part[2][2]);
                split_pair(v[i][1].z, v[i][1].w, part[0][3], part[1][3], part[2][3]);
#pragma unroll
                for (int p = 0; p < 3; p++) {
                    if constexpr (COLUMNS) {
                        unsigned char* at = to + p * PART + (i >> 1) * SLICE + (i & 1) * HALF + (warp * 4 + (lane >> 3)) * 128 + (lane & 7) * 16;
                        *(uint4*)at = make_uint4(part[p][0], part[p][1], part[p][2], part[p][3]);
                    } else {
                        unsigned char* at = to + p * PART + (i & 1) * SLICE + (warp * 32 + (i >> 1) * 16 + (lane >> 1)) * 16 + (lane & 1) * 8;
                        *(uint2*)at = make_uint2(part[p][0], part[p][2]);
                        *(uint2*)(at + HALF) = make_uint2(part[p][1], part[p][3]);
                    }
                }
            }
            publish();
            bar_arrive(full + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    }
}

// What a thread has of 32 of K of A: of both its rows, 4 of K side by side in each 16.
struct rows_of_a {
    float v[2][2][4];  // 16 of K, row, number
    __device__ __forceinline__ void load(const float* __restrict__ a, const split_product_sizes& s, const split_product_work& work, int k0, int row,
                                         int lane) {
        int t = lane & 3, g = lane >> 2;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int k = k0 + i * 16 + t * 4;
            if constexpr (COLUMNS) {
                int m = row + 2 * g;
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    float2 f = load2(a + (long long)(k + e) * s.ld_a + m, k + e < work.end && m < s.m);
                    v[i][0][e] = f.x, v[i][1][e] = f.y;
                }
            } else {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int m = row + g + 8 * h;
                    *(float4*)v[i][h] = load4(a + (long long)m * s.ld_a + k, m < s.m && k < work.end);
                }
            }
        }
    }
};

// Goes through a block's tiles, 32 of K after 32.
struct steps_of_block {
    int index, k0;
    split_product_work work;
    __device__ __forceinline__ explicit steps_of_block(const split_product_sizes& s) : index(blockIdx.x), k0(0), work(s, blockIdx.x) { k0 = work.begin; }
    __device__ __forceinline__ bool more(int count) const { return index < count; }
    __device__ __forceinline__ void advance(const split_product_sizes& s) {
        k0 += TK;
        if (k0 < work.end) return;
        index += gridDim.x;
        work = split_product_work(s, index);
        k0 = work.begin;
    }
};

__device__ __forceinline__ void split_rows(u32 (&part)[2][3][4], const rows_of_a& raw) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const float* f = raw.v[i][r & 1] + (r & 2);
            split_pair(f[0], f[1], part[i][0][r], part[i][1][r], part[i][2][r]);
        }
}

__device__ __forceinline__ void consume(const float* __restrict__ a, float* __restrict__ c, const split_product_sizes& s, u32 ring, u32 full, u32 empty) {
    int lane = threadIdx.x & 31, above = (threadIdx.x >> 5) * 16, stage = 0, count = split_product_work::count(s);
    u32 phase = 0, part[2][3][4];
    rows_of_a raw;
    steps_of_block ahead(s);
    auto load = [&]() {
        if (!ahead.more(count)) return;
        raw.load(a, s, ahead.work, ahead.k0, ahead.work.m0 + above, lane);
        ahead.advance(s);
    };
    load();
    for (int index = blockIdx.x; index < count; index += gridDim.x) {
        split_product_work work(s, index);
        float sum[TN / 2] = {};
        for (int k0 = work.begin; k0 < work.end; k0 += TK) {
            split_rows(part, raw);
            load();
            float d[TN / 2] = {};
            bar_wait(full + 8 * stage, phase);
            u64 b = plain_descriptor(ring + stage * STAGE, HALF, 128);
            begin_products();
            constexpr int OF_A[6] = {2, 0, 1, 1, 0, 0}, OF_B[6] = {0, 2, 1, 0, 1, 0};  // the smallest first
#pragma unroll
            for (int p = 0; p < 6; p++)
#pragma unroll
                for (int i = 0; i < 2; i++)
                    product<bf16, TN, 0, COLUMNS>::add(d, part[i][OF_A[p]], b + ((OF_B[p] * PART + i * SLICE) >> 4));
            commit_products();
            wait_products<0>();
            settle(d);
            if (lane == 0) bar_arrive(empty + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
#pragma unroll
            for (int i = 0; i < TN / 2; i++) sum[i] += d[i];
        }
        float* to = c + (long long)work.split * s.m * s.n;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int m = work.m0 + above + (COLUMNS ? 2 * (lane >> 2) + h : (lane >> 2) + 8 * h);
            if (m >= s.m) continue;
#pragma unroll
            for (int j = 0; j < TN / 8; j++) {
                int n = work.n0 + j * 8 + (lane & 3) * 2;
                if (n < s.n) *(float2*)(to + (long long)m * s.ld_c + n) = make_float2(sum[4 * j + 2 * h], sum[4 * j + 2 * h + 1]);
            }
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(384, 1)
split_product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, const __grid_constant__ split_product_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(SHARED_BYTES);
    u32 ring = shared_address(shared), full = ring + STAGES * STAGE, empty = full + 8 * STAGES;
    begin_ring<STAGES>(full, 128, 8);
    if (warpgroup_index() >= 2) {
        fewer_registers<88>();
        produce(b, s, shared, full, empty);
    } else {
        more_registers<208>();
        consume(a, c, s, ring, full, empty);
    }
#endif
}
