// What norm_sums.cuh says, in a launch of its own. Headers: exchange.cuh norm_sums.cuh.
// Grid ceil(C/8), block 1024: eight channels by 128 rows at once.
//
// SYNCED = 1: with record = 1 the sums over all cards of dbeta and dgamma go to all_dbeta and all_dgamma, and s1 and s2 are not written.

struct channel_sums_sizes {
    int rows, channels;
#if SYNCED
    int record, zero;
#endif
    norm_sums sums;
};

extern "C" __global__ void __launch_bounds__(1024)
channel_sums(const float* __restrict__ part, const float* __restrict__ gamma, float* __restrict__ dgamma,
             float* __restrict__ dbeta, float* s1, float* s2,
#if SYNCED
             float* __restrict__ all_dgamma, float* __restrict__ all_dbeta, const unsigned long long* __restrict__ table,
#endif
             const __grid_constant__ channel_sums_sizes s) {
    float2 sum = sum_rows<32, 8>(part, s.rows, s.channels, blockIdx.x * 8);
    int warp = threadIdx.x >> 5, c = blockIdx.x * 8 + warp;
    if (warp >= 8 || c >= s.channels) return;
#if SYNCED
    if (s.record) {
        bool leader = (threadIdx.x & 31) == 0;
        if (leader) dbeta[c] = sum.x, dgamma[c] = sum.y;
        float all[2] = {sum.x, sum.y};
        sum_over_cards(s.sums.cards, table, 2 * c, all);
        if (leader) all_dbeta[c] = all[0], all_dgamma[c] = all[1];
        return;
    }
#endif
    put_sums(s.sums, c, sum, gamma, dgamma, dbeta, s1, s2, NORM_SUMS_TABLE);
}
