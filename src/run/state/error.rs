//! What can go wrong with saved states, in the user's words.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::manifest::Damage;
use crate::disk::DiskError;

/// Saving or reading a saved state failed.
#[derive(Debug, Error)]
pub enum StateError {
    /// A file or folder could not be written, moved or removed.
    #[error(
        "cannot save to {}: {source}\nThe states saved before are untouched. {advice}",
        path.display()
    )]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
        /// What the user can do.
        advice: &'static str,
    },
    /// The run folder could not be listed.
    #[error("cannot read {}: {source}\nMake it readable for this user.", path.display())]
    Read {
        /// The run folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The newest state cannot be read; it may be sound.
    #[error(
        "the newest saved state cannot be read:\n  {damage}\nNothing was changed. Make it readable, or see \
         that its disk works, then try again; once {} is moved away, the state before it is used.",
        damage.folder.display()
    )]
    Unread {
        /// What the system refused to read.
        damage: Damage,
    },
    /// There are saved states, and each has a fault.
    #[error(
        "no saved state in {} can be used:\n{}\nRestore one of these folders from a copy, or \
         start again with --overwrite.",
        folder.display(),
        list(damaged)
    )]
    NoneUsable {
        /// The run folder.
        folder: PathBuf,
        /// Every fault found.
        damaged: Vec<Damage>,
    },
    /// The one state asked for has a fault.
    #[error(
        "the saved state {} cannot be used:\n{}\nRestore it from a copy, or name another one.",
        folder.display(),
        list(damaged)
    )]
    Unusable {
        /// The state's folder.
        folder: PathBuf,
        /// Every fault found.
        damaged: Vec<Damage>,
    },
    /// A file name that a state cannot hold, or holds twice.
    #[error("a saved state cannot hold a file named {name:?} ({why})")]
    Name {
        /// The name.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// The manifest could not be written as JSON.
    #[error("cannot describe the state to save")]
    Manifest(#[from] serde_json::Error),
}

impl StateError {
    /// The program's exit code: 5 for a saved state that cannot be used, else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoneUsable { .. } | Self::Unusable { .. } | Self::Unread { .. } => 5,
            _ => 1,
        }
    }
}

impl From<DiskError> for StateError {
    fn from(error: DiskError) -> Self {
        let advice = advice(error.source.kind());
        Self::Write { path: error.path, source: error.source, advice }
    }
}

fn advice(kind: io::ErrorKind) -> &'static str {
    match kind {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "Free space on that disk, or lower `run.save.keep`, then continue with --resume."
        }
        io::ErrorKind::PermissionDenied => {
            "Make the run folder writable for this user, then continue with --resume."
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "That disk is mounted read-only: mount it for writing, then continue with --resume, \
             or put the run elsewhere with --set run.output=<folder>."
        }
        io::ErrorKind::NotFound => {
            "Something removed or renamed the run folder, or a part of it, while the run was on."
        }
        _ => "Check that disk, then continue with --resume.",
    }
}

fn list(damaged: &[Damage]) -> String {
    damaged.iter().map(|damage| format!("  {damage}")).collect::<Vec<_>>().join("\n")
}
