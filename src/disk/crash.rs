//! Every disk that may be found after a power loss.
//!
//! A file system keeps files and folders by number; a folder is a map from names to numbers. What a program does
//! becomes effects on them: names that are set and removed (one effect an operation, since file systems do a
//! rename whole or not at all), bytes that are written, lengths that are set. An effect *lasts* from the first
//! sync of its file or folder on. After a power loss every lasting effect is found, and of the others any
//! subset: of each write nothing, all, zeros in its place, or one half and not the other.
//!
//! That is more than ext4 (data=ordered) and XFS allow. Both journal names in their order, and a sync of a file
//! brings all earlier names with it; here names are lost singly and in any order, as in the weakest model of
//! Pillai et al., "All File Systems Are Not Created Equal" (ALICE, OSDI 2014), and a crash may come after any
//! operation and not only after a sync, as Mohan et al. do (CrashMonkey, OSDI 2018). What survives here survives
//! there.
//!
//! Subsets are tried all where there are at most [`Bound::all`] of them. Where there are more, these are: every
//! beginning of the effects, with every fate of the data; all but one or two effects; one or two effects
//! alone; and as many at random as the bound says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path};

use rand::RngExt;

use super::watch::Logged;

/// A file or folder, whatever its name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Folder(BTreeMap<String, usize>),
    File(Vec<u8>),
}

/// A disk. Node 0 is the folder that is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileTree {
    nodes: Vec<Node>,
}

impl FileTree {
    /// What is in `folder` now.
    pub fn of(folder: &Path) -> Self {
        let mut tree = Self { nodes: Vec::new() };
        tree.read(folder);
        tree
    }

    fn read(&mut self, path: &Path) -> usize {
        let number = self.nodes.len();
        if !path.is_dir() {
            self.nodes.push(Node::File(fs::read(path).expect("reads")));
            return number;
        }
        self.nodes.push(Node::Folder(BTreeMap::new()));
        for entry in fs::read_dir(path).expect("lists") {
            let entry = entry.expect("lists");
            // Locks are of processes; none outlives a power loss.
            if ["lock", ".lock"].iter().any(|lock| entry.file_name() == *lock) {
                continue;
            }
            let child = self.read(&entry.path());
            self.names(number).insert(entry.file_name().into_string().expect("UTF-8"), child);
        }
        number
    }

    fn names(&mut self, folder: usize) -> &mut BTreeMap<String, usize> {
        match &mut self.nodes[folder] {
            Node::Folder(names) => names,
            Node::File(_) => panic!("{folder} is no folder"),
        }
    }

    fn bytes(&mut self, file: usize) -> &mut Vec<u8> {
        match &mut self.nodes[file] {
            Node::File(bytes) => bytes,
            Node::Folder(_) => panic!("{file} is no file"),
        }
    }

    /// The node at a path below the root.
    fn at(&mut self, path: &[String]) -> usize {
        path.iter().fold(0, |folder, name| {
            let found = self.names(folder).get(name).copied();
            found.unwrap_or_else(|| {
                panic!("{path:?} is changed and was not made through this layer")
            })
        })
    }

    /// Path and contents of everything that has a name; `None` for folders.
    fn list(&self) -> BTreeMap<String, Option<&[u8]>> {
        let mut found = BTreeMap::new();
        let mut open = vec![(String::new(), 0)];
        while let Some((path, number)) = open.pop() {
            match &self.nodes[number] {
                Node::File(bytes) => drop(found.insert(path, Some(bytes.as_slice()))),
                Node::Folder(names) => {
                    open.extend(names.iter().map(|(name, node)| (format!("{path}/{name}"), *node)));
                    found.insert(path, None);
                }
            }
        }
        found
    }

