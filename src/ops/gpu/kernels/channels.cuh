// Per-channel statistics: (count, mean, sum of squared deviations), combined pairwise so that a large mean costs no digits.

struct moments {
    float count, mean, deviations;
};

__device__ __forceinline__ moments combine(const moments& a, const moments& b) {
    float count = a.count + b.count;
    if (count == 0.f) return a;
    float share = b.count / count, delta = b.mean - a.mean;
    return {count, fmaf(delta, share, a.mean), a.deviations + b.deviations + delta * delta * a.count * share};
}

// From sums of v − shift and (v − shift)² over `count` values.
__device__ __forceinline__ moments moments_of(float count, float shift, float sum, float squares) {
    if (count == 0.f) return {0.f, 0.f, 0.f};
    float mean = sum / count;
    return {count, shift + mean, fmaxf(squares - sum * mean, 0.f)};
}

// Sums `values` over the eight lanes that share lane % 4: each lane ends with N / 8 sums, of the values from
// `reduced_index<N>(lane)` on.
template <int N>
__device__ __forceinline__ void reduce_rows(float (&values)[N], int lane) {
    int width = N;
#pragma unroll
    for (int mask = 16; mask >= 4; mask >>= 1) {
        width /= 2;
        bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            if (i < width) {
                float keep = upper ? values[i + width] : values[i];
                float send = upper ? values[i] : values[i + width];
                values[i] = keep + __shfl_xor_sync(~0u, send, mask);
            }
        }
    }
}
template <int N>
__device__ __forceinline__ int reduced_index(int lane) {
    return (lane & 16 ? N / 2 : 0) + (lane & 8 ? N / 4 : 0) + (lane & 4 ? N / 8 : 0);
}

// Kernels that walk over pixels: a block of 256 threads takes 8 chunks of V channels by 32 pixels at once,
// grid (G, ceil(C / (8·V))). A thread keeps its channels.
struct walk {
    int c;
    long long pixel, step;
    __device__ __forceinline__ walk()
        : c((blockIdx.y * 8 + (threadIdx.x & 7)) * V),
          pixel((long long)blockIdx.x * 32 + (threadIdx.x >> 3)),
          step((long long)gridDim.x * 32) {}
};

// V values of channels from c on, as stored; channels beyond `channels` are 0. `vectors`: whole aligned chunks of 16 bytes.
__device__ __forceinline__ uint4 load_channels(const E* row, int c, int channels, bool vectors) {
    if (vectors) return *(const uint4*)(row + c);
    float f[V];
#pragma unroll
    for (int e = 0; e < V; e++) f[e] = c + e < channels ? element::to_float(row[c + e]) : 0.f;
    return element::pack(f);
}
__device__ __forceinline__ void store_channels(E* row, int c, int channels, bool vectors, const float* f) {
    if (vectors) {
        store_vector(row + c, element::pack(f));
    } else {
#pragma unroll
        for (int e = 0; e < V; e++)
            if (c + e < channels) row[c + e] = element::from_float(f[e]);
    }
}
// V values of a vector over channels, 0 beyond it.
__device__ __forceinline__ void load_vector_of(const float* p, int c, int channels, float* f) {
#pragma unroll
    for (int e = 0; e < V; e++) f[e] = c + e < channels ? __ldg(p + c + e) : 0.f;
}

// What a thread of a `walk` gathers of V channels, about its first value.
struct gathered_moments {
    float count, shift[V], sum[V], squares[V];
    __device__ __forceinline__ gathered_moments() : count(0.f) {
#pragma unroll
        for (int e = 0; e < V; e++) shift[e] = sum[e] = squares[e] = 0.f;
    }
    __device__ __forceinline__ void add(const float* f) {
        if (count == 0.f) {
#pragma unroll
            for (int e = 0; e < V; e++) shift[e] = f[e];
        }
        count += 1.f;
#pragma unroll
        for (int e = 0; e < V; e++) {
            float v = f[e] - shift[e];
            sum[e] += v;
            squares[e] = fmaf(v, v, squares[e]);
        }
    }
};

// Combines a block's moments in order and writes row blockIdx.x of `part`. `shared` takes 8·8·V·3 floats.
__device__ __forceinline__ void write_moments(const gathered_moments& g, float* shared, float* part, int channels) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int e = 0; e < V; e++) {
        moments m = moments_of(g.count, g.shift[e], g.sum[e], g.squares[e]);
#pragma unroll
        for (int mask = 8; mask <= 16; mask <<= 1) {
            moments other = {__shfl_down_sync(~0u, m.count, mask), __shfl_down_sync(~0u, m.mean, mask),
                             __shfl_down_sync(~0u, m.deviations, mask)};
            m = combine(m, other);
        }
        if (lane < 8) {
            float* at = shared + ((warp * 8 + lane) * V + e) * 3;
            at[0] = m.count;
            at[1] = m.mean;
            at[2] = m.deviations;
        }
    }
    __syncthreads();
    int local = threadIdx.x, c = blockIdx.y * 8 * V + local;
    if (local < 8 * V && c < channels) {
        moments m = {0.f, 0.f, 0.f};
#pragma unroll
        for (int w = 0; w < 8; w++) {
            const float* at = shared + (w * 8 * V + local) * 3;
            m = combine(m, moments{at[0], at[1], at[2]});
        }
        float* row = part + (long long)blockIdx.x * 2 * channels;
        row[c] = m.mean;
        row[channels + c] = m.deviations;
        if (c == 0) part[(long long)gridDim.x * 2 * channels + blockIdx.x] = m.count;
    }
}

// Adds a block's two sums a channel in order and writes row `row` of `part`. `shared` takes 8·8·V·2 floats.
__device__ __forceinline__ void write_sums(const float* first, const float* second, float* shared, float* part,
                                           long long row, int channels) {
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
    for (int e = 0; e < V; e++) {
        float a = first[e], b = second[e];
#pragma unroll
        for (int mask = 8; mask <= 16; mask <<= 1) {
            a += __shfl_down_sync(~0u, a, mask);
            b += __shfl_down_sync(~0u, b, mask);
        }
        if (lane < 8) {
            shared[(warp * 8 + lane) * V + e] = a;
            shared[64 * V + (warp * 8 + lane) * V + e] = b;
        }
    }
    __syncthreads();
    int local = threadIdx.x % (8 * V), half = threadIdx.x / (8 * V), c = blockIdx.y * 8 * V + local;
    if (half < 2 && c < channels) {
        float sum = 0.f;
#pragma unroll
        for (int w = 0; w < 8; w++) sum += shared[half * 64 * V + w * 8 * V + local];
        part[(row * 2 + half) * channels + c] = sum;
    }
}
