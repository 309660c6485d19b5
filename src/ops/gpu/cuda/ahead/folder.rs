//! Machine code kept in files for later processes.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// A folder of machine code: each file is named by a hash of all that the code is made from, and
/// begins with a hash of the code.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

const HASH: usize = blake3::OUT_LEN;

impl Folder {
    /// The name under which code is kept: a hash of everything in `sources`.
    pub(super) fn name(sources: &[&str]) -> String {
        let mut hasher = blake3::Hasher::new();
        for source in sources {
            hasher.update(&(source.len() as u64).to_le_bytes());
            hasher.update(source.as_bytes());
        }
        hasher.finalize().to_hex().to_string()
    }

    /// The code kept as `name`; `None` where there is none or the file is not as it was written.
    pub(super) fn read(&self, name: &str) -> Option<Vec<u8>> {
        let mut file = fs::read(self.0.join(name)).ok()?;
        if file.len() <= HASH {
            return None;
        }
        let code = file.split_off(HASH);
        (blake3::hash(&code).as_bytes() == file.as_slice()).then_some(code)
    }

    /// Keeps `code` as `name`. What cannot be written is compiled again another time.
    pub(super) fn write(&self, name: &str, code: &[u8]) {
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.0)?;
            // Other processes see the old file or the new one, whole.
            let unfinished = self.0.join(format!("{name}.{}", std::process::id()));
            let mut file = fs::File::create(&unfinished)?;
            file.write_all(blake3::hash(code).as_bytes())?;
            file.write_all(code)?;
            fs::rename(&unfinished, self.0.join(name))
        };
        let _ = write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comes_back_and_what_is_damaged_does_not() {
        let temporary = tempfile::tempdir().expect("a folder");
        let folder = Folder(temporary.path().join("kernels"));
        assert_eq!(folder.read("a"), None);
        folder.write("a", b"code");
        assert_eq!(folder.read("a").as_deref(), Some(b"code".as_slice()));
        let path = folder.0.join("a");
        let whole = fs::read(&path).expect("is there");
        for place in 0..whole.len() {
            let mut broken = whole.clone();
            broken[place] ^= 1;
            fs::write(&path, &broken).expect("writes");
            assert_eq!(folder.read("a"), None, "byte {place} is another");
            fs::write(&path, &whole[..place]).expect("writes");
            assert_eq!(folder.read("a"), None, "cut to {place} bytes");
        }
        folder.write("a", b"code");
        assert_eq!(folder.read("a").as_deref(), Some(b"code".as_slice()));
        assert_eq!(fs::read_dir(&folder.0).expect("is there").count(), 1);
    }

    #[test]
    fn names_tell_sources_apart() {
        let name = Folder::name(&["text", "-O3", "13.0"]);
        assert_eq!(name, Folder::name(&["text", "-O3", "13.0"]));
        for other in [["text", "-O3", "13.1"], ["text-", "O3", "13.0"], ["texu", "-O3", "13.0"]] {
            assert_ne!(name, Folder::name(&other), "{other:?}");
        }
    }
}
