// dw[o][c][tap] = Σ_split ws[split][o][tap·in + c], in order of the splits: weight gradients as PyTorch lays them out.
// accumulate = 1 adds to what dw holds. mode is 0. No headers. Grid ceil(out·in·taps/256), block 256.

struct reduce_partials_sizes {
    int splits, out, in, taps, mode, accumulate;
};

extern "C" __global__ void __launch_bounds__(256)
reduce_partials(const float* __restrict__ ws, float* __restrict__ dw, const __grid_constant__ reduce_partials_sizes s) {
    int row = s.taps * s.in, total = s.out * row, index = blockIdx.x * 256 + threadIdx.x;
    if (index >= total) return;
    int o = index / row, rest = index - o * row, c = rest / s.taps, tap = rest - c * s.taps;
    const float* from = ws + ((long long)o * row + tap * s.in + c);
    float sum = 0.f;
#pragma unroll 8
    for (int k = 0; k < s.splits; k++) sum += __ldg(from + (long long)k * total);
    dw[index] = s.accumulate ? dw[index] + sum : sum;
}
