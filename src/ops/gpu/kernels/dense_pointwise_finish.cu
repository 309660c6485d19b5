// dw[o][c] = Σ_block ws[block][c][o] of the blocks of c's range, in order: the weight gradient that `dense_pointwise_backward` leaves in
// parts. Beside that, unless PER_IMAGE, what norm_sums.cuh says of `part`, in max(splits, last) rows.
//
// A block takes one channel: eight warps take every eighth part of dw. The first ceil(C/8) blocks have eight channels of the norm each.
// PER_IMAGE = 1 (see tiles.cuh): every image has parts, and there are no such blocks.
// Headers: exchange.cuh norm_sums.cuh. Grid C + ceil(C/8), block 256. Bytes: ws once, from L2.

struct dense_pointwise_finish_sizes {
    int channels, splits, last, images;
    norm_sums sums;
};

extern "C" __global__ void __launch_bounds__(256)
dense_pointwise_finish(const float* __restrict__ ws, float* __restrict__ dw, const float* __restrict__ part,
                       const float* __restrict__ gamma, float* __restrict__ dgamma, float* __restrict__ dbeta, float* s1, float* s2,
#if SYNCED
                       const unsigned long long* __restrict__ table,
#endif
                       const __grid_constant__ dense_pointwise_finish_sizes s) {
    constexpr int OUT = 128, RANGE = 128;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#if PER_IMAGE
    int c = blockIdx.x;
#else
    int of_norm = (s.channels + 7) / 8, c = blockIdx.x - of_norm;
    if (c < 0) {
        // Channels that are complete come first: other cards wait for them.
        int first = (of_norm - 1 - (int)blockIdx.x) * 8;
        float2 sum = sum_rows<8, 8>(part, max(s.splits, s.last), s.channels, first);
        if (first + warp < s.channels) put_sums(s.sums, first + warp, sum, gamma, dgamma, dbeta, s1, s2, NORM_SUMS_TABLE);
        return;
    }
#endif
    __shared__ float4 shared[8][OUT / 4];
    int range = c / RANGE, whole = s.channels / RANGE;
    bool is_whole = range < whole;
    int first = is_whole ? range : whole * s.splits, step = is_whole ? whole : 1, count = is_whole ? s.splits : s.last;
    const float4* from = (const float4*)ws + ((long long)first * RANGE + c % RANGE) * (OUT / 4) + lane;
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
    __syncthreads();
    int o = threadIdx.x;
    if (o < OUT) {
        const float* column = (const float*)shared + o;
        float all = 0.f;
#pragma unroll
        for (int w = 0; w < 8; w++) all += column[w * OUT];
        dw[(long long)o * s.channels + c] = all;
    }
}
