// Dropout masks: 1 where a draw is below the threshold, else 0, for each element of each image.
//
// Header: draws.cuh. Bytes: four written for each element. Bound by memory.

struct dropout_mask_sizes {
    int images;
    int elements;
    unsigned threshold;
    int unused;
    dropout_key key;
};

extern "C" __global__ void __launch_bounds__(256)
dropout_mask(float* __restrict__ mask, const __grid_constant__ dropout_mask_sizes s) {
    const long long per = (s.elements + 3) / 4;
    const long long count = per * s.images;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += (long long)gridDim.x * blockDim.x) {
        const long long image = at / per, block = at % per;
        unsigned draws[4];
        draw_four(draws, s.key, image, block);
        float* out = mask + image * s.elements + 4 * block;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            if (4 * block + word < s.elements) out[word] = draws[word] < s.threshold ? 1.0f : 0.0f;
        }
    }
}
