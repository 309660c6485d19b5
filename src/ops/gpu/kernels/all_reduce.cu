// out[i] = Σ over all cards of in[i], added in the order of the cards, for each of up to 32 arrays, which are as long on all of them.
// Headers: exchange.cuh parameters.cuh turns.cuh.
//
// A chunk has a piece for each card, of CHUNK/ranks values to the next multiple of 4 below. A card gives every other one what it has
// of that one's piece, adds up its own piece, and gives the sums to all: so 2·(ranks − 1)/ranks of the values leave a card and as
// many come, where reading what all have would bring ranks − 1 times as many. Pieces of the next turn are given before
// those of this one are waited for.

extern "C" __global__ void __launch_bounds__(512)
all_reduce(EACH(ARGUMENTS) const __grid_constant__ turns_sizes s) {
    int ranks = s.part.ranks, rank = s.part.rank, piece = CHUNK / ranks / 4 * 4, step = piece * ranks;
    auto arrays = [&](int array, const float*& in, float*& out) {
        switch (array) { EACH(CASE) }
        return s.at.length[array];
    };
    auto give = [&](int t) {
        turn now(s, t, step);
        const float* in = nullptr;
        float* out = nullptr;
        int length = arrays(now.array, in, out);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int local = turn::local(i), owner = local / piece;
            if (local >= step || owner == rank || now.begin + local >= length) continue;
            *(float4*)(now.values(owner, 0) + rank * piece + local - owner * piece) = turn::load(in, now.begin + local, length);
        }
        now.tell(0);
    };
    give(0);
    for (int t = 0; t < s.turns; t++) {
        if (t + 1 < s.turns) give(t + 1);
        turn now(s, t, step);
        const float* in = nullptr;
        float* out = nullptr;
        int length = arrays(now.array, in, out);
        now.wait(0);
        for (int i = threadIdx.x * 4; i < piece; i += 512 * 4) {
            long long at = now.begin + rank * piece + i;
            if (at >= length) break;
            float4 value[8], own = turn::load(in, at, length);
#pragma unroll
            for (int p = 0; p < 8; p++)
                if (p < ranks && p != rank) value[p] = turn::read(now.values(rank, 0) + p * piece + i);
            float4 sum = rank == 0 ? own : value[0];
#pragma unroll
            for (int p = 1; p < 8; p++) {
                if (p >= ranks) break;
                float4 v = p == rank ? own : value[p];
                sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
            }
            turn::store(out, at, length, sum);
            for (int p = 0; p < ranks; p++)
                if (p != rank) *(float4*)(now.values(p, 1) + rank * piece + i) = sum;
        }
        now.tell(1);
        now.wait(1);
#pragma unroll
        for (int i = 0; i < VECTORS; i++) {
            int local = turn::local(i);
            if (local >= step || local / piece == rank || now.begin + local >= length) continue;
            turn::store(out, now.begin + local, length, turn::read(now.values(rank, 1) + local));
        }
    }
}
