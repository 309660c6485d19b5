// y[p, o] = Σ_c relu(scale[c]·x[p, c] + shift[c])·w[o, c]: norm, ReLU and 1×1 convolution.
//
// x: [P, C] (ld_x), packed: `pack_weights` mode 0, y: [P, out] (ld_y); part (when statistics = 1): statistics of y as stored,
// rows = ceil(P/128).
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh normed.cuh. Grid ceil(P/128)·ceil(out/TILE_N), block 256. C, out and
// strides are multiples of 8. Bytes: x once per column tile, y once.

struct layer_forward_sizes {
    int pixels, channels, out, ld_x, ld_y, row, statistics, zero;
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
layer_forward(const E* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
              const E* __restrict__ packed, E* __restrict__ y, float* __restrict__ part,
              const __grid_constant__ layer_forward_sizes s) {
    constexpr int TN = TILE_N, STAGE = gathered<TN, true>::STAGE;
    __shared__ __align__(128) unsigned char shared[3 * STAGE];
    int tiles_n = (s.out + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
#if PER_IMAGE  // where the image's pixels and its scale and shift begin: pointers to them take more registers
    int first = s.pixels * blockIdx.z + tile_m * 128, rows = s.pixels * (blockIdx.z + 1), vector = s.channels * blockIdx.z;
#else
    long long rows = s.pixels, first = (long long)tile_m * 128;
    constexpr int vector = 0;
#endif
    gathered<TN, true> g;
    g.source = x, g.weights = packed, g.ld = s.ld_x, g.height = 1, g.width = (int)rows, g.channels = s.channels;
    g.ny = g.nx = g.direction = 1, g.row_length = s.row, g.kw = 1, g.ky0 = g.kx0 = 0, g.step_y = g.step_x = 1;
    g.columns = s.out, g.column0 = tile_n * TN;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        auto q = first + (int)(threadIdx.x >> 2) + i * 64;
        g.image[i] = 0, g.y[i] = q < rows ? 0 : -(1 << 30), g.x[i] = (int)(q < rows ? q : 0);
    }
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp & 3, wn = warp >> 2;
    float acc[2][TN / 16][4];
    clear(acc);
    g.start();
    auto fetch = [&](unsigned char* stage, int k) { g.fetch(stage, k); };
    each_tile<STAGE, false>(g.steps(), shared, fetch, [](u32) {}, [&](u32 a, int k) {
        multiply_rows_normed<2, TN / 16>(acc, a, a + 8192, wm * 32, wn * (TN / 2), lane, scale, shift, vector + k * K_TILE,
                                         vector + s.channels);
    });
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            auto p = first + wm * 32 + i * 16 + h * 8 + (lane >> 2);
            if (p >= rows) continue;
#pragma unroll
            for (int k = 0; k < TN / 8 / V; k++) {
                float f[V];
                results(acc, i, h, k, f);
                write_results(y + (long long)p * s.ld_y, g.column0 + wn * (TN / 2) + k * 4 * V + (lane & 3) * V, s.out, true, f);
            }
        }
    OF_IMAGE(part, (long long)((s.pixels + 127) / 128) * (2 * s.out + 1));
    if (s.statistics)
        tile_statistics<2, TN / 16, TN>(acc, (float*)shared, part, tile_m, (s.pixels + 127) / 128, first, rows, g.column0, s.out);
}
