//! A folder for each class, with images in them; perhaps below folders `train`, `val` and `test`.

use std::path::{Path, PathBuf};

use super::{Found, Offer, OfferValues, entries, name};
use crate::data::image::has_ending;
use crate::data::layout::list_named;

/// Folders so far below that of a class are looked into.
const DEPTH: usize = 4;

/// Images in a folder for each class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassFolders {
    /// The folder that holds those of the classes, or of the lists.
    pub root: PathBuf,
    /// For each image its path from there, its class, and its list where there are folders for lists.
    pub images: Vec<(PathBuf, String, Option<String>)>,
}

/// What holds the class of an image, in the table that is made of the folders.
pub(super) const CLASS: &str = "class";

pub(super) fn find(root: &Path) -> Option<(Found, Vec<Offer>)> {
    let folders: Vec<PathBuf> = entries(root).into_iter().filter(|path| path.is_dir()).collect();
    let lists = folders.iter().filter(|path| list_named(&name(path)).is_some());
    let lists: Vec<&PathBuf> = lists.collect();
    let mut images = Vec::new();
    let mut add = |folder: &Path, list: Option<String>| {
        for class in entries(folder).into_iter().filter(|path| path.is_dir()) {
            let mut found = Vec::new();
            images_in(&class, DEPTH, &mut found);
            let named = found.into_iter().filter_map(|path| {
                Some((path.strip_prefix(root).ok()?.to_owned(), name(&class), list.clone()))
            });
            images.extend(named);
        }
    };
    match lists.is_empty() {
        true => add(root, None),
        false => lists.iter().for_each(|list| add(list, Some(name(list)))),
    }
    let mut classes: Vec<String> = images.iter().map(|(_, class, _)| class.clone()).collect();
    classes.sort();
    classes.dedup();
    if classes.len() < 2 {
        return None;
    }
    let values = OfferValues::Classes(classes);
    let offer = Offer { name: CLASS.to_owned(), values, proposed: true };
    Some((Found::Classes(ClassFolders { root: root.to_owned(), images }), vec![offer]))
}

fn images_in(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    for path in entries(folder) {
        if path.is_file() && has_ending(&path) {
            found.push(path);
        } else if depth > 1 && path.is_dir() {
            images_in(&path, depth - 1, found);
        }
    }
}
