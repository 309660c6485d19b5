// out[i] = Σ over all cards of in[i], added in the order of the cards, for each of up to 32 arrays. Headers: exchange.cuh
// parameters.cuh.
//
// Behind `flags` words of 64 bits a card's memory has unsigned [2 halves][8 cards][BLOCKS] flags and float [2 halves][BLOCKS]
// [CHUNK] of its own values for others to read. The arrays are cut into chunks, those of one behind those of another (`at.first`:
// the first chunk of each). In turn t block b adds up chunk t·gridDim.x + b: it writes its card's chunk,
// tells block b of every card by a flag of the number sequence + t, waits for theirs, and reads the chunks of all.
//
// The table is given by value: a launch without memory marks all that it was given as lost.
// Halves are taken in turns. Every block of a grid goes through all turns, with a chunk or without, and every launch has block 0:
// so a card that begins number x has seen of every other that it has ended number x − 2, by block b's flag of x − 1 where this
// launch had it, and else by block 0's, which the other has set after the end of its earlier launches.
// Grid min(chunks, blocks), the same on all cards and no more than run at once; block 512.

#define BLOCKS 128
#define CHUNK 8192

struct all_reduce_sizes {
    int arrays, turns;
    exchange_part part;  // first: where the flags begin; sequence: of the first turn
    unsigned long long table[9];
    places at;
};

__device__ __forceinline__ float4 read_fresh(const float* p) {
    float4 v;
    asm volatile("ld.volatile.global.v4.f32 {%0,%1,%2,%3},[%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "l"(p)
                 : "memory");
    return v;
}

#define ARGUMENTS(i) const float *in##i, float *out##i,
#define CASE(i) case i: in = in##i; out = out##i; break;

extern "C" __global__ void __launch_bounds__(512)
all_reduce(EACH(ARGUMENTS) const __grid_constant__ all_reduce_sizes s) {
    const unsigned long long* table = s.table;
    constexpr int EACH = CHUNK / 512 / 4;  // vectors of a thread
    int rank = s.part.rank, ranks = s.part.ranks, tid = threadIdx.x;
    for (int t = 0; t < s.turns; t++) {
        unsigned number = s.part.sequence + t, half = number & 1;
        int chunk = t * gridDim.x + blockIdx.x, k = 0;
        while (k + 1 < s.arrays && s.at.first[k + 1] <= chunk) k++;
        const float* in = nullptr;
        float* out = nullptr;
        switch (k) { EACH(CASE) }
        bool aligned = (unsigned long long)in % 16 == 0;
        long long begin = (long long)(chunk - s.at.first[k]) * CHUNK;
        int length = s.at.length[k];
        long long place = ((long long)half * BLOCKS + blockIdx.x) * CHUNK;
        float4 own[EACH], sum[EACH];
        float* staging = (float*)((unsigned*)((unsigned long long*)table[rank] + s.part.first) + 2 * 8 * BLOCKS) + place;
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int local = (i * 512 + tid) * 4;
            long long at = begin + local;
            if (aligned && at + 4 <= length) {
                own[i] = *(const float4*)(in + at);
            } else {
                own[i].x = at < length ? in[at] : 0.f;
                own[i].y = at + 1 < length ? in[at + 1] : 0.f;
                own[i].z = at + 2 < length ? in[at + 2] : 0.f;
                own[i].w = at + 3 < length ? in[at + 3] : 0.f;
            }
            if (at < length) *(float4*)(staging + local) = own[i];
        }
        __threadfence_system();
        __syncthreads();
        if (tid < ranks) {
            __threadfence_system();
            volatile unsigned* to = (volatile unsigned*)((unsigned long long*)table[tid] + s.part.first);
            volatile unsigned* from = (volatile unsigned*)((unsigned long long*)table[rank] + s.part.first);
            to[(half * 8 + rank) * BLOCKS + blockIdx.x] = number;
            patience p(table);
            while (from[(half * 8 + tid) * BLOCKS + blockIdx.x] != number && p.lasts()) {
            }
            __threadfence_system();
        }
        __syncthreads();
        for (int p = 0; p < ranks; p++) {
            const float* theirs = (const float*)((unsigned*)((unsigned long long*)table[p] + s.part.first) + 2 * 8 * BLOCKS) + place;
            float4 value[EACH];
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                int local = (i * 512 + tid) * 4;
                value[i] = own[i];
                if (p != rank && begin + local < length) value[i] = read_fresh(theirs + local);
            }
#pragma unroll
            for (int i = 0; i < EACH; i++) {
                if (p == 0) {
                    sum[i] = value[i];
                } else {
                    sum[i].x += value[i].x;
                    sum[i].y += value[i].y;
                    sum[i].z += value[i].z;
                    sum[i].w += value[i].w;
                }
            }
        }
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            long long at = begin + (i * 512 + tid) * 4;
            if (at + 4 <= length) {
                *(float4*)(out + at) = sum[i];
            } else {
                if (at < length) out[at] = sum[i].x;
                if (at + 1 < length) out[at + 1] = sum[i].y;
                if (at + 2 < length) out[at + 2] = sum[i].z;
            }
        }
    }
}
