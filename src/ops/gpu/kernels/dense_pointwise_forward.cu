// z[p, o] = Σ_c relu(scale[c]·x[p, c] + shift[c])·w[o, c]: norm, ReLU and 1×1 convolution to 128 outputs, for Hopper.
//
// x: [P, C] (ld_x), packed: `pack_weights` mode 3, z: [P, 128] (ld_z); part (when statistics = 1): statistics of z as stored, a row
// for each block, and UNTOLD behind them. Where norm.rows is not 0, scale and shift are made first, of what the kernel before left of
// the last channels of x (channel_norm.cuh), while the first tiles are on their way. Headers: tiles.cuh channels.cuh exchange.cuh
// channel_norm.cuh hopper.cuh. Only 2-byte elements. C and strides are multiples of 8.
//
// A persistent block has tiles blockIdx.x, blockIdx.x + G, … of `tile` pixels (at most ROWS = 64·GROUPS_M), all outputs. 128 threads
// copy: steps of 64 channels into a ring of stages, the weights once a block where they fit beside it, else with every step (by the copy engine). Each
// other warpgroup takes fragments of 64 pixels from there, normalises them in registers, once, and multiplies them with OUT/GROUPS_N
// rows of the weights. Bytes: x and z once, weights once a block or tile (from L2). Bound by memory.
// Grid min(ceil(P/tile), SMS), block 128·(1 + GROUPS_M·GROUPS_N), SHARED_BYTES of dynamic shared memory.

#ifndef GROUPS_M
#define GROUPS_M 2
#endif
#ifndef GROUPS_N
#define GROUPS_N 1
#endif

struct dense_pointwise_forward_sizes {
    int pixels, channels, ld_x, ld_z, tile, statistics;
    channel_norm_sizes norm;
};

constexpr int OUT = 128, ROWS = 64 * GROUPS_M, WIDTH = OUT / GROUPS_N, GROUPS = GROUPS_M * GROUPS_N;
constexpr int COPIERS = 128, MAX_STAGES = 8;
constexpr int STRIDE = COPIERS / 8;  // rows that the copying threads take at once
constexpr int MULTIPLIERS = 128 * GROUPS, WARPS = 4 * GROUPS;
typedef named_barrier<MULTIPLIERS> multipliers;
constexpr int X_BYTES = ROWS * 128, W_BYTES = OUT * 128;  // of a step
constexpr int SHARED_BYTES = 232448, SUMS = 1024, CONSTANTS = SUMS + (OUT + WARPS * 2 * WIDTH) * 4 / 1024 * 1024 + 1024;
// Sums of what a block has had, in registers: two a thread and output, which takes 64 registers more.
constexpr bool GATHERS = WIDTH == OUT;

// What lies where behind the fixed part, as sizes have it.
struct dense_pointwise_forward_plan {
    int steps, stages, stage_bytes;
    bool resident;
    u32 weights, ring;
    __device__ __forceinline__ dense_pointwise_forward_plan(u32 shared, const dense_pointwise_forward_sizes& s) {
        steps = (s.channels + 63) / 64;
        int used = CONSTANTS + (steps * 512 + 1023) / 1024 * 1024;
        resident = (long long)s.tile * gridDim.x < s.pixels && used + steps * W_BYTES + 4 * X_BYTES <= SHARED_BYTES;
        weights = shared + used;
        if (resident) used += steps * W_BYTES;
        ring = shared + used;
        stage_bytes = resident ? X_BYTES : X_BYTES + W_BYTES;
        stages = min(MAX_STAGES, (SHARED_BYTES - used) / stage_bytes);
    }
};

__device__ __forceinline__ u32 relu_pair(float a, float b) {  // NaN stays NaN
    u32 r;
    if constexpr (element::one == 0x3f803f80u) asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    else asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(b), "f"(a));
    return r;
}
__device__ __forceinline__ float4 load_float4(u32 address) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(address));
    return v;
}

