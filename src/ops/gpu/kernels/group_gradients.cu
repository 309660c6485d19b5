// dgamma = Σ_n a and dbeta = Σ_n b: the gradients of a GroupNorm's parameters from those of each image (`group_sums`), in order.
//
// a, b: [images][C]. No headers. Grid ceil(C/32), block 256: 32 channels by 8 images at once.

struct group_gradients_sizes {
    int channels, images;
};

extern "C" __global__ void __launch_bounds__(256)
group_gradients(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ dgamma, float* __restrict__ dbeta,
                const __grid_constant__ group_gradients_sizes s) {
    __shared__ float found[8][2][32];
    int column = threadIdx.x & 31, first = threadIdx.x >> 5, c = blockIdx.x * 32 + column;
    float scale = 0.f, shift = 0.f;
    if (c < s.channels)
#pragma unroll 8
        for (int n = first; n < s.images; n += 8) {
            scale += __ldg(a + (long long)n * s.channels + c);
            shift += __ldg(b + (long long)n * s.channels + c);
        }
    found[first][0][column] = scale;
    found[first][1][column] = shift;
    __syncthreads();
    if (first < 2 && c < s.channels) {
        float all = 0.f;
#pragma unroll
        for (int i = 0; i < 8; i++) all += found[i][first][column];
        (first ? dbeta : dgamma)[c] = all;
    }
}
