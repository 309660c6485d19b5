//! What carries activations and gradients between neighbouring devices.

use burn::tensor::{Device, Tensor, TensorData};

use super::PipelinePlace;
use crate::memory::Activation;
use crate::ops::gpu::Exchange;
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
/// No thread waits for a card where copy engines send: the one that receives waits until what sends has been launched, and the
/// one that sends until what receives the message before has been.
#[derive(Debug, Clone, Copy)]
pub struct Link<'a> {
    member: &'a Member,
    place: PipelinePlace,
    device: &'a Device,
    /// Channels that maps for its first stage get room for.
    room: usize,
}

impl<'a> Link<'a> {
    /// That of `member`, which has `place` in its pipeline and computes on `device`. Its first stage takes maps with
    /// [`room`](crate::memory::Stage::room) for so many channels.
    pub fn new(member: &'a Member, place: PipelinePlace, device: &'a Device, room: usize) -> Self {
        Self { member, place, device, room }
    }

    /// Which of the devices it is of.
    pub fn place(&self) -> PipelinePlace {
        self.place
    }

    /// Sends what `micro`-th micro-batch has come to: values to the device behind, gradients to the one
    /// before. Micro-batches are sent one after the other, from 0 on.
    ///
    /// Unwinds with [`Abandoned`](crate::parallel::Abandoned) when a device has failed.
    pub fn send(&self, flow: Flow, micro: usize, activation: Activation) {
        let receiver = match flow {
            Flow::Value => self.member.rank() + 1,
            Flow::Gradient => self.member.rank() - 1,
        };
        // A kernel that waits is launched when that for which it waits has been: whatever holds up a thread, the cards
        // come to the end of all that is launched.
        if let Some(earlier) = micro.checked_sub(1)
            && self.member.exchange().is_some()
        {
            self.member.take::<()>(&taken(flow, earlier, receiver));
        }
        let message = Message::new(activation, self.member.exchange(), receiver);
        self.member.post(&name(flow, micro, receiver), message);
    }

    /// Waits until `micro`-th micro-batch was sent here, and puts it on this device. The one behind it has `next` images, where there is one:
    /// cards have memory for it from here on.
    ///
    /// Unwinds with [`Abandoned`](crate::parallel::Abandoned) when a device has failed.
    pub fn receive(&self, flow: Flow, micro: usize, next: Option<usize>) -> Activation {
        let message: Message = self.member.take(&name(flow, micro, self.member.rank()));
        let (sender, room) = match flow {
            Flow::Value => (self.member.rank() - 1, self.room),
            Flow::Gradient => (self.member.rank() + 1, 0),
        };
        let activation = message.open(self.device, self.member.exchange(), [sender, room], next);
        if self.member.exchange().is_some() {
            self.member.post(&taken(flow, micro, self.member.rank()), ());
        }
        activation
    }
}

fn name(flow: Flow, micro: usize, receiver: usize) -> String {
    format!("{flow:?} of micro-batch {micro} to device {receiver}")
}

/// Says that the receiver has launched what takes it.
fn taken(flow: Flow, micro: usize, receiver: usize) -> String {
    format!("{}, taken", name(flow, micro, receiver))
}

/// An activation on its way. Here is decided how it goes: on the CPU as it is; between cards by their copy engines, and
/// through the host's memory what these do not take.
enum Message {
    /// In memory that all devices share.
    Shared(Box<Activation>),
    /// Sent by a copy engine.
    #[cfg(feature = "cuda")]
    OnCards(card::Sent),
    /// Maps between fused stages, as a card's memory has them.
    #[cfg(feature = "cuda")]
    Device(card::Copied),
    /// Feature maps.
    Map(TensorData),
    /// Pooled features.
    Features(TensorData),
    /// The heads' outputs.
    Outputs(Vec<TensorData>),
}

impl Message {
    /// That of `activation` for the device `to`, which is sent where copy engines do it: cards have an `exchange`.
    fn new(activation: Activation, exchange: Option<&Exchange>, to: usize) -> Self {
        if !is_on_gpu(&activation) {
            return Self::Shared(Box::new(activation));
        }
        #[cfg(feature = "cuda")]
        if let Some(sent) = exchange.and_then(|by| card::Sent::new(&activation, by, to)) {
            return Self::OnCards(sent);
        }
        #[cfg(not(feature = "cuda"))]
        let _ = (exchange, to);
        match activation {
            Activation::Map(map) => Self::Map(map.into_data()),
            Activation::Features(features) => Self::Features(features.into_data()),
            Activation::Outputs(outputs) => {
                Self::Outputs(outputs.into_iter().map(Tensor::into_data).collect())
            }
            #[cfg(feature = "cuda")]
            Activation::Device(map) => Self::Device(card::Copied::new(&map)),
        }
    }

