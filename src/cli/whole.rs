//! Files that a command writes whole: they have their name when they are complete, and not before, so that what
//! is left of a command that was ended does not look complete.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is being written beside its place, as `<name>.partial`.
///
/// What is there already and no file, such as a pipe, is written in place.
#[derive(Debug)]
pub(super) struct Partial {
    partial: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// The empty file, and what puts it into its place.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(target: &Path) -> io::Result<(Self, File)> {
        // A link stays one.
        let target = fs::canonicalize(target).unwrap_or_else(|_| target.to_owned());
        let mut partial = target.clone();
        if fs::metadata(&target).map_or(true, |about| about.is_file()) {
            partial.as_mut_os_string().push(".partial");
        }
        let file = File::create(&partial)?;
        Ok((Self { partial, target }, file))
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn finish(&self) -> io::Result<()> {
        match self.partial == self.target {
            true => Ok(()),
            false => fs::rename(&self.partial, &self.target),
        }
    }

    /// Removes what has become of no use; that it cannot be removed is not told beside the reason.
    fn discard(&self) {
        if self.partial != self.target {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Writes a file whole or not at all.
///
/// # Errors
/// When it cannot be written; what was there before is there still.
pub(super) fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    let (partial, mut file) = Partial::create(path)?;
    let written = file.write_all(bytes.as_ref()).and_then(|()| partial.finish());
    written.inspect_err(|_| partial.discard())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_it_had_until_the_new_one_is_complete() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("rows.csv"), folder.path().join("link.csv"));
        write(&file, "old").expect("writes");
        std::os::unix::fs::symlink(&file, &link).expect("is linked");
        let (partial, mut open) = Partial::create(&link).expect("is made");
        open.write_all(b"new").expect("writes");
        assert_eq!(fs::read_to_string(&file).expect("reads"), "old");
        assert!(folder.path().join("rows.csv.partial").exists());
        partial.finish().expect("gets its name");
        assert_eq!(fs::read_to_string(&file).expect("reads"), "new");
        assert!(fs::symlink_metadata(&link).expect("is there").is_symlink());
        assert_eq!(fs::read_dir(folder.path()).expect("lists").count(), 2);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_no_file_is_written_in_place_and_a_refusal_is_told() {
        assert!(write(Path::new("/dev/null"), "a").is_ok());
        let error = write(Path::new("/dev/full"), "a").expect_err("it is full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(Path::new("/dev/full").exists());
    }
}
