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

extern "C" __global__ void __launch_bounds__(256, BLOCKS)
conv_backward_weight(const E* __restrict__ x, const E* __restrict__ dy, float* __restrict__ ws,
                     const __grid_constant__ conv_backward_weight_sizes s) {
    constexpr int TM = TILE_M, TN = TILE_N, A = PIXELS * TM * sizeof(E), STAGE = A + PIXELS * TN * sizeof(E);
    constexpr int CA = TM / V, CB = TN / V, RA = 256 / CA, RB = 256 / CB;  // chunks a row, rows at once
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

    // Where this thread's rows of the next tile lie: image, line and column of the output, moved on by PIXELS a tile.
    constexpr int SLOTS = PIXELS / RB;
    int slot_n[SLOTS], slot_y[SLOTS], slot_x[SLOTS], image = v.out_height * v.out_width;
    int step_n = PIXELS / image, step_y = PIXELS % image / v.out_width, step_x = PIXELS % image % v.out_width;
#pragma unroll
    for (int i = 0; i < SLOTS; i++) {
        u32 p = (u32)(begin + rb + i * RB), line = p / v.out_width;
        slot_n[i] = line / v.out_height;
        slot_y[i] = line - slot_n[i] * v.out_height;
        slot_x[i] = p - line * v.out_width;
    }
    // The input pixel of slot i under tap (dy, dx); −1 in the padding.
    auto input_pixel = [&](int i, int dy_, int dx_) -> long long {
        int iy = slot_y[i] * v.stride_y - v.pad_y + dy_, ix = slot_x[i] * v.stride_x - v.pad_x + dx_;
        if ((u32)iy >= (u32)v.height || (u32)ix >= (u32)v.width) return -1;
        return ((long long)slot_n[i] * v.height + iy) * v.width + ix;
    };
    auto advance = [&]() {
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            slot_x[i] += step_x;
            slot_y[i] += step_y;
            slot_n[i] += step_n;
            if (slot_x[i] >= v.out_width) slot_x[i] -= v.out_width, slot_y[i]++;
            if (slot_y[i] >= v.out_height) slot_y[i] -= v.out_height, slot_n[i]++;
        }
    };
    auto fetch = [&](unsigned char* stage, int step) {
        long long p0 = begin + (long long)step * PIXELS;
#if CHUNKED
        u32 a = shared_address(stage), b = a + A;
#pragma unroll
        for (int i = 0; i < PIXELS / RA; i++) {
            long long p = p0 + ra + i * RA;
            bool ok = p < end && o < v.out;
            copy_async(a + column_offset<TM>(ra + i * RA, ca), ok ? dy + p * v.ld_y + o : dy, ok);
        }
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            long long p = p0 + rb + i * RB, q = p < end && k < width_k ? input_pixel(i, ky, kx) : -1;
            copy_async(b + column_offset<TN>(rb + i * RB, cb), q >= 0 ? x + q * v.ld_x + c : x, q >= 0);
        }
#else
        for (int i = 0; i < PIXELS / RA; i++) {
            long long p = p0 + ra + i * RA;
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
                long long q = p < end && ke < width_k ? input_pixel(i, ye, te - ye * v.kw) : -1;
                values[e] = q >= 0 ? x[q * v.ld_x + (ke - te * v.in)] : element::from_float(0.f);
            }
            *(uint4*)(stage + A + column_offset<TN>(rb + i * RB, cb)) = *(uint4*)values;
        }
#endif
        advance();
    };

    typedef columns_form<TM, TN> form;
    constexpr int MI = form::MI, NJ = form::NJ;
    float acc[MI][NJ][4];
    clear(acc);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        if (i < steps) fetch(shared + i * STAGE, i);
        commit_copies();
    }
    int now = 0, next = 2;
    for (int i = 0; i < steps; i++) {
        wait_copies<1>();
        publish_tiles();
        __syncthreads();
        u32 a = shared_address(shared + now * STAGE);
        if constexpr (form::GROUPS) form::begin(acc, a, a + A);
        if (i + 2 < steps) fetch(shared + next * STAGE, i + 2);
        commit_copies();
        if constexpr (!form::GROUPS) form::begin(acc, a, a + A);
        finish_product(acc);
        now = now == 2 ? 0 : now + 1;
        next = next == 2 ? 0 : next + 1;
    }
    wait_copies<0>();
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
                    if (column < width_k) *(float2*)at = make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
                } else {
                    if (column < width_k) at[0] = acc[i][j][2 * h];
                    if (column + 1 < width_k) at[1] = acc[i][j][2 * h + 1];
                }
            }
        }
}
