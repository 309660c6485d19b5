// dw[o][c][tap] = Σ_split part[split]: the parts of `dense_conv_weight` added in order.
//
// part: [splits][halves of the channels][8 pieces][9 taps][128 threads][2 outputs], dw: [32, 128, 9]. No headers. Grid 144, block 128.
// Bytes: the parts once, from L2; bound by latency.

struct dense_conv_weight_sum_sizes {
    int splits, none;
};

extern "C" __global__ void __launch_bounds__(128)
dense_conv_weight_sum(const float* __restrict__ part, float* __restrict__ dw, const __grid_constant__ dense_conv_weight_sum_sizes s) {
    int t = threadIdx.x, half = blockIdx.x / 72, piece = blockIdx.x % 72, q = piece / 9, tap = piece % 9;
    const float2* from = (const float2*)part + blockIdx.x * 128 + t;
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
