// Gives rows of 16-byte units to another card of a pipeline: copies them into one of two slots in its memory. Header: exchange.cuh.
//
// A message has a number, which counts up alike on the card that sends and on the one that receives; its slot is number & 1. Block b
// copies units b·512 … of every gridDim.x·512, then raises the slot's flag b on the other card to the number. receive_rows.cu has the
// same grid: its block b waits for that flag, copies the same units, and raises the slot's acknowledgement b here. Where an earlier
// message of the attempt has had the slot, block b first waits for that message's acknowledgement.
//
// A card's part of the table begins with the flags of what comes, unsigned [2 flows][2 slots][BLOCKS], then has the acknowledgements of
// what it has sent, likewise, then the slots, [inboxes][2 slots] of `capacity` units. Flow 0 is that of values, which go to the next card;
// flow 1 that of gradients, which go back.
// Grid min(BLOCKS, what runs at once, ceil(units/512)), the same on both cards; block 512. Bytes: the rows once, written over NVLink.

#define BLOCKS 128

struct send_rows_sizes {
    int rows, units, stride;  // units of a row, and from one row to the next
    int flow, rank, peer;
    unsigned number, earlier;  // of the message that has had the slot; 0 where none of the attempt has
    long long slot;            // units from the beginning of the other card's part to the slot
};

extern "C" __global__ void __launch_bounds__(512)
send_rows(const uint4* __restrict__ in, const unsigned long long* __restrict__ table, const __grid_constant__ send_rows_sizes s) {
    int at = (s.flow * 2 + (s.number & 1)) * BLOCKS + blockIdx.x;
    volatile unsigned* flag = (volatile unsigned*)table[s.peer] + at;
    volatile unsigned* taken = (volatile unsigned*)table[s.rank] + 4 * BLOCKS + at;
    if (threadIdx.x == 0 && s.earlier) {
        patience p(table);
        while (*taken != s.earlier && p.lasts()) {
        }
        __threadfence_system();
    }
    __syncthreads();
    uint4* to = (uint4*)table[s.peer] + s.slot;
    unsigned all = (unsigned)s.rows * s.units;
    constexpr int AHEAD = 4;
    unsigned step = gridDim.x * 512;
    for (unsigned first = blockIdx.x * 512 + threadIdx.x; first < all; first += AHEAD * step) {
        uint4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            unsigned i = first + k * step, row = i / s.units;
            if (i < all) v[k] = in[(long long)row * s.stride + (i - row * s.units)];
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * step < all) to[first + k * step] = v[k];
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        *flag = s.number;
    }
}
