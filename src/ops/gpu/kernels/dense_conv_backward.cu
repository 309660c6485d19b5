// Back through the 3×3 convolution of a dense layer, 128 channels to 32, to the output z of its 1×1 convolution, from the layer's slice
// of the block's S and X: dy = rstd_x·(Sx − s1/m − x̂·s2/m), x̂ = (X − mean_x)·rstd_x, rounded and
// written as `input_gradient` does, g = [scale·z + shift > 0]·Σ_tap Σ_o dy[pixel(q, tap), o]·w[o, c, tap], S = gamma·g (written),
// part = Σ g and Σ g·(z − mean)·rstd of what the block has seen. `input_gradient` and `layer_backward` for these sizes, on Hopper.
//
// Sx, X: slices of 32 channels (ld_s, ld_x), dy: [P, 32] (ld_dy), packed: `pack_weights` mode 4, z, S: [P, 128] without gaps, P =
// batch·height·width; 2-byte elements. Headers: tiles.cuh channels.cuh hopper.cuh. Grid rows = min(patches, SMS), patches =
// batch·ceil(height/8)·ceil(width/8), block 384, 223,072 bytes of shared memory.
//
// A block stays and takes one patch of 8×8 pixels after another; all weights stay in shared memory (73,728 bytes). One warpgroup
// copies z's patch, and Sx's and X's with a border of one pixel, makes dy of them two patches later, in Sx's place, and writes its
// patch. Two warpgroups take turns: one multiplies (64 pixels, 128 channels, K = 9·32) while the other finishes its patch. dy lies as
// [chunk of 8 channels][pixel][8], so that a tap is the same tile from another start address (16 bytes a pixel). Sums stay in
// registers over all patches. Bytes: Sx, X and z once (borders from L2), dy and S once, 704 a pixel, which is what bounds it: with 80²
// 125 µs on an H100, a copy of as many bytes 100.

struct dense_conv_backward_sizes {
    int batch, height, width, ld_s, ld_x, ld_dy;
    float inv_m;
    int zero;
};

constexpr int GROWTH = 32, MIDDLE = 128, SIDE = 8, HALO = SIDE + 2, STAGES = 5;
constexpr int LAG = 2;      // patches between the copies and what is made of them
constexpr int PITCH = 102;  // pixels of a chunk of dy: HALO² padded to 6 mod 8, so that copies of two pixels meet no bank twice
constexpr u32 WEIGHTS = 9 * GROWTH * MIDDLE * 2, CONSTANTS = 4 * MIDDLE * 4;
constexpr u32 BORDERED = GROWTH / 8 * PITCH * 16, OF_X = BORDERED + SIDE * SIDE * MIDDLE * 2, STAGE = OF_X + BORDERED;
constexpr u32 STAGES_AT = WEIGHTS + CONSTANTS, BARRIERS_AT = STAGES_AT + STAGES * STAGE, SHARED = BARRIERS_AT + STAGES * 16 + 16;

// Where a chunk of 8 channels of a pixel of z's patch lies: two neighbouring pixels meet no bank twice.
__device__ __forceinline__ u32 patch_offset(int pixel, int chunk) {
    return pixel * (MIDDLE * 2) + (chunk ^ (pixel & 1) << 2) * 16;
}

// Where a patch begins.
struct patch_place {
    int line, y, x;  // line: the image's first
    __device__ __forceinline__ patch_place(int patch, int across, int down, int height) {
        int row = patch / across, image = row / down;
        line = image * height;
        y = (row - image * down) * SIDE;
        x = (patch - row * across) * SIDE;
    }
};

__device__ __forceinline__ void sync_multipliers() { asm volatile("bar.sync 1, 256;" ::: "memory"); }

