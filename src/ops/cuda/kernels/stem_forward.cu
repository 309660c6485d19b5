// z[p, o] = Σ_c Σ_ky Σ_kx image[n, c, 2y + ky − 3, 2x + kx − 3]·w[o, c, ky, kx]: the stem's convolution.
//
// image: fp32, read with four strides; packed: `pack_weights` mode 2; z: [N·Ho·Wo, C] (ld); part: statistics of z as stored.
// A block keeps its weights in shared memory and takes tiles of TH by 16 outputs; taps of a row of the image lie side by side,
// so the tensor cores' factor is read from the tile as it is, without im2col.
// Headers: tiles.cuh channels.cuh gemm.cuh stem.cuh. Grid (G, ceil(C/TN)), block 256, G = min(tiles, 2·SMS), rows = G.
// Bytes: the image once per TN channels, z once.

extern "C" __global__ void __launch_bounds__(256, 2)
stem_forward(const float* __restrict__ image, const E* __restrict__ packed, E* __restrict__ z, float* __restrict__ part,
             const __grid_constant__ stem_sizes s) {
    constexpr int MI = WIDE ? 1 : 2, TH = 8 * MI, TN = WIDE ? 32 : 64, NJ = TN / 8, N = 2 * NJ;
    constexpr int LINES = 2 * TH + 5, PITCH = WIDE ? 38 : 40, ROW = STEM_K + V;
    constexpr int IMAGE = STEM_CHANNELS * LINES * PITCH;
    __shared__ __align__(16) E weights[TN * ROW];
    __shared__ __align__(16) E tile[IMAGE];
    __shared__ float shifts[8][TN];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3, column0 = blockIdx.y * TN;

    for (int i = tid; i < TN * (STEM_K / V); i += 256) {
        int r = i / (STEM_K / V), k = i - r * (STEM_K / V), o = column0 + permuted(r);
        *(uint4*)(weights + r * ROW + k * V) =
            o < s.channels ? load_vector(packed + (long long)o * STEM_K + k * V) : make_uint4(0, 0, 0, 0);
    }
    float totals[2 * N / 8];
#pragma unroll
    for (int i = 0; i < 2 * N / 8; i++) totals[i] = 0.f;
    int count = 0, tiles = s.batch * s.tiles_y * s.tiles_x;
    bool fresh = true;
    u32 weight_base = shared_address(weights), tile_base = shared_address(tile);
    for (int at = blockIdx.x; at < tiles; at += gridDim.x, fresh = false) {
        int n = at / (s.tiles_y * s.tiles_x), rest = at - n * (s.tiles_y * s.tiles_x);
        int oy0 = rest / s.tiles_x * TH, ox0 = rest % s.tiles_x * 16;
        const float* from = image + (long long)n * s.stride_n;
        __syncthreads();
#pragma unroll 6
        for (int i = tid; i < STEM_CHANNELS * LINES * COLUMNS; i += 256) {
            int line = i / COLUMNS, x = i - line * COLUMNS, c = line / LINES, y = line - c * LINES;
            int iy = 2 * oy0 + y - 3, ix = 2 * ox0 + x - 3;
            bool ok = (u32)iy < (u32)s.height && (u32)ix < (u32)s.width;
            float v = ok ? __ldg(from + (long long)c * s.stride_c + (long long)iy * s.stride_y + (long long)ix * s.stride_x) : 0.f;
            tile[line * PITCH + x] = element::from_float(v);
        }
        __syncthreads();

        float acc[MI][NJ][4];
        clear(acc);
        constexpr int STEPS = WIDE ? TAP_ROWS : STEM_K / 16;
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            constexpr int PER = WIDE ? 1 : 2;
            int r0 = k * PER, r1 = r0 + 1 < TAP_ROWS ? r0 + 1 : r0;
            int line0 = r0 / 7 * LINES + r0 % 7, line1 = r1 / 7 * LINES + r1 % 7;
            factor<4> a[MI];
#pragma unroll
            for (int i = 0; i < MI; i++) {
                int y = 2 * (warp * MI + i);
                u32 raw[4];
                if constexpr (WIDE) {
                    u32 p = tile_base + ((line0 + y) * PITCH + 2 * g + t) * 4;
                    raw[0] = load_word(p), raw[1] = load_word(p + 64), raw[2] = load_word(p + 16), raw[3] = load_word(p + 80);
                } else {
                    u32 p = tile_base + (line0 + y) * (PITCH * 2) + (g + t) * 4;
                    u32 q = tile_base + (line1 + y) * (PITCH * 2) + (g + t) * 4;
                    raw[0] = load_word(p), raw[1] = load_word(p + 32), raw[2] = load_word(q), raw[3] = load_word(q + 32);
                }
                a[i].set(raw);
            }
#pragma unroll
            for (int j = 0; j < NJ; j += 2) {
                u32 raw[4];
                int r = j * 8 + (lane & 7) + ((lane >> 4) << 3);
                load_matrices(raw, weight_base + (r * ROW + k * STEP + ((lane >> 3) & 1) * V) * sizeof(E));
                factor<2> b[2];
                b[0].set(raw);
                b[1].set(raw + 2);
#pragma unroll
                for (int i = 0; i < MI; i++) {
                    multiply(acc[i][j], a[i], b[0]);
                    multiply(acc[i][j + 1], a[i], b[1]);
                }
            }
        }
        if (fresh) {  // deviations are taken about the warp's first output
            if (g == 0) {
#pragma unroll
                for (int k = 0; k < N / V; k++)
#pragma unroll
                    for (int e = 0; e < V; e++)
                        shifts[warp][k * 4 * V + t * V + e] = stored(acc[0][k * (V / 2) + e / 2][e & 1]);
            }
            __syncwarp();
        }
        float sums[2 * N];
#pragma unroll
        for (int k = 0; k < N / V; k++) {
            int c = k * 4 * V + t * V;
            float base[V];
#pragma unroll
            for (int e = 0; e < V; e++) base[e] = shifts[warp][c + e], sums[k * V + e] = sums[N + k * V + e] = 0.f;
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    int oy = oy0 + warp * MI + i, ox = ox0 + g + 8 * h;
                    if (oy >= s.out_height || ox >= s.out_width) continue;
                    float f[V];
                    results(acc, i, h, k, f);
                    uint4 v = element::pack(f);
                    if (column0 + c < s.channels)
                        store_vector(z + (((long long)n * s.out_height + oy) * s.out_width + ox) * s.ld + column0 + c, v);
                    element::unpack(v, f);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        float d = f[e] - base[e];
                        sums[k * V + e] += d;
                        sums[N + k * V + e] = fmaf(d, d, sums[N + k * V + e]);
                    }
                }
        }
        reduce_rows<2 * N>(sums, lane);
