// Rows of 128 bytes in shared memory with the hardware's swizzle of 128 bytes, from a multiple of 1,024 on.

// Where 16 bytes of a row lie.
__device__ __forceinline__ u32 swizzled(int row, int chunk) { return row * 128 + ((chunk ^ (row & 7)) << 4); }

// Puts relu(scale·x + shift) in the place of 16 bytes, channels from c on, in COUNT rows STEP apart.
template <int COUNT, int STEP>
__device__ __forceinline__ void normalise_rows(u32 at, const float* scale, const float* shift, int c) {
#pragma unroll 1
    for (int half = 0; half < 2; half++, c += 4, at += 8) {  // half at a time: few registers are free
        float4 a = __ldg((const float4*)(scale + c)), b = __ldg((const float4*)(shift + c));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            uint4 v = make_uint4(0, 0, 0, 0);
            asm volatile("ld.shared.v2.b32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "r"(at + i * (STEP * 128)));
            float f[8];
            element::unpack(v, f);
            u32 low = element::pair(max_nan(fmaf(a.x, f[0], b.x), 0.f), max_nan(fmaf(a.y, f[1], b.y), 0.f));
            u32 high = element::pair(max_nan(fmaf(a.z, f[2], b.z), 0.f), max_nan(fmaf(a.w, f[3], b.w), 0.f));
            asm volatile("st.shared.v2.b32 [%0],{%1,%2};" ::"r"(at + i * (STEP * 128)), "r"(low), "r"(high) : "memory");
        }
    }
}
