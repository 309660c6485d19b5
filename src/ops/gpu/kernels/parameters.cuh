// Up to 32 fp32 arrays of a kind, each in memory of its own, as so many arguments: EACH(X) is X(0) … X(31). Blocks are shared out
// among the arrays in order; `first` is the first block of each.

#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)

struct places {
    int length[32], first[32];
};

// Which array this block works on.
__device__ __forceinline__ int find_array(const places& p, int arrays) {
    int k = 0;
    while (k + 1 < arrays && p.first[k + 1] <= (int)blockIdx.x) k++;
    return k;
}
