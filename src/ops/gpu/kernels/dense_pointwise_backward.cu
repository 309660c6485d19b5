// The backward pass of a dense layer's first half, z = W·relu(scale·x + shift), in one pass over x and S, from S of z:
// dz = rstd·(S_z − s1/m − ẑ·s2/m), rounded (as `input_gradient` makes it), g = [scale·x + shift > 0]·Σ_o dz[p, o]·w[o, c],
// S += gamma·g, part = Σ g and Σ g·x̂ of a block's pixels, x̂ = (x − mean)·rstd, ws = Σ_p dz[p, o]·relu(scale·x + shift)[p, c] of a
// block's pixels.
//
// dz, z: [P, 128] (ld_dz, ld_z), packed: `pack_weights` mode 1, x, S: [P, C] (ld_x, ld_s), C a multiple of 16. A block takes a range
// of 128 channels (the last range may have fewer) and every `splits`-th (of a last range with fewer, every `last`-th) tile of 64 pixels,
// the last first: they are what the kernel before has left in L2. Blocks: F·splits, F = floor(C/128), range = block % F; then `last` for
// the rest of C, if it has any. Ranges begin at a line of 128 bytes, since lines that two blocks share cost much.
// ws: [block][c of the range][128] floats, part: [max(splits, last)][2][C]; rows that a range has no block for are zero.
// `dense_pointwise_finish` adds both up.
//
// Channels are the rows of both products, so that a lane has two channels and their sums all along: D[c, p] = Wᵀ·dzᵀ with W in
// registers and dz from shared memory (K-major); D[c, o] += a·dz with a, x normalised, in registers, as `ldmatrix` with a transpose
// gives it, and the same tile of dz (MN-major). Warpgroup 0 loads four tiles ahead, warpgroup 1 makes dz in place, the two others have
// 64 of the channels each and need not wait for each other.
// Headers: tiles.cuh channels.cuh hopper.cuh. Grid F·splits + last, at most the SMs, block 512. Only bf16 and f16, only sm_90a.
// Bytes: x once, S twice, S_z and z once for each range. Bound by memory: where there is one range, a copy's rate. Several ranges get
// apart by more tiles than L2 holds (8 MB a tile of every block), so that most of them read S_z and z from memory again.

struct dense_pointwise_backward_sizes {
    int pixels, channels, ld_dz, ld_z, ld_x, ld_s, row, splits, last;
    float inv_m;
};

constexpr int OUT = 128, RANGE = 128, PIXEL_TILE = 64, STEPS = PIXEL_TILE / 16, STAGES = 4, Z_STAGES = 2;
constexpr int HALF = PIXEL_TILE * 128, TILE = 2 * HALF, STAGE = 3 * TILE;  // a stage: dz, x, S
constexpr int Z_TILES = STAGES * STAGE, BARRIERS = Z_TILES + Z_STAGES * TILE, SHARED_BYTES = BARRIERS + 24 * STAGES + 8 * Z_STAGES;

// Tiles are [channel / 64][pixel][64 channels], swizzled by 128 bytes: as B of K-major or of MN-major products.
__device__ __forceinline__ u64 swizzled_descriptor(u32 address) {
    return (u64)((address & 0x3ffff) >> 4) | (u64)(HALF >> 4) << 16 | (u64)(1024 >> 4) << 32 | 1ull << 62;
}
__device__ __forceinline__ void store_matrices_transposed(u32 address, const u32* r) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0],{%1,%2,%3,%4};" ::"r"(address), "r"(r[0]), "r"(r[1]), "r"(r[2]),
                 "r"(r[3])
                 : "memory");
}
// `copy_async` of what nobody reads again soon: other lines stay in L2 in its place.
__device__ __forceinline__ void copy_once(u32 target, const void* from, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2;" ::"r"(target), "l"(from), "l"(policy));
}

