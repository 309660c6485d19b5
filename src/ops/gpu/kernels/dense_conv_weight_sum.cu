// dw[o][c][tap] = Σ_split part[split]: the parts of `dense_conv_weight` added in order. Beside that, unless PER_IMAGE, what norm_sums.cuh
// says of the norm in front of the convolution (left: what `dense_conv_backward` leaves of it, `rows` rows): neither needs the other,
// and what cards wait for each other is over before dw is.
//
// part: [splits][halves of the channels][8 pieces][9 taps][128 threads][2 outputs], dw: [32, 128, 9]. Headers: exchange.cuh
// norm_sums.cuh. Grid 144, block 128, and as the first blocks 32 for the norm's 128 channels. Bytes: the parts once, from L2;
// bound by latency.

struct dense_conv_weight_sum_sizes {
    int splits, rows;
    norm_sums sums;
};

extern "C" __global__ void __launch_bounds__(128)
dense_conv_weight_sum(const float* __restrict__ part, float* __restrict__ dw, const float* __restrict__ left,
                      const float* __restrict__ gamma, float* __restrict__ dgamma, float* __restrict__ dbeta, float* s1, float* s2,
#if SYNCED
                      const unsigned long long* __restrict__ table,
#endif
                      const __grid_constant__ dense_conv_weight_sum_sizes s) {
#if PER_IMAGE
    int block = blockIdx.x;
#else
    constexpr int OF_NORM = 32;
    if (blockIdx.x < OF_NORM) {
        float2 sum = sum_rows<4, 4>(left, s.rows, 128, blockIdx.x * 4);
        put_sums(s.sums, blockIdx.x * 4 + (threadIdx.x >> 5), sum, gamma, dgamma, dbeta, s1, s2, NORM_SUMS_TABLE);
        return;
    }
    int block = blockIdx.x - OF_NORM;
#endif
    int t = threadIdx.x, half = block / 72, piece = block % 72, q = piece / 9, tap = piece % 9;
    const float2* from = (const float2*)part + block * 128 + t;
    float2 sum = make_float2(0.f, 0.f);
#pragma unroll 22
    for (int k = 0; k < s.splits; k++) {
        float2 v = __ldcg(from + (long long)k * 144 * 128);
        sum.x += v.x, sum.y += v.y;
    }
    int o = q / 2 * 8 + (t & 3) * 2, c = half * 64 + (t >> 5) * 16 + q % 2 * 8 + (t >> 2 & 7);
    dw[(o * 128 + c) * 9 + tap] = sum.x;
    dw[((o + 1) * 128 + c) * 9 + tap] = sum.y;
}
