// From `gradient_norm`'s part: state = norm (of grad·inverse_scale), factor (inverse_scale·min(1, max_norm/(norm + 1e-6)), as
// torch's clip_grad_norm_; no clipping when max_norm ≤ 0), ok (norm is finite), step (one more if ok), 1 − β1^step,
// 1 − β2^step, with rest = 1 − β, which fp32 holds to more digits than β. No headers. Grid 1, block 1024.

struct gradient_norm_finish_sizes {
    int blocks, zero;
    float inverse_scale, max_norm, rest1, rest2;
};

extern "C" __global__ void __launch_bounds__(1024)
gradient_norm_finish(const float* __restrict__ part, float* __restrict__ state,
                     const __grid_constant__ gradient_norm_finish_sizes s) {
    __shared__ double shared[32];
    double sum = 0.;
    for (int i = threadIdx.x; i < s.blocks; i += 1024) sum += (double)part[i];
    for (int mask = 16; mask; mask >>= 1) sum += __shfl_down_sync(~0u, sum, mask);
    if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 32; w++) sum += shared[w];
        float norm = (float)(sqrt(sum) * (double)s.inverse_scale);
        bool ok = norm - norm == 0.f;
        float step = state[3] + (ok ? 1.f : 0.f);
        state[0] = norm;
        state[1] = s.inverse_scale * (s.max_norm > 0.f ? fminf(1.f, s.max_norm / (norm + 1e-6f)) : 1.f);
        state[2] = ok ? 1.f : 0.f;
        state[3] = step;
        state[4] = (float)-expm1((double)step * log1p(-(double)s.rest1));
        state[5] = (float)-expm1((double)step * log1p(-(double)s.rest2));
    }
}