    /// The same for disks in which the same is found.
    fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (path, contents) in self.list() {
            hasher.update(path.as_bytes());
            hasher.update(&[0, u8::from(contents.is_some())]);
            let bytes = contents.unwrap_or_default();
            hasher.update(&bytes.len().to_le_bytes());
            hasher.update(bytes);
        }
        *hasher.finalize().as_bytes()
    }

    /// Makes it in `folder`, which is empty.
    fn make(&self, folder: &Path) {
        for (path, contents) in self.list() {
            let path = folder.join(path.trim_start_matches('/'));
            match contents {
                None => fs::create_dir_all(path).expect("makes"),
                Some(bytes) => fs::write(path, bytes).expect("writes"),
            }
        }
    }

    fn apply(&mut self, effect: &Effect, fate: Fate) {
        match &effect.what {
            What::Names(changes) => {
                for (folder, name, node) in changes {
                    match node {
                        Some(node) => self.names(*folder).insert(name.clone(), *node),
                        None => self.names(*folder).remove(name),
                    };
                }
            }
            What::Length { file, length } => self.bytes(*file).resize(*length, 0),
            What::Bytes { file, at, bytes } => {
                let held = self.bytes(*file);
                let half = bytes.len() / 2;
                let (from, to, reach) = match fate {
                    Fate::Whole => (0, bytes.len(), bytes.len()),
                    Fate::Zeros => (0, 0, bytes.len()),
                    Fate::FirstHalf => (0, half, half),
                    Fate::SecondHalf => (half, bytes.len(), bytes.len()),
                };
                held.resize(held.len().max(at + reach), 0);
                held[at + from..at + to].copy_from_slice(&bytes[from..to]);
            }
        }
    }
}

#[derive(Debug, Clone)]
enum What {
    /// In these folders these names become these nodes, or nothing.
    Names(Vec<(usize, String, Option<usize>)>),
    Bytes {
        file: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Length {
        file: usize,
        length: usize,
    },
}

/// What becomes of an effect that is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Whole,
    Zeros,
    FirstHalf,
    SecondHalf,
}

#[derive(Debug, Clone)]
struct Effect {
    what: What,
    /// How many operations there were before.
    begins: usize,
    /// From how many operations on it lasts.
    lasts: usize,
    /// What must still be synced for that.
    unsynced: BTreeSet<usize>,
}

impl Effect {
    /// What may be found of it, besides nothing.
    fn fates(&self) -> &'static [Fate] {
        match &self.what {
            What::Bytes { bytes, .. } if bytes.len() > 1 => {
                &[Fate::Whole, Fate::Zeros, Fate::FirstHalf, Fate::SecondHalf]
            }
            _ => &[Fate::Whole],
        }
    }
}

/// How many subsets are tried at a point.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    /// Up to so many, all.
    pub all: usize,
    /// Where there are more, so many at random beside those that are listed.
    pub random: usize,
}

impl Bound {
    /// Seconds, at every change of the program.
    pub const QUICK: Self = Self { all: 256, random: 48 };
    /// Hours, when asked for.
    pub const LONG: Self = Self { all: 2048, random: 500 };

    /// The bound that `TRAINER_TORTURE` asks for.
    pub fn asked() -> Self {
        if is_long() { Self::LONG } else { Self::QUICK }
    }
}

/// What was tried.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Points at which the power failed.
    pub points: usize,
    /// Different disks that were opened.
    pub disks: usize,
    /// What was wrong, with the disk that showed it.
    pub faults: Vec<String>,
}

impl Tried {
    /// Tells what was tried, and asserts that no promise was broken, and that it was `least` disks at least.
    #[expect(clippy::print_stdout, reason = "the table of docs/reliability.md")]
    pub fn assert_nothing_lost(&self, what: &str, least: usize) {
        println!("| {what} | {} crashes | {} disks |", self.points, self.disks);
        let first = self.faults.first().map_or("", String::as_str);
        assert!(self.faults.is_empty(), "{what}: {} faults\n{first}", self.faults.len());
        assert!(self.disks >= least, "{what}: only {} disks", self.disks);
    }
}

