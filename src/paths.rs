//! Paths that users write: relative ones count from the folder in which the program is started, in
//! configurations and on the command line alike.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use crate::screen::Bytes;

/// Opens a file to read it. A pipe or a device is refused, since it may have no beginning or no end.
///
/// # Errors
/// Those of the system, and what is no file.
pub fn open_file(path: &Path) -> io::Result<File> {
    let about = fs::metadata(path)?;
    match about.is_file() || about.is_dir() {
        true => File::open(path),
        false => Err(io::Error::other("it is a pipe or a device, and no file")),
    }
}

/// Reads a file of at most so many bytes.
///
/// # Errors
/// Those of [`open_file`], and a larger file.
pub fn read_file(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_file(path)?.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(io::Error::other(format!("it is larger than {}", Bytes(most)))),
        false => Ok(bytes),
    }
}

/// Where a relative `path` was looked for, to say behind it in a message: ` (looked in /home/me)`.
/// Nothing for an absolute path, which says so itself.
pub fn looked_in(path: &Path) -> String {
    match std::env::current_dir() {
        Ok(folder) if path.is_relative() => format!(" (looked in {})", folder.display()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_is_no_file_is_refused_and_not_waited_for() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("pipe.csv");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).expect("is made");
        for path in [&pipe, Path::new("/dev/zero"), Path::new("/dev/null")] {
            let error = read_file(path, 10).expect_err("is refused");
            assert_eq!(error.to_string(), "it is a pipe or a device, and no file");
        }
        let file = folder.path().join("file");
        fs::write(&file, "0123456789").expect("writes");
        assert_eq!(read_file(&file, 10).expect("reads"), b"0123456789");
        let error = read_file(&file, 9).expect_err("is larger");
        assert_eq!(error.to_string(), "it is larger than 9 B");
    }

    #[test]
    fn a_relative_path_is_told_with_the_folder_that_it_counts_from() {
        let here = std::env::current_dir().expect("a folder").display().to_string();
        assert_eq!(looked_in(Path::new("a/b.csv")), format!(" (looked in {here})"));
        assert_eq!(looked_in(Path::new("/a/b.csv")), "");
    }
}
