// The input gradient of a convolution with stride 1 that reads relu(scale·x + shift), back to x but for what the norm's
// statistics add: g = [scale·x + shift > 0]·Σ_tap Σ_o dy[pixel(q, tap), o]·w[o, c, tap], S (+)= gamma·g,
// part = Σ g and Σ g·x̂ of the tile, x̂ = (x − mean)·rstd.
//
// dy: [P, out] (ld_y), packed: `pack_weights` mode 1, x, S: [P, in] (ld_x, ld_s). accumulate = 1 adds to S. rows = ceil(P/128).
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh. Grid ceil(P/128)·ceil(in/TILE_N), block 256. Channels and strides are
// multiples of 8. Bytes: x once, S once or twice, dy once from memory (again from L2 for each TILE_N channels and tap).

struct layer_backward_sizes {
    conv_sizes conv;
    int row, ld_s, accumulate, zero;
};

extern "C" __global__ void __launch_bounds__(256, EACH_IMAGE && TILE_N > 64 && __CUDA_ARCH__ < 900 ? 1 : BLOCKS)
layer_backward(const E* __restrict__ dy, const E* __restrict__ packed, const E* __restrict__ X,
               const float* __restrict__ mean, const float* __restrict__ rstd, const float* __restrict__ scale,
               const float* __restrict__ shift, const float* __restrict__ gamma, E* S, float* __restrict__ part,
               const __grid_constant__ layer_backward_sizes s) {
    constexpr int TN = TILE_N;
    __shared__ __align__(1024) unsigned char shared[3 * gathered<TN>::STAGE];
    const conv_sizes& v = s.conv;
    int tiles_n = (v.in + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = (long long)v.batch * v.height * v.width, first = (long long)tile_m * 128;
    OF_IMAGE(dy, rows * v.ld_y);
    OF_IMAGE(X, rows * v.ld_x);
    OF_IMAGE(S, rows * s.ld_s);
    NORM_OF_IMAGE(v.in);
    OF_IMAGE(part, (rows + 127) / 128 * 2 * v.in);
    gathered<TN> g;
    g.source = dy, g.weights = packed, g.ld = v.ld_y, g.height = v.height, g.width = v.width, g.channels = v.out;
    g.ny = v.kh, g.nx = v.kw, g.direction = -1, g.row_length = s.row, g.kw = v.kw, g.ky0 = g.kx0 = 0;
    g.step_y = g.step_x = 1, g.columns = v.in, g.column0 = tile_n * TN;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        long long p = first + (threadIdx.x >> 2) + i * 64;
        u32 q = (u32)(p < rows ? p : 0), line = q / v.width, n = line / v.height;
        g.image[i] = n * v.height;
        g.y[i] = p < rows ? (int)(line - n * v.height) + v.pad_y : -(1 << 30);
        g.x[i] = (int)(q - line * v.width) + v.pad_x;
    }
    float acc[ROW_TILES][COLUMN_TILES<TN>][4];
    clear(acc);
    g.run(acc, shared);
    __syncthreads();

    float* totals = (float*)shared;  // [warps along rows][2][TN]
    int lane = threadIdx.x & 31, wm = row_warp();
#pragma unroll
    for (int k = 0; k < 2 * COLUMN_TILES<TN> / V; k++) {
        int local = warp_column<TN>() + k * 4 * V + (lane & 3) * V, c = g.column0 + local;
        float sums[2 * V];
        clear(sums);
        if (c < v.in) {
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
                    float d[V], f[V], sum[V];
                    results(acc, i, h, k, d);
                    element::unpack(load_vector(X + q * v.ld_x + c), f);
                    E* out = S + q * s.ld_s + c;
                    clear(sum);
                    if (s.accumulate) element::unpack(*(const uint4*)out, sum);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        float grad = fmaf(a[e], f[e], b[e]) > 0.f ? d[e] : 0.f;
                        sums[e] += grad;
                        sums[V + e] = fmaf(grad, f[e] - mu[e], sums[V + e]);
                        sum[e] = fmaf(gam[e], grad, sum[e]);
                    }
                    store_vector(out, element::pack(sum));
                }
        }
        put_totals<TN>(sums, totals, wm, local, lane);
    }
    __syncthreads();
    write_totals<TN, 8 / ROW_TILES>(totals, rstd, part, tile_m, g.column0, v.in);
}
