//! Layers as ONNX operations.

use std::collections::{BTreeMap, BTreeSet};

use super::OnnxError;
use super::proto::{
    AttributeProto, FLOAT, FLOAT_TENSOR, INT, INT64_TENSOR, INTS, NodeProto, TensorProto,
};
use crate::model::layers::{Join, Layer, Op};
use crate::ops::{EPSILON, Window, group_count};

/// Operations under construction. Values are called after the layer that gives them, with `/output`
/// behind, so that they are no name of a head or of a parameter.
pub(super) struct Graph<'a> {
    pub nodes: Vec<NodeProto>,
    pub initializers: Vec<TensorProto>,
    /// The model's parameters and running statistics.
    values: &'a BTreeMap<String, Vec<f32>>,
    /// Names of nodes; layers without parameters may share one.
    taken: BTreeSet<String>,
}

impl<'a> Graph<'a> {
    pub fn new(values: &'a BTreeMap<String, Vec<f32>>) -> Self {
        Self { nodes: Vec::new(), initializers: Vec::new(), values, taken: BTreeSet::new() }
    }

    /// Puts `layers` behind the value `input`; the value of the last one.
    pub fn layers(&mut self, layers: &[Layer], input: String) -> Result<String, OnnxError> {
        layers.iter().try_fold(input, |value, layer| self.layer(layer, value))
    }

    fn layer(&mut self, layer: &Layer, input: String) -> Result<String, OnnxError> {
        let name = layer.name.as_str();
        Ok(match &layer.op {
            Op::Conv { window, .. } => {
                self.with_parameters("Conv", layer, input, windowed(*window))?
            }
            Op::Linear { .. } => {
                self.with_parameters("Gemm", layer, input, vec![integer("transB", 1)])?
            }
            Op::BatchNorm(_) => {
                self.with_parameters("BatchNormalization", layer, input, vec![epsilon()])?
            }
            Op::GroupNorm(channels) => self.group_norm(layer, *channels, input)?,
            Op::Relu => self.node("Relu", name, vec![input], Vec::new()),
            Op::Sigmoid => self.node("Sigmoid", name, vec![input], Vec::new()),
            Op::MaxPool(window) => self.node("MaxPool", name, vec![input], windowed(*window)),
            Op::AvgPool(window) => {
                let mut attributes = windowed(*window);
                attributes.push(integer("count_include_pad", 1));
                self.node("AveragePool", name, vec![input], attributes)
            }
            Op::GlobalPool => {
                let map = self.node("GlobalAveragePool", name, vec![input], Vec::new());
                self.flatten(&format!("{name}.flatten"), map)
            }
            Op::Flatten => self.flatten(name, input),
            // It changes nothing but in training.
            Op::Dropout(_) => input,
            Op::PadChannels(channels) => {
                let pads = [0, 0, 0, 0, 0, *channels as i64, 0, 0];
                let pads = self.integers(format!("{name}.pads"), &pads);
                self.node("Pad", name, vec![input, pads], Vec::new())
            }
            Op::Branches(join, rows) => {
                let outputs = rows
                    .iter()
                    .map(|row| self.layers(row, input.clone()))
                    .collect::<Result<Vec<_>, _>>()?;
                self.join(name, *join, outputs)
            }
        })
    }

    fn join(&mut self, name: &str, join: Join, outputs: Vec<String>) -> String {
        match join {
            Join::Concat => self.node("Concat", name, outputs, vec![integer("axis", 1)]),
            Join::Add => {
                // The branches of a residual block have no name of their own.
                let name = if name.ends_with('.') { format!("{name}add") } else { name.to_owned() };
                let add = |sum, output| self.node("Add", &name, vec![sum, output], Vec::new());
                outputs.into_iter().reduce(add).unwrap_or_default()
            }
            Join::Heads => unreachable!("heads are the graph's outputs"),
        }
    }

    fn flatten(&mut self, name: &str, map: String) -> String {
        self.node("Flatten", name, vec![map], vec![integer("axis", 1)])
    }

    /// GroupNorm has an operation of its own only in later versions: that of instances does the same
    /// where the channels of a group stand one behind the other as one.
    fn group_norm(
        &mut self,
        layer: &Layer,
        channels: usize,
        input: String,
    ) -> Result<String, OnnxError> {
        let name = layer.name.as_str();
        let groups = group_count(channels);
        let grouped = self.integers(format!("{name}.groups"), &[0, groups as i64, -1]);
        let [ones, zeros] = [("ones", 1.0), ("zeros", 0.0)].map(|(what, number)| {
            self.floats(format!("{name}.{what}"), &[groups], &vec![number; groups])
        });
        let shape = self.node("Shape", &format!("{name}.shape"), vec![input.clone()], Vec::new());
        let reshape = format!("{name}.reshape");
        let value = self.node("Reshape", &reshape, vec![input, grouped], Vec::new());
        let inputs = vec![value, ones, zeros];
        let value = self.node("InstanceNormalization", name, inputs, vec![epsilon()]);
        let value = self.node("Reshape", &reshape, vec![value, shape], Vec::new());
        let [weight, bias] = [self.parameter(layer, "weight")?, self.parameter(layer, "bias")?]
            .map(|(name, values)| self.floats(name, &[channels, 1, 1], values));
        let value = self.node("Mul", &format!("{name}.scale"), vec![value, weight], Vec::new());
        Ok(self.node("Add", &format!("{name}.shift"), vec![value, bias], Vec::new()))
    }

