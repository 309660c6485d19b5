// Arrays of any length that several cards put together, as all_reduce.cu and all_gather.cu do. Headers: exchange.cuh parameters.cuh.
//
// Behind `first` words of 64 bits a card's memory has two places, each of unsigned [SLOTS_OF_PLACE][8 cards][BLOCKS] flags and float
// [SLOTS_OF_PLACE][BLOCKS][CHUNK] values. The arrays are cut into chunks, those of one behind those of another (`at.first`:
// the first chunk of each). In turn t block b works on chunk t·gridDim.x + b: it writes values into one of the places, of its own card or
// of others, tells block b of every card by a flag there of the number sequence + t, and waits for theirs.
//
// The table is given by value: a launch without memory marks all that it was given as lost.
// Slots are taken in turns, slot number & (SLOTS_OF_PLACE − 1). Every block of a grid goes through all turns, with a chunk or without, and
// every launch has block 0. A card launches these kernels in one stream: so who is told a number of a launch knows that the card which
// tells it has ended its earlier launches. all_reduce.cu and all_gather.cu say why a slot is free when it is written.
// Grid min(chunks, blocks), the same on all cards and no more than run at once.

#define BLOCKS 128
#define CHUNK 8192
#define SLOTS_OF_PLACE 4

struct turns_sizes {
    int arrays, turns;
    exchange_part part;  // first: where the flags begin; sequence: of the first turn
    unsigned long long table[9];
    places at;
};

#define ARGUMENTS(i) const float *in##i, float *out##i,
#define CASE(i) case i: in = in##i; out = out##i; break;

// Threads of a block that go through the turns together.
template <int THREADS>
struct team {
    static constexpr int VECTORS = CHUNK / THREADS / 4;  // of a thread, of a chunk
    int barrier, lane;

    __device__ __forceinline__ void sync() const { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(THREADS) : "memory"); }

    // Where the thread's vector i is in the chunk.
    __device__ __forceinline__ int local(int i) const { return (i * THREADS + lane) * 4; }
};

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

    __device__ __forceinline__ int slot() const { return number & (SLOTS_OF_PLACE - 1); }

    __device__ __forceinline__ unsigned* flags(int card, int place) const {
        return (unsigned*)((unsigned long long*)s.table[card] + s.part.first) + place * (SLOTS_OF_PLACE * BLOCKS * (8 + CHUNK));
    }

    __device__ __forceinline__ float* values(int card, int place) const {
        return (float*)(flags(card, place) + SLOTS_OF_PLACE * 8 * BLOCKS) + ((long long)slot() * BLOCKS + blockIdx.x) * CHUNK;
    }

    __device__ __forceinline__ unsigned* flag(int card, int place, int of) const {
        return flags(card, place) + (slot() * 8 + of) * BLOCKS + blockIdx.x;
    }

    // Tells block b of every card that the team has written what it is to write into `place`. The fence of the thread that tells is behind
    // all that the team has written before the barrier; one of every thread takes a quarter of the whole exchange.
    template <int THREADS>
    __device__ __forceinline__ void tell(int place, const team<THREADS>& by) const {
        by.sync();
        if (by.lane < s.part.ranks) {
            __threadfence_system();
            *(volatile unsigned*)flag(by.lane, place, s.part.rank) = number;
        }
    }

    // Waits until all cards have.
    template <int THREADS>
    __device__ __forceinline__ void wait(int place, const team<THREADS>& by) const {
        if (by.lane < s.part.ranks) {
            volatile unsigned* from = flag(s.part.rank, place, by.lane);
            patience p(s.table);
            while (*from != number && p.lasts()) {
            }
            __threadfence_system();
        }
        by.sync();
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
};
