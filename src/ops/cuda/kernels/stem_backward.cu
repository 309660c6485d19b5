// One pass over z for the whole backward of the stem. With g = gradient of max-pooling and ReLU at an output of the convolution,
// x̂ = (z − mean)·rstd and patch = the image under it, a block adds up over its outputs
//   rows 0..63: Σ g⊗patch, rows 64..127: Σ x̂⊗patch, row 128: Σ patch, then Σ g [64] and Σ g·x̂ [64];
// BatchNorm's backward is linear in these, so `stem_backward_finish` makes the weight gradient of the sums: neither g nor the
// gradient of z is ever written.
//
// image, z: as `stem_forward`; dpool: gradient of the pooled output [N·Hp·Wp, C] (ld_dpool); index: from `stem_pool_forward`.
// Headers: tiles.cuh channels.cuh gemm.cuh stem.cuh. Grid (G, ceil(C/64)), block 512, G = min(N·tiles_y·tiles_x, SMS), tiles
// of 4 by 16 outputs. Workspace G·ceil(C/64)·(129·8·7·STEM_CHANNELS + 128) floats. Bytes: image, z, dpool and index once.

struct stem_backward_sizes {
    int batch, height, width, out_height, out_width, pooled_height, pooled_width, channels, ld_z, ld_dpool, tiles_y, tiles_x;
    u32 stride_n, stride_c, stride_y, stride_x;
};

