// Partials of the statistics of x: [pixels, C] (ld), any C. Headers: tiles.cuh channels.cuh.
// Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(pixels/64), 4·SMS), rows of part = G. Bytes: x once.

struct norm_statistics_sizes {
    int pixels, channels, ld, zero;
};

extern "C" __global__ void __launch_bounds__(256)
norm_statistics(const E* __restrict__ x, float* __restrict__ part, const __grid_constant__ norm_statistics_sizes s) {
    __shared__ float shared[8 * 8 * V * 3];
    walk at;
    OF_IMAGE(x, (long long)s.pixels * s.ld);
    OF_IMAGE(part, (long long)gridDim.x * (2 * s.channels + 1));
    bool vectors = s.channels % V == 0 && s.ld % V == 0;
    gathered_moments m;
    constexpr int AHEAD = 4;
    if (at.c < s.channels)
        for (long long p = at.pixel; p < s.pixels; p += AHEAD * at.step) {
            uint4 v[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (p + i * at.step < s.pixels)
                    v[i] = load_channels(x + (p + i * at.step) * s.ld, at.c, s.channels, vectors);
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (p + i * at.step < s.pixels) {
                    float f[V];
                    element::unpack(v[i], f);
                    m.add(f);
                }
        }
    write_moments(m, shared, part, s.channels);
}
