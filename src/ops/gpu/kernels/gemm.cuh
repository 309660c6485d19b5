// Tiles of matrix products in shared memory, for blocks of 256 threads (8 warps: 4 along rows, 2 along columns).
//
// "Rows" form, D[m][n] = Σ_k A[m][k]·B[n][k]: tiles of 64 bytes a row, two multiplication steps deep.
// "Columns" form, D[m][n] = Σ_k A[k][m]·B[k][n]: tiles of PIXELS rows, also two steps deep.

constexpr int K_TILE = 2 * STEP;   // elements of the common dimension in a tile
[[maybe_unused]] constexpr int PIXELS = K_TILE;     // pixels of a tile in the columns form

// The eight warps of a block share a tile of 128 rows in one of two ways, told by MI, how many times 16 rows a warp has: MI = 2,
// four warps along rows by two along columns (mma.sync); MI = 1, a warp has 16 rows and all columns, which is what Hopper's
// warpgroups do, straight from shared memory (2-byte elements only). ROW_TILES and COLUMN_TILES say which is the faster.
//
// NARROW: tiles of 32 columns (rows, in the columns form), without warpgroups. Four pairs of warps have 32 rows and all columns each,
// one warp of a pair the first multiplication step of a tile, the other the second, so that a fragment is read and rounded for as many
// products as in wide tiles; then `add_halves` gives each of the two the sums of 16 rows.
#if (defined(TILE_N) && TILE_N == 32) || (defined(TILE_M) && TILE_M == 32)
constexpr bool NARROW = true;
#else
constexpr bool NARROW = false;
#endif
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
constexpr bool WARPGROUPS = !WIDE && !NARROW;
#else
constexpr bool WARPGROUPS = false;
#endif
constexpr int ROW_TILES = WARPGROUPS || NARROW ? 1 : 2;
template <int TN>
constexpr int COLUMN_TILES = ROW_TILES == 1 ? TN / 8 : TN / 16;

template <int MI = ROW_TILES>
__device__ __forceinline__ int row_warp() {
    return (threadIdx.x >> 5) % (8 / MI);
}
template <int MI = ROW_TILES>
__device__ __forceinline__ int warp_row() {
    return row_warp<MI>() * (MI * 16);
}
template <int TN, int MI = ROW_TILES>
__device__ __forceinline__ int warp_column() {
    return (threadIdx.x >> 5) / (8 / MI) * (TN / 2);
}

__device__ __forceinline__ u32 row_offset(int row, int chunk) { return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4); }

// Rows form: which output column (channel) lies in row r of the B tile, so that a lane ends up with runs of V channels:
// lane % 4 = t holds the channels 4·V·s + V·t + e in accumulators n-tile s·V/2 + e/2, column e & 1.
__device__ __forceinline__ int permuted(int r) {
    int q = r % (4 * V), j = q >> 3, n = q & 7;
    return r - q + (n >> 1) * V + j * 2 + (n & 1);
}

// Adds the products of A's fragments and those of columns j and j + 1, which lie in `raw`.
template <int MI, int NJ>
__device__ __forceinline__ void multiply_two(float (&acc)[MI][NJ][4], const factor<4> (&a)[MI], const u32* raw, int j) {
    factor<2> b[2];
    b[0].set(raw);
    b[1].set(raw + 2);
#pragma unroll
    for (int i = 0; i < MI; i++) {
        multiply(acc[i][j], a[i], b[0]);
        multiply(acc[i][j + 1], a[i], b[1]);
    }
}
// Leaves a fragment as it lies in shared memory.
struct as_it_lies {
    __device__ __forceinline__ void operator()(u32*, int = 0) const {}
};

// Step kk of a tile of the rows form for a warp whose rows begin at `row` of A and `column` of B. `change` is given each fragment of A.
template <int MI, int NJ, class F = as_it_lies>
__device__ __forceinline__ void multiply_rows(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column, int lane,
                                              int kk, F change = F()) {
    factor<4> a[MI];
#pragma unroll
    for (int i = 0; i < MI; i++) {
        u32 raw[4];
        load_matrices(raw, a_tile + row_offset(row + (lane & 15), kk * 2 + (lane >> 4)) + i * 1024);
        change(raw);
        a[i].set(raw);
    }
#pragma unroll
    for (int j = 0; j < NJ; j += 2) {
        u32 raw[4];
        load_matrices(raw, b_tile + row_offset(column + (lane & 7) + ((lane >> 4) << 3), kk * 2 + ((lane >> 3) & 1)) + j * 512);
        multiply_two(acc, a, raw, j);
    }
}

