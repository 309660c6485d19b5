// dx[q, c] = Σ_tap Σ_o dy[pixel(q, tap), o]·w[o, c, tap]: the input gradient of `conv_forward`.
//
// dy: [P, out] (ld_y), packed: `pack_weights` mode 1, dx: [batch·height·width, in] (ld_x), every element written;
// accumulate = 1 adds to dx instead, and leaves pixels that no tap hits as they are.
// Input pixels are taken by their remainder under the stride: a tile of 128 has one remainder, so only taps that hit.
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh. Grid classes·ceil(in/TILE_N), block 256. No workspace.

struct conv_backward_input_sizes {
    conv_sizes conv;
    int row, classes, accumulate, zero;
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
conv_backward_input(const E* __restrict__ dy, const E* __restrict__ packed, E* __restrict__ dx,
                    const __grid_constant__ conv_backward_input_sizes s) {
    constexpr int TN = TILE_N;
    __shared__ __align__(1024) unsigned char shared[3 * gathered<TN>::STAGE];
    const conv_sizes& v = s.conv;
    int tiles_n = (v.in + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile = blockIdx.x / tiles_n;
    hit_pixels hit(v, tile);
    if (hit.ny == 0 && s.accumulate) return;
    gathered<TN> g;
    g.source = dy, g.weights = packed, g.ld = v.ld_y, g.height = v.out_height, g.width = v.out_width, g.channels = v.out;
    g.ky0 = hit.ky0, g.kx0 = hit.kx0, g.ny = hit.ny, g.nx = hit.nx;
    g.direction = -1, g.row_length = s.row, g.kw = v.kw;
    g.step_y = v.stride_y, g.step_x = v.stride_x, g.columns = v.in, g.column0 = tile_n * TN;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        long long p = hit.first + (threadIdx.x >> 2) + i * 64;
        u32 q = (u32)(p < hit.rows ? p : 0), line = q / hit.rows_x, n = line / hit.rows_y;
        g.image[i] = n * v.out_height;
        g.y[i] = p < hit.rows ? (int)(line - n * hit.rows_y) + (hit.cy + v.pad_y - g.ky0) / v.stride_y : -(1 << 30);
        g.x[i] = (int)(q - line * hit.rows_x) + (hit.cx + v.pad_x - g.kx0) / v.stride_x;
    }
    float acc[ROW_TILES][COLUMN_TILES<TN>][4];
    clear(acc);
    g.run(acc, shared);

    int lane = threadIdx.x & 31;
    bool vectors = v.in % V == 0 && v.ld_x % V == 0;
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            long long p = hit.first + warp_row() + i * 16 + h * 8 + (lane >> 2);
            if (p >= hit.rows) continue;
            u32 line = (u32)p / hit.rows_x, n = line / hit.rows_y;
            int iy = hit.cy + (int)(line - n * hit.rows_y) * v.stride_y, ix = hit.cx + (int)((u32)p - line * hit.rows_x) * v.stride_x;
            E* row = dx + ((long long)((long long)n * v.height + iy) * v.width + ix) * v.ld_x;
#pragma unroll
            for (int k = 0; k < 2 * COLUMN_TILES<TN> / V; k++) {
                float f[V];
                int column = g.column0 + warp_column<TN>() + k * 4 * V + (lane & 3) * V;
                results(acc, i, h, k, f);
                if (s.accumulate) add_results(row, column, v.in, vectors, f);
                write_results(row, column, v.in, vectors, f);
            }
        }
}
