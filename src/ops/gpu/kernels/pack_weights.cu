// Copies fp32 weights [out, in, kh, kw] into ELEMENT in the layout a product reads, for any number of convolutions at once.
//
// table: int[segments][8] = source (floats), target (elements), mode, out, in, taps = kh·kw, row, first block. Modes:
// 0: [o][tap·in + c], 1: [c][tap·out + o], 2: [o][(c·7 + ky)·8 + kx + 1] (7×7); zero up to `row`. 3 and 4 are 0 and 1 in tiles
// that products of warpgroups read from shared memory: [k/8][r][k%8], row r holding the line `tiled_line(r)`, for rows and
// row lengths that are multiples of 32. A segment has ceil(rows·row/256) blocks, rows = out (modes 0, 2, 3) or in (1, 4). Headers: tiles.cuh. Grid: all blocks, block 256.

struct pack_weights_sizes {
    int segments, zero;
};

// The line in row r of a tile: a lane of a product's result then has eight lines side by side.
__device__ __forceinline__ int tiled_line(int r) { return (r & ~31) + (r & 6) * 4 + (r >> 2 & 6) + (r & 1); }

extern "C" __global__ void __launch_bounds__(256)
pack_weights(const float* __restrict__ weights, E* __restrict__ packed, const int* __restrict__ table,
             const __grid_constant__ pack_weights_sizes s) {
    int low = 0, high = s.segments - 1;  // the last segment that begins at or before this block
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (__ldg(table + middle * 8 + 7) <= (int)blockIdx.x) low = middle;
        else high = middle - 1;
    }
    const int* t = table + low * 8;
    int mode = t[2], out = t[3], in = t[4], taps = t[5], row = t[6];
    long long index = (long long)(blockIdx.x - t[7]) * 256 + threadIdx.x;
    bool back = mode == 1 || mode == 4;
    int rows = back ? in : out, line = (int)(index / row), k = (int)(index - (long long)line * row);
    if (line >= rows) return;
    if (mode >= 3) {
        int piece = (int)(index / 8), chunk = piece / rows;
        k = chunk * 8 + (int)(index % 8);
        line = tiled_line(piece - chunk * rows);
    }
    int inner = back ? out : in, tap = k / inner, c = k - tap * inner;
    int o = back ? c : line, i = back ? line : c;
    bool exists = tap < taps;
    if (mode == 2) {
        int r = k >> 3, kx = (k & 7) - 1;
        i = r / 7;
        tap = (r - i * 7) * 7 + kx;
        o = line;
        exists = kx >= 0 && i < in;
    }
    float v = exists ? weights[(u32)t[0] + ((long long)o * in + i) * taps + tap] : 0.f;
    packed[(u32)t[1] + index] = element::from_float(v);
}
