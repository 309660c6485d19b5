// One pass over z for the whole backward of the stem. With g = gradient of max-pooling and ReLU at an output of the convolution,
// x̂ = (z − mean)·rstd and patch = the image under it, a block adds up over its outputs
//   rows 0..63: Σ g⊗patch, rows 64..127: Σ x̂⊗patch, row 128: Σ patch, then Σ g [64] and Σ g·x̂ [64];
// BatchNorm's backward is linear in these, so `stem_backward_finish` makes the weight gradient of the sums: neither g nor the
// gradient of z is ever written.
//
// image, z: as `stem_forward`; dpool: gradient of the pooled output [N·Hp·Wp, C] (ld_dpool); index: from `stem_pool_forward`.
// Warps 8 to 15 make g and x̂ of the next tile, a thread two neighbouring outputs of V channels in an even line (warps 8 to 11) or
// an odd one; warps 0 to 7 multiply this one's.
// Headers: tiles.cuh channels.cuh gemm.cuh stem.cuh. Grid (G, ceil(C/64)), block 512, G = min(N·tiles_y·tiles_x, SMS), tiles
// of TH by 16 outputs, TH = 4 or (4-byte E) 2. Workspace G·ceil(C/64)·(129·8·7·STEM_CHANNELS + 128) floats.
// Bytes: image, z, dpool and index once.

struct stem_backward_sizes {
    int batch, height, width, out_height, out_width, pooled_height, pooled_width, channels, ld_z, ld_dpool, tiles_y, tiles_x;
    u32 stride_n, stride_c, stride_y, stride_x;
};

constexpr int K8 = 8 * TAP_ROWS, TH = WIDE ? 2 : 4, LINES = 2 * TH + 5, ALL = STEM_CHANNELS * LINES;
constexpr int A = TH * 16 * 128 * sizeof(E), CHUNKS = 64 / V, LINE_CHUNKS = WIDE ? 10 : 9;

// The image: a thread loads columns 4q to 4q + 5 of a line; a word of the tile holds columns m and m + 2, which are one tap of
// two neighbouring outputs (2-byte elements), or column m.
struct image_chunk {
    const float* image;
    int q4, line, line_y;
    long long channel;
    bool here, vectors;
    float pixels[6];
    __device__ __forceinline__ image_chunk(const float* from, const stem_backward_sizes& s) : image(from) {
        line = threadIdx.x / LINE_CHUNKS;
        q4 = (threadIdx.x - line * LINE_CHUNKS) * 4;
        line_y = line % LINES;
        channel = (long long)(line / LINES) * s.stride_c;
        here = line < ALL;
        vectors = whole_vectors(s.width, s.stride_n, s.stride_c, s.stride_y, s.stride_x);
    }
    __device__ __forceinline__ void load(tile_place w, const stem_backward_sizes& s) {
        if (!here) return;
        int iy = 2 * w.oy + line_y - 3, ix = 2 * w.ox - 4 + q4;
        const float* p = image + (long long)w.n * s.stride_n + channel + (long long)iy * s.stride_y;
        bool ok = (u32)iy < (u32)s.height;
        if (vectors) {
            float4 v = ok && (u32)ix < (u32)s.width ? __ldg((const float4*)(p + ix)) : make_float4(0.f, 0.f, 0.f, 0.f);
            pixels[0] = v.x, pixels[1] = v.y, pixels[2] = v.z, pixels[3] = v.w;
            if constexpr (!WIDE) {
                float2 u = ok && (u32)(ix + 4) < (u32)s.width ? __ldg((const float2*)(p + ix + 4)) : make_float2(0.f, 0.f);
                pixels[4] = u.x, pixels[5] = u.y;
            }
        } else {
#pragma unroll
            for (int k = 0; k < (WIDE ? 4 : 6); k++)
                pixels[k] = ok && (u32)(ix + k) < (u32)s.width ? __ldg(p + (long long)(ix + k) * s.stride_x) : 0.f;
        }
    }
    __device__ __forceinline__ void store(u32* tile) const {
        if (!here) return;
        uint4 v;
        if constexpr (WIDE) v = element::pack(pixels);
        else
            v = make_uint4(element::pair(pixels[0], pixels[2]), element::pair(pixels[1], pixels[3]),
                           element::pair(pixels[2], pixels[4]), element::pair(pixels[3], pixels[5]));
        *(uint4*)&tile[line * PITCH + q4] = v;
    }
};

