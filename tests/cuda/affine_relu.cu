// out[p, c] = max(0, scale[c]·x[p, c] + shift[c]) for a slice of channels.
//
// x: [pixels, channels] with row stride ld_x in elements, out likewise with ld_out; T is float,
// __nv_bfloat16 or __half (macro STORAGE). One thread an element, 256 threads a block,
// grid ceil(pixels·channels / 256). No workspace. Bytes moved: one read and one write of the slice.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct affine_relu_sizes {
    int pixels, channels, ld_x, ld_out;
};

extern "C" __global__ void __launch_bounds__(256)
affine_relu(const STORAGE* x, const float* scale, const float* shift, STORAGE* out,
            const __grid_constant__ affine_relu_sizes s) {
    long long index = (long long)blockIdx.x * 256 + threadIdx.x;
    if (index >= (long long)s.pixels * s.channels) return;
    long long pixel = index / s.channels;
    int channel = (int)(index - pixel * s.channels);
    float value = (float)x[pixel * s.ld_x + channel];
    out[pixel * s.ld_out + channel] = (STORAGE)fmaxf(fmaf(scale[channel], value, shift[channel]), 0.0f);
}
