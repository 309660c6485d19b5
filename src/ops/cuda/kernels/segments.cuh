// Parameters as segments of flat fp32 buffers. table: unsigned[segments][4] = offset, length, first block, weight decay (bits
// of an fp32). A block takes 1,024 elements of one segment.

struct segment {
    unsigned offset, begin, end;  // elements begin..end of the segment that lies at `offset`
    float weight_decay;
};

__device__ __forceinline__ segment find_segment(const unsigned* table, int segments) {
    int low = 0, high = segments - 1;  // the last segment that begins at or before this block
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (__ldg(table + middle * 4 + 2) <= blockIdx.x) low = middle;
        else high = middle - 1;
    }
    const unsigned* t = table + low * 4;
    unsigned begin = (blockIdx.x - t[2]) * 1024, length = t[1];
    return {t[0], begin, begin + 1024 < length ? begin + 1024 : length, __uint_as_float(t[3])};
}

// state: norm, factor, ok, step, 1 − β1^step, 1 − β2^step.
