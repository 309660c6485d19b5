// `conv_backward_input` for Hopper: dx[q, c] = Σ_tap Σ_o dy[pixel(q, tap), o]·w[o, c, tap].
//
// Arguments as `conv_backward_input`'s; out is a multiple of 64, in and strides are multiples of 8.
// Headers: tiles.cuh channels.cuh gemm.cuh conv.cuh hopper.cuh swizzled.cuh ring.cuh. Grid classes·ceil(in/TILE_N), block 256 + RING_COPIERS,
// RING_BYTES of dynamic shared memory. Bytes: dy once per column tile and (through caches) tap, dx once (twice where added to).

struct hopper_conv_backward_input_sizes {
    conv_sizes conv;
    int row, classes, accumulate, zero;
};

extern "C" __global__ void __launch_bounds__(MULTIPLIERS + COPIERS, RING_BLOCKS)
hopper_conv_backward_input(const E* __restrict__ dy, const E* __restrict__ packed, E* __restrict__ dx,
                           const __grid_constant__ hopper_conv_backward_input_sizes s) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    extern __shared__ __align__(1024) unsigned char shared[];
    require_shared(RING_BYTES);
    constexpr int TN = TILE_N;
    const conv_sizes& v = s.conv;
    int tiles_n = (v.in + TN - 1) / TN, tile_n = blockIdx.x % tiles_n, tile = blockIdx.x / tiles_n;
    hit_pixels hit(v, tile);
    if (hit.ny == 0 && s.accumulate) return;
    ring g;
    g.source = dy, g.weights = packed, g.ld = v.ld_y, g.height = v.out_height, g.width = v.out_width, g.channels = v.out;
    g.ky0 = hit.ky0, g.kx0 = hit.kx0, g.ny = hit.ny, g.nx = hit.nx;
    g.direction = -1, g.row_length = s.row, g.kw = v.kw;
    g.step_y = v.stride_y, g.step_x = v.stride_x, g.columns = v.in, g.column0 = tile_n * TN;
    if (threadIdx.x < 128) {
        long long p = hit.first + threadIdx.x;
        u32 q = (u32)(p < hit.rows ? p : 0), line = q / hit.rows_x, n = line / hit.rows_y;
        int y = line - n * hit.rows_y, x = q - line * hit.rows_x;
        int place = (n * v.height + hit.cy + y * v.stride_y) * v.width + hit.cx + x * v.stride_x;
        g.write_row(shared, threadIdx.x, p < hit.rows, n, y + (hit.cy + v.pad_y - g.ky0) / v.stride_y, x + (hit.cx + v.pad_x - g.kx0) / v.stride_x,
                    place);
    }
    ring::begin(shared);
    if (warpgroup_index() == 2) {
        g.copy(shared, s.accumulate ? dx : nullptr, v.ld_x);
        return;
    }
    float acc[1][TN / 8][4];
    clear(acc);
    g.multiply(*(float(*)[TN / 2])&acc[0][0][0], shared, ring::await);

    int lane = threadIdx.x & 31, run = lane & 3;
    u32 there = s.accumulate ? g.tile_of_map(shared) : 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int r = warp_row() + h * 8 + (lane >> 2);
        if (hit.first + r >= hit.rows) continue;
        E* row = dx + (long long)(u32)ring::table(shared)[r].z * v.ld_x;
#pragma unroll
        for (int k = 0; k < TN / 32; k++) {
            float f[V];
            results(acc, 0, h, k, f);
            if (s.accumulate) {
                float before[V];
                element::unpack(ring::of_map(there, r, k, run), before);
#pragma unroll
                for (int e = 0; e < V; e++) f[e] += before[e];
            }
            write_results(row, g.column0 + k * 32 + run * V, v.in, true, f);
        }
    }
#endif
}
