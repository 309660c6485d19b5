// `channel_statistics` of the channels just written, the last `written` of `channels`, and `norm_affine` of a norm over all of
// them: one launch between two convolutions instead of two.
//
// part: partials of the written channels, [rows][2][written] and [rows] counts; mean, var, rstd: [channels], the written ones
// are written, the others read; scale, shift: [channels]. With record = 1 the mean and the unbiased variance (var·unbias) of
// every channel go to batch_mean and batch_var. Headers: tiles.cuh channels.cuh.
// Grid ceil(written/8) + ceil((channels − written)/1024), block 1024.
//
// SYNCED = 1 (header exchange.cuh as well): part is what this card has; everything else is over the pixels of all cards. What was
// put together of all goes to `row`, partials of one row: launched on that without SYNCED, the kernel gives the same bits.

struct channel_norm_sizes {
    int rows, written, channels, record;
    float eps, unbias;
#if SYNCED
    exchange_part cards;
#endif
};

extern "C" __global__ void __launch_bounds__(1024)
channel_norm(const float* __restrict__ part, float* mean, float* var, float* rstd, const float* __restrict__ gamma,
             const float* __restrict__ beta, float* __restrict__ scale, float* __restrict__ shift,
             float* __restrict__ batch_mean, float* __restrict__ batch_var,
#if SYNCED
             float* __restrict__ all, const unsigned long long* __restrict__ table,
#endif
             const __grid_constant__ channel_norm_sizes s) {
    __shared__ float shared[32][8][3];
    int fresh = (s.written + 7) / 8, known = s.channels - s.written, channel;
    float mu, variance;
    if (blockIdx.x >= fresh) {
        channel = (blockIdx.x - fresh) * 1024 + threadIdx.x;
        if (channel >= known) return;
        mu = mean[channel];
        variance = var[channel];
    } else {
        int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = blockIdx.x * 8 + (threadIdx.x & 7);
        moments m = {0.f, 0.f, 0.f};
        if (c < s.written) {
            const float* counts = part + (long long)s.rows * 2 * s.written;
#pragma unroll 4
            for (int r = threadIdx.x >> 3; r < s.rows; r += 128) {
                const float* row = part + (long long)r * 2 * s.written;
                m = combine(m, moments{__ldg(counts + r), __ldg(row + c), __ldg(row + s.written + c)});
            }
        }
#pragma unroll
        for (int mask = 8; mask <= 16; mask <<= 1) {
            moments other = {__shfl_down_sync(~0u, m.count, mask), __shfl_down_sync(~0u, m.mean, mask),
                             __shfl_down_sync(~0u, m.deviations, mask)};
            m = combine(m, other);
        }
        if (lane < 8) {
            shared[warp][lane][0] = m.count;
            shared[warp][lane][1] = m.mean;
            shared[warp][lane][2] = m.deviations;
        }
        __syncthreads();
#if SYNCED
        // Lanes eight apart have the same channel, and each speaks with another card.
        if (threadIdx.x >= 32) return;
        m = {0.f, 0.f, 0.f};
        for (int w = 0; w < 32; w++)
            m = combine(m, moments{shared[w][lane & 7][0], shared[w][lane & 7][1], shared[w][lane & 7][2]});
        float own[3] = {m.count, m.mean, m.deviations};
        m = {0.f, 0.f, 0.f};
        for (int first = 0; first < s.cards.ranks; first += 4) {
            float values[3] = {own[0], own[1], own[2]};
            int peer = first + (lane >> 3);
            if (peer < s.cards.ranks && c < s.written) exchange(s.cards, table, peer, 3 * c, values);
            __syncwarp();
            for (int p = 0; p < 4 && first + p < s.cards.ranks; p++) {
                int from = p * 8 + (lane & 7);
                moments other = {__shfl_sync(~0u, values[0], from), __shfl_sync(~0u, values[1], from),
                                 __shfl_sync(~0u, values[2], from)};
                m = combine(m, other);
            }
        }
        if (threadIdx.x >= 8 || c >= s.written) return;
        all[c] = m.mean;
        all[s.written + c] = m.deviations;
        if (c == 0) all[2 * s.written] = m.count;
#else
        if (threadIdx.x >= 8 || c >= s.written) return;
        m = {0.f, 0.f, 0.f};
        for (int w = 0; w < 32; w++)
            m = combine(m, moments{shared[w][threadIdx.x][0], shared[w][threadIdx.x][1], shared[w][threadIdx.x][2]});
#endif
        channel = known + c;
        mu = m.mean;
        variance = m.deviations / m.count;
        mean[channel] = mu;
        var[channel] = variance;
        rstd[channel] = 1.f / sqrtf(variance + s.eps);
    }
    float a = gamma[channel] / sqrtf(variance + s.eps);
    scale[channel] = a;
    shift[channel] = fmaf(-mu, a, beta[channel]);
    if (s.record) {
        batch_mean[channel] = mu;
        batch_var[channel] = variance * s.unbias;
    }
}
