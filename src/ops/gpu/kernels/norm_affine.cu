// scale = gamma/sqrt(var + eps), shift = beta − mean·scale; with update = 1 the running statistics move by `momentum` towards
// the mean and the unbiased variance (var·unbias, unbias = m/(m − 1)). No headers. Grid ceil(C/256), block 256.

struct norm_affine_sizes {
    int channels, update;
    float eps, momentum, unbias;
    int zero;
};

extern "C" __global__ void __launch_bounds__(256)
norm_affine(const float* __restrict__ mean, const float* __restrict__ var, const float* __restrict__ gamma,
            const float* __restrict__ beta, float* __restrict__ scale, float* __restrict__ shift,
            float* __restrict__ running_mean, float* __restrict__ running_var,
            const __grid_constant__ norm_affine_sizes s) {
    int c = blockIdx.x * 256 + threadIdx.x;
    if (c >= s.channels) return;
    float a = gamma[c] / sqrtf(var[c] + s.eps);
    scale[c] = a;
    shift[c] = fmaf(-mean[c], a, beta[c]);
    if (s.update) {
        running_mean[c] += s.momentum * (mean[c] - running_mean[c]);
        running_var[c] += s.momentum * (var[c] * s.unbias - running_var[c]);
    }
}
