// Per-channel statistics: (count, mean, sum of squared deviations), combined pairwise so that a large mean costs no digits.

struct moments {
    float count, mean, deviations;
};

__device__ __forceinline__ moments combine(const moments& a, const moments& b) {
    float count = a.count + b.count;
    if (count == 0.f) return a;
    float share = b.count / count, delta = b.mean - a.mean;
    return {count, fmaf(delta, share, a.mean), a.deviations + b.deviations + delta * delta * a.count * share};
}

// From sums of v − shift and (v − shift)² over `count` values.
__device__ __forceinline__ moments moments_of(float count, float shift, float sum, float squares) {
    if (count == 0.f) return {0.f, 0.f, 0.f};
    float mean = sum / count;
    return {count, shift + mean, fmaxf(squares - sum * mean, 0.f)};
}

// Sums `values` over the eight lanes that share lane % 4: each lane ends with N / 8 sums, of the values from
// `reduced_index<N>(lane)` on.
template <int N>
__device__ __forceinline__ void reduce_rows(float (&values)[N], int lane) {
    int width = N;
#pragma unroll
    for (int mask = 16; mask >= 4; mask >>= 1) {
        width /= 2;
        bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            if (i < width) {
                float keep = upper ? values[i + width] : values[i];
                float send = upper ? values[i] : values[i + width];
                values[i] = keep + __shfl_xor_sync(~0u, send, mask);
            }
        }
    }
}
template <int N>
__device__ __forceinline__ int reduced_index(int lane) {
    return (lane & 16 ? N / 2 : 0) + (lane & 8 ? N / 4 : 0) + (lane & 4 ? N / 8 : 0);
}
