// One pass over z for the whole backward of the stem. With g = gradient of max-pooling and ReLU at an output of the convolution,
// x̂ = (z − mean)·rstd and patch = the image under it, a block adds up over its outputs
//   rows 0..63: Σ g⊗patch, rows 64..127: Σ x̂⊗patch, row 128: Σ patch, then Σ g [64] and Σ g·x̂ [64];
// BatchNorm's backward is linear in these, so `stem_backward_finish` makes the weight gradient of the sums: neither g nor the
// gradient of z is ever written.
//
// image, z: as `stem_forward`; dpool: gradient of the pooled output [N·Hp·Wp, C] (ld_dpool); index: from `stem_pool_forward`.
// Warps 8 to 11 make g and x̂ of the next tile, a thread two by two outputs of V channels; warps 0 to 7 multiply this one's.
// Headers: tiles.cuh channels.cuh gemm.cuh stem.cuh. Grid (G, ceil(C/64)), block 384, G = min(N·tiles_y·tiles_x, SMS), tiles
// of TH by 16 outputs, TH = 4 or (4-byte E) 2. Workspace G·ceil(C/64)·(129·8·7·STEM_CHANNELS + 128) floats.
// Bytes: image, z, dpool and index once.

struct stem_backward_sizes {
    int batch, height, width, out_height, out_width, pooled_height, pooled_width, channels, ld_z, ld_dpool, tiles_y, tiles_x;
};

