//! Products of a map and a weight whose gradients are computed by hand, as operations of Burn's
//! autodiff.

use std::fmt::Debug;
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, DispatchKindConversion, DispatchTensor};
use burn::tensor::{DType, Tensor};

use super::primitives::{primitive, tensor};

/// A function of a map `[batch, input, height, width]` and a weight `[output, input, kernel,
/// kernel]` that is linear in each. Its tensors are without autodiff and in the map's numbers, but
/// for the weight's gradient, which may have more bits.
pub(super) trait Product: Clone + Debug + Send + 'static {
    /// `[batch, output, height, width]`.
    fn forward(&self, map: Tensor<4>, weight: Tensor<4>) -> Tensor<4>;

    /// The gradients of the map and of the weight, of these shapes, from that of the result: the
    /// map's where the weight is given, the weight's where the map is.
    fn backward(
        &self,
        shapes: [[usize; 4]; 2],
        map: Option<Tensor<4>>,
        weight: Option<Tensor<4>>,
        gradient: Tensor<4>,
    ) -> [Option<Tensor<4>>; 2];
}

/// `product` of tensors on the backend `B`, of which either, both or none may be with autodiff.
///
/// Of a weight with more bits than the map's the rounded numbers are multiplied; the weight itself is
/// kept for the backward pass, where it is rounded again, and its gradient has all its bits.
pub(super) fn apply<B, P>(product: P, map: Tensor<4>, weight: Tensor<4>) -> Tensor<4>
where
    B: Backend,
    P: Product,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B>>,
{
    let [numbers, weight_numbers] = [map.dtype(), weight.dtype()];
    if !map.is_autodiff() && !weight.is_autodiff() {
        return product.forward(map, weight.cast(numbers));
    }
    let shapes = [map.dims(), weight.dims()];
    let [map, weight] = [map, weight].map(|factor| primitive::<Autodiff<B>, 4>(factor.autodiff()));
    let tracked = [map.is_tracked(), weight.is_tracked()];
    let step = Step::<B, P>(PhantomData).prepare::<NoCheckpointing>([map.node(), weight.node()]);
    let run = |map: FloatTensor<B>, weight: FloatTensor<B>| {
        let weight = tensor::<B, 4>(weight).cast(numbers);
        primitive::<B, 4>(product.forward(tensor::<B, 4>(map), weight))
    };
    let output = match step.compute_bound().stateful() {
        OpsKind::Tracked(mut prep) => {
            // Each factor is needed for the other's gradient alone.
            let [of_map, of_weight] = tracked;
            let map_node = of_weight.then(|| prep.checkpoint(&map));
            let weight_node = of_map.then(|| prep.checkpoint(&weight));
            let output = run(map.into_primitive(), weight.into_primitive());
            let (map, weight) = (map_node, weight_node);
            prep.finish(State { product, shapes, weight_numbers, map, weight }, output)
        }
        OpsKind::UnTracked(prep) => prep.finish(run(map.into_primitive(), weight.into_primitive())),
    };
    tensor::<Autodiff<B>, 4>(output)
}

/// The backward step of a product.
struct Step<B, P>(PhantomData<(B, P)>);

impl<B, P> Debug for Step<B, P> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Product")
    }
}

/// What the step needs: the factors by where autodiff keeps them.
#[derive(Debug, Clone)]
struct State<P> {
    product: P,
    shapes: [[usize; 4]; 2],
    weight_numbers: DType,
    map: Option<NodeId>,
    weight: Option<NodeId>,
}

