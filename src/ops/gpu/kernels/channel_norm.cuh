// Statistics of the channels just written, the last `written` of `channels`, put together from partials, and what a norm over all of
// the channels does to each: by a kernel of its own, or by the blocks of the kernel that reads the map through the norm, before they
// read scale and shift.
//
// part: partials of the written channels, [rows][2][written] and [rows] counts; mean, var, rstd: [channels], the written ones
// are written, the others read; scale, shift: [channels]. With record = 1 the mean and the unbiased variance (var·unbias) of
// every channel go to batch_mean and batch_var. First the mean about that of row 0 is summed up, then what the rows are about that, so
// that the only division is by the number of all values, and a large mean costs no digits. Headers in front: channels.cuh, and exchange.cuh where
// SYNCED = 1.
//
// SYNCED = 1: part is what this card has; everything else is over the pixels of all cards. What was put together of all goes to
// `all`, partials of one row: `channel_norm` without SYNCED makes the same bits of that.

struct channel_norm_sizes {
    int rows, written, channels, record;
    float eps, unbias;
#if SYNCED
    exchange_part cards;
#endif
};

#if SYNCED
#define CHANNEL_NORM_OF_ALL , float *__restrict__ all, const unsigned long long *__restrict__ table
#define CHANNEL_NORM_ARRAYS \
    { norm_part, mean, var, rstd, gamma, beta, scale, shift, batch_mean, batch_var, all, table }
#else
#define CHANNEL_NORM_OF_ALL
#define CHANNEL_NORM_ARRAYS \
    { norm_part, mean, var, rstd, gamma, beta, scale, shift, batch_mean, batch_var }
#endif
// Parameters of a kernel, and what it makes of them.
#define CHANNEL_NORM_PARAMETERS                                                                                             \
    float *norm_part, float *mean, float *var, float *rstd, const float *__restrict__ gamma, const float *__restrict__ beta, \
        float *scale, float *shift, float *__restrict__ batch_mean, float *__restrict__ batch_var CHANNEL_NORM_OF_ALL

struct channel_norm_arrays {
    float *part, *mean, *var, *rstd;
    const float *gamma, *beta;
    float *scale, *shift, *batch_mean, *batch_var;
#if SYNCED
    float* all;
    const unsigned long long* table;
#endif
};

// Of `threads` threads of a block, which wait for each other at barrier `Barrier`.
template <int threads>
struct norm_room {
    float means[threads / 32][8][2], squares[threads / 32][8][1];
};
template <int threads, int number = 1>
struct named_barrier {  // among these threads alone
    static __device__ __forceinline__ void wait() { asm volatile("bar.sync %0, %1;" ::"n"(number), "n"(threads) : "memory"); }
};
struct block_barrier {
    static __device__ __forceinline__ void wait() { __syncthreads(); }
};

// The sums over the threads, which have eight channels by turns, for each thread's channel.
template <class Barrier, int N, int WARPS>
__device__ __forceinline__ void sum_by_channel(int t, float (&values)[N], float (&shared)[WARPS][8][N]) {
    int lane = t & 31;
#pragma unroll
    for (int i = 0; i < N; i++) {
        values[i] += __shfl_xor_sync(~0u, values[i], 8);
        values[i] += __shfl_xor_sync(~0u, values[i], 16);
        if (lane < 8) shared[t >> 5][lane][i] = values[i];
        values[i] = 0.f;
    }
    Barrier::wait();
#pragma unroll
    for (int w = 0; w < WARPS; w++)
#pragma unroll
        for (int i = 0; i < N; i++) values[i] += shared[w][lane & 7][i];
}

// What a norm does to a channel: x · x + y.
__device__ __forceinline__ float2 affine_of(float mean, float variance, float gamma, float beta, float eps) {
    float scale = gamma / sqrtf(variance + eps);
    return make_float2(scale, fmaf(-mean, scale, beta));
}

__device__ __forceinline__ void put_affine(const channel_norm_arrays& n, const channel_norm_sizes& s, int channel, float mean,
                                           float variance, float2 affine) {
    n.scale[channel] = affine.x;
    n.shift[channel] = affine.y;
    if (s.record) {
        n.batch_mean[channel] = mean;
        n.batch_var[channel] = variance * s.unbias;
    }
}

// The written channels from c − t % 8 on, by `threads` threads, of which this is t. Returns whether the thread has a channel, known + c,
// and what the norm does to it. Rows behind those that are read once are read AT_ONCE at a time.
template <int threads, class Barrier, int AT_ONCE>
__device__ __forceinline__ bool norm_written(int c, int t, const channel_norm_arrays& n, const channel_norm_sizes& s,
                                             norm_room<threads>& room, float2& affine) {
    constexpr int STEP = threads / 8, HELD = (192 + STEP - 1) / STEP;  // rows that are read once
    bool in = c < s.written;
    int channel = s.channels - s.written + c;
    const float *row = n.part + (in ? c : 0), *counts = n.part + (long long)s.rows * 2 * s.written;
    float count[HELD], mean[HELD], deviation[HELD], origin = row[0];
    float gamma = in ? n.gamma[channel] : 0.f, beta = in ? n.beta[channel] : 0.f;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int r = (t >> 3) + i * STEP;
        const float* at = row + (long long)r * 2 * s.written;
        bool there = r < s.rows;
        count[i] = there ? counts[r] : 0.f, mean[i] = there ? at[0] : 0.f, deviation[i] = there ? at[s.written] : 0.f;
    }
    float sums[2] = {0.f, 0.f}, deviations[1] = {0.f};  // Σ count, Σ count·(mean − origin)
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        mean[i] -= origin;
        sums[0] += count[i];
        sums[1] = fmaf(count[i], mean[i], sums[1]);
    }
    int rest = (t >> 3) + HELD * STEP;
