// Sums over several cards of one process, in the order of the cards: all get the same bits.
//
// Every card has memory that all cards reach, `table[card]`, and all share `table[8]`, a word of the host's that is not 0 when
// nobody is to wait any longer. An exchange among the first `ranks` cards has a number, `sequence`, which counts up alike on all
// of them. A card writes each of its values beside that number as one word of 64 bits into every card's memory, and waits until
// the words in its own bear it: value and flag travel together, so no fence is needed (as in NCCL's protocol LL).
//
// Words lie in [2 halves][ranks][SLOTS], from `first` on; half = sequence & 1. Two halves suffice: a card begins exchange k only
// after its exchange k − 1 has ended. For that all others had begun k − 1, so each had ended k − 2, which was the last to
// read this half. Each card runs its exchanges in one stream. Blocks wait for those of the same number on other cards alone, and
// begin in the order of their numbers, so grids may be larger than what runs at once.
//
// When the word is set, a wait ends with whatever is there; the host throws the results away. A card that has waited for
// PATIENCE sets it itself.

#define SLOTS 12288
#define PATIENCE 120000000000ull  // nanoseconds

struct exchange_part {
    int rank, ranks, first;
    unsigned sequence;
};

struct patience {
    volatile unsigned* over;
    unsigned turns;
    unsigned long long begin;
    __device__ __forceinline__ explicit patience(const unsigned long long* table)
        : over((volatile unsigned*)table[8]), turns(0), begin(0) {}
    // Whether to look once more.
    __device__ __forceinline__ bool lasts() {
        if (++turns % 1024) return true;
        if (*over) return false;
        unsigned long long now;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (!begin) begin = now;
        if (now - begin < PATIENCE) return true;
        *over = 2;
        return false;
    }
};

// Gives `values` to card `peer` as the words from `index` on, and returns what that card gives this one there.
template <int N>
__device__ __forceinline__ void exchange(const exchange_part& s, const unsigned long long* table, int peer, int index,
                                         float (&values)[N]) {
    long long half = s.first + (long long)(s.sequence & 1) * s.ranks * SLOTS + index;
    volatile unsigned long long* to = (volatile unsigned long long*)table[peer] + half + (long long)s.rank * SLOTS;
    volatile unsigned long long* from = (volatile unsigned long long*)table[s.rank] + half + (long long)peer * SLOTS;
#pragma unroll
    for (int i = 0; i < N; i++) to[i] = (unsigned long long)s.sequence << 32 | __float_as_uint(values[i]);
    patience p(table);
    unsigned long long words[N];
    bool complete;
    do {
        complete = true;
#pragma unroll
        for (int i = 0; i < N; i++) words[i] = from[i];
#pragma unroll
        for (int i = 0; i < N; i++) complete = complete && (unsigned)(words[i] >> 32) == s.sequence;
    } while (!complete && p.lasts());
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = __uint_as_float((unsigned)words[i]);
}

// The sums over the cards of what a warp's lane 0 holds, in every lane. All lanes of the warp call it.
template <int N>
__device__ __forceinline__ void sum_over_cards(const exchange_part& s, const unsigned long long* table, int index,
                                               float (&values)[N]) {
    int lane = threadIdx.x & 31;
    float theirs[N];
#pragma unroll
    for (int i = 0; i < N; i++) theirs[i] = __shfl_sync(~0u, values[i], 0);
    if (lane < s.ranks) exchange(s, table, lane, index, theirs);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = 0.f;
    for (int p = 0; p < s.ranks; p++) {
#pragma unroll
        for (int i = 0; i < N; i++) values[i] += __shfl_sync(~0u, theirs[i], p);
    }
}
