// Packs rows of 16-byte units into the outbox of a message, and tells the copy engine when they may go: see messages.cuh. Headers:
// exchange.cuh, messages.cuh.
//
// Waits until the message before it of the same attempt has left the outbox; and, when all is packed, until the other card has taken that one
// out.
// Grid min(BLOCKS, what runs at once, ceil(units/512)), block 512. Bytes: the rows once from this card's memory and once into it.

struct send_rows_sizes {
    int rows, units, stride;  // units of a row, and from one row to the next
    int flow, rank;
    unsigned number, before;  // before: 1 where it is not the first of the attempt
    int outbox;               // units from the beginning of this card's part to it
};

extern "C" __global__ void __launch_bounds__(512)
send_rows(const uint4* __restrict__ in, const unsigned long long* __restrict__ table, const __grid_constant__ send_rows_sizes s) {
    unsigned* words = (unsigned*)table[s.rank];
    if (threadIdx.x == 0 && s.before) await_word(words + COPIED + s.flow, s.number - 1, table);
    __syncthreads();
    uint4* to = (uint4*)table[s.rank] + s.outbox;
    auto load = [&](unsigned i) {
        unsigned row = i / s.units;
        return in[(long long)row * s.stride + (i - row * s.units)];
    };
    copy_units((unsigned)s.rows * s.units, load, [&](unsigned i, uint4 v) { to[i] = v; });
    if (!all_blocks_ended(words + PACKED + s.flow)) return;
    if (s.before) await_word(words + TAKEN + s.flow, s.number - 1, table);
    *(volatile unsigned*)(words + READY + s.flow) = s.number;
}
