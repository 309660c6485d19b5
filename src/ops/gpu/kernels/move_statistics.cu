// Running statistics as torch.nn.BatchNorm2d moves them: out = rest·value + momentum·batch (rest = 1 − momentum), every operation rounded
// by itself. With `on_gpu`, out = value where decided[1] is not 0 (step_factor.cu); else `decided` is not read.
// Header: parameters.cuh. Grid Σ ceil(length / 1024), block 256. Bytes: 2 reads and 1 write of each statistic; a few KB, bound by latency.

struct move_statistics_sizes {
    int arrays, on_gpu;
    float rest, momentum;
    places at;
};

#define ARGUMENTS(i) const float *value##i, const float *batch##i, float *out##i,
#define CASE(i) case i: value = value##i; batch = batch##i; out = out##i; break;

extern "C" __global__ void __launch_bounds__(256)
move_statistics(EACH(ARGUMENTS) const float* decided, const __grid_constant__ move_statistics_sizes s) {
    int k = find_array(s.at, s.arrays);
    const float *value = nullptr, *batch = nullptr;
    float* out = nullptr;
    switch (k) { EACH(CASE) }
    bool taken = !s.on_gpu || decided[1] == 0.f;
    unsigned begin = (blockIdx.x - s.at.first[k]) * 1024 + threadIdx.x, length = s.at.length[k];
#pragma unroll
    for (int j = 0; j < 4; j++) {
        unsigned i = begin + j * 256;
        if (i >= length) break;
        float old = value[i], moved = __fadd_rn(__fmul_rn(old, s.rest), __fmul_rn(batch[i], s.momentum));
        out[i] = taken ? moved : old;
    }
}
