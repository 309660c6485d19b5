// Arrays of any length that several cards put together, as all_reduce.cu and all_gather.cu do. Headers: exchange.cuh parameters.cuh.
//
// Behind `first` words of 64 bits a card's memory has unsigned [2 halves][8 cards][BLOCKS] flags and float [2 halves][BLOCKS]
// [CHUNK] of its own values for others to read. The arrays are cut into chunks, those of one behind those of another (`at.first`:
// the first chunk of each). In turn t block b works on chunk t·gridDim.x + b: it writes its card's values there,
// tells block b of every card by a flag of the number sequence + t, waits for theirs, and reads the values of all.
//
// The table is given by value: a launch without memory marks all that it was given as lost.
// Halves are taken in turns. Every block of a grid goes through all turns, with a chunk or without, and every launch has block 0:
// so a card that begins number x has seen of every other that it has ended number x − 2, by block b's flag of x − 1 where this
// launch had it, and else by block 0's, which the other has set after the end of its earlier launches.
// Grid min(chunks, blocks), the same on all cards and no more than run at once; block 512.

#define BLOCKS 128
#define CHUNK 8192

struct turns_sizes {
    int arrays, turns;
    exchange_part part;  // first: where the flags begin; sequence: of the first turn
    unsigned long long table[9];
    places at;
};

#define ARGUMENTS(i) const float *in##i, float *out##i,
#define CASE(i) case i: in = in##i; out = out##i; break;

constexpr int VECTORS = CHUNK / 512 / 4;  // of a thread

// A block's chunk in one turn.
struct turn {
    const turns_sizes& s;
    unsigned number;
    int array;
    long long begin;  // of the chunk in its array

    __device__ __forceinline__ turn(const turns_sizes& s, int t) : s(s), number(s.part.sequence + t), array(0) {
        int chunk = t * gridDim.x + blockIdx.x;
        while (array + 1 < s.arrays && s.at.first[array + 1] <= chunk) array++;
        begin = (long long)(chunk - s.at.first[array]) * CHUNK;
    }

    // Where the thread's vector i is in the chunk.
    __device__ __forceinline__ static int local(int i) { return (i * 512 + threadIdx.x) * 4; }

    __device__ __forceinline__ unsigned* flags(int card) const { return (unsigned*)((unsigned long long*)s.table[card] + s.part.first); }

    __device__ __forceinline__ float* values(int card) const {
        return (float*)(flags(card) + 2 * 8 * BLOCKS) + ((long long)(number & 1) * BLOCKS + blockIdx.x) * CHUNK;
    }

    // Reads the chunk of this card's `length` values, and lets the others read it.
    __device__ __forceinline__ void give(const float* in, long long length, float4 (&own)[VECTORS]) const {
        bool aligned = (unsigned long long)in % 16 == 0;
        float* staging = values(s.part.rank);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            long long at = begin + local(i);
            if (aligned && at + 4 <= length) {
                own[i] = *(const float4*)(in + at);
            } else {
                own[i].x = at < length ? in[at] : 0.f;
                own[i].y = at + 1 < length ? in[at + 1] : 0.f;
                own[i].z = at + 2 < length ? in[at + 2] : 0.f;
                own[i].w = at + 3 < length ? in[at + 3] : 0.f;
            }
            if (at < length) *(float4*)(staging + local(i)) = own[i];
        }
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x < s.part.ranks) {
            __threadfence_system();
            unsigned half = number & 1;
            volatile unsigned* to = flags(threadIdx.x);
            volatile unsigned* from = flags(s.part.rank);
            to[(half * 8 + s.part.rank) * BLOCKS + blockIdx.x] = number;
            patience p(s.table);
            while (from[(half * 8 + threadIdx.x) * BLOCKS + blockIdx.x] != number && p.lasts()) {
            }
            __threadfence_system();
        }
        __syncthreads();
    }

    // The chunk of card p, which has `length` values; this card's own are known.
    __device__ __forceinline__ void take(int p, long long length, const float4 (&own)[VECTORS], float4 (&value)[VECTORS]) const {
        const float* theirs = values(p);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            value[i] = own[i];
            if (p != s.part.rank && begin + local(i) < length) {
                asm volatile("ld.volatile.global.v4.f32 {%0,%1,%2,%3},[%4];"
                             : "=f"(value[i].x), "=f"(value[i].y), "=f"(value[i].z), "=f"(value[i].w)
                             : "l"(theirs + local(i))
                             : "memory");
            }
        }
    }

    // Writes the chunk of an array of `length` values.
    __device__ __forceinline__ void put(float* out, long long length, const float4 (&value)[VECTORS]) const {
        bool aligned = (unsigned long long)out % 16 == 0;
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            long long at = begin + local(i);
            if (aligned && at + 4 <= length) {
                *(float4*)(out + at) = value[i];
            } else {
                if (at < length) out[at] = value[i].x;
                if (at + 1 < length) out[at + 1] = value[i].y;
                if (at + 2 < length) out[at + 2] = value[i].z;
                if (at + 3 < length) out[at + 3] = value[i].w;
            }
        }
    }
};
