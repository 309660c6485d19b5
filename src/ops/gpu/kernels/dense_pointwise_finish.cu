// dw[o][c] = Σ_block ws[block][c][o] of the blocks of c's range, in order: the weight gradient that `dense_pointwise_backward` leaves in
// parts. With sums = 1 also what `channel_sums` makes of `part`: dbeta = Σ g, dgamma = Σ g·x̂, s1 += gamma·dbeta, s2 += gamma·dgamma.
//
// A block takes one channel: eight warps take every eighth part of dw; thread r takes row r of `part`, and every 256th from there.
// PER_IMAGE = 1 (see tiles.cuh): every image has such blocks, and sums is 0.
// No headers. Grid C, block 256. Bytes: ws once, from L2.

struct dense_pointwise_finish_sizes {
    int channels, splits, last, sums, images, zero;
};

extern "C" __global__ void __launch_bounds__(256)
dense_pointwise_finish(const float* __restrict__ ws, const float* __restrict__ part, const float* __restrict__ gamma,
                       float* __restrict__ dw, float* __restrict__ dgamma, float* __restrict__ dbeta, float* __restrict__ s1,
                       float* __restrict__ s2, const __grid_constant__ dense_pointwise_finish_sizes s) {
    constexpr int OUT = 128, RANGE = 128;
    __shared__ float4 shared[8][OUT / 4];
    __shared__ float2 of_warp[8];
    int c = blockIdx.x, range = c / RANGE, whole = s.channels / RANGE, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    bool is_whole = range < whole;
    int first = is_whole ? range : whole * s.splits, step = is_whole ? whole : 1, count = is_whole ? s.splits : s.last;
    const float4* from = (const float4*)ws + ((long long)first * RANGE + c % RANGE) * (OUT / 4) + lane;
    float2 sums = make_float2(0.f, 0.f);
    if (s.sums)
        for (int r = threadIdx.x; r < count; r += 256) {
            const float* row = part + (long long)r * 2 * s.channels + c;
            sums.x += __ldg(row), sums.y += __ldg(row + s.channels);
        }
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#if PER_IMAGE
    long long of_image = (long long)(whole * s.splits + s.last) * RANGE * (OUT / 4);
    int all = count * s.images;
#pragma unroll 4
    for (int k = warp; k < all; k += 8) {
        float4 v = __ldg(from + k / count * of_image + (long long)(k % count) * step * RANGE * (OUT / 4));
#else
#pragma unroll 8
    for (int k = warp; k < count; k += 8) {
        float4 v = __ldg(from + (long long)k * step * RANGE * (OUT / 4));
#endif
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    shared[warp][lane] = sum;
#pragma unroll
    for (int mask = 16; mask; mask >>= 1) {
        sums.x += __shfl_xor_sync(~0u, sums.x, mask);
        sums.y += __shfl_xor_sync(~0u, sums.y, mask);
    }
    if (lane == 0) of_warp[warp] = sums;
    __syncthreads();
    int o = threadIdx.x;
    if (o < OUT) {
        const float* column = (const float*)shared + o;
        float all = 0.f;
#pragma unroll
        for (int w = 0; w < 8; w++) all += column[w * OUT];
        dw[(long long)o * s.channels + c] = all;
    } else if (o == OUT && s.sums) {
        float a = 0.f, b = 0.f, g = gamma[c];
#pragma unroll
        for (int w = 0; w < 8; w++) a += of_warp[w].x, b += of_warp[w].y;
        dbeta[c] = a, dgamma[c] = b;
        s1[c] += g * a, s2[c] += g * b;
    }
}
