// Sizes of general pooling: those of a convolution with in = out = channels.

struct pool_sizes {
    int batch, height, width, in, out_height, out_width, out, kh, kw, stride_y, stride_x, pad_y, pad_x, ld_x, ld_y, zero;
};