/// Whether tests are to take hours and not seconds.
pub(crate) fn is_long() -> bool {
    std::env::var_os("TRAINER_TORTURE").is_some()
}

/// What a program did to a folder.
#[derive(Debug)]
pub(crate) struct Crashes {
    before: FileTree,
    effects: Vec<Effect>,
    operations: usize,
    promises: Vec<(usize, u64)>,
}

impl Crashes {
    /// `before` is what was in `folder` when `log` began, all of it long on the disk.
    pub fn new(folder: &Path, before: FileTree, log: &[Logged]) -> Self {
        let mut crashes = Self {
            before: before.clone(),
            effects: Vec::new(),
            operations: 0,
            promises: Vec::new(),
        };
        let mut now = before;
        for logged in log {
            crashes.note(folder, &mut now, logged);
        }
        // Nodes that are made later have a place from the beginning, and names later.
        let made = now.nodes[crashes.before.nodes.len()..].iter().map(|node| match node {
            Node::Folder(_) => Node::Folder(BTreeMap::new()),
            Node::File(_) => Node::File(Vec::new()),
        });
        crashes.before.nodes.extend(made);
        crashes
    }

    fn note(&mut self, root: &Path, now: &mut FileTree, logged: &Logged) {
        let below = |path: &Path| -> Option<Vec<String>> {
            let path = path.strip_prefix(root).ok()?;
            let name = |part: Component<'_>| part.as_os_str().to_str().expect("UTF-8").to_owned();
            Some(path.components().map(name).collect())
        };
        let place = |now: &mut FileTree, path: &Path| {
            let path = below(path).expect("is below the folder");
            let (name, above) = path.split_last().expect("is not the folder itself");
            (now.at(above), name.clone())
        };
        let what = match logged {
            Logged::Promise(what) => {
                self.promises.push((self.operations, *what));
                return;
            }
            Logged::SyncFile(path) | Logged::SyncFolder(path) => {
                self.operations += 1;
                if let Some(path) = below(path) {
                    let node = now.at(&path);
                    self.sync(node);
                }
                return;
            }
            Logged::CreateFolder(path) | Logged::CreateFile(path) => {
                let (folder, name) = place(now, path);
                now.nodes.push(match logged {
                    Logged::CreateFolder(_) => Node::Folder(BTreeMap::new()),
                    _ => Node::File(Vec::new()),
                });
                What::Names(vec![(folder, name, Some(now.nodes.len() - 1))])
            }
            Logged::RemoveFile(path) | Logged::RemoveFolder(path) => {
                let (folder, name) = place(now, path);
                What::Names(vec![(folder, name, None)])
            }
            Logged::Rename { from, to } => {
                let (from, to) = (place(now, from), place(now, to));
                let node = now.names(from.0)[&from.1];
                What::Names(vec![(from.0, from.1, None), (to.0, to.1, Some(node))])
            }
            Logged::Write { path, at, bytes } => {
                let file = now.at(&below(path).expect("is below the folder"));
                What::Bytes { file, at: *at as usize, bytes: bytes.clone() }
            }
            Logged::SetLength { path, length } => {
                let file = now.at(&below(path).expect("is below the folder"));
                What::Length { file, length: *length as usize }
            }
        };
        let unsynced = match &what {
            What::Names(changes) => changes.iter().map(|(folder, ..)| *folder).collect(),
            What::Bytes { file, .. } | What::Length { file, .. } => BTreeSet::from([*file]),
        };
        let effect = Effect { what, begins: self.operations, lasts: usize::MAX, unsynced };
        now.apply(&effect, Fate::Whole);
        self.effects.push(effect);
        self.operations += 1;
    }

    fn sync(&mut self, node: usize) {
        for effect in self.effects.iter_mut().filter(|effect| effect.lasts == usize::MAX) {
            effect.unsynced.remove(&node);
            if effect.unsynced.is_empty() {
                effect.lasts = self.operations;
            }
        }
    }

