// Dropout masks: 1 where a draw is below the threshold, else 0, for each element of each image.
//
// The draws are Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3") with the
// seed as its key and (block of four elements, place of the image in the global batch) as its counter, so
// that a mask depends neither on the device nor on how many images are taken at once.
//
// Bytes: four written for each element. Bound by memory.

struct dropout_mask_sizes {
    int images;
    int elements;
    unsigned threshold;
    int unused;
    unsigned seed_low, seed_high;
    unsigned first_low, first_high;
};

extern "C" __global__ void __launch_bounds__(256)
dropout_mask(float* __restrict__ mask, const __grid_constant__ dropout_mask_sizes s) {
    const long long per = (s.elements + 3) / 4;
    const long long count = per * s.images;
    const unsigned long long first =
        (unsigned long long)s.first_high << 32 | (unsigned long long)s.first_low;
    for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < count;
         at += (long long)gridDim.x * blockDim.x) {
        const long long image = at / per, block = at % per;
        const unsigned long long place = first + (unsigned long long)image;
        unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)place,
                         (unsigned)(place >> 32)};
        unsigned key[2] = {s.seed_low, s.seed_high};
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            const unsigned high0 = __umulhi(0xD2511F53u, c[0]), low0 = 0xD2511F53u * c[0];
            const unsigned high1 = __umulhi(0xCD9E8D57u, c[2]), low1 = 0xCD9E8D57u * c[2];
            const unsigned next[4] = {high1 ^ c[1] ^ key[0], low1, high0 ^ c[3] ^ key[1], low0};
#pragma unroll
            for (int word = 0; word < 4; ++word) c[word] = next[word];
            key[0] += 0x9E3779B9u;
            key[1] += 0xBB67AE85u;
        }
        float* out = mask + image * s.elements + 4 * block;
#pragma unroll
        for (int word = 0; word < 4; ++word) {
            if (4 * block + word < s.elements) out[word] = c[word] < s.threshold ? 1.0f : 0.0f;
        }
    }
}
