// y = (x − mean)·rstd·weight + bias: a norm with the statistics of its groups; max(y, 0) with ReLU behind it. Headers:
// tiles.cuh channels.cuh rows.cuh.
//
// map, out: [batch, channels, height, width]; weight, bias: one for each channel. Grid (ceil(elements / SPAN)), block 256.
// Bytes: the map and the output once.

extern "C" __global__ void __launch_bounds__(256)
row_norm(const E* __restrict__ map, const float* __restrict__ mean, const float* __restrict__ variance,
         const float* __restrict__ weight, const float* __restrict__ bias, E* __restrict__ out,
         const __grid_constant__ norm_sizes s) {
    const E* const maps[1] = {map};
    bool relu = s.relu;
    auto load = [&](int row) { return norms_of(s, row, mean, variance, weight, bias); };
    each_element(maps, out, s.rows, load, [relu](const row_norms& norm, const float(&x)[1]) {
        float y = norm.output(norm.normal(x[0]));
        return relu ? max_nan(y, 0.f) : y;
    });
}
