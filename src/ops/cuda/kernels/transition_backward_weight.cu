// ws[split][k][c] = Σ_{q in split} dY[q, k]·T[q, c], T as in `transition_forward`, pooled again on load.
//
// dY: [Q, K] (ld_dy), X: [N·H·W, C] (ld_x). A split is `per` pooled pixels, a multiple of 32; `reduce_partials` adds the splits.
// Headers: tiles.cuh channels.cuh gemm.cuh pooled.cuh. Grid (ceil(K/128)·ceil(C/128), ceil(Q/per)), block 256.
// Workspace splits·K·C floats. Bytes: X and dY once per tile of the other side.

struct transition_backward_weight_sizes {
    int batch, height, width, channels, out_channels, ld_dy, ld_x, per;
};

extern "C" __global__ void __launch_bounds__(256, element::parts == 2 ? 1 : 2)
transition_backward_weight(const E* __restrict__ dY, const E* __restrict__ X, const float* __restrict__ scale,
                           const float* __restrict__ shift, float* __restrict__ ws,
                           const __grid_constant__ transition_backward_weight_sizes s) {
    constexpr int T = 128, HALF = 8192, STAGE = 2 * HALF, CHUNKS = T / V, R = 256 / CHUNKS;
    __shared__ __align__(128) unsigned char shared[2 * STAGE];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp & 3, wn = warp >> 2;
    int tiles_n = (s.channels + T - 1) / T, n0 = blockIdx.x % tiles_n * T, m0 = blockIdx.x / tiles_n * T;
    long long rows = (long long)s.batch * (s.height / 2) * (s.width / 2), line = (long long)s.width * s.ld_x;
    long long begin = (long long)blockIdx.y * s.per, end = begin + s.per < rows ? begin + s.per : rows;
    int steps = (int)((end - begin + PIXELS - 1) / PIXELS), chunk = tid % CHUNKS, r = tid / CHUNKS;
    int o = m0 + chunk * V, c = n0 + chunk * V;
    bool a_ok = o < s.out_channels, b_ok = c < s.channels;
    pooled_pixels pixels(s.height, s.width, s.ld_x);
    c = b_ok ? c : 0;
    pooled_vector ahead[2];
    auto load = [&](int k) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            long long q = begin + (long long)k * PIXELS + r + i * R;
            bool ok = b_ok && q < end;
            ahead[i].load(X + (ok ? pixels.offset((u32)q) + c : 0), line, s.ld_x, ok);
        }
    };
    auto store = [&](int k, unsigned char* stage) {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            bool ok = b_ok && begin + (long long)k * PIXELS + r + i * R < end;
            *(uint4*)(stage + HALF + column_offset<T>(r + i * R, chunk)) = ahead[i].average(scale + c, shift + c, ok);
        }
    };
    auto gradients = [&](int k, unsigned char* stage) {
        u32 a = shared_address(stage);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            long long q = begin + (long long)k * PIXELS + r + i * R;
            bool ok = a_ok && q < end;
            copy_async(a + column_offset<T>(r + i * R, chunk), ok ? dY + q * s.ld_dy + o : dY, ok);
        }
        commit_copies();
    };
    float acc[2][8][4];
    clear(acc);
    load(0);
    gradients(0, shared);
    store(0, shared);
    for (int k = 0; k < steps; k++) {
        unsigned char *now = shared + (k & 1) * STAGE, *next = shared + (~k & 1) * STAGE;
        if (k + 1 < steps) load(k + 1);
        wait_copies<0>();
        __syncthreads();
        if (k + 1 < steps) gradients(k + 1, next);
        u32 a = shared_address(now);
        multiply_columns<2, 8, T, T>(acc, a, a + HALF, wm * 32, wn * 64, lane);
        if (k + 1 < steps) store(k + 1, next);
    }
    float* split = ws + (long long)blockIdx.y * s.out_channels * s.channels;
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = m0 + wm * 32 + i * 16 + h * 8 + (lane >> 2);
            if (row >= s.out_channels) continue;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                int column = n0 + wn * 64 + j * 8 + (lane & 3) * 2;
                if (column < s.channels)
                    *(float2*)(split + (long long)row * s.channels + column) =
                        make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
            }
        }
}
