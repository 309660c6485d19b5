// Tiles of matrix products in shared memory, for blocks of 256 threads (8 warps: 4 along rows, 2 along columns).
//
// "Rows" form, D[m][n] = Σ_k A[m][k]·B[n][k]: tiles of 64 bytes a row, two multiplication steps deep.
// "Columns" form, D[m][n] = Σ_k A[k][m]·B[k][n]: tiles of PIXELS rows, also two steps deep.

constexpr int K_TILE = 2 * STEP;   // elements of the common dimension in a tile
[[maybe_unused]] constexpr int PIXELS = K_TILE;     // pixels of a tile in the columns form

__device__ __forceinline__ u32 row_offset(int row, int chunk) { return row * 64 + ((chunk ^ ((row >> 1) & 3)) << 4); }

// Rows form: which output column (channel) lies in row r of the B tile, so that a lane ends up with runs of V channels:
// lane % 4 = t holds the channels 4·V·s + V·t + e in accumulators n-tile s·V/2 + e/2, column e & 1.
__device__ __forceinline__ int permuted(int r) {
    int q = r % (4 * V), j = q >> 3, n = q & 7;
    return r - q + (n >> 1) * V + j * 2 + (n & 1);
}

// One tile of the rows form for a warp whose rows begin at `row` of A and `column` of B.
template <int MI, int NJ>
__device__ __forceinline__ void multiply_rows(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column,
                                              int lane) {
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        factor<4> a[MI];
#pragma unroll
        for (int i = 0; i < MI; i++) {
            u32 raw[4];
            load_matrices(raw, a_tile + row_offset(row + i * 16 + (lane & 15), kk * 2 + (lane >> 4)));
            a[i].set(raw);
        }
#pragma unroll
        for (int j = 0; j < NJ; j += 2) {
            u32 raw[4];
            load_matrices(raw, b_tile + row_offset(column + j * 8 + (lane & 7) + ((lane >> 4) << 3),
                                                   kk * 2 + ((lane >> 3) & 1)));
            factor<2> b[2];
            b[0].set(raw);
            b[1].set(raw + 2);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                multiply(acc[i][j], a[i], b[0]);
                multiply(acc[i][j + 1], a[i], b[1]);
            }
        }
    }
}

// Columns form: tiles of PIXELS rows of W elements each.
template <int W>
__device__ __forceinline__ u32 column_offset(int row, int chunk) {
    if constexpr (WIDE) return row * (W * 4) + ((chunk ^ ((row & 3) << 1)) << 4);
    else return row * (W * 2) + ((chunk ^ (row & 7)) << 4);
}
template <int W>
__device__ __forceinline__ u32 column_word(u32 tile, int row, int column) {  // fp32 storage
    return load_word(tile + column_offset<W>(row, column >> 2) + (column & 3) * 4);
}

template <int MI, int NJ, int WA, int WB>
__device__ __forceinline__ void multiply_columns(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column,
                                                 int lane) {
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        factor<4> a[MI];
#pragma unroll
        for (int i = 0; i < MI; i++) {
            u32 raw[4];
            int m = row + i * 16;
            if constexpr (WIDE) {
                int k = kk * 8 + (lane & 3), g = m + (lane >> 2);
                raw[0] = column_word<WA>(a_tile, k, g);
                raw[1] = column_word<WA>(a_tile, k, g + 8);
                raw[2] = column_word<WA>(a_tile, k + 4, g);
                raw[3] = column_word<WA>(a_tile, k + 4, g + 8);
            } else {
                load_matrices_transposed(raw, a_tile + column_offset<WA>(kk * 16 + (lane & 7) + ((lane >> 4) << 3),
                                                                         (m >> 3) + ((lane >> 3) & 1)));
            }
            a[i].set(raw);
        }
#pragma unroll
        for (int j = 0; j < NJ; j += 2) {
            u32 raw[4];
            int n = column + j * 8;
            if constexpr (WIDE) {
                int k = kk * 8 + (lane & 3), g = n + (lane >> 2);
                raw[0] = column_word<WB>(b_tile, k, g);
                raw[1] = column_word<WB>(b_tile, k + 4, g);
                raw[2] = column_word<WB>(b_tile, k, g + 8);
                raw[3] = column_word<WB>(b_tile, k + 4, g + 8);
            } else {
                load_matrices_transposed(raw, b_tile + column_offset<WB>(kk * 16 + (lane & 15), (n >> 3) + (lane >> 4)));
            }
            factor<2> b[2];
            b[0].set(raw);
            b[1].set(raw + 2);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                multiply(acc[i][j], a[i], b[0]);
                multiply(acc[i][j + 1], a[i], b[1]);
            }
        }
    }
}

