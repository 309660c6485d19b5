// `conv_forward` for Hopper: y[p, o] = Σ_tap Σ_c x[pixel(p, tap), c]·w[o, c, tap].
//
// Arguments as `conv_forward`'s; in is a multiple of 64, out and strides are multiples of 8. part: rows = ceil(P/128).
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh hopper.cuh swizzled.cuh ring.cuh. Grid ceil(P/128)·ceil(out/TILE_N), block 256 + RING_COPIERS, RING_BYTES of
// dynamic shared memory. Bytes: x once per column tile and (through caches) tap, y once.

struct hopper_conv_forward_sizes {
    conv_sizes conv;
    int row, statistics;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + COPIERS, RING_BLOCKS)
hopper_conv_forward(const E* __restrict__ source, const E* __restrict__ packed, E* __restrict__ y, float* __restrict__ part,
                    const __grid_constant__ hopper_conv_forward_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(RING_BYTES);
    constexpr int TN = TILE_N;
    const conv_sizes& v = s.conv;
    int tiles_n = (v.out + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile_m = blockIdx.x / tiles_n;
    long long rows = (long long)v.batch * v.out_height * v.out_width, first = (long long)tile_m * 128;
    ring g;
    g.source = source, g.weights = packed, g.ld = v.ld_x, g.height = v.height, g.width = v.width, g.channels = v.in;
    g.ny = v.kh, g.nx = v.kw, g.direction = 1, g.row_length = s.row, g.kw = v.kw;
    g.ky0 = g.kx0 = 0, g.step_y = g.step_x = 1, g.columns = v.out, g.column0 = tile_n * TN;
    if (threadIdx.x < 128) {
        long long p = first + threadIdx.x;
        u32 q = (u32)(p < rows ? p : 0), line = q / v.out_width, n = line / v.out_height;
        g.write_row(shared, threadIdx.x, p < rows, n, (int)(line - n * v.out_height) * v.stride_y - v.pad_y,
                    (int)(q - line * v.out_width) * v.stride_x - v.pad_x, 0);
    }
    ring::begin(shared);
    if (warpgroup_index() == 2) {
        g.copy(shared);
        return;
    }
    float acc[1][TN / 8][4];
    clear(acc);
    g.multiply(*(float(*)[TN / 2])&acc[0][0][0], shared, ring::await);

    int left = (int)min(rows - first, 128ll), blocks = (int)((rows + 127) / 128);
    store_tile(acc, shared, y + first * v.ld_y, v.ld_y, left, g.column0, v.out, s.statistics ? part : nullptr, tile_m, blocks);
#endif
}