extern "C" __global__ void __launch_bounds__(384, 1)
stem_backward(const E* __restrict__ image, const E* __restrict__ z, const float* __restrict__ mean,
              const float* __restrict__ rstd, const E* __restrict__ dpool, const u32* __restrict__ index,
              float* __restrict__ ws, const __grid_constant__ stem_backward_sizes s) {
    constexpr int K8 = 8 * TAP_ROWS, TH = WIDE ? 2 : 4, LINES = 2 * TH + 5, ALL = STEM_CHANNELS * LINES;
    constexpr int A = TH * 16 * 128 * sizeof(E), CHUNKS = 64 / V, LINE_CHUNKS = WIDE ? 10 : 9;
    constexpr int NR = (TAP_ROWS + 1) / 2, MI = 2, ONES = (NR + 3) / 4;
    static_assert(ALL * LINE_CHUNKS <= 384, "a thread loads at most one chunk of the image");
    __shared__ __align__(128) unsigned char gradients[2 * A];
    __shared__ __align__(16) u32 tile[2][ALL * PITCH];
    [[maybe_unused]] long long pooled = (long long)s.pooled_height * s.pooled_width;
    OF_IMAGE(image, (long long)STEM_CHANNELS * s.height * s.width);
    OF_IMAGE(z, (long long)s.out_height * s.out_width * s.ld_z);
    OF_IMAGE(mean, s.channels);
    OF_IMAGE(rstd, s.channels);
    OF_IMAGE(dpool, pooled * s.ld_dpool);
    OF_IMAGE(index, pooled * (s.channels / 8));
    OF_IMAGE(ws, (long long)gridDim.x * gridDim.y * (129 * K8 + 128));
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp & 3, wn = warp >> 2, g = lane >> 2, t = lane & 3;
    int tiles = s.batch * s.tiles_y * s.tiles_x, item = tid - 256, chunk = item & (CHUNKS - 1), quad = item / CHUNKS;
    int c = blockIdx.y * 64 + chunk * V;
    bool maker = warp >= 8, channel_ok = c < s.channels;
    if (!channel_ok) c = 0;
    tile_order order(s.tiles_y, s.tiles_x);

    // The image: a thread loads columns 4q to 4q + 5 of a line; a word of the tile holds columns m and m + 2, which are one
    // tap of two neighbouring outputs (2-byte elements), or column m.
    int line = tid / LINE_CHUNKS, q4 = (tid - line * LINE_CHUNKS) * 4, channel = line / LINES, line_y = line - channel * LINES;
    bool loads_image = line < ALL;
    u32 pixels[WIDE ? 4 : 3];
    auto load_image = [&](tile_place w) {
        if (!loads_image) return;
        int iy = 2 * w.oy + line_y - 3, ix = 2 * w.ox - 4 + q4;
        const E* p = image + (long long)((w.n * STEM_CHANNELS + channel) * s.height + iy) * s.width + ix;
        bool ok = (u32)iy < (u32)s.height;
        auto there = [&](int k) { return ok && (u32)(ix + k) < (u32)s.width; };
        if constexpr (STEM_FOURS) {
            if constexpr (WIDE) {
                uint4 v = there(0) ? __ldg((const uint4*)p) : make_uint4(0, 0, 0, 0);
                pixels[0] = v.x, pixels[1] = v.y, pixels[2] = v.z, pixels[3] = v.w;
            } else {
                uint2 v = there(0) ? __ldg((const uint2*)p) : make_uint2(0, 0);
                pixels[0] = v.x, pixels[1] = v.y, pixels[2] = there(4) ? __ldg((const u32*)(p + 4)) : 0;
            }
        } else {
#pragma unroll
            for (int k = 0; k < (WIDE ? 4 : 6); k++) {
                u32 v = 0;
                if (there(k)) {
                    if constexpr (WIDE) v = __ldg((const u32*)(p + k));
                    else v = __ldg((const unsigned short*)(p + k));
                }
                if constexpr (WIDE) pixels[k] = v;
                else pixels[k / 2] = k % 2 ? pixels[k / 2] | v << 16 : v;
            }
        }
    };
    auto store_image = [&](int buffer) {
        if (!loads_image) return;
        uint4 v;
        if constexpr (WIDE) v = make_uint4(pixels[0], pixels[1], pixels[2], pixels[3]);
        else {
            auto low = [](u32 a, u32 b) { return __byte_perm(a, b, 0x5410); };
            auto high = [](u32 a, u32 b) { return __byte_perm(a, b, 0x7632); };
            v = make_uint4(low(pixels[0], pixels[1]), high(pixels[0], pixels[1]), low(pixels[1], pixels[2]), high(pixels[1], pixels[2]));
        }
        *(uint4*)&tile[buffer][line * PITCH + q4] = v;
    };

    // Two by two outputs from even (oy, ox) lie in windows (oy/2, ox/2) and those one further on, at fixed taps.
    struct quad_values {
        uint4 z[4], d[4];
        u32 from[4];
    };
    auto load_quad = [&](quad_values& v, tile_place w) {
        uint4 *zs = v.z, *ds = v.d;
        u32* is = v.from;
        int oy = w.oy + (quad >> 3) * 2, ox = w.ox + (quad & 7) * 2;
        const E* zp = z + (((long long)w.n * s.out_height + oy) * s.out_width + ox) * s.ld_z + c;
        long long window = ((long long)w.n * s.pooled_height + oy / 2) * s.pooled_width + ox / 2;
        const E* dp = dpool + window * s.ld_dpool + c;
        const char* ip = (const char*)index + (window * s.channels + c) / 2;
        auto load_index = [&](long long step) {
            return WIDE ? (u32)__ldg((const unsigned short*)(ip + step * s.channels / 2)) : __ldg((const u32*)(ip + step * s.channels / 2));
        };
        if (channel_ok && oy + 1 < s.out_height && ox + 1 < s.out_width && oy / 2 + 1 < s.pooled_height &&
            ox / 2 + 1 < s.pooled_width) {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                zs[k] = load_vector(zp + ((k >> 1) * s.out_width + (k & 1)) * (long long)s.ld_z);
                int step = (k >> 1) * s.pooled_width + (k & 1);
                ds[k] = load_vector(dp + step * (long long)s.ld_dpool);
                is[k] = load_index(step);
            }
        } else {
#pragma unroll
            for (int k = 0; k < 4; k++) {
                int dy = k >> 1, dx = k & 1, step = dy * s.pooled_width + dx;
                bool in = channel_ok && oy + dy < s.out_height && ox + dx < s.out_width;
                bool held = channel_ok && oy / 2 + dy < s.pooled_height && ox / 2 + dx < s.pooled_width;
                zs[k] = in ? load_vector(zp + (dy * s.out_width + dx) * (long long)s.ld_z) : make_uint4(0, 0, 0, 0);
                ds[k] = held ? load_vector(dp + step * (long long)s.ld_dpool) : make_uint4(0, 0, 0, 0);
                is[k] = held ? load_index(step) : 0xffffffffu;
            }
        }
    };
    // Word by word, so that few values are there at a time: gradients take the place of `d`, x̂ that of `z`.
    auto store_quad = [&](quad_values& v, float* s1, float* s2, tile_place w, int buffer) {
        const u32* is = v.from;
        int oy = w.oy + (quad >> 3) * 2, ox = w.ox + (quad & 7) * 2, p = (quad >> 3) * 32 + (quad & 7) * 2;
        constexpr int PART = V / 4;
        auto word = [](uint4& all, int i) -> u32& { return i == 0 ? all.x : i == 1 ? all.y : i == 2 ? all.z : all.w; };
        auto floats = [](u32 raw, float* f) {
            float all[V];
            element::unpack(make_uint4(raw, 0, 0, 0), all);
#pragma unroll
            for (int e = 0; e < PART; e++) f[e] = all[e];
        };
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float d[4][PART], r[PART], b[PART];
#pragma unroll
            for (int k = 0; k < 4; k++) floats(word(v.d[k], i), d[k]);
#pragma unroll
            for (int e = 0; e < PART; e++) r[e] = __ldg(rstd + c + i * PART + e), b[e] = -__ldg(mean + c + i * PART + e) * r[e];
            auto from = [&](int k, int e, u32 tap) {
                int at = 4 * (i * PART + e);
                return (is[k] & (15u << at)) == tap << at ? d[k][e] : 0.f;
            };
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float grad[PART], x[PART];
#pragma unroll
                for (int e = 0; e < PART; e++) {
                    if (k == 0) grad[e] = from(0, e, 4);
                    else if (k == 1) grad[e] = from(0, e, 5) + from(1, e, 3);
                    else if (k == 2) grad[e] = from(0, e, 7) + from(2, e, 1);
                    else grad[e] = (from(0, e, 8) + from(1, e, 6)) + (from(2, e, 2) + from(3, e, 0));
                }
                floats(word(v.z[k], i), x);
#pragma unroll
                for (int e = 0; e < PART; e++) {
                    int of = i * PART + e;
                    x[e] = fmaf(x[e], r[e], b[e]);
                    s1[of] += grad[e];
                    s2[of] = fmaf(grad[e], x[e], s2[of]);
                }
                bool ok = oy + (k >> 1) < s.out_height && ox + (k & 1) < s.out_width;
                word(v.d[k], i) = element::pair(grad[0], grad[PART - 1]);
                word(v.z[k], i) = ok ? element::pair(x[0], x[PART - 1]) : 0;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            int row = p + (k >> 1) * 16 + (k & 1);
            *(uint4*)(gradients + buffer * A + column_offset<128, TH * 16>(row, chunk)) = v.d[k];
            *(uint4*)(gradients + buffer * A + column_offset<128, TH * 16>(row, CHUNKS + chunk)) = v.z[k];
        }
    };
    auto compute = [&](float (&acc)[MI][NR][4], float (&ones)[ONES][4], const u32 (&lines)[NR],
                       const u32 (&one_lines)[ONES], tile_place w, int buffer) {
        u32 a_tile = shared_address(gradients + buffer * A), b_tile = shared_address(tile[buffer]);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            constexpr int PER = 16 / STEP;
            int y = k / PER, x0 = k % PER * STEP;
            factor<4> a[MI];
            u32 raw[4];
            load_rows_of_columns<128, TH * 16>(a, a_tile, wm * 32, lane, k);
            // Ones where the output exists, for the sum of patches.
            bool line_ok = w.oy + y < s.out_height;
            if constexpr (WIDE) {
                raw[0] = raw[1] = line_ok && w.ox + x0 + t < s.out_width ? element::one : 0;
                raw[2] = raw[3] = line_ok && w.ox + x0 + t + 4 < s.out_width ? element::one : 0;
            } else {
                auto pair = [&](int x) {
                    return line_ok ? (x < s.out_width ? element::one & 0xffffu : 0) |
                                         (x + 1 < s.out_width ? element::one & 0xffff0000u : 0)
                                   : 0u;
                };
                raw[0] = raw[1] = pair(w.ox + 2 * t);
                raw[2] = raw[3] = pair(w.ox + 2 * t + 8);
            }
            factor<4> exists;
            exists.set(raw);
            u32 here = b_tile + (2 * y * PITCH + 2 * x0 + (WIDE ? 2 : 4) * t + g) * 4, words[NR][2], extra[ONES][2];
#pragma unroll
            for (int j = 0; j < NR; j++) {
                words[j][0] = load_word(here + lines[j]);
                words[j][1] = load_word(here + lines[j] + (WIDE ? 32 : 64));
            }
#pragma unroll
            for (int j = 0; j < ONES; j++) {
                extra[j][0] = load_word(here + one_lines[j]);
                extra[j][1] = load_word(here + one_lines[j] + (WIDE ? 32 : 64));
            }
#pragma unroll
            for (int j = 0; j < NR; j++) {
                factor<2> b;
                b.set(words[j]);
#pragma unroll
                for (int i = 0; i < MI; i++) multiply(acc[i][j], a[i], b);
            }
#pragma unroll
            for (int j = 0; j < ONES; j++) {
                factor<2> b;
                b.set(extra[j]);
                multiply(ones[j], exists, b);
            }
        }
    };

    // Makers load two tiles ahead of what is multiplied, and store one ahead.
    int at = blockIdx.x, buffer = 0, ahead = blockIdx.x;
    auto advance = [&]() {
        ahead = min(ahead + (int)gridDim.x, tiles - 1);
        return order.place(ahead, TH);
    };
    tile_place now = order.place(at, TH), next = advance(), after = advance();
    load_image(now);
    store_image(0);
    load_image(next);
    float* out = ws + ((long long)blockIdx.y * gridDim.x + blockIdx.x) * (129 * K8 + 128);
    if (maker) {
        quad_values even, odd;
        float s1[V], s2[V];
        clear(s1), clear(s2);
        load_quad(even, now);
        load_quad(odd, next);
        store_quad(even, s1, s2, now, 0);
        __syncthreads();
        auto step = [&](quad_values& current, quad_values& coming) {
            store_image(buffer ^ 1);
            load_image(after);
            if (at + (int)gridDim.x < tiles) {
                load_quad(coming, after);
                store_quad(current, s1, s2, next, buffer ^ 1);
            }
            __syncthreads();
            next = after;
            after = advance();
            at += gridDim.x;
            buffer ^= 1;
        };
        while (at < tiles) {
            step(odd, even);
            if (at >= tiles) break;
            step(even, odd);
        }
        float* shared = (float*)gradients;  // [128 makers][2·V]
#pragma unroll
        for (int e = 0; e < V; e++) {
            shared[item * 2 * V + e] = s1[e];
            shared[item * 2 * V + V + e] = s2[e];
        }
    } else {
        float acc[MI][NR][4], ones[ONES][4];
        clear(acc);
        clear(ones);
        // Tap rows of this warp; those past the last repeat it and are not written. The four warps along rows share the sums
        // of patches.
        auto line_of = [&](int j) {
            int r = min(wn * NR + j, TAP_ROWS - 1);
            return (u32)((r / 7 * LINES + r % 7) * PITCH * 4);
        };
        u32 lines[NR], one_lines[ONES];
#pragma unroll
        for (int j = 0; j < NR; j++) lines[j] = line_of(j);
#pragma unroll
        for (int j = 0; j < ONES; j++) one_lines[j] = line_of(4 * j + wm);
        __syncthreads();
        for (; at < tiles; at += gridDim.x, buffer ^= 1) {
            store_image(buffer ^ 1);
            load_image(after);
            compute(acc, ones, lines, one_lines, now, buffer);
            __syncthreads();
            now = next;
            next = after;
            after = advance();
        }
#pragma unroll
        for (int j = 0; j < NR; j++) {
            int r = wn * NR + j;
            if (r >= TAP_ROWS) continue;
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *(float2*)(out + (wm * 32 + i * 16 + h * 8 + g) * K8 + r * 8 + t * 2) =
                        make_float2(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
        }
#pragma unroll
        for (int j = 0; j < ONES; j++) {
            int local = 4 * j + wm, r = wn * NR + local;
            if (local < NR && r < TAP_ROWS && g == 0)
                *(float2*)(out + 128 * K8 + r * 8 + t * 2) = make_float2(ones[j][0], ones[j][1]);
        }
    }
    __syncthreads();
    const float* shared = (const float*)gradients;
    if (tid < 128) {
        int half = tid / 64, local = tid % 64;
        float sum = 0.f;
        for (int i = local / V; i < 128; i += CHUNKS) sum += shared[i * 2 * V + half * V + local % V];
        out[129 * K8 + tid] = sum;
    }
}
