// dx of a shortcut without parameters: the gradient of every `stride`-th pixel of every `stride`-th line, 0 for the others.
//
// g: [N·Ho·Wo, ≥ C] (ld_g), dx: [N·H·W, C] (ld_x), every element written; the gradient of the channels that were added as
// zeros is left out. C and strides are multiples of 8. Headers: tiles.cuh channels.cuh. Grid (G, ceil(C/(8·V))), block 256,
// G = min(ceil(N·H·W/32), 8·SMS). Bytes: g's first C channels read, dx written once.

struct shortcut_backward_sizes {
    int pixels, channels, ld_g, ld_x, stride, height, width, out_height, out_width, zero;
};

extern "C" __global__ void __launch_bounds__(256)
shortcut_backward(const E* __restrict__ g, E* __restrict__ dx, const __grid_constant__ shortcut_backward_sizes s) {
    walk at;
    if (at.c >= s.channels) return;
    for (long long p = at.pixel; p < s.pixels; p += at.step) {
        u32 line = (u32)p / s.width, n = line / s.height, iy = line - n * s.height, ix = (u32)p - line * s.width;
        u32 oy = iy / s.stride, ox = ix / s.stride;
        uint4 v = make_uint4(0, 0, 0, 0);
        if (oy * s.stride == iy && ox * s.stride == ix)
            v = load_vector(g + (((long long)n * s.out_height + oy) * s.out_width + ox) * s.ld_g + at.c);
        store_vector(dx + p * s.ld_x + at.c, v);
    }
}
