// torch.optim.Adam and AdamW: g = grad·factor + l2·p; p *= keep (1 − lr·weight_decay); m = lerp(m, g, 1 − β1);
// v = β2·v + (1 − β2)·g²; out = p − size·m/(sqrt(v)/root + eps), size = lr/(1 − β1^t), root = sqrt(1 − β2^t). Parameters
// without their bit in `decays` have l2 = 0 and keep = 1; on the first step m and v are taken for 0 and not read. With `on_gpu` the factor is
// decided[0], and where decided[1] is not 0 nothing changes (step_factor.cu); else `decided` is not read.
// Header: parameters.cuh. Grid Σ ceil(length / 1024), block 256. Bytes: 4 reads and 3 writes of each parameter.

struct adam_step_sizes {
    int arrays, first;
    unsigned decays;
    int on_gpu;
    float factor, size, root, beta1, rest1, beta2, rest2, eps, keep, l2;
    places at;
};

#define ARGUMENTS(i) const float *param##i, const float *grad##i, float *m##i, float *v##i, float *out##i,
#define CASE(i) case i: param = param##i; grad = grad##i; m = m##i; v = v##i; out = out##i; break;

extern "C" __global__ void __launch_bounds__(256)
adam_step(EACH(ARGUMENTS) const float* decided, const __grid_constant__ adam_step_sizes s) {
    int k = find_array(s.at, s.arrays);
    const float *param = nullptr, *grad = nullptr;
    float *m = nullptr, *v = nullptr, *out = nullptr;
    switch (k) { EACH(CASE) }
    float factor = s.on_gpu ? decided[0] : s.factor;
    bool taken = !s.on_gpu || decided[1] == 0.f;
    bool decays = s.decays >> k & 1;
    float keep = decays ? s.keep : 1.f, l2 = decays ? s.l2 : 0.f;
    unsigned begin = (blockIdx.x - s.at.first[k]) * 1024 + threadIdx.x, length = s.at.length[k];
    float p[4], g[4], mean[4], square[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned i = begin + j * 256;
        bool in = i < length;
        p[j] = in ? param[i] : 0.f;
        g[j] = in ? grad[i] : 0.f;
        mean[j] = in && !s.first ? m[i] : 0.f;
        square[j] = in && !s.first ? v[i] : 0.f;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned i = begin + j * 256;
        if (i >= length) break;
        if (!taken) {
            out[i] = p[j];
            continue;
        }
        float gradient = fmaf(l2, p[j], g[j] * factor), way = gradient - mean[j];
        mean[j] = s.rest1 < 0.5f ? fmaf(s.rest1, way, mean[j]) : fmaf(-s.beta1, way, gradient);
        square[j] = fmaf(s.beta2, square[j], s.rest2 * (gradient * gradient));
        m[i] = mean[j];
        v[i] = square[j];
        out[i] = fmaf(keep, p[j], -(s.size * mean[j]) / (sqrtf(square[j]) / s.root + s.eps));
    }
}
