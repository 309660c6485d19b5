// out = the shards of all cards, one behind another in the order of the cards, for each of up to 32 arrays; in = this card's shard.
// Headers: exchange.cuh parameters.cuh turns.cuh.
//
// An array's length is that of `out`, L; card p's shard of it is [L·p/ranks, L·(p + 1)/ranks), as `Shard::range` has it. A chunk is
// the same piece of every card's shard, so an array has ceil(L/(CHUNK·ranks)) of them.

extern "C" __global__ void __launch_bounds__(512)
all_gather(EACH(ARGUMENTS) const __grid_constant__ turns_sizes s) {
    for (int t = 0; t < s.turns; t++) {
        turn now(s, t, CHUNK);
        const float* in = nullptr;
        float* out = nullptr;
        switch (now.array) { EACH(CASE) }
        long long whole = s.at.length[now.array];
        auto from = [&](int p) { return whole * p / s.part.ranks; };
        float4 own[VECTORS];
        now.give(in, from(s.part.rank + 1) - from(s.part.rank), own);
        for (int p = 0; p < s.part.ranks; p++) {
            long long length = from(p + 1) - from(p);
            float4 value[VECTORS];
            now.take(p, length, own, value);
            now.put(out + from(p), length, value);
        }
    }
}
