// torch.optim.SGD: g = grad·factor + weight_decay·p; buf = g on the first step, else momentum·buf + (1 − dampening)·g;
// p −= lr·(nesterov ? g + momentum·buf : buf). Nothing changes when the norm was not finite. With momentum 0 `momentum` is
// neither read nor written. Header: segments.cuh. Grid: blocks of the table, block 256.

struct sgd_step_sizes {
    int segments, nesterov;
    float lr, momentum, dampening;
    int zero;
};

extern "C" __global__ void __launch_bounds__(256)
sgd_step(float* __restrict__ param, const float* __restrict__ grad, float* __restrict__ momentum,
         const float* __restrict__ state, const unsigned* __restrict__ table, const __grid_constant__ sgd_step_sizes s) {
    if (state[2] == 0.f) return;
    float factor = state[1];
    bool first = state[3] <= 1.f;
    segment t = find_segment(table, s.segments);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        unsigned i = t.begin + threadIdx.x + k * 256;
        if (i >= t.end) break;
        unsigned long long at = (unsigned long long)t.offset + i;
        float p = param[at], g = fmaf(t.weight_decay, p, grad[at] * factor);
        if (s.momentum != 0.f) {
            float buffer = first ? g : s.momentum * momentum[at] + (1.f - s.dampening) * g;
            momentum[at] = buffer;
            g = s.nesterov ? fmaf(s.momentum, buffer, g) : buffer;
        }
        param[at] = fmaf(-s.lr, g, p);
    }
}
