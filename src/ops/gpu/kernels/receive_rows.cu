// Waits for what send_rows.cu of another card gives this one, and copies it out of its slot: see there. Header: exchange.cuh.
// Grid and block as there. Bytes: the rows once from this card's memory and once into it.

#define BLOCKS 128

struct receive_rows_sizes {
    int rows, units;
    int flow, rank, peer;
    unsigned number;
    long long slot;  // units from the beginning of this card's part to the slot
};

extern "C" __global__ void __launch_bounds__(512)
receive_rows(const unsigned long long* __restrict__ table, uint4* __restrict__ out, const __grid_constant__ receive_rows_sizes s) {
    int at = (s.flow * 2 + (s.number & 1)) * BLOCKS + blockIdx.x;
    volatile unsigned* flag = (volatile unsigned*)table[s.rank] + at;
    volatile unsigned* taken = (volatile unsigned*)table[s.peer] + 4 * BLOCKS + at;
    if (threadIdx.x == 0) {
        patience p(table);
        while (*flag != s.number && p.lasts()) {
        }
        __threadfence_system();
    }
    __syncthreads();
    const uint4* from = (const uint4*)table[s.rank] + s.slot;
    unsigned all = (unsigned)s.rows * s.units;
    constexpr int AHEAD = 4;
    unsigned step = gridDim.x * 512;
    for (unsigned first = blockIdx.x * 512 + threadIdx.x; first < all; first += AHEAD * step) {
        uint4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const uint4* at = from + first + k * step;
            if (first + k * step >= all) break;
            asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w) : "l"(at) : "memory");
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * step < all) out[first + k * step] = v[k];
    }
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence_system();
        *taken = s.number;
    }
}
