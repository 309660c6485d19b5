// ws[split][o][tap·in + c] = Σ_{p in split} dy[p, o]·x[pixel(p, tap), c]: the weight gradient of `conv_forward`.
//
// x: [batch·height·width, in] (ld_x), dy: [P, out] (ld_y). A split is `per` output pixels, a multiple of 32; splits are added
// in order by `reduce_partials`. Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh.
// Grid (ceil(out/TILE_M)·ceil(taps·in/TILE_N), ceil(P/per)), block 256. Workspace splits·out·taps·in floats.

#ifndef TILE_M
#define TILE_M 128
#endif

struct conv_backward_weight_sizes {
    conv_sizes conv;
    int per, zero;
};

extern "C" __global__ void __launch_bounds__(256, CHUNKED || NARROW ? BLOCKS : 1)
conv_backward_weight(const E* __restrict__ x, const E* __restrict__ dy, float* __restrict__ ws,
                     const __grid_constant__ conv_backward_weight_sizes s) {
    constexpr int TM = TILE_M, TN = TILE_N, A = PIXELS * TM * sizeof(E), STAGE = A + PIXELS * TN * sizeof(E);
    constexpr int CA = TM / V, CB = TN / V, RA = 256 / CA, RB = 256 / CB;  // chunks a row, rows at once
    constexpr int ROUNDS = (PIXELS + RA - 1) / RA;
    __shared__ __align__(1024) unsigned char shared[3 * STAGE];
    const conv_sizes& v = s.conv;
    int tid = threadIdx.x, lane = tid & 31;
    int width_k = v.kh * v.kw * v.in, tiles_n = (width_k + TN - 1) / TN;
    int n0 = blockIdx.x % tiles_n * TN, m0 = blockIdx.x / tiles_n * TM;
    long long rows = (long long)v.batch * v.out_height * v.out_width;
    long long begin = (long long)blockIdx.y * s.per, end = begin + s.per < rows ? begin + s.per : rows;
    int steps = (int)((end - begin + PIXELS - 1) / PIXELS);

    int ca = tid % CA, ra = tid / CA, cb = tid % CB, rb = tid / CB;
    int o = m0 + ca * V, k = n0 + cb * V, tap = k / v.in, ky = tap / v.kw;
    [[maybe_unused]] int c = k - tap * v.in, kx = tap - ky * v.kw;

    // Where this thread's rows of the next tile lie in the input, for its tap where it has one, else for tap (0, 0): line and column, and
    // the first pixel of the image. Moved on by PIXELS output pixels a tile.
    constexpr int SLOTS = (PIXELS + RB - 1) / RB;
    int slot_n[SLOTS], slot_y[SLOTS], slot_x[SLOTS], image = v.out_height * v.out_width, pixels = v.height * v.width;
    int first_y = (CHUNKED ? ky : 0) - v.pad_y, first_x = (CHUNKED ? kx : 0) - v.pad_x;
    int end_y = v.out_height * v.stride_y + first_y, end_x = v.out_width * v.stride_x + first_x;
    int step_n = PIXELS / image * pixels, step_y = PIXELS % image / v.out_width * v.stride_y;
    int step_x = PIXELS % image % v.out_width * v.stride_x;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        u32 p = (u32)(begin + rb + i * RB), line = p / v.out_width, n = line / v.out_height;
        slot_n[i] = n * pixels;
        slot_y[i] = (int)(line - n * v.out_height) * v.stride_y + first_y;
        slot_x[i] = (int)(p - line * v.out_width) * v.stride_x + first_x;
    }
    // The input pixel of slot i, `dy_` lines and `dx_` columns on; −1 in the padding.
    auto input_pixel = [&](int i, int dy_, int dx_) {
        int iy = slot_y[i] + dy_, ix = slot_x[i] + dx_;
        return (u32)iy < (u32)v.height && (u32)ix < (u32)v.width ? slot_n[i] + iy * v.width + ix : -1;
    };
    auto advance = [&]() {
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            slot_x[i] += step_x;
            slot_y[i] += step_y;
            slot_n[i] += step_n;
            if (slot_x[i] >= end_x) slot_x[i] -= v.out_width * v.stride_x, slot_y[i] += v.stride_y;
            if (slot_y[i] >= end_y) slot_y[i] -= v.out_height * v.stride_y, slot_n[i] += pixels;
        }
    };
