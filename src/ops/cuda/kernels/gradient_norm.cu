// part[block] = Σ grad² over the block's elements. Header: segments.cuh. Grid: blocks of the table, block 256.
// Workspace: one float a block.

struct gradient_norm_sizes {
    int segments, zero;
};

extern "C" __global__ void __launch_bounds__(256)
gradient_norm(const float* __restrict__ grad, const unsigned* __restrict__ table, float* __restrict__ part,
              const __grid_constant__ gradient_norm_sizes s) {
    __shared__ float shared[8];
    segment g = find_segment(table, s.segments);
    float sum = 0.f;
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned i = g.begin + threadIdx.x + k * 256;
        float v = i < g.end ? grad[(unsigned long long)g.offset + i] : 0.f;
        sum = fmaf(v, v, sum);
    }
    for (int mask = 16; mask; mask >>= 1) sum += __shfl_down_sync(~0u, sum, mask);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; w++) sum += shared[w];
        part[blockIdx.x] = sum;
    }
}
