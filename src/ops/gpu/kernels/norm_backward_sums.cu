// Partials of Σ g and Σ g·x̂, g = dy where the mask holds, x̂ = (x − mean)·rstd; any C.
// mask: 0 always, 1 where scale·x + shift > 0, 2 where y > 0; + 4 writes g over dy. The macro MASK may give it instead, which
// leaves more registers.
//
// dy, x, y: [pixels, C] (ld_dy, ld_x, ld_y); y is read under mask 2 only. Headers: tiles.cuh channels.cuh.
// Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(pixels/64), 4·SMS), rows of part = G. Bytes: each tensor once, dy twice
// where it is written.

#ifndef MASK
#define MASK s.mask
#endif

struct norm_backward_sums_sizes {
    int pixels, channels, ld_dy, ld_x, ld_y, mask;
};

extern "C" __global__ void __launch_bounds__(256, 3)
norm_backward_sums(E* dy, const E* __restrict__ x, const E* __restrict__ y,
                   const float* __restrict__ mean, const float* __restrict__ rstd, const float* __restrict__ scale,
                   const float* __restrict__ shift, float* __restrict__ part,
                   const __grid_constant__ norm_backward_sums_sizes s) {
    __shared__ float shared[8 * 8 * V * 2];
    walk at;
    OF_IMAGE(dy, (long long)s.pixels * s.ld_dy);
    OF_IMAGE(x, (long long)s.pixels * s.ld_x);
    OF_IMAGE(y, (long long)s.pixels * s.ld_y);
    OF_IMAGE(mean, s.channels);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    int mask = MASK & 3;
    bool writes = MASK & 4;
    float first[V] = {}, second[V] = {};
    if (at.c < s.channels) {
        bool vectors = s.channels % V == 0 && s.ld_x % V == 0 && s.ld_dy % V == 0 && (mask != 2 || s.ld_y % V == 0);
        float a[V], b[V], mu[V];
        load_vector_of(mean, at.c, s.channels, mu);
        if (mask == 1) {
            load_vector_of(scale, at.c, s.channels, a);
            load_vector_of(shift, at.c, s.channels, b);
        }
        auto take = [&](int e, float g, float f) {
            first[e] += g;
            second[e] = fmaf(g, f - mu[e], second[e]);
        };
        each_gradient(at, s, dy, x, y, mask, vectors, a, b, take, [&](const float* g, const float*, long long p) {
            if (writes) store_channels(dy + p * s.ld_dy, at.c, s.channels, vectors, g);
        });
        OF_IMAGE(rstd, s.channels);
#pragma unroll
        for (int e = 0; e < V; e++) second[e] *= at.c + e < s.channels ? rstd[at.c + e] : 0.f;
    }
    OF_IMAGE(part, (long long)gridDim.x * 2 * s.channels);
    write_sums(first, second, shared, part, blockIdx.x, s.channels);
}
