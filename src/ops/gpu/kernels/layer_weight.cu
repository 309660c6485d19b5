// ws[split][o][c] = Σ_{p in split} dy[p, o]·relu(scale[c]·x[p, c] + shift[c]): the weight gradient of `layer_forward`.
//
// x: [P, C] (ld_x), dy: [P, out] (ld_y). A split is `per` pixels, a multiple of 32; `reduce_partials` adds the splits in order.
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh normed.cuh. Grid (ceil(out/TILE_M)·ceil(C/TILE_N), ceil(P/per)), block 256.
// Workspace splits·out·C floats. C, out and strides are multiples of 8. Bytes: x once per row tile, dy once per column tile.

struct layer_weight_sizes {
    int pixels, channels, out, ld_x, ld_y, per;
};

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
layer_weight(const E* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
             const E* __restrict__ dy, float* __restrict__ ws, const __grid_constant__ layer_weight_sizes s) {
    constexpr int TM = TILE_M, TN = TILE_N, A = PIXELS * TM * sizeof(E), STAGE = A + PIXELS * TN * sizeof(E);
    constexpr int CA = TM / V, CB = TN / V, RA = 256 / CA, RB = 256 / CB, MI = TM / 64, NJ = TN / 16;
    __shared__ __align__(128) unsigned char shared[3 * STAGE];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp & 3, wn = warp >> 2;
    OF_IMAGE(x, (long long)s.pixels * s.ld_x);
    OF_IMAGE(dy, (long long)s.pixels * s.ld_y);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    OF_IMAGE(ws, (long long)gridDim.y * s.out * s.channels);
    int tiles_n = (s.channels + TN - 1) / TN, n0 = blockIdx.x % tiles_n * TN, m0 = blockIdx.x / tiles_n * TM;
    long long begin = (long long)blockIdx.y * s.per, end = begin + s.per < s.pixels ? begin + s.per : s.pixels;
    int steps = (int)((end - begin + PIXELS - 1) / PIXELS);
    int ca = tid % CA, ra = tid / CA, cb = tid % CB, rb = tid / CB, o = m0 + ca * V, c = n0 + cb * V;
    float a_of[NJ], b_of[NJ];
#pragma unroll
    for (int j = 0; j < NJ; j++) {
        int column = n0 + wn * (TN / 2) + j * 8 + (lane >> 2);
        a_of[j] = column < s.channels ? __ldg(scale + column) : 0.f;
        b_of[j] = column < s.channels ? __ldg(shift + column) : 0.f;
    }
    // Where this thread's chunks of the next tile lie, in chunks, and how many pixels there are from its first row on.
    u32 ld_a = s.ld_y / V, ld_b = s.ld_x / V, at_a = (u32)(begin + ra) * ld_a + o / V, at_b = (u32)(begin + rb) * ld_b + c / V;
    int left_a = o < s.out ? (int)(end - begin) - ra : 0, left_b = c < s.channels ? (int)(end - begin) - rb : 0;
    u32 to_a = column_offset<TM>(ra, ca), to_b = A + column_offset<TN>(rb, cb);
    auto fetch = [&](unsigned char* stage) {
        u32 base = shared_address(stage);
#pragma unroll
        for (int i = 0; i < PIXELS / RA; i++)
            copy_async(base + to_a + i * RA * COLUMN_ROW<TM>, (const uint4*)dy + (at_a + i * RA * ld_a), left_a > i * RA);
#pragma unroll
        for (int i = 0; i < PIXELS / RB; i++)
            copy_async(base + to_b + i * RB * COLUMN_ROW<TN>, (const uint4*)x + (at_b + i * RB * ld_b), left_b > i * RB);
        at_a += PIXELS * ld_a, at_b += PIXELS * ld_b, left_a -= PIXELS, left_b -= PIXELS;
    };
    float acc[MI][NJ][4];
    clear(acc);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (i < steps) fetch(shared + i * STAGE);
        commit_copies();
    }
    int now = 0, next = 2;
    for (int i = 0; i < steps; i++) {
        wait_copies<1>();
        __syncthreads();
        if (i + 2 < steps) fetch(shared + next * STAGE);
        commit_copies();
        u32 a = shared_address(shared + now * STAGE);
        // Pixels beyond the end are zeros in dy, whatever the norm makes of them in x.
        multiply_columns_normed<MI, NJ, TM, TN>(acc, a, a + A, wm * (TM / 4), wn * (TN / 2), lane, a_of, b_of);
        now = now == 2 ? 0 : now + 1;
        next = next == 2 ? 0 : next + 1;
    }
    wait_copies<0>();
    float* split = ws + (long long)blockIdx.y * s.out * s.channels;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = m0 + wm * (TM / 4) + i * 16 + h * 8 + (lane >> 2);
            if (row >= s.out) continue;
#pragma unroll
            for (int j = 0; j < NJ; j++) {
                int column = n0 + wn * (TN / 2) + j * 8 + (lane & 3) * 2;
                if (column < s.channels)
                    *(float2*)(split + (long long)row * s.channels + column) =
                        make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
            }
        }
}
