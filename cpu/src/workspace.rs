//! How much memory the passes of a convolution take beside what they read and write.

use crate::convolution::DEPTH;
use crate::matrix::packed;
use crate::unfold::Convolution;

/// Memory that is in use during a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Workspace {
    /// Values that are held once.
    pub(crate) shared: usize,
    /// Values that each thread which works on a part holds.
    pub(crate) each: usize,
    /// Parts, of which each thread works on one at a time.
    pub(crate) parts: usize,
}

impl Workspace {
    /// Bytes where so many threads work.
    pub fn bytes(&self, threads: usize) -> u64 {
        let values = self.shared + self.each * threads.min(self.parts);
        (values * size_of::<f32>()) as u64
    }

    fn beside(self, shared: usize) -> Self {
        Self { shared: self.shared + shared, ..self }
    }
}

impl Convolution {
    /// Of [`Convolution::forward`].
    pub fn forward_workspace(&self) -> Workspace {
        if let Some(winograd) = self.winograd() {
            return winograd.forward_workspace();
        }
        match self.turns_to_fewer() {
            true => self.turned().fold_workspace().beside(self.weights()),
            false => self.product_workspace(true),
        }
    }

    /// Of [`Convolution::of_maps`].
    pub fn of_maps_workspace(&self) -> Workspace {
        if let Some(winograd) = self.winograd() {
            return winograd.of_maps_workspace();
        }
        match (self.is_pointwise(), self.turns()) {
            (true, _) => self.turned().product_workspace(false),
            (_, true) => self.turned().product_workspace(true).beside(self.weights()),
            _ => self.fold_workspace(),
        }
    }

    /// Of [`Convolution::of_weight`].
    pub fn of_weight_workspace(&self) -> Workspace {
        if let Some(winograd) = self.winograd() {
            return winograd.of_weight_workspace();
        }
        match self.turns_to_fewer() {
            true => self.turned().sum_workspace().beside(self.weights()),
            false => self.sum_workspace(),
        }
    }

    /// Elements of the weight.
    fn weights(&self) -> usize {
        self.channels[0] * self.channels[1] * self.taps()
    }

    /// Pixels of the result that a part computes.
    fn tile(&self) -> usize {
        match self.together() {
            1 => self.band() * self.output()[1],
            together => together * self.output_pixels(),
        }
    }

    /// Of a forward pass by a weight whose rows have their elements side by side or not.
    fn product_workspace(&self, in_rows: bool) -> Workspace {
        let ([input, output], taps, tile) = (self.channels, self.taps(), self.tile());
        let unfolded = input.min((DEPTH / taps).max(1)) * taps;
        let scattered = if self.together() > 1 { output * tile } else { 0 };
        let rows = self.forward_rows();
        if rows < output {
            let (tiles, pixels) = (self.tile_count(), self.batch * self.output_pixels());
            let columns = if self.takes_no_columns() { 0 } else { unfolded * pixels };
            let beside = if self.together() > 1 { output * pixels } else { 0 };
            let depth = if self.takes_no_columns() { input } else { unfolded };
            let each = packed([tile, rows, depth], true, in_rows);
            return Workspace {
                shared: columns + beside,
                each,
                parts: tiles * output.div_ceil(rows),
            };
        }
        let each = match self.takes_no_columns() {
            true => packed([tile, output, input], true, in_rows),
            false => unfolded * tile + packed([tile, output, unfolded], true, in_rows),
        };
        Workspace { shared: 0, each: each + scattered, parts: self.tile_count() }
    }

    /// Of columns that are added up.
    fn fold_workspace(&self) -> Workspace {
        let ([input, output], taps, tile) = (self.channels, self.taps(), self.tile());
        let channels = self.fold_channels();
        let rows = input.min(channels) * taps;
        let taken = if self.together() > 1 { output * tile } else { 0 };
        let each = rows * tile + taken + packed([tile, rows, output], true, false);
        let groups = self.batch.div_ceil(self.together());
        Workspace { shared: 0, each, parts: groups * input.div_ceil(channels) }
    }

    /// Of the gradient of a weight.
    fn sum_workspace(&self) -> Workspace {
        let ([input, output], taps, tile) = (self.channels, self.taps(), self.tile());
        let channels = self.sum_channels();
        let rows = input.min(channels) * taps;
        let sums = self.sums(self.tile_count());
        let columns = if self.takes_no_columns() { 0 } else { rows * tile };
        let taken = if self.together() > 1 { output * tile } else { 0 };
        let each = columns + taken + packed([rows, output, tile], false, true);
        let parts = sums * input.div_ceil(channels);
        Workspace { shared: (sums - 1) * self.weights(), each, parts }
    }
}
