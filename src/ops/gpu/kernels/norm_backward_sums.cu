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
    float first[V], second[V];
#pragma unroll
    for (int e = 0; e < V; e++) first[e] = second[e] = 0.f;
    if (at.c < s.channels) {
        bool vectors = s.channels % V == 0 && s.ld_x % V == 0 && s.ld_dy % V == 0 && (mask != 2 || s.ld_y % V == 0);
        float a[V], b[V], mu[V];
        load_vector_of(mean, at.c, s.channels, mu);
        if (mask == 1) {
            load_vector_of(scale, at.c, s.channels, a);
            load_vector_of(shift, at.c, s.channels, b);
        }
        constexpr int AHEAD = 2;
        for (long long p = at.pixel; p < s.pixels; p += AHEAD * at.step) {
            uint4 gs[AHEAD], xs[AHEAD], ys[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                long long q = p + i * at.step;
                if (q < s.pixels) {
                    gs[i] = load_channels(dy + q * s.ld_dy, at.c, s.channels, vectors);
                    xs[i] = load_channels(x + q * s.ld_x, at.c, s.channels, vectors);
                    if (mask == 2) ys[i] = load_channels(y + q * s.ld_y, at.c, s.channels, vectors);
                }
            }
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                long long q = p + i * at.step;
                if (q >= s.pixels) break;
                float g[V], f[V], o[V];
                element::unpack(gs[i], g);
                element::unpack(xs[i], f);
                if (mask == 2) element::unpack(ys[i], o);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    bool open = mask == 0 || (mask == 1 ? fmaf(a[e], f[e], b[e]) : o[e]) > 0.f;
                    g[e] = open ? g[e] : 0.f;
                    first[e] += g[e];
                    second[e] = fmaf(g[e], f[e] - mu[e], second[e]);
                }
                if (writes) store_channels(dy + q * s.ld_dy, at.c, s.channels, vectors, g);
            }
        }
        OF_IMAGE(rstd, s.channels);
#pragma unroll
        for (int e = 0; e < V; e++) second[e] *= at.c + e < s.channels ? rstd[at.c + e] : 0.f;
    }
    OF_IMAGE(part, (long long)gridDim.x * 2 * s.channels);
    write_sums(first, second, shared, part, blockIdx.x, s.channels);
}
