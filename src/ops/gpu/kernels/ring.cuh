// The rows form of `conv.cuh` for Hopper: D[m][n] = Σ_k A[m][k]·B[n][k] with A's rows gathered from pixels, by warps of two kinds.
//
// 256 threads multiply (a warpgroup has 64 rows and all columns), the others copy: steps of 64 channels of a tap into a ring of stages,
// 128 bytes a row with the hardware's 128-byte swizzle. Only 2-byte elements. Channels are multiples of 64.

#ifndef RING_BLOCKS  // a multiprocessor
#define RING_BLOCKS 2
#endif
#ifndef RING_STAGES
#define RING_STAGES (RING_BLOCKS == 1 ? (TILE_N == 64 ? 8 : 6) : (TILE_N == 64 ? 4 : 3))
#endif
#ifndef RING_COPIERS
#define RING_COPIERS (RING_BLOCKS == 1 ? 128 : 64)
#endif
constexpr int MULTIPLIERS = 256, COPIERS = RING_COPIERS, COPIED = COPIERS / 8;  // rows copied at once
constexpr int RING_TABLE = 128, RING_ROWS = RING_TABLE + 128 * 16;  // barriers; the rows
constexpr int RING_FIRST = 3072, RING_STAGE = 16384 + TILE_N * 128, RING_BYTES = RING_FIRST + RING_STAGES * RING_STAGE;
static_assert(RING_ROWS <= RING_FIRST, "the table lies before the stages");

// A matrix of rows of 128 bytes, swizzled so, from a multiple of 1,024 on.
__device__ __forceinline__ u64 ring_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ uint4 load_shared(u32 at) {
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
    return v;
}

// The product of a tile of 128 rows and TILE_N columns. Row r reads source pixel (image, y + direction·ty, x + direction·tx) for taps
// ty < ny, tx < nx (at most 32 of them), zeros outside the image. Weights row n holds tap
// (ky0 + step_y·ty)·kw + kx0 + step_x·tx at [tap·channels + c].
struct ring {
    const E* source;
    const E* weights;
    int ld, height, width, channels, ny, nx, direction;
    int row_length, kw, ky0, kx0, step_y, step_x, columns, column0;

    // A row: its pixel at the first tap, which of its taps lie in the image (a bit each), and the place of its results, −1 for no row.
    static __device__ __forceinline__ int4* table(unsigned char* shared) { return (int4*)(shared + RING_TABLE); }
    __device__ __forceinline__ void write_row(unsigned char* shared, int r, bool there, int image, int y, int x, int place) const {
        u32 taps = 0;
        for (int ty = 0, tap = 0; ty < ny; ty++)
            for (int tx = 0; tx < nx; tx++, tap++) {
                int sy = y + direction * ty, sx = x + direction * tx;
                if (there && (u32)sy < (u32)height && (u32)sx < (u32)width) taps |= 1u << tap;
            }
        table(shared)[r] = make_int4((image * height + y) * width + x, (int)taps, there ? place : -1, 0);
    }

    // By all threads, after the rows have been written by any.
    static __device__ __forceinline__ void begin(unsigned char* shared) {
        begin_ring<RING_STAGES>(shared_address(shared), COPIERS, MULTIPLIERS / 32);
    }

