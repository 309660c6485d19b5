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
constexpr int RING_TABLE = 128, RING_ROWS = RING_TABLE + 128 * 16;  // barriers; image, y, x and place of each row
constexpr int RING_FIRST = 3072, RING_STAGE = 16384 + TILE_N * 128, RING_BYTES = RING_FIRST + RING_STAGES * RING_STAGE;
static_assert(RING_ROWS <= RING_FIRST, "the table lies before the stages");

// A matrix of rows of 128 bytes, swizzled so, from a multiple of 1,024 on.
__device__ __forceinline__ u64 ring_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

// The product of a tile of 128 rows and TILE_N columns. Row r reads source pixel (image, y + direction·ty, x + direction·tx) for taps
// ty < ny, tx < nx, as its entry (image·height, y, x, place) of the table says; y < −2^29 for none. Weights row n holds tap
// (ky0 + step_y·ty)·kw + kx0 + step_x·tx at [tap·channels + c].
struct ring {
    const E* source;
    const E* weights;
    int ld, height, width, channels, ny, nx, direction;
    int row_length, kw, ky0, kx0, step_y, step_x, columns, column0;

    static __device__ __forceinline__ int4* table(unsigned char* shared) { return (int4*)(shared + RING_TABLE); }

    // By all threads, after the table's rows have been written by any.
    static __device__ __forceinline__ void begin(unsigned char* shared) {
        u32 full = shared_address(shared);
        if (threadIdx.x < RING_STAGES) {
            bar_init(full + 8 * threadIdx.x, COPIERS);
            bar_init(full + 8 * (RING_STAGES + threadIdx.x), MULTIPLIERS / 32);
        }
        publish();
        __syncthreads();
    }

    // By the threads that copy. `map`: where it is not null, the results' own elements there (`ld_map` a row, at their places) follow as
    // one more step.
    __device__ __forceinline__ void copy(unsigned char* shared, const E* map = nullptr, int ld_map = 0) const {
        int t = threadIdx.x - MULTIPLIERS, chunk = t & 7, first = t >> 3, stage = 0;
        u32 full = shared_address(shared), empty = full + 8 * RING_STAGES, phase = 1, place = full + RING_FIRST + swizzled(first, chunk);
        const int4* rows = table(shared) + first;
        int column = column0 + permuted(first);
        const E* from_weights = weights + (long long)column * row_length + chunk * 8;
        for (int ty = 0; ty < ny; ty++)
            for (int tx = 0; tx < nx; tx++) {
                u32 pixels[128 / COPIED];
#pragma unroll
                for (int i = 0; i < 128 / COPIED; i++) {
                    int4 row = rows[i * COPIED];
                    int sy = row.y + direction * ty, sx = row.z + direction * tx;
                    bool ok = (u32)sy < (u32)height && (u32)sx < (u32)width;
                    pixels[i] = ok ? (u32)((row.x + sy) * width + sx) : ~0u;
                }
                const E* w = from_weights + ((ky0 + step_y * ty) * kw + kx0 + step_x * tx) * channels;
                const E* a = source + chunk * 8;
                for (int c = 0; c < channels; c += 64, a += 64, w += 64) {
                    bar_wait(empty + 8 * stage, phase);
                    u32 to = place + stage * RING_STAGE;
#pragma unroll
                    for (int i = 0; i < 128 / COPIED; i++) {
                        bool ok = pixels[i] != ~0u;
                        copy_async(to + i * (COPIED * 128), ok ? a + (u64)pixels[i] * (u32)ld : a, ok);
                    }
#pragma unroll
                    for (int i = 0; i < TILE_N / COPIED; i++) {
                        constexpr int TURN = 32 / COPIED;
                        int lower = i % TURN * COPIED, further = i / TURN * 32 + lower / 8 * 2 + lower % 8 / 2 * V;
                        bool ok = column + further < columns;
                        copy_async(to + 16384 + i * (COPIED * 128), ok ? w + (long long)further * row_length : w, ok);
                    }
                    bar_arrive_after_copies(full + 8 * stage);
                    if (++stage == RING_STAGES) stage = 0, phase ^= 1;
                }
            }
        if (map == nullptr) return;
        bar_wait(empty + 8 * stage, phase);
        u32 to = place + stage * RING_STAGE;
#pragma unroll
        for (int i = 0; i < 128 / COPIED; i++) {
            int4 row = rows[i * COPIED];
            const E* at = map + (u64)(u32)row.w * (u32)ld_map + column0 + chunk * 8;
#pragma unroll
            for (int half = 0; half < TILE_N / 64; half++) {
                bool ok = row.y > -(1 << 29) && column0 + half * 64 + chunk * 8 < columns;
                copy_async(to + half * 16384 + i * (COPIED * 128), ok ? at + half * 64 : map, ok);
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
        uint4 v;
        u32 at = tile + (k >> 1) * 16384 + swizzled(r, (k & 1) * 4 + run);
        asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at));
        return v;
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
        if (warpgroup_index() == 0) asm volatile("bar.sync 1, 128;" ::: "memory");
        else asm volatile("bar.sync 2, 128;" ::: "memory");
    }
};
