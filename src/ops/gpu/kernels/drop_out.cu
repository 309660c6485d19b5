// Dropout of some channels of a map, in place: x becomes scale·x where its draw is below the threshold, else 0. Backward
// does the same to the gradient.
//
// x: [images·pixels, C] (ld). Headers: tiles.cuh draws.cuh. The mask is that of `dropout_mask` for maps of
// [images, C, pixels], whose draws lie in that order: four draws are four pixels of a channel. A thread takes one channel
// of four pixels, and threads side by side channels side by side. Where the pixels of an image are no multiple of
// four, its draws are of two groups of four. Grid (ceil(ceil(pixels/4)·C / 256), min(images, 65535)), block 256.
// Bytes: x read and written once.

struct drop_out_sizes {
    int images, pixels, channels, ld;
    unsigned threshold;
    float scale;
    dropout_key key;
};

extern "C" __global__ void __launch_bounds__(256)
drop_out(E* x, const __grid_constant__ drop_out_sizes s) {
    const unsigned at = blockIdx.x * 256 + threadIdx.x, group = at / s.channels;
    const int c = at % s.channels, pixel = (int)group * 4;
    if (pixel >= s.pixels) return;
    const long long first = (long long)c * s.pixels + pixel;
    const int skipped = first & 3;
    for (int image = blockIdx.y; image < s.images; image += gridDim.y) {
        E* place = x + ((long long)image * s.pixels + pixel) * s.ld + c;
        float value[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (pixel + i < s.pixels) value[i] = element::to_float(place[(long long)i * s.ld]);
        }
        unsigned low[4], high[4] = {0, 0, 0, 0};
        draw_four(low, s.key, image, first >> 2);
        if (skipped != 0) draw_four(high, s.key, image, (first >> 2) + 1);
        const unsigned draws[7] = {low[0], low[1], low[2], low[3], high[0], high[1], high[2]};
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const unsigned draw = skipped == 0   ? draws[i]
                                  : skipped == 1 ? draws[i + 1]
                                  : skipped == 2 ? draws[i + 2]
                                                 : draws[i + 3];
            if (pixel + i < s.pixels)
                place[(long long)i * s.ld] = element::from_float(draw < s.threshold ? value[i] * s.scale : 0.f);
        }
    }
}