template <int MI, int NJ>
__device__ __forceinline__ void clear(float (&acc)[MI][NJ][4]) {
#pragma unroll
    for (int i = 0; i < MI; i++)
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int k = 0; k < 4; k++) acc[i][j][k] = 0.f;
}

// The V results of group s in row h·8 of row tile i.
template <int MI, int NJ>
__device__ __forceinline__ void results(const float (&acc)[MI][NJ][4], int i, int h, int s, float* f) {
#pragma unroll
    for (int e = 0; e < V; e++) f[e] = acc[i][s * (V / 2) + e / 2][h * 2 + (e & 1)];
}

// Statistics of a tile of 128 rows as stored: per warp about the warp's first row, then the four warps along rows are
// combined in order. `first` is the tile's first row, `rows` how many rows exist, `block` the row of `part`, of `blocks`.
// `shared` takes 12·TN floats; barriers inside.
template <int MI, int NJ, int TN>
__device__ __forceinline__ void tile_statistics(const float (&acc)[MI][NJ][4], float* shared, float* part, int block,
                                                int blocks, long long first, long long rows, int column0, int columns) {
    constexpr int WN = NJ * 8, N = 2 * NJ;  // channels a lane holds
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, wm = warp & 3, wn = warp >> 2;
    float sums[2 * N];
    long long warp_row = first + wm * (MI * 16);
#pragma unroll
    for (int s = 0; s < 2 * NJ / V; s++) {
#pragma unroll
        for (int e = 0; e < V; e++) {
            float value0 = stored(acc[0][s * (V / 2) + e / 2][e & 1]);
            float shift = __shfl_sync(~0u, value0, lane & 3);
            float sum = 0.f, squares = 0.f;
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float v = stored(acc[i][s * (V / 2) + e / 2][h * 2 + (e & 1)]) - shift;
                    bool exists = warp_row + i * 16 + h * 8 + (lane >> 2) < rows;
                    v = exists ? v : 0.f;
                    sum += v;
                    squares = fmaf(v, v, squares);
                }
            sums[s * V + e] = sum;
            sums[N + s * V + e] = squares;
        }
    }
    // The mean's shift goes to shared memory from the lanes of the first row; the sums then replace it by moments.
    __syncthreads();
    if (lane < 4) {
#pragma unroll
        for (int s = 0; s < 2 * NJ / V; s++)
#pragma unroll
            for (int e = 0; e < V; e++)
                shared[(wm * 3 + 2) * TN + wn * WN + s * 4 * V + lane * V + e] =
                    stored(acc[0][s * (V / 2) + e / 2][e & 1]);
    }
    reduce_rows<2 * N>(sums, lane);
    int base = reduced_index<2 * N>(lane);
#pragma unroll
    for (int k = 0; k < 2 * N / 8; k++) {
        int index = base + k, half = index / N, c = index % N;
        shared[(wm * 3 + half) * TN + wn * WN + (c / V) * 4 * V + (lane & 3) * V + c % V] = sums[k];
    }
    __syncthreads();
    if (threadIdx.x < TN) {
        int c = threadIdx.x;
        moments m = {0.f, 0.f, 0.f};
#pragma unroll
        for (int w = 0; w < 4; w++) {
            long long left = rows - (first + w * (MI * 16));
            float count = (float)(left <= 0 ? 0 : left < MI * 16 ? left : MI * 16);
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
