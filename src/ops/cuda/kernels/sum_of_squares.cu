// part[b] = Σ values[i]² over the 4,096 elements from 4,096·b on, fp32, in one order. No headers.
// Grid ceil(length / 4096), block 256. Bytes: values once.

struct sum_of_squares_sizes {
    int length, zero;
};

extern "C" __global__ void __launch_bounds__(256)
sum_of_squares(const float* __restrict__ values, float* __restrict__ part, const __grid_constant__ sum_of_squares_sizes s) {
    __shared__ float shared[8];
    float sum = 0.f;
#pragma unroll
    for (int i = 0; i < 16; i++) {
        long long at = (long long)blockIdx.x * 4096 + i * 256 + threadIdx.x;
        float value = at < s.length ? values[at] : 0.f;
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