// Columns form: tiles of ROWS rows (pixels) of W channels. 2-byte elements lie in blocks of 64 channels, 128 bytes a row.
template <int W, int ROWS = PIXELS>
__device__ __forceinline__ u32 column_offset(int row, int chunk) {
    if constexpr (WIDE) return row * (W * 4) + ((chunk ^ ((row & 3) << 1)) << 4);
    else return (chunk >> 3) * (ROWS * 128) + row * 128 + (((chunk & 7) ^ (row & 7)) << 4);
}
template <int W>
constexpr int COLUMN_ROW = WIDE ? W * 4 : 128;  // bytes from a row to the next; eight rows on, chunks lie in the same order
// fp32 storage: where a lane's words of the eight columns from n on lie, in row lane % 4; four rows on is 4·COLUMN_ROW bytes on.
template <int W>
__device__ __forceinline__ u32 column_words(int n, int lane) {
    return column_offset<W>(lane & 3, (n + (lane >> 2)) >> 2) + ((lane >> 2) & 3) * 4;
}
// Those of step kk of the columns from n and from n + 8 on: of each its upper and lower four rows.
template <int W>
__device__ __forceinline__ void load_columns(u32* low, u32* high, u32 tile, int n, int lane, int kk) {
    u32 a = tile + column_words<W>(n, lane) + kk * 8 * COLUMN_ROW<W>, b = tile + column_words<W>(n + 8, lane) + kk * 8 * COLUMN_ROW<W>;
    low[0] = load_word(a);
    low[1] = load_word(a + 4 * COLUMN_ROW<W>);
    high[0] = load_word(b);
    high[1] = load_word(b + 4 * COLUMN_ROW<W>);
}

// A's fragments for step kk of a tile of the columns form, of 16 channels each from `row` on.
template <int W, int ROWS = PIXELS, int MI>
__device__ __forceinline__ void load_rows_of_columns(factor<4> (&a)[MI], u32 tile, int row, int lane, int kk) {
#pragma unroll
    for (int i = 0; i < MI; i++) {
        u32 raw[4];
        int m = row + i * 16;
        if constexpr (WIDE) {
            u32 low[2], high[2];
            load_columns<W>(low, high, tile, m, lane, kk);
            raw[0] = low[0], raw[1] = high[0], raw[2] = low[1], raw[3] = high[1];
        } else {
            load_matrices_transposed(raw, tile + column_offset<W, ROWS>(kk * 16 + (lane & 7) + ((lane >> 4) << 3),
                                                                        (m >> 3) + ((lane >> 3) & 1)));
        }
        a[i].set(raw);
    }
}

// Step kk of a tile of the columns form. `change` is given the fragments of each two column tiles of B and the number of the first.
template <int MI, int NJ, int WA, int WB, class F = as_it_lies>
__device__ __forceinline__ void multiply_columns(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column, int lane,
                                                 int kk, F change = F()) {
    factor<4> a[MI];
    load_rows_of_columns<WA>(a, a_tile, row, lane, kk);
#pragma unroll
    for (int j = 0; j < NJ; j += 2) {
        u32 raw[4];
        int n = column + j * 8;
        if constexpr (WIDE) {
            load_columns<WB>(raw, raw + 2, b_tile, n, lane, kk);
        } else {
            load_matrices_transposed(raw, b_tile + column_offset<WB>(kk * 16 + (lane & 15), (n >> 3) + (lane >> 4)));
        }
        change(raw, j);
        multiply_two(acc, a, raw, j);
    }
}

// Where the two warps of a pair have the sums of every other step for the same 32 rows: gives the even one the whole sums of the first
// 16 rows, the odd one those of the others. `shared` takes 1,024·NJ floats; barriers inside.
template <int NJ>
__device__ __forceinline__ void add_halves(float (&sum)[1][NJ][4], const float (&acc)[2][NJ][4], float* shared) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool odd = warp & 1;
    __syncthreads();
#pragma unroll
    for (int j = 0; j < NJ; j++)
#pragma unroll
        for (int k = 0; k < 4; k++) shared[((warp * NJ + j) * 4 + k) * 32 + lane] = odd ? acc[0][j][k] : acc[1][j][k];
    __syncthreads();
