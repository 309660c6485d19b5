// out = rstd·(S − s1/m − x̂·s2/m), x̂ = (X − mean)·rstd: the gradient of a slice of a block's channels from what its consumers
// added up (S = Σ γ·g, s1 = Σ γ·dβ, s2 = Σ γ·dγ). out may be S.
//
// S, X, out: [pixels, C] (ld_s, ld_x, ld_out). Headers: tiles.cuh channels.cuh. Grid (G, ceil(C/(8·V))), block 256,
// G = min(ceil(pixels/32), 8·SMS). Bytes: S and X read, out written once.

struct input_gradient_sizes {
    int pixels, channels, ld_s, ld_x, ld_out;
    float inv_m;
};

extern "C" __global__ void __launch_bounds__(256)
input_gradient(const E* S, const E* __restrict__ X, const float* __restrict__ mean, const float* __restrict__ rstd,
               const float* __restrict__ s1, const float* __restrict__ s2, E* out,
               const __grid_constant__ input_gradient_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    OF_IMAGE(S, (long long)s.pixels * s.ld_s);
    OF_IMAGE(X, (long long)s.pixels * s.ld_x);
    OF_IMAGE(out, (long long)s.pixels * s.ld_out);
    OF_IMAGE(s1, s.channels);
    OF_IMAGE(s2, s.channels);
    float alpha[V], slope[V], offset[V];
#pragma unroll
    for (int e = 0; e < V; e++) {
        int c = at.c + e;
#if PER_IMAGE
        alpha[e] = 1.f;
        slope[e] = -s2[c] * s.inv_m;
        offset[e] = -s1[c] * s.inv_m;
#else
        alpha[e] = rstd[c];
        slope[e] = -rstd[c] * rstd[c] * s2[c] * s.inv_m;
        offset[e] = -rstd[c] * s1[c] * s.inv_m - slope[e] * mean[c];
#endif
    }
    constexpr int AHEAD = 4;
    for (long long p = at.pixel; p < s.pixels; p += AHEAD * at.step) {
        uint4 g[AHEAD], x[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            long long q = p + i * at.step;
            if (q < s.pixels) {
                g[i] = *(const uint4*)(S + q * s.ld_s + at.c);
                x[i] = load_vector(X + q * s.ld_x + at.c);
            }
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            long long q = p + i * at.step;
            if (q >= s.pixels) break;
            float f[V], v[V];
            element::unpack(g[i], f);
            element::unpack(x[i], v);
#pragma unroll
            for (int e = 0; e < V; e++) f[e] = fmaf(alpha[e], f[e], fmaf(slope[e], v[e], offset[e]));
            store_vector(out + q * s.ld_out + at.c, element::pack(f));
        }
    }
}