    // By the threads that copy. `map`: where it is not null, the results' own elements there (`ld_map` a row, at their places) follow as
    // one more step. Rows lie within 2^31 bytes of the tile's first.
    __device__ __forceinline__ void copy(unsigned char* shared, const E* map = nullptr, int ld_map = 0) const {
        int t = threadIdx.x - MULTIPLIERS, chunk = t & 7, first = t >> 3, stage = 0, steps = channels / 64;
        u32 full = shared_address(shared), empty = full + 8 * RING_STAGES, phase = 1, place = full + RING_FIRST + swizzled(first, chunk);
        const int4* rows = table(shared);
        int corner = rows[0].x, offset[128 / COPIED], below[TILE_N / COPIED];
        u32 taps[128 / COPIED];
#pragma unroll
        for (int i = 0; i < 128 / COPIED; i++) {
            int4 row = rows[first + i * COPIED];
            offset[i] = (int)((u32)(row.x - corner) * (u32)ld * 2);
            taps[i] = row.y;
        }
#pragma unroll
        for (int i = 0; i < TILE_N / COPIED; i++) {  // columns that do not exist read the first, and are not stored
            int column = column0 + permuted(first + i * COPIED);
            below[i] = column < columns ? (column - column0) * row_length * 2 : 0;
        }
        const char* from = (const char*)(source + (long long)corner * ld + chunk * 8);
        const char* from_weights = (const char*)(weights + (long long)column0 * row_length + chunk * 8);
        u32 bit = 1;
        for (int ty = 0; ty < ny; ty++)
            for (int tx = 0; tx < nx; tx++, bit <<= 1) {
                const char* a = from + (long long)(direction * (ty * width + tx)) * ld * 2;
                const char* w = from_weights + ((ky0 + step_y * ty) * kw + kx0 + step_x * tx) * channels * 2;
                for (int k = 0; k < steps; k++, a += 128, w += 128) {
                    bar_wait(empty + 8 * stage, phase);
                    u32 to = place + stage * RING_STAGE;
#pragma unroll
                    for (int i = 0; i < 128 / COPIED; i++) copy_async(to + i * (COPIED * 128), a + offset[i], taps[i] & bit);
#pragma unroll
                    for (int i = 0; i < TILE_N / COPIED; i++) copy_async(to + 16384 + i * (COPIED * 128), w + below[i], true);
                    bar_arrive_after_copies(full + 8 * stage);
                    if (++stage == RING_STAGES) stage = 0, phase ^= 1;
                }
            }
        if (map == nullptr) return;
        bar_wait(empty + 8 * stage, phase);
        u32 to = place + stage * RING_STAGE;
#pragma unroll
        for (int i = 0; i < 128 / COPIED; i++) {
            int at = rows[first + i * COPIED].z;
            const E* row = map + (u64)(u32)max(at, 0) * (u32)ld_map + column0 + chunk * 8;
#pragma unroll
            for (int half = 0; half < TILE_N / 64; half++) {
                bool ok = at >= 0 && column0 + half * 64 + chunk * 8 < columns;
                copy_async(to + half * 16384 + i * (COPIED * 128), ok ? row + half * 64 : map, ok);
            }
        }
        bar_arrive_after_copies(full + 8 * stage);
    }
    // The stage behind the last step, once `map` lies there.
    __device__ __forceinline__ u32 tile_of_map(unsigned char* shared) const {
        int steps = ny * nx * (channels / 64);
        u32 full = shared_address(shared), stage = steps % RING_STAGES;
        bar_wait(full + 8 * stage, steps / RING_STAGES & 1);
        return full + RING_FIRST + stage * RING_STAGE;
    }
    // 8 elements of it: row r, columns from k·32 + run·8 on.
    static __device__ __forceinline__ uint4 of_map(u32 tile, int r, int k, int run) {
        return load_shared(tile + (k >> 1) * 16384 + swizzled(r, (k & 1) * 4 + run));
    }

    // `prepare(k, bar, phase, tile)` waits for step k and may change the 64 rows of it that this warpgroup multiplies.
    template <class F>
    __device__ __forceinline__ void multiply(float (&c)[TILE_N / 2], unsigned char* shared, F prepare) const {
        int steps = ny * nx * (channels / 64), stage = 0;
        u32 full = shared_address(shared), empty = full + 8 * RING_STAGES, phase = 0, before = 0;
        u64 first = ring_descriptor(full + RING_FIRST + (threadIdx.x >> 7) * 8192), tiles = ring_descriptor(full + RING_FIRST + 16384);
        auto turn = [&](int k) {
            prepare(k, full + 8 * stage, phase, full + RING_FIRST + stage * RING_STAGE + (threadIdx.x >> 7) * 8192);
            u64 a = first + stage * (RING_STAGE >> 4), b = tiles + stage * (RING_STAGE >> 4);
            begin_products();
#pragma unroll
            for (int i = 0; i < 4; i++) product<element, TILE_N, 0, 0>::add(c, a + 2 * i, b + 2 * i);
            commit_products();
        };
        auto next = [&]() {
            before = empty + 8 * stage;
            if (++stage == RING_STAGES) stage = 0, phase ^= 1;
        };
        if (steps == 0) return;
        turn(0);
        next();
#pragma unroll 1
        for (int k = 1; k < steps; k++) {
            turn(k);
            wait_products<1>();
            if ((threadIdx.x & 31) == 0) bar_arrive(before);
            next();
        }
        wait_products<0>();
        settle(c);
        if ((threadIdx.x & 31) == 0) bar_arrive(before);
    }

    // Waits for a step.
    static __device__ __forceinline__ void await(int, u32 bar, u32 phase, u32) {
        bar_wait(bar, phase);
        publish();
    }
};

