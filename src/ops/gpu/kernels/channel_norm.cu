// What channel_norm.cuh says, in a launch of its own: one between two convolutions instead of two. Headers: tiles.cuh channels.cuh
// channel_norm.cuh; SYNCED = 1: exchange.cuh in front of the last. Grid ceil(written/8) + ceil((channels − written)/512), block 512.

constexpr int THREADS = 512;

extern "C" __global__ void __launch_bounds__(THREADS, 1)
channel_norm(CHANNEL_NORM_PARAMETERS, const __grid_constant__ channel_norm_sizes s) {
    __shared__ norm_room<THREADS> room;
    channel_norm_arrays n = CHANNEL_NORM_ARRAYS;
    int fresh = (s.written + 7) / 8, channel = (blockIdx.x - fresh) * THREADS + threadIdx.x;
    float2 affine;
    if ((int)blockIdx.x < fresh) {
        norm_written<THREADS, block_barrier, 4>(blockIdx.x * 8 + (threadIdx.x & 7), threadIdx.x, n, s, room, affine);
    } else if (channel < s.channels - s.written) {
        float mu = mean[channel], variance = var[channel];
        put_affine(n, s, channel, mu, variance, affine_of(mu, variance, gamma[channel], beta[channel], s.eps));
    }
}