__device__ __forceinline__ void copy_tiles(const E* __restrict__ x, const E* __restrict__ packed, const dense_pointwise_forward_sizes& s,
                                           const dense_pointwise_forward_plan& plan, u32 full, u32 empty) {
    int t = threadIdx.x - MULTIPLIERS, chunk = t & 7, first = t >> 3, stage = 0;
    u32 phase = 0;
    auto place = [&](int row) { return (u32)(row * 128 + ((chunk ^ (row & 7)) << 4)); };
    bool weights = true;
    for (long long begin = (long long)blockIdx.x * s.tile; begin < s.pixels; begin += (long long)gridDim.x * s.tile) {
        int rows = (int)min((long long)s.tile, s.pixels - begin) - first;
        const E* from = x + (begin + first) * s.ld_x + chunk * 8;
        for (int k = 0; k < plan.steps; k++, from += 64) {
            int c = k * 64 + chunk * 8;
            u32 to = plan.ring + stage * plan.stage_bytes;
            bar_wait(empty + 8 * stage, phase ^ 1);
#pragma unroll 8
            for (int i = 0; i < ROWS; i += STRIDE)
                if (i < rows) copy_async(to + place(first + i), c < s.channels ? from + (long long)i * s.ld_x : x, c < s.channels);
            if (t == 0) {
                // The second half of a step that has none is any weights: what they are multiplied with is 0.
                u32 there = plan.resident ? plan.weights + k * W_BYTES : to + X_BYTES, whole = c + 32 < s.channels;
                bar_expect(full + 8 * stage, weights ? W_BYTES : 0);
                if (weights) {
                    bulk_copy(there, packed + k * (W_BYTES / 2), W_BYTES / 2, full + 8 * stage);
                    bulk_copy(there + W_BYTES / 2, packed + (whole ? k * 2 + 1 : 0) * (W_BYTES / 4), W_BYTES / 2, full + 8 * stage);
                }
            }
            bar_arrive_after_copies(full + 8 * stage);
            if (++stage == plan.stages) stage = 0, phase ^= 1;
        }
        weights = !plan.resident;
    }
}

// This warp's fragments of a step, normalised.
__device__ __forceinline__ void load_normed(u32 (&a)[16], u32 tile, u32 constants, int row, int lane) {
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
        uint4 raw;
        load_matrices((u32*)&raw, tile + row * 128 + (((kk * 2 + (lane >> 4)) ^ (row & 7)) << 4));
        float4 low = load_float4(constants + kk * 128), high = load_float4(constants + kk * 128 + 64);
        float f[8];
        element::unpack(raw, f);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            a[kk * 4 + h] = relu_pair(fmaf(low.x, f[2 * h], low.z), fmaf(low.y, f[2 * h + 1], low.w));
            a[kk * 4 + 2 + h] = relu_pair(fmaf(high.x, f[4 + 2 * h], high.z), fmaf(high.y, f[5 + 2 * h], high.w));
        }
    }
}

__device__ __forceinline__ void multiply(float (&c)[WIDTH / 2], const u32 (&a)[16], u64 b) {
    begin_products();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) product<element, WIDTH, 0, 0>::add(c, a + kk * 4, b + kk * (OUT * 32 >> 4));
    commit_products();
}

// A run of 8 outputs of a lane's row h, as stored.
__device__ __forceinline__ uint4 run_of(const float (&c)[WIDTH / 2], int s, int h) {
    const float* from = c + s * 16 + h * 2;
    return make_uint4(element::pair(from[0], from[1]), element::pair(from[4], from[5]), element::pair(from[8], from[9]),
                      element::pair(from[12], from[13]));
}

