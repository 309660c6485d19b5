// Puts together what a norm's backward pass leaves of its channels in rows of partials, Σ g and Σ g·x̂: dbeta = Σ g, dgamma = Σ g·x̂,
// and s1 = gamma·dbeta, s2 = gamma·dgamma, written (accumulate = 0) or added. part: [rows][2][C].
//
// Header in front: exchange.cuh. SYNCED = 1: dbeta and dgamma are those of this card's pixels, and so are s1 and s2 of the
// first `own` channels, to which other norms have yet to add. Those of the channels behind are complete, and become the sums over all cards.

#if SYNCED
#define NORM_SUMS_TABLE table
#else
#define NORM_SUMS_TABLE nullptr
#endif

struct norm_sums {
    int accumulate, own;
#if SYNCED
    exchange_part cards;
#endif
};

// The sums of the rows of channel `first + warp` in each lane of a warp, for the first CHANNELS of a block's WARPS warps, which all call
// it. First the rows r, r + 32·WARPS/CHANNELS, … in order, then pairwise.
template <int WARPS, int CHANNELS>
__device__ __forceinline__ float2 sum_rows(const float* __restrict__ part, int rows, int channels, int first) {
    __shared__ float shared[WARPS][CHANNELS + 1][2];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = first + threadIdx.x % CHANNELS;
    float2 sum = make_float2(0.f, 0.f);
    if (c < channels) {
#pragma unroll 4
        for (int r = threadIdx.x / CHANNELS; r < rows; r += 32 * WARPS / CHANNELS) {
            const float* row = part + (long long)r * 2 * channels;
            sum.x += __ldg(row + c);
            sum.y += __ldg(row + channels + c);
        }
    }
#pragma unroll
    for (int mask = CHANNELS; mask <= 16; mask <<= 1) {
        sum.x += __shfl_xor_sync(~0u, sum.x, mask);
        sum.y += __shfl_xor_sync(~0u, sum.y, mask);
    }
    if (lane < CHANNELS) {
        shared[warp][lane][0] = sum.x;
        shared[warp][lane][1] = sum.y;
    }
    __syncthreads();
    bool read = lane < WARPS && warp < CHANNELS;
    sum = read ? make_float2(shared[lane][warp][0], shared[lane][warp][1]) : make_float2(0.f, 0.f);
#pragma unroll
    for (int mask = 1; mask <= 16; mask <<= 1) {
        sum.x += __shfl_xor_sync(~0u, sum.x, mask);
        sum.y += __shfl_xor_sync(~0u, sum.y, mask);
    }
    return sum;
}

// Writes what `sum` makes of channel c. All lanes of a warp call it.
__device__ __forceinline__ void put_sums(const norm_sums& s, int c, float2 sum, const float* gamma, float* dgamma, float* dbeta,
                                         float* s1, float* s2, [[maybe_unused]] const unsigned long long* table) {
    bool leader = (threadIdx.x & 31) == 0;
    float sums[2] = {0.f, 0.f};
    if (leader) {
        float g = gamma[c];
        dbeta[c] = sum.x;
        dgamma[c] = sum.y;
        sums[0] = fmaf(g, sum.x, s.accumulate ? s1[c] : 0.f);
        sums[1] = fmaf(g, sum.y, s.accumulate ? s2[c] : 0.f);
    }
#if SYNCED
    if (c >= s.own) sum_over_cards(s.cards, table, 2 * (c - s.own), sums);
#endif
    if (leader) {
        s1[c] = sums[0];
        s2[c] = sums[1];
    }
}
