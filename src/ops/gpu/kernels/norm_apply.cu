// y = act(scale·x + shift [+ residual]), act = ReLU or nothing; any C. mode: +1 adds the residual, +2 ReLU.
//
// x, residual, y: [pixels, C] (ld_x, ld_residual, ld_y). Headers: tiles.cuh channels.cuh.
// Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(pixels/32), 8·SMS). Bytes: each tensor once.

struct norm_apply_sizes {
    int pixels, channels, ld_x, ld_residual, ld_y, mode;
};

extern "C" __global__ void __launch_bounds__(256, EACH_IMAGE && __CUDA_ARCH__ < 900 ? 3 : 4)
norm_apply(const E* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
           const E* __restrict__ residual, E* __restrict__ y, const __grid_constant__ norm_apply_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    OF_IMAGE(x, (long long)s.pixels * s.ld_x);
    OF_IMAGE(residual, (long long)s.pixels * s.ld_residual);
    OF_IMAGE(y, (long long)s.pixels * s.ld_y);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    bool adds = s.mode & 1, relu = s.mode & 2;
    bool vectors = s.channels % V == 0 && s.ld_x % V == 0 && s.ld_y % V == 0 && (!adds || s.ld_residual % V == 0);
    float a[V], b[V];
    load_vector_of(scale, at.c, s.channels, a);
    load_vector_of(shift, at.c, s.channels, b);
    auto load = [&](uint4(&v)[2], long long p) {
        v[0] = load_channels(x + p * s.ld_x, at.c, s.channels, vectors);
        if (adds) v[1] = load_channels(residual + p * s.ld_residual, at.c, s.channels, vectors);
    };
    at.each<2, uint4[2]>(s.pixels, load, [&](const uint4(&v)[2], long long p) {
        float f[V], r[V];
        element::unpack(v[0], f);
        if (adds) element::unpack(v[1], r);
#pragma unroll
        for (int e = 0; e < V; e++) {
            float v = fmaf(a[e], f[e], b[e]);
            if (adds) v += r[e];
            f[e] = relu ? max_nan(v, 0.f) : v;
        }
        store_channels(y + p * s.ld_y, at.c, s.channels, vectors, f);
    });
}
