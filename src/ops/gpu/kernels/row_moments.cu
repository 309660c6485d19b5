// Mean and sum of squared deviations of each part of each row of a map. Headers: tiles.cuh channels.cuh rows.cuh.
//
// part: [parts, rows, 2]. A warp takes a part of a row: grid (ceil(rows / 8), parts), block 256. Bytes: the map once.

extern "C" __global__ void __launch_bounds__(256)
row_moments(const E* __restrict__ map, float* __restrict__ part, const __grid_constant__ row_sizes s) {
    int row = blockIdx.x * 8 + (threadIdx.x >> 5);
    if (row >= s.rows) return;
    int begin = blockIdx.y * s.chunk, count = min(s.chunk, s.length - begin);
    // All lanes add up about one number of the part, which costs no digits where the mean is large.
    float shift = element::to_float(map[(long long)row * s.length + begin]), sum = 0.f, squares = 0.f;
    const E* const maps[1] = {map};
    each_of_part(maps, s, row, blockIdx.y, [&](const float(&x)[1]) {
        float v = x[0] - shift;
        sum += v;
        squares = fmaf(v, v, squares);
    });
    moments m = moments_of((float)count, shift, warp_sum(sum), warp_sum(squares));
    if ((threadIdx.x & 31) == 0) {
        float* at = part + ((long long)blockIdx.y * s.rows + row) * 2;
        at[0] = m.mean;
        at[1] = m.deviations;
    }
}
