//! Outputs where the device may run out of memory.

use super::{Images, Inference, TrainError};
use crate::memory::catch_out_of_memory;

impl Inference {
    /// [`Inference::outputs`] with at most `at_once` images in the network at once, which is halved for
    /// as long as memory does not suffice. The outputs do not depend on it.
    ///
    /// # Errors
    /// When memory does not suffice for a single image, or the device fails.
    pub fn outputs_that_fit(
        &self,
        images: Images<'_>,
        at_once: &mut usize,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        loop {
            let tried = (*at_once).clamp(1, images.count().max(1));
            match catch_out_of_memory(|| self.outputs(images, tried)) {
                Ok(outputs) => return Ok(outputs?),
                Err(out_of_memory) if tried == 1 => {
                    let advice = "Smaller images fit: `size` under [data.image], with a model \
                                  trained on such."
                        .to_owned();
                    return Err(TrainError::OutOfMemory { at_once: tried, out_of_memory, advice });
                }
                Err(_) => {
                    // Pages as large as what did not fit are of no more use.
                    self.device().memory_cleanup();
                    *at_once = tried / 2;
                }
            }
        }
    }
}
