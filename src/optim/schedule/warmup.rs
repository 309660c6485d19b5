//! The rise before a schedule's fall.

/// A rise over the first steps and a fall over the rest.
#[derive(Debug, Clone)]
pub(super) struct Warmup {
    /// Steps of the rise.
    rise: usize,
    total: usize,
}

/// Where a step is.
pub(super) enum Place {
    /// In the rise: the share of the full rate, above 0.
    Rise(f64),
    /// In the fall: 0 at its first step, 1 at the last step of the training and beyond.
    Fall(f64),
}

impl Warmup {
    pub(super) fn new(epochs: f64, steps_per_epoch: usize, total: usize) -> Self {
        let rise = (epochs * steps_per_epoch as f64).round() as usize;
        Self { rise: rise.min(total), total }
    }

    /// The rate of step 0 is a share 1 / rise of the full one, which the last step of the rise has.
    pub(super) fn place(&self, step: usize) -> Place {
        let step = step.min(self.total - 1);
        if step < self.rise {
            return Place::Rise((step + 1) as f64 / self.rise as f64);
        }
        let length = self.total - 1 - self.rise;
        // A fall of one step is its last one, but where the whole training is that step.
        let progress = match length {
            0 if self.total == 1 => 0.0,
            0 => 1.0,
            _ => (step - self.rise) as f64 / length as f64,
        };
        Place::Fall(progress)
    }
}
