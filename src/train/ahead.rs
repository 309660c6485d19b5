//! Images that are copied to a GPU while it computes those before them.

use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{Device, Tensor};

use crate::data::Batch;
use crate::memory::Precision;

/// Some images of a batch that lies in host memory.
#[derive(Debug, Clone)]
pub struct BatchPart {
    /// The batch.
    pub batch: Arc<Batch>,
    /// Which of its images.
    pub images: Range<usize>,
}

impl PartialEq for BatchPart {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.batch, &other.batch) && self.images == other.images
    }
}

/// What copies images to one device ahead of their use. One part of a batch at a time is on its way or waits.
/// Without a GPU it does nothing.
#[derive(Default)]
pub struct Ahead {
    #[cfg(feature = "cuda")]
    gpu: Option<gpu::Side>,
}

impl Ahead {
    /// To `device`, for a model that computes in `precision`.
    pub fn new(device: &Device, precision: Precision) -> Self {
        #[cfg(feature = "cuda")]
        return Self { gpu: gpu::Side::new(device, precision) };
        #[cfg(not(feature = "cuda"))]
        {
            let _ = (device, precision);
            Self {}
        }
    }

    /// Whether it copies anything.
    pub fn is_on(&self) -> bool {
        #[cfg(feature = "cuda")]
        return self.gpu.is_some();
        #[cfg(not(feature = "cuda"))]
        false
    }

    /// Begins to copy `part`, in the place of what has been copied and not been taken. Where there is no memory
    /// for it, nothing is copied.
    pub fn send(&self, part: Option<BatchPart>) {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = &self.gpu {
            gpu.send(part);
        }
        #[cfg(not(feature = "cuda"))]
        drop(part);
    }

    /// `[images, channels, height, width]`: the images of `part`, in 16 bits where the model computes in bf16, else in 32. Where they
    /// have not been sent, they are now. None where that cannot be done.
    pub fn take(&self, part: &BatchPart) -> Option<Tensor<4>> {
        #[cfg(feature = "cuda")]
        return self.gpu.as_ref()?.take(part);
        #[cfg(not(feature = "cuda"))]
        {
            let _ = part;
            None
        }
    }
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use burn::tensor::{Bytes, DType, Device, Tensor, bf16};
    use rayon::prelude::*;

    use super::BatchPart;
    use crate::memory::Precision;
    use crate::memory::offload::Worker;
    use crate::ops::gpu::{Buffer, Gpu, Uploads};

    /// What copies to a GPU.
    pub(super) struct Side {
        gpu: Gpu,
        storage: DType,
        uploads: Uploads,
        worker: Worker,
        sent: Mutex<Option<Sent>>,
        /// The most numbers of a part so far. Shorter ones take as much memory, so that it is the same in every step.
        most: AtomicUsize,
        /// Pinned memory that each part is put into before it is copied. Memory that the system gives out anew costs several times
        /// what writing to it does.
        staged: Arc<Mutex<Bytes>>,
    }

    /// Images on their way.
    struct Sent {
        part: BatchPart,
        done: Receiver<Result<Buffer, String>>,
    }

    impl Side {
        /// `None` without a GPU, or where the driver has no more streams or the system no more threads.
        pub fn new(device: &Device, precision: Precision) -> Option<Self> {
            let gpu = Gpu::of(device)?;
            let storage = match precision {
                Precision::Bf16 => DType::BF16,
                _ => DType::F32,
            };
            let (uploads, worker) = (Uploads::new(&gpu).ok()?, Worker::start("images").ok()?);
            let (sent, most) = (Mutex::default(), AtomicUsize::default());
            let staged = Arc::new(Mutex::new(Bytes::from_elems(Vec::<u8>::new())));
            Some(Self { gpu, storage, uploads, worker, sent, most, staged })
        }

        pub fn send(&self, part: Option<BatchPart>) {
            let mut sent = self.sent();
            if sent.as_ref().map(|sent| &sent.part) == part.as_ref() {
                return;
            }
            // What is on its way is not cut short: the memory is free when it has come.
            *sent = None;
            let Some(part) = part else { return };
            let length = part.batch.shape[1..].iter().product::<usize>() * part.images.len();
            let most = self.most.fetch_max(length, Ordering::Relaxed).max(length);
            let room = self.uploads.room(&self.gpu, &[(most, self.storage)]);
            let Some(room) = room.ok().and_then(|mut rooms| rooms.pop()) else { return };
            let room = room.first(length);
            let (to_send, storage) = (part.clone(), self.storage);
            let (uploads, staged) = (self.uploads.clone(), Arc::clone(&self.staged));
            let (tell, done) = sync_channel(1);
            self.worker.give(move || {
                let mut staged = staged.lock().unwrap_or_else(PoisonError::into_inner);
                if staged.len() < most * storage.size() {
                    *staged = Bytes::from_elems(vec![0_u8; most * storage.size()]);
                    uploads.pin(&mut staged);
                }
                let bytes = &mut staged[..length * storage.size()];
                put_in_a_row(&to_send.batch.images[to_send.images], storage, bytes);
                drop(to_send.batch);
                // Nobody may want to know any more.
                let _ = tell.send(uploads.upload(bytes, room));
            });
            *sent = Some(Sent { part, done });
        }

        pub fn take(&self, part: &BatchPart) -> Option<Tensor<4>> {
            self.send(Some(part.clone()));
            let sent = self.sent().take()?;
            // An error shows where the images are copied in the usual way.
            let buffer = sent.done.recv().ok()?.ok()?;
            let [_, channels, height, width] = part.batch.shape;
            Some(self.gpu.tensor(&buffer, [part.images.len(), channels, height, width]))
        }

        fn sent(&self) -> MutexGuard<'_, Option<Sent>> {
            self.sent.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    /// Threads that put images in a row. One may take as long as a GPU takes to evaluate them.
    const THREADS: usize = 4;

    /// Writes the values of all images into `bytes`, one image behind the other.
    fn put_in_a_row(images: &[Vec<f32>], storage: DType, bytes: &mut [u8]) {
        let write = |image: &[f32], row: &mut [u8]| match storage {
            DType::BF16 => {
                let numbers = row.as_chunks_mut().0.iter_mut().zip(image);
                numbers.for_each(|(to, value)| *to = bf16::from_f32(*value).to_ne_bytes());
            }
            _ => {
                let numbers = row.as_chunks_mut().0.iter_mut().zip(image);
                numbers.for_each(|(to, value)| *to = value.to_ne_bytes());
            }
        };
        let each = (bytes.len() / images.len().max(1)).max(1);
        let share = images.len().div_ceil(THREADS).max(1);
        let shares = bytes.par_chunks_mut(share * each).zip(images.par_chunks(share));
        shares.for_each(|(rows, images)| {
            rows.chunks_mut(each).zip(images).for_each(|(row, image)| write(image, row));
        });
    }
}
