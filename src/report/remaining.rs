//! How long a run still takes.

use std::time::Instant;

use super::lines::duration;
use super::{Epoch, Start};

/// Estimates the time that a run has left, from the epochs that were told.
///
/// An epoch's time is the median of those so far, evaluation included: the first one often takes
/// longer, when caches are filled and kernels compiled. Before an epoch has ended nothing is said.
#[derive(Debug, Default)]
pub struct Remaining {
    epochs: usize,
    /// Whether the run may end before its last epoch.
    may_stop: bool,
    /// Of each epoch told.
    seconds: Vec<f64>,
    /// The last epoch told, and when.
    last: Option<(usize, Instant)>,
}

impl Remaining {
    /// Of the run that starts.
    pub fn new(start: &Start) -> Self {
        Self { epochs: start.epochs, may_stop: start.may_stop_early, ..Self::default() }
    }

    /// Takes note of an epoch that ended at `now`.
    pub fn observe(&mut self, epoch: &Epoch, now: Instant) {
        let place = self.seconds.partition_point(|seconds| *seconds < epoch.seconds);
        self.seconds.insert(place, epoch.seconds);
        self.last = Some((epoch.epoch, now));
    }

    /// The time left at `now`, such as `17m44s`, and `at most 17m44s` where early stopping may end the
    /// run before. `None` while it is unknown, in a last epoch that takes longer than those before, and
    /// after it.
    pub fn told(&self, now: Instant) -> Option<String> {
        let (epoch, ended) = self.last?;
        let epochs = self.epochs.checked_sub(epoch).filter(|epochs| *epochs > 0)?;
        let middle = self.seconds.len() / 2;
        let each = match self.seconds.len().is_multiple_of(2) {
            true => (self.seconds[middle - 1] + self.seconds[middle]) / 2.0,
            false => self.seconds[middle],
        };
        // An epoch that takes longer than those before takes nothing from those to come.
        let under_way = (each - now.saturating_duration_since(ended).as_secs_f64()).max(0.0);
        let left = each * (epochs - 1) as f64 + under_way;
        let left = (left.is_finite() && left > 0.0).then(|| duration(left))?;
        Some(if self.may_stop { format!("at most {left}") } else { left })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(seconds: &[f64], may_stop_early: bool, later: u64) -> Option<String> {
        let start = Start { epochs: 10, may_stop_early, ..Start::default() };
        let (mut remaining, now) = (Remaining::new(&start), Instant::now());
        for (number, &seconds) in seconds.iter().enumerate() {
            remaining.observe(&Epoch { epoch: number + 1, seconds, ..Epoch::default() }, now);
        }
        remaining.told(now + Duration::from_secs(later))
    }

    #[test]
    fn what_is_left_is_the_median_epoch_for_each_that_is_to_come() {
        assert_eq!(after(&[], false, 0), None);
        assert_eq!(after(&[10.0], false, 0).as_deref(), Some("1m30s"));
        assert_eq!(after(&[10.0, 30.0], false, 0).as_deref(), Some("2m40s"));
        assert_eq!(after(&[300.0, 10.0, 12.0], false, 0).as_deref(), Some("1m24s"));
        assert_eq!(after(&[10.0], true, 0).as_deref(), Some("at most 1m30s"));
        assert_eq!(after(&[10.0; 10], false, 0), None);
    }

    #[test]
    fn it_goes_down_while_an_epoch_is_under_way_and_never_below_the_epochs_to_come() {
        assert_eq!(after(&[10.0], false, 4).as_deref(), Some("1m26s"));
        assert_eq!(after(&[10.0], false, 1000).as_deref(), Some("1m20s"));
        assert_eq!(after(&[10.0; 9], false, 4).as_deref(), Some("6.0s"));
        assert_eq!(after(&[10.0; 9], false, 1000), None);
    }

    #[test]
    fn a_time_that_is_no_number_is_not_told() {
        assert_eq!(after(&[f64::NAN], false, 0), None);
        assert_eq!(after(&[f64::INFINITY], false, 0), None);
    }
}
