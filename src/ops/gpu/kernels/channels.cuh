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

// Combined with those of the lane `down` lanes further on.
__device__ __forceinline__ moments combine_down(const moments& m, int down) {
    moments other = {__shfl_down_sync(~0u, m.count, down), __shfl_down_sync(~0u, m.mean, down),
                     __shfl_down_sync(~0u, m.deviations, down)};
    return combine(m, other);
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
    // Takes the thread's pixels AHEAD at a time: `load(v, p)` puts what is read of pixel p into v, a T, then `use(v, p)` has it.
    template <int AHEAD, class T, class Load, class Use>
    __device__ __forceinline__ void each(long long pixels, Load load, Use use) const {
        for (long long p = pixel; p < pixels; p += AHEAD * step) {
            T v[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++)
                if (p + i * step < pixels) load(v[i], p + i * step);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) {
                if (p + i * step >= pixels) break;
                use(v[i], p + i * step);
            }
        }
    }
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

// alpha·S + slope·x + offset is rstd·(S − s1/m − x̂·s2/m), x̂ = (x − mean)·rstd, in N channels from c on.
template <int N>
__device__ __forceinline__ void gradient_terms(float (&alpha)[N], float (&slope)[N], float (&offset)[N], int c, const float* mean,
                                               const float* rstd, const float* s1, const float* s2, float inv_m) {
#pragma unroll
    for (int e = 0; e < N; e++, c++) {
#if PER_IMAGE
        alpha[e] = 1.f;
        slope[e] = -s2[c] * inv_m;
        offset[e] = -s1[c] * inv_m;
#else
        alpha[e] = rstd[c];
        slope[e] = -rstd[c] * rstd[c] * s2[c] * inv_m;
        offset[e] = -rstd[c] * s1[c] * inv_m - slope[e] * mean[c];
#endif
    }
}

// Goes over what a `walk` has of a norm's backward pass, sizes `s`: `take(e, g, x)` may change the gradient of channel c + e behind the
// mask and x, and `store(g, x, p)` has those of pixel p. mask: 0 always open, 1 where a·x + b > 0, 2 where y > 0.
template <class Sizes, class Take, class Store>
__device__ __forceinline__ void each_gradient(const walk& at, const Sizes& s, const E* dy, const E* x, const E* y, int mask, bool vectors,
                                              const float (&a)[V], const float (&b)[V], Take take, Store store) {
    auto load = [&](uint4(&v)[3], long long p) {
        v[0] = load_channels(dy + p * s.ld_dy, at.c, s.channels, vectors);
        v[1] = load_channels(x + p * s.ld_x, at.c, s.channels, vectors);
        if (mask == 2) v[2] = load_channels(y + p * s.ld_y, at.c, s.channels, vectors);
    };
    at.each<2, uint4[3]>(s.pixels, load, [&](const uint4(&v)[3], long long p) {
        float g[V], f[V], o[V];
        element::unpack(v[0], g);
        element::unpack(v[1], f);
        if (mask == 2) element::unpack(v[2], o);
#pragma unroll
        for (int e = 0; e < V; e++) {
            bool open = mask == 0 || (mask == 1 ? fmaf(a[e], f[e], b[e]) : o[e]) > 0.f;
            g[e] = open ? g[e] : 0.f;
            take(e, g[e], f[e]);
        }
        store(g, f, p);
    });
}

// What a thread of a `walk` gathers of V channels, about its first value.
struct gathered_moments {
    float count = 0.f, shift[V] = {}, sum[V] = {}, squares[V] = {};
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
        for (int mask = 8; mask <= 16; mask <<= 1) m = combine_down(m, mask);
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