// Two outputs (oy, ox) and (oy, ox + 1), ox even, of V channels: they lie in windows (oy/2, ox/2) and the next one to the right
// and, where oy is odd, in the two below, at fixed taps.
template <bool ODD>
struct output_pair {
    uint4 z[2], d[2 + 2 * ODD];
    u32 from[2 + 2 * ODD];
    float s1[V], s2[V];
    __device__ __forceinline__ output_pair() {
#pragma unroll
        for (int e = 0; e < V; e++) s1[e] = s2[e] = 0.f;
    }
    __device__ __forceinline__ void load(const E* __restrict__ zs, const E* __restrict__ dpool, const u32* __restrict__ index,
                                         tile_place w, int quad, int c, bool channel_ok, const stem_backward_sizes& s) {
        int oy = w.oy + (quad >> 3) * 2 + ODD, ox = w.ox + (quad & 7) * 2;
        const E* zp = zs + (((long long)w.n * s.out_height + oy) * s.out_width + ox) * s.ld_z + c;
        long long window = ((long long)w.n * s.pooled_height + oy / 2) * s.pooled_width + ox / 2;
        const E* dp = dpool + window * s.ld_dpool + c;
        const char* ip = (const char*)index + (window * s.channels + c) / 2;
        bool whole = channel_ok && oy < s.out_height && ox + 1 < s.out_width && oy / 2 + ODD < s.pooled_height &&
                     ox / 2 + 1 < s.pooled_width;
#pragma unroll
        for (int k = 0; k < 2; k++) {
            bool in = whole || (channel_ok && oy < s.out_height && ox + k < s.out_width);
            z[k] = in ? load_vector(zp + k * (long long)s.ld_z) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < 2 + 2 * ODD; k++) {
            int dy = k >> 1, dx = k & 1;
            long long step = dy * s.pooled_width + dx;
            bool held = whole || (channel_ok && oy / 2 + dy < s.pooled_height && ox / 2 + dx < s.pooled_width);
            d[k] = held ? load_vector(dp + step * s.ld_dpool) : make_uint4(0, 0, 0, 0);
            const char* at = ip + step * s.channels / 2;
            from[k] = !held ? 0xffffffffu : WIDE ? (u32)__ldg((const unsigned short*)at) : __ldg((const u32*)at);
        }
    }
    // g and x̂ go to the tile, and into the sums.
    __device__ __forceinline__ void store(unsigned char* tile, const float* mean, const float* rstd, tile_place w, int quad,
                                          int chunk, int c, const stem_backward_sizes& s) {
        int oy = w.oy + (quad >> 3) * 2 + ODD, ox = w.ox + (quad & 7) * 2, p = (quad >> 3) * 32 + ODD * 16 + (quad & 7) * 2;
        float r[V], b[V], f[2 + 2 * ODD][V];
        load_floats(rstd + c, r);
        load_floats(mean + c, b);
#pragma unroll
        for (int e = 0; e < V; e++) b[e] = -b[e] * r[e];
#pragma unroll
        for (int k = 0; k < 2 + 2 * ODD; k++) element::unpack(d[k], f[k]);
        auto take = [&](int k, int e, u32 tap) { return (from[k] & (15u << (4 * e))) == tap << (4 * e) ? f[k][e] : 0.f; };
#pragma unroll
        for (int k = 0; k < 2; k++) {
            float grad[V], x[V];
#pragma unroll
            for (int e = 0; e < V; e++) {
                if constexpr (ODD) {
                    grad[e] = k == 0 ? take(0, e, 7) + take(2, e, 1)
                                     : (take(0, e, 8) + take(1, e, 6)) + (take(2, e, 2) + take(3, e, 0));
                } else {
                    grad[e] = k == 0 ? take(0, e, 4) : take(0, e, 5) + take(1, e, 3);
                }
            }
            element::unpack(z[k], x);
#pragma unroll
            for (int e = 0; e < V; e++) {
                x[e] = fmaf(x[e], r[e], b[e]);
                s1[e] += grad[e];
                s2[e] = fmaf(grad[e], x[e], s2[e]);
            }
            bool ok = oy < s.out_height && ox + k < s.out_width;
            *(uint4*)(tile + column_offset<128, TH * 16>(p + k, chunk)) = element::pack(grad);
            *(uint4*)(tile + column_offset<128, TH * 16>(p + k, CHUNKS + chunk)) =
                ok ? element::pack(x) : make_uint4(0, 0, 0, 0);
        }
    }
};

// A block's tiles: what is stored is one tile ahead of what is multiplied, and what is loaded another.
struct tile_walk {
    tile_order order;
    int at, ahead, tiles;
    tile_place now, next, after;
    __device__ __forceinline__ tile_walk(const stem_backward_sizes& s)
        : order(s.tiles_y, s.tiles_x), at(blockIdx.x), ahead(blockIdx.x), tiles(s.batch * s.tiles_y * s.tiles_x) {
        now = order.place(at, TH);
        next = following();
        after = following();
    }
    __device__ __forceinline__ tile_place following() {
        ahead = min(ahead + (int)gridDim.x, tiles - 1);
        return order.place(ahead, TH);
    }
    __device__ __forceinline__ bool more() const { return at + (int)gridDim.x < tiles; }
    __device__ __forceinline__ void advance() {
        at += gridDim.x;
        now = next;
        next = after;
        after = following();
    }
};

