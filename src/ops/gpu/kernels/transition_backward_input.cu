// Backward of a transition into X: dT = dY·W, g = [scale·x + shift > 0]·dT/4 for each of the four pixels,
// S[:, :C] = gamma·g, part = Σ g and Σ g·x̂ of the tile, x̂ = (x − mean)·rstd. Writes S, zeros in an odd last row or column,
// and with pooled = 1 also T of `transition_pool` (ld = C), which the weight gradient (`conv_backward_weight`) reads.
//
// dY: [Q, K] (ld_dy), packed: `pack_weights` mode 1 (rows C, columns K), X, S: [N·H·W, C] (ld_x, ld_s).
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh pooled.cuh. Grid ceil(Q/128)·ceil(C/64), block 256, rows ceil(Q/128).
// Bytes: X and S once, dY once from memory (again from L2 for each 64 channels).

struct transition_backward_input_sizes {
    int batch, height, width, channels, out_channels, ld_dy, ld_x, ld_s, row, pooled;
};

extern "C" __global__ void __launch_bounds__(256, element::parts == 2 ? 1 : 2)
transition_backward_input(const E* __restrict__ dY, const E* __restrict__ packed, const E* __restrict__ X,
                          const float* __restrict__ mean, const float* __restrict__ rstd,
                          const float* __restrict__ scale, const float* __restrict__ shift,
                          const float* __restrict__ gamma, E* __restrict__ S, E* __restrict__ T,
                          float* __restrict__ part,
                          const __grid_constant__ transition_backward_input_sizes s) {
    constexpr int TN = 64;
    __shared__ __align__(1024) unsigned char shared[3 * gathered<TN, true>::STAGE];
    int tiles_n = (s.channels + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = (long long)s.batch * (s.height / 2) * (s.width / 2), first = (long long)tile_m * 128;
    OF_IMAGE(dY, rows * s.ld_dy);
    OF_IMAGE(X, (long long)s.height * s.width * s.ld_x);
    OF_IMAGE(S, (long long)s.height * s.width * s.ld_s);
    OF_IMAGE(T, rows * s.channels);
    NORM_OF_IMAGE(s.channels);
    OF_IMAGE(part, (rows + 127) / 128 * 2 * s.channels);
    gathered<TN, true> g;
    g.source = dY, g.weights = packed, g.ld = s.ld_dy, g.height = 1, g.width = (int)rows, g.channels = s.out_channels;
    g.ny = g.nx = g.direction = 1, g.row_length = s.row, g.kw = 1, g.ky0 = g.kx0 = 0, g.step_y = g.step_x = 1;
    g.columns = s.channels, g.column0 = tile_n * TN;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        long long q = first + (threadIdx.x >> 2) + i * 64;
        g.image[i] = 0, g.y[i] = q < rows ? 0 : -(1 << 30), g.x[i] = (int)(q < rows ? q : 0);
    }
    pooled_pixels pixels(s.height, s.width, s.ld_x);
    float acc[ROW_TILES][COLUMN_TILES<TN>][4];
    clear(acc);
    g.run(acc, shared);
    __syncthreads();

    float* totals = (float*)shared;  // [warps along rows][2][TN]
    int lane = threadIdx.x & 31, wm = row_warp();
    bool odd_y = s.height & 1, odd_x = s.width & 1;
#pragma unroll
    for (int k = 0; k < 2 * COLUMN_TILES<TN> / V; k++) {
        int local = warp_column<TN>() + k * 4 * V + (lane & 3) * V, c = g.column0 + local;
        float sums[2 * V];
        clear(sums);
        if (c < s.channels) {
            float a[V], b[V], mu[V], gam[V];
            load_floats(scale + c, a);
            load_floats(shift + c, b);
            load_floats(mean + c, mu);
            load_floats(gamma + c, gam);
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    long long q = first + warp_row() + i * 16 + h * 8 + (lane >> 2);
                    if (q >= rows) continue;
                    long long pixel = pixels.pixel((u32)q);
                    float d[V], average[V];
                    results(acc, i, h, k, d);
                    clear(average);
                    const E* x = X + pixel * s.ld_x + c;
                    E* out = S + pixel * s.ld_s + c;
                    uint4 four[4];
#pragma unroll
                    for (int p = 0; p < 4; p++)
                        four[p] = load_vector(x + ((p >> 1) * (long long)s.width + (p & 1)) * s.ld_x);
#pragma unroll
                    for (int p = 0; p < 4; p++) {
                        float f[V];
                        element::unpack(four[p], f);
#pragma unroll
                        for (int e = 0; e < V; e++) {
                            float v = fmaf(a[e], f[e], b[e]), grad = v > 0.f ? 0.25f * d[e] : 0.f;
                            average[e] += max_nan(v, 0.f);
                            sums[e] += grad;
                            sums[V + e] = fmaf(grad, f[e] - mu[e], sums[V + e]);
                            f[e] = gam[e] * grad;
                        }
                        store_vector(out + ((p >> 1) * (long long)s.width + (p & 1)) * s.ld_s, element::pack(f));
                    }
                    if (s.pooled) {
#pragma unroll
                        for (int e = 0; e < V; e++) average[e] *= 0.25f;
                        store_vector(T + q * s.channels + c, element::pack(average));
                    }
                    if (odd_y || odd_x) {  // pixels that no window covers
                        u32 line = pixels.by_width.quotient((u32)q), n = pixels.by_height.quotient(line);
                        bool last_y = odd_y && line - n * pixels.half_height == pixels.half_height - 1;
                        bool last_x = odd_x && (u32)q - line * pixels.half_width == pixels.half_width - 1;
                        uint4 none = make_uint4(0, 0, 0, 0);
                        for (int py = 0; py < (last_y ? 3 : 2); py++)
                            for (int px = 0; px < (last_x ? 3 : 2); px++)
                                if (py == 2 || px == 2)
                                    store_vector(out + (py * (long long)s.width + px) * s.ld_s, none);
                    }
                }
        }
        put_totals<TN>(sums, totals, wm, local, lane);
    }
    __syncthreads();
    write_totals<TN, 8 / ROW_TILES>(totals, rstd, part, tile_m, g.column0, s.channels);
}
