// `layer_forward` for Hopper: y[p, o] = Σ_c relu(scale[c]·x[p, c] + shift[c])·w[o, c].
//
// Arguments as `layer_forward`'s; C is a multiple of 64. Each warpgroup normalises its rows of a step where they lie before it multiplies
// them. Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh hopper.cuh swizzled.cuh ring.cuh. Grid ceil(P/128)·ceil(out/TILE_N), block
// 256 + RING_COPIERS, RING_BYTES of dynamic shared memory. Bytes: x once per column tile (through caches), y once.

struct hopper_layer_forward_sizes {
    int pixels, channels, out, ld_x, ld_y, row, statistics, zero;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + COPIERS, RING_BLOCKS)
hopper_layer_forward(const E* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
                     const E* __restrict__ packed, E* __restrict__ y, float* __restrict__ part,
                     const __grid_constant__ hopper_layer_forward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(RING_BYTES);
    constexpr int TN = TILE_N;
    int tiles_n = (s.out + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = s.pixels, first = (long long)tile_m * 128;
    ring g;
    g.source = x, g.weights = packed, g.ld = s.ld_x, g.height = 1, g.width = s.pixels, g.channels = s.channels;
    g.ny = g.nx = g.direction = 1, g.row_length = s.row, g.kw = 1;
    g.ky0 = g.kx0 = 0, g.step_y = g.step_x = 1, g.columns = s.out, g.column0 = tile_n * TN;
    if (threadIdx.x < 128) {
        long long p = first + threadIdx.x;
        g.write_row(shared, threadIdx.x, p < rows, 0, 0, (int)(p < rows ? p : 0), 0);
    }
    ring::begin(shared);
    if (warpgroup_index() == 2) {
        g.copy(shared);
        return;
    }
    float acc[1][TN / 8][4];
    clear(acc);
    g.multiply(*(float(*)[TN / 2])&acc[0][0][0], shared, normalise{scale, shift});

    int left = (int)min(rows - first, 128ll), blocks = (int)((rows + 127) / 128);
    store_tile(acc, shared, y + first * s.ld_y, s.ld_y, left, g.column0, s.out, s.statistics ? part : nullptr, tile_m, blocks);
#endif
}
