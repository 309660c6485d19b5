// features[n, c] = mean over pixels of relu(scale·X + shift): the last norm, ReLU and global average pooling.
//
// X: [N·pixels, C] (ld_x), features: fp32 [N, C]. Headers: tiles.cuh channels.cuh. Grid (ceil(C/(8·V)), N), block 256.

struct global_pool_forward_sizes {
    int batch, pixels, channels, ld_x;
};

extern "C" __global__ void __launch_bounds__(256)
global_pool_forward(const E* __restrict__ X, const float* __restrict__ scale, const float* __restrict__ shift,
                    float* __restrict__ features, const __grid_constant__ global_pool_forward_sizes s) {
    __shared__ float shared[8 * 8 * V];
    OF_IMAGE(X, (long long)s.pixels * s.ld_x);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    OF_IMAGE(features, s.channels);
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = (blockIdx.x * 8 + (threadIdx.x & 7)) * V;
    float sum[V] = {};
    if (c < s.channels) {
        float a[V], b[V];
        load_floats(scale + c, a);
        load_floats(shift + c, b);
        const E* image = X + (long long)blockIdx.y * s.pixels * s.ld_x + c;
#pragma unroll 2
        for (int p = threadIdx.x >> 3; p < s.pixels; p += 32) {
            float f[V];
            element::unpack(load_vector(image + (long long)p * s.ld_x), f);
#pragma unroll
            for (int e = 0; e < V; e++) sum[e] += max_nan(fmaf(a[e], f[e], b[e]), 0.f);
        }
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        sum[e] += __shfl_down_sync(~0u, sum[e], 8);
        sum[e] += __shfl_down_sync(~0u, sum[e], 16);
        if (lane < 8) shared[(warp * 8 + lane) * V + e] = sum[e];
    }
    __syncthreads();
    int local = threadIdx.x, channel = blockIdx.x * 8 * V + local;
    if (local < 8 * V && channel < s.channels) {
        float total = 0.f;
#pragma unroll
        for (int w = 0; w < 8; w++) total += shared[w * 8 * V + local];
        features[(long long)blockIdx.y * s.channels + channel] = total / (float)s.pixels;
    }
}
