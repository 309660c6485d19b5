// Arrays of any length that several cards put together, as all_reduce.cu and all_gather.cu do. Headers: exchange.cuh parameters.cuh.
//
// Behind `first` words of 64 bits a card's memory has two places, each of unsigned [2 halves][8 cards][BLOCKS] flags and float
// [2 halves][BLOCKS][CHUNK] values. The arrays are cut into chunks, those of one behind those of another (`at.first`:
// the first chunk of each). In turn t block b works on chunk t·gridDim.x + b: it writes values into one of the places, of its own card or
// of others, tells block b of every card by a flag there of the number sequence + t, and waits for theirs.
//
// The table is given by value: a launch without memory marks all that it was given as lost.
// Halves are taken in turns. Every block of a grid goes through all turns, with a chunk or without, and every launch has block 0:
// so a card that begins number x has seen of every other that it has ended number x − 2, by block b's flag of x − 1 where this
// launch had it, and else by block 0's, which the other has set after the end of its earlier launches. Others' values are read in place 1
// (all_gather.cu), where others are given values only when they have begun the same number; in place 0 a card reads what it is
// given before it sets its flag of place 1.
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

    // Of chunks of `step` values.
    __device__ __forceinline__ turn(const turns_sizes& s, int t, int step) : s(s), number(s.part.sequence + t), array(0) {
        int chunk = t * gridDim.x + blockIdx.x;
        while (array + 1 < s.arrays && s.at.first[array + 1] <= chunk) array++;
        begin = (long long)(chunk - s.at.first[array]) * step;
    }

    // Where the thread's vector i is in the chunk.
    __device__ __forceinline__ static int local(int i) { return (i * 512 + threadIdx.x) * 4; }

    __device__ __forceinline__ unsigned* flags(int card, int place) const {
        return (unsigned*)((unsigned long long*)s.table[card] + s.part.first) + place * (2 * BLOCKS * (8 + CHUNK));
    }

    __device__ __forceinline__ float* values(int card, int place) const {
        return (float*)(flags(card, place) + 2 * 8 * BLOCKS) + ((long long)(number & 1) * BLOCKS + blockIdx.x) * CHUNK;
    }

    __device__ __forceinline__ unsigned* flag(int card, int place, int of) const {
        return flags(card, place) + ((number & 1) * 8 + of) * BLOCKS + blockIdx.x;
    }

    // Tells block b of every card that this block has written what it is to write into `place`.
    __device__ __forceinline__ void tell(int place) const {
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x < s.part.ranks) {
            __threadfence_system();
            *(volatile unsigned*)flag(threadIdx.x, place, s.part.rank) = number;
        }
    }

    // Waits until all cards have.
    __device__ __forceinline__ void wait(int place) const {
        if (threadIdx.x < s.part.ranks) {
            volatile unsigned* from = flag(s.part.rank, place, threadIdx.x);
            patience p(s.table);
            while (*from != number && p.lasts()) {
            }
            __threadfence_system();
        }
        __syncthreads();
    }

    // Four values of `in`, which has `length`; what is behind them is 0.
    __device__ __forceinline__ static float4 load(const float* in, long long at, long long length) {
        if ((unsigned long long)in % 16 == 0 && at + 4 <= length) return *(const float4*)(in + at);
        return make_float4(at < length ? in[at] : 0.f, at + 1 < length ? in[at + 1] : 0.f, at + 2 < length ? in[at + 2] : 0.f,
                           at + 3 < length ? in[at + 3] : 0.f);
    }

    __device__ __forceinline__ static void store(float* out, long long at, long long length, float4 value) {
        if ((unsigned long long)out % 16 == 0 && at + 4 <= length) {
            *(float4*)(out + at) = value;
        } else {
            if (at < length) out[at] = value.x;
            if (at + 1 < length) out[at + 1] = value.y;
            if (at + 2 < length) out[at + 2] = value.z;
            if (at + 3 < length) out[at + 3] = value.w;
        }
    }

    // What other cards write, or have written.
    __device__ __forceinline__ static float4 read(const float* from) {
        float4 v;
        asm volatile("ld.volatile.global.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from) : "memory");
        return v;
    }

    // Reads the chunk of this card's `length` values, and lets the others read it.
    __device__ __forceinline__ void give(const float* in, long long length, float4 (&own)[VECTORS]) const {
        float* staging = values(s.part.rank, 1);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            long long at = begin + local(i);
            own[i] = load(in, at, length);
            if (at < length) *(float4*)(staging + local(i)) = own[i];
        }
        tell(1);
        wait(1);
    }

    // The chunk of card p, which has `length` values; this card's own are known.
    __device__ __forceinline__ void take(int p, long long length, const float4 (&own)[VECTORS], float4 (&value)[VECTORS]) const {
        const float* theirs = values(p, 1);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            value[i] = own[i];
            if (p != s.part.rank && begin + local(i) < length) value[i] = read(theirs + local(i));
        }
    }

    // Writes the chunk of an array of `length` values.
    __device__ __forceinline__ void put(float* out, long long length, const float4 (&value)[VECTORS]) const {
#pragma unroll
        for (int i = 0; i < VECTORS; i++) store(out, begin + local(i), length, value[i]);
    }
};
