// dbeta = Σ g, dgamma = Σ g·x̂ of each channel, from `rows` rows of partials in order; s1 = gamma·dbeta, s2 = gamma·dgamma,
// written (accumulate = 0) or added. part: [rows][2][C]. Headers: tiles.cuh channels.cuh. Grid ceil(C/8), block 1024.
//
// SYNCED = 1 (header exchange.cuh as well): dbeta and dgamma are those of this card's pixels, s1 and s2 are made of the sums over
// all cards, which go to all_dbeta and all_dgamma too with record = 1.

struct channel_sums_sizes {
    int rows, channels, accumulate, record;
#if SYNCED
    exchange_part cards;
#endif
};

extern "C" __global__ void __launch_bounds__(1024)
channel_sums(const float* __restrict__ part, const float* __restrict__ gamma, float* __restrict__ dgamma,
             float* __restrict__ dbeta, float* __restrict__ s1, float* __restrict__ s2,
#if SYNCED
             float* __restrict__ all_dgamma, float* __restrict__ all_dbeta, const unsigned long long* __restrict__ table,
#endif
             const __grid_constant__ channel_sums_sizes s) {
    __shared__ float shared[32][9][2];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = blockIdx.x * 8 + (threadIdx.x & 7);
    float a = 0.f, b = 0.f;
    if (c < s.channels) {
#pragma unroll 4
        for (int r = threadIdx.x >> 3; r < s.rows; r += 128) {
            const float* row = part + (long long)r * 2 * s.channels;
            a += __ldg(row + c);
            b += __ldg(row + s.channels + c);
        }
    }
#pragma unroll
    for (int mask = 8; mask <= 16; mask <<= 1) {
        a += __shfl_down_sync(~0u, a, mask);
        b += __shfl_down_sync(~0u, b, mask);
    }
    if (lane < 8) {
        shared[warp][lane][0] = a;
        shared[warp][lane][1] = b;
    }
    __syncthreads();
    if (warp >= 8) return;
    c = blockIdx.x * 8 + warp;
    a = shared[lane][warp][0];
    b = shared[lane][warp][1];
#pragma unroll
    for (int mask = 1; mask <= 16; mask <<= 1) {
        a += __shfl_down_sync(~0u, a, mask);
        b += __shfl_down_sync(~0u, b, mask);
    }
#if SYNCED
    if (c >= s.channels) return;
    if (lane == 0) {
        dbeta[c] = a;
        dgamma[c] = b;
    }
    float sums[2] = {a, b};
    sum_over_cards(s.cards, table, 2 * c, sums);
    a = sums[0];
    b = sums[1];
#endif
    if (lane == 0 && c < s.channels) {
#if SYNCED
        if (s.record) {
            all_dbeta[c] = a;
            all_dgamma[c] = b;
        }
#else
        dbeta[c] = a;
        dgamma[c] = b;
#endif
        float g = gamma[c];
        s1[c] = s.accumulate ? s1[c] + g * a : g * a;
        s2[c] = s.accumulate ? s2[c] + g * b : g * b;
    }
}