template <bool ODD>
__device__ __forceinline__ void make_tiles(const E* __restrict__ z, const E* __restrict__ dpool,
                                           const u32* __restrict__ index, const float* mean, const float* rstd,
                                           image_chunk& pixels, tile_walk& walk, unsigned char* gradients, u32 (*tile)[ALL * PITCH],
                                           int item, const stem_backward_sizes& s) {
    int chunk = item & (CHUNKS - 1), quad = (item & 127) / CHUNKS, c = blockIdx.y * 64 + chunk * V, buffer = 0;
    bool channel_ok = c < s.channels;
    if (!channel_ok) c = 0;
    output_pair<ODD> pair;
    pair.load(z, dpool, index, walk.now, quad, c, channel_ok, s);
    pair.store(gradients, mean, rstd, walk.now, quad, chunk, c, s);
    pair.load(z, dpool, index, walk.next, quad, c, channel_ok, s);
    __syncthreads();
    for (; walk.at < walk.tiles; walk.advance(), buffer ^= 1) {
        pixels.store(tile[buffer ^ 1]);
        pixels.load(walk.after, s);
        if (walk.more()) {
            pair.store(gradients + (buffer ^ 1) * A, mean, rstd, walk.next, quad, chunk, c, s);
            pair.load(z, dpool, index, walk.after, quad, c, channel_ok, s);  // under way while the other warps multiply
        }
        __syncthreads();
    }
    float* shared = (float*)gradients;  // [256 makers][2·V]
#pragma unroll
    for (int e = 0; e < V; e++) {
        shared[item * 2 * V + e] = pair.s1[e];
        shared[item * 2 * V + V + e] = pair.s2[e];
    }
}

// Takes registers of the block's pool for a warpgroup (N > 0), or gives them back down to −N.
template <int N>
__device__ __forceinline__ void registers() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if constexpr (N > 0) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N > 0 ? N : -N));
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N > 0 ? N : -N));
#endif
}

extern "C" __global__ void __launch_bounds__(512, 1)
stem_backward(const float* __restrict__ image, const E* __restrict__ z, const float* __restrict__ mean,
              const float* __restrict__ rstd, const E* __restrict__ dpool, const u32* __restrict__ index,
              float* __restrict__ ws, const __grid_constant__ stem_backward_sizes s) {
    constexpr int NR = (TAP_ROWS + 1) / 2, MI = 2, ONES = (NR + 3) / 4;
    static_assert(ALL * LINE_CHUNKS <= 512, "a thread loads at most one chunk of the image");
    __shared__ __align__(128) unsigned char gradients[2 * A];
    __shared__ __align__(16) u32 tile[2][ALL * PITCH];
    int tid = threadIdx.x, lane = tid & 31, warp = tid >> 5, wm = warp & 3, wn = warp >> 2, g = lane >> 2, t = lane & 3;
    image_chunk pixels(image, s);
    tile_walk walk(s);
    auto compute = [&](float (&acc)[MI][NR][4], float (&ones)[ONES][4], const u32 (&lines)[NR],
                       const u32 (&one_lines)[ONES], tile_place w, int buffer) {
        u32 a_tile = shared_address(gradients + buffer * A), b_tile = shared_address(tile[buffer]);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            constexpr int PER = 16 / STEP;
            int y = k / PER, x0 = k % PER * STEP;
            factor<4> a[MI];
            u32 raw[4];
#pragma unroll
            for (int i = 0; i < MI; i++) {
                int m = wm * 32 + i * 16;
                if constexpr (WIDE) {
                    int p = k * 8 + t;
                    raw[0] = column_word<128>(a_tile, p, m + g);
                    raw[1] = column_word<128>(a_tile, p, m + g + 8);
                    raw[2] = column_word<128>(a_tile, p + 4, m + g);
                    raw[3] = column_word<128>(a_tile, p + 4, m + g + 8);
                } else {
                    load_matrices_transposed(raw, a_tile + column_offset<128, TH * 16>(k * 16 + (lane & 7) + ((lane >> 4) << 3),
                                                                              (m >> 3) + ((lane >> 3) & 1)));
                }
                a[i].set(raw);
            }
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

    pixels.load(walk.now, s);
    pixels.store(tile[0]);
    pixels.load(walk.next, s);
    float* out = ws + ((long long)blockIdx.y * gridDim.x + blockIdx.x) * (129 * K8 + 128);
    if (warp >= 8) {
        registers<-104>();
        int item = tid - 256;
        if (warp < 12) make_tiles<false>(z, dpool, index, mean, rstd, pixels, walk, gradients, tile, item, s);
        else make_tiles<true>(z, dpool, index, mean, rstd, pixels, walk, gradients, tile, item, s);
    } else {
        registers<152>();
        float acc[MI][NR][4], ones[ONES][4];
        clear(acc);
#pragma unroll
        for (int i = 0; i < ONES; i++)
#pragma unroll
            for (int k = 0; k < 4; k++) ones[i][k] = 0.f;
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
        int buffer = 0;
        for (; walk.at < walk.tiles; walk.advance(), buffer ^= 1) {
            pixels.store(tile[buffer ^ 1]);
            pixels.load(walk.after, s);
            compute(acc, ones, lines, one_lines, walk.now, buffer);
            __syncthreads();
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
        for (int i = local / V; i < 256; i += CHUNKS) sum += shared[i * 2 * V + half * V + local % V];
        out[129 * K8 + tid] = sum;
    }
}
