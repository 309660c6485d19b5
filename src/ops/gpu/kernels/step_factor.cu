// decided[0] = min(1, (most + rest) / (√Σ part + 1e-6)): what clipping to the norm most + rest multiplies gradients by (torch.nn.utils.
// clip_grad_norm_), 1 where it is infinite; decided[1] = 1 where Σ part and every loss are finite, else 0 (and decided[0] 1).
//
// part: the parts of `sums_of_squares`, in `runs` runs, run i from start[i] on and length[i] long; added in fp64, in one order.
// No headers. Grid 1, block 256. Bytes: the parts once, from L2; bound by latency.

struct step_factor_sizes {
    int runs, losses;
    float most, rest;
    int start[8], length[8];
};

extern "C" __global__ void __launch_bounds__(256)
step_factor(const float* __restrict__ part, const float* __restrict__ losses, float* __restrict__ decided,
            const __grid_constant__ step_factor_sizes s) {
    __shared__ double shared[8];
    double sum = 0.;
    for (int run = 0; run < s.runs; run++)
        for (int i = threadIdx.x; i < s.length[run]; i += 256) sum += part[s.start[run] + i];
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_down_sync(~0u, sum, mask);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; warp++) sum += shared[warp];
        bool finite = isfinite(sum);
        for (int head = 0; head < s.losses; head++) finite = finite && isfinite(losses[head]);
        double factor = ((double)s.most + s.rest) / (sqrt(sum) + 1e-6);
        decided[0] = finite && factor < 1. ? (float)factor : 1.f;
        decided[1] = finite ? 1.f : 0.f;
    }
}
