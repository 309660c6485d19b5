// Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): four draws, which replace the
// counter `c`, from the key `seed`.
__device__ __forceinline__ void philox(unsigned (&c)[4], unsigned seed_low, unsigned seed_high) {
    unsigned key[2] = {seed_low, seed_high};
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
}

// What the masks of a layer follow from.
struct dropout_key {
    unsigned seed_low, seed_high;
    unsigned first_low, first_high;
};

// The draws for elements 4·block to 4·block + 3 of image `image` of this launch. They follow from the seed and the
// image's place in the global batch, so that a mask depends neither on the device nor on how many images are taken
// at once.
__device__ __forceinline__ void draw_four(unsigned (&draws)[4], const dropout_key& key, long long image,
                                          long long block) {
    const unsigned long long first = (unsigned long long)key.first_high << 32 | (unsigned long long)key.first_low;
    const unsigned long long place = first + (unsigned long long)image;
    draws[0] = (unsigned)block;
    draws[1] = (unsigned)(block >> 32);
    draws[2] = (unsigned)place;
    draws[3] = (unsigned)(place >> 32);
    philox(draws, key.seed_low, key.seed_high);
}
