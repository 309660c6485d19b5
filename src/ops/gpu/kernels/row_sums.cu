// Σ g and Σ g·x̂ of each part of each row, where x̂ = (x − mean)·rstd. Headers: tiles.cuh channels.cuh rows.cuh.
//
// gradient g and map x: [batch, channels, height, width]; part: [parts, rows, 2]. A warp takes a part of a row: grid
// (ceil(rows / 8), parts), block 256. Bytes: both maps once.

struct row_sums_sizes {
    row_sizes rows;
    float epsilon;
    int unused;
};

extern "C" __global__ void __launch_bounds__(256)
row_sums(const E* __restrict__ gradient, const E* __restrict__ map, const float* __restrict__ mean,
         const float* __restrict__ variance, float* __restrict__ part, const __grid_constant__ row_sums_sizes sizes) {
    const row_sizes& s = sizes.rows;
    int row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= s.rows) return;
    int group = group_of(s, row);
    float middle = mean[group], rstd = rsqrtf(variance[group] + sizes.epsilon), sum = 0.f, product = 0.f;
    const E* const both[2] = {gradient, map};
    each_of_part(both, s, row, blockIdx.y, [&](const float(&v)[2]) {
        sum += v[0];
        product = fmaf(v[0], (v[1] - middle) * rstd, product);
    });
    sum = warp_sum(sum);
    product = warp_sum(product);
    if ((threadIdx.x & 31) == 0) {
        float* at = part + ((long long)blockIdx.y * s.rows + row) * 2;
        at[0] = sum;
        at[1] = product;
    }
}