#pragma unroll AT_ONCE
    for (int r = rest; r < s.rows; r += STEP) {
        sums[0] += counts[r];
        sums[1] = fmaf(counts[r], row[(long long)r * 2 * s.written] - origin, sums[1]);
    }
    sum_by_channel<Barrier>(t, sums, room.means);
    float apart = sums[1] / sums[0];
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        float d = mean[i] - apart;
        deviations[0] += fmaf(count[i] * d, d, deviation[i]);
    }
#pragma unroll AT_ONCE
    for (int r = rest; r < s.rows; r += STEP) {
        const float* at = row + (long long)r * 2 * s.written;
        float d = at[0] - origin - apart;
        deviations[0] += fmaf(counts[r] * d, d, at[s.written]);
    }
    sum_by_channel<Barrier>(t, deviations, room.squares);
    moments m = {sums[0], origin + apart, deviations[0]};
#if SYNCED
    // Lanes eight apart have the same channel, and each speaks with another card.
    if (t >= 32) return false;
    float own[3] = {m.count, m.mean, m.deviations};
    m = {0.f, 0.f, 0.f};
    for (int first = 0; first < s.cards.ranks; first += 4) {
        float values[3] = {own[0], own[1], own[2]};
        int peer = first + (t >> 3);
        if (peer < s.cards.ranks && in) exchange(s.cards, n.table, peer, 3 * c, values);
        __syncwarp();
        for (int p = 0; p < 4 && first + p < s.cards.ranks; p++) {
            int from = p * 8 + (t & 7);
            moments other = {__shfl_sync(~0u, values[0], from), __shfl_sync(~0u, values[1], from), __shfl_sync(~0u, values[2], from)};
            m = combine(m, other);
        }
    }
    if (t >= 8 || !in) return false;
    n.all[c] = m.mean;
    n.all[s.written + c] = m.deviations;
    if (c == 0) n.all[2 * s.written] = m.count;
#else
    if (t >= 8 || !in) return false;
#endif
    float variance = m.deviations / m.count;
    affine = affine_of(m.mean, variance, gamma, beta, s.eps);
    n.mean[channel] = m.mean;
    n.var[channel] = variance;
    n.rstd[channel] = 1.f / sqrtf(variance + s.eps);
    put_affine(n, s, channel, m.mean, variance, affine);
    return true;
}

// Where blocks tell each other scale and shift of the written channels, [2][written] behind the partials. The kernel that leaves the
// partials writes UNTOLD there, which is no result of arithmetic: so no fence is needed, and no word is read twice.
#define UNTOLD 0xffffffffu
__device__ __forceinline__ volatile unsigned* norm_told(float* part, int rows, int written) {
    return (volatile unsigned*)part + (long long)rows * (2 * written + 1);
}

// Does that in front of a kernel whose blocks all run at once, by `threads` threads of each. The blocks take eight channels each, by
// turns; `told`, in shared memory, becomes scale and shift of the written channels, [2][written].
template <int threads, class Barrier>
__device__ __forceinline__ void norm_in_front(int t, const channel_norm_arrays& n, const channel_norm_sizes& s,
                                              norm_room<threads>& room, float* told) {
    volatile unsigned* words = norm_told(n.part, s.rows, s.written);
    for (int first = blockIdx.x * 8; first < s.written; first += gridDim.x * 8) {
        float2 affine;
        int c = first + (t & 7);
        if (norm_written<threads, Barrier, 1>(c, t, n, s, room, affine)) {
            words[c] = __float_as_uint(affine.x);
            words[s.written + c] = __float_as_uint(affine.y);
        }
        Barrier::wait();
    }
    for (int i = t; i < 2 * s.written; i += threads) {
        unsigned word;
        do word = words[i];
        while (word == UNTOLD);
        told[i] = __uint_as_float(word);
    }
    Barrier::wait();
}

// The same of a channel that the kernel before did not write, which all blocks work out for themselves, and the last one keeps.
__device__ __forceinline__ float2 norm_known(int channel, const channel_norm_arrays& n, const channel_norm_sizes& s) {
    float mean = __ldg(n.mean + channel), variance = __ldg(n.var + channel);
    float2 affine = affine_of(mean, variance, __ldg(n.gamma + channel), __ldg(n.beta + channel), s.eps);
    if (blockIdx.x + 1 == gridDim.x) put_affine(n, s, channel, mean, variance, affine);
    return affine;
}
