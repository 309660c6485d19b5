//! Images of one list that another list has too, under whatever name.

use std::collections::{BTreeSet, HashSet};
use std::io::{self, Read};
use std::path::Path;

use super::dataset::{Dataset, Sample};
use super::same_image::plain;
use crate::paths::open_file;

/// Bytes of a file that are looked at before all of it is: headers of DICOM files differ early.
const HEAD: u64 = 1 << 14;

/// The places in `list` of the images that `others` has too: the same file, or a file with the same
/// bytes. Images of arrays are told apart by file and number alone. Of the files only those are read
/// whose size, and then whose beginning, is that of a file of the other list; what cannot be read is in
/// neither.
pub fn shared_images(list: &Dataset, others: &Dataset) -> Vec<usize> {
    let name = |sample: &Sample| (plain(&sample.path), sample.item);
    let known: HashSet<_> = others.samples().iter().map(name).collect();
    let places = list.samples().iter().enumerate();
    let named = places.filter(|(_, sample)| known.contains(&name(sample)));
    let mut shared: BTreeSet<usize> = named.map(|(place, _)| place).collect();
    let rest: Vec<(usize, &Path)> =
        files(list).filter(|(place, _)| !shared.contains(place)).collect();
    let paths: Vec<&Path> = rest.iter().map(|(_, path)| *path).collect();
    let others: Vec<&Path> = files(others).map(|(_, path)| path).collect();
    shared.extend(same_content(&paths, &others).into_iter().map(|at| rest[at].0));
    shared.into_iter().collect()
}

/// The images that have a file of their own.
fn files(dataset: &Dataset) -> impl Iterator<Item = (usize, &Path)> {
    let samples = dataset.samples().iter().enumerate();
    samples.filter(|(_, sample)| sample.item.is_none()).map(|(at, sample)| (at, &*sample.path))
}

/// The places in `paths` of files with the bytes of one of `others`.
fn same_content(paths: &[&Path], others: &[&Path]) -> Vec<usize> {
    let (mut ours, mut theirs) = (numbered(paths), numbered(others));
    type Look = fn(&Path) -> io::Result<[u8; 32]>;
    let looks: [Look; 3] = [size, |path| hash(path, HEAD), |path| hash(path, u64::MAX)];
    for look in looks {
        let keyed = |files: Vec<(usize, &'_ Path)>| -> Vec<(usize, [u8; 32])> {
            files.into_iter().filter_map(|(at, path)| Some((at, look(path).ok()?))).collect()
        };
        let (own, other) = (keyed(ours), keyed(theirs));
        let keys = |of: &[(usize, [u8; 32])]| of.iter().map(|(_, key)| *key).collect();
        let (here, there): (HashSet<[u8; 32]>, HashSet<_>) = (keys(&own), keys(&other));
        let own = own.into_iter().filter(|(_, key)| there.contains(key));
        ours = own.map(|(at, _)| (at, paths[at])).collect();
        let other = other.into_iter().filter(|(_, key)| here.contains(key));
        theirs = other.map(|(at, _)| (at, others[at])).collect();
    }
    ours.into_iter().map(|(at, _)| at).collect()
}

fn numbered<'a>(paths: &[&'a Path]) -> Vec<(usize, &'a Path)> {
    paths.iter().copied().enumerate().collect()
}

fn size(path: &Path) -> io::Result<[u8; 32]> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&path.metadata()?.len().to_le_bytes());
    Ok(key)
}

/// A hash of the first bytes of a file.
fn hash(path: &Path, most: u64) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(open_file(path)?.take(most))?;
    Ok(hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_the_same_where_all_their_bytes_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let long = vec![7; HEAD as usize + 10];
        let mut tail = long.clone();
        tail[HEAD as usize + 5] = 8;
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("is written");
            path
        };
        let ours = [
            file("a", b"same"),
            file("b", b"size"),
            file("c", &long),
            file("d", &tail),
            folder.path().join("missing"),
            file("e", b"same"),
        ];
        let theirs = [file("x", &long), file("y", b"same"), file("z", b"lone"), ours[4].clone()];
        let ours: Vec<&Path> = ours.iter().map(std::path::PathBuf::as_path).collect();
        let theirs: Vec<&Path> = theirs.iter().map(std::path::PathBuf::as_path).collect();
        assert_eq!(same_content(&ours, &theirs), [0, 2, 5]);
        assert!(same_content(&ours, &[]).is_empty());
    }
}