    /// Asserts that the record tells of all that was done to `folder`.
    pub fn assert_complete(&self, folder: &Path) {
        let mut tree = self.before.clone();
        self.effects.iter().for_each(|effect| tree.apply(effect, Fate::Whole));
        assert_eq!(
            tree.list(),
            FileTree::of(folder).list(),
            "something was changed past the layer"
        );
    }

    /// Makes every disk within the bound, and has `check` open it: it is given the folder, and the last promise
    /// that the program had made.
    pub fn check(
        &self,
        bound: Bound,
        check: impl FnMut(&Path, u64) -> Result<(), String>,
    ) -> Tried {
        self.check_from(0, bound, check)
    }

    /// As [`Crashes::check`], for power losses after the first `from` operations.
    pub fn check_from(
        &self,
        from: usize,
        bound: Bound,
        mut check: impl FnMut(&Path, u64) -> Result<(), String>,
    ) -> Tried {
        let mut tried = Tried { points: self.operations + 1 - from, ..Tried::default() };
        let mut seen = BTreeSet::new();
        for point in from..=self.operations {
            let promised =
                self.promises.iter().take_while(|(at, _)| *at <= point).map(|(_, what)| *what);
            let promise = promised.last().unwrap_or(0);
            let (lasting, loose): (Vec<&Effect>, Vec<&Effect>) = self
                .effects
                .iter()
                .filter(|effect| effect.begins < point)
                .partition(|effect| effect.lasts <= point);
            for fates in subsets(&loose, bound, point) {
                let mut effects: Vec<(&Effect, Fate)> =
                    lasting.iter().map(|effect| (*effect, Fate::Whole)).collect();
                effects.extend(loose.iter().zip(&fates).filter_map(|(e, f)| Some((*e, (*f)?))));
                effects.sort_by_key(|(effect, _)| effect.begins);
                let mut tree = self.before.clone();
                effects.iter().for_each(|(effect, fate)| tree.apply(effect, *fate));
                if !seen.insert((promise, tree.hash())) {
                    continue;
                }
                tried.disks += 1;
                let folder = scratch();
                tree.make(folder.path());
                if let Err(fault) = check(folder.path(), promise) {
                    let names: Vec<String> = tree.list().into_keys().collect();
                    tried.faults.push(format!("after {point} operations, {names:?}: {fault}"));
                }
            }
        }
        tried
    }
}

/// A new folder, in memory where the system has such a place: thousands are made and removed.
pub(crate) fn scratch() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm");
    in_memory.or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// Which of the effects are found, and what of them.
fn subsets(loose: &[&Effect], bound: Bound, point: usize) -> Vec<Vec<Option<Fate>>> {
    let ways = |effect: &&Effect| effect.fates().len() + 1;
    let number = loose.iter().map(ways).try_fold(1_usize, usize::checked_mul);
    if number.is_some_and(|number| number <= bound.all) {
        return loose.iter().fold(vec![Vec::new()], |all, effect| {
            let with = |begun: &Vec<Option<Fate>>| {
                let fates = effect.fates().iter().copied().map(Some);
                let more = |fate| [begun.as_slice(), &[fate]].concat();
                std::iter::once(None).chain(fates).map(more).collect::<Vec<_>>()
            };
            all.iter().flat_map(with).collect()
        });
    }
    let number = loose.len();
    let mut all = Vec::new();
    // Names journaled in order, and data before or after them.
    for end in 0..=number {
        for data in [
            None,
            Some(Fate::Whole),
            Some(Fate::Zeros),
            Some(Fate::FirstHalf),
            Some(Fate::SecondHalf),
        ] {
            let fate = |(place, effect): (usize, &&Effect)| match effect.fates().len() {
                1 => (place < end).then_some(Fate::Whole),
                _ => data.filter(|_| place < end),
            };
            all.push(loose.iter().enumerate().map(fate).collect());
        }
    }
    for one in 0..number {
        for two in one..number {
            let is_one = |place: usize| place == one || place == two;
            all.push((0..number).map(|place| (!is_one(place)).then_some(Fate::Whole)).collect());
            all.push((0..number).map(|place| is_one(place).then_some(Fate::Whole)).collect());
        }
    }
    let mut random = crate::random::stream(1, "crashes", &[point as u64]);
    all.extend((0..bound.random).map(|_| {
        let fate = |effect: &&Effect| {
            let fates = effect.fates();
            fates.get(random.random_range(0..=fates.len())).copied()
        };
        loose.iter().map(fate).collect()
    }));
    all
}