    /// The activation, on `device`; it comes from the device `from`, and a map of a card's gets room for `room` channels. One of `next` images comes
    /// behind it.
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "cards alone exchange"))]
    fn open(
        self,
        device: &Device,
        exchange: Option<&Exchange>,
        [from, room]: [usize; 2],
        next: Option<usize>,
    ) -> Activation {
        match self {
            Self::Shared(activation) => *activation,
            #[cfg(feature = "cuda")]
            Self::OnCards(sent) => {
                sent.open(device, exchange.expect("it was sent by one"), [from, room], next)
            }
            #[cfg(feature = "cuda")]
            Self::Device(copied) => copied.open(device),
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

/// What goes from card to card.
#[cfg(feature = "cuda")]
mod card {
    use std::sync::Arc;

    use burn::tensor::{Device, Tensor, TensorData};

    use super::tensor;
    use crate::memory::Activation;
    use crate::ops::gpu::{
        Buffer, ChannelParts, ChannelsLast, DeviceMap, Exchange, Gpu, KnownOfChannels,
        MessageShape, OfChannels, Rows,
    };

    /// What the device that receives an activation from a copy engine must know of it.
    pub(super) struct Sent {
        message: MessageShape,
        shape: Shape,
    }

    enum Shape {
        Device(MapShape),
        Map([usize; 4]),
        Features([usize; 2]),
    }

    /// Maps between fused stages: batch, height, width, how channels lie in a row, and what is known of them.
    struct MapShape {
        size: [usize; 3],
        parts: Option<Arc<ChannelParts>>,
        known: KnownOfChannels,
    }

    /// Such maps in the host's memory.
    pub(super) struct Copied {
        shape: MapShape,
        rows: TensorData,
        pixels: usize,
        channels: usize,
        of_channels: Vec<TensorData>,
    }

    impl MapShape {
        /// That of `map`, and the arrays that say what is known of its channels.
        fn new(map: &DeviceMap) -> (Self, Vec<Buffer>) {
            let (known, arrays) = map.known();
            (Self { size: map.size, parts: map.parts.clone(), known }, arrays)
        }

        fn open(self, gpu: Gpu, data: ChannelsLast, of_channels: Vec<Buffer>) -> Activation {
            let Self { size, parts, known } = self;
            let map = DeviceMap { gpu, data, size, parts, stats: None, pending: None };
            Activation::Device(Box::new(map.knowing(known, of_channels)))
        }
    }

    impl Sent {
        /// Sends `activation` to the card `to`; none where copy engines do not.
        pub fn new(activation: &Activation, exchange: &Exchange, to: usize) -> Option<Self> {
            let (shape, rows, stride, from, of_channels) = match activation {
                Activation::Device(map) => {
                    let (shape, of_channels) = MapShape::new(map);
                    let (shape, rows) = (Shape::Device(shape), Rows::of_map(&map.data));
                    (shape, rows, map.data.stride(), map.data.buffer().clone(), of_channels)
                }
                Activation::Map(map) => {
                    let shape = map.dims();
                    flat(Shape::Map(shape), shape[0], map.clone().flatten(0, 3))
                }
                Activation::Features(features) => {
                    let shape = features.dims();
                    flat(Shape::Features(shape), shape[0], features.clone().flatten(0, 1))
                }
                Activation::Outputs(_) => return None,
            };
            let message = MessageShape { rows, of_channels: OfChannels::of(&of_channels) };
            let sent = exchange.send(to, &message, stride, &from, &of_channels);
            sent.then_some(Self { message, shape })
        }

        pub fn open(
            self,
            device: &Device,
            exchange: &Exchange,
            [from, room]: [usize; 2],
            next: Option<usize>,
        ) -> Activation {
            let Self { message, shape } = self;
            let gpu = Gpu::of(device).expect("a card was sent it");
            let (images, room) = match &shape {
                Shape::Device(map) => (map.size[0], room),
                Shape::Map(shape) => (shape[0], 0),
                Shape::Features(shape) => (shape[0], 0),
            };
            let next = next.map(|next| message.of_images(images, next));
            let (buffer, arrays) = exchange.receive(from, &message, room, next);
            match shape {
                Shape::Device(map) => {
                    let Rows { rows, length, .. } = message.rows;
                    let data = ChannelsLast::new(buffer, rows, message.stride(room));
                    let data = data.slice(0..length);
                    map.open(gpu, data, arrays)
                }
                Shape::Map(shape) => Activation::Map(gpu.tensor(&buffer, shape)),
                Shape::Features(shape) => Activation::Features(gpu.tensor(&buffer, shape)),
            }
        }
    }

    impl Copied {
        pub fn new(map: &DeviceMap) -> Self {
            let (shape, arrays) = MapShape::new(map);
            let copied = |array: &Buffer| map.gpu.tensor(array, [array.len()]).into_data();
            let of_channels = arrays.iter().map(copied).collect();
            let (pixels, channels) = (map.data.pixels(), map.data.channels());
            Self { shape, rows: map.rows().into_data(), pixels, channels, of_channels }
        }

        pub fn open(self, device: &Device) -> Activation {
            let Self { shape, rows, pixels, channels, of_channels } = self;
            let gpu = Gpu::of(device).expect("a card was sent it");
            let buffer = |data: TensorData| {
                let values: Tensor<1> = tensor(data, device);
                Buffer::of_tensor(values)
            };
            let rows = buffer(rows);
            let stride = rows.len() / pixels;
            let data = ChannelsLast::new(rows, pixels, stride).slice(0..channels);
            shape.open(gpu, data, of_channels.into_iter().map(buffer).collect())
        }
    }

    /// The numbers of a tensor, a row for each image.
    fn flat(
        shape: Shape,
        images: usize,
        tensor: Tensor<1>,
    ) -> (Shape, Rows, usize, Buffer, Vec<Buffer>) {
        let buffer = Buffer::of_tensor(tensor);
        let rows = Rows::of_buffer(&buffer, images);
        (shape, rows, rows.length, buffer, Vec::new())
    }
}
