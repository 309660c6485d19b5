// part[split] = Σ_q relu(scale·z + shift)[q, c]·dy[q + 1 − tap, o] over a share of the pixels q: the weight gradient of a dense layer's
// 3×3 convolution, 128 channels to 32, with the norm and ReLU before it applied on load (pixels outside the image are 0 behind the
// ReLU), on Hopper with 2-byte elements. `dense_conv_weight_sum` adds the parts.
//
// z: [batch·height·width, 128] (ld_z), dy: [same, 32] (ld_dy), strides multiples of 8. Headers: tiles.cuh channels.cuh hopper.cuh.
// Grid 2·splits, block 512, SHARED_BYTES of dynamic shared memory. Workspace splits·36,864 floats.
//
// A block has half the channels of a share of the tiles; a tile is 8 pixels across and `rows` down, an even number up to 10. Two
// warpgroups take turns to copy z and dy (with a pixel around) in the background. Two multiply, every other pair of rows each: M is
// the 64 channels, read from shared memory into registers and normalised there while the products before are under way; K is two rows
// of 8 pixels; N is the 32 outputs of three rows of dy, so a product makes three taps, and the three columns of taps are start
// addresses. All sums stay in registers until the tiles are done. Bytes: z once, dy 2.8 times (from L2), parts of 147 KB.

#ifndef STAGES
#define STAGES 6
#endif

