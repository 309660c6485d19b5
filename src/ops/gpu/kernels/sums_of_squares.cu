// part[b] = Σ x² over the 4,096 elements that block b takes of its array, fp32, in one order. Header: parameters.cuh.
// Grid Σ ceil(length / 4096), block 256. Bytes: the arrays once.

struct sums_of_squares_sizes {
    int arrays, zero;
    places at;
};

#define ARGUMENTS(i) const float* __restrict__ x##i,
#define CASE(i) case i: x = x##i; break;

extern "C" __global__ void __launch_bounds__(256)
sums_of_squares(EACH(ARGUMENTS) float* __restrict__ part, const __grid_constant__ sums_of_squares_sizes s) {
    __shared__ float shared[8];
    int k = find_array(s.at, s.arrays), length = s.at.length[k];
    const float* x = nullptr;
    switch (k) { EACH(CASE) }
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        long long at = (long long)(blockIdx.x - s.at.first[k]) * 4096 + i * 256 + threadIdx.x;
        float value = at < length ? x[at] : 0.f;
        sum = fmaf(value, value, sum);
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask >>= 1) sum += __shfl_down_sync(~0u, sum, mask);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; warp++) sum += shared[warp];
        part[blockIdx.x] = sum;
    }
}
