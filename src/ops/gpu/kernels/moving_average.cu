// Moving averages, every operation rounded by itself. Running statistics as torch.nn.BatchNorm2d moves them: out = rest·average + share·value
// (rest = 1 − share). With `lerp`, averages of weights as torch.lerp moves them: out = average + share·(value − average), or from the other end
// where the share is at least 1/2. With `on_gpu`, out = average where decided[1] is not 0 (step_factor.cu); else `decided` is not read.
// Header: parameters.cuh. Grid Σ ceil(length / 1024), block 256. Bytes: 2 reads and 1 write of each number.

struct moving_average_sizes {
    int arrays, on_gpu, lerp, zero;
    float rest, share;
    places at;
};

#define ARGUMENTS(i) const float *average##i, const float *value##i, float *out##i,
#define CASE(i) case i: average = average##i; value = value##i; out = out##i; break;

extern "C" __global__ void __launch_bounds__(256)
moving_average(EACH(ARGUMENTS) const float* decided, const __grid_constant__ moving_average_sizes s) {
    int k = find_array(s.at, s.arrays);
    const float *average = nullptr, *value = nullptr;
    float* out = nullptr;
    switch (k) { EACH(CASE) }
    bool taken = !s.on_gpu || decided[1] == 0.f;
    unsigned begin = (blockIdx.x - s.at.first[k]) * 1024 + threadIdx.x, length = s.at.length[k];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned i = begin + j * 256;
        if (i >= length) break;
        float old = average[i], now = value[i], moved, way = __fsub_rn(now, old);
        if (!s.lerp) moved = __fadd_rn(__fmul_rn(old, s.rest), __fmul_rn(now, s.share));
        else moved = s.share < 0.5f ? __fadd_rn(old, __fmul_rn(way, s.share)) : __fsub_rn(now, __fmul_rn(way, s.rest));
        out[i] = taken ? moved : old;
    }
}