#pragma unroll
        for (int i = 0; i < 2 * N / 8; i++) totals[i] += sums[i];
        int lines = min(max(s.out_height - oy0 - warp * MI, 0), MI);
        count += lines * min(s.out_width - ox0, 16);
    }
    __syncthreads();
    float* shared = (float*)weights;  // [8 warps][2][TN], then [8] counts
    int base = reduced_index<2 * N>(lane);
#pragma unroll
    for (int i = 0; i < 2 * N / 8; i++) {
        int index = base + i, half = index / N, c = index % N;
        shared[(warp * 2 + half) * TN + (c / V) * 4 * V + t * V + c % V] = totals[i];
    }
    if (lane == 0) shared[16 * TN + warp] = (float)count;
    __syncthreads();
    if (tid < TN && column0 + tid < s.channels) {
        moments m = {0.f, 0.f, 0.f};
        for (int w = 0; w < 8; w++)
            m = combine(m, moments_of(shared[16 * TN + w], shifts[w][tid], shared[(w * 2) * TN + tid],
                                      shared[(w * 2 + 1) * TN + tid]));
        float* row = part + (long long)blockIdx.x * 2 * s.channels + column0 + tid;
        row[0] = m.mean;
        row[s.channels] = m.deviations;
        if (tid == 0 && column0 == 0) part[(long long)gridDim.x * 2 * s.channels + blockIdx.x] = m.count;
    }
}
