// From the rows of `stem_backward`, in order: dbeta = Σ g, dgamma = Σ g·x̂,
// dw[o, c, ky, kx] = gamma·rstd·(Σ g⊗patch − dbeta/m·Σ patch − dgamma/m·Σ x̂⊗patch), m = N·Ho·Wo, laid out as PyTorch's weight.
// No headers. Grid C, block 1024.
//
// SYNCED = 1 (headers tiles.cuh channels.cuh exchange.cuh): dbeta and dgamma are those of this card's pixels, dw is this card's
// share with the sums over all cards in its place, and m are the pixels of all.

struct stem_backward_finish_sizes {
    int rows, channels, in;
    float inv_m;
    int accumulate, zero;
#if SYNCED
    exchange_part cards;
#endif
};

extern "C" __global__ void __launch_bounds__(1024)
stem_backward_finish(const float* __restrict__ ws, const float* __restrict__ gamma, const float* __restrict__ rstd,
                     float* __restrict__ dw, float* __restrict__ dgamma, float* __restrict__ dbeta,
#if SYNCED
                     const unsigned long long* __restrict__ table,
#endif
                     const __grid_constant__ stem_backward_finish_sizes s) {
    __shared__ float shared[1024][3];
    __shared__ float sums[2];
    int o = blockIdx.x, k8 = 56 * s.in, tid = threadIdx.x, groups = 1024 / k8, group = tid / k8, k = tid % k8;
    long long size = 129 * k8 + 128;
    const float* base = ws + (long long)(o / 64) * s.rows * size;
    float a = 0.f, b = 0.f, c = 0.f;
    if (group < groups) {
#pragma unroll 4
        for (int r = group; r < s.rows; r += groups) {
            const float* row = base + r * size + k;
            a += __ldg(row + (o % 64) * k8);
            b += __ldg(row + (64 + o % 64) * k8);
            c += __ldg(row + 128 * k8);
        }
    }
    shared[tid][0] = a;
    shared[tid][1] = b;
    shared[tid][2] = c;
    int warp = tid >> 5, lane = tid & 31;
    if (warp < 2) {
        float sum = 0.f;
        for (int r = lane; r < s.rows; r += 32) sum += __ldg(base + r * size + 129 * k8 + warp * 64 + o % 64);
        for (int mask = 16; mask; mask >>= 1) sum += __shfl_down_sync(~0u, sum, mask);
#if SYNCED
        if (lane == 0) (warp ? dgamma : dbeta)[o] = sum;
        float all[1] = {sum};
        sum_over_cards(s.cards, table, 2 * o + warp, all);
        if (lane == 0) sums[warp] = all[0];
#else
        if (lane == 0) {
            sums[warp] = sum;
            (warp ? dgamma : dbeta)[o] = sum;
        }
#endif
    }
    __syncthreads();
    if (tid < k8 && (tid & 7) > 0) {
        a = b = c = 0.f;
        for (int i = 0; i < groups; i++) {
            a += shared[i * k8 + tid][0];
            b += shared[i * k8 + tid][1];
            c += shared[i * k8 + tid][2];
        }
        float v = gamma[o] * rstd[o] * (a - sums[0] * s.inv_m * c - sums[1] * s.inv_m * b);
        float* at = dw + (long long)o * 49 * s.in + (tid >> 3) * 7 + (tid & 7) - 1;
        *at = s.accumulate ? *at + v : v;
    }
}
