//! What a resumed run goes on from.

use super::{BuildError, resume};
use crate::plan::Plan;
use crate::run::state::{Resumable, SavedState, StateStore};
use crate::run::{Position, RunFolder};

/// The saved states of a run folder.
pub(super) struct Saved {
    /// All of them.
    pub store: StateStore,
    /// The newest that can be used; none where nothing was saved yet.
    pub newest: Option<Resumable>,
    /// Where that stands.
    pub position: Option<Position>,
}

impl Saved {
    /// Opens the states in `folder`, whose run must be that of `plan`, which is given the weights that
    /// the run was started from where it names none.
    ///
    /// # Errors
    /// When the configuration is another one, states are gone, or none can be used.
    pub fn open(plan: &mut Plan, folder: &RunFolder) -> Result<Self, BuildError> {
        if plan.init.is_none() {
            plan.init = resume::init_of(folder.path());
        }
        let mut store = StateStore::open(folder.lock(), plan.run.save.keep)?;
        let newest = store.newest()?;
        let position = newest.as_ref().map(|newest| position(&newest.state)).transpose()?;
        let tables_are_known = position.as_ref().is_some_and(|position| position.data.is_some());
        resume::check_unchanged(folder.path(), &plan.to_toml()?, tables_are_known)?;
        if newest.is_none() {
            resume::check_never_saved(folder.path())?;
        }
        Ok(Self { store, newest, position })
    }
}

/// Where a saved state stands.
fn position(state: &SavedState) -> Result<Position, BuildError> {
    let folder = state.folder.clone();
    Position::of(state).map_err(|source| BuildError::Restore { folder, source })
}
