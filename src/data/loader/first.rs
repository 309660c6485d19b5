//! A look at the first image of each data set.

use super::{Loader, worker};
use crate::contain::contained;
use crate::data::config::OnBadImage;
use crate::data::error::DataError;
use crate::memory::measure::apart_while;

impl Loader {
    /// Loads the first image of each of the `sources` (their names below `data`), so that a wrong
    /// folder or shape is found before anything depends on it.
    ///
    /// With `on_bad_image = "skip"` it is enough that one of the first images can be loaded, up to one
    /// more than the `limit` that a run may skip.
    ///
    /// # Errors
    /// The first image of the first data set that has none.
    pub fn check_first(&self, sources: &[String], limit: usize) -> Result<(), DataError> {
        let tries = match self.shared.config.on_bad_image {
            OnBadImage::Stop => 1,
            OnBadImage::Skip => limit.saturating_add(1),
        };
        let samples = self.shared.dataset.samples();
        for (number, source) in sources.iter().enumerate() {
            let of = (0..samples.len()).filter(|index| samples[*index].source == number);
            let (mut first, mut tried) = (None, 0);
            for index in of.take(tries) {
                tried += 1;
                match self.load_alone(index) {
                    Ok(()) => {
                        first = None;
                        break;
                    }
                    Err(reason) => {
                        first.get_or_insert_with(|| worker::bad_image(&self.shared, index, reason));
                    }
                }
            }
            if let Some(image) = first {
                let place = source.clone();
                return Err(DataError::NoFirstImage { place, tried, image });
            }
        }
        Ok(())
    }

    /// Loads an image as an epoch would, or says why it cannot be.
    fn load_alone(&self, index: usize) -> Result<(), String> {
        let load = || contained(|| worker::load(&self.shared, 0, index));
        apart_while(load).and_then(|loaded| loaded).map(drop)
    }
}