#if CHUNKED
    // As in `layer_weight`.
    u32 ld_a = v.ld_y / V, ld_b = v.ld_x / V, at_a = (u32)(begin + ra) * ld_a + o / V, at_b = c / V;
    int left_a = o < v.out && ra < PIXELS ? (int)(end - begin) - ra : 0, left_b = k < width_k ? (int)(end - begin) - rb : 0;
    u32 to_a = column_offset<TM>(ra, ca), to_b = A + column_offset<TN>(rb, cb);
#endif
    auto fetch = [&](unsigned char* stage, [[maybe_unused]] int step) {
#if CHUNKED
        u32 base = shared_address(stage);
#pragma unroll
        for (int i = 0; i < ROUNDS; i++)
            if (RA <= PIXELS || ra < PIXELS)
                copy_async(base + to_a + i * RA * COLUMN_ROW<TM>, (const uint4*)dy + (at_a + i * RA * ld_a), left_a > i * RA);
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            int q = input_pixel(i, 0, 0);
            copy_async(base + to_b + i * RB * COLUMN_ROW<TN>, (const uint4*)x + ((u32)q * ld_b + at_b), q >= 0 && left_b > i * RB);
        }
        at_a += PIXELS * ld_a, left_a -= PIXELS, left_b -= PIXELS;
#else
        long long p0 = begin + (long long)step * PIXELS;
        for (int i = 0; i < ROUNDS; i++) {
            long long p = p0 + ra + i * RA;
            if (ra >= PIXELS) break;
            __align__(16) E values[V];
            for (int e = 0; e < V; e++)
                values[e] = p < end && o + e < v.out ? dy[p * v.ld_y + o + e] : element::from_float(0.f);
            *(uint4*)(stage + column_offset<TM>(ra + i * RA, ca)) = *(uint4*)values;
        }
        for (int i = 0; i < SLOTS; i++) {
            long long p = p0 + rb + i * RB;
            __align__(16) E values[V];
            for (int e = 0; e < V; e++) {
                int ke = k + e, te = ke / v.in, ye = te / v.kw;
                int q = p < end && ke < width_k ? input_pixel(i, ye, te - ye * v.kw) : -1;
                values[e] = q >= 0 ? x[(long long)q * v.ld_x + (ke - te * v.in)] : element::from_float(0.f);
            }
            *(uint4*)(stage + A + column_offset<TN>(rb + i * RB, cb)) = *(uint4*)values;
        }
#endif
        advance();
    };

    typedef columns_form<TM, TN> form;
    constexpr int MI = form::MI, NJ = form::NJ;
    float acc[form::PRODUCTS][NJ][4], sums[MI][NJ][4];
    clear(acc);
    auto begin_product = [&](u32 a) {
        if constexpr (form::GROUPS) form::begin(acc, a, a + A);
    };
    each_tile<STAGE, true>(steps, shared, fetch, begin_product, [&](u32 a, int) {
        if constexpr (!form::GROUPS) form::begin(acc, a, a + A);
        finish_product(acc);
    });
    form::add_up(sums, acc, shared);
    float* split = ws + (long long)blockIdx.y * v.out * width_k;
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = m0 + form::row() + i * 16 + h * 8 + (lane >> 2);
            if (row >= v.out) continue;
#pragma unroll
            for (int j = 0; j < NJ; j++) {
                int column = n0 + form::column() + j * 8 + (lane & 3) * 2;
                float* at = split + (long long)row * width_k + column;
                if (width_k % 2 == 0) {
                    if (column < width_k) *(float2*)at = make_float2(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
                } else {
                    if (column < width_k) at[0] = sums[i][j][2 * h];
                    if (column + 1 < width_k) at[1] = sums[i][j][2 * h + 1];
                }
            }
        }
}