#pragma unroll
    for (int j = 0; j < NJ; j++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            sum[0][j][k] = (odd ? acc[1][j][k] : acc[0][j][k]) + shared[(((warp ^ 1) * NJ + j) * 4 + k) * 32 + lane];
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
// A matrix descriptor of rows of 64 bytes, swizzled as `row_offset` does (the hardware's 64-byte swizzle): 512 bytes from one
// group of eight rows to the next.
__device__ __forceinline__ u64 rows_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | 1ull << 16 | (u64)(512 >> 4) << 32 | 2ull << 62;
}
// The same for blocks of 64 channels by PIXELS rows of 128 bytes, swizzled as `column_offset` does: 1,024 bytes from one group of
// eight rows to the next, `PIXELS·128` from one block to the next.
__device__ __forceinline__ u64 columns_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(PIXELS * 128 >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
#endif

// Begins the product of one tile of the rows form (A of 128 rows, B of TN); `finish_product` ends it. Between the two a thread may
// do other work, but not touch acc. Tiles are aligned to 512 bytes.
template <int TN, int MI, int NJ>
__device__ __forceinline__ void begin_rows(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile) {
    static_assert(MI * NJ * 8 == TN, "accumulators of a tile of 128 rows");
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (WARPGROUPS && MI == 1) {
        u64 a = rows_descriptor(a_tile + (threadIdx.x >> 7) * 4096), b = rows_descriptor(b_tile);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        product<element, TN, 0, 0>::add(&acc[0][0][0], a, b);
        product<element, TN, 0, 0>::add(&acc[0][0][0], a + 2, b + 2);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        return;
    }
#endif
#pragma unroll
    for (int kk = 0; kk < 2; kk++)
        multiply_rows<MI, NJ>(acc, a_tile, b_tile, warp_row<MI>(), warp_column<TN, MI>(), threadIdx.x & 31, kk);
}
// The columns form, for tiles of PIXELS rows of TM and TN channels: who has which results, and the product. HALVED (TM = 32): four
// pairs of warps have all rows and TN/4 columns each, and share the steps as in narrow tiles of the rows form.
template <int TM, int TN>
struct columns_form {
    static constexpr bool GROUPS = WARPGROUPS && TM + TN > 128, TALL = GROUPS && TM == 128, HALVED = TM == 32;
    static constexpr int MI = GROUPS || HALVED ? 1 : TM / 64, NJ = TALL ? TN / 8 : HALVED ? TN / 32 : TN / 16;
    static __device__ __forceinline__ int row() {
        int warp = threadIdx.x >> 5;
        return TALL ? warp * 16 : HALVED ? (warp & 1) * 16 : (warp & 3) * (TM / 4);
    }
    static __device__ __forceinline__ int column() {
        return TALL ? 0 : HALVED ? (threadIdx.x >> 6) * (TN / 4) : (threadIdx.x >> 7) * (TN / 2);
    }
    static constexpr int PRODUCTS = HALVED ? 2 : MI;  // times 16 rows of accumulators while tiles are multiplied
    // `sums` of what a thread has added up; `shared` as for `add_halves`.
    static __device__ __forceinline__ void add_up(float (&sums)[MI][NJ][4], const float (&acc)[PRODUCTS][NJ][4], unsigned char* shared) {
        if constexpr (HALVED) {
            add_halves(sums, acc, (float*)shared);
        } else {
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int j = 0; j < NJ; j++)
#pragma unroll
                    for (int k = 0; k < 4; k++) sums[i][j][k] = acc[i][j][k];
        }
    }
    static __device__ __forceinline__ void begin(float (&acc)[PRODUCTS][NJ][4], u32 a_tile, u32 b_tile) {
        if constexpr (HALVED) {
            multiply_columns<2, NJ, TM, TN>(acc, a_tile, b_tile, 0, column(), threadIdx.x & 31, (threadIdx.x >> 5) & 1);
            return;
        }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
        if constexpr (GROUPS) {
            u32 half = (threadIdx.x >> 7) * (PIXELS * 128);
            u64 a = columns_descriptor(a_tile + (TALL ? half : 0)), b = columns_descriptor(b_tile + (TALL ? 0 : half));
            constexpr int N = TALL ? TN : TN / 2;
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            product<element, N, 1, 1>::add(&acc[0][0][0], a, b);
            product<element, N, 1, 1>::add(&acc[0][0][0], a + (2048 >> 4), b + (2048 >> 4));
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            return;
        }
#endif
#pragma unroll
        for (int kk = 0; kk < 2; kk++)
            multiply_columns<PRODUCTS, NJ, TM, TN>(acc, a_tile, b_tile, row(), column(), threadIdx.x & 31, kk);
    }
};

template <int MI, int NJ>
__device__ __forceinline__ void finish_product(float (&acc)[MI][NJ][4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (MI == 1 && WARPGROUPS) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < MI; i++)  // the accumulators are read after the wait only
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
                for (int k = 0; k < 4; k++) asm volatile("" : "+f"(acc[i][j][k])::"memory");
    }
