// out[b][j][i] = in[b][i][j] for i < rows, 0 for rows ≤ i < ld_out; j < cols.
//
// in: [batch][rows][ld_in], out: [batch][cols][ld_out]. TILED = 1: through 32×32 tiles; 0: element by element, which reads
// well where cols or ld_out are small. Headers: tiles.cuh. Block 256.
// Grid: TILED batch·ceil(cols/32)·ceil(ld_out/32), else min(ceil(batch·cols·ld_out/256), 32·SMS).
// Bytes: in once, out once.

#ifndef TILED
#define TILED 1
#endif

struct transpose_sizes {
    int batch, rows, cols, ld_in, ld_out, zero;
};

extern "C" __global__ void __launch_bounds__(256)
transpose(const E* __restrict__ in, E* __restrict__ out, const __grid_constant__ transpose_sizes s) {
#if TILED
    constexpr int PITCH = 32 + 4 / sizeof(E);  // columns of a tile fall on different banks
    __shared__ E tile[32][PITCH];
    int tiles_i = (s.ld_out + 31) / 32, tiles_j = (s.cols + 31) / 32, block = blockIdx.x / tiles_i;
    int i0 = (blockIdx.x - block * tiles_i) * 32, b = block / tiles_j, j0 = (block - b * tiles_j) * 32;
    int x = threadIdx.x & 31, y = threadIdx.x >> 5;
    const E* from = in + (long long)b * s.rows * s.ld_in;
    E* to = out + (long long)b * s.cols * s.ld_out;
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        int i = i0 + y + k, j = j0 + x;
        bool exists = i < s.rows && j < s.cols;
        tile[y + k][x] = exists ? from[(long long)i * s.ld_in + j] : element::from_float(0.f);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; k += 8) {
        int i = i0 + x, j = j0 + y + k;
        if (i < s.ld_out && j < s.cols) to[(long long)j * s.ld_out + i] = tile[x][y + k];
    }
#else
    long long total = (long long)s.batch * s.cols * s.ld_out;
    for (long long n = (long long)blockIdx.x * 256 + threadIdx.x; n < total; n += (long long)gridDim.x * 256) {
        long long line, b;
        if (total >> 32 == 0) {
            line = (u32)n / (u32)s.ld_out, b = (u32)line / (u32)s.cols;
        } else {
            line = n / s.ld_out, b = line / s.cols;
        }
        int i = (int)(n - line * s.ld_out), j = (int)(line - b * s.cols);
        out[n] = i < s.rows ? in[(b * s.rows + i) * s.ld_in + j] : element::from_float(0.f);
    }
#endif
}
