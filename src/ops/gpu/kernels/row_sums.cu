// Σ g and Σ g·x̂ of each part of each row, where x̂ = (x − mean)·rstd and g is what comes through ReLU, where that stands
// behind the norm. Headers: tiles.cuh channels.cuh rows.cuh.
//
// gradient, map x: [batch, channels, height, width]; part: [parts, rows, 2]. A warp takes a part of a row: grid
// (ceil(rows / 8), parts), block 256. Bytes: both maps once.

extern "C" __global__ void __launch_bounds__(256)
row_sums(const E* __restrict__ gradient, const E* __restrict__ map, const float* __restrict__ mean,
         const float* __restrict__ variance, const float* __restrict__ weight, const float* __restrict__ bias,
         float* __restrict__ part, const __grid_constant__ norm_sizes s) {
    int row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= s.rows.rows) return;
    row_norms norm = norms_of(s, row, mean, variance, weight, bias);
    bool relu = s.relu;
    float sum = 0.f, product = 0.f;
    const E* const both[2] = {gradient, map};
    each_of_part(both, s.rows, row, blockIdx.y, [&](const float(&v)[2]) {
        float normal = norm.normal(v[1]), g = norm.passed(v[0], normal, relu);
        sum += g;
        product = fmaf(g, normal, product);
    });
    sum = warp_sum(sum);
    product = warp_sum(product);
    if ((threadIdx.x & 31) == 0) {
        float* at = part + ((long long)blockIdx.y * s.rows.rows + row) * 2;
        at[0] = sum;
        at[1] = product;
    }
}
