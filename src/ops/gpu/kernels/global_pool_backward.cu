// Backward of `global_pool_forward`: g = [scale·x + shift > 0]·dfeatures[n, c]/pixels, S = gamma·g, part = Σ g, Σ g·x̂ of an image.
//
// dfeatures: fp32 [N, C], X, S: [N·pixels, C] (ld_x, ld_s). Headers: tiles.cuh channels.cuh.
// Grid (N, ceil(C/(8·V))), block 256, rows of part = N. Bytes: X and S once.

struct global_pool_backward_sizes {
    int batch, pixels, channels, ld_x, ld_s, zero;
};

extern "C" __global__ void __launch_bounds__(256)
global_pool_backward(const float* __restrict__ dfeatures, const E* __restrict__ X, const float* __restrict__ mean,
                     const float* __restrict__ rstd, const float* __restrict__ scale, const float* __restrict__ shift,
                     const float* __restrict__ gamma, E* __restrict__ S, float* __restrict__ part,
                     const __grid_constant__ global_pool_backward_sizes s) {
    __shared__ float shared[8 * 8 * V * 2];
    OF_IMAGE(dfeatures, s.channels);
    OF_IMAGE(X, (long long)s.pixels * s.ld_x);
    OF_IMAGE(S, (long long)s.pixels * s.ld_s);
    NORM_OF_IMAGE(s.channels);
    OF_IMAGE(part, 2 * s.channels);
    int c = (blockIdx.y * 8 + (threadIdx.x & 7)) * V;
    float first[V] = {}, second[V] = {};
    if (c < s.channels) {
        float a[V], b[V], mu[V], gam[V], d[V];
        load_floats(scale + c, a);
        load_floats(shift + c, b);
        load_floats(mean + c, mu);
        load_floats(gamma + c, gam);
        load_floats(dfeatures + (long long)blockIdx.x * s.channels + c, d);
#pragma unroll
        for (int e = 0; e < V; e++) d[e] /= (float)s.pixels;
        long long image = (long long)blockIdx.x * s.pixels;
#pragma unroll 2
        for (int p = threadIdx.x >> 3; p < s.pixels; p += 32) {
            float f[V];
            element::unpack(load_vector(X + (image + p) * s.ld_x + c), f);
#pragma unroll
            for (int e = 0; e < V; e++) {
                float g = fmaf(a[e], f[e], b[e]) > 0.f ? d[e] : 0.f;
                first[e] += g;
                second[e] = fmaf(g, f[e] - mu[e], second[e]);
                f[e] = gam[e] * g;
            }
            store_vector(S + (image + p) * s.ld_s + c, element::pack(f));
        }
#pragma unroll
        for (int e = 0; e < V; e++) second[e] *= rstd[c + e];
    }
    write_sums(first, second, shared, part, blockIdx.x, s.channels);
}
