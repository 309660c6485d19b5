// out[i] = Σ over all cards of in[i], added in the order of the cards, for each of up to 32 arrays, which are as long on all of them.
// Headers: exchange.cuh parameters.cuh turns.cuh.
//
// A chunk has a piece for each card, of CHUNK/ranks values to the next multiple of 4 below. A card gives every other one what it has
// of that one's piece (place 0), adds up its own piece, gives the sums to all (place 1), and stores what it is given: so
// 2·(ranks − 1)/ranks of the values leave a card and as many come, where reading what all have would bring ranks − 1 times as many.
// A third of the threads gives, a third adds up and a third stores, each in turns of its own: while one waits for other cards the others
// go on. One after another the three leave the links idle for 10 µs of a turn's 20.
//
// Slots: values are given in turn t when this block has stored the sums of turn t − SLOTS_OF_PLACE, so their owners have read what was in
// the slot, and the others know that by the flag. Sums of turn t are written into the others' slots when all have given for turn t,
// and so have stored what was there. In place 1 others have read what all_gather.cu had there before they gave anything.
// Grid as in turns.cuh, block 768. Bytes: in and out once; values and sums of others' pieces are written over NVLink and read, once each.

constexpr int ROLE = 256;   // threads of each of the three
constexpr int AT_ONCE = 4;  // vectors of a thread

extern "C" __global__ void __launch_bounds__(3 * ROLE)
all_reduce(EACH(ARGUMENTS) const __grid_constant__ turns_sizes s) {
    __shared__ volatile int stored;  // turns
    if (threadIdx.x == 0) stored = 0;
    __syncthreads();
    int role = threadIdx.x / ROLE;
    team<ROLE> by{role, (int)threadIdx.x % ROLE};
    int ranks = s.part.ranks, rank = s.part.rank, piece = CHUNK / ranks / 4 * 4, step = piece * ranks;
    // What is added up in a turn and where the sums go; how long both are.
    auto arrays = [&](const turn& now, const float*& in, float*& out) {
        switch (now.array) { EACH(CASE) }
        return s.at.length[now.array];
    };
    // Whether the thread's vector i of a chunk is another card's.
    auto is_other = [&](const turn& now, int i, int length) {
        return by.local(i) < step && by.local(i) / piece != rank && now.begin + by.local(i) < length;
    };
    if (role == 0) {
        for (int t = 0; t < s.turns; t++) {
            turn now(s, t, step);
            const float* in = nullptr;
            float* out = nullptr;
            int length = arrays(now, in, out);
            if (by.lane == 0)
                while (stored + SLOTS_OF_PLACE <= t) {
                }
            by.sync();
            for (int first = 0; first < by.VECTORS; first += AT_ONCE) {
                float4 v[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    if (is_other(now, first + i, length)) v[i] = turn::load(in, now.begin + by.local(first + i), length);
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++) {
                    int local = by.local(first + i), owner = local / piece;
                    if (is_other(now, first + i, length)) *(float4*)(now.values(owner, 0) + rank * piece + local - owner * piece) = v[i];
                }
            }
            now.tell(0, by);
        }
    } else if (role == 1) {
        for (int t = 0; t < s.turns; t++) {
            turn now(s, t, step);
            const float* in = nullptr;
            float* out = nullptr;
            int length = arrays(now, in, out);
            now.wait(0, by);
            for (int i = by.lane * 4; i < piece; i += ROLE * 4) {
                long long at = now.begin + rank * piece + i;
                if (at >= length) break;
                float4 value[8];
#pragma unroll
                for (int p = 0; p < 8; p++)
                    if (p < ranks) value[p] = p == rank ? turn::load(in, at, length) : turn::read(now.values(rank, 0) + p * piece + i);
                float4 sum = value[0];
#pragma unroll
                for (int p = 1; p < 8; p++) {
                    if (p >= ranks) break;
                    sum.x += value[p].x, sum.y += value[p].y, sum.z += value[p].z, sum.w += value[p].w;
                }
                turn::store(out, at, length, sum);
                for (int p = 0; p < ranks; p++)
                    if (p != rank) *(float4*)(now.values(p, 1) + rank * piece + i) = sum;
            }
            now.tell(1, by);
        }
    } else {
        for (int t = 0; t < s.turns; t++) {
            turn now(s, t, step);
            const float* in = nullptr;
            float* out = nullptr;
            int length = arrays(now, in, out);
            now.wait(1, by);
            for (int first = 0; first < by.VECTORS; first += AT_ONCE) {
                float4 v[AT_ONCE];
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    if (is_other(now, first + i, length)) v[i] = turn::read(now.values(rank, 1) + by.local(first + i));
#pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    if (is_other(now, first + i, length)) turn::store(out, now.begin + by.local(first + i), length, v[i]);
            }
            by.sync();
            if (by.lane == 0) stored = t + 1;
        }
    }
}
