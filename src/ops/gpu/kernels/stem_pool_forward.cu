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
    OF_IMAGE(z, (long long)s.height * s.width * s.ld_z);
    OF_IMAGE(scale, s.channels);
    OF_IMAGE(shift, s.channels);
    OF_IMAGE(out, (long long)s.out_height * s.out_width * s.ld_out);
    OF_IMAGE(index, (long long)s.out_height * s.out_width * (s.channels / 8));
    OF_IMAGE(part, (long long)gridDim.x * (2 * s.channels + 1));
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

            // A key is a value whose low four bits give way to 15 − tap: the greatest key is the first greatest value, to 20
            // bits for 2-byte elements, which keep at most 11. For 4-byte elements the tap is kept apart.
            auto load = [&](int x, uint4* v) {
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    int y = 2 * oy - 1 + k;
                    if ((u32)y < (u32)s.height && (u32)x < (u32)s.width)
                        v[k] = load_vector(base + ((long long)y * s.width + x) * s.ld_z);
                }
            };
            auto column = [&](int x, const uint4* v, int kx, float* best, u32* tap) {
#pragma unroll
                for (int e = 0; e < V; e++) best[e] = __int_as_float(0xff800000);
                if constexpr (WIDE) {
#pragma unroll
                    for (int e = 0; e < V; e++) tap[e] = kx;
                }
                if ((u32)x >= (u32)s.width) return;
#pragma unroll
                for (int k = 0; k < 3; k++) {
                    if ((u32)(2 * oy - 1 + k) >= (u32)s.height) continue;
                    float f[V];
                    element::unpack(v[k], f);
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        float value = fmaf(a[e], f[e], b[e]);
                        if constexpr (WIDE) tap[e] = value > best[e] ? 3 * k + kx : tap[e];
                        else value = __uint_as_float((__float_as_uint(value) & ~15u) | (15 - 3 * k - kx));
                        best[e] = max_nan(best[e], value);
                    }
                }
            };
            float left[V];
            u32 left_tap[V];
            uint4 v[6];
            load(2 * ox0 - 1, v);
            column(2 * ox0 - 1, v, 0, left, left_tap);
            int last = min(ox0 + 4, s.out_width);
            for (int ox = ox0; ox < last; ox++) {
                float best[V], next[V];
                u32 tap[V], next_tap[V];
#pragma unroll
                for (int e = 0; e < V; e++) best[e] = left[e], tap[e] = left_tap[e];
                auto take = [&]() {
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        if constexpr (WIDE) {
                            bool later = next[e] > best[e] || (next[e] == best[e] && next_tap[e] < tap[e]);
                            tap[e] = later ? next_tap[e] : tap[e];
                        }
                        best[e] = max_nan(best[e], next[e]);
                    }
                };
                load(2 * ox, v);
                load(2 * ox + 1, v + 3);
                column(2 * ox, v, 1, next, next_tap);
                take();
                column(2 * ox + 1, v + 3, 2, next, next_tap);
                take();
                u32 packed = 0;
#pragma unroll
                for (int e = 0; e < V; e++) {
                    // What was column 2 is column 0 of the next window.
                    if constexpr (WIDE) left_tap[e] = next_tap[e] - 2, left[e] = next[e];
                    else left[e] = __uint_as_float(__float_as_uint(next[e]) + 2), tap[e] = 15 - (__float_as_uint(best[e]) & 15);
                    best[e] = max_nan(best[e], 0.f);
                    packed |= (best[e] > 0.f ? tap[e] : 15) << (4 * e);
                }
                long long p = (long long)line * s.out_width + ox;
                uint4 rounded = element::pack(best);
                store_vector(out + p * s.ld_out + at.c, rounded);
                if constexpr (WIDE) ((unsigned short*)index)[p * (s.channels / 4) + at.c / 4] = (unsigned short)packed;
                else index[p * (s.channels / 8) + at.c / 8] = packed;
                element::unpack(rounded, best);
                m.add(best);
            }
        }
    }
    write_moments(m, shared, part, s.channels);
}