// Waits for a step and puts relu(scale·x + shift) in the place of its rows.
struct normalise {
    const float* scale;
    const float* shift;
    __device__ __forceinline__ void operator()(int k, u32 bar, u32 phase, u32 tile) const {
        int t = threadIdx.x & 127, chunk = t & 7;
        bar_wait(bar, phase);
        normalise_rows<4, 16>(tile + swizzled(t >> 3, chunk), scale, shift, k * 64 + chunk * 8);
        publish();
        if (warpgroup_index() == 0) asm volatile("bar.sync 2, 128;" ::: "memory");
        else asm volatile("bar.sync 3, 128;" ::: "memory");
    }
};

__device__ __forceinline__ void sync_multipliers() { asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory"); }

// Writes the results of a tile of `left` rows to y, whose rows lie one behind the other, by way of shared memory: whole lines of memory,
// and sums over the rows in the order of their numbers. `part` (where not null) gets their statistics as stored, about the first row, in
// row `block` of `blocks`.
__device__ __forceinline__ void store_tile(const float (&acc)[1][TILE_N / 8][4], unsigned char* shared, E* y, int ld, int left, int column0,
                                           int columns, float* part, int block, int blocks) {
    constexpr int CHUNKS = TILE_N / 8, ROWS_AT_ONCE = MULTIPLIERS / CHUNKS;
    u32 tile = shared_address(shared) + RING_FIRST;
    float* sums = (float*)(shared + RING_FIRST + 32768);  // [ROWS_AT_ONCE][2][TILE_N], then [2][TILE_N]
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    sync_multipliers();
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int k = 0; k < TILE_N / 32; k++) {
            float f[V];
            results(acc, 0, h, k, f);
            uint4 v = element::pack(f);
            u32 at = tile + (k >> 1) * 16384 + swizzled(warp * 16 + h * 8 + (lane >> 2), (k & 1) * 4 + (lane & 3));
            asm volatile("st.shared.v4.b32 [%0],{%1,%2,%3,%4};" ::"r"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
        }
    sync_multipliers();
    int chunk = t % CHUNKS, row = t / CHUNKS, c = column0 + chunk * 8;
    tile += (chunk >> 3) * 16384;
    if (part == nullptr) {
#pragma unroll
        for (int i = 0; i < 128; i += ROWS_AT_ONCE)
            if (row + i < left && c < columns) store_vector(y + (long long)(row + i) * ld + c, load_shared(tile + swizzled(row + i, chunk & 7)));
        return;
    }
    float about[V], sum[V] = {}, squares[V] = {};
    element::unpack(load_shared(tile + swizzled(0, chunk & 7)), about);
#pragma unroll
    for (int i = 0; i < 128; i += ROWS_AT_ONCE) {
        uint4 v = load_shared(tile + swizzled(row + i, chunk & 7));
        if (row + i >= left) continue;
        if (c < columns) store_vector(y + (long long)(row + i) * ld + c, v);
        float f[V];
        element::unpack(v, f);
#pragma unroll
        for (int e = 0; e < V; e++) {
            float d = f[e] - about[e];
            sum[e] += d;
            squares[e] = fmaf(d, d, squares[e]);
        }
    }
    float* mine = sums + row * (2 * TILE_N) + chunk * 8;
#pragma unroll
    for (int e = 0; e < V; e += 4) {
        *(float4*)(mine + e) = make_float4(sum[e], sum[e + 1], sum[e + 2], sum[e + 3]);
        *(float4*)(mine + TILE_N + e) = make_float4(squares[e], squares[e + 1], squares[e + 2], squares[e + 3]);
    }
    sync_multipliers();
    float* totals = sums + ROWS_AT_ONCE * (2 * TILE_N);
    if (t < 2 * TILE_N) {
        float total = 0.f;
#pragma unroll
        for (int i = 0; i < ROWS_AT_ONCE; i++) total += sums[i * (2 * TILE_N) + t];
        totals[t] = total;
    }
    sync_multipliers();
    if (t >= TILE_N) return;
    float count = (float)min(left, 128);
    if (column0 + t < columns) {
        const E* zeroth = (const E*)(shared + RING_FIRST + (t >> 6) * 16384 + swizzled(0, (t & 63) >> 3)) + (t & 7);
        moments m = moments_of(count, element::to_float(*zeroth), totals[t], totals[TILE_N + t]);
        float* to = part + (long long)block * 2 * columns + column0 + t;
        to[0] = m.mean;
        to[columns] = m.deviations;
    }
    if (t == 0 && column0 == 0) part[(long long)blocks * 2 * columns + block] = count;
}
