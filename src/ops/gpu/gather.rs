//! Numbers in another order, with zeros among them or without.

use std::cell::LazyCell;

use super::kernels::{Entry, blocks, entry};
use super::{Buffer, Kernels, Sizes};

const GATHER: Entry = entry!("gather", 256, []);

/// Where numbers lie among others, on the GPU.
#[derive(Debug, Clone)]
pub struct Padding {
    /// For each number with zeros among them, which of those without it is, or none.
    padded: Buffer,
    /// For each number without zeros, where it lies among those with.
    places: Buffer,
}

impl Kernels {
    /// `count` numbers that lie at these places among `room`, zeros elsewhere. The places are asked for where there
    /// is a device: for all weights of a stage, finding them takes longer than the rest of a dry run.
    pub fn padding(
        &self,
        [count, room]: [usize; 2],
        places: impl FnOnce() -> Vec<usize>,
    ) -> Padding {
        let places = LazyCell::new(places);
        let number =
            |place: usize| u32::try_from(place).expect("numbers are told apart by 32 bits");
        let padded = self.gpu.integers(room, || {
            let mut padded = vec![u32::MAX; room];
            for (index, place) in places.iter().enumerate() {
                padded[*place] = number(index);
            }
            padded
        });
        let numbers = || places.iter().copied().map(number).collect::<Vec<_>>();
        let places = self.gpu.integers(count, numbers);
        Padding { padded, places }
    }

    /// `rows` rows of numbers with zeros among them.
    pub fn with_zeros(&self, values: &Buffer, padding: &Padding, rows: usize) -> Buffer {
        self.gather(values, &padding.padded, rows)
    }

    /// `rows` rows of numbers without the zeros among them.
    pub fn without_zeros(&self, values: &Buffer, padding: &Padding, rows: usize) -> Buffer {
        self.gather(values, &padding.places, rows)
    }

    fn gather(&self, values: &Buffer, index: &Buffer, rows: usize) -> Buffer {
        let out = self.floats(rows * index.len());
        let sizes = Sizes::of([rows, values.len() / rows, index.len(), 0]);
        let grid = [blocks(index.len(), 256), rows.min(65_535), 1];
        self.gpu.launch(&self.get(GATHER), grid, &[values, index, &out], &sizes);
        out
    }
}
