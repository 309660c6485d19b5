// T[q, c] = average over 2×2 pixels of relu(scale·X + shift): norm, ReLU and average pooling of a transition, before its 1×1
// convolution, because pooling commutes with that and leaves a quarter of the products (`conv_forward` on T makes them).
//
// X: [N·H·W, C] (ld_x), T: [Q, C] (ld_t), Q = N·floor(H/2)·floor(W/2). Headers: tiles.cuh channels.cuh pooled.cuh.
// Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(Q/32), 8·SMS). Bytes: X and T once.

struct transition_pool_sizes {
    int batch, height, width, channels, ld_x, ld_t;
};

extern "C" __global__ void __launch_bounds__(256)
transition_pool(const E* __restrict__ X, const float* __restrict__ scale, const float* __restrict__ shift,
                E* __restrict__ T, const __grid_constant__ transition_pool_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    OF_IMAGE(X, (long long)s.height * s.width * s.ld_x);
    OF_IMAGE(T, (long long)(s.height / 2) * (s.width / 2) * s.ld_t);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    long long rows = (long long)s.batch * (s.height / 2) * (s.width / 2), line = (long long)s.width * s.ld_x;
    pooled_pixels pixels(s.height, s.width, s.ld_x);
    float a[V], b[V];
    load_floats(scale + at.c, a);
    load_floats(shift + at.c, b);
    constexpr int AHEAD = 2;
    for (long long q = at.pixel; q < rows; q += AHEAD * at.step) {
        pooled_vector v[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (q + i * at.step < rows) v[i].load(X + pixels.offset((u32)(q + i * at.step)) + at.c, line, s.ld_x);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (q + i * at.step < rows) store_vector(T + (q + i * at.step) * s.ld_t + at.c, v[i].average(a, b));
    }
}
