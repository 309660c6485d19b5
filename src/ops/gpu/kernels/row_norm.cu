// y = (x − mean)·rstd·weight + bias: a norm with the statistics of its groups. Headers: tiles.cuh channels.cuh rows.cuh.
//
// map, out: [batch, channels, height, width]; weight, bias: one for each channel. Grid (ceil(elements / SPAN)), block 256.
// Bytes: the map and the output once.

struct row_norm_sizes {
    row_sizes rows;
    float epsilon;
    int unused;
};

extern "C" __global__ void __launch_bounds__(256)
row_norm(const E* __restrict__ map, const float* __restrict__ mean, const float* __restrict__ variance,
         const float* __restrict__ weight, const float* __restrict__ bias, E* __restrict__ out,
         const __grid_constant__ row_norm_sizes sizes) {
    const row_sizes& s = sizes.rows;
    const E* const maps[1] = {map};
    auto load = [&](int row) {
        int group = group_of(s, row), channel = row % s.channels;
        return make_float4(__ldg(mean + group), rsqrtf(__ldg(variance + group) + sizes.epsilon), __ldg(weight + channel),
                           __ldg(bias + channel));
    };
    each_element(maps, out, s, load,
                 [](const float4& r, const float(&x)[1]) { return fmaf((x[0] - r.x) * r.y, r.z, r.w); });
}
