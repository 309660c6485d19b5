// torch.optim.AdamW: p −= lr·weight_decay·p; m = β1·m + (1 − β1)·g; v = β2·v + (1 − β2)·g²;
// p −= lr/(1 − β1^t)·m/(sqrt(v)/sqrt(1 − β2^t) + eps), g = grad·factor. Nothing changes when the norm was not finite.
// Header: segments.cuh. Grid: blocks of the table, block 256.

struct adamw_step_sizes {
    int segments, zero;
    float lr, rest1, rest2, eps;  // rest = 1 − β
};

extern "C" __global__ void __launch_bounds__(256)
adamw_step(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ m, float* __restrict__ v,
           const float* __restrict__ state, const unsigned* __restrict__ table,
           const __grid_constant__ adamw_step_sizes s) {
    if (state[2] == 0.f) return;
    float factor = state[1], size = s.lr / state[4], root = sqrtf(state[5]);
    segment t = find_segment(table, s.segments);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned i = t.begin + threadIdx.x + k * 256;
        if (i >= t.end) break;
        unsigned long long at = (unsigned long long)t.offset + i;
        float g = grad[at] * factor, p = param[at];
        p -= s.lr * t.weight_decay * p;
        float first = fmaf(s.rest1, g - m[at], m[at]);
        float second = fmaf(s.rest2 * g, g, (1.f - s.rest2) * v[at]);
        m[at] = first;
        v[at] = second;
        param[at] = p - size * (first / (sqrtf(second) / root + s.eps));
    }
}
