// y = average of x over a window; the divisor is kh·kw with count_include_pad (clipped at the padded image's end, as PyTorch
// does), else the number of pixels in the image.
//
// x: [N·H·W, C] (ld_x), y: [P, C] (ld_y), any C. Headers: tiles.cuh pool_sizes.cuh.
// Grid min(ceil(P·C/256), 32·SMS), block 256.

struct average_pool_sizes {
    pool_sizes pool;
    int count_include_pad, zero;
};

extern "C" __global__ void __launch_bounds__(256)
average_pool_forward(const E* __restrict__ x, E* __restrict__ y, const __grid_constant__ average_pool_sizes t) {
    const pool_sizes& s = t.pool;
    long long total = (long long)s.batch * s.out_height * s.out_width * s.in;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < total; i += (long long)gridDim.x * 256) {
        u32 p = (u32)(i / s.in), c = (u32)(i - (long long)p * s.in), line = p / s.out_width, n = line / s.out_height;
        int y0 = (int)(line - n * s.out_height) * s.stride_y - s.pad_y, x0 = (int)(p - line * s.out_width) * s.stride_x - s.pad_x;
        int y1 = min(y0 + s.kh, s.height + s.pad_y), x1 = min(x0 + s.kw, s.width + s.pad_x);
        int count = (y1 - y0) * (x1 - x0);
        y0 = max(y0, 0), x0 = max(x0, 0), y1 = min(y1, s.height), x1 = min(x1, s.width);
        if (!t.count_include_pad) count = (y1 - y0) * (x1 - x0);
        float sum = 0.f;
        for (int iy = y0; iy < y1; iy++)
            for (int ix = x0; ix < x1; ix++)
                sum += element::to_float(x[(((long long)n * s.height + iy) * s.width + ix) * s.ld_x + c]);
        y[(long long)p * s.ld_y + c] = element::from_float(sum / (float)count);
    }
}
