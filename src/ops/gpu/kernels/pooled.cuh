// Average of relu(scale·x + shift) over two by two pixels, for the transition.

struct pooled_vector {
    uint4 x[4];
    __device__ __forceinline__ void load(const E* p, long long line, int ld) {
        x[0] = load_vector(p);
        x[1] = load_vector(p + ld);
        x[2] = load_vector(p + line);
        x[3] = load_vector(p + line + ld);
    }
    __device__ __forceinline__ uint4 average(const float* a, const float* b) const {
        float sum[V] = {}, f[V];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            element::unpack(x[i], f);
#pragma unroll
            for (int e = 0; e < V; e++) sum[e] += max_nan(fmaf(a[e], f[e], b[e]), 0.f);
        }
#pragma unroll
        for (int e = 0; e < V; e++) sum[e] *= 0.25f;
        return element::pack(sum);
    }
};

// Element offset of the first of the four pixels under pooled pixel q.
struct pooled_pixels {
    divider by_width, by_height;
    int height, width, half_width, half_height, ld;
    __device__ __forceinline__ pooled_pixels(int h, int w, int ld_)
        : by_width(w / 2), by_height(h / 2), height(h), width(w), half_width(w / 2), half_height(h / 2), ld(ld_) {}
    __device__ __forceinline__ long long pixel(u32 q) const {
        u32 line = by_width.quotient(q), n = by_height.quotient(line);
        return ((long long)n * height + 2 * (line - n * half_height)) * width + 2 * (q - line * half_width);
    }
    __device__ __forceinline__ long long offset(u32 q) const { return pixel(q) * ld; }
};
