// The stem's 7×7 convolution with stride 2 and padding 3: sizes, and the image under 16 outputs of a line.
//
// A line of taps (channel, ky) is eight long: a zero, then kx = 0..6. Its image columns begin at 2·ox − 4, so that four
// columns of the image, side by side, are four of the tile.

#ifndef STEM_CHANNELS
#define STEM_CHANNELS 3
#endif
// Whether the image's lines are multiples of four; else its columns are loaded one by one.
#ifndef STEM_FOURS
#define STEM_FOURS 1
#endif
[[maybe_unused]] constexpr int TAP_ROWS = 7 * STEM_CHANNELS;
[[maybe_unused]] constexpr int STEM_K = 16 * ((TAP_ROWS + 1) / 2);  // packed row length
[[maybe_unused]] constexpr int PITCH = 40;                          // columns kept of a line

struct stem_sizes {
    int batch, height, width, out_height, out_width, channels, ld, tiles_y, tiles_x;
};


struct tile_place {
    int n, oy, ox;
};
struct tile_order {
    divider by_image, by_line;
    u32 image, line;
    __device__ __forceinline__ tile_order(int tiles_y, int tiles_x)
        : by_image(tiles_y * tiles_x), by_line(tiles_x), image(tiles_y * tiles_x), line(tiles_x) {}
    __device__ __forceinline__ tile_place place(int tile, int lines) const {
        // One image is all there is where norms are taken over each; on Hopper the compiler spills more where it knows that.
        u32 n = EACH_IMAGE && __CUDA_ARCH__ < 900 ? 0 : by_image.quotient(tile), rest = tile - n * image, y = by_line.quotient(rest);
        return {(int)n, (int)y * lines, (int)(rest - y * line) * 16};
    }
};
