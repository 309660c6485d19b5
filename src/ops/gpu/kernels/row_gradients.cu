// The gradients of weight and bias, and for each group of rows the means of γ·g and γ·g·x̂, of the sums of their parts.
// Headers: tiles.cuh channels.cuh rows.cuh.
//
// part: [parts, rows, 2]; means: [groups, 2]; of_weight, of_bias: [channels]. A warp takes a group, and behind them all a
// channel: grid (ceil((groups + channels) / 8)), block 256.

extern "C" __global__ void __launch_bounds__(256)
row_gradients(const float* __restrict__ part, const float* __restrict__ weight, float* __restrict__ means,
              float* __restrict__ of_weight, float* __restrict__ of_bias, const __grid_constant__ row_sizes s) {
    int warp = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    int groups = s.groups ? s.rows / (s.channels / s.groups) : s.channels;
    if (warp >= groups + s.channels) return;
    bool is_group = warp < groups;
    int number = is_group ? warp : warp - groups;
    members of(s, number, is_group && s.groups != 0);
    float sum = 0.f, product = 0.f;
    for (int i = lane; i < of.count; i += 32) {
        const float* at = part + of.place(i) * 2;
        float factor = is_group ? weight[of.row(i) % s.channels] : 1.f;
        sum = fmaf(factor, at[0], sum);
        product = fmaf(factor, at[1], product);
    }
    sum = warp_sum(sum);
    product = warp_sum(product);
    if (lane != 0) return;
    if (is_group) {
        float share = 1.f / ((float)of.rows * (float)s.length);
        means[2 * number] = sum * share;
        means[2 * number + 1] = product * share;
    } else {
        of_bias[number] = sum;
        of_weight[number] = product;
    }
}
