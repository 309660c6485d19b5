//! Between tensors and what a backend holds of them.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, DispatchKindConversion, DispatchTensor};
use burn::tensor::Tensor;

/// The tensor that `primitive` is on the backend `B`.
pub(super) fn tensor<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<D>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    Tensor::from_primitive::<B>(primitive)
}

/// What the backend `B` holds of `tensor`, which must be on it.
pub(super) fn primitive<B: Backend, const D: usize>(tensor: Tensor<D>) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    float::<B>(tensor.into_dispatch())
}

/// [`primitive`] of a tensor of any rank.
pub(super) fn float<B: Backend>(tensor: DispatchTensor) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let held = <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(tensor);
    held.unwrap_or_else(|error| panic!("a tensor is on another backend: {error}")).float()
}
