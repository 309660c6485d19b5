// Messages between neighbouring cards of a pipeline: rows of 16-byte units. Header: exchange.cuh, before this one.
//
// send_rows.cu packs a message into an outbox in its own card's memory, a copy engine takes it to the inbox in the other card's
// (cuda/outbox.rs), and receive_rows.cu takes it out there. So multiprocessors move it at the speed of their own memory alone, and compute
// while it travels.
//
// A message has a number, which counts up alike on both cards. Flow 0 is that of values, which go to the next card; flow 1 that of
// gradients, which go back. A card's part of the table begins with words, unsigned, one for each flow:

#define ARRIVED 0    // the number of the message in the inbox; written by the other card's copy engine
#define TAKEN 2      // the number of the last message that the other card has taken out; written by its kernel
#define READY 4      // the number of the message in the outbox, which its copy engine waits for
#define COPIED 6     // the number of the last message that has left the outbox; written by its copy engine
#define PACKED 8     // blocks of send_rows.cu that have come to their end
#define UNPACKED 10  // the same of receive_rows.cu

// Waits until a word has come to `number`. For one thread.
__device__ __forceinline__ void await_word(const volatile unsigned* word, unsigned number, const unsigned long long* table) {
    patience p(table);
    while ((int)(*word - number) < 0 && p.lasts()) {
    }
    __threadfence_system();
}

// Copies `all` units: load(i) gives the i-th, store(i, v) takes it. Each block copies units b·512 … of every gridDim.x·512.
template <class Load, class Store>
__device__ __forceinline__ void copy_units(unsigned all, Load load, Store store) {
    constexpr int AHEAD = 4;
    unsigned step = gridDim.x * 512;
    for (unsigned first = blockIdx.x * 512 + threadIdx.x; first < all; first += AHEAD * step) {
        uint4 v[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * step < all) v[k] = load(first + k * step);
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * step < all) store(first + k * step, v[k]);
    }
}

// Whether this thread is to go on for all blocks, which are counted in `word`: one thread of the last block is.
__device__ __forceinline__ bool all_blocks_ended(unsigned* word) {
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0) return false;
    __threadfence();
    if (atomicAdd(word, 1) != gridDim.x - 1) return false;
    *word = 0;
    __threadfence_system();
    return true;
}