extern "C" __global__ void __launch_bounds__(384, 1)
dense_conv_backward(const E* __restrict__ Sx, const E* __restrict__ X, const float* __restrict__ mean_x,
                    const float* __restrict__ rstd_x, const float* __restrict__ s1, const float* __restrict__ s2,
                    const E* __restrict__ packed, const E* __restrict__ z, const float* __restrict__ mean,
                    const float* __restrict__ rstd, const float* __restrict__ scale, const float* __restrict__ shift,
                    const float* __restrict__ gamma, E* __restrict__ dy, E* __restrict__ S,
                    float* __restrict__ part, const __grid_constant__ dense_conv_backward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(SHARED);
    [[maybe_unused]] long long pixels = (long long)s.height * s.width;
    OF_IMAGE(Sx, pixels * s.ld_s);
    OF_IMAGE(X, pixels * s.ld_x);
    OF_IMAGE(s1, GROWTH);
    OF_IMAGE(s2, GROWTH);
    OF_IMAGE(z, pixels * MIDDLE);
    NORM_OF_IMAGE(MIDDLE);
    OF_IMAGE(dy, pixels * s.ld_dy);
    OF_IMAGE(S, pixels * MIDDLE);
    OF_IMAGE(part, gridDim.x * 2 * MIDDLE);
    u32 weights = shared_address(shared), full = weights + BARRIERS_AT, empty = full + STAGES * 8, loaded = empty + STAGES * 8;
    int across = (s.width + SIDE - 1) / SIDE, down = (s.height + SIDE - 1) / SIDE, count = s.batch * across * down;
    if (threadIdx.x == 128) {
        bar_init(loaded, 1);
        publish();
        bar_expect(loaded, WEIGHTS);
        // Blocks begin with different thirds: all at once would ask the same memory for the same lines.
        for (int i = 0; i < 3; i++) {
            u32 at = (blockIdx.x + i) % 3 * (WEIGHTS / 3);
            bulk_copy(weights + at, (const unsigned char*)packed + at, WEIGHTS / 3, loaded);
        }
    }
    begin_ring<STAGES>(full, 128, 128);
    int group = warpgroup_index() - 1;
    if (group < 0) {
        fewer_registers<88>();
        int chunk = threadIdx.x & 3, column_z = threadIdx.x >> 4, chunk_z = threadIdx.x & 15, stage = 0, ready = 0, next = blockIdx.x;
        u32 phase = 1;
        float alpha[8], slope[8], offset[8];
        gradient_terms(alpha, slope, offset, chunk * 8, mean_x, rstd_x, s1, s2, s.inv_m);
        // Makes dy of patch `next`, each thread of what it has copied itself.
        auto make = [&]() {
            patch_place at(next, across, down, s.height);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int p = i * 32 + (threadIdx.x >> 2), row = p / HALO - 1, column = p % HALO - 1, y = at.y + row, x = at.x + column;
                if (p >= HALO * HALO) continue;
                bool inside = (u32)y < (u32)s.height && (u32)x < (u32)s.width;
                unsigned char* place = shared + STAGES_AT + ready * STAGE + (chunk * PITCH + p) * 16;
                float f[8], v[8];
                element::unpack(*(const uint4*)place, f);
                element::unpack(*(const uint4*)(place + OF_X), v);
#pragma unroll
                for (int e = 0; e < 8; e++) f[e] = fmaf(alpha[e], f[e], fmaf(slope[e], v[e], offset[e]));
                uint4 made = inside ? element::pack(f) : make_uint4(0, 0, 0, 0);
                *(uint4*)place = made;
                if (inside && (u32)row < SIDE && (u32)column < SIDE)
                    store_vector(dy + (long long)((at.line + y) * s.width + x) * s.ld_dy + chunk * 8, made);
            }
            publish();
            bar_arrive(full + 8 * ready);
            if (++ready == STAGES) ready = 0;
            next += gridDim.x;
        };
        int begun = 0;
        for (int patch = blockIdx.x; patch < count; patch += gridDim.x) {
            patch_place at(patch, across, down, s.height);
            u32 to = weights + STAGES_AT + stage * STAGE;
            bar_wait(empty + 8 * stage, phase);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int p = i * 32 + (threadIdx.x >> 2), y = at.y + p / HALO - 1, x = at.x + p % HALO - 1;
                bool inside = (u32)y < (u32)s.height && (u32)x < (u32)s.width;
                long long pixel = inside ? (long long)(at.line + y) * s.width + x : 0;
                u32 place = to + (chunk * PITCH + p) * 16;
                if (p >= HALO * HALO) continue;
                copy_async(place, Sx + pixel * s.ld_s + chunk * 8, inside);
                copy_async(place + OF_X, X + pixel * s.ld_x + chunk * 8, inside);
            }
            const E* from = z + (long long)((at.line + at.y) * s.width + at.x + column_z) * MIDDLE + chunk_z * 8;
#pragma unroll
            for (int y = 0; y < SIDE; y++) {
                bool inside = at.y + y < s.height && at.x + column_z < s.width;
                copy_async(to + BORDERED + patch_offset(y * SIDE + column_z, chunk_z), inside ? from : z, inside);
                from += s.width * MIDDLE;
            }
            commit_copies();
            if (++stage == STAGES) stage = 0, phase ^= 1;
            wait_copies<LAG>();
            if (++begun > LAG) make();
        }
        wait_copies<0>();
        while (next < count) make();
    } else {
        more_registers<208>();
        int t = threadIdx.x - 128, warp = t >> 5 & 3, lane = t & 31, first = (lane & 3) * 8;  // the lane's first channel
        float* constants = (float*)(shared + WEIGHTS);  // scale, shift, mean, gamma
        constants[t] = t < MIDDLE ? scale[t] : shift[t - MIDDLE];
        constants[2 * MIDDLE + t] = t < MIDDLE ? mean[t] : gamma[t - MIDDLE];
        float factor = t < MIDDLE ? 1.f : rstd[t - MIDDLE];
        sync_multipliers();
        bar_wait(loaded, 0);

        float sums[4][16];
        clear(sums);
        u64 w = plain_descriptor(weights, MIDDLE * 16, 128);
        int stage = group;
        u32 phase = 0;
        for (int patch = blockIdx.x + group * gridDim.x; patch < count; patch += 2 * gridDim.x) {
            patch_place at(patch, across, down, s.height);
            unsigned char* tile = shared + STAGES_AT + stage * STAGE;
            u64 a = plain_descriptor(shared_address(tile), PITCH * 16, HALO * 16);
            float c[64];
            clear(c);
            bar_wait(full + 8 * stage, phase);
            publish();  // what others have copied
            settle(c);
            begin_products();
#pragma unroll
            for (int tap = 0; tap < 9; tap++)
#pragma unroll
                for (int k = 0; k < 4; k += 2)
                    product<element, MIDDLE, 0, 0>::add(c, a + (k * PITCH + (2 - tap / 3) * HALO + 2 - tap % 3),
                                                        w + (tap * 4 + k) * MIDDLE);
            commit_products();
            // The lane has pixel lane/4 of the warp's two lines, and of each 32 channels the eight from `first` on.
            int x = at.x + (lane >> 2), y = at.y + warp * 2;
            bool inside[2] = {x < s.width && y < s.height, x < s.width && y + 1 < s.height};
            E* to = S + (long long)((at.line + y) * s.width + x) * MIDDLE + first;
            uint4 values[4][2];
#pragma unroll
            for (int k = 0; k < 4; k++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    values[k][h] = *(const uint4*)(tile + BORDERED + patch_offset((warp * 2 + h) * SIDE + (lane >> 2), k * 4 + (lane & 3)));
            wait_products<0>();
            settle(c);
#pragma unroll
            for (int k = 0; k < 4; k++) {
                u32 out[2][4];
#pragma unroll
                for (int e = 0; e < 8; e += 4) {
                    const float* constant = constants + k * 32 + first + e;
                    float a[4], b[4], mu[4], gam[4];
                    *(float4*)a = *(const float4*)constant;
                    *(float4*)b = *(const float4*)(constant + MIDDLE);
                    *(float4*)mu = *(const float4*)(constant + 2 * MIDDLE);
                    *(float4*)gam = *(const float4*)(constant + 3 * MIDDLE);
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float f[8], share[4];
                        element::unpack(values[k][h], f);
#pragma unroll
                        for (int d = 0; d < 4; d++) {
                            bool passed = inside[h] && fmaf(a[d], f[e + d], b[d]) > 0.f;
                            float g = passed ? c[(k * 4 + (e + d) / 2) * 4 + h * 2 + (d & 1)] : 0.f;
                            sums[k][e + d] += g;
                            sums[k][8 + e + d] = fmaf(g, f[e + d] - mu[d], sums[k][8 + e + d]);
                            share[d] = gam[d] * g;
                        }
                        out[h][e / 2] = element::pair(share[0], share[1]);
                        out[h][e / 2 + 1] = element::pair(share[2], share[3]);
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (inside[h])
                        store_vector(to + h * s.width * MIDDLE + k * 32, make_uint4(out[h][0], out[h][1], out[h][2], out[h][3]));
            }
            bar_arrive(empty + 8 * stage);
            stage += 2;
            if (stage >= STAGES) stage -= STAGES, phase ^= 1;
        }

        sync_multipliers();  // the weights are no longer needed
        float* totals = (float*)shared;  // [8 warps][2][MIDDLE]
#pragma unroll
        for (int k = 0; k < 4; k++) {
            reduce_rows<16>(sums[k], lane);
            int base = reduced_index<16>(lane);
#pragma unroll
            for (int e = 0; e < 2; e++)
                totals[((t >> 5) * 2 + (base + e) / 8) * MIDDLE + k * 32 + first + (base + e) % 8] = sums[k][e];
        }
        sync_multipliers();
        float sum = 0.f;
#pragma unroll
        for (int i = 0; i < 8; i++) sum += totals[i * 2 * MIDDLE + t];
        part[blockIdx.x * 2 * MIDDLE + t] = sum * factor;
    }
#endif
}
