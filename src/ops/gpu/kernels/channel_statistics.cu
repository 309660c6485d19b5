// mean, biased variance and rstd = 1/sqrt(var + eps) of each channel, from `rows` rows of partials in order.
//
// part: [rows][2][C] (mean, sum of squared deviations), then [rows] counts. Headers: tiles.cuh channels.cuh exchange.cuh.
// Grid ceil(C/8), block 1024: eight channels by 128 rows at once. SYNCED = 1: as in channel_norm.cu.

struct channel_statistics_sizes {
    int rows, channels;
    float eps;
    int zero;
#if SYNCED
    exchange_part cards;
#endif
};

extern "C" __global__ void __launch_bounds__(1024)
channel_statistics(const float* __restrict__ part, float* __restrict__ mean, float* __restrict__ var,
                   float* __restrict__ rstd,
#if SYNCED
                   float* __restrict__ all, const unsigned long long* __restrict__ table,
#endif
                   const __grid_constant__ channel_statistics_sizes s) {
    __shared__ float shared[32][9][3];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = blockIdx.x * 8 + (threadIdx.x & 7);
    OF_IMAGE(part, (long long)s.rows * (2 * s.channels + 1));
    OF_IMAGE(mean, s.channels);
    OF_IMAGE(var, s.channels);
    OF_IMAGE(rstd, s.channels);
    moments m = {0.f, 0.f, 0.f};
    if (c < s.channels) {
        const float* counts = part + (long long)s.rows * 2 * s.channels;
#pragma unroll 4
        for (int r = threadIdx.x >> 3; r < s.rows; r += 128) {
            const float* row = part + (long long)r * 2 * s.channels;
            m = combine(m, moments{__ldg(counts + r), __ldg(row + c), __ldg(row + s.channels + c)});
        }
    }
#pragma unroll
    for (int mask = 8; mask <= 16; mask <<= 1) m = combine_down(m, mask);
    if (lane < 8) {
        shared[warp][lane][0] = m.count;
        shared[warp][lane][1] = m.mean;
        shared[warp][lane][2] = m.deviations;
    }
    __syncthreads();
    if (warp >= 8) return;
    c = blockIdx.x * 8 + warp;
    m = {shared[lane][warp][0], shared[lane][warp][1], shared[lane][warp][2]};
#pragma unroll
    for (int mask = 1; mask <= 16; mask <<= 1) m = combine_down(m, mask);
#if SYNCED
    if (c >= s.channels) return;
    float values[3] = {__shfl_sync(~0u, m.count, 0), __shfl_sync(~0u, m.mean, 0), __shfl_sync(~0u, m.deviations, 0)};
    if (lane < s.cards.ranks) exchange(s.cards, table, lane, 3 * c, values);
    __syncwarp();
    m = {0.f, 0.f, 0.f};
    for (int p = 0; p < s.cards.ranks; p++) {
        moments other = {__shfl_sync(~0u, values[0], p), __shfl_sync(~0u, values[1], p), __shfl_sync(~0u, values[2], p)};
        m = combine(m, other);
    }
    if (lane == 0) {
        all[c] = m.mean;
        all[s.channels + c] = m.deviations;
        if (c == 0) all[2 * s.channels] = m.count;
    }
#endif
    if (lane == 0 && c < s.channels) {
        float variance = m.deviations / m.count;
        mean[c] = m.mean;
        var[c] = variance;
        rstd[c] = 1.f / sqrtf(variance + s.eps);
    }
}
