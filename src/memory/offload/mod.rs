//! Moves what is put aside for the backward pass off the device, and back ahead of its use.
//!
//! A [`Store`] takes [`OffloadTensor`]s and gives an [`OffloadTicket`]; the ticket is fetched a while before it lands
//! in the same tensors. Copies run beside the computation: on a GPU on a stream of their own (see
//! [`crate::ops::gpu::Uploads`]), and the thread of the store waits for them, writes and reads the
//! file. One ticket at a time is on its way out: sending the next waits for the memory of the one
//! before it, without which all of them would be on the device still when the last one is sent.
//!
//! A buffer that two stages keep leaves once and comes back once.

mod disk;
mod error;
mod item;
mod tensor;
mod worker;

#[cfg(feature = "cuda")]
mod gpu;

#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::{Arc, Weak};

use burn::tensor::{Bytes, TensorData};

pub use error::OffloadError;
pub use tensor::OffloadTensor;

use super::OffloadConfig;
use disk::Disk;
use item::{Away, Item};
use tensor::{Form, Values};
pub use worker::Worker;

/// Where what is put aside waits for the backward pass.
#[derive(Debug)]
pub struct Store(Option<Shelf>);

/// Pieces off the device; what they take there is free again when this is dropped.
#[derive(Debug)]
#[must_use = "what was moved away is lost without it"]
pub struct OffloadTicket {
    items: Vec<Arc<Item>>,
    fetched: bool,
}

#[derive(Debug)]
struct Shelf {
    /// None where things stay in host memory.
    disk: Option<Arc<Disk>>,
    worker: Worker,
    /// What was sent last.
    leaving: RefCell<Vec<Weak<Item>>>,
    #[cfg(feature = "cuda")]
    gpu: RefCell<gpu::Side>,
}

impl Store {
    /// Nothing leaves the device.
    pub fn nowhere() -> Self {
        Self(None)
    }

    /// As `config` has it.
    ///
    /// # Errors
    ///
    /// When no file can be made in the folder.
    pub fn open(config: &OffloadConfig) -> Result<Self, OffloadError> {
        let disk = match config {
            OffloadConfig::None(_) => return Ok(Self::nowhere()),
            OffloadConfig::Host(_) => None,
            OffloadConfig::Disk(disk) => Some(Disk::open(&disk.path)?),
        };
        Ok(Self(Some(Shelf {
            disk,
            worker: Worker::start("offload")?,
            leaving: RefCell::default(),
            #[cfg(feature = "cuda")]
            gpu: RefCell::default(),
        })))
    }

    /// Begins to move `tensors` away, and waits until those sent before have left the device.
    ///
    /// # Errors
    ///
    /// When those before could not be moved.
    pub fn send(&self, tensors: Vec<OffloadTensor<'_>>) -> Result<OffloadTicket, OffloadError> {
        let Some(shelf) = &self.0 else {
            return Ok(OffloadTicket { items: Vec::new(), fetched: false });
        };
        for item in shelf.leaving.take().iter().filter_map(Weak::upgrade) {
            item.wait_until_left()?;
        }
        let taken = tensors.into_iter().map(OffloadTensor::take).collect();
        let items = shelf.send(taken);
        shelf.leaving.replace(items.iter().map(Arc::downgrade).collect());
        Ok(OffloadTicket { items, fetched: false })
    }

    /// Begins to bring `ticket` back.
    ///
    /// # Errors
    ///
    /// When the device has no room, by unwinding as [`OutOfMemory`](super::OutOfMemory); other
    /// failures of the device.
    pub fn fetch(&self, ticket: &mut OffloadTicket) -> Result<(), OffloadError> {
        let Some(shelf) = &self.0 else { return Ok(()) };
        match std::mem::replace(&mut ticket.fetched, true) {
            true => Ok(()),
            false => shelf.fetch(&ticket.items),
        }
    }

    /// What is in `ticket`, each tensor flat, which stays away.
    ///
    /// # Errors
    ///
    /// When it could not be moved away or cannot be read.
    pub fn read(&self, ticket: &OffloadTicket) -> Result<Vec<TensorData>, OffloadError> {
        ticket.items.iter().map(|item| item.read()).collect()
    }

    /// Waits for `ticket` and puts what is in it back into `tensors`: those it was sent from.
    ///
    /// # Errors
    ///
    /// When it could not be moved away or brought back.
    pub fn restore(
        &self,
        mut ticket: OffloadTicket,
        tensors: Vec<OffloadTensor<'_>>,
    ) -> Result<(), OffloadError> {
        self.fetch(&mut ticket)?;
        for (item, tensor) in ticket.items.into_iter().zip(tensors) {
            tensor.put(item.take()?);
        }
        Ok(())
    }
}

impl Shelf {
    fn send(&self, taken: Vec<Values>) -> Vec<Arc<Item>> {
        let mut items = Vec::with_capacity(taken.len());
        #[cfg(feature = "cuda")]
        let mut buffers = Vec::new();
        for values in taken {
            match values {
                Values::Data(data) => {
                    let item = Arc::new(Item::leaving(Form::of_data(&data)));
                    self.put_aside(&item, data.into_bytes());
                    items.push(item);
                }
                #[cfg(feature = "cuda")]
                Values::Buffer(gpu, buffer) => {
                    items.push(self.find_or_add(gpu, buffer, &mut buffers));
                }
            }
        }
        #[cfg(feature = "cuda")]
        self.download(buffers);
        items
    }

    fn put_aside(&self, item: &Arc<Item>, bytes: Bytes) {
        match &self.disk {
            None => item.has_left(Ok(Away::Host(bytes))),
            Some(disk) => {
                let (item, disk) = (Arc::clone(item), Arc::clone(disk));
                self.worker.give(move || item.has_left(disk.write(&bytes).map(Away::Disk)));
            }
        }
    }

    fn fetch(&self, items: &[Arc<Item>]) -> Result<(), OffloadError> {
        let wanted: Vec<Arc<Item>> =
            items.iter().filter(|item| item.is_first_wanted()).cloned().collect();
        #[cfg(feature = "cuda")]
        let wanted = self.upload(wanted)?;
        for item in wanted {
            self.worker.give(move || item.arrives(Values::of_bytes));
        }
        Ok(())
    }
}
