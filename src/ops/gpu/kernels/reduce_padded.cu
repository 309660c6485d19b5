// dw[o][c][tap] = Σ_split ws[split][o][tap·room + c], c < in ≤ room, in order of the splits: the weight gradient of a
// convolution whose input was given channels of zeros up to `room`.
//
// No headers. Grid ceil(out·in·taps/256), block 256. Bytes: ws once, dw once.

struct reduce_padded_sizes {
    int splits, out, in, taps, room, zero;
};

extern "C" __global__ void __launch_bounds__(256)
reduce_padded(const float* __restrict__ ws, float* __restrict__ dw, const __grid_constant__ reduce_padded_sizes s) {
    long long index = (long long)blockIdx.x * 256 + threadIdx.x, row = (long long)s.taps * s.in;
    if (index >= s.out * row) return;
    long long o = (s.out * row) >> 32 == 0 ? (unsigned)index / (unsigned)row : index / row;
    long long split = (long long)s.out * s.taps * s.room;
    int rest = (int)(index - o * row), c = rest / s.taps, tap = rest - c * s.taps;
    const float* from = ws + ((o * s.taps + tap) * s.room + c);
    float sum = 0.f;
#pragma unroll 8
    for (int k = 0; k < s.splits; k++) sum += __ldg(from + k * split);
    dw[index] = sum;
}
