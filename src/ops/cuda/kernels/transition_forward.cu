// Y[q, k] = Σ_c T[q, c]·W[k, c], T = average over 2×2 pixels of relu(scale·X + shift): norm, ReLU, 1×1 convolution and
// average pooling of a transition, pooled first because that commutes and leaves a quarter of the products.
//
// X: [N·H·W, C] (ld_x), packed: `pack_weights` mode 0, Y: [Q, K] (ld_y), Q = N·floor(H/2)·floor(W/2); part: statistics of Y.
// Headers: tiles.cuh channels.cuh gemm.cuh pooled.cuh. Grid ceil(Q/128)·ceil(K/128), block 256, rows of part ceil(Q/128).
// Bytes: X once from memory (column tiles side by side share it through L2), Y once.

struct transition_forward_sizes {
    int batch, height, width, channels, out_channels, ld_x, ld_y, row;
};

extern "C" __global__ void __launch_bounds__(256, element::parts == 2 ? 1 : 2)
transition_forward(const E* __restrict__ X, const float* __restrict__ scale, const float* __restrict__ shift,
                   const E* __restrict__ packed, E* __restrict__ Y, float* __restrict__ part,
                   const __grid_constant__ transition_forward_sizes s) {
    constexpr int TN = 128, STAGE = 16384;
    __shared__ __align__(128) unsigned char shared[2 * STAGE];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp & 3, wn = warp >> 2;
    int tiles_n = (s.out_channels + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = (long long)s.batch * (s.height / 2) * (s.width / 2), first = (long long)tile_m * 128;
    int r = tid >> 2, chunk = tid & 3, column0 = tile_n * TN, steps = (s.channels + K_TILE - 1) / K_TILE;
    long long line = (long long)s.width * s.ld_x;
    pooled_pixels pixels(s.height, s.width, s.ld_x);
    const E* a_row[2];
    const E* b_row[2];
    bool a_ok[2], b_ok[2];
#pragma unroll
    for (int i = 0; i < 2; i++) {
        long long q = first + r + i * 64;
        a_ok[i] = q < rows;
        a_row[i] = X + pixels.offset((u32)(a_ok[i] ? q : 0)) + chunk * V;
        int n = column0 + permuted(r + i * 64);
        b_ok[i] = n < s.out_channels;
        b_row[i] = packed + (b_ok[i] ? (long long)n * s.row : 0) + chunk * V;
    }
    pooled_vector ahead[2];
    auto load = [&](int k) {
        bool live = k * K_TILE + chunk * V < s.channels;
#pragma unroll
        for (int i = 0; i < 2; i++) ahead[i].load(a_row[i] + k * K_TILE, line, s.ld_x, live);
    };
    auto store = [&](int k, unsigned char* stage) {
        int c = k * K_TILE + chunk * V;
        bool live = c < s.channels;
        c = live ? c : 0;
#pragma unroll
        for (int i = 0; i < 2; i++)
            *(uint4*)(stage + row_offset(r + i * 64, chunk)) = ahead[i].average(scale + c, shift + c, live && a_ok[i]);
    };
    auto weights = [&](int k, unsigned char* stage) {
        u32 b = shared_address(stage) + 8192;
#pragma unroll
        for (int i = 0; i < 2; i++) copy_async(b + row_offset(r + i * 64, chunk), b_row[i] + k * K_TILE, b_ok[i]);
        commit_copies();
    };
    float acc[2][8][4];
    clear(acc);
    load(0);
    weights(0, shared);
    store(0, shared);
    for (int k = 0; k < steps; k++) {
        unsigned char *now = shared + (k & 1) * STAGE, *next = shared + (~k & 1) * STAGE;
        if (k + 1 < steps) load(k + 1);
        wait_copies<0>();
        __syncthreads();
        if (k + 1 < steps) weights(k + 1, next);
        u32 a = shared_address(now);
        multiply_rows<2, 8>(acc, a, a + 8192, wm * 32, wn * 64, lane);
        if (k + 1 < steps) store(k + 1, next);
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            long long q = first + wm * 32 + i * 16 + h * 8 + (lane >> 2);
            if (q >= rows) continue;
#pragma unroll
            for (int k = 0; k < 16 / V; k++) {
                float f[V];
                results(acc, i, h, k, f);
                int column = column0 + wn * 64 + k * 4 * V + (lane & 3) * V;
                if (column < s.out_channels) store_vector(Y + q * s.ld_y + column, element::pack(f));
            }
        }
    tile_statistics<2, 8, TN>(acc, (float*)shared, part, tile_m, (int)((rows + 127) / 128), first, rows, column0,
                              s.out_channels);
}
