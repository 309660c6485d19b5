// From the rows of `stem_backward`, in order: dbeta = Σ g, dgamma = Σ g·x̂,
// dw[o, c, ky, kx] = gamma·rstd·(Σ g⊗patch − dbeta/m·Σ patch − dgamma/m·Σ x̂⊗patch), m = N·Ho·Wo, laid out as PyTorch's weight.
// Headers: tiles.cuh channels.cuh exchange.cuh. Grid C, block 1024.
//
// SYNCED = 1: dbeta and dgamma are those of this card's pixels, dw is this card's
// share with the sums over all cards in its place, and m are the pixels of all.
//
// PER_IMAGE = 1 (see tiles.cuh; GroupNorm of the first `others` channels in `groups` groups): `images` times rows and rstd; dw = Σ_n rstd·(gamma·Σ g⊗patch −
// (t1·Σ patch + t2·Σ x̂⊗patch)/m), with t1 = Σ gamma·Σ g and t2 = Σ gamma·Σ g·x̂ over the channels of o's group in image n, and m the
// pixels of all of them.

struct stem_backward_finish_sizes {
    int rows, channels, in;
    float inv_m;
    int images, groups, others, zero;
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
#if !PER_IMAGE
    __shared__ float sums[2];
#endif
    int o = blockIdx.x, k8 = 56 * s.in, tid = threadIdx.x, groups = 1024 / k8, group = tid / k8, k = tid % k8;
    long long size = 129 * k8 + 128;
#if PER_IMAGE
    constexpr int MOST = 64;  // images at once
    __shared__ float missing[MOST][2];
    float own[2] = {0.f, 0.f}, all = 0.f, gamma_o = gamma[o];  // own: Σ g and Σ g·x̂ of the warp's images
    int warp = tid >> 5, lane = tid & 31, each = o < s.others ? s.others / s.groups : 1, first = o / each * each, columns = (s.channels + 63) / 64;
    auto of_image = [&](int n, int c) { return ws + ((long long)n * columns + c / 64) * s.rows * size; };
    for (int begin = 0; begin < s.images; begin += MOST) {
        int count = min(MOST, s.images - begin);
        __syncthreads();
        for (int i = warp; i < count; i += 32) {
            float t[2] = {0.f, 0.f};
            for (int c = first; c < first + each; c++) {
                float sum[2] = {0.f, 0.f};
                for (int r = lane; r < s.rows; r += 32)
                    for (int half = 0; half < 2; half++)
                        sum[half] += __ldg(of_image(begin + i, c) + r * size + 129 * k8 + half * 64 + c % 64);
                for (int half = 0; half < 2; half++) {
                    for (int mask = 16; mask; mask >>= 1) sum[half] += __shfl_xor_sync(~0u, sum[half], mask);
                    t[half] = fmaf(gamma[c], sum[half], t[half]);
                    if (c == o) own[half] += sum[half];
                }
            }
            if (lane == 0) missing[i][0] = t[0], missing[i][1] = t[1];
        }
        __syncthreads();
        for (int i = group; group < groups && i < count; i += groups) {
            float a = 0.f, b = 0.f, c = 0.f;
            for (int r = 0; r < s.rows; r++) {
                const float* row = of_image(begin + i, o) + r * size + k;
                a += __ldg(row + (o % 64) * k8);
                b += __ldg(row + (64 + o % 64) * k8);
                c += __ldg(row + 128 * k8);
            }
            float part = missing[i][0] * c + missing[i][1] * b;
            all = fmaf(rstd[(long long)(begin + i) * s.channels + o], gamma_o * a - part * s.inv_m, all);
        }
    }
    shared[tid][0] = all;
    if (lane == 0) shared[warp][1] = own[0], shared[warp][2] = own[1];
    __syncthreads();
    if (tid < 2) {
        float sum = 0.f;
        for (int w = 0; w < 32; w++) sum += shared[w][1 + tid];
        (tid ? dgamma : dbeta)[o] = sum;
    }
    if (tid < k8 && (tid & 7) > 0) {
        float v = 0.f;
        for (int i = 0; i < groups; i++) v += shared[i * k8 + tid][0];
        dw[(long long)o * 49 * s.in + (tid >> 3) * 7 + (tid & 7) - 1] = v;
    }
#else
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
        dw[(long long)o * 49 * s.in + (tid >> 3) * 7 + (tid & 7) - 1] = v;
    }
#endif
}
