// dx = dfeatures[n, c]/pixels at every pixel: backward of the mean over each feature map.
//
// dfeatures: fp32 [N, C], dx: [N·pixels, C] (ld). C and ld are multiples of 8. Headers: tiles.cuh channels.cuh.
// Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(N·pixels/32), 8·SMS). Bytes: dx once.

struct mean_backward_sizes {
    int batch, pixels, channels, ld;
};

extern "C" __global__ void __launch_bounds__(256)
mean_backward(const float* __restrict__ dfeatures, E* __restrict__ dx, const __grid_constant__ mean_backward_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    long long total = (long long)s.batch * s.pixels;
    for (long long p = at.pixel; p < total; p += at.step) {
        float d[V];
        load_floats(dfeatures + p / s.pixels * s.channels + at.c, d);
#pragma unroll
        for (int e = 0; e < V; e++) d[e] /= (float)s.pixels;
        store_vector(dx + p * s.ld + at.c, element::pack(d));
    }
}