#[cfg(test)]
mod tests {
    use super::super::watch::Watch;
    use super::super::{create_folder, rename, replace, sync_folder, write_new};
    use super::*;

    const ALL: Bound = Bound { all: 1 << 16, random: 0 };

    /// The contents of `file` that may be found, after a program has done something to the old ones.
    fn found(program: impl Fn(&Path)) -> BTreeSet<Option<String>> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), "old.").expect("writes");
        let (watch, before) = (Watch::over(folder.path()), FileTree::of(folder.path()));
        program(folder.path());
        let crashes = Crashes::new(folder.path(), before, &watch.log());
        crashes.assert_complete(folder.path());
        let mut found = BTreeSet::new();
        let tried = crashes.check(ALL, |disk, _| {
            found.insert(fs::read_to_string(disk.join("file")).ok());
            Ok(())
        });
        assert!(tried.disks > 1 && tried.faults.is_empty());
        found
    }

    fn contents(all: &[&str]) -> BTreeSet<Option<String>> {
        all.iter().map(|text| Some((*text).to_owned())).collect()
    }

    /// The example of the ALICE paper (section 2.1): a file replaced without a sync may be found empty.
    #[test]
    fn a_file_that_is_renamed_without_a_sync_may_be_found_without_its_bytes() {
        let torn = found(|folder| {
            let new = folder.join("new");
            let file = super::super::Written::create_new(&new).expect("makes");
            file.write_at(b"new!", 0).expect("writes");
            rename(&new, &folder.join("file")).expect("renames");
        });
        assert_eq!(torn, contents(&["old.", "new!", "", "ne", "\0\0w!", "\0\0\0\0"]));
    }

    #[test]
    fn a_file_that_is_synced_before_it_is_renamed_is_found_whole() {
        let safe = found(|folder| {
            write_new(&folder.join("new"), b"new!").expect("writes");
            rename(&folder.join("new"), &folder.join("file")).expect("renames");
        });
        assert_eq!(safe, contents(&["old.", "new!"]));
        assert_eq!(found(|folder| replace(&folder.join("file"), b"new!").expect("writes")), safe);
    }

    #[test]
    fn what_is_promised_after_a_sync_is_found_and_before_it_may_be_lost() {
        let program = |syncs: bool| {
            let folder = tempfile::tempdir().expect("a folder");
            let (watch, before) = (Watch::over(folder.path()), FileTree::of(folder.path()));
            create_folder(&folder.path().join("a")).expect("makes");
            write_new(&folder.path().join("a/b"), b"text").expect("writes");
            sync_folder(&folder.path().join("a")).expect("syncs");
            if syncs {
                sync_folder(folder.path()).expect("syncs");
            }
            watch.promise(1);
            rename(&folder.path().join("a/b"), &folder.path().join("a/c")).expect("renames");
            let crashes = Crashes::new(folder.path(), before, &watch.log());
            crashes.check(ALL, |disk, promise| {
                let there = ["a/b", "a/c"].map(|name| disk.join(name).exists());
                let kept = there.contains(&true) && there != [true, true];
                if promise == 0 || kept { Ok(()) } else { Err("is lost".to_owned()) }
            })
        };
        assert_eq!(program(true).faults, [""; 0]);
        assert_eq!(program(false).faults.len(), 1, "the folder is not there");
    }
}
