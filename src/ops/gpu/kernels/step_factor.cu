// What a step multiplies its gradients by, and whether it is left out, found on the GPU so that the host need not wait.
//
// decided[0] = min(1, max_norm / (√S + 1e-6)) as torch.nn.utils.clip_grad_norm_ has it, where S = Σ gradient²; 1 where max_norm is infinite.
// decided[1] = 1 where S or a loss is not finite, the step before was left out (before[1]), or cards exchange (has_cards) and one has
// given up waiting for another, which the word at cards[8] says (exchange.cuh); else 0. From decided[2] on: the losses.
//
// part: what `sums_of_squares` gave; array k has at[2k + 1] parts from at[2k] on. The parts of an array, and then the arrays, are added
// in fp64 in their order: the host does the same and finds the same bits. No headers. Grid 1, block 256.
// Bytes: the parts once, from L2; bound by the latency of the longest array's sum.

struct step_factor_sizes {
    double max_norm;
    int arrays, losses, has_before, has_cards;
};

extern "C" __global__ void __launch_bounds__(256)
step_factor(const float* __restrict__ part, const unsigned* __restrict__ at, const float* __restrict__ losses,
            const float* __restrict__ before, const unsigned long long* __restrict__ cards, float* __restrict__ decided,
            const __grid_constant__ step_factor_sizes s) {
    __shared__ double shared[256];
    double total = 0.;
    for (int first = 0; first < s.arrays; first += 256) {
        int k = first + threadIdx.x;
        double sum = 0.;
        if (k < s.arrays) {
            unsigned begin = at[2 * k], count = at[2 * k + 1];
#pragma unroll 16
            for (unsigned i = 0; i < count; i++) sum += (double)part[begin + i];
        }
        shared[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int i = 0; i < min(256, s.arrays - first); i++) total += shared[i];
        __syncthreads();
    }
    if (threadIdx.x != 0) return;
    bool left_out = !isfinite(total) || (s.has_before && before[1] != 0.f);
    if (s.has_cards) left_out = left_out || *(const volatile unsigned*)cards[8] != 0;
    for (int i = 0; i < s.losses; i++) {
        left_out = left_out || !isfinite(losses[i]);
        decided[2 + i] = losses[i];
    }
    double factor = s.max_norm / (sqrt(total) + 1e-6);
    decided[0] = factor < 1. ? (float)factor : 1.f;
    decided[1] = left_out ? 1.f : 0.f;
}
