// The columns form for Hopper: D[m][n] = Σ_k A[k][m]·B[k][n] over pixels k, by warps of two kinds, as `ring.cuh` has them: steps of 64
// pixels, blocks of 64 channels, 128 bytes a pixel with the hardware's 128-byte swizzle. 256 threads multiply, 64 copy.
// Channels of both factors are multiples of 64.

#ifndef TILE_M
#define TILE_M 128
#endif
constexpr int MULTIPLIERS = 256, COPIERS = 64;
constexpr int RING_STAGE = (TILE_M + TILE_N) * 128;
#ifndef RING_STAGES
#define RING_STAGES (TILE_M + TILE_N == 256 ? 3 : TILE_M + TILE_N == 192 ? 4 : 6)
#endif
constexpr int RING_TABLE = 128, RING_FIRST = 2048, RING_BYTES = RING_FIRST + RING_STAGES * RING_STAGE;  // barriers; pixels of two steps
constexpr int RING_COLUMNS = TILE_M == 128 ? TILE_N : TILE_N / 2;  // a warpgroup's, of 64 rows

// Blocks of 64 channels by 64 pixels.
__device__ __forceinline__ u64 ring_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(8192 >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}

struct ring_columns {
    const E* x;
    const E* dy;
    int ld_x, ld_y, in, out, width_k, m0, n0;
    int batch, height, width, out_height, out_width, kw, stride_y, stride_x, pad_y, pad_x;
    long long begin, end;

    static __device__ __forceinline__ void start(unsigned char* shared) {
        begin_ring<RING_STAGES>(shared_address(shared), COPIERS, MULTIPLIERS / 32);
    }
    __device__ __forceinline__ int steps() const { return (int)((end - begin + 63) / 64); }

    // One thread knows where each of a step's pixels lies and tells the others through shared memory.
    __device__ __forceinline__ void copy(unsigned char* shared) const {
        constexpr int BLOCKS_N = TILE_N / 64;
        int t = threadIdx.x - MULTIPLIERS, chunk = t & 7, first = t >> 3, stage = 0, count = steps();
        u32 full = shared_address(shared), empty = full + 8 * RING_STAGES, phase = 1, place = full + RING_FIRST + swizzled(first, chunk);
        u32* table = (u32*)(shared + RING_TABLE);  // [2][BLOCKS_N][64]
        u32 p = (u32)(begin + t), line = p / out_width;
        int n = line / out_height, y = line - n * out_height, px = p - line * out_width, image = out_height * out_width;
        int step_n = 64 / image, step_y = 64 % image / out_width, step_x = 64 % image % out_width;
        int ky[BLOCKS_N], kx[BLOCKS_N];
        const char* from[BLOCKS_N];
#pragma unroll
        for (int b = 0; b < BLOCKS_N; b++) {
            int k = n0 + b * 64, tap = k / in;
            ky[b] = tap / kw - pad_y, kx[b] = tap % kw - pad_x;
            if (k >= width_k) ky[b] = -(1 << 30);
            from[b] = (const char*)(x + (k - tap * in) + chunk * 8);
        }
        const char* a = (const char*)(dy + (begin + first) * ld_y + m0 + chunk * 8);
        int eight = 16 * ld_y;  // bytes of 8 pixels
        u32 row_bytes = 2 * ld_x;
        bool both = m0 + 64 < out;
        for (int k = 0; k < count; k++, a += 8ll * eight) {
            u32* now = table + (k & 1) * (64 * BLOCKS_N);
            bool there = begin + k * 64ll + t < end;
#pragma unroll
            for (int b = 0; b < BLOCKS_N; b++) {
                int iy = y * stride_y + ky[b], ix = px * stride_x + kx[b];
                bool ok = there && (u32)iy < (u32)height && (u32)ix < (u32)width;
                now[b * 64 + t] = ok ? (u32)((n * height + iy) * width + ix) : ~0u;
            }
            px += step_x, y += step_y, n += step_n;
            if (px >= out_width) px -= out_width, y++;
            if (y >= out_height) y -= out_height, n++;
            asm volatile("bar.sync 2, %0;" ::"n"(COPIERS) : "memory");
            bar_wait(empty + 8 * stage, phase);
            u32 to = place + stage * RING_STAGE;
            int left = (int)min(64ll, end - begin - k * 64ll) - first;
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int m = 0; m < TILE_M / 64; m++)
                    copy_async(to + m * 8192 + i * 1024, a + i * eight + m * 128, i * 8 < left && (m == 0 || both));
#pragma unroll
            for (int b = 0; b < BLOCKS_N; b++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    u32 pixel = now[b * 64 + first + i * 8];
                    copy_async(to + TILE_M * 128 + b * 8192 + i * 1024, from[b] + (u64)pixel * row_bytes, pixel != ~0u);
                }
            bar_arrive_after_copies(full + 8 * stage);
            if (++stage == RING_STAGES) stage = 0, phase ^= 1;
        }
    }

    // `prepare(tile)` may change the step's tiles before they are multiplied, and publishes them.
    template <class F>
    __device__ __forceinline__ void multiply(float (&c)[RING_COLUMNS / 2], unsigned char* shared, F prepare) const {
        int count = steps(), stage = 0, group = threadIdx.x >> 7;
        u32 full = shared_address(shared), empty = full + 8 * RING_STAGES, phase = 0, before = 0, tiles = full + RING_FIRST;
        constexpr bool TALL = TILE_M == 128;
        u64 first = ring_descriptor(tiles + (TALL ? group * 8192 : 0));
        u64 second = ring_descriptor(tiles + TILE_M * 128 + (TALL ? 0 : group * (RING_COLUMNS == 64 ? 8192 : 64)));
        auto turn = [&]() {
            bar_wait(full + 8 * stage, phase);
            prepare(tiles + stage * RING_STAGE);
            u64 a = first + stage * (RING_STAGE >> 4), b = second + stage * (RING_STAGE >> 4);
            begin_products();
#pragma unroll
            for (int i = 0; i < 4; i++) product<element, RING_COLUMNS, 1, 1>::add(c, a + i * (2048 >> 4), b + i * (2048 >> 4));
            commit_products();
        };
        auto next = [&]() {
            before = empty + 8 * stage;
            if (++stage == RING_STAGES) stage = 0, phase ^= 1;
        };
        turn();
        next();
#pragma unroll 1
        for (int k = 1; k < count; k++) {
            turn();
            wait_products<1>();
            if ((threadIdx.x & 31) == 0) bar_arrive(before);
            next();
        }
        wait_products<0>();
        settle(c);
    }

    // Writes this thread's results.
    __device__ __forceinline__ void write(const float (&c)[RING_COLUMNS / 2], float* ws) const {
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        int row = m0 + (TILE_M == 128 ? warp : warp & 3) * 16 + (lane >> 2);
        int column = n0 + (TILE_M == 128 ? 0 : threadIdx.x >> 7) * RING_COLUMNS + (lane & 3) * 2;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (row + h * 8 >= out) continue;
            float* at = ws + (long long)(row + h * 8) * width_k + column;
#pragma unroll
            for (int j = 0; j < RING_COLUMNS / 8; j++)
                if (column + j * 8 < width_k) *(float2*)(at + j * 8) = make_float2(c[4 * j + 2 * h], c[4 * j + 2 * h + 1]);
        }
    }
};
