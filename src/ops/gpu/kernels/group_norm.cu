// GroupNorm: puts together what a kernel left of the channels of each image, and says what the norm does to each. Of a group of n channels of
// equally many pixels, mean = Σ mean_c/n and var = Σ (var_c + (mean_c − mean)²)/n; scale = gamma/sqrt(var + eps), shift = beta − mean·scale.
//
// part: of the last `written` channels (none: 0), partials of each image, [images]([rows][2][written] and [rows] counts); mean, var: of all
// channels, those written are written; in the pieces of groups.cuh. group_mean, group_rstd, scale, shift: [images][C], of each channel its group's, and
// zeros of a channel in no group. There are at most 32 groups. Headers: tiles.cuh channels.cuh groups.cuh. Grid images, block 1024: 128 channels by 8 rows at once, in order.

struct group_norm_sizes {
    channel_groups of;
    int rows, written;
    float eps;
};

extern "C" __global__ void __launch_bounds__(1024)
group_norm(const float* __restrict__ part, float* mean, float* var, const float* __restrict__ gamma,
           const float* __restrict__ beta, float* __restrict__ group_mean, float* __restrict__ group_rstd,
           float* __restrict__ scale, float* __restrict__ shift, const __grid_constant__ group_norm_sizes s) {
    constexpr int LANES = 8, WIDTH = 128;
    __shared__ float found[LANES][3][WIDTH], means[32], variances[32];
    int image = blockIdx.x, lane = threadIdx.x & 31, warp = threadIdx.x >> 5, each = s.of.each();
    int column = threadIdx.x % WIDTH, first_row = threadIdx.x / WIDTH;
    const float* of_image = part + (long long)image * s.rows * (2 * s.written + 1);
#pragma unroll 1
    for (int begin = 0; begin < s.written; begin += WIDTH) {
        int c = begin + column;
        moments m = {0.f, 0.f, 0.f};
        if (c < s.written) {
            const float* counts = of_image + (long long)s.rows * 2 * s.written;
#pragma unroll 2
            for (int r = first_row; r < s.rows; r += LANES) {
                const float* row = of_image + (long long)r * 2 * s.written;
                m = combine(m, moments{__ldg(counts + r), __ldg(row + c), __ldg(row + s.written + c)});
            }
        }
        found[first_row][0][column] = m.count;
        found[first_row][1][column] = m.mean;
        found[first_row][2][column] = m.deviations;
        __syncthreads();
        if (first_row == 0 && c < s.written) {
#pragma unroll 1
            for (int i = 1; i < LANES; i++) m = combine(m, moments{found[i][0][column], found[i][1][column], found[i][2][column]});
            long long at = s.of.place(s.of.channels - s.written + c, image);
            mean[at] = m.mean;
            var[at] = m.deviations / m.count;
        }
        __syncthreads();
    }
    if (warp < s.of.groups) {
        float sum = 0.f, squares = 0.f;
#pragma unroll 1
        for (int i = lane; i < each; i += 32) sum += mean[s.of.place(s.of.channel(warp * each + i), image)];
        for (int mask = 16; mask; mask >>= 1) sum += __shfl_xor_sync(~0u, sum, mask);
        float mu = sum / (float)each;
#pragma unroll 1
        for (int i = lane; i < each; i += 32) {
            long long at = s.of.place(s.of.channel(warp * each + i), image);
            float apart = mean[at] - mu;
            squares += fmaf(apart, apart, var[at]);
        }
        for (int mask = 16; mask; mask >>= 1) squares += __shfl_xor_sync(~0u, squares, mask);
        if (lane == 0) means[warp] = mu, variances[warp] = squares / (float)each;
    }
    __syncthreads();
#pragma unroll 1
    for (int c = threadIdx.x; c < s.of.channels; c += 1024) {
        long long at = (long long)image * s.of.channels + c;
        int group = s.of.group(c, each);
        if (group < 0) {
            group_mean[at] = group_rstd[at] = scale[at] = shift[at] = 0.f;
            continue;
        }
        float mu = means[group], rstd = 1.f / sqrtf(variances[group] + s.eps), a = gamma[c] * rstd;
        group_mean[at] = mu;
        group_rstd[at] = rstd;
        scale[at] = a;
        shift[at] = fmaf(-mu, a, beta[c]);
    }
}
