// Copies fp32 weights [out, in, kh, kw] into ELEMENT in the layout a product reads, for any number of convolutions at once.
//
// table: int[segments][8] = source (floats), target (elements), mode, out, in, taps = kh·kw, row, first block. Modes:
// 0: [o][tap·in + c], 1: [c][tap·out + o], 2: [o][(c·7 + ky)·8 + kx + 1] (7×7); zero up to `row`. A segment has
// ceil(rows·row/256) blocks, rows = out (modes 0, 2) or in (1). Headers: tiles.cuh. Grid: all blocks, block 256.

struct pack_weights_sizes {
    int segments, zero;
};

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
    int rows = mode == 1 ? in : out, line = (int)(index / row), k = (int)(index - (long long)line * row);
    if (line >= rows) return;
    int inner = mode == 1 ? out : in, tap = k / inner, c = k - tap * inner;
    int o = mode == 1 ? c : line, i = mode == 1 ? line : c;
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
