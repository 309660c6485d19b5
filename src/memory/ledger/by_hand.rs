//! What a stage costs that goes back by hand, from values that it keeps itself.

use super::operations::ConvolutionSizes;
use super::{Array, Ledger, Noted, Step, Window, bytes};
use crate::memory::{ActivationShape, Footprint, Target};

/// A run that can be taken back.
pub struct Tape {
    input: Noted,
    output: Noted,
    steps: Vec<Step>,
    parameters: Vec<(usize, usize)>,
}

impl Ledger {
    /// What a stage costs that keeps what `forward` returns beside the output, where that is asked of
    /// it, and takes gradients `backward` from there, by the methods below.
    pub fn footprint_by_hand<K>(
        on: &Target,
        input: &ActivationShape,
        forward: impl Fn(&Self, Noted, bool) -> (Noted, K),
        backward: impl Fn(&Self, K, Noted) -> Option<Noted>,
    ) -> Footprint {
        let plain = Self::new(on, false);
        let given = plain.given(input, false);
        let size = given.array.held.bytes();
        let (output, kept) = forward(&plain, given, false);
        drop(kept);
        let after = output.array.held.bytes();
        let forward_workspace = plain.arrays.meter.peak().saturating_sub(size + after);
        drop(output);

        let ledger = Self::new(on, false);
        let meter = &ledger.arrays.meter;
        let given = ledger.given(input, false);
        let (output, kept) = forward(&ledger, given.clone(), true);
        let in_input = output.array.held.is(&given.array.held);
        let live = meter.live();
        let saving_workspace = meter.peak() - live;
        let holders = |noted: &Noted| noted.array.held.holders() - usize::from(in_input);
        let (saves_input, saves_output) = (holders(&given) > 1, holders(&output) > 1);
        drop(given);
        let backward_flops = ledger.backward.get();

        let gradient = ledger.arrays.array(output.elements());
        let gradient = Noted { shape: output.shape.clone(), array: gradient, node: None };
        let of_output = gradient.array.held.watch();
        drop(output);
        meter.restart();
        ledger.arrays.traffic.set(0.0);
        let start = meter.live();
        let found = backward(&ledger, kept, gradient);
        let in_gradient = found.as_ref().is_some_and(|found| of_output.is(&found.array.held));
        let gradient = match &found {
            Some(found) if !in_gradient => found.array.held.bytes(),
            _ => 0,
        };
        let parameter_gradients = bytes(&ledger.collected.borrow());
        Footprint {
            standing: 4 * plain.statistics.get() as u64,
            largest_parameter: ledger.largest_parameter(),
            largest_array: plain.arrays.meter.largest().max(meter.largest()),
            output: after,
            output_in_input: in_input,
            checkpoint: 0,
            saved: live - if in_input { size } else { size + after },
            saves_input,
            saves_output,
            moves_saved: true,
            forward_workspace,
            saving_workspace,
            gradient,
            gradient_in_gradient: in_gradient,
            backward_workspace: meter.peak().saturating_sub(start + gradient + parameter_gradients),
            parameter_gradients,
            layers: 1.0,
            forward_flops: plain.forward.get(),
            backward_flops,
            forward_traffic: plain.arrays.traffic.get(),
            backward_traffic: ledger.arrays.traffic.get(),
        }
    }

    /// Runs `layers` so that they can be taken back; the gradient of the input is `asked` for or not.
    pub fn record(
        &self,
        input: Noted,
        asked: bool,
        layers: impl FnOnce(&Self, Noted) -> Noted,
    ) -> (Noted, Tape) {
        let (steps, parameters) = (self.steps.take(), self.parameters.take());
        self.keep.set(true);
        let node = asked.then(|| self.step(0, None));
        let input = Noted { node, ..input };
        let output = layers(self, input.clone());
        self.keep.set(false);
        let (steps, parameters) = (self.steps.replace(steps), self.parameters.replace(parameters));
        let value = Noted { node: None, ..output.clone() };
        (value, Tape { input, output, steps, parameters })
    }

    /// Takes `gradient`, of the output, back to the input, where that was asked for.
    pub fn back(&self, tape: Tape, gradient: Noted) -> Option<Noted> {
        let Tape { input, output, steps, parameters } = tape;
        let before = (self.steps.replace(steps), self.parameters.replace(parameters));
        let (found, collected) = self.go_back(vec![output], vec![gradient.array], input.node);
        self.steps.replace(before.0);
        self.parameters.replace(before.1);
        self.collected.borrow_mut().extend(collected);
        found.map(|array| Noted { shape: input.shape, array, node: None })
    }

    /// The gradient of the map that a convolution with this window was run on, where it is `asked`
    /// for.
    pub fn convolution_back(
        &self,
        map: Noted,
        window: Window,
        bias: bool,
        gradient: Noted,
        asked: bool,
    ) -> Option<Noted> {
        let (shape, channels) = (map.map(), gradient.map()[1]);
        let sizes = ConvolutionSizes::new(shape, channels, window);
        if bias {
            self.collect(self.arrays.reduce(gradient.array.clone(), channels));
        }
        let of_map = asked.then(|| sizes.gradient_of_map(&self.arrays, gradient.array.clone()));
        self.collect(sizes.gradient_of_weight(&self.arrays, map.array, gradient.array));
        of_map.map(|array| Noted { shape: shape.to_vec(), array, node: None })
    }

    /// The gradient of what a fully connected layer was run on, where it is `asked` for.
    pub fn linear_back(
        &self,
        value: Noted,
        bias: bool,
        gradient: Noted,
        asked: bool,
    ) -> Option<Noted> {
        let ([batch, input], [_, output]) = (value.features(), gradient.features());
        let sizes = [batch, input, output];
        if bias {
            self.collect(self.arrays.reduce(gradient.array.clone(), output));
        }
        let of_value = asked.then(|| self.arrays.linear_gradient_of_value(sizes));
        let (value, gradient) = (value.array, gradient.array);
        self.collect(self.arrays.linear_gradient_of_weight(sizes, value, gradient));
        of_value.map(|array| Noted { shape: vec![batch, input], array, node: None })
    }

    /// Part of a gradient: so many of its channels.
    pub fn channels(&self, gradient: &Noted, channels: usize) -> Noted {
        let mut shape = gradient.shape.clone();
        shape[1] = channels;
        let array = self.arrays.view(&gradient.array, shape.iter().product());
        Noted { shape, array, node: None }
    }

    /// Holds the gradient of a parameter until the end.
    fn collect(&self, gradient: Array) {
        let gradient = self.arrays.dense(gradient);
        self.collected.borrow_mut().push(gradient);
    }
}

impl Noted {
    fn features(&self) -> [usize; 2] {
        self.shape.as_slice().try_into().unwrap_or_else(|_| panic!("{:?} is no vector", self.shape))
    }
}
