// The backward pass of GroupNorm from what a kernel left of each image, b = Σ g and a = Σ g·x̂ of each channel: what is missing from S = scale·g
// for the gradient of x, S − (s1 + x·s2)/m over the m pixels of a channel. With T1 = Σ gamma·b and T2 = Σ gamma·a over the n channels of a group,
// s2 (+)= rstd²·T2/n and s1 (+)= rstd·(T1 − mean·rstd·T2)/n. `group_gradients` adds a and b up over images.
//
// part: [images][rows][2][C]; mean, rstd, a, b: [images][C], mean and rstd of the channel's group; s1, s2: in the pieces of groups.cuh,
// written (accumulate = 0) or added to; zeros are added for a channel in no group. There are at most 32 groups. Headers: groups.cuh. Grid images, block 1024: 128 channels by 8 rows at
// once, in order.

struct group_sums_sizes {
    channel_groups of;
    int rows, accumulate, zero;
};

extern "C" __global__ void __launch_bounds__(1024)
group_sums(const float* __restrict__ part, const float* __restrict__ gamma, const float* __restrict__ mean,
           const float* __restrict__ rstd, float* a, float* b, float* __restrict__ s1, float* __restrict__ s2,
           const __grid_constant__ group_sums_sizes s) {
    constexpr int LANES = 8, WIDTH = 128;
    __shared__ float found[LANES][2][WIDTH], first[32], second[32];
    int image = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, each = s.of.each(), channels = s.of.channels;
    int column = threadIdx.x % WIDTH, first_row = threadIdx.x / WIDTH;
    long long vector = (long long)image * channels;
    const float* of_image = part + vector * s.rows * 2;
#pragma unroll 1
    for (int begin = 0; begin < channels; begin += WIDTH) {
        int c = begin + column;
        float sum = 0.f, scaled = 0.f;
        if (c < channels)
#pragma unroll 2
            for (int r = first_row; r < s.rows; r += LANES) {
                const float* row = of_image + (long long)r * 2 * channels;
                sum += __ldg(row + c);
                scaled += __ldg(row + channels + c);
            }
        found[first_row][0][column] = sum;
        found[first_row][1][column] = scaled;
        __syncthreads();
        if (first_row < 2 && c < channels) {
            float all = 0.f;
#pragma unroll
            for (int i = 0; i < LANES; i++) all += found[i][first_row][column];
            (first_row ? a : b)[vector + c] = all;
        }
        __syncthreads();
    }
    if (warp < s.of.groups) {
        float sum = 0.f, scaled = 0.f;
#pragma unroll 1
        for (int i = lane; i < each; i += 32) {
            int c = s.of.channel(warp * each + i);
            sum = fmaf(gamma[c], b[vector + c], sum);
            scaled = fmaf(gamma[c], a[vector + c], scaled);
        }
        for (int mask = 16; mask; mask >>= 1) {
            sum += __shfl_xor_sync(~0u, sum, mask);
            scaled += __shfl_xor_sync(~0u, scaled, mask);
        }
        if (lane == 0) first[warp] = sum, second[warp] = scaled;
    }
    __syncthreads();
#pragma unroll 1
    for (int c = threadIdx.x; c < channels; c += 1024) {
        int group = s.of.group(c, each);
        float r = rstd[vector + c], share = r / (float)each, of_scale = group < 0 ? 0.f : r * share * second[group];
        float of_shift = group < 0 ? 0.f : share * first[group] - mean[vector + c] * of_scale;
        long long at = s.of.place(c, image);
        s1[at] = s.accumulate ? s1[at] + of_shift : of_shift;
        s2[at] = s.accumulate ? s2[at] + of_scale : of_scale;
    }
}
