//! A network as an ONNX file, from the list of its layers.
//!
//! The operators are those of version 17 of ONNX's own set (ONNX 1.12, July 2022), which common
//! runtimes know: <https://onnx.ai/onnx/operators/>.

mod graph;
mod proto;

use std::collections::BTreeMap;

use prost::Message;
use thiserror::Error;

use self::graph::Graph;
use self::proto::{
    Dimension, DimensionProto, FLOAT_TENSOR, GraphProto, ModelProto, OperatorSetIdProto,
    StringStringEntryProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use super::layers::{Size, StageLayers};
use super::{HeadConfig, Network};
use crate::data::Standardizer;

/// The version of the operators.
pub const OPSET: i64 = 17;

/// The version of the format itself that came with these operators.
const FORMAT: i64 = 8;

/// A protobuf message can be no larger.
const LARGEST: usize = i32::MAX as usize;

/// What an ONNX file is made of.
#[derive(Debug)]
pub struct OnnxModel<'a> {
    /// The name of the graph.
    pub name: &'a str,
    /// The network below the heads.
    pub network: &'a Network,
    /// The heads, each with how its numbers are standardised, where they are.
    pub heads: Vec<(&'a HeadConfig, Option<&'a Standardizer>)>,
    /// Parameters and running statistics by name, in row-major order.
    pub values: &'a BTreeMap<String, Vec<f32>>,
    /// What is taken off the images' grey levels, and what the difference is multiplied by, for each
    /// channel or once for all, where the graph is to do that.
    pub scale: Option<&'a [[f32; 2]]>,
    /// The file's metadata.
    pub metadata: &'a BTreeMap<String, String>,
}

/// A network cannot be written as ONNX.
#[derive(Debug, Error)]
pub enum OnnxError {
    /// A parameter that a layer needs is not among the values, or of another size.
    #[error("the weights have no `{0}` of the size that the network needs")]
    Missing(String),
    /// The file would be too large.
    #[error(
        "the network takes {0} bytes, and an ONNX file can be no larger than 2 GiB: export it as \
         SafeTensors"
    )]
    TooLarge(usize),
}

impl OnnxModel<'_> {
    /// The bytes of the file.
    ///
    /// Its input is `images` (`input`, where a head has that name): float32, `[batch, channels, height,
    /// width]`, normalised unless the graph does that. Its outputs are called after the heads and are
    /// `[batch, outputs]`: logits, and for `regression` numbers in the labels' own units, as
    /// [`Inference::outputs`](crate::train::Inference::outputs) gives them. The batch is free, and so are
    /// height and width, unless the network takes images of one size only.
    ///
    /// # Errors
    ///
    /// When values are missing, or a protobuf message cannot hold them.
    pub fn encode(&self) -> Result<Vec<u8>, OnnxError> {
        let model = self.model()?;
        match model.encoded_len() {
            length if length > LARGEST => Err(OnnxError::TooLarge(length)),
            _ => Ok(model.encode_to_vec()),
        }
    }

    fn model(&self) -> Result<ModelProto, OnnxError> {
        let entry = |(key, value): (&String, &String)| StringStringEntryProto {
            key: key.clone(),
            value: value.clone(),
        };
        Ok(ModelProto {
            ir_version: FORMAT,
            producer_name: env!("CARGO_PKG_NAME").to_owned(),
            graph: Some(self.graph()?),
            opset_import: vec![OperatorSetIdProto { domain: String::new(), version: OPSET }],
            metadata_props: self.metadata.iter().map(entry).collect(),
        })
    }

    fn graph(&self) -> Result<GraphProto, OnnxError> {
        let taken = self.heads.iter().any(|(head, _)| head.name == "images");
        let images = if taken { "input" } else { "images" };
        let mut graph = Graph::new(self.values);
        let mut value = images.to_owned();
        if let Some(scale) = self.scale {
            value = graph.scaled(value, scale);
        }
        for StageLayers { layers, .. } in self.network.layers() {
            value = graph.layers(layers, value)?;
        }
        for (head, standardizer) in &self.heads {
            let row = head.layers(self.network.features());
            let mut output = graph.layers(&row, value.clone())?;
            if let Some(Standardizer { mean, std }) = standardizer {
                let narrow =
                    |numbers: &[f64]| numbers.iter().map(|number| *number as f32).collect();
                output = graph.unstandardized(&head.name, output, [narrow(mean), narrow(std)]);
            }
            graph.call(&output, &head.name, output == value);
        }
        let outputs = self.heads.iter().map(|(head, _)| {
            let outputs = Dimension::Known(head.outputs() as i64);
            tensor(&head.name, [named("batch"), outputs])
        });
        Ok(GraphProto {
            node: graph.nodes,
            name: self.name.to_owned(),
            initializer: graph.initializers,
            input: vec![tensor(images, self.image())],
            output: outputs.collect(),
        })
    }

    /// The sizes of the input.
    fn image(&self) -> [Dimension; 4] {
        let Some(Size::Map(map)) = self.network.layers().first().map(|stage| &stage.input) else {
            unreachable!("a network is run on images");
        };
        let [channels, height, width] = map.map(|side| Dimension::Known(side as i64));
        match self.network.takes_other_sizes() {
            true => [named("batch"), channels, named("height"), named("width")],
            false => [named("batch"), channels, height, width],
        }
    }
}

fn named(name: &str) -> Dimension {
    Dimension::Named(name.to_owned())
}

/// A tensor of float32 numbers, as an input or an output.
fn tensor<const RANK: usize>(name: &str, sizes: [Dimension; RANK]) -> ValueInfoProto {
    let dim = sizes.map(|size| DimensionProto { value: Some(size) }).to_vec();
    let shape = Some(TensorShapeProto { dim });
    let tensor_type = Some(TensorTypeProto { elem_type: FLOAT_TENSOR, shape });
    ValueInfoProto { name: name.to_owned(), kind: Some(TypeProto { tensor_type }) }
}
