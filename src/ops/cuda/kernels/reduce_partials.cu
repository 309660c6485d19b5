// dw[o][c][tap] = Σ_split ws[split][o][tap·in + c], in order of the splits: weight gradients as PyTorch lays them out.
// accumulate = 1 adds to what dw holds. mode is 0. No headers. Grid ceil(out·in·taps/256), block 256.

struct reduce_partials_sizes {
    int splits, out, in, taps, mode, accumulate;
};

extern "C" __global__ void __launch_bounds__(256)
reduce_partials(const float* __restrict__ ws, float* __restrict__ dw, const __grid_constant__ reduce_partials_sizes s) {
    int row = s.taps * s.in, total = s.out * row, index = blockIdx.x * 256 + threadIdx.x;
    if (index >= total) return;
    float sum = 0.f;
#pragma unroll 8
    for (int k = 0; k < s.splits; k++) sum += __ldg(ws + (long long)k * total + index);
    int o = index / row, k = index - o * row, tap = k / s.in, c = k - tap * s.in;
    float* at = dw + ((long long)o * s.in + c) * s.taps + tap;
    *at = s.accumulate ? *at + sum : sum;
}
