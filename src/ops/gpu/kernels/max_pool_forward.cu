// y = maximum of x over a window, index = which tap (ky·kw + kx) it came from, the first of equal ones; NaN counts as greatest.
//
// x: [N·H·W, C] (ld_x), y: [P, C] (ld_y), index: bytes [P, C]; kh·kw ≤ 255, any C, padding at most half the window.
// Headers: tiles.cuh pool_sizes.cuh. Grid min(ceil(P·C/256), 32·SMS), block 256.

extern "C" __global__ void __launch_bounds__(256)
max_pool_forward(const E* __restrict__ x, E* __restrict__ y, unsigned char* __restrict__ index,
                 const __grid_constant__ pool_sizes s) {
    long long total = (long long)s.batch * s.out_height * s.out_width * s.in;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < total; i += (long long)gridDim.x * 256) {
        u32 p = (u32)(i / s.in), c = (u32)(i - (long long)p * s.in), line = p / s.out_width, n = line / s.out_height;
        int y0 = (int)(line - n * s.out_height) * s.stride_y - s.pad_y, x0 = (int)(p - line * s.out_width) * s.stride_x - s.pad_x;
        float best = 0.f;
        int from = 255;
        for (int ky = 0; ky < s.kh; ky++) {
            int iy = y0 + ky;
            if ((u32)iy >= (u32)s.height) continue;
            for (int kx = 0; kx < s.kw; kx++) {
                int ix = x0 + kx;
                if ((u32)ix >= (u32)s.width) continue;
                float v = element::to_float(x[(((long long)n * s.height + iy) * s.width + ix) * s.ld_x + c]);
                if (from == 255 || v > best || (v != v && best == best)) {
                    best = v;
                    from = ky * s.kw + kx;
                }
            }
        }
        y[(long long)p * s.ld_y + c] = element::from_float(best);
        index[i] = (unsigned char)from;
    }
}
