// The stem's 7×7 convolution with stride 2 and padding 3: sizes and the image's tile.

#ifndef STEM_CHANNELS
#define STEM_CHANNELS 3
#endif
[[maybe_unused]] constexpr int TAP_ROWS = 7 * STEM_CHANNELS;              // (channel, ky): eight taps each, the eighth zero
[[maybe_unused]] constexpr int STEM_K = 16 * ((TAP_ROWS + 1) / 2);        // packed row length
[[maybe_unused]] constexpr int COLUMNS = 38;                              // of the image, under 16 outputs

struct stem_sizes {
    int batch, height, width, out_height, out_width, channels, ld, tiles_y, tiles_x;
    u32 stride_n, stride_c, stride_y, stride_x;
    int zero;
};
