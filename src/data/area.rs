//! A rectangle of pixels in a plane.

/// A rectangle of whole pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Its first row.
    pub top: usize,
    /// Its first column.
    pub left: usize,
    /// How many rows.
    pub height: usize,
    /// How many columns.
    pub width: usize,
}

impl Area {
    /// All of a plane of `[height, width]`.
    pub fn whole([height, width]: [usize; 2]) -> Self {
        Self { top: 0, left: 0, height, width }
    }

    /// How many pixels.
    pub fn pixels(self) -> usize {
        self.height * self.width
    }

    /// Its rows in a plane that is `width` pixels wide.
    pub fn rows(self, plane: &[f32], width: usize) -> impl Iterator<Item = &[f32]> {
        let rows = plane.chunks_exact(width).skip(self.top).take(self.height);
        rows.map(move |row| &row[self.left..self.left + self.width])
    }

    /// Its rows in a plane that is `width` pixels wide.
    pub fn rows_mut(self, plane: &mut [f32], width: usize) -> impl Iterator<Item = &mut [f32]> {
        let rows = plane.chunks_exact_mut(width).skip(self.top).take(self.height);
        rows.map(move |row| &mut row[self.left..self.left + self.width])
    }
}
