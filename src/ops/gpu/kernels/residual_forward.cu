// y = relu(scale·x + shift + r): the end of a residual block. r is the shortcut's pixel, every `stride`-th of every `stride`-th
// line, after a norm of its own where `normed` = 1; channels that the shortcut lacks are 0.
//
// x, y: [N·Ho·Wo, C] (ld_x, ld_y), shortcut: [N·H·W, shortcut_channels] (ld_shortcut), H = height, Ho = out_height; where
// stride is 1 the sizes are not read. All channels and strides are multiples of 8. The shortcut's constants are read where
// normed = 1. Headers: tiles.cuh channels.cuh. Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(N·Ho·Wo/32), 8·SMS).
// Bytes: each tensor once.

struct residual_forward_sizes {
    int pixels, channels, shortcut_channels, ld_x, ld_shortcut, ld_y, stride, height, width, out_height, out_width, normed;
};

extern "C" __global__ void __launch_bounds__(256, 3)
residual_forward(const E* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
                 const E* __restrict__ shortcut, const float* __restrict__ shortcut_scale,
                 const float* __restrict__ shortcut_shift, E* __restrict__ y,
                 const __grid_constant__ residual_forward_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    OF_IMAGE(x, (long long)s.pixels * s.ld_x);
    OF_IMAGE(y, (long long)s.pixels * s.ld_y);
    OF_IMAGE(shortcut, (s.stride > 1 ? (long long)s.height * s.width : s.pixels) * s.ld_shortcut);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    OF_IMAGE(shortcut_scale, s.channels);
    OF_IMAGE(shortcut_shift, s.channels);
    bool adds = at.c < s.shortcut_channels;
    float a[V], b[V], c[V];
    load_floats(scale + at.c, a);
    load_floats(shift + at.c, b);
#pragma unroll
    for (int e = 0; e < V; e++) c[e] = 1.f;
    if (s.normed && adds) {
        float more[V];
        load_floats(shortcut_scale + at.c, c);
        load_floats(shortcut_shift + at.c, more);
#pragma unroll
        for (int e = 0; e < V; e++) b[e] += more[e];
    }
    auto load = [&](uint4(&v)[2], long long p) {
        long long from = p;
        v[0] = load_vector(x + p * s.ld_x + at.c);
        if (!adds) return;
        if (s.stride > 1) {
            u32 line = (u32)p / s.out_width, n = line / s.out_height, oy = line - n * s.out_height;
            from = ((long long)n * s.height + oy * s.stride) * s.width + ((u32)p - line * s.out_width) * s.stride;
        }
        v[1] = load_vector(shortcut + from * s.ld_shortcut + at.c);
    };
    at.each<2, uint4[2]>(s.pixels, load, [&](const uint4(&v)[2], long long p) {
        float f[V], r[V];
        element::unpack(v[0], f);
        if (adds) element::unpack(v[1], r);
#pragma unroll
        for (int e = 0; e < V; e++) {
            float v = fmaf(a[e], f[e], b[e]);
            if (adds) v = fmaf(c[e], r[e], v);
            f[e] = max_nan(v, 0.f);
        }
        store_vector(y + p * s.ld_y + at.c, element::pack(f));
    });
}
