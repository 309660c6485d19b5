// Waits for a message of another card, and takes it out of the inbox: see messages.cuh. Headers: exchange.cuh, messages.cuh.
//
// Grid min(BLOCKS, what runs at once, ceil(units/512)), block 512. Bytes: the rows once from this card's memory and once into it.

struct receive_rows_sizes {
    int rows, units, stride;  // units of a row, and from one row to the next
    int flow, rank, peer;
    unsigned number;
    int inbox;  // units from the beginning of this card's part to it
};

extern "C" __global__ void __launch_bounds__(512)
receive_rows(const unsigned long long* __restrict__ table, uint4* __restrict__ out, const __grid_constant__ receive_rows_sizes s) {
    unsigned* words = (unsigned*)table[s.rank];
    if (threadIdx.x == 0) await_word(words + ARRIVED + s.flow, s.number, table);
    __syncthreads();
    const uint4* from = (const uint4*)table[s.rank] + s.inbox;
    auto load = [&](unsigned i) {
        uint4 v;
        asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from + i) : "memory");
        return v;
    };
    copy_units((unsigned)s.rows * s.units, load, [&](unsigned i, uint4 v) {
        unsigned row = i / s.units;
        out[(long long)row * s.stride + (i - row * s.units)] = v;
    });
    if (!all_blocks_ended(words + UNPACKED + s.flow)) return;
    *((volatile unsigned*)table[s.peer] + TAKEN + s.flow) = s.number;
}
