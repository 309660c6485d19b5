// dx = rstd·(γ·g − mean(γ·g) − x̂·mean(γ·g·x̂)), the means over a group; g is what comes through ReLU, where that stands
// behind the norm. Headers: tiles.cuh channels.cuh rows.cuh.
//
// gradient, map x, out: [batch, channels, height, width]; means: [groups, 2] of `row_gradients`. Grid
// (ceil(elements / SPAN)), block 256. Bytes: three maps once.

struct row_numbers {
    row_norms norm;
    float sum, product;
};

extern "C" __global__ void __launch_bounds__(256)
row_norm_backward(const E* __restrict__ gradient, const E* __restrict__ map, const float* __restrict__ mean,
                  const float* __restrict__ variance, const float* __restrict__ weight, const float* __restrict__ bias,
                  const float* __restrict__ means, E* __restrict__ out, const __grid_constant__ norm_sizes s) {
    const E* const both[2] = {gradient, map};
    bool relu = s.relu;
    auto load = [&](int row) {
        int group = group_of(s.rows, row);
        return row_numbers{norms_of(s, row, mean, variance, weight, bias), __ldg(means + 2 * group), __ldg(means + 2 * group + 1)};
    };
    each_element(both, out, s.rows, load, [relu](const row_numbers& r, const float(&v)[2]) {
        float normal = r.norm.normal(v[1]), g = r.norm.passed(v[0], normal, relu);
        return r.norm.rstd * (fmaf(r.norm.weight, g, -r.sum) - normal * r.product);
    });
}