    /// Adds an operation on `input` and the layer's parameters behind it. ONNX asks for them in the order in
    /// which PyTorch lists them.
    fn with_parameters(
        &mut self,
        kind: &str,
        layer: &Layer,
        input: String,
        attribute: Vec<AttributeProto>,
    ) -> Result<String, OnnxError> {
        let mut inputs = vec![input];
        for parameter in layer.parameters() {
            let values = self.values.get(&parameter.name);
            let values = values.filter(|values| values.len() == parameter.count());
            let values = values.ok_or_else(|| OnnxError::Missing(parameter.name.clone()))?;
            inputs.push(self.floats(parameter.name, &parameter.shape, values));
        }
        Ok(self.node(kind, &layer.name, inputs, attribute))
    }

    fn parameter(&self, layer: &Layer, what: &str) -> Result<(String, &'a [f32]), OnnxError> {
        let name = format!("{}.{what}", layer.name);
        match self.values.get(&name) {
            Some(values) => Ok((name, values)),
            None => Err(OnnxError::Missing(name)),
        }
    }

    /// (value − black) · gain for each channel of `input`, or the same for all.
    pub fn scaled(&mut self, input: String, scale: &[[f32; 2]]) -> String {
        let [black, gain] = [0, 1].map(|of| scale.iter().map(|pair| pair[of]).collect::<Vec<_>>());
        let shape = [scale.len(), 1, 1];
        let black = self.floats("normalize.black".to_owned(), &shape, &black);
        let gain = self.floats("normalize.gain".to_owned(), &shape, &gain);
        let value = self.node("Sub", "normalize.sub", vec![input, black], Vec::new());
        self.node("Mul", "normalize.mul", vec![value, gain], Vec::new())
    }

    /// value · deviation + mean for each output of a head.
    pub fn unstandardized(
        &mut self,
        head: &str,
        value: String,
        [mean, deviation]: [Vec<f32>; 2],
    ) -> String {
        let deviation =
            self.floats(format!("{head}.standardize.std"), &[deviation.len()], &deviation);
        let mean = self.floats(format!("{head}.standardize.mean"), &[mean.len()], &mean);
        let name = format!("{head}.standardize");
        let value = self.node("Mul", &name, vec![value, deviation], Vec::new());
        self.node("Add", &name, vec![value, mean], Vec::new())
    }

    /// Calls the value of `value` `name`, which nothing has used yet unless it is `shared`.
    pub fn call(&mut self, value: &str, name: &str, shared: bool) {
        let last = self.nodes.last_mut().filter(|node| !shared && node.output == [value]);
        match last {
            Some(node) => node.output = vec![name.to_owned()],
            None => self.nodes.push(NodeProto {
                input: vec![value.to_owned()],
                output: vec![name.to_owned()],
                name: format!("{name}/identity"),
                op_type: "Identity".to_owned(),
                attribute: Vec::new(),
            }),
        }
    }

    /// Adds an operation; the name of its value.
    fn node(
        &mut self,
        kind: &str,
        name: &str,
        input: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) -> String {
        let numbered = (2..).map(|number| format!("{name}_{number}"));
        let mut names = std::iter::once(name.to_owned()).chain(numbered);
        let free = names.find(|name| !name.is_empty() && !self.taken.contains(name));
        let name = free.unwrap_or_default();
        self.taken.insert(name.clone());
        let value = format!("{name}/output");
        let output = vec![value.clone()];
        self.nodes.push(NodeProto { input, output, name, op_type: kind.to_owned(), attribute });
        value
    }

    fn floats(&mut self, name: String, shape: &[usize], values: &[f32]) -> String {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let dims = shape.iter().map(|side| *side as i64).collect();
        self.constant(name, FLOAT_TENSOR, dims, bytes)
    }

    fn integers(&mut self, name: String, values: &[i64]) -> String {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant(name, INT64_TENSOR, vec![values.len() as i64], bytes)
    }

    fn constant(
        &mut self,
        name: String,
        data_type: i32,
        dims: Vec<i64>,
        raw_data: Vec<u8>,
    ) -> String {
        self.initializers.push(TensorProto { dims, data_type, name: name.clone(), raw_data });
        name
    }
}

/// The settings of a window that moves over a map.
fn windowed(window: Window) -> Vec<AttributeProto> {
    let Window { kernel, stride, padding } = window;
    vec![
        integers("kernel_shape", vec![kernel as i64; 2]),
        integers("pads", vec![padding as i64; 4]),
        integers("strides", vec![stride as i64; 2]),
    ]
}

fn epsilon() -> AttributeProto {
    let f = Some(EPSILON as f32);
    AttributeProto { name: "epsilon".to_owned(), f, kind: FLOAT, ..AttributeProto::default() }
}

fn integer(name: &str, value: i64) -> AttributeProto {
    let i = Some(value);
    AttributeProto { name: name.to_owned(), i, kind: INT, ..AttributeProto::default() }
}

fn integers(name: &str, ints: Vec<i64>) -> AttributeProto {
    AttributeProto { name: name.to_owned(), ints, kind: INTS, ..AttributeProto::default() }
}
