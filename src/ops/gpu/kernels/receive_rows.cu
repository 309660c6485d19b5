// Waits for a message of another card, and takes it out of the inbox: see messages.cuh. Headers: exchange.cuh, messages.cuh.
//
// Grid min(2 SMS, ceil(units/4096)), block 512. Each block copies units b·4096 … of every gridDim.x·4096. Bytes: the rows once from this
// card's memory and once into it.

struct receive_rows_sizes {
    int rows, units, stride;           // units of a row, and from one row to the next
    int others, other_units, between;  // the same of those behind
    int flow, rank, peer;
    unsigned number;
    int inbox;  // units from the beginning of this card's part to it
};

extern "C" __global__ void __launch_bounds__(512, 2)
receive_rows(const unsigned long long* __restrict__ table, uint4* __restrict__ out, uint4* __restrict__ others,
             const __grid_constant__ receive_rows_sizes s) {
    constexpr int AHEAD = 8;
    unsigned* words = (unsigned*)table[s.rank];
    if (threadIdx.x == 0) await_word(words + ARRIVED + s.flow, s.number, table);
    __syncthreads();
    const uint4* from = (const uint4*)table[s.rank] + s.inbox;
    unsigned behind = (unsigned)s.rows * s.units;
    unsigned all = behind + (unsigned)s.others * s.other_units;
    for (unsigned first = blockIdx.x * 512 * AHEAD + threadIdx.x; first < all; first += gridDim.x * 512 * AHEAD) {
        uint4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            unsigned i = first + k * 512;
            if (i < all)
                asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w) : "l"(from + i) : "memory");
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            unsigned i = first + k * 512;
            if (i < behind) {
                unsigned row = i / s.units;
                out[(long long)row * s.stride + (i - row * s.units)] = v[k];
            } else if (i < all) {
                unsigned row = (i - behind) / s.other_units;
                others[(long long)row * s.between + (i - behind - row * s.other_units)] = v[k];
            }
        }
    }
    // One thread of the last block tells the card that sent it.
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(words + UNPACKED + s.flow, 1) != gridDim.x - 1) return;
    words[UNPACKED + s.flow] = 0;
    __threadfence_system();
    *((volatile unsigned*)table[s.peer] + TAKEN + s.flow) = s.number;
}
