// General convolution over NHWC: sizes, and the rows form of a product whose A rows are gathered from pixels.

struct conv_sizes {
    int batch, height, width, in, out_height, out_width, out, kh, kw, stride_y, stride_x, pad_y, pad_x, ld_x, ld_y, zero;
};

// Input pixels whose remainders under the stride are the same, so that the same taps hit them: those of a tile of 128 and the taps.
struct hit_pixels {
    int cy = 0, cx = 0, rows_y, rows_x;  // the remainders; how many lines and columns there are
    int ky0, kx0, ny, nx;                // the first taps and how many
    long long rows, first;               // pixels; the first of the tile
    __device__ __forceinline__ hit_pixels(const conv_sizes& v, int tile) {
        for (;; cx++) {
            if (cx == v.stride_x) cx = 0, cy++;
            rows_y = (v.height - cy + v.stride_y - 1) / v.stride_y;
            rows_x = (v.width - cx + v.stride_x - 1) / v.stride_x;
            rows = cy < v.height && cx < v.width ? (long long)v.batch * rows_y * rows_x : 0;
            int tiles = (int)((rows + 127) / 128);
            if (tile < tiles) break;
            tile -= tiles;
        }
        first = (long long)tile * 128;
        ky0 = (cy + v.pad_y) % v.stride_y, kx0 = (cx + v.pad_x) % v.stride_x;
        ny = ky0 < v.kh ? (v.kh - ky0 + v.stride_y - 1) / v.stride_y : 0;
        nx = kx0 < v.kw ? (v.kw - kx0 + v.stride_x - 1) / v.stride_x : 0;
        if (nx == 0) ny = 0;
    }
};

#ifndef CHUNKED
#define CHUNKED 1
#endif
#ifndef TILE_N
#define TILE_N 128
#endif
[[maybe_unused]] constexpr int BLOCKS = element::parts == 2 && !NARROW ? 1 : 2;  // a multiprocessor

// acc += A·Bᵀ for a tile of 128 rows and TN columns. Row r reads source pixel (image, y + direction·ty, x + direction·tx)
// for taps ty < ny, tx < nx; weights row n holds tap (ky0 + step_y·ty)·kw + kx0 + step_x·tx at [tap·channels + c].
// ONE_TAP: there is one.
template <int TN, bool ONE_TAP = false>
struct gathered {
    const E* source;
    const E* weights;
    int ld, height, width, channels, ny, nx, direction;
    int row_length, kw, ky0, kx0, step_y, step_x, columns, column0;
    int image[2], y[2], x[2];  // of this thread's rows threadIdx.x / 4 and 64 more; image = n·height, y < −2^29 where none
    int ty, tx, c;             // this thread's chunk of V channels
#if CHUNKED
    u32 at[2], weight_at[(TN + 63) / 64];  // where it lies in source and weights, in chunks, and whether it is there
    u32 there[2], weight_there[(TN + 63) / 64];
#endif

    static constexpr int STAGE = 8192 + TN * 64;

    __device__ __forceinline__ int steps() const {
        return (int)(((long long)ny * nx * channels + K_TILE - 1) / K_TILE);
    }
    __device__ __forceinline__ void start() {
        ty = tx = 0;
        c = (threadIdx.x & 3) * V;
#if CHUNKED
        if (!ONE_TAP) wrap();
        aim();
#endif
    }
    __device__ __forceinline__ void wrap() {
        while (c >= channels && ty < ny) {
            c -= channels;
            if (++tx == nx) {
                tx = 0;
                ++ty;
            }
        }
    }
    __device__ __forceinline__ int weight_row(int r) const { return column0 + permuted(r); }
#if CHUNKED
    // Sets where this thread's chunks lie; done anew for each tap only, since within one they follow each other.
    __device__ __forceinline__ void aim() {
        bool live = ty < ny;
        int tap = (ky0 + step_y * ty) * kw + kx0 + step_x * tx;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int sy = y[i] + direction * ty, sx = x[i] + direction * tx;
            bool ok = live && (u32)sy < (u32)height && (u32)sx < (u32)width;
            at[i] = ok ? (u32)((image[i] + sy) * width + sx) * (u32)(ld / V) + c / V : 0;
            there[i] = ok;
        }
#pragma unroll
        for (int i = 0; i < (TN + 63) / 64; i++) {
            int n = weight_row((threadIdx.x >> 2) + i * 64);
            bool ok = live && n < columns;
            weight_at[i] = ok ? ((u32)n * row_length + tap * channels + c) / V : 0;
            weight_there[i] = ok;
        }
    }
