//! What is on a GPU: buffers leave and come back by copies beside its kernels.

use std::sync::{Arc, Weak};

use burn::tensor::DType;

use super::item::{Away, Item};
use super::tensor::{Form, Values};
use super::{OffloadError, Shelf};
use crate::ops::gpu::{Buffer, Downloads, Gpu, Identity, Uploads};

/// What a shelf knows of the GPU.
#[derive(Debug, Default)]
pub(super) struct Side {
    downloads: Option<Downloads>,
    uploads: Option<Uploads>,
    /// What is away, to be found by others that keep the same.
    away: Vec<(Identity, Weak<Item>)>,
}

/// A buffer that is about to leave.
#[derive(Debug)]
pub(super) struct Leaver {
    gpu: Gpu,
    buffer: Buffer,
    item: Arc<Item>,
}

impl Shelf {
    fn downloads(&self, gpu: &Gpu) -> Downloads {
        *self.gpu.borrow_mut().downloads.get_or_insert_with(|| Downloads::new(gpu))
    }

    fn uploads(&self, gpu: &Gpu) -> Result<Uploads, OffloadError> {
        let known = &mut self.gpu.borrow_mut().uploads;
        if let Some(uploads) = known {
            return Ok(uploads.clone());
        }
        let uploads = Uploads::new(gpu).map_err(OffloadError::Device)?;
        Ok(known.insert(uploads).clone())
    }

    /// The item of `buffer`; if it is a new one, it is among `leavers`.
    pub(super) fn find_or_add(
        &self,
        gpu: Gpu,
        buffer: Buffer,
        leavers: &mut Vec<Leaver>,
    ) -> Arc<Item> {
        let away = &mut self.gpu.borrow_mut().away;
        away.retain(|(_, item)| item.strong_count() > 0);
        let identity = buffer.identity();
        let known = away.iter().find(|(known, _)| *known == identity);
        if let Some(item) = known.and_then(|(_, item)| item.upgrade()) {
            item.is_shared();
            return item;
        }
        let form = Form::Buffer(gpu.clone(), buffer.storage(), buffer.len());
        let item = Arc::new(Item::leaving(form));
        away.push((identity, Arc::downgrade(&item)));
        leavers.push(Leaver { gpu, buffer, item: Arc::clone(&item) });
        item
    }

    /// Begins to copy `leavers` to the host.
    pub(super) fn download(&self, leavers: Vec<Leaver>) {
        let Some(first) = leavers.first() else { return };
        let (downloads, gpu) = (self.downloads(&first.gpu), first.gpu.clone());
        let (buffers, items): (Vec<_>, Vec<_>) =
            leavers.into_iter().map(|leaver| (leaver.buffer, leaver.item)).unzip();
        let download = downloads.begin(&gpu, buffers);
        let disk = self.disk.clone();
        self.worker.give(move || match download.wait() {
            Ok(all) => {
                for (item, bytes) in items.iter().zip(all) {
                    item.has_left(match &disk {
                        None => Ok(Away::Host(bytes)),
                        Some(disk) => disk.write(&bytes).map(Away::Disk),
                    });
                }
            }
            Err(text) => {
                items
                    .iter()
                    .for_each(|item| item.has_left(Err(OffloadError::Device(text.clone()))));
            }
        });
    }

    /// Begins to copy those of `wanted` that belong on a GPU to it, and gives back the others.
    pub(super) fn upload(&self, wanted: Vec<Arc<Item>>) -> Result<Vec<Arc<Item>>, OffloadError> {
        let size = |item: &Arc<Item>| match item.form() {
            Form::Buffer(gpu, storage, length) => Some((gpu.clone(), *length, *storage)),
            Form::Data(..) => None,
        };
        let (ours, others): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|item| size(item).is_some());
        let sizes: Vec<(Gpu, usize, DType)> = ours.iter().filter_map(size).collect();
        let Some((gpu, ..)) = sizes.first() else { return Ok(others) };
        // Its memory may still be taken there, and would be a second time.
        ours.iter().try_for_each(|item| item.wait_until_left())?;
        let uploads = self.uploads(gpu)?;
        let rooms: Vec<_> = sizes.iter().map(|(_, length, storage)| (*length, *storage)).collect();
        let rooms = uploads.room(gpu, &rooms).map_err(OffloadError::Device)?;
        for (item, room) in ours.into_iter().zip(rooms) {
            let (gpu, uploads) = (gpu.clone(), uploads.clone());
            self.worker.give(move || {
                item.arrives(|mut bytes, _| {
                    uploads.pin(&mut bytes);
                    match uploads.upload(&bytes, room) {
                        Ok(buffer) => Ok(Values::Buffer(gpu, buffer)),
                        Err(text) => Err(OffloadError::Device(text)),
                    }
                });
            });
        }
        Ok(others)
    }
}
