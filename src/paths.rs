//! Paths that users write: relative ones count from the folder in which the program is started, in
//! configurations and on the command line alike.

use std::path::Path;

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

    #[test]
    fn a_relative_path_is_told_with_the_folder_that_it_counts_from() {
        let here = std::env::current_dir().expect("a folder").display().to_string();
        assert_eq!(looked_in(Path::new("a/b.csv")), format!(" (looked in {here})"));
        assert_eq!(looked_in(Path::new("/a/b.csv")), "");
    }
}
