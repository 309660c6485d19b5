//! Finishing or undoing what a killed process left, and removing what is no longer needed.

use std::fs;

use super::{
    BEST, LAST, MANIFEST, NEW_BEST, NEW_LAST, OLD_BEST, OLDER, REMOVING, StateError, StateStore,
    read_state,
};
use crate::disk::{self, exists};

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
        // Else a power loss could leave the new best beside the old `last`.
        disk::sync_folder(&self.folder)?;
        // The new state counts, so its being the best does too.
        if self.is_copy_of_last(NEW_BEST) && self.is_intact(NEW_BEST)? {
            self.put_best_in_place()?;
        } else if !self.has(BEST) && self.has(OLD_BEST) {
            self.rename(OLD_BEST, BEST)?;
        }
        disk::sync_folder(&self.folder)?;
        for name in self.entries()? {
            if is_leftover(&name) {
                disk::remove_tree(&self.folder.join(name))?;
            }
        }
        Ok(disk::sync_folder(&self.folder)?)
    }

    /// Replaces `best` by `.saving-best`; the old one stays as `.best-old` for the caller to remove,
    /// once the new name is on the disk.
    pub(super) fn put_best_in_place(&self) -> Result<(), StateError> {
        if self.has(BEST) {
            self.remove(&[OLD_BEST])?;
            self.rename(BEST, OLD_BEST)?;
        }
        self.rename(NEW_BEST, BEST)
    }

    /// Removes the best before, and older states beyond the newest `keep` that look sound.
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
        let damaged = damaged.into_iter().filter(|_| enough);
        let gone: Vec<String> = surplus.into_iter().chain(damaged).collect();
        let names: Vec<&str> = gone.iter().map(String::as_str).chain([OLD_BEST]).collect();
        self.remove(&names)?;
        self.known_damaged.retain(|name| !gone.contains(name));
        Ok(())
    }

    /// Removes those of the folders that are there, so that neither a kill nor a power loss leaves half of one
    /// under its name.
    pub(super) fn remove(&self, names: &[&str]) -> Result<(), StateError> {
        let mut gone = Vec::new();
        for name in names.iter().filter(|name| self.has(name)) {
            let removing = format!("{REMOVING}{}", name.trim_start_matches('.'));
            if self.has(&removing) {
                disk::remove_tree(&self.folder.join(&removing))?;
            }
            self.rename(name, &removing)?;
            gone.push(self.folder.join(removing));
        }
        if !gone.is_empty() {
            disk::sync_folder(&self.folder)?;
        }
        gone.iter().try_for_each(|folder| Ok(disk::remove_tree(folder)?))
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