extern "C" __global__ void __launch_bounds__(512, 1)
dense_pointwise_backward(const E* __restrict__ dz, const E* __restrict__ z, const float* __restrict__ z_mean,
                         const float* __restrict__ z_rstd, const float* __restrict__ z_s1, const float* __restrict__ z_s2,
                         const E* __restrict__ packed, const E* __restrict__ X, const float* __restrict__ mean,
                         const float* __restrict__ rstd, const float* __restrict__ scale, const float* __restrict__ shift,
                         const float* __restrict__ gamma, E* S, float* __restrict__ ws, float* __restrict__ part,
                         const __grid_constant__ dense_pointwise_backward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(SHARED_BYTES);
    OF_IMAGE(dz, (long long)s.pixels * s.ld_dz);
    OF_IMAGE(z, (long long)s.pixels * s.ld_z);
    OF_IMAGE(z_s1, OUT);
    OF_IMAGE(z_s2, OUT);
    OF_IMAGE(X, (long long)s.pixels * s.ld_x);
    OF_IMAGE(S, (long long)s.pixels * s.ld_s);
    NORM_OF_IMAGE(s.channels);
    OF_IMAGE(ws, (long long)gridDim.x * RANGE * OUT);
    OF_IMAGE(part, (long long)max(s.splits, s.last) * 2 * s.channels);
    // full: x and S have landed and dz is made; raw: what dz is made of has landed; empty, z_empty: it is no longer needed.
    u32 base = shared_address(shared), full = base + BARRIERS, empty = full + 8 * STAGES;
    u32 raw = empty + 8 * STAGES, z_empty = raw + 8 * STAGES;
    int t = threadIdx.x, block = blockIdx.x, whole = s.channels / RANGE;
    bool is_whole = block < whole * s.splits;
    int range = is_whole ? block % whole : whole, split = is_whole ? block / whole : block - whole * s.splits;
    int step = is_whole ? s.splits : s.last, c0 = range * RANGE, width = min(RANGE, s.channels - c0);
    int tiles = (s.pixels + PIXEL_TILE - 1) / PIXEL_TILE, groups = (width + 63) / 64;
    if (t < STAGES) bar_init(full + 8 * t, 256), bar_init(empty + 8 * t, 4 * groups), bar_init(raw + 8 * t, 128);
    if (t < Z_STAGES) bar_init(z_empty + 8 * t, 4);
    publish();
    __syncthreads();
    int warpgroup = warpgroup_index(), stage = 0, z_stage = 0;
    if (warpgroup == 0) {
        fewer_registers<48>();
        int chunk = t & 15, line = t >> 4, phase = 1, z_phase = 1;
        bool inside = chunk * V < width;
        u32 to = base + (chunk >> 3) * HALF + line * 128 + (((chunk & 7) ^ line) << 4);
        const E *from_x = X + c0 + chunk * V, *from_s = S + c0 + chunk * V;
        u64 policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        for (int tile = tiles - 1 - split; tile >= 0; tile -= step) {
            long long p = (long long)tile * PIXEL_TILE + line;
            u32 at = to + stage * STAGE;
            bool all = (tile + 1) * PIXEL_TILE <= s.pixels;
            auto load = [&](u32 target, const E* from, int ld, bool wanted, bool once) {
                from += p * ld;
                if (all) {
                    if (!wanted) return;
#pragma unroll
                    for (int i = 0; i < PIXEL_TILE / 8; i++)
                        if (once) copy_once(target + i * 1024, from + (long long)(i * 8) * ld, policy);
                        else copy_async(target + i * 1024, from + (long long)(i * 8) * ld, true);
                } else {
#pragma unroll 1
                    for (int i = 0; i < PIXEL_TILE / 8; i++) {
                        bool valid = wanted && p + i * 8 < s.pixels;
                        copy_async(target + i * 1024, valid ? from + (long long)(i * 8) * ld : dz, valid);
                    }
                }
            };
            bar_wait(empty + 8 * stage, phase);
            load(at, dz + chunk * V, s.ld_dz, true, false);
            bar_wait(z_empty + 8 * z_stage, z_phase);
            load(to + Z_TILES + z_stage * TILE, z + chunk * V, s.ld_z, true, false);
            bar_arrive_after_copies(raw + 8 * stage);
            load(at + TILE, from_x, s.ld_x, inside, true);
            load(at + 2 * TILE, from_s, s.ld_s, inside, true);
            bar_arrive_after_copies(full + 8 * stage);
            if (++z_stage == Z_STAGES) z_stage = 0, z_phase ^= 1;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        wait_copies<0>();
    } else if (warpgroup == 1) {
        fewer_registers<48>();
        int chunk = t & 15, line = (t & 127) >> 4, phase = 0;
        u32 offset = (chunk >> 3) * HALF + line * 128 + (((chunk & 7) ^ line) << 4);
        float alpha[V], slope[V], shifted[V];
        gradient_terms(alpha, slope, shifted, chunk * V, z_mean, z_rstd, z_s1, z_s2, s.inv_m);
        for (int tile = tiles - 1 - split; tile >= 0; tile -= step) {
            bar_wait(raw + 8 * stage, phase);
            unsigned char *to = shared + stage * STAGE + offset, *from = shared + Z_TILES + z_stage * TILE + offset;
            long long p = (long long)tile * PIXEL_TILE + line;
#pragma unroll 2
            for (int i = 0; i < PIXEL_TILE / 8; i++) {
                float f[V], v[V];
                element::unpack(*(const uint4*)(to + i * 1024), f);
                element::unpack(*(const uint4*)(from + i * 1024), v);
#pragma unroll
                for (int e = 0; e < V; e++) f[e] = fmaf(alpha[e], f[e], fmaf(slope[e], v[e], shifted[e]));
                // Pixels beyond the end are zeros in dz, whatever the norm makes of them in x.
                *(uint4*)(to + i * 1024) = p + i * 8 < s.pixels ? element::pack(f) : make_uint4(0, 0, 0, 0);
            }
            publish();
            bar_arrive(full + 8 * stage);
            __syncwarp();
            if ((t & 31) == 0) bar_arrive(z_empty + 8 * z_stage);
            if (++z_stage == Z_STAGES) z_stage = 0;
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
    } else {
        more_registers<208>();
        int group = warpgroup - 2;
        if (group >= groups) return;
        int warp = (t >> 5) & 3, lane = t & 31, local = group * 64 + warp * 16 + (lane >> 2), c = c0 + local;
        bool live = group * 64 + warp * 16 < width;
        float a[2], b[2], mu[2], gam[2], total[2][2];
        u32 w[OUT / 16][4];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            a[h] = live ? __ldg(scale + c + h * 8) : 0.f, b[h] = live ? __ldg(shift + c + h * 8) : 0.f;
            mu[h] = live ? __ldg(mean + c + h * 8) : 0.f, gam[h] = live ? __ldg(gamma + c + h * 8) : 0.f;
            total[0][h] = total[1][h] = 0.f;
#pragma unroll
            for (int k = 0; k < OUT / 16; k++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const E* from = packed + (long long)(c + h * 8) * s.row + k * 16 + i * 8 + (lane & 3) * 2;
                    w[k][i * 2 + h] = live ? __ldg((const u32*)from) : 0u;
                }
        }
        // Where this lane's rows of `ldmatrix` lie: pixels lane % 8 (+ 8 of the upper half), channels of the warp's two chunks.
        u32 mine = group * HALF + ((lane & 7) + ((lane >> 4) << 3)) * 128 + (((warp * 2 + ((lane >> 3) & 1)) ^ (lane & 7)) << 4);
        int out_chunk = t & 7, out_line = (t & 127) >> 3;
        u32 out_from = 2 * TILE + group * HALF + out_line * 128 + ((out_chunk ^ (out_line & 7)) << 4);
        bool out_inside = group * 64 + out_chunk * V < width;
        E* out = S + c0 + group * 64 + out_chunk * V;
        float weight[OUT / 2];
#pragma unroll
        for (int i = 0; i < OUT / 2; i++) weight[i] = 0.f;
        int phase = 0;
        for (int tile = tiles - 1 - split; tile >= 0; tile -= step) {
            u32 at = base + stage * STAGE;
            float d[PIXEL_TILE / 2];
            clear(d);
            bar_wait(full + 8 * stage, phase);
            settle(d);
            begin_products();
#pragma unroll
            for (int k = 0; k < OUT / 16; k++)
                product<element, PIXEL_TILE, 0, 0>::add(d, w[k], swizzled_descriptor(at + (k >> 2) * HALF + (k & 3) * 32));
            commit_products();
            u32 normal[STEPS][4];
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                u32 x[4];
                float f[8];
                load_matrices_transposed(x, at + TILE + mine + k * 2048);
                element::unpack(make_uint4(x[0], x[1], x[2], x[3]), f);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    normal[k][i] = element::pair(max_nan(fmaf(a[i & 1], f[2 * i], b[i & 1]), 0.f),
                                                 max_nan(fmaf(a[i & 1], f[2 * i + 1], b[i & 1]), 0.f));
            }
            settle(weight);
            begin_products();
#pragma unroll
            for (int k = 0; k < STEPS; k++) product<element, OUT, 0, 1>::add(weight, normal[k], swizzled_descriptor(at + k * 2048));
            commit_products();
            wait_products<1>();
            settle(d);
            float sum_g[2] = {0.f, 0.f}, sum_gx[2] = {0.f, 0.f};
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                u32 x[4], old[4];
                float f[8], sum[8];
                load_matrices_transposed(x, at + TILE + mine + k * 2048);
                load_matrices_transposed(old, at + 2 * TILE + mine + k * 2048);
                element::unpack(make_uint4(x[0], x[1], x[2], x[3]), f);
                element::unpack(make_uint4(old[0], old[1], old[2], old[3]), sum);
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    int h = i >> 1 & 1;
                    float v = d[4 * (2 * k + (i >> 2)) + 2 * h + (i & 1)];
                    float g = fmaf(a[h], f[i], b[h]) > 0.f ? v : 0.f;
                    sum_g[h] += g;
                    sum_gx[h] = fmaf(g, f[i] - mu[h], sum_gx[h]);
                    sum[i] = fmaf(gam[h], g, sum[i]);
                }
#pragma unroll
                for (int i = 0; i < 4; i++) old[i] = element::pair(sum[2 * i], sum[2 * i + 1]);
                store_matrices_transposed(at + 2 * TILE + mine + k * 2048, old);
            }
#pragma unroll
            for (int h = 0; h < 2; h++) total[0][h] += sum_g[h], total[1][h] += sum_gx[h];
            asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");  // of the warpgroup
            long long p = (long long)tile * PIXEL_TILE + out_line;
#pragma unroll
            for (int i = 0; i < PIXEL_TILE / 16; i++) {
                uint4 v = *(const uint4*)(shared + stage * STAGE + out_from + i * 2048);
                if (out_inside && p + i * 16 < s.pixels) __stcs((uint4*)(out + (p + i * 16) * s.ld_s), v);
            }
            wait_products<0>();
            settle(weight);
            __syncwarp();
            if (lane == 0) bar_arrive(empty + 8 * stage);
            if (++stage == STAGES) stage = 0, phase ^= 1;
        }
        if (!live) return;
        float* to = ws + ((long long)blockIdx.x * RANGE + local) * OUT + (lane & 3) * 2;
#pragma unroll
        for (int i = 0; i < OUT / 2; i += 2)
            *(float2*)(to + (i >> 1 & 1) * 8 * OUT + (i >> 2) * 8) = make_float2(weight[i], weight[i + 1]);
#pragma unroll
        for (int h = 0; h < 2; h++)
#pragma unroll
            for (int k = 0; k < 2; k++) {
                float sum = total[k][h];
                sum += __shfl_xor_sync(~0u, sum, 1);
                sum += __shfl_xor_sync(~0u, sum, 2);
                if ((lane & 3) == 0) {
                    float* column = part + (long long)k * s.channels + c + h * 8;
                    column[(long long)split * 2 * s.channels] = k ? sum * __ldg(rstd + c + h * 8) : sum;
                    if (split == 0)
#pragma unroll 1
                        for (int row = step; row < max(s.splits, s.last); row++) column[(long long)row * 2 * s.channels] = 0.f;
                }
            }
    }
#endif
}
