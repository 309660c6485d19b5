//! Numbers in another order, with zeros among them or without.

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
    /// Numbers that lie at `places` among `room`, zeros elsewhere.
    pub fn padding(&self, places: &[usize], room: usize) -> Padding {
        let number =
            |place: usize| u32::try_from(place).expect("numbers are told apart by 32 bits");
        let mut padded = vec![u32::MAX; room];
        for (index, place) in places.iter().enumerate() {
            padded[*place] = number(index);
        }
        let places: Vec<u32> = places.iter().copied().map(number).collect();
        let [padded, places] = [padded, places].map(|table| self.gpu.upload_integers(&table));
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
        let sizes = Sizes::new().int(rows).int(values.len() / rows).int(index.len()).int(0);
        let grid = [blocks(index.len(), 256), rows.min(65_535), 1];
        self.gpu.launch(&self.get(GATHER), grid, &[values, index, &out], &sizes);
        out
    }
}
