//! Autodiff's part: what is recorded, and how gradients go back through it.

use super::array::Array;
use super::{DryOps, DryTensor, Gradients, Node};

/// Recorded layers.
pub(in crate::model::layers) struct DryTape {
    input: DryTensor,
    output: DryTensor,
    nodes: Vec<Node>,
    parameters: Vec<(usize, usize)>,
}

impl DryOps {
    /// Records `layers` on `input`, whose gradient is `asked` for or not.
    pub(super) fn tape(
        &mut self,
        input: DryTensor,
        asked: bool,
        layers: impl FnOnce(&mut Self, DryTensor) -> DryTensor,
    ) -> (DryTensor, DryTape) {
        let (nodes, parameters) = (self.nodes.take(), self.parameters.take());
        self.recording.set(true);
        let node = asked.then(|| self.node(0, None));
        let input = DryTensor { node, ..input };
        let output = layers(self, input.clone());
        self.recording.set(false);
        let (nodes, parameters) = (self.nodes.replace(nodes), self.parameters.replace(parameters));
        let value = DryTensor { node: None, ..output.clone() };
        (value, DryTape { input, output, nodes, parameters })
    }

    /// Takes `gradient`, of the output, back to the input, where that was asked for.
    pub(super) fn tape_back(&self, tape: DryTape, gradient: DryTensor) -> Option<DryTensor> {
        let DryTape { input, output, nodes, parameters } = tape;
        let before = (self.nodes.replace(nodes), self.parameters.replace(parameters));
        let found = self.go_back(output, gradient.array, input.node);
        self.nodes.replace(before.0);
        self.parameters.replace(before.1);
        found.map(|array| DryTensor { shape: input.shape, array, node: None })
    }

    /// Takes the gradient of `output` back to the parameters and to `leaf`.
    fn go_back(&self, output: DryTensor, gradient: Array, leaf: Option<usize>) -> Option<Array> {
        let mut going = Gradients::new();
        self.register(&mut going, output.node, gradient);
        drop(output);
        let mut steps: Vec<_> = (self.nodes.borrow_mut().iter_mut().enumerate())
            .filter_map(|(node, step)| Some((step.depth, node, step.back.take()?)))
            .collect();
        steps.sort_by_key(|(depth, node, _)| std::cmp::Reverse((*depth, *node)));
        for (_, node, back) in steps {
            if let Some(gradient) = going.remove(&node) {
                back(self, gradient, &mut going);
            }
        }
        for (node, elements) in self.parameters.borrow().iter() {
            let gradient = going.remove(node).expect("every parameter has a gradient");
            assert_eq!(gradient.elements, *elements, "the gradient of a parameter");
            self.collect(gradient);
        }
        leaf.and_then(|leaf| going.remove(&leaf))
    }

    /// Adds `gradient` to what there is for `node`.
    pub(super) fn register(&self, gradients: &mut Gradients, node: Option<usize>, gradient: Array) {
        let Some(node) = node else { return };
        let gradient = match gradients.remove(&node) {
            Some(before) => self.arrays.zip(gradient, before),
            None => gradient,
        };
        gradients.insert(node, gradient);
    }
}
