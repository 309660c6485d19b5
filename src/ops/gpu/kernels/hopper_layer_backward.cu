// `layer_backward` for Hopper: the input gradient of a convolution with stride 1 that reads relu(scale·x + shift), back to x but for what
// the norm's statistics add: g = [scale·x + shift > 0]·Σ_tap Σ_o dy[pixel(q, tap), o]·w[o, c, tap], S (+)= gamma·g, part = Σ g and Σ g·x̂.
//
// Arguments as `layer_backward`'s; out is a multiple of 64. Products go through shared memory, so that registers are free for what
// follows. Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh hopper.cuh swizzled.cuh ring.cuh. Grid ceil(P/128)·ceil(in/TILE_N), block
// 256 + RING_COPIERS, RING_BYTES + 64·TILE_N of dynamic shared memory. Bytes: x once, S once or twice, dy once per column tile and tap (through caches).

struct hopper_layer_backward_sizes {
    conv_sizes conv;
    int row, ld_s, accumulate, zero;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + COPIERS, RING_BLOCKS)
hopper_layer_backward(const E* __restrict__ dy, const E* __restrict__ packed, const E* __restrict__ X,
                      const float* __restrict__ mean, const float* __restrict__ rstd, const float* __restrict__ scale,
                      const float* __restrict__ shift, const float* __restrict__ gamma, E* S, float* __restrict__ part,
                      const __grid_constant__ hopper_layer_backward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    constexpr int TN = TILE_N;
    require_shared(RING_BYTES + TN * 64);
    static_assert(RING_STAGES > 2 && TN * 256 <= RING_STAGE, "half the products lie in a stage");
    const conv_sizes& v = s.conv;
    int tiles_n = (v.in + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = (long long)v.batch * v.height * v.width, first = (long long)tile_m * 128;
    ring g;
    g.source = dy, g.weights = packed, g.ld = v.ld_y, g.height = v.height, g.width = v.width, g.channels = v.out;
    g.ny = v.kh, g.nx = v.kw, g.direction = -1, g.row_length = s.row, g.kw = v.kw, g.ky0 = g.kx0 = 0;
    g.step_y = g.step_x = 1, g.columns = v.in, g.column0 = tile_n * TN;
    if (threadIdx.x < 128) {
        long long p = first + threadIdx.x;
        u32 q = (u32)(p < rows ? p : 0), line = q / v.width, n = line / v.height;
        g.write_row(shared, threadIdx.x, p < rows, n, (int)(line - n * v.height) + v.pad_y, (int)(q - line * v.width) + v.pad_x, q);
    }
    ring::begin(shared);
    if (warpgroup_index() == 2) {
        g.copy(shared, X, v.ld_x);
        return;
    }
    // Products lie in the two stages behind that of X, a number a thread side by side.
    int behind = v.kh * v.kw * (v.out / 64) % RING_STAGES;
    float* totals = (float*)(shared + RING_BYTES);  // [warps][2][TN]
    auto product_of = [&](int i) -> float& {
        int stage = (behind + 1 + i / (TN / 4)) % RING_STAGES;
        return ((float*)(shared + RING_FIRST + stage * RING_STAGE))[i % (TN / 4) * MULTIPLIERS + threadIdx.x];
    };
    {
        float c[TN / 2] = {};
        g.multiply(c, shared, ring::await);
        sync_multipliers();
#pragma unroll
        for (int i = 0; i < TN / 2; i++) product_of(i) = c[i];
    }
    u32 there = g.tile_of_map(shared);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll 1
    for (int k = 0; k < TN / 32; k++) {
        int local = k * 32 + (lane & 3) * V, c = g.column0 + local;
        float sums[2 * V] = {};
        if (c < v.in) {
            uint4 raw[2];
            uint4 before[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                long long q = first + warp * 16 + h * 8 + (lane >> 2);
                raw[h] = before[h] = make_uint4(0, 0, 0, 0);
                if (q < rows) {
                    raw[h] = ring::of_map(there, warp * 16 + h * 8 + (lane >> 2), k, lane & 3);
                    if (s.accumulate) before[h] = *(const uint4*)(S + q * s.ld_s + c);
                }
            }
            float a[V], b[V], mu[V], gam[V];
            load_floats(scale + c, a);
            load_floats(shift + c, b);
            load_floats(mean + c, mu);
            load_floats(gamma + c, gam);
#pragma unroll
            for (int h = 0; h < 2; h++) {
                long long q = first + warp * 16 + h * 8 + (lane >> 2);
                if (q >= rows) continue;
                float f[V], sum[V];
                element::unpack(raw[h], f);
                element::unpack(before[h], sum);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    float d = product_of((k * 4 + e / 2) * 4 + h * 2 + (e & 1));
                    float grad = fmaf(a[e], f[e], b[e]) > 0.f ? d : 0.f;
                    sums[e] += grad;
                    sums[V + e] = fmaf(grad, f[e] - mu[e], sums[V + e]);
                    sum[e] = fmaf(gam[e], grad, sum[e]);
                }
                store_vector(S + q * s.ld_s + c, element::pack(sum));
            }
        }
        put_totals<TN>(sums, totals, warp, local, lane);
    }
    sync_multipliers();
    write_totals<TN, 8>(totals, rstd, part, tile_m, g.column0, v.in);
#endif
}
