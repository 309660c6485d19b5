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
        multiply_rows(acc, a_tile, b_tile, row, column, lane, kk, [&](u32* raw) {
#pragma unroll
            for (int w = 0; w < 4; w++)
                raw[w] = normed_word(raw[w], a[w >> 1][0], b[w >> 1][0], a[w >> 1][1], b[w >> 1][1]);
        });
    }
}

// `multiply_columns` with B normalised; scale[j] and shift[j] are those of this lane's column of column tile j.
template <int MI, int NJ, int WA, int WB>
__device__ __forceinline__ void multiply_columns_normed(float (&acc)[MI][NJ][4], u32 a_tile, u32 b_tile, int row, int column,
                                                        int lane, const float* scale, const float* shift) {
#pragma unroll
    for (int kk = 0; kk < 2; kk++) {
        multiply_columns<MI, NJ, WA, WB>(acc, a_tile, b_tile, row, column, lane, kk, [&](u32* raw, int j) {
#pragma unroll
            for (int w = 0; w < 4; w++) {
                float s = scale[j + (w >> 1)], t = shift[j + (w >> 1)];
                raw[w] = normed_word(raw[w], s, t, s, t);
            }
        });
    }
}