impl<B, P> Backward<B, 2> for Step<B, P>
where
    B: Backend,
    P: Product,
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = State<P>;

    fn backward(
        self,
        ops: Ops<Self::State, 2>,
        gradients: &mut Gradients,
        checkpointer: &mut Checkpointer,
    ) {
        let gradient = tensor::<B, 4>(gradients.consume::<B>(&ops.node));
        let State { product, shapes, weight_numbers, map, weight } = ops.state;
        let mut kept = |node: Option<NodeId>| {
            node.map(|node| tensor::<B, 4>(checkpointer.retrieve_node_output(node)))
        };
        let (map, weight) = (kept(map), kept(weight));
        let weight = weight.map(|weight| weight.cast(gradient.dtype()));
        let [of_map, of_weight] = product.backward(shapes, map, weight, gradient);
        let found = [of_map, of_weight.map(|gradient| gradient.cast(weight_numbers))];
        for (parent, gradient) in ops.parents.into_iter().zip(found) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                gradients.register::<B>(parent.id, primitive::<B, 4>(gradient));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::Flex;
    use burn::backend::ops::ModuleOps;
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Gradients, TensorData};

    use super::*;

    /// Burn's convolution on the CPU with its own backward functions.
    #[derive(Debug, Clone)]
    struct OnCpu(ConvOptions<2>);

    impl Product for OnCpu {
        fn forward(&self, map: Tensor<4>, weight: Tensor<4>) -> Tensor<4> {
            conv2d(map, weight, None, self.0.clone())
        }

        fn backward(
            &self,
            [map_shape, weight_shape]: [[usize; 4]; 2],
            map: Option<Tensor<4>>,
            weight: Option<Tensor<4>>,
            gradient: Tensor<4>,
        ) -> [Option<Tensor<4>>; 2] {
            let device = gradient.device();
            let gradient = primitive::<Flex, 4>(gradient);
            let of_map = weight.map(|weight| {
                let map = primitive::<Flex, 4>(Tensor::zeros(map_shape, &device));
                let weight = primitive::<Flex, 4>(weight);
                let found = Flex::conv2d_x_backward(map, weight, gradient.clone(), self.0.clone());
                tensor::<Flex, 4>(found)
            });
            let of_weight = map.map(|map| {
                let weight = primitive::<Flex, 4>(Tensor::zeros(weight_shape, &device));
                let map = primitive::<Flex, 4>(map);
                let found =
                    Flex::conv2d_weight_backward(map, weight, gradient.clone(), self.0.clone());
                tensor::<Flex, 4>(found)
            });
            [of_map, of_weight]
        }
    }

    fn wave(shape: [usize; 4], speed: f64) -> Tensor<4> {
        let values: Vec<f32> =
            (0..shape.iter().product()).map(|i: usize| (i as f64 * speed).sin() as f32).collect();
        Tensor::from_data(TensorData::new(values, shape), &Device::flex())
    }

    fn values(tensor: Tensor<4>) -> Vec<f32> {
        tensor.into_data().iter().collect()
    }

    fn options(stride: usize, padding: usize) -> ConvOptions<2> {
        ConvOptions::new([stride; 2], [padding; 2], [1, 1], 1)
    }

    /// The loss of a product that is used twice, once of what a product gave.
    fn loss(
        apply: &dyn Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
        map: &Tensor<4>,
        weight: &Tensor<4>,
    ) -> Tensor<1> {
        let once = apply(map.clone(), weight.clone()).tanh();
        let twice = apply(once.clone(), weight.clone());
        let direction = wave(once.dims(), 0.37).autodiff();
        (once * direction).sum() + twice.powi_scalar(2).sum()
    }

    fn gradients(
        apply: &dyn Fn(Tensor<4>, Tensor<4>) -> Tensor<4>,
        map: &Tensor<4>,
        weight: &Tensor<4>,
    ) -> (f32, [Option<Vec<f32>>; 2]) {
        let loss = loss(apply, map, weight);
        let value = loss.clone().into_data().iter::<f32>().next().expect("one number");
        let found: Gradients = loss.backward();
        (value, [map, weight].map(|factor| factor.grad(&found).map(values)))
    }

    #[test]
    fn gradients_are_those_of_burns_own_convolution_bit_for_bit() {
        for (stride, padding, kernel) in [(1, 1, 3), (2, 3, 7), (1, 0, 1), (3, 2, 4)] {
            let options = options(stride, padding);
            let ours = |map, weight| apply::<Flex, _>(OnCpu(options.clone()), map, weight);
            let burns = |map, weight| conv2d(map, weight, None, options.clone());
            let map = || wave([2, 3, 29, 26], 0.7).autodiff();
            let weight = || wave([3, 3, kernel, kernel], 1.3).autodiff();
            let cases = [
                (map().require_grad(), weight().require_grad()),
                (map(), weight().require_grad()),
                (map().require_grad(), weight()),
                (map().without_autodiff(), weight().require_grad()),
                (map().require_grad(), weight().without_autodiff()),
            ];
            for (case, (map, weight)) in cases.into_iter().enumerate() {
                let (ours, burns) =
                    (gradients(&ours, &map, &weight), gradients(&burns, &map, &weight));
                assert_eq!(ours, burns, "case {case} of {options:?}");
            }
        }
    }

    #[test]
    fn without_autodiff_nothing_is_recorded() {
        let (map, weight) = (wave([1, 2, 5, 5], 0.7), wave([4, 2, 3, 3], 1.3));
        let options = options(1, 1);
        let ours = apply::<Flex, _>(OnCpu(options.clone()), map.clone(), weight.clone());
        assert!(!ours.is_autodiff());
        assert_eq!(values(ours), values(conv2d(map, weight, None, options)));
    }
}
