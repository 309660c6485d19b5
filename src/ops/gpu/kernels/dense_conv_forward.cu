// y[p, o] = Σ_tap Σ_c relu(scale[c]·x[pixel(p, tap), c] + shift[c])·w[o, c, tap]: norm, ReLU and 3×3 convolution of a dense layer,
// 128 channels to 32, stride 1, padding 1 (behind the ReLU), on Hopper with 2-byte elements.
//
// x: [batch·height·width, 128] (ld_x), packed: `pack_weights` mode 3, y: [.., 32] (ld_y), part: statistics of y as
// stored, rows = grid, and UNTOLD behind them. Where norm.rows is not 0, scale and shift are made first, of what the kernel before
// left of x (channel_norm.cuh), while the weights are on their way. Headers: tiles.cuh channels.cuh exchange.cuh channel_norm.cuh
// hopper.cuh. Grid min(tiles, SMS), tiles = batch·ceil(height/8)·ceil(width/16), block 768, 169,520 bytes of shared memory.
//
// A block stays and takes one tile of 8×16 pixels after another. All weights stay in shared memory (73,728 bytes). 512 threads load
// the 10×18 pixels that a tile needs, apply norm and ReLU, and store them as [chunk of 8 channels][pixel][8]; two such tiles
// alternate. Two warpgroups multiply an 8×8 patch each: a tap is the same tile from another start address (16 bytes a pixel), so
// that x is loaded and normalised 1.41 times instead of nine. Bytes: x once (halos from L2), y once; bound by shared memory,
// from which a product reads 3 KB for 32,768 multiplications: with 80² 94 µs on an H100, the products alone 59.

#define INPUT 128
#define OUTPUT 32
#define PRODUCERS 512
#define STAGES 2

constexpr int CHUNKS = INPUT / 8, TILE_H = 8, TILE_W = 16, PITCH = TILE_W + 2, HALO = (TILE_H + 2) * PITCH;
constexpr int TILE_PIXELS = 185;  // HALO padded to 1 mod 8: stores of eight chunks of a pixel meet no bank twice
static_assert(TILE_PIXELS >= HALO && TILE_PIXELS % 8 == 1, "see above");
constexpr int CHUNK_BYTES = TILE_PIXELS * 16, TILE_BYTES = CHUNKS * CHUNK_BYTES, WEIGHT_BYTES = 9 * INPUT * OUTPUT * 2;
constexpr int LANES = PRODUCERS / CHUNKS, LOADS = (HALO + LANES - 1) / LANES;
constexpr int SHARED_BYTES = WEIGHT_BYTES + STAGES * TILE_BYTES + STAGES * 16 + 16 + 2 * INPUT * 4;

struct dense_conv_forward_sizes {
    int batch, height, width, ld_x, ld_y, zero;
    channel_norm_sizes norm;
};

// Where a block's `tile` lies.
struct tile_place {
    int image, y, x;
    __device__ __forceinline__ tile_place(int tile, int across, int down) {
        int line = tile / across;
        x = (tile - line * across) * TILE_W;
        image = line / down;
        y = (line - image * down) * TILE_H;
    }
};

