// out[i] = Σ over all cards of in[i], added in the order of the cards, for each of up to 32 arrays, which are as long on all of them.
// Headers: exchange.cuh parameters.cuh turns.cuh.

extern "C" __global__ void __launch_bounds__(512)
all_reduce(EACH(ARGUMENTS) const __grid_constant__ turns_sizes s) {
    for (int t = 0; t < s.turns; t++) {
        turn now(s, t);
        const float* in = nullptr;
        float* out = nullptr;
        switch (now.array) { EACH(CASE) }
        int length = s.at.length[now.array];
        float4 own[VECTORS], sum[VECTORS];
        now.give(in, length, own);
        for (int p = 0; p < s.part.ranks; p++) {
            float4 value[VECTORS];
            now.take(p, length, own, value);
#pragma unroll
            for (int i = 0; i < VECTORS; i++) {
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
        now.put(out, length, sum);
    }
}
