// `channel_statistics` of the channels just written, the last `written` of `channels`, and `norm_affine` of a norm over all of
// them: one launch between two convolutions instead of two.
//
// part: partials of the written channels, [rows][2][written] and [rows] counts; mean, var, rstd: [channels], the written ones
// are written, the others read; scale, shift: [channels]. With record = 1 the mean and the unbiased variance (var·unbias) of
// every channel go to batch_mean and batch_var. Headers: tiles.cuh channels.cuh.
// Grid ceil(written/8) + ceil((channels − written)/512), block 512. Two passes over the rows, first for the mean about that of
// row 0, so that the only division is by the number of all values, and a large mean costs no digits.
//
// SYNCED = 1 (header exchange.cuh as well): part is what this card has; everything else is over the pixels of all cards. What was
// put together of all goes to `row`, partials of one row: launched on that without SYNCED, the kernel gives the same bits.

constexpr int THREADS = 512;

// The sums over a block, whose threads have eight channels by turns, for each thread's channel.
template <int N>
__device__ __forceinline__ void sum_of_block(float (&values)[N], float (&shared)[THREADS / 32][8][N]) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int i = 0; i < N; i++) {
        values[i] += __shfl_xor_sync(~0u, values[i], 8);
        values[i] += __shfl_xor_sync(~0u, values[i], 16);
        if (lane < 8) shared[warp][lane][i] = values[i];
        values[i] = 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++)
#pragma unroll
        for (int i = 0; i < N; i++) values[i] += shared[w][lane & 7][i];
}

struct channel_norm_sizes {
    int rows, written, channels, record;
    float eps, unbias;
#if SYNCED
    exchange_part cards;
#endif
};

extern "C" __global__ void __launch_bounds__(THREADS)
channel_norm(const float* __restrict__ part, float* mean, float* var, float* rstd, const float* __restrict__ gamma,
             const float* __restrict__ beta, float* __restrict__ scale, float* __restrict__ shift,
             float* __restrict__ batch_mean, float* __restrict__ batch_var,
#if SYNCED
             float* __restrict__ all, const unsigned long long* __restrict__ table,
#endif
             const __grid_constant__ channel_norm_sizes s) {
    __shared__ float means[THREADS / 32][8][2], squares[THREADS / 32][8][1];
    int fresh = (s.written + 7) / 8, known = s.channels - s.written, channel;
    float mu, variance;
    if (blockIdx.x >= fresh) {
        channel = (blockIdx.x - fresh) * THREADS + threadIdx.x;
        if (channel >= known) return;
        mu = mean[channel];
        variance = var[channel];
    } else {
        int c = blockIdx.x * 8 + (threadIdx.x & 7);
        bool in = c < s.written;
        const float *row = part + (in ? c : 0), *counts = part + (long long)s.rows * 2 * s.written;
        float origin = __ldg(row), sums[2] = {0.f, 0.f}, deviations[1] = {0.f};  // Σ count, Σ count·(mean − origin)
#pragma unroll 4
        for (int r = threadIdx.x >> 3; r < s.rows; r += THREADS / 8) {
            float count = __ldg(counts + r);
            sums[0] += count;
            sums[1] = fmaf(count, __ldg(row + (long long)r * 2 * s.written) - origin, sums[1]);
        }
        sum_of_block(sums, means);
        float apart = sums[1] / sums[0];
#pragma unroll 4
        for (int r = threadIdx.x >> 3; r < s.rows; r += THREADS / 8) {
            const float* at = row + (long long)r * 2 * s.written;
            float d = __ldg(at) - origin - apart;
            deviations[0] += fmaf(__ldg(counts + r) * d, d, __ldg(at + s.written));
        }
        sum_of_block(deviations, squares);
        moments m = {sums[0], origin + apart, deviations[0]};
#if SYNCED
        // Lanes eight apart have the same channel, and each speaks with another card.
        if (threadIdx.x >= 32) return;
        int lane = threadIdx.x;
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
        if (threadIdx.x >= 8 || !in) return;
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