#endif

    __device__ __forceinline__ void fetch(unsigned char* stage, int step) {
        int r = threadIdx.x >> 2, chunk = threadIdx.x & 3;
#if CHUNKED
        u32 a = shared_address(stage) + row_offset(r, chunk), b = a + 8192;  // 64 rows on is 4,096 bytes on
#pragma unroll
        for (int i = 0; i < 2; i++) copy_async(a + i * 4096, (const uint4*)source + at[i], there[i] && (!ONE_TAP || c < channels));
#pragma unroll
        for (int i = 0; i < (TN + 63) / 64; i++)
            if (TN >= 64 || r < TN)
                copy_async(b + i * 4096, (const uint4*)weights + weight_at[i], weight_there[i] && (!ONE_TAP || c < channels));
        c += 4 * V;
        if (!ONE_TAP && c >= channels) {
            wrap();
            aim();
        } else {
#pragma unroll
            for (int i = 0; i < 2; i++) at[i] += 4;
#pragma unroll
            for (int i = 0; i < (TN + 63) / 64; i++) weight_at[i] += 4;
        }
#else
        long long total = (long long)ny * nx * channels, k0 = (long long)step * K_TILE + chunk * V;
        __align__(16) E values[2 + (TN + 63) / 64][V];
        for (int e = 0; e < V; e++) {
            long long k = k0 + e;
            bool live = k < total;
            int t = (int)(k / channels), cc = (int)(k - (long long)t * channels), dy = t / nx, dx = t - dy * nx;
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int sy = y[i] + direction * dy, sx = x[i] + direction * dx;
                bool ok = live && (u32)sy < (u32)height && (u32)sx < (u32)width;
                values[i][e] = ok ? source[(long long)((image[i] + sy) * width + sx) * ld + cc] : element::from_float(0.f);
            }
            int tap = (ky0 + step_y * dy) * kw + kx0 + step_x * dx;
#pragma unroll
            for (int i = 0; i < (TN + 63) / 64; i++) {
                int n = weight_row(r + i * 64);
                values[2 + i][e] = live && n < columns ? weights[(long long)n * row_length + tap * channels + cc]
                                                       : element::from_float(0.f);
            }
        }
#pragma unroll
        for (int i = 0; i < 2; i++) *(uint4*)(stage + row_offset(r + i * 64, chunk)) = *(uint4*)values[i];
#pragma unroll
        for (int i = 0; i < (TN + 63) / 64; i++)
            if (TN >= 64 || r < TN) *(uint4*)(stage + 8192 + row_offset(r + i * 64, chunk)) = *(uint4*)values[2 + i];
#endif
    }

    // `shared` takes 3·STAGE bytes, aligned to 1,024 where WARPGROUPS.
    template <int MI, int NJ>
    __device__ __forceinline__ void run(float (&acc)[MI][NJ][4], unsigned char* shared) {
        int count = steps();
        start();
        auto fetch_tile = [&](unsigned char* stage, int k) { fetch(stage, k); };
        if constexpr (NARROW) {
            float halves[2][NJ][4];
            clear(halves);
            int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
            auto multiply = [&](u32 a, int) { multiply_rows<2, NJ>(halves, a, a + 8192, (warp >> 1) * 32, 0, lane, warp & 1); };
            each_tile<STAGE, true>(count, shared, fetch_tile, [](u32) {}, multiply);
            add_halves(acc, halves, (float*)shared);
        } else if constexpr (WARPGROUPS) {
            auto begin = [&](u32 a) { begin_rows<TN>(acc, a, a + 8192); };
            each_tile<STAGE, true>(count, shared, fetch_tile, begin, [&](u32, int) { finish_product(acc); });
        } else {
            each_tile<STAGE, true>(count, shared, fetch_tile, [](u32) {}, [&](u32 a, int) { begin_rows<TN>(acc, a, a + 8192); });
        }
    }
};

// Adds V results from `column` on of a row to f, as `write_results` is to write them.
__device__ __forceinline__ void add_results(const E* row, int column, int columns, bool vectors, float* f) {
    float there[V];
    if (column >= columns) return;
    element::unpack(load_channels(row, column, columns, vectors), there);
#pragma unroll
    for (int e = 0; e < V; e++) f[e] += there[e];
}

// Writes V results from `column` on of a row that begins at `row`.
__device__ __forceinline__ void write_results(E* row, int column, int columns, bool vectors, const float* f) {
    if (vectors) {
        if (column < columns) store_vector(row + column, element::pack(f));
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (column + e < columns) row[column + e] = element::from_float(f[e]);
    }
}

// Puts a warp's sums into `totals`, [warps][2][TN]: `sums` are a lane's of V channels from `local` on, first those of one kind.
template <int TN>
__device__ __forceinline__ void put_totals(float (&sums)[2 * V], float* totals, int warp, int local, int lane) {
    reduce_rows<2 * V>(sums, lane);
    int base = reduced_index<2 * V>(lane);
#pragma unroll
    for (int e = 0; e < 2 * V / 8; e++) {
        int index = base + e, half = index / V;
        totals[(warp * 2 + half) * TN + local + index % V] = sums[e];
    }
}
// Adds them up in order: row `row` of the partials Σ g and Σ g·x̂, of which the latter still lack rstd.
template <int TN, int WARPS>
__device__ __forceinline__ void write_totals(const float* totals, const float* rstd, float* part, int row, int column0, int columns) {
    if (threadIdx.x < 2 * TN) {
        int half = threadIdx.x / TN, local = threadIdx.x % TN, c = column0 + local;
        if (c < columns) {
            float sum = 0.f;
#pragma unroll
            for (int w = 0; w < WARPS; w++) sum += totals[(w * 2 + half) * TN + local];
            part[((long long)row * 2 + half) * columns + c] = half ? sum * rstd[c] : sum;
        }
    }
}
