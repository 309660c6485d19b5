// Binary cross-entropy on logits, as torch.nn.BCEWithLogitsLoss has it, summed over known labels, and the gradient of `factor` times the sum.
// With y smoothed, p the weight of positives and w = p·y + 1 − y, it is w·ln(1 + e^−|x|) + x·(1 − y − w·[x < 0]) for a label.
//
// x, y, known, gradient: [count], an image's `labels` side by side; weight (read where `weighted`): [labels]; sum: [1]. Where `known` is 0 the
// gradient is too, and neither x nor y is read. Grid 1, block 512, so that the sum has one order. Bytes: 3 reads and 1 write of each number.

struct bce_sizes {
    int count, labels, weighted, zero;
    float keep, add, factor, none;
};

static __device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes >>= 1) value += __shfl_down_sync(0xffffffffu, value, lanes);
    return value;
}

extern "C" __global__ void __launch_bounds__(512)
bce(const float* __restrict__ x, const float* __restrict__ y, const float* __restrict__ known, const float* __restrict__ weight,
    float* __restrict__ gradient, float* __restrict__ sum, const __grid_constant__ bce_sizes s) {
    __shared__ float sums[16];
    float own = 0.f;
    for (int i = threadIdx.x; i < s.count; i += 512) {
        float counts = known[i], given = 0.f;
        if (counts != 0.f) {
            float logit = x[i], target = fmaf(y[i], s.keep, s.add), rest = 1.f - target;
            float w = s.weighted ? fmaf(weight[i % s.labels], target, rest) : 1.f;
            bool negative = !(logit >= 0.f);
            float decay = expf(-fabsf(logit)), slope = negative ? rest - w : rest, tail = w * decay / (1.f + decay);
            own = fmaf(counts, fmaf(logit, slope, w * log1pf(decay)), own);
            given = s.factor * counts * (negative ? slope + tail : slope - tail);
        }
        gradient[i] = given;
    }
    own = warp_sum(own);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = own;
    __syncthreads();
    if (threadIdx.x < 32) {
        own = warp_sum(threadIdx.x < 16 ? sums[threadIdx.x] : 0.f);
        if (threadIdx.x == 0) sum[0] = own;
    }
}
