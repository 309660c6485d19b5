// dx = sum of dy over the windows whose maximum came from the pixel, in order of the windows.
//
// dy: [P, C] (ld_y), index: bytes [P, C], dx: [N·H·W, C] (ld_x), every element written.
// Headers: tiles.cuh pool_sizes.cuh. Grid min(ceil(N·H·W·C/256), 32·SMS), block 256.

extern "C" __global__ void __launch_bounds__(256)
max_pool_backward(const E* __restrict__ dy, const unsigned char* __restrict__ index, E* __restrict__ dx,
                  const __grid_constant__ pool_sizes s) {
    long long total = (long long)s.batch * s.height * s.width * s.in;
    for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < total; i += (long long)gridDim.x * 256) {
        u32 q = (u32)(i / s.in), c = (u32)(i - (long long)q * s.in), line = q / s.width, n = line / s.height;
        int iy = (int)(line - n * s.height) + s.pad_y, ix = (int)(q - line * s.width) + s.pad_x;
        int oy0 = iy < s.kh ? 0 : (iy - s.kh) / s.stride_y + 1, oy1 = min(iy / s.stride_y, s.out_height - 1);
        int ox0 = ix < s.kw ? 0 : (ix - s.kw) / s.stride_x + 1, ox1 = min(ix / s.stride_x, s.out_width - 1);
        float sum = 0.f;
        for (int oy = oy0; oy <= oy1; oy++)
            for (int ox = ox0; ox <= ox1; ox++) {
                long long p = ((long long)n * s.out_height + oy) * s.out_width + ox;
                if (index[p * s.in + c] == (iy - oy * s.stride_y) * s.kw + ix - ox * s.stride_x)
                    sum += element::to_float(dy[p * s.ld_y + c]);
            }
        dx[(long long)q * s.ld_x + c] = element::from_float(sum);
    }
}
