// torch.optim.SGD: g = grad·factor + l2·p; buffer = g on the first step, else momentum·buffer + rest·g (rest = 1 − dampening);
// out = p − lr·(nesterov ? g + momentum·buffer : buffer). Parameters without their bit in `decays` have l2 = 0. With momentum 0
// the buffers are neither read nor written. With `on_gpu` the factor is decided[0], and where decided[1] is not 0 nothing changes
// (step_factor.cu); else `decided` is not read. Header: parameters.cuh. Grid Σ ceil(length / 1024), block 256.
// Bytes: 3 reads and 2 writes of each parameter; 2 and 1 without momentum.

struct sgd_step_sizes {
    int arrays, first;
    unsigned decays;
    int nesterov, on_gpu;
    float factor, lr, momentum, rest, l2;
    places at;
};

#define ARGUMENTS(i) const float *param##i, const float *grad##i, float *buffer##i, float *out##i,
#define CASE(i) case i: param = param##i; grad = grad##i; buffer = buffer##i; out = out##i; break;

extern "C" __global__ void __launch_bounds__(256)
sgd_step(EACH(ARGUMENTS) const float* decided, const __grid_constant__ sgd_step_sizes s) {
    int k = find_array(s.at, s.arrays);
    const float *param = nullptr, *grad = nullptr;
    float *buffer = nullptr, *out = nullptr;
    switch (k) { EACH(CASE) }
    float factor = s.on_gpu ? decided[0] : s.factor;
    bool taken = !s.on_gpu || decided[1] == 0.f;
    float l2 = s.decays >> k & 1 ? s.l2 : 0.f;
    bool old = s.momentum != 0.f && !s.first;
    unsigned begin = (blockIdx.x - s.at.first[k]) * 1024 + threadIdx.x, length = s.at.length[k];
    float p[4], g[4], b[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned i = begin + j * 256;
        bool in = i < length;
        p[j] = in ? param[i] : 0.f;
        g[j] = in ? grad[i] : 0.f;
        b[j] = in && old ? buffer[i] : 0.f;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned i = begin + j * 256;
        if (i >= length) break;
        if (!taken) {
            out[i] = p[j];
            continue;
        }
        float gradient = fmaf(l2, p[j], g[j] * factor), direction = gradient;
        if (s.momentum != 0.f) {
            float kept = s.first ? gradient : fmaf(s.momentum, b[j], s.rest * gradient);
            buffer[i] = kept;
            direction = s.nesterov ? fmaf(s.momentum, kept, gradient) : kept;
        }
        out[i] = fmaf(-s.lr, direction, p[j]);
    }
}
