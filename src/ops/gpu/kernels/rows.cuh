// Norms of maps [batch, channels, height, width]: rows of `length` elements side by side, one for each channel of each
// image. The norm of BatchNorm is taken over the rows of a channel, that of GroupNorm over rows side by side.

struct row_sizes {
    int rows, length, channels;
    int groups;        // of an image; 0: over the batch
    int chunk, parts;  // a row is taken in so many parts of up to `chunk` elements
};

// Which of the statistics is that of a row.
__device__ __forceinline__ int group_of(const row_sizes& s, int row) {
    return s.groups ? row / (s.channels / s.groups) : row % s.channels;
}

struct norm_sizes {
    row_sizes rows;
    float epsilon;
    int relu;  // 1: ReLU stands behind the norm
};

// What the norm does to a row.
struct row_norms {
    float mean, rstd, weight, bias;
    __device__ __forceinline__ float normal(float x) const { return (x - mean) * rstd; }
    __device__ __forceinline__ float output(float normal) const { return fmaf(normal, weight, bias); }
    // The gradient behind the norm: none comes through a ReLU that gave 0.
    __device__ __forceinline__ float passed(float gradient, float normal, bool relu) const {
        return relu && output(normal) <= 0.f ? 0.f : gradient;
    }
};

__device__ __forceinline__ row_norms norms_of(const norm_sizes& s, int row, const float* mean, const float* variance,
                                              const float* weight, const float* bias) {
    int group = group_of(s.rows, row), channel = row % s.rows.channels;
    return {__ldg(mean + group), rsqrtf(__ldg(variance + group) + s.epsilon), __ldg(weight + channel), __ldg(bias + channel)};
}

// The parts of the rows that a group or a channel has: `count` of them, part i being number place(i) of all.
struct members {
    int first, step, rows, all, count;
    __device__ __forceinline__ members(const row_sizes& s, int group, bool of_images)
        : first(of_images ? group * (s.channels / s.groups) : group),
          step(of_images ? 1 : s.channels),
          rows(of_images ? s.channels / s.groups : s.rows / s.channels),
          all(s.rows),
          count(rows * s.parts) {}
    __device__ __forceinline__ int row(int i) const { return first + i % rows * step; }
    __device__ __forceinline__ int part(int i) const { return i / rows; }
    __device__ __forceinline__ long long place(int i) const { return (long long)part(i) * all + row(i); }
};

__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
    for (int mask = 16; mask >= 1; mask >>= 1) v += __shfl_xor_sync(~0u, v, mask);
    return v;
}

// Calls `take` with the elements of N arrays at each place of a part of a row; the 32 lanes of a warp share them out.
template <int N, typename F>
__device__ __forceinline__ void each_of_part(const E* const (&arrays)[N], const row_sizes& s, int row, int part, F take) {
    int lane = threadIdx.x & 31, begin = part * s.chunk, end = min(begin + s.chunk, s.length);
    const E* at[N];
    bool vectors = s.length % V == 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        at[i] = arrays[i] + (long long)row * s.length;
        vectors = vectors && (u64)arrays[i] % 16 == 0;
    }
    if (vectors) {
#pragma unroll 2
        for (int p = begin + lane * V; p < end; p += 32 * V) {
            float f[N][V];
#pragma unroll
            for (int i = 0; i < N; i++) element::unpack(*(const uint4*)(at[i] + p), f[i]);
#pragma unroll
            for (int e = 0; e < V; e++) {
                float values[N];
#pragma unroll
                for (int i = 0; i < N; i++) values[i] = f[i][e];
                take(values);
            }
        }
    } else {
        for (int p = begin + lane; p < end; p += 32) {
            float values[N];
#pragma unroll
            for (int i = 0; i < N; i++) values[i] = element::to_float(at[i][p]);
            take(values);
        }
    }
}

constexpr int TURNS = 4;               // vectors that a thread takes
constexpr int SPAN = 256 * TURNS * V;  // elements that a block takes

// Writes `make(row's numbers, elements of N arrays)` at each place of `out`; `load(row)` reads the row's numbers. Grid
// (ceil(rows·length / SPAN)), block 256. Rows that are no whole vectors are taken element by element.
template <int N, typename L, typename F>
__device__ __forceinline__ void each_element(const E* const (&arrays)[N], E* out, const row_sizes& s, L load, F make) {
    long long base = (long long)blockIdx.x * SPAN, count = (long long)s.rows * s.length;
    int first = (int)(base / s.length);
    u32 offset = (u32)(base - (long long)first * s.length);
    bool vectors = s.length % V == 0 && (u64)out % 16 == 0;
#pragma unroll
    for (int i = 0; i < N; i++) vectors = vectors && (u64)arrays[i] % 16 == 0;
    if (vectors) {
#pragma unroll
        for (int turn = 0; turn < TURNS; turn++) {
            u32 at = (turn * 256 + threadIdx.x) * V;
            if (base + at >= count) return;
            float f[N][V], y[V];
#pragma unroll
            for (int i = 0; i < N; i++) element::unpack(*(const uint4*)(arrays[i] + base + at), f[i]);
            auto numbers = load(first + (int)((offset + at) / s.length));
#pragma unroll
            for (int e = 0; e < V; e++) {
                float values[N];
#pragma unroll
                for (int i = 0; i < N; i++) values[i] = f[i][e];
                y[e] = make(numbers, values);
            }
            store_vector(out + base + at, element::pack(y));
        }
    } else {
#pragma unroll 2
        for (u32 at = threadIdx.x; at < SPAN; at += 256) {
            if (base + at >= count) return;
            float values[N];
#pragma unroll
            for (int i = 0; i < N; i++) values[i] = element::to_float(arrays[i][base + at]);
            auto numbers = load(first + (int)((offset + at) / s.length));
            out[base + at] = element::from_float(make(numbers, values));
        }
    }
}
