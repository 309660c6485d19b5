// out[r, i] = values[r, index[i]], or 0 where index[i] is no column: numbers in another order, with zeros among them or without.
//
// values: fp32 [rows, columns]; index: u32[count]; out: fp32 [rows, count]. No headers. Grid (ceil(count/256), min(rows, 65535)),
// block 256. Bytes: values and out once, index once a row. Bound by memory.

struct gather_sizes {
    int rows, columns, count, zero;
};

extern "C" __global__ void __launch_bounds__(256)
gather(const float* __restrict__ values, const unsigned* __restrict__ index, float* __restrict__ out,
       const __grid_constant__ gather_sizes s) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= s.count) return;
    unsigned from = index[i];
    for (int row = blockIdx.y; row < s.rows; row += gridDim.y)
        out[(long long)row * s.count + i] = from < (unsigned)s.columns ? values[(long long)row * s.columns + from] : 0.f;
}
