//! What a resumed run goes on from.

use super::{BuildError, resume};
use crate::plan::Plan;
use crate::run::state::{Resumable, SavedState, StateStore};
use crate::run::{RunFolder, TrainState};

/// The saved states of a run folder.
pub(super) struct Saved {
    /// All of them; the first of several processes has them alone.
    pub store: Option<StateStore>,
    /// The newest that can be used; none where nothing was saved yet.
    pub newest: Option<Resumable>,
    /// Where in training that was saved.
    pub train_state: Option<TrainState>,
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
        let train_state = newest.as_ref().map(|newest| train_state(&newest.state)).transpose()?;
        let tables_are_known = train_state.as_ref().is_some_and(|state| state.data.is_some());
        resume::check_unchanged(folder.path(), &plan.to_toml()?, tables_are_known)?;
        if newest.is_none() {
            resume::check_never_saved(folder.path())?;
        }
        Ok(Self { store: Some(store), newest, train_state })
    }
}

/// Where in training a state was saved.
pub(super) fn train_state(state: &SavedState) -> Result<TrainState, BuildError> {
    let folder = state.folder.clone();
    TrainState::of(state).map_err(|source| BuildError::Restore { folder, source })
}