struct dense_conv_weight_sizes {
    int batch, height, width, ld_z, ld_dy, rows;
};

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
template <class T>
struct rectified;  // two numbers as elements, negative ones as 0; NaN stays NaN
#define RECTIFIED(T)                                                                       \
    template <>                                                                            \
    struct rectified<T> {                                                                  \
        static __device__ __forceinline__ u32 pair(float low, float high) {                \
            u32 r;                                                                         \
            asm("cvt.rn.relu." #T "x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));   \
            return r;                                                                      \
        }                                                                                  \
    };
RECTIFIED(bf16)
RECTIFIED(f16)
#endif

constexpr int IN = 64, ACROSS = 8, MOST_ROWS = 10, MAKERS = 256, MULTIPLIERS = 256;
constexpr int LINE_Z = ACROSS * IN * 2, CHUNK = (ACROSS + 2) * 16, LINE = 4 * CHUNK;  // bytes; dy lies as [row][8 outputs][pixel]
constexpr int Z_TILE = MOST_ROWS * LINE_Z, DY_TILE = (MOST_ROWS + 2) * LINE, STAGE = Z_TILE + DY_TILE;
constexpr int SHARED_BYTES = STAGES * STAGE + 16 * STAGES;

// A warpgroup that has no rows of every other tile holds two that it has left while it waits for the next.
static_assert(STAGES % 2 == 0 && STAGES >= 6, "each warpgroup that copies has stages of its own");
static_assert(STAGES * STAGE >= 8 * 9 * 128 * 8, "sums are exchanged where the tiles were");

__device__ __forceinline__ void multipliers_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory"); }

// Tiles that are `step` apart.
struct tile_walk {
    int x, y, n, across, down, step_x, step_y, step_n;
    __device__ __forceinline__ tile_walk(int first, int step, const dense_conv_weight_sizes& s)
        : across((s.width + ACROSS - 1) / ACROSS), down((s.height + s.rows - 1) / s.rows) {
        int line = first / across, lines = step / across;
        x = first - line * across, step_x = step - lines * across;
        n = line / down, step_n = lines / down;
        y = line - n * down, step_y = lines - step_n * down;
    }
    __device__ __forceinline__ void next() {
        x += step_x, y += step_y, n += step_n;
        if (x >= across) x -= across, y++;
        if (y >= down) y -= down, n++;
    }
    // How many of the tile's rows and columns are inside.
    __device__ __forceinline__ int rows(const dense_conv_weight_sizes& s) const { return min(s.rows, s.height - y * s.rows); }
    __device__ __forceinline__ int columns(const dense_conv_weight_sizes& s) const { return min(ACROSS, s.width - x * ACROSS); }
};

// Copies the tiles of the block's share that this warpgroup, one of MAKERS / 128, has: t is the thread's number in it.
__device__ __forceinline__ void copy_tiles(int group, int t, u32 base, u32 full, u32 empty, int half, const E* __restrict__ z,
                                           const E* __restrict__ dy, const dense_conv_weight_sizes& s) {
    constexpr int GROUPS = MAKERS / 128;
    int step = gridDim.x >> 1, stage = group;
    tile_walk at((blockIdx.x >> 1) + group * step, GROUPS * step, s);
    u32 phase = 1;
    int chunk = t & 7, px = t >> 3 & 7, z0 = t >> 6;  // of z, two rows at once
    u32 to_z = base + z0 * LINE_Z + px * (IN * 2) + ((chunk ^ px) << 4);
    int r0 = t / 40, halo_x = (t - r0 * 40) >> 2;  // of dy, three rows at once
    u32 to_dy = base + Z_TILE + r0 * LINE + (t & 3) * CHUNK + halo_x * 16;
    long long down_z = (long long)2 * s.width * s.ld_z, down_dy = (long long)3 * s.width * s.ld_dy;
    for (; at.n < s.batch; at.next()) {
        int rows = at.rows(s), lines = (rows + 1) / 2 * 2 + 2, x = at.x * ACROSS, gx = x + halo_x - 1, gy = at.y * s.rows + r0 - 1;
        long long image = (long long)at.n * s.height;
        const E* from_z = z + ((image + at.y * s.rows + z0) * s.width + x + px) * s.ld_z + half * IN + chunk * 8;
        const E* from_dy = dy + ((image + gy) * s.width + gx) * s.ld_dy + (t & 3) * 8;
        bar_wait(empty + 8 * stage, phase);
        u32 to = to_z + stage * STAGE;
        if (px < at.columns(s)) {
#pragma unroll 4
            for (int r = z0; r < rows; r += 2) {
                copy_async(to, from_z, true);
                to += 2 * LINE_Z, from_z += down_z;
            }
        }
        to = to_dy + stage * STAGE;
        if (t < 120) {
            bool column = (u32)gx < (u32)s.width;
#pragma unroll 3
            for (int r = r0; r < lines; r += 3) {
                bool inside = column && (u32)gy < (u32)s.height;
                copy_async(to, inside ? from_dy : dy, inside);
                to += 3 * LINE, gy += 3, from_dy += down_dy;
            }
        }
        bar_arrive_after_copies(full + 8 * stage);
        stage += GROUPS;
        if (stage >= STAGES) stage -= STAGES, phase ^= 1;
    }
    wait_copies<0>();
}

// A thread's sums are eight pieces [taps][two outputs]: each of the two warpgroups adds up four of both, and writes them.
template <int OWN>
__device__ __forceinline__ void write_sums_of_both(const float (&c)[3][48], unsigned char* shared, int t, float* part) {
    float2 *room = (float2*)shared + t, *to = (float2*)part + (long long)blockIdx.x * 72 * 128 + t;
#pragma unroll
    for (int i = 0; i < 36; i++) {
        int q = (1 - OWN) * 4 + i / 9, tap = i % 9, at = ((2 - tap / 3) * 4 + q / 2) * 4 + q % 2 * 2;
        room[(q * 9 + tap) * 128] = make_float2(c[tap % 3][at], c[tap % 3][at + 1]);
    }
    multipliers_barrier();
#pragma unroll
    for (int i = 0; i < 36; i++) {
        int q = OWN * 4 + i / 9, tap = i % 9, at = ((2 - tap / 3) * 4 + q / 2) * 4 + q % 2 * 2;
        float2 other = room[(q * 9 + tap) * 128];
        __stcg(to + (q * 9 + tap) * 128, make_float2(c[tap % 3][at] + other.x, c[tap % 3][at + 1] + other.y));
    }
}

extern "C" __global__ void __launch_bounds__(MAKERS + MULTIPLIERS, 1)
dense_conv_weight(const E* __restrict__ z, const float* __restrict__ scale, const float* __restrict__ shift,
                  const E* __restrict__ dy, float* __restrict__ part, const __grid_constant__ dense_conv_weight_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(SHARED_BYTES);
    OF_IMAGE(z, (long long)s.height * s.width * s.ld_z);
    OF_IMAGE(dy, (long long)s.height * s.width * s.ld_dy);
    OF_IMAGE(scale, 2 * IN);
    OF_IMAGE(shift, 2 * IN);
    OF_IMAGE(part, (long long)(gridDim.x >> 1) * 9 * 2 * IN * 32);
    int t = threadIdx.x, warpgroup = warpgroup_index(), half = blockIdx.x & 1;
    u32 base = shared_address(shared), full = base + STAGES * STAGE, empty = full + 8 * STAGES;
    if (t < STAGES) {
        bar_init(full + 8 * t, 128);
        bar_init(empty + 8 * t, MULTIPLIERS);
    }
    publish();
    __syncthreads();
    if (warpgroup < MAKERS / 128) {
        fewer_registers<40>();
        copy_tiles(warpgroup, t & 127, base, full, empty, half, z, dy, s);
        return;
    }
    more_registers<208>();
    int lane = t & 31, warp = t >> 5 & 3, group = warpgroup - MAKERS / 128;
    int channel = half * IN + warp * 16 + (lane >> 2);  // and channel + 8
    float a0 = scale[channel], b0 = shift[channel], a1 = scale[channel + 8], b1 = shift[channel + 8];
    u32 from = base + (lane & 7) * (IN * 2) + (lane >> 4) * LINE_Z + (((warp * 2 + (lane >> 3 & 1)) ^ (lane & 7)) << 4);
    float c[3][48] = {};
    // Where the warpgroup is: the rows 2·pair and 2·pair + 1 of a tile, which is in `stage`.
    tile_walk at(blockIdx.x >> 1, gridDim.x >> 1, s);
    int stage = -1, pair = 0, pairs = 0, rows = 0;
    u32 phase = 0, inside = 0;
    // Goes to the warpgroup's next pair; `left` becomes the barrier of the tile that it leaves, which is done with once its products
    // are. A tile with no pair for the warpgroup is done with at once.
    auto seek = [&](u32& left) {
        bool multiplied = stage >= 0;
        left = 0;
        pair += 2;
        while (pair >= pairs) {
            if (stage >= 0) {
                if (multiplied) left = empty + 8 * stage;
                else bar_arrive(empty + 8 * stage);
                at.next();
            }
            multiplied = false;
            if (at.n >= s.batch) return false;
            if (++stage == STAGES) stage = 0, phase ^= 1;
            int pixel = (lane & 3) * 2, columns = at.columns(s);
            inside = (pixel < columns ? 0xffffu : 0u) | (pixel + 1 < columns ? 0xffff0000u : 0u);
            rows = at.rows(s);
            pairs = (rows + 1) >> 1;
            pair = (group + stage) & 1;
            bar_wait(full + 8 * stage, phase);
            publish();
        }
        return true;
    };
    auto prepare = [&](u32* a) {
        u32 raw[4], second = 2 * pair + 1 < rows ? inside : 0u;
        load_matrices_transposed(raw, from + stage * STAGE + pair * (2 * LINE_Z));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const E* e = (const E*)&raw[i];
            float scaled = i & 1 ? a1 : a0, shifted = i & 1 ? b1 : b0;
            u32 r = rectified<element>::pair(fmaf(scaled, element::to_float(e[0]), shifted),
                                             fmaf(scaled, element::to_float(e[1]), shifted));
            a[i] = r & (i & 2 ? second : inside);
        }
    };
    u32 left, pending = 0;
    // Multiplies the pair in `now` while the next one is made ready; the products of one pair are then still under way.
    auto turn = [&](const u32* now, u32* next) {
        u64 b = plain_descriptor(base + stage * STAGE + Z_TILE + pair * (2 * LINE), LINE, CHUNK);
        begin_products();
#pragma unroll
        for (int k = 0; k < 3; k++) product<element, 96, 0, 1>::add(c[k], now, b + 2 - k);
        commit_products();
        bool more = seek(left);
        if (more) prepare(next);
        wait_products<1>();
#pragma unroll
        for (int i = 0; i < 4; i++) asm volatile("" : "+r"(next[i])::"memory");
        if (pending) bar_arrive(pending);
        pending = left;
        return more;
    };
    u32 a[3][4] = {};
    if (seek(left)) {
        prepare(a[0]);
#pragma unroll 1
        while (true) {
            if (!turn(a[0], a[1])) break;
            if (!turn(a[1], a[2])) break;
            if (!turn(a[2], a[0])) break;
        }
    }
    wait_products<0>();
#pragma unroll
    for (int k = 0; k < 3; k++) settle(c[k]);
    multipliers_barrier();
    if (group == 0) write_sums_of_both<0>(c, shared, t & 127, part);
    else write_sums_of_both<1>(c, shared, t & 127, part);
#endif
}
