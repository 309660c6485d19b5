// `conv_backward_weight` for Hopper: ws[split][o][tap·in + c] = Σ_{p in split} dy[p, o]·x[pixel(p, tap), c].
//
// Arguments as `conv_backward_weight`'s; in and out are multiples of 64, strides of 8. Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh hopper.cuh swizzled.cuh ring_columns.cuh.
// Grid (ceil(out/TILE_M)·ceil(taps·in/TILE_N), ceil(P/per)), block 320, RING_BYTES of dynamic shared memory.
// Bytes: dy once per column tile, x once per row tile and tap, workspace once.

struct hopper_conv_weight_sizes {
    conv_sizes conv;
    int per, zero;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + COPIERS, 2)
hopper_conv_weight(const E* __restrict__ x, const E* __restrict__ dy, float* __restrict__ ws,
                   const __grid_constant__ hopper_conv_weight_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(RING_BYTES);
    const conv_sizes& v = s.conv;
    int width_k = v.kh * v.kw * v.in, tiles_n = (width_k + TILE_N - 1) / TILE_N;
    long long rows = (long long)v.batch * v.out_height * v.out_width;
    ring_columns g;
    g.x = x, g.dy = dy, g.ld_x = v.ld_x, g.ld_y = v.ld_y, g.in = v.in, g.out = v.out, g.width_k = width_k;
    g.m0 = blockIdx.x / tiles_n * TILE_M, g.n0 = blockIdx.x % tiles_n * TILE_N;
    g.batch = v.batch, g.height = v.height, g.width = v.width, g.out_height = v.out_height, g.out_width = v.out_width;
    g.kw = v.kw, g.stride_y = v.stride_y, g.stride_x = v.stride_x, g.pad_y = v.pad_y, g.pad_x = v.pad_x;
    g.begin = (long long)blockIdx.y * s.per, g.end = min(g.begin + s.per, rows);
    ring_columns::start(shared);
    if (warpgroup_index() == 2) {
        g.copy(shared);
        return;
    }
    float c[RING_COLUMNS / 2] = {};
    g.multiply(c, shared, [](u32) { publish(); });
    g.write(c, ws + (long long)blockIdx.y * v.out * width_k);
#endif
}
