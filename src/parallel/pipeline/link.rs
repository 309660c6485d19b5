//! What carries activations and gradients between neighbouring devices.

use burn::tensor::{Device, Tensor, TensorData};

use super::PipelinePlace;
use crate::memory::Activation;
use crate::ops::is_gpu;
use crate::parallel::Member;

/// What goes from one device to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// What a device's stages put out, on its way forward.
    Value,
    /// The gradient with respect to what they were given, on its way back.
    Gradient,
}

/// One device's connection to the device before it and to the one behind it.
///
/// Nobody waits where something is sent: what has not been received yet waits in host memory.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    member: &'a Member,
    place: PipelinePlace,
    device: &'a Device,
}

impl<'a> Link<'a> {
    /// That of `member`, which has `place` in its pipeline and computes on `device`.
    pub fn new(member: &'a Member, place: PipelinePlace, device: &'a Device) -> Self {
        Self { member, place, device }
    }

    /// Which of the devices it is of.
    pub fn place(&self) -> PipelinePlace {
        self.place
    }

    /// Sends what `micro`-th micro-batch has come to: values to the device behind, gradients to the one
    /// before.
    pub fn send(&self, flow: Flow, micro: usize, activation: Activation) {
        let receiver = match flow {
            Flow::Value => self.member.rank() + 1,
            Flow::Gradient => self.member.rank() - 1,
        };
        self.member.post(&name(flow, micro, receiver), Message::new(activation));
    }

    /// Waits for what was sent here of the `micro`-th micro-batch, and puts it on this device.
    ///
    /// Unwinds with [`Abandoned`](crate::parallel::Abandoned) when a device has failed.
    pub fn receive(&self, flow: Flow, micro: usize) -> Activation {
        let parcel: Message = self.member.take(&name(flow, micro, self.member.rank()));
        parcel.open(self.device)
    }
}

fn name(flow: Flow, micro: usize, receiver: usize) -> String {
    format!("{flow:?} of micro-batch {micro} to device {receiver}")
}

/// An activation on its way. Here is decided how it goes: on the CPU as it is; between cards through the
/// host's memory, since nothing of CubeCL's orders a copy from card to card among the kernels of both.
enum Message {
    /// In memory that all devices share.
    Shared(Box<Activation>),
    /// Feature maps.
    Map(TensorData),
    /// Pooled features.
    Features(TensorData),
    /// The heads' outputs.
    Outputs(Vec<TensorData>),
}

impl Message {
    fn new(activation: Activation) -> Self {
        if !is_on_gpu(&activation) {
            return Self::Shared(Box::new(activation));
        }
        match activation {
            Activation::Map(map) => Self::Map(map.into_data()),
            Activation::Features(features) => Self::Features(features.into_data()),
            Activation::Outputs(outputs) => {
                Self::Outputs(outputs.into_iter().map(Tensor::into_data).collect())
            }
            #[cfg(feature = "cuda")]
            Activation::Device(map) => {
                // The numbers of kernels, which the tensor has in 32 bits.
                let numbers = map.data.buffer().storage().dtype();
                Self::Map(map.to_tensor().cast(numbers).into_data())
            }
        }
    }

    fn open(self, device: &Device) -> Activation {
        match self {
            Self::Shared(activation) => *activation,
            Self::Map(data) => Activation::Map(tensor(data, device)),
            Self::Features(data) => Activation::Features(tensor(data, device)),
            Self::Outputs(all) => {
                Activation::Outputs(all.into_iter().map(|data| tensor(data, device)).collect())
            }
        }
    }
}

fn tensor<const D: usize>(data: TensorData, device: &Device) -> Tensor<D> {
    let numbers = data.dtype();
    Tensor::from_data(data, (device, numbers))
}

fn is_on_gpu(activation: &Activation) -> bool {
    match activation {
        Activation::Map(map) => is_gpu(&map.device()),
        Activation::Features(features) => is_gpu(&features.device()),
        Activation::Outputs(outputs) => {
            outputs.first().is_some_and(|output| is_gpu(&output.device()))
        }
        #[cfg(feature = "cuda")]
        Activation::Device(_) => true,
    }
}
