// dx = scale·(g − dbeta/m − x̂·dgamma/m), g and mask as in `norm_backward_sums`, x̂ = (x − mean)·rstd, scale = gamma·rstd;
// mask + 4 also writes dresidual = g. Any C. dx may be dy or x, dresidual may be dy (if dx is not).
//
// dy, x, y, dx, dresidual: [pixels, C]. Headers: tiles.cuh channels.cuh. Grid (G, ceil(C/(8·V))), block 256,
// G = min(ceil(pixels/32), 8·SMS). Bytes: each tensor once.

struct norm_backward_apply_sizes {
    int pixels, channels, ld_dy, ld_x, ld_y, ld_dx, ld_dresidual, mask;
    float inv_m;
    int zero;
};

extern "C" __global__ void __launch_bounds__(256, 2)
norm_backward_apply(const E* dy, const E* x, const E* __restrict__ y, const float* __restrict__ mean,
                    const float* __restrict__ rstd, const float* __restrict__ scale, const float* __restrict__ shift,
                    const float* __restrict__ dgamma, const float* __restrict__ dbeta, E* dx, E* dresidual,
                    const __grid_constant__ norm_backward_apply_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    OF_IMAGE(dy, (long long)s.pixels * s.ld_dy);
    OF_IMAGE(x, (long long)s.pixels * s.ld_x);
    OF_IMAGE(y, (long long)s.pixels * s.ld_y);
    OF_IMAGE(dx, (long long)s.pixels * s.ld_dx);
    OF_IMAGE(dresidual, (long long)s.pixels * s.ld_dresidual);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    OF_IMAGE(dgamma, s.channels);
    OF_IMAGE(dbeta, s.channels);
    int mask = s.mask & 3;
    bool writes = s.mask & 4;
    bool vectors = s.channels % V == 0 && s.ld_x % V == 0 && s.ld_dy % V == 0 && s.ld_dx % V == 0 &&
                   (mask != 2 || s.ld_y % V == 0) && (!writes || s.ld_dresidual % V == 0);
    float a[V], b[V], slope[V], offset[V];
    load_vector_of(scale, at.c, s.channels, a);
    load_vector_of(shift, at.c, s.channels, b);
#pragma unroll
    for (int e = 0; e < V; e++) {
        int c = at.c + e < s.channels ? at.c + e : 0;
#if PER_IMAGE  // dgamma and dbeta are what is missing
        slope[e] = -dgamma[c] * s.inv_m;
        offset[e] = -dbeta[c] * s.inv_m;
#else
        slope[e] = -a[e] * rstd[c] * dgamma[c] * s.inv_m;
        offset[e] = -a[e] * dbeta[c] * s.inv_m - slope[e] * mean[c];
#endif
    }
    auto take = [&](int e, float g, float& f) { f = fmaf(a[e], g, fmaf(slope[e], f, offset[e])); };
    each_gradient(at, s, dy, x, y, mask, vectors, a, b, take, [&](const float* g, const float* f, long long p) {
        store_channels(dx + p * s.ld_dx, at.c, s.channels, vectors, f);
        if (writes) store_channels(dresidual + p * s.ld_dresidual, at.c, s.channels, vectors, g);
    });
}
