// dx = rstd·(γ·g − mean(γ·g) − x̂·mean(γ·g·x̂)), the means over a group. Headers: tiles.cuh channels.cuh rows.cuh.
//
// gradient g, map x, out: [batch, channels, height, width]; means: [groups, 2] of `row_gradients`. Grid
// (ceil(elements / SPAN)), block 256. Bytes: three maps once.

struct row_norm_backward_sizes {
    row_sizes rows;
    float epsilon;
    int unused;
};

struct row_numbers {
    float mean, rstd, weight, sum, product;
};

extern "C" __global__ void __launch_bounds__(256)
row_norm_backward(const E* __restrict__ gradient, const E* __restrict__ map, const float* __restrict__ mean,
                  const float* __restrict__ variance, const float* __restrict__ weight, const float* __restrict__ means,
                  E* __restrict__ out, const __grid_constant__ row_norm_backward_sizes sizes) {
    const row_sizes& s = sizes.rows;
    const E* const both[2] = {gradient, map};
    auto load = [&](int row) {
        int group = group_of(s, row);
        return row_numbers{__ldg(mean + group), rsqrtf(__ldg(variance + group) + sizes.epsilon),
                           __ldg(weight + row % s.channels), __ldg(means + 2 * group), __ldg(means + 2 * group + 1)};
    };
    each_element(both, out, s, load, [](const row_numbers& r, const float(&v)[2]) {
        float normal = (v[1] - r.mean) * r.rstd;
        return r.rstd * (fmaf(r.weight, v[0], -r.sum) - normal * r.product);
    });
}
