// out = maximum over 3×3 windows, stride 2, padding 1, of relu(scale·z + shift): the stem's norm, ReLU and max-pooling.
//
// z: [N·Ho·Wo, C] (ld_z), out: [N·Hp·Wp, C] (ld_out), index: 4 bits a value, unsigned[N·Hp·Wp][C/8]: ky·3 + kx of the first
// maximum, 15 where the ReLU is shut; part: statistics of out as stored. A thread takes runs of four outputs in a line.
// Headers: tiles.cuh channels.cuh. Grid (G, ceil(C/(8·V))), block 256, G = min(ceil(N·Hp·ceil(Wp/4)/32), 8·SMS), rows = G.
// Bytes: z once (its lines 1.5 times through caches), out and index once.

struct stem_pool_forward_sizes {
    int batch, height, width, out_height, out_width, channels, ld_z, ld_out;
};

extern "C" __global__ void __launch_bounds__(256)
stem_pool_forward(const E* __restrict__ z, const float* __restrict__ scale, const float* __restrict__ shift,
                  E* __restrict__ out, u32* __restrict__ index, float* __restrict__ part,
                  const __grid_constant__ stem_pool_forward_sizes s) {
    __shared__ float shared[8 * 8 * V * 3];
    walk at;
    gathered_moments m;
    int runs = (s.out_width + 3) / 4;
    long long items = (long long)s.batch * s.out_height * runs;
    if (at.c < s.channels) {
        float a[V], b[V];
        load_floats(scale + at.c, a);
        load_floats(shift + at.c, b);
        for (long long item = at.pixel; item < items; item += at.step) {
            int line = (int)(item / runs), ox0 = (int)(item - (long long)line * runs) * 4;
            int n = line / s.out_height, oy = line - n * s.out_height;
            const E* base = z + ((long long)n * s.height * s.width) * s.ld_z + at.c;

            // The greatest of a column's three values and the line it came from.
            auto column = [&](int x, float* best, int* from) {
#pragma unroll
                for (int e = 0; e < V; e++) best[e] = __int_as_float(0xff800000), from[e] = 0;
                if ((u32)x >= (u32)s.width) return;
                uint4 v[3];
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    int y = 2 * oy - 1 + k;
                    if ((u32)y < (u32)s.height) v[k] = load_vector(base + ((long long)y * s.width + x) * s.ld_z);
                }
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    int y = 2 * oy - 1 + k;
                    if ((u32)y >= (u32)s.height) continue;
                    float f[V];
                    element::unpack(v[k], f);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        float value = fmaf(a[e], f[e], b[e]);
                        from[e] = value > best[e] ? k : from[e];
                        best[e] = max_nan(best[e], value);
                    }
                }
            };
            float left[V];
            int left_from[V];
            column(2 * ox0 - 1, left, left_from);
            int last = min(ox0 + 4, s.out_width);
            for (int ox = ox0; ox < last; ox++) {
                float best[V], right[V];
                int from[V], right_from[V];
#pragma unroll
                for (int e = 0; e < V; e++) best[e] = left[e], from[e] = left_from[e] * 3;
                column(2 * ox, right, right_from);
#pragma unroll
                for (int e = 0; e < V; e++) {
                    bool take = right[e] > best[e] || (right[e] == best[e] && right_from[e] * 3 < from[e]);
                    from[e] = take ? right_from[e] * 3 + 1 : from[e];
                    best[e] = max_nan(best[e], right[e]);
                }
                column(2 * ox + 1, left, left_from);
                u32 packed = 0;
#pragma unroll
                for (int e = 0; e < V; e++) {
                    // A tie goes to the earlier line; from / 3 is the line taken so far.
                    bool take = left[e] > best[e] || (left[e] == best[e] && left_from[e] * 3 + 2 < from[e]);
                    from[e] = take ? left_from[e] * 3 + 2 : from[e];
                    best[e] = max_nan(max_nan(best[e], left[e]), 0.f);
                    packed |= (u32)(best[e] > 0.f ? from[e] : 15) << (4 * e);
                }
                long long p = (long long)line * s.out_width + ox;
                uint4 v = element::pack(best);
                store_vector(out + p * s.ld_out + at.c, v);
                if constexpr (WIDE) ((unsigned short*)index)[p * (s.channels / 4) + at.c / 4] = (unsigned short)packed;
                else index[p * (s.channels / 8) + at.c / 8] = packed;
                element::unpack(v, best);
                m.add(best);
            }
        }
    }
    write_moments(m, shared, part, s.channels);
}
