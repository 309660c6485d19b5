// out = the shards of all cards, one behind another in the order of the cards, for each of up to 32 arrays; in = this card's shard.
// Headers: exchange.cuh parameters.cuh turns.cuh.
//
// An array's length is that of `out`, L; card p's shard of it is [L·p/ranks, L·(p + 1)/ranks), as `Shard::range` has it. A chunk is
// the same piece of every card's shard, so an array has ceil(L/(CHUNK·ranks)) of them.
// A card writes its piece into place 1 of its own memory, where the others read it. What the slot had is of an earlier turn than the last,
// and the others have read it: they have told the last turn, for which this block has waited, or, where it had no part in that, have
// ended an earlier launch.
// Grid as in turns.cuh, block 512.

extern "C" __global__ void __launch_bounds__(512)
all_gather(EACH(ARGUMENTS) const __grid_constant__ turns_sizes s) {
    team<512> all{0, (int)threadIdx.x};
    for (int t = 0; t < s.turns; t++) {
        turn now(s, t, CHUNK);
        const float* in = nullptr;
        float* out = nullptr;
        switch (now.array) { EACH(CASE) }
        long long whole = s.at.length[now.array];
        auto from = [&](int p) { return whole * p / s.part.ranks; };
        long long shard = from(s.part.rank + 1) - from(s.part.rank);
        float4 own[all.VECTORS];
#pragma unroll
        for (int i = 0; i < all.VECTORS; i++) {
            long long at = now.begin + all.local(i);
            own[i] = turn::load(in, at, shard);
            if (at < shard) *(float4*)(now.values(s.part.rank, 1) + all.local(i)) = own[i];
        }
        now.tell(1, all);
        now.wait(1, all);
        for (int p = 0; p < s.part.ranks; p++) {
            long long length = from(p + 1) - from(p);
            float4 value[all.VECTORS];
#pragma unroll
            for (int i = 0; i < all.VECTORS; i++) {
                value[i] = own[i];
                if (p != s.part.rank && now.begin + all.local(i) < length) value[i] = turn::read(now.values(p, 1) + all.local(i));
            }
#pragma unroll
            for (int i = 0; i < all.VECTORS; i++) turn::store(out + from(p), now.begin + all.local(i), length, value[i]);
        }
    }
}
