// z[p, o] = Σ_c Σ_ky Σ_kx image[n, c, 2y + ky − 3, 2x + kx − 3]·w[o, c, ky, kx]: the stem's convolution.
//
// image: elements [N, STEM_CHANNELS, H, W]; packed: `pack_weights` mode 2; z: [N·Ho·Wo, C] (ld); part: statistics of z as stored.
// A block keeps its weights in shared memory and takes tiles of 8 by 16 outputs, the next one's image under way; taps of a line
// of the image lie side by side, so the tensor cores' factor is read from the tile as it is, without im2col.
// Headers: tiles.cuh channels.cuh gemm.cuh stem.cuh. Grid (G, ceil(C/TN)), block 128, G = min(N·tiles_y·tiles_x, 4·SMS),
// tiles of 8 by 16, TN = 64 or (4-byte E) 32; rows = G. Bytes: the image once per TN channels, z once.

// Before Hopper, 4-byte elements and columns one by one take more registers than four blocks leave each other.
extern "C" __global__ void __launch_bounds__(128, (WIDE || !STEM_FOURS) && __CUDA_ARCH__ < 900 ? 2 : element::parts == 2 ? 2 : 4)
stem_forward(const E* __restrict__ image, const E* __restrict__ packed, E* __restrict__ z, float* __restrict__ part,
             const __grid_constant__ stem_sizes s) {
    constexpr int MI = 2, TN = WIDE ? 32 : 64, NJ = TN / 8, N = 2 * NJ, LINES = 21, ALL = STEM_CHANNELS * LINES;
    constexpr int ROW = STEM_K + V;
    __shared__ __align__(16) E weights[TN * ROW];
    __shared__ __align__(16) E tile[2][ALL * PITCH];
    __shared__ float shifts[4][TN];
    OF_IMAGE(image, (long long)STEM_CHANNELS * s.height * s.width);
    OF_IMAGE(z, (long long)s.out_height * s.out_width * s.ld);
    OF_IMAGE(part, (long long)gridDim.x * (2 * s.channels + 1));
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, g = lane >> 2, t = lane & 3, column0 = blockIdx.y * TN;
    tile_order order(s.tiles_y, s.tiles_x);

    for (int i = tid; i < TN * (STEM_K / V); i += 128) {
        int r = i / (STEM_K / V), k = i - r * (STEM_K / V), o = column0 + permuted(r);
        *(uint4*)(weights + r * ROW + k * V) =
            o < s.channels ? load_vector(packed + (long long)o * STEM_K + k * V) : make_uint4(0, 0, 0, 0);
    }
    auto fetch = [&](int at, int buffer) {
        tile_place w = order.place(at, 8);
        u32 to = shared_address(tile[buffer]);
        constexpr int COLUMNS = STEM_FOURS ? 4 : 1, PIECES = PITCH / COLUMNS;  // of a piece, of a line
        for (int i = tid; i < ALL * PIECES; i += 128) {
            int line = i / PIECES, q = i - line * PIECES, c = line / LINES, y = line - c * LINES;
            int iy = 2 * w.oy + y - 3, ix = 2 * w.ox - 4 + COLUMNS * q;
            bool ok = (u32)iy < (u32)s.height && (u32)ix < (u32)s.width;
            const E* p = ok ? image + (long long)((w.n * STEM_CHANNELS + c) * s.height + iy) * s.width + ix : image;
            constexpr int BYTES = COLUMNS * sizeof(E);
            if constexpr (BYTES == 16) copy_async(to + i * 16, p, ok);
            else if constexpr (BYTES >= 4) copy_few_async<BYTES>(to + i * BYTES, p, ok);
            else tile[buffer][i] = ok ? *p : element::from_float(0.f);
        }
        commit_copies();
    };
    float totals[2 * N / 8];
    clear(totals);
    int count = 0, tiles = s.batch * s.tiles_y * s.tiles_x, buffer = 0;
    bool fresh = true;
    u32 weight_base = shared_address(weights);
    fetch(blockIdx.x, 0);
    for (int at = blockIdx.x; at < tiles; at += gridDim.x, fresh = false, buffer ^= 1) {
        if (at + gridDim.x < tiles) fetch(at + gridDim.x, buffer ^ 1);
        else commit_copies();
        wait_copies<1>();
        __syncthreads();
        u32 tile_base = shared_address(tile[buffer]);

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
                    u32 p = tile_base + ((line0 + y) * PITCH + 2 * (g + t)) * 2;
                    u32 q = tile_base + ((line1 + y) * PITCH + 2 * (g + t)) * 2;
                    raw[0] = load_word(p), raw[1] = load_word(p + 32), raw[2] = load_word(q), raw[3] = load_word(q + 32);
                }
                a[i].set(raw);
            }
#pragma unroll
            for (int j = 0; j < NJ; j += 2) {
                u32 raw[4];
                int r = j * 8 + (lane & 7) + ((lane >> 4) << 3);
                load_matrices(raw, weight_base + (r * ROW + k * STEP + ((lane >> 3) & 1) * V) * sizeof(E));
                multiply_two(acc, a, raw, j);
            }
        }
        __syncthreads();
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
        tile_place w = order.place(at, 8);
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
                    int oy = w.oy + warp * MI + i, ox = w.ox + g + 8 * h;
                    if (oy >= s.out_height || ox >= s.out_width) continue;
                    float f[V];
                    results(acc, i, h, k, f);
                    uint4 v = element::pack(f);
                    if (column0 + c < s.channels)
                        store_vector(z + (((long long)w.n * s.out_height + oy) * s.out_width + ox) * s.ld + column0 + c, v);
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
        count += min(max(s.out_height - w.oy - warp * MI, 0), MI) * min(s.out_width - w.ox, 16);
    }
    wait_copies<0>();
    __syncthreads();
    float* shared = (float*)weights;  // [4 warps][2][TN], then [4] counts
    int base = reduced_index<2 * N>(lane);
#pragma unroll
    for (int i = 0; i < 2 * N / 8; i++) {
        int index = base + i, half = index / N, c = index % N;
        shared[(warp * 2 + half) * TN + (c / V) * 4 * V + t * V + c % V] = totals[i];
    }
    if (lane == 0) shared[8 * TN + warp] = (float)count;
    __syncthreads();
    if (tid < TN && column0 + tid < s.channels) {
        moments m = {0.f, 0.f, 0.f};
        for (int w = 0; w < 4; w++)
            m = combine(m, moments_of(shared[8 * TN + w], shifts[w][tid], shared[(w * 2) * TN + tid],
                                      shared[(w * 2 + 1) * TN + tid]));
        float* row = part + (long long)blockIdx.x * 2 * s.channels + column0 + tid;
        row[0] = m.mean;
        row[s.channels] = m.deviations;
        if (tid == 0 && column0 == 0) part[(long long)gridDim.x * 2 * s.channels + blockIdx.x] = m.count;
    }
}
