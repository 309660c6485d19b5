// Writes a number into a word of a card's, and waits until a word of this card's has come to another. Header: exchange.cuh.
//
// So the cards of a pipeline tell copy engines what they may take a message from, and where it may come, and wait for what these have done
// (messages.rs). Words of 32 bits lie where each card's part of the table begins.
//
// Grid 1, block 32. Bytes: none worth counting.

struct tell_and_await_sizes {
    int rank;
    int tells;  // 0 where nothing is told
    int card, word;
    unsigned told;
    int waits;  // 0 where nothing is waited for
    int own;
    unsigned awaited;
};

extern "C" __global__ void __launch_bounds__(32)
tell_and_await(const unsigned long long* __restrict__ table, void* x, const __grid_constant__ tell_and_await_sizes s) {
    if (threadIdx.x != 0) return;
    __threadfence_system();
    if (s.tells) *((volatile unsigned*)table[s.card] + s.word) = s.told;
    if (!s.waits) return;
    const volatile unsigned* own = (const volatile unsigned*)table[s.rank] + s.own;
    patience p(table);
    while ((int)(*own - s.awaited) < 0 && p.lasts()) {
    }
    __threadfence_system();
}
