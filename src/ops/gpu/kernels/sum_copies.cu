// x[i] = Σ over all cards of their x[i], added in the order of the cards, for each of up to 32 arrays, which are as long on all of them.
// Headers: exchange.cuh parameters.cuh turns.cuh.
//
// The other cards' copy engines have written their arrays into this card's memory (cuda/broadcast.rs). `first` bytes into a card's part of the
// table are 8 words of 32 bits, one for each card, which says how many times that card has given something; the room for copies
// begins 256 bytes behind them: float [other cards, in their order][capacity chunks][CHUNK]. Chunk c of a launch is chunk
// `before` + c of the room. await_copies.cu has waited for the words; a card's own says that its arrays have been copied to all others,
// so that they may be written over. The word 128 bytes behind the first is that of tell_ready.cu. Nobody writes into the room before all cards have ended the all_reduce.cu that follows in the same step.
// Grid Σ ceil(length / CHUNK), block 512. Bytes: the arrays of all cards once, and the sums.

struct sum_copies_sizes {
    int arrays, before, capacity, zero;
    exchange_part part;  // first: bytes to the words
    unsigned long long table[9];
    places at;
};

#undef ARGUMENTS
#undef CASE
#define ARGUMENTS(i) float *x##i,
#define CASE(i) case i: x = x##i; break;

extern "C" __global__ void __launch_bounds__(512)
sum_copies(EACH(ARGUMENTS) const __grid_constant__ sum_copies_sizes s) {
    int ranks = s.part.ranks, rank = s.part.rank;
    const char* words = (const char*)s.table[rank] + s.part.first;
    int k = find_array(s.at, s.arrays), length = s.at.length[k];
    float* x = nullptr;
    switch (k) { EACH(CASE) }
    const float* copies = (const float*)(words + 256) + (long long)(s.before + blockIdx.x) * CHUNK;
    long long apart = (long long)s.capacity * CHUNK, begin = (long long)((int)blockIdx.x - s.at.first[k]) * CHUNK;
    constexpr int VECTORS = CHUNK / 512 / 4;
#pragma unroll
    for (int i = 0; i < VECTORS; i++) {
        int local = (i * 512 + threadIdx.x) * 4;
        if (begin + local >= length) break;
        float4 value[8];
#pragma unroll
        for (int p = 0; p < 8; p++)
            if (p < ranks)
                value[p] = p == rank ? turn::load(x, begin + local, length) : turn::read(copies + (p - (p > rank)) * apart + local);
        float4 sum = value[0];
#pragma unroll
        for (int p = 1; p < 8; p++) {
            if (p >= ranks) break;
            sum.x += value[p].x, sum.y += value[p].y, sum.z += value[p].z, sum.w += value[p].w;
        }
        turn::store(x, begin + local, length, sum);
    }
}
