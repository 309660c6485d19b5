// Products one of whose factors is relu(scale·x + shift) of what lies in shared memory: a norm and its ReLU applied on the way
// to the tensor cores, so that normalised maps are never written.

// One 32-bit word of a fragment: two elements with constants (a0, b0) and (a1, b1), or one of fp32 storage with the first.
__device__ __forceinline__ u32 normed_word(u32 word, float a0, float b0, float a1, float b1) {
    if constexpr (WIDE) {
        return __float_as_uint(max_nan(fmaf(a0, __uint_as_float(word), b0), 0.f));
    } else {
        const E* e = (const E*)&word;
        return element::pair(max_nan(fmaf(a0, element::to_float(e[0]), b0), 0.f),
                             max_nan(fmaf(a1, element::to_float(e[1]), b1), 0.f));
    }
}

// `multiply_rows` with A normalised; the tile begins at channel k0 of `channels` (a multiple of 8).
template <int MI, int NJ>
__device__ __forceinline__ void multiply_rows_normed(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column,
                                                     int lane, const float* scale, const float* shift, int k0, int channels) {
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        float a[2][2], b[2][2];  // [half of the step][element of a word]
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int c = k0 + kk * STEP + half * (STEP / 2) + (lane & 3) * (WIDE ? 1 : 2);
            bool inside = c < channels;
            if constexpr (WIDE) {
                a[half][0] = a[half][1] = inside ? __ldg(scale + c) : 0.f;
                b[half][0] = b[half][1] = inside ? __ldg(shift + c) : 0.f;
            } else {
                float2 none = make_float2(0.f, 0.f);
                float2 s = inside ? __ldg((const float2*)(scale + c)) : none;
                float2 t = inside ? __ldg((const float2*)(shift + c)) : none;
                a[half][0] = s.x, a[half][1] = s.y, b[half][0] = t.x, b[half][1] = t.y;
            }
        }
        factor<4> left[MI];
#pragma unroll
        for (int i = 0; i < MI; i++) {
            u32 raw[4];
            load_matrices(raw, a_tile + row_offset(row + (lane & 15), kk * 2 + (lane >> 4)) + i * 1024);
#pragma unroll
            for (int w = 0; w < 4; w++)
                raw[w] = normed_word(raw[w], a[w >> 1][0], b[w >> 1][0], a[w >> 1][1], b[w >> 1][1]);
            left[i].set(raw);
        }
#pragma unroll
        for (int j = 0; j < NJ; j += 2) {
            u32 raw[4];
            load_matrices(raw, b_tile + row_offset(column + (lane & 7) + ((lane >> 4) << 3), kk * 2 + ((lane >> 3) & 1)) + j * 512);
            factor<2> right[2];
            right[0].set(raw);
            right[1].set(raw + 2);
#pragma unroll
            for (int i = 0; i < MI; i++) {
                multiply(acc[i][j], left[i], right[0]);
                multiply(acc[i][j + 1], left[i], right[1]);
            }
        }
    }
}

// `multiply_columns` with B normalised; scale[j] and shift[j] are those of this lane's column of column tile j.
template <int MI, int NJ, int WA, int WB>
__device__ __forceinline__ void multiply_columns_normed(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column,
                                                        int lane, const float* scale, const float* shift) {
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        factor<4> a[MI];
#pragma unroll
        for (int i = 0; i < MI; i++) {
            u32 raw[4];
            int m = row + i * 16;
            if constexpr (WIDE) {
                u32 low[2], high[2];
                load_columns<WA>(low, high, a_tile, m, lane, kk);
                raw[0] = low[0], raw[1] = high[0], raw[2] = low[1], raw[3] = high[1];
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
                load_columns<WB>(raw, raw + 2, b_tile, n, lane, kk);
            } else {
                load_matrices_transposed(raw, b_tile + column_offset<WB>(kk * 16 + (lane & 15), (n >> 3) + (lane >> 4)));
            }
#pragma unroll
            for (int w = 0; w < 4; w++) {
                float s = scale[j + (w >> 1)], t = shift[j + (w >> 1)];
                raw[w] = normed_word(raw[w], s, t, s, t);
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
