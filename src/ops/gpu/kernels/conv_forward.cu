// y[p, o] = Σ_tap Σ_c x[pixel(p, tap), c]·w[o, c, tap]: convolution, dilation 1, groups 1, any sizes.
//
// x: [batch·height·width, in] (ld_x), packed: `pack_weights` mode 0, y: [P, out] (ld_y), P = batch·out_height·out_width.
// part (when statistics = 1): statistics of y as stored, rows = ceil(P/128).
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh. Grid ceil(P/128)·ceil(out/TILE_N), block 256. No workspace but part.
// Bytes: x once per column tile and (through caches) tap, y once.

struct conv_forward_sizes {
    conv_sizes conv;
    int row, statistics;
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
conv_forward(const E* __restrict__ source, const E* __restrict__ packed, E* __restrict__ y, float* __restrict__ part,
             const __grid_constant__ conv_forward_sizes s) {
    constexpr int TN = TILE_N;
    __shared__ __align__(1024) unsigned char shared[3 * gathered<TN>::STAGE];
    const conv_sizes& v = s.conv;
    int tiles_n = (v.out + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = (long long)v.batch * v.out_height * v.out_width, first = (long long)tile_m * 128;

    gathered<TN> g;
    g.source = source, g.weights = packed, g.ld = v.ld_x, g.height = v.height, g.width = v.width, g.channels = v.in;
    g.ny = v.kh, g.nx = v.kw, g.direction = 1, g.row_length = s.row, g.kw = v.kw;
    g.ky0 = g.kx0 = 0, g.step_y = g.step_x = 1, g.columns = v.out, g.column0 = tile_n * TN;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        long long p = first + (threadIdx.x >> 2) + i * 64;
        u32 q = (u32)(p < rows ? p : 0), line = q / v.out_width, n = line / v.out_height;
        g.image[i] = n * v.height;
        g.y[i] = p < rows ? (int)(line - n * v.out_height) * v.stride_y - v.pad_y : -(1 << 30);
        g.x[i] = (int)(q - line * v.out_width) * v.stride_x - v.pad_x;
    }
    float acc[ROW_TILES][COLUMN_TILES<TN>][4];
    clear(acc);
    g.run(acc, shared);

    int lane = threadIdx.x & 31;
    bool vectors = v.out % V == 0 && v.ld_y % V == 0;
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            long long p = first + warp_row() + i * 16 + h * 8 + (lane >> 2);
            if (p >= rows) continue;
#pragma unroll
            for (int k = 0; k < 2 * COLUMN_TILES<TN> / V; k++) {
                float f[V];
                results(acc, i, h, k, f);
                write_results(y + p * v.ld_y, g.column0 + warp_column<TN>() + k * 4 * V + (lane & 3) * V, v.out, vectors, f);
            }
        }
    if (s.statistics)
        tile_statistics<ROW_TILES, COLUMN_TILES<TN>, TN>(acc, (float*)shared, part, tile_m, (int)((rows + 127) / 128), first, rows,
                                        g.column0, v.out);
}
