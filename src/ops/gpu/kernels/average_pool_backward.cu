// dx = sum of dy/divisor over the windows that hold the pixel, in order; divisor as in `average_pool_forward`.
//
// dy: [P, C] (ld_y), dx: [N·H·W, C] (ld_x), every element written. Headers: tiles.cuh pool_sizes.cuh.
// Grid min(ceil(N·H·W·C/256), 32·SMS), block 256.

struct average_pool_sizes {
    pool_sizes pool;
    int count_include_pad, zero;
};

extern "C" __global__ void __launch_bounds__(256)
average_pool_backward(const E* __restrict__ dy, E* __restrict__ dx, const __grid_constant__ average_pool_sizes t) {
    const pool_sizes& s = t.pool;
    long long total = (long long)s.batch * s.height * s.width * s.in;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < total; i += (long long)gridDim.x * 256) {
        u32 q = (u32)(i / s.in), c = (u32)(i - (long long)q * s.in), line = q / s.width, n = line / s.height;
        int iy = (int)(line - n * s.height) + s.pad_y, ix = (int)(q - line * s.width) + s.pad_x;
        int oy0 = iy < s.kh ? 0 : (iy - s.kh) / s.stride_y + 1, oy1 = min(iy / s.stride_y, s.out_height - 1);
        int ox0 = ix < s.kw ? 0 : (ix - s.kw) / s.stride_x + 1, ox1 = min(ix / s.stride_x, s.out_width - 1);
        float sum = 0.f;
        for (int oy = oy0; oy <= oy1; oy++)
            for (int ox = ox0; ox <= ox1; ox++) {
                int y0 = oy * s.stride_y - s.pad_y, x0 = ox * s.stride_x - s.pad_x;
                int y1 = min(y0 + s.kh, s.height + s.pad_y), x1 = min(x0 + s.kw, s.width + s.pad_x);
                int count = (y1 - y0) * (x1 - x0);
                if (!t.count_include_pad)
                    count = (min(y1, s.height) - max(y0, 0)) * (min(x1, s.width) - max(x0, 0));
                long long p = ((long long)n * s.out_height + oy) * s.out_width + ox;
                sum += element::to_float(dy[p * s.ld_y + c]) / (float)count;
            }
        dx[(long long)q * s.ld_x + c] = element::from_float(sum);
    }
}