extern "C" __global__ void __launch_bounds__(PRODUCERS + 256, 1)
dense_conv_forward(const E* __restrict__ x, const E* __restrict__ packed, E* __restrict__ y, float* __restrict__ part,
                   CHANNEL_NORM_PARAMETERS, const __grid_constant__ dense_conv_forward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(SHARED_BYTES);
    OF_IMAGE(x, (long long)s.height * s.width * s.ld_x);
    OF_IMAGE(y, (long long)s.height * s.width * s.ld_y);
    OF_IMAGE(scale, INPUT);
    OF_IMAGE(shift, INPUT);
    OF_IMAGE(part, gridDim.x * (2 * OUTPUT + 1));
    unsigned char *weights = shared, *tiles = shared + WEIGHT_BYTES;
    u32 full = shared_address(tiles + STAGES * TILE_BYTES), empty = full + STAGES * 8, loaded = empty + STAGES * 8;
    int t = threadIdx.x, across = (s.width + TILE_W - 1) / TILE_W, down = (s.height + TILE_H - 1) / TILE_H;
    int count = s.batch * across * down;
    if (t < STAGES) {
        bar_init(full + 8 * t, PRODUCERS);
        bar_init(empty + 8 * t, 256);
    }
    if (t == STAGES) bar_init(loaded, 1);
    publish();
    __syncthreads();
    if (t < PRODUCERS) {
        int chunk = t % CHUNKS, lane = t / CHUNKS, stage = 0, phase = 1;
        float a[8], b[8];
        const float *from_scale = scale + chunk * 8, *from_shift = shift + chunk * 8;
        if (!EACH_IMAGE && s.norm.rows > 0) {
            channel_norm_arrays norm = CHANNEL_NORM_ARRAYS;
            float* told = (float*)(shared + SHARED_BYTES) - 2 * INPUT;
            norm_in_front<PRODUCERS, named_barrier<PRODUCERS>>(t, norm, s.norm, *(norm_room<PRODUCERS>*)tiles, told);
            from_scale = told + chunk * 8, from_shift = told + INPUT + chunk * 8;
        }
#pragma unroll
        for (int i = 0; i < 8; i += 4) {
            *(float4*)(a + i) = *(const float4*)(from_scale + i);
            *(float4*)(b + i) = *(const float4*)(from_shift + i);
        }
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
            tile_place at(tile, across, down);
            const E* from = x + (long long)at.image * s.height * s.width * s.ld_x + chunk * 8;
            unsigned char* to = tiles + stage * TILE_BYTES + chunk * CHUNK_BYTES;
            uint4 raw[LOADS];
            u32 inside = 0;
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                int p = i * LANES + lane, iy = at.y + p / PITCH - 1, ix = at.x + p % PITCH - 1;
                bool in = p < HALO && (unsigned)iy < (unsigned)s.height && (unsigned)ix < (unsigned)s.width;
                inside |= (u32)in << i;
                raw[i] = make_uint4(0, 0, 0, 0);
                if (in) raw[i] = load_vector(from + (long long)(iy * s.width + ix) * s.ld_x);
            }
            bar_wait(empty + 8 * stage, phase);
#pragma unroll
            for (int i = 0; i < LOADS; i++) {
                int p = i * LANES + lane;
                if (p >= HALO) continue;
                float f[8];
                element::unpack(raw[i], f);
#pragma unroll
                for (int e = 0; e < 8; e++) f[e] = max_nan(fmaf(a[e], f[e], b[e]), 0.f);
                *(uint4*)(to + p * 16) = inside >> i & 1 ? element::pack(f) : make_uint4(0, 0, 0, 0);
            }
            publish();
            bar_arrive(full + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    } else {
        if (t == PRODUCERS) {
            bar_expect(loaded, WEIGHT_BYTES);
            // Each block begins with another tap: all at once would ask the same memory for the same lines.
            for (int i = 0; i < 9; i++) {
                int tap = (blockIdx.x + i) % 9;
                bulk_copy(shared_address(weights) + tap * (WEIGHT_BYTES / 9), packed + tap * INPUT * OUTPUT, WEIGHT_BYTES / 9, loaded);
            }
        }
        int group = (t - PRODUCERS) >> 7, warp = (t >> 5) & 3, lane = t & 31, stage = 0, phase = 0;
        bool first = true;
        float origin[8], sum[8], squares[8], seen = 0.f;
#pragma unroll
        for (int e = 0; e < 8; e++) origin[e] = sum[e] = squares[e] = 0.f;
        bar_wait(loaded, 0);
        u64 w = plain_descriptor(shared_address(weights), OUTPUT * 16, 128);
        for (int tile = blockIdx.x; tile < count; tile += gridDim.x) {
            tile_place at(tile, across, down);
            u64 a = plain_descriptor(shared_address(tiles + stage * TILE_BYTES) + group * 128, CHUNK_BYTES, PITCH * 16);
            float c[16];
            clear(c);
            bar_wait(full + 8 * stage, phase);
            settle(c);
            begin_products();
#pragma unroll
            for (int tap = 0; tap < 9; tap++)
#pragma unroll
                for (int k = 0; k < CHUNKS / 2; k++)
                    product<element, OUTPUT, 0, 0>::add(c, a + ((2 * k * CHUNK_BYTES + (tap / 3 * PITCH + tap % 3) * 16) >> 4),
                                                       w + (((tap * CHUNKS + 2 * k) * OUTPUT * 16) >> 4));
            commit_products();
            wait_products<0>();
            settle(c);
            bar_arrive(empty + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
            // Row r of the patch is pixel (r / 8, r % 8).
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int r = warp * 16 + h * 8 + (lane >> 2), oy = at.y + (r >> 3), ox = at.x + group * 8 + (r & 7);
                float f[8];
#pragma unroll
                for (int e = 0; e < 8; e++) f[e] = c[(e >> 1) * 4 + h * 2 + (e & 1)];
                uint4 out = element::pack(f);
                element::unpack(out, f);
                if (first) {
                    first = false;
#pragma unroll
                    for (int e = 0; e < 8; e++) origin[e] = __shfl_sync(~0u, f[e], lane & 3);
                }
                if (oy >= s.height || ox >= s.width) continue;
                seen += 1.f;
#pragma unroll
                for (int e = 0; e < 8; e++) {
                    float v = f[e] - origin[e];
                    sum[e] += v;
                    squares[e] = fmaf(v, v, squares[e]);
                }
                store_vector(y + ((long long)(at.image * s.height + oy) * s.width + ox) * s.ld_y + (lane & 3) * 8, out);
            }
        }
#pragma unroll
        for (int m = 4; m < 32; m *= 2) {
            seen += __shfl_xor_sync(~0u, seen, m);
#pragma unroll
            for (int e = 0; e < 8; e++) {
                sum[e] += __shfl_xor_sync(~0u, sum[e], m);
                squares[e] += __shfl_xor_sync(~0u, squares[e], m);
            }
        }
        // The eight warps are combined in order, through shared memory that the last tile no longer needs.
        float* place = (float*)tiles;
        named_barrier<256, 2>::wait();
        if (lane < 4) {
#pragma unroll
            for (int e = 0; e < 8; e++) {
                moments m = moments_of(seen, origin[e], sum[e], squares[e]);
                float* at = place + ((group * 4 + warp) * OUTPUT + lane * 8 + e) * 3;
                at[0] = m.count;
                at[1] = m.mean;
                at[2] = m.deviations;
            }
        }
        named_barrier<256, 2>::wait();
        int o = t - PRODUCERS;
        if (o < OUTPUT) {
            moments m = {0.f, 0.f, 0.f};
            for (int k = 0; k < 8; k++) {
                const float* at = place + (k * OUTPUT + o) * 3;
                m = combine(m, moments{at[0], at[1], at[2]});
            }
            part[blockIdx.x * 2 * OUTPUT + o] = m.mean;
            part[(blockIdx.x * 2 + 1) * OUTPUT + o] = m.deviations;
            if (o == 0) part[gridDim.x * 2 * OUTPUT + blockIdx.x] = m.count;
        }
        if (!EACH_IMAGE && blockIdx.x == 0 && o < 2 * OUTPUT) {
            norm_told(part, gridDim.x, OUTPUT)[o] = UNTOLD;
        }
    }
#endif
}
