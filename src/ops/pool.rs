//! Means over pixels, summed in 32 bits or more.

use burn::tensor::Tensor;
use burn::tensor::module::avg_pool2d;
use burn::tensor::ops::AvgPoolOptions;

use super::dtype::accumulation_dtype;

/// The mean over windows of pixels; padding counts as zeros.
pub fn avg_pool(map: Tensor<4>, windows: AvgPoolOptions<2>) -> Tensor<4> {
    let dtype = map.dtype();
    avg_pool2d(map.cast(accumulation_dtype(dtype)), windows).cast(dtype)
}

/// The mean over each map, `[batch, channels]`.
pub fn global_pool(map: Tensor<4>) -> Tensor<2> {
    let ([batch, channels, height, width], dtype) = (map.dims(), map.dtype());
    let flat = map.cast(accumulation_dtype(dtype)).reshape([batch, channels, height * width]);
    flat.mean_dim(2).reshape([batch, channels]).cast(dtype)
}