#endif
}
// After a thread's own writes to a tile have landed and before the barrier that precedes a product's beginning.
__device__ __forceinline__ void publish_tiles() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (WARPGROUPS) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// Goes over `count` tiles in three stages of STAGE bytes each: `fetch(stage, k)` begins to copy tile k, two tiles ahead; `begin` and
// `finish` get each tile before and after the fetch. PUBLISHED: threads write to tiles, or warpgroups multiply them.
template <int STAGE, bool PUBLISHED, class Fetch, class Begin, class Finish>
__device__ __forceinline__ void each_tile(int count, unsigned char* shared, Fetch fetch, Begin begin, Finish finish) {
#pragma unroll
    for (int k = 0; k < 2; k++) {
        if (k < count) fetch(shared + k * STAGE, k);
        commit_copies();
    }
    int now = 0, next = 2;
    for (int k = 0; k < count; k++) {
        wait_copies<1>();
        if constexpr (PUBLISHED) publish_tiles();
        __syncthreads();
        u32 a = shared_address(shared + now * STAGE);
        begin(a);
        if (k + 2 < count) fetch(shared + next * STAGE, k + 2);
        commit_copies();
        finish(a, k);
        now = now == 2 ? 0 : now + 1;
        next = next == 2 ? 0 : next + 1;
    }
    wait_copies<0>();
}

// The V results of group s in row h·8 of row tile i.
template <int MI, int NJ>
__device__ __forceinline__ void results(const float (&acc)[MI][NJ][4], int i, int h, int s, float* f) {
#pragma unroll
    for (int e = 0; e < V; e++) f[e] = acc[i][s * (V / 2) + e / 2][h * 2 + (e & 1)];
}

// Statistics of a tile of 128 rows as stored: per warp about the warp's first row, then the warps along rows are combined in
// order. `first` is the tile's first row, `rows` how many rows exist, `block` the row of `part`, of `blocks`.
// `shared` takes 24/MI·TN floats; barriers inside.
template <int MI, int NJ, int TN>
__device__ __forceinline__ void tile_statistics(const float (&acc)[MI][NJ][4], float* shared, float* part, int block,
                                                int blocks, long long first, long long rows, int column0, int columns) {
    int lane = threadIdx.x & 31, wm = row_warp<MI>();
    long long left = rows - first - warp_row<MI>() - (lane >> 2);  // rows from this lane's first one on
    __syncthreads();
#pragma unroll
    for (int s = 0; s < 2 * NJ / V; s++) {
        float sums[2 * V];
        int column = warp_column<TN, MI>() + s * 4 * V + (lane & 3) * V;
#pragma unroll
        for (int e = 0; e < V; e++) {
            int j = s * (V / 2) + e / 2;
            float shift = __shfl_sync(~0u, stored(acc[0][j][e & 1]), lane & 3), sum = 0.f, squares = 0.f;
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float v = i * 16 + h * 8 < left ? stored(acc[i][j][h * 2 + (e & 1)]) - shift : 0.f;
                    sum += v;
                    squares = fmaf(v, v, squares);
                }
            sums[e] = sum;
            sums[V + e] = squares;
            if (lane < 4) shared[(wm * 3 + 2) * TN + column + e] = shift;
        }
        reduce_rows<2 * V>(sums, lane);
        int base = reduced_index<2 * V>(lane);
#pragma unroll
        for (int k = 0; k < 2 * V / 8; k++)
            shared[(wm * 3 + (base + k) / V) * TN + column + (base + k) % V] = sums[k];
    }
    __syncthreads();
    if (threadIdx.x < TN) {
        int c = threadIdx.x;
        moments m = {0.f, 0.f, 0.f};
#pragma unroll
        for (int w = 0; w < 8 / MI; w++) {
            long long there = rows - (first + w * (MI * 16));
            float count = (float)(there <= 0 ? 0 : there < MI * 16 ? there : MI * 16);
            m = combine(m, moments_of(count, shared[(w * 3 + 2) * TN + c], shared[(w * 3) * TN + c],
                                      shared[(w * 3 + 1) * TN + c]));
        }
        if (column0 + c < columns) {
            float* row = part + (long long)block * 2 * columns;
            row[column0 + c] = m.mean;
            row[columns + column0 + c] = m.deviations;
        }
        if (c == 0 && column0 == 0) part[(long long)blocks * 2 * columns + block] = m.count;
    }
}
