// Waits until all cards have given what they were to give `sequence` times: see sum_copies.cu. Header: exchange.cuh.
//
// One block alone waits, so that whatever else the copies may need of the card is free.
// Grid 1, block 32.

struct await_copies_sizes {
    exchange_part part;  // first: bytes to the words
    unsigned long long table[9];
};

extern "C" __global__ void __launch_bounds__(32)
await_copies(float *x, const __grid_constant__ await_copies_sizes s) {
    if (threadIdx.x >= s.part.ranks) return;
    const volatile unsigned* word = (const volatile unsigned*)(s.table[s.part.rank] + s.part.first) + threadIdx.x;
    patience p(s.table);
    while ((int)(*word - s.part.sequence) < 0 && p.lasts()) {
    }
    __threadfence_system();
}
