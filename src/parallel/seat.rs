//! One device's place in the grid of all of them.

use std::sync::Arc;

use super::Member;
use super::group::Group;
use super::processes::Attempt;
use crate::ops::gpu::Exchange;

/// One device of a grid, for one piece of work. Without a pipeline the grid is a row; a pipeline is a column,
/// and several copies of it stand side by side.
#[derive(Debug)]
pub struct Seat {
    /// Its place among the devices with the same stages of the model, each of another copy, which share every
    /// batch.
    pub row: Arc<Member>,
    /// Its place among the devices that have the stages of one copy of the model between them.
    pub column: Arc<Member>,
}

impl Seat {
    /// That of `device`, of `devices` in columns of `depth`, which all meet in `group`. The cards of its row
    /// exchange sums, and those of its column messages, by `exchanges`.
    pub(super) fn in_grid(
        device: usize,
        [devices, depth]: [usize; 2],
        group: &Arc<Group>,
        [of_row, of_column]: [Option<Exchange>; 2],
    ) -> Self {
        let [copy, stage] = [device / depth, device % depth];
        let member = |place: [usize; 2], line: String, exchange: Option<Exchange>| {
            Arc::new(Member::new(place, line, Arc::clone(group), exchange))
        };
        Self {
            row: member([copy, devices / depth], format!("row {stage}"), of_row),
            column: member([stage, depth], format!("column {copy}"), of_column),
        }
    }

    /// That of a device that is a process, with the whole model. Cards exchange sums by `exchange`.
    pub(super) fn of_process(attempt: Attempt, exchange: Option<Exchange>) -> Self {
        let row = Arc::new(Member::of_process(attempt, exchange));
        Self { row, column: Arc::new(Member::alone()) }
    }
}
