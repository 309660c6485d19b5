// `layer_weight` for Hopper: ws[split][o][c] = Σ_{p in split} dy[p, o]·relu(scale[c]·x[p, c] + shift[c]).
//
// Arguments as `layer_weight`'s; C and out are multiples of 64, strides of 8. The multiplying threads normalise x where it lies.
// Headers: tiles.cuh channels.cuh hopper.cuh swizzled.cuh ring_columns.cuh. Grid (ceil(out/TILE_M)·ceil(C/TILE_N), ceil(P/per)), block 320, RING_BYTES
// of dynamic shared memory. Bytes: dy once per column tile, x once per row tile, workspace once.

struct hopper_layer_weight_sizes {
    int pixels, channels, out, ld_x, ld_y, per;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + COPIERS, 2)
hopper_layer_weight(const E* __restrict__ x, const float* __restrict__ scale, const float* __restrict__ shift,
                    const E* __restrict__ dy, float* __restrict__ ws, const __grid_constant__ hopper_layer_weight_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(RING_BYTES);
    int tiles_n = (s.channels + TILE_N - 1) / TILE_N;
    ring_columns g;
    g.x = x, g.dy = dy, g.ld_x = s.ld_x, g.ld_y = s.ld_y, g.in = g.width_k = s.channels, g.out = s.out;
    g.m0 = blockIdx.x / tiles_n * TILE_M, g.n0 = blockIdx.x % tiles_n * TILE_N;
    g.batch = g.height = g.out_height = 1, g.width = g.out_width = s.pixels;
    g.kw = g.stride_y = g.stride_x = 1, g.pad_y = g.pad_x = 0;
    g.begin = (long long)blockIdx.y * s.per, g.end = min(g.begin + s.per, (long long)s.pixels);
    ring_columns::start(shared);
    if (warpgroup_index() == 2) {
        g.copy(shared);
        return;
    }
    float c[RING_COLUMNS / 2] = {};
    constexpr int THREADS = MULTIPLIERS / (TILE_N / 64), STEP = THREADS / 8;  // of a block of 64 channels, rows at once
    int t = threadIdx.x % THREADS, block = threadIdx.x / THREADS, channel = g.n0 + block * 64 + (t & 7) * 8;
    u32 place = TILE_M * 128 + block * 8192 + swizzled(t >> 3, t & 7);
    bool there = channel < s.channels;
    // Pixels beyond the end are zeros in dy, whatever the norm makes of them in x.
    g.multiply(c, shared, [&](u32 tile) {
        if (there) normalise_rows<64 / STEP, STEP>(tile + place, scale, shift, channel);
        publish();
        asm volatile("bar.sync 1, %0;" ::"n"(MULTIPLIERS) : "memory");
    });
    g.write(c, ws + (long long)blockIdx.y * s.out * s.channels);
#endif
}
