// out[i] = Σ over the first `ranks` cards of in[i], for i < length ≤ SLOTS. Headers: exchange.cuh. Grid ceil(length/256), block 256.

struct exchange_sum_sizes {
    int length, zero;
    exchange_part part;
};

extern "C" __global__ void __launch_bounds__(256)
exchange_sum(const float* __restrict__ in, const unsigned long long* __restrict__ table, float* __restrict__ out,
             const __grid_constant__ exchange_sum_sizes s) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= s.length) return;
    float sum = 0.f, own = in[i];
    for (int p = 0; p < s.part.ranks; p++) {
        float value[1] = {own};
        exchange(s.part, table, p, i, value);
        sum = p ? sum + value[0] : value[0];
    }
    out[i] = sum;
}