extern "C" __global__ void __launch_bounds__(512, 1)
stem_backward(const float* __restrict__ image, const E* __restrict__ z, const float* __restrict__ mean,
              const float* __restrict__ rstd, const E* __restrict__ dpool, const u32* __restrict__ index,
              float* __restrict__ ws, const __grid_constant__ stem_backward_sizes s) {
    constexpr int K8 = 8 * TAP_ROWS, BUFFERS = WIDE ? 1 : 2, LINES = 13, PIXELS_TILE = 64;
    constexpr int A = PIXELS_TILE * 128 * sizeof(E), WORDS = STEM_CHANNELS * LINES * COLUMNS;
    constexpr int CHUNKS = 64 / V, ITEMS = PIXELS_TILE * CHUNKS / 512, LOADS = (WORDS + 511) / 512;
    constexpr int NR = (TAP_ROWS + 3) / 4, MI = 2, ONES = (NR + 3) / 4;
    __shared__ __align__(128) unsigned char gradients[BUFFERS * A];
    __shared__ __align__(16) u32 tile[BUFFERS][WORDS];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp & 3, wn = warp >> 2, g = lane >> 2, t = lane & 3;
    int chunk = tid % CHUNKS, c = blockIdx.y * 64 + chunk * V, tiles = s.batch * s.tiles_y * s.tiles_x;
    bool channel_ok = c < s.channels;
    if (!channel_ok) c = 0;

    float acc[MI][NR][4], ones[ONES][4], s1[V], s2[V];
    clear(acc);
#pragma unroll
    for (int i = 0; i < ONES; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) ones[i][k] = 0.f;
#pragma unroll
    for (int e = 0; e < V; e++) s1[e] = s2[e] = 0.f;
    int lines[NR];
#pragma unroll
    for (int j = 0; j < NR; j++) {
        int r = wn * NR + j;
        lines[j] = ((r / 7) * LINES + r % 7) * COLUMNS;
    }

    struct place {
        int n, oy, ox;
    };
    auto where = [&](int at) {
        int n = at / (s.tiles_y * s.tiles_x), rest = at - n * (s.tiles_y * s.tiles_x);
        return place{n, rest / s.tiles_x * 4, rest % s.tiles_x * 16};
    };
    float pixels[LOADS];
    uint4 zs[ITEMS], ds[ITEMS][4];
    u32 is[ITEMS][4];
    auto load = [&](int at) {
        place w = where(at);
        const float* from = image + (long long)w.n * s.stride_n;
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int i = tid + k * 512, line = i / COLUMNS, x = i - line * COLUMNS, ch = line / LINES, y = line - ch * LINES;
            int iy = 2 * w.oy + y - 3, ix = 2 * w.ox + x - 3;
            bool ok = i < WORDS && (u32)iy < (u32)s.height && (u32)ix < (u32)s.width;
            pixels[k] = ok ? __ldg(from + (long long)ch * s.stride_c + (long long)iy * s.stride_y + (long long)ix * s.stride_x) : 0.f;
        }
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            int p = tid / CHUNKS + k * (512 / CHUNKS), oy = w.oy + (p >> 4), ox = w.ox + (p & 15);
            bool ok = channel_ok && oy < s.out_height && ox < s.out_width;
            if (ok) zs[k] = load_vector(z + (((long long)w.n * s.out_height + oy) * s.out_width + ox) * s.ld_z + c);
            int py = (oy + 1) >> 1, px = (ox + 1) >> 1;  // the last windows that hold it; those before where oy, ox are odd
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int wy = py - (q >> 1), wx = px - (q & 1);
                bool holds = ok && wy < s.pooled_height && wx < s.pooled_width && ((q >> 1) == 0 || (oy & 1)) &&
                             ((q & 1) == 0 || (ox & 1));
                is[k][q] = 0xffffffffu;
                if (holds) {
                    long long at_pool = ((long long)w.n * s.pooled_height + wy) * s.pooled_width + wx;
                    ds[k][q] = load_vector(dpool + at_pool * s.ld_dpool + c);
                    if constexpr (WIDE)
                        is[k][q] = ((const unsigned short*)index)[at_pool * (s.channels / 4) + c / 4];
                    else
                        is[k][q] = __ldg(index + at_pool * (s.channels / 8) + c / 8);
                }
            }
        }
    };
    auto store = [&](int at, int buffer) {
        place w = where(at);
#pragma unroll
        for (int k = 0; k < LOADS; k++) {
            int i = tid + k * 512;
            if (i >= WORDS) continue;
            if constexpr (WIDE) {
                tile[buffer][i] = __float_as_uint(pixels[k]);
            } else {  // word m holds columns m and m + 2: the same tap of two neighbouring outputs
                E v = element::from_float(pixels[k]);
                ((E*)&tile[buffer][i])[0] = v;
                if (i % COLUMNS >= 2) ((E*)&tile[buffer][i - 2])[1] = v;
            }
        }
        float mu[V], r[V];
        load_floats(mean + c, mu);
        load_floats(rstd + c, r);
#pragma unroll
        for (int k = 0; k < ITEMS; k++) {
            int p = tid / CHUNKS + k * (512 / CHUNKS), oy = w.oy + (p >> 4), ox = w.ox + (p & 15);
            bool ok = channel_ok && oy < s.out_height && ox < s.out_width;
            int py = (oy + 1) >> 1, px = (ox + 1) >> 1;
            float grad[V], x[V];
#pragma unroll
            for (int e = 0; e < V; e++) grad[e] = 0.f;
#pragma unroll
            for (int q = 3; q >= 0; q--) {
                if (is[k][q] == 0xffffffffu) continue;
                u32 tap = (u32)((oy + 1 - 2 * (py - (q >> 1))) * 3 + ox + 1 - 2 * (px - (q & 1)));
                float d[V];
                element::unpack(ds[k][q], d);
#pragma unroll
                for (int e = 0; e < V; e++) grad[e] += ((is[k][q] >> (4 * e)) & 15u) == tap ? d[e] : 0.f;
            }
            element::unpack(zs[k], x);
#pragma unroll
            for (int e = 0; e < V; e++) {
                x[e] = ok ? (x[e] - mu[e]) * r[e] : 0.f;
                s1[e] += grad[e];
                s2[e] = fmaf(grad[e], x[e], s2[e]);
            }
            *(uint4*)(gradients + buffer * A + column_offset<128>(p, chunk)) = element::pack(grad);
            *(uint4*)(gradients + buffer * A + column_offset<128>(p, CHUNKS + chunk)) = element::pack(x);
        }
    };
    auto compute = [&](int at, int buffer) {
        place w = where(at);
        u32 a_tile = shared_address(gradients + buffer * A), b_tile = shared_address(tile[buffer]);
#pragma unroll
        for (int k = 0; k < PIXELS_TILE / STEP; k++) {
            constexpr int PER = 16 / STEP;
            int y = k / PER, x0 = k % PER * STEP;
            factor<4> a[MI];
            u32 raw[4];
#pragma unroll
            for (int i = 0; i < MI; i++) {
                int m = wm * 32 + i * 16;
                if constexpr (WIDE) {
                    int p = k * 8 + t;
                    raw[0] = column_word<128>(a_tile, p, m + g);
                    raw[1] = column_word<128>(a_tile, p, m + g + 8);
                    raw[2] = column_word<128>(a_tile, p + 4, m + g);
                    raw[3] = column_word<128>(a_tile, p + 4, m + g + 8);
                } else {
                    load_matrices_transposed(raw, a_tile + column_offset<128>(k * 16 + (lane & 7) + ((lane >> 4) << 3),
                                                                              (m >> 3) + ((lane >> 3) & 1)));
                }
                a[i].set(raw);
            }
            // Ones where the output exists, for the sum of patches.
            bool line_ok = w.oy + y < s.out_height;
            if constexpr (WIDE) {
                raw[0] = raw[1] = line_ok && w.ox + x0 + t < s.out_width ? element::one : 0;
                raw[2] = raw[3] = line_ok && w.ox + x0 + t + 4 < s.out_width ? element::one : 0;
            } else {
                auto pair = [&](int x) {
                    return line_ok ? (x < s.out_width ? element::one & 0xffffu : 0) |
                                         (x + 1 < s.out_width ? element::one & 0xffff0000u : 0)
                                   : 0u;
                };
                raw[0] = raw[1] = pair(w.ox + 2 * t);
                raw[2] = raw[3] = pair(w.ox + 2 * t + 8);
            }
            factor<4> exists;
            exists.set(raw);
#pragma unroll
            for (int j = 0; j < NR; j++) {
                if (wn * NR + j >= TAP_ROWS) continue;
                u32 word = b_tile + (lines[j] + 2 * y * COLUMNS + 2 * x0 + (WIDE ? 2 : 4) * t + g) * 4;
                raw[0] = load_word(word);
                raw[1] = load_word(word + (WIDE ? 32 : 64));
                factor<2> b;
                b.set(raw);
#pragma unroll
                for (int i = 0; i < MI; i++) multiply(acc[i][j], a[i], b);
                if (j % 4 == wm) multiply(ones[j / 4], exists, b);
            }
        }
    };

    int at = blockIdx.x, buffer = 0;
    load(at);
    store(at, 0);
    __syncthreads();
    for (; at < tiles; at += gridDim.x) {
        int following = at + gridDim.x;
        if (following < tiles) load(following);
        compute(at, buffer);
        if constexpr (BUFFERS == 1) __syncthreads();
        if (following < tiles) store(following, BUFFERS == 1 ? 0 : buffer ^ 1);
        __syncthreads();
        if constexpr (BUFFERS == 2) buffer ^= 1;
    }

    float* out = ws + ((long long)blockIdx.y * gridDim.x + blockIdx.x) * (129 * K8 + 128);
#pragma unroll
    for (int j = 0; j < NR; j++) {
        int r = wn * NR + j;
        if (r >= TAP_ROWS) continue;
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                *(float2*)(out + (wm * 32 + i * 16 + h * 8 + g) * K8 + r * 8 + t * 2) =
                    make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
        if (j % 4 == wm && g == 0) *(float2*)(out + 128 * K8 + r * 8 + t * 2) = make_float2(ones[j / 4][0], ones[j / 4][1]);
    }
    __syncthreads();
    float* shared = (float*)gradients;  // [512 threads][2·V]
#pragma unroll
    for (int e = 0; e < V; e++) {
        shared[tid * 2 * V + e] = s1[e];
        shared[tid * 2 * V + V + e] = s2[e];
    }
    __syncthreads();
    if (tid < 128) {
        int half = tid / 64, local = tid % 64;
        float sum = 0.f;
        for (int i = local / V; i < 512; i += CHUNKS) sum += shared[i * 2 * V + half * V + local % V];
        out[129 * K8 + tid] = sum;
    }
}
