// Mean and biased variance of each group of rows, of the moments of their parts. Headers: tiles.cuh channels.cuh rows.cuh.
//
// part: [parts, rows, 2]; mean, variance: one for each channel, or for each group of each image. A warp takes a group:
// grid (ceil(groups / 8)), block 256.

extern "C" __global__ void __launch_bounds__(256)
row_statistics(const float* __restrict__ part, float* __restrict__ mean, float* __restrict__ variance,
               const __grid_constant__ row_sizes s) {
    int group = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    int groups = s.groups ? s.rows / (s.channels / s.groups) : s.channels;
    if (group >= groups) return;
    members of(s, group, s.groups != 0);
    moments all = {0.f, 0.f, 0.f};
    for (int i = lane; i < of.count; i += 32) {
        const float* at = part + of.place(i) * 2;
        float count = (float)min(s.chunk, s.length - of.part(i) * s.chunk);
        all = combine(all, moments{count, at[0], at[1]});
    }
#pragma unroll
    for (int down = 16; down >= 1; down >>= 1) all = combine_down(all, down);
    if (lane == 0) {
        mean[group] = all.mean;
        variance[group] = all.deviations / all.count;
    }
}