// Stores a warp's 16 rows, of which `rows` there are. What they are about `shift` is added to `gathered`, Σ and Σ² of each output,
// or (not GATHERS) summed over the rows and added to the warp's sums in shared memory.
__device__ __forceinline__ void store_rows(const float (&c)[WIDTH / 2], E* z, int ld, int rows, const float* shift, float* sums,
                                           float (&gathered)[WIDTH / 2], bool statistics, bool first, int lane) {
    int row = lane >> 2, run = (lane & 3) * 8;
#pragma unroll
    for (int s = 0; s < WIDTH / 32; s++) {
        float about[8], values[16];
        if (statistics) {
            *(float4*)about = *(const float4*)(shift + s * 32 + run);
            *(float4*)(about + 4) = *(const float4*)(shift + s * 32 + run + 4);
        }
        clear(values);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint4 out = run_of(c, s, h);
            if (row + h * 8 >= rows) continue;
            store_vector(z + (long long)(row + h * 8) * ld + s * 32 + run, out);
            if (!statistics) continue;
            float f[8];
            element::unpack(out, f);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                float v = f[e] - about[e];
                float &sum = GATHERS ? gathered[s * 8 + e] : values[e], &squares = GATHERS ? gathered[WIDTH / 4 + s * 8 + e] : values[8 + e];
                sum += v;
                squares = fmaf(v, v, squares);
            }
        }
        if (GATHERS || !statistics) continue;
        reduce_rows<16>(values, lane);
        int index = reduced_index<16>(lane);
        float2* total = (float2*)(sums + (index >> 3) * WIDTH + s * 32 + run + (index & 7));
        float2 before = first ? make_float2(0.f, 0.f) : *total;
        *total = make_float2(before.x + values[0], before.y + values[1]);
    }
}

