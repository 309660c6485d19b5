// Tells the copy engine that the rows of a message are there, and waits until an earlier message has left, whose memory may be written over from
// then on: see messages.cuh. Headers: exchange.cuh, messages.cuh.
//
// Grid 1, block 32. Bytes: none worth counting.

struct offer_rows_sizes {
    int flow, rank;
    int tells;  // 0 where there is no new message
    unsigned number;
    int waits;  // 0 where no earlier one is to have left
    unsigned earlier;
};

extern "C" __global__ void __launch_bounds__(32)
offer_rows(const unsigned long long* __restrict__ table, const __grid_constant__ offer_rows_sizes s) {
    if (threadIdx.x != 0) return;
    volatile unsigned* words = (volatile unsigned*)table[s.rank];
    __threadfence_system();
    if (s.tells) words[READY + s.flow] = s.number;
    if (s.waits) await_word(words + COPIED + s.flow, s.earlier, table);
}
