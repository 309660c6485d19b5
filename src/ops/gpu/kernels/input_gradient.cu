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
    gradient_terms(alpha, slope, offset, at.c, mean, rstd, s1, s2, s.inv_m);
    auto load = [&](uint4(&v)[2], long long p) {
        v[0] = *(const uint4*)(S + p * s.ld_s + at.c);
        v[1] = load_vector(X + p * s.ld_x + at.c);
    };
    at.each<4, uint4[2]>(s.pixels, load, [&](const uint4(&v)[2], long long p) {
        float f[V], x[V];
        element::unpack(v[0], f);
        element::unpack(v[1], x);
#pragma unroll
        for (int e = 0; e < V; e++) f[e] = fmaf(alpha[e], f[e], fmaf(slope[e], x[e], offset[e]));
        store_vector(out + p * s.ld_out + at.c, element::pack(f));
    });
}