extern "C" __global__ void __launch_bounds__(COPIERS + MULTIPLIERS, 1)
dense_pointwise_forward(const E* __restrict__ x, const E* __restrict__ packed, E* __restrict__ z, float* __restrict__ part,
                        CHANNEL_NORM_PARAMETERS, const __grid_constant__ dense_pointwise_forward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(SHARED_BYTES);
    OF_IMAGE(x, (long long)s.pixels * s.ld_x);
    OF_IMAGE(z, (long long)s.pixels * s.ld_z);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    OF_IMAGE(part, gridDim.x * (2 * OUT + 1));
    u32 base = shared_address(shared), full = base, empty = base + 8 * MAX_STAGES;
    dense_pointwise_forward_plan plan(base, s);
    begin_ring<MAX_STAGES>(full, COPIERS + 1, WARPS);
    int group = warpgroup_index();
    if (group == GROUPS) {
        if constexpr (GATHERS) fewer_registers<72>();
        copy_tiles(x, packed, s, plan, full, empty);
        return;
    }
    if constexpr (GATHERS) more_registers<216>();
    channel_norm_arrays norm = CHANNEL_NORM_ARRAYS;
    float* told = (float*)(shared + SUMS + 1024);
    bool in_front = !EACH_IMAGE && s.norm.rows > 0;
    int known = s.channels - s.norm.written;
    if (in_front) norm_in_front<MULTIPLIERS, multipliers>(threadIdx.x, norm, s.norm, *(norm_room<MULTIPLIERS>*)(shared + SUMS), told);
    for (int i = threadIdx.x; i < plan.steps * 32; i += MULTIPLIERS) {  // pairs of channels
        float2 a = make_float2(0.f, 0.f), b = a;
        if (2 * i >= s.channels) {
        } else if (!in_front) {
            a = __ldg((const float2*)scale + i), b = __ldg((const float2*)shift + i);
        } else if (2 * i < known) {
            float2 first = norm_known(2 * i, norm, s.norm), second = norm_known(2 * i + 1, norm, s.norm);
            a = make_float2(first.x, second.x), b = make_float2(first.y, second.y);
        } else {
            a = *(const float2*)(told + 2 * i - known), b = *(const float2*)(told + s.norm.written + 2 * i - known);
        }
        ((float4*)(shared + CONSTANTS))[i] = make_float4(a.x, a.y, b.x, b.y);
    }
    multipliers::wait();
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, above = (group / GROUPS_N * 4 + (warp & 3)) * 16, column = group % GROUPS_N * WIDTH;
    int row = above + (lane & 15), stage = 0, have = 0;
    u32 phase = 0, constants = base + CONSTANTS + (lane & 3) * 16;
    float *about = (float*)(shared + SUMS), *sums = about + OUT + warp * 2 * WIDTH;
    float gathered[WIDTH / 2];
    clear(gathered);
    bool first = true;
    for (long long begin = (long long)blockIdx.x * s.tile; begin < s.pixels; begin += (long long)gridDim.x * s.tile, first = false) {
        float c[WIDTH / 2];
        clear(c);
        u32 a[16];
        bar_wait(full + 8 * stage, phase);
        load_normed(a, plan.ring + stage * plan.stage_bytes, constants, row, lane);
        // Registers that products read are written only behind the wait for those products, in the same turn of the loop:
        // only then does the compiler leave them alone.
        for (int k = 0; k < plan.steps; k++) {
            u32 tile = plan.ring + stage * plan.stage_bytes, release = empty + 8 * stage;
            u64 b = plain_descriptor((plan.resident ? plan.weights + k * W_BYTES : tile + X_BYTES) + column * 16, OUT * 16, 128);
            multiply(c, a, b);
            if (++stage == plan.stages) stage = 0, phase ^= 1;
            u32 next[16];
            if (k + 1 < plan.steps) {
                bar_wait(full + 8 * stage, phase);
                load_normed(next, plan.ring + stage * plan.stage_bytes, constants + (k + 1) * 512, row, lane);
            }
            wait_products<0>();
            settle(c);
#pragma unroll
            for (int i = 0; i < 16; i++) a[i] = next[i];
            if (lane == 0) bar_arrive(release);
        }
        int limit = (int)min((long long)s.tile, s.pixels - begin);
        if (first && s.statistics) {  // the sums are about the block's first row
            if (above == 0 && lane < 4) {
#pragma unroll
                for (int i = 0; i < WIDTH / 32; i++) element::unpack(run_of(c, i, 0), about + column + i * 32 + lane * 8);
            }
            multipliers::wait();
        }
        store_rows(c, z + (begin + above) * s.ld_z + column, s.ld_z, limit - above, about + column, sums, gathered, s.statistics, first, lane);
        have += limit;
    }
    if (!s.statistics) return;
    if constexpr (GATHERS) {
        reduce_rows<WIDTH / 2>(gathered, lane);
        int index = reduced_index<WIDTH / 2>(lane);
        float4* to = (float4*)(sums + index / (WIDTH / 4) * WIDTH + index % (WIDTH / 4) / 8 * 32 + (lane & 3) * 8);
        to[0] = make_float4(gathered[0], gathered[1], gathered[2], gathered[3]);
        to[1] = make_float4(gathered[4], gathered[5], gathered[6], gathered[7]);
    }
    multipliers::wait();
    int o = threadIdx.x;
    if (o < OUT) {
        float sum = 0.f, squares = 0.f;
#pragma unroll
        for (int i = 0; i < WARPS / GROUPS_N; i++) {
            int w = i / 4 * 4 * GROUPS_N + o / WIDTH * 4 + i % 4;
            const float* from = about + OUT + w * 2 * WIDTH + o % WIDTH;
            sum += from[0];
            squares += from[WIDTH];
        }
        moments m = moments_of((float)have, about[o], sum, squares);
        float* to = part + (long long)blockIdx.x * 2 * OUT;
        to[o] = m.mean;
        to[OUT + o] = m.deviations;
        if (o == 0) part[(long long)gridDim.x * 2 * OUT + blockIdx.x] = m.count;
    }
    if (!EACH_IMAGE && blockIdx.x == 0) norm_told(part, gridDim.x, OUT)[o] = UNTOLD;
#endif
}
