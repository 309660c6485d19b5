// dw[o][c][tap] = Σ_split part[split]: the parts of `dense_conv_weight` added in a fixed order, four runs of them and then these.
//
// part: [splits][halves of the channels][8 pieces][9 taps][128 threads][2 outputs], dw: [32, 128, 9]. No headers. Grid 144, block 512.
// Bytes: the parts once, from L2; bound by latency.

struct dense_conv_weight_sum_sizes {
    int splits, none;
};

extern "C" __global__ void __launch_bounds__(512)
dense_conv_weight_sum(const float* __restrict__ part, float* __restrict__ dw, const __grid_constant__ dense_conv_weight_sum_sizes s) {
    __shared__ float2 shared[3][128];
    int t = threadIdx.x & 127, run = threadIdx.x >> 7, half = blockIdx.x / 72, piece = blockIdx.x % 72, q = piece / 9, tap = piece % 9;
    int each = (s.splits + 3) / 4, end = min(s.splits, (run + 1) * each);
    const float2* from = (const float2*)part + blockIdx.x * 128 + t;
    float2 sum = make_float2(0.f, 0.f);
#pragma unroll 17
    for (int k = run * each; k < end; k++) {
        float2 v = __ldcg(from + (long long)k * 144 * 128);
        sum.x += v.x, sum.y += v.y;
    }
    if (run > 0) shared[run - 1][t] = sum;
    __syncthreads();
    if (run > 0) return;
#pragma unroll
    for (int k = 0; k < 3; k++) sum.x += shared[k][t].x, sum.y += shared[k][t].y;
    int o = q / 2 * 8 + (t & 3) * 2, c = half * 64 + (t >> 5) * 16 + q % 2 * 8 + (t >> 2 & 7);
    dw[(o * 128 + c) * 9 + tap] = sum.x;
    dw[((o + 1) * 128 + c) * 9 + tap] = sum.y;
}
