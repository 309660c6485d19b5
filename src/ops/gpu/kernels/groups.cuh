// Where the channels of a map lie that GroupNorm puts into groups.
//
// PADDED = 1: rows have channels of zeros among the others, which belong to no group: the first part_first channels, and then part_next
// each, begin with so many others.

struct channel_groups {
    int channels, groups, first, next, images;
#if PADDED
    int part_first, part_next, others_first, others_next;
#endif
    // Channel c of an image among statistics, which lie in pieces (first, then next channels each); in a piece, the channels of an image lie
    // behind those of the image before.
    __device__ __forceinline__ long long place(int c, int image) const {
        int piece = c < first ? 0 : first + (c - first) / next * next, length = c < first ? first : next;
        return (long long)images * piece + (long long)image * length + c - piece;
    }
#if PADDED
    __device__ __forceinline__ int each() const {
        int parts = 1 + (channels - part_first) / part_next;
        return (others_first + (parts - 1) * others_next) / groups;
    }
    // Channel i of those that are in groups.
    __device__ __forceinline__ int channel(int i) const {
        if (i < others_first) return i;
        int behind = i - others_first, part = behind / others_next;
        return part_first + part * part_next + behind - part * others_next;
    }
    // The group of channel c, or -1.
    __device__ __forceinline__ int group(int c, int each) const {
        if (c < part_first) return c < others_first ? c / each : -1;
        int behind = c - part_first, part = behind / part_next, i = behind - part * part_next;
        return i < others_next ? (others_first + part * others_next + i) / each : -1;
    }
#else
    __device__ __forceinline__ int each() const { return channels / groups; }
    __device__ __forceinline__ int channel(int i) const { return i; }
    __device__ __forceinline__ int group(int c, int each) const { return c / each; }
#endif
};
