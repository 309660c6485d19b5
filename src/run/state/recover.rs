//! Finishing or undoing what a killed process left, and removing what is no longer needed.

use std::fs;

use super::{
    BEST, LAST, MANIFEST, NEW_BEST, NEW_LAST, OLD_BEST, OLDER, REMOVING, StateError, StateStore,
    exists, read_state,
};

impl StateStore {
    /// Brings the folder to one of the two sides of a save that was cut off.
    ///
    /// Every step may itself be cut off and done again.
    pub(super) fn recover(&self) -> Result<(), StateError> {
        if !self.has_leftovers()? {
            return Ok(());
        }
        // The old `last` was moved away and the new one not yet in its place.
        if !self.has(LAST) && self.has(NEW_LAST) && self.is_intact(NEW_LAST)? {
            self.rename(NEW_LAST, LAST)?;
        }
        // The new state counts, so its being the best does too.
        if self.is_copy_of_last(NEW_BEST) && self.is_intact(NEW_BEST)? {
            self.put_best_in_place()?;
        } else if !self.has(BEST) && self.has(OLD_BEST) {
            self.rename(OLD_BEST, BEST)?;
        }
        self.disk.sync_folder(&self.folder)?;
        for name in self.entries()? {
            if is_leftover(&name) {
                self.disk.remove_tree(&self.folder.join(name))?;
            }
        }
        Ok(self.disk.sync_folder(&self.folder)?)
    }

    /// Replaces `best` by `.saving-best`; the old one stays as `.best-old` for the caller to remove,
    /// once the new name is on the disk.
    pub(super) fn put_best_in_place(&self) -> Result<(), StateError> {
        if self.has(BEST) {
            self.remove(OLD_BEST)?;
            self.rename(BEST, OLD_BEST)?;
        }
        self.rename(NEW_BEST, BEST)
    }

    /// Removes older states beyond the newest `keep` that look sound.
    ///
    /// `last`, just written, is intact, so the newest intact state is never among them.
    pub(super) fn prune(&mut self) -> Result<(), StateError> {
        let older = self.names()?.into_iter().filter(|name| name.starts_with(OLDER));
        let (mut sound, mut damaged) = (Vec::new(), Vec::new());
        for name in older {
            match self.glance(&name) {
                Some(tag) => sound.push((tag.order(), name)),
                None => damaged.push(name),
            }
        }
        sound.sort_unstable_by(|a, b| b.cmp(a));
        let surplus: Vec<String> = sound.iter().skip(self.keep).map(|(_, n)| n.clone()).collect();
        // Damaged ones hold up nothing once there are enough sound ones; until then their files may
        // be all that a person has to repair.
        let enough = sound.len() >= self.keep;
        for name in surplus.into_iter().chain(damaged.into_iter().filter(|_| enough)) {
            self.remove(&name)?;
            self.known_damaged.remove(&name);
        }
        Ok(())
    }

    /// Removes a folder, if it is there, so that no kill leaves half of it under its name.
    pub(super) fn remove(&self, name: &str) -> Result<(), StateError> {
        if !self.has(name) {
            return Ok(());
        }
        let removing = format!("{REMOVING}{}", name.trim_start_matches('.'));
        if self.has(&removing) {
            self.disk.remove_tree(&self.folder.join(&removing))?;
        }
        self.rename(name, &removing)?;
        Ok(self.disk.remove_tree(&self.folder.join(removing))?)
    }

    fn has_leftovers(&self) -> Result<bool, StateError> {
        Ok(self.entries()?.iter().any(|name| is_leftover(name)))
    }

    fn has(&self, name: &str) -> bool {
        exists(&self.folder.join(name))
    }

    /// What cannot be read may be intact, and is not thrown away.
    fn is_intact(&self, name: &str) -> Result<bool, StateError> {
        match read_state(&self.folder.join(name)) {
            Ok(_) => Ok(true),
            Err(StateError::Unusable { damaged, .. }) => {
                match damaged.into_iter().find(|damage| damage.unread) {
                    Some(damage) => Err(StateError::Unread { damage }),
                    None => Ok(false),
                }
            }
            Err(_) => Ok(false),
        }
    }

    fn is_copy_of_last(&self, name: &str) -> bool {
        let manifest = |name| fs::read(self.folder.join(name).join(MANIFEST)).ok();
        manifest(name).is_some_and(|bytes| manifest(LAST) == Some(bytes))
    }
}

fn is_leftover(name: &str) -> bool {
    name.starts_with(".saving-") || name.starts_with(REMOVING) || name == OLD_BEST
}
