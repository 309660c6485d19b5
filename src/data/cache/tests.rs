//! Whatever happens to a cache's files, an image that it serves is the one that was made.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::RngExt;

use super::super::area::Area;
use super::super::image::Samples;
use super::*;
use crate::disk::crash::{Bound, Crashes, FileTree, scratch};
use crate::disk::watch::Watch;

const SIZE: [usize; 2] = [4, 5];

fn settings(folder: &Path, bits: &str) -> CacheConfig {
    let text = format!("disk = {{ folder = {folder:?}, bits = {bits:?} }}");
    toml::from_str(&text).expect("reads")
}

fn image_config() -> ImageConfig {
    ImageConfig { size: SIZE, ..toml::from_str("size = [32, 32]").expect("reads") }
}

fn open(folder: &Path) -> Cache {
    Cache::open(&settings(folder, "auto"), &image_config()).expect("opens")
}

/// The one folder below the cache's.
fn inner(folder: &Path) -> PathBuf {
    let mut entries = fs::read_dir(folder).expect("is read");
    entries.next().expect("holds a transform").expect("is read").path()
}

/// Files with an image each, and what is made of them.
fn samples(folder: &Path, count: usize) -> Vec<Sample> {
    let table: Arc<Path> = Path::new("t.csv").into();
    (0..count)
        .map(|number| {
            let path = folder.join(format!("{number}.png"));
            fs::write(&path, [number as u8; 9]).expect("is written");
            let (table, patient) = (table.clone(), String::new());
            Sample { path, item: None, table, line: 1, patient, source: 0 }
        })
        .collect()
}

fn made(number: usize) -> Fitted {
    let values = (0..20).map(|place| (number * 1000 + place * 7) as u16);
    let samples = match number % 3 {
        0 => Samples::U8(values.map(|value| value as u8).collect()),
        1 => Samples::U16(values.collect()),
        _ => Samples::F32(values.map(f32::from).collect()),
    };
    let content = Area { top: 1, left: 0, height: 2, width: 5 };
    Fitted { size: SIZE, planes: 1, samples, content }
}

/// Gets every image, holds it against what is made, and returns how many had to be made.
fn get_all(cache: &Cache, samples: &[Sample]) -> usize {
    let count = Cell::new(0);
    for (number, sample) in samples.iter().enumerate() {
        let make = || {
            count.set(count.get() + 1);
            Ok(made(number))
        };
        assert_eq!(cache.get(sample, make).expect("is had"), made(number), "{number}");
    }
    count.get()
}

#[test]
fn an_image_is_made_once_and_then_served_also_to_the_next_process() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 9));
    let cache = open(&kept);
    assert_eq!((get_all(&cache, &images), get_all(&cache, &images)), (9, 0));
    assert_eq!(cache.filling(&images).kept, 9);
    drop(cache);
    let cache = open(&kept);
    assert_eq!(get_all(&cache, &images), 0);
    assert_eq!(cache.filling(&images).missing, 0);
    assert!(cache.take_warning().is_none());
}

#[test]
fn in_memory_an_image_is_made_once() {
    let folder = tempfile::tempdir().expect("is made");
    let images = samples(folder.path(), 5);
    let memory = toml::from_str("memory = {}").expect("reads");
    let cache = Cache::open(&memory, &image_config()).expect("opens");
    assert_eq!((get_all(&cache, &images), get_all(&cache, &images)), (5, 0));
    assert_eq!(cache.filling(&images).kept, 5);
    assert_eq!(get_all(&Cache::off(), &images), 5);
}

#[test]
fn a_changed_file_is_made_anew_and_a_moved_or_touched_one_is_not() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, mut images) = (folder.path().join("cache"), samples(folder.path(), 3));
    let cache = open(&kept);
    get_all(&cache, &images);
    fs::write(&images[1].path, b"other bytes").expect("is written");
    assert_eq!(cache.filling(&images).missing, 1);
    assert_eq!(get_all(&cache, &images), 1);
    let touched = OpenOptions::new().write(true).open(&images[0].path).expect("opens");
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("is touched");
    let moved = folder.path().join("moved.png");
    fs::rename(&images[2].path, &moved).expect("is moved");
    images[2].path = moved;
    assert_eq!(cache.filling(&images).missing, 2);
    assert_eq!(get_all(&cache, &images), 0, "the bytes are known");
    assert_eq!(cache.filling(&images).missing, 0);
}

#[test]
fn an_image_that_cannot_be_read_is_not_kept() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 1));
    let cache = open(&kept);
    for _ in 0..2 {
        let refused = cache.get(&images[0], || Err("it is bad".to_owned()));
        assert_eq!(refused, Err("it is bad".to_owned()));
    }
    fs::remove_file(&images[0].path).expect("is removed");
    let refused = cache.get(&images[0], || Err("the file does not exist".to_owned()));
    assert!(refused.is_err());
}

#[test]
fn another_transform_has_a_cache_of_its_own() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 3));
    get_all(&open(&kept), &images);
    let cropped = ImageConfig { fit: super::super::config::Fit::Crop, ..image_config() };
    let cache = Cache::open(&settings(&kept, "auto"), &cropped).expect("opens");
    assert_eq!(get_all(&cache, &images), 3);
}

#[test]
fn what_is_kept_in_8_or_16_bits_is_so_from_the_first_time_on() {
    let folder = tempfile::tempdir().expect("is made");
    let images = samples(folder.path(), 2);
    for (bits, sample) in [("8", 1), ("16", 0)] {
        let settings = settings(&folder.path().join("cache"), bits);
        let get = || {
            let cache = Cache::open(&settings, &image_config()).expect("opens");
            cache.get(&images[sample], || Ok(made(sample))).expect("is had").samples
        };
        let first = get();
        match (bits, &first, made(sample).samples) {
            ("8", Samples::U8(ours), Samples::U16(whole)) => {
                let off = ours
                    .iter()
                    .zip(whole)
                    .map(|(a, b)| (f32::from(*a) * 257.0 - f32::from(b)).abs());
                assert!(off.fold(0.0, f32::max) <= 128.5);
            }
            ("16", Samples::U16(ours), Samples::U8(whole)) => {
                assert!(ours.iter().zip(whole).all(|(a, b)| *a == u16::from(b) * 257));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(get(), first);
    }
}

/// Every state that a kill can leave: each file cut off at every byte, the index with all or with
/// fewer records.
#[test]
fn a_cache_cut_off_anywhere_serves_whole_images_only_and_is_filled_again() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 4));
    get_all(&open(&kept), &images);
    let files = ["images", "index"].map(|name| inner(&kept).join(name));
    let whole = files.each_ref().map(|file| fs::read(file).expect("reads"));
    for (cut, bytes) in whole.iter().enumerate() {
        for length in 0..bytes.len() {
            for (file, whole) in files.iter().zip(&whole) {
                fs::write(file, whole).expect("is written");
            }
            fs::write(&files[cut], &bytes[..length]).expect("is written");
            let cache = open(&kept);
            let made = get_all(&cache, &images);
            assert!(made >= 1, "{cut} {length}");
            drop(cache);
            assert_eq!(get_all(&open(&kept), &images), 0, "{cut} {length}");
        }
    }
}

#[test]
fn damaged_bytes_are_noticed() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 4));
    get_all(&open(&kept), &images);
    let files = ["images", "index"].map(|name| inner(&kept).join(name));
    let whole = files.each_ref().map(|file| fs::read(file).expect("reads"));
    for trial in 0..600 {
        let mut random = crate::random::stream(5, "test", &[trial]);
        for (file, bytes) in files.iter().zip(&whole) {
            let mut bytes = bytes.clone();
            for _ in 0..random.random_range(0..4) {
                let place = random.random_range(0..bytes.len());
                bytes[place] = random.random();
            }
            fs::write(file, bytes).expect("is written");
        }
        get_all(&open(&kept), &images);
    }
}

/// One row of the table in docs/reliability.md.
#[test]
#[expect(clippy::print_stdout, reason = "it is a row of the torture suite's table")]
fn every_bit_of_a_cache_may_be_flipped() {
    let folder = scratch();
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 4));
    get_all(&open(&kept), &images);
    let files = ["images", "index"].map(|name| inner(&kept).join(name));
    let whole = files.each_ref().map(|file| fs::read(file).expect("reads"));
    let (mut flipped, mut made_anew) = (0, 0);
    for (damaged, bytes) in whole.iter().enumerate() {
        for bit in 0..8 * bytes.len() {
            files.iter().zip(&whole).for_each(|(file, bytes)| {
                fs::write(file, bytes).expect("is written");
            });
            let mut bytes = bytes.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            fs::write(&files[damaged], bytes).expect("is written");
            flipped += 1;
            made_anew += usize::from(get_all(&open(&kept), &images) > 0);
        }
    }
    println!(
        "| each bit of a cache flipped | {flipped} | every image the one that was made, in {made_anew} by decoding it again |"
    );
    // A record ends with four bytes that are not used.
    assert_eq!(made_anew, flipped - 8 * 4 * images.len(), "some bits are not checked");
}

#[test]
fn of_two_processes_one_fills_the_cache_and_the_other_says_so() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 6));
    let first = open(&kept);
    get_all(&first, &images[..3]);
    let second = open(&kept);
    let warning = second.take_warning().expect("is told");
    assert!(warning.contains("another process fills the cache"), "{warning}");
    assert_eq!(get_all(&second, &images), 3, "it reads what was there");
    assert_eq!(get_all(&second, &images), 3, "and adds nothing");
    assert_eq!(get_all(&first, &images), 3);
    drop((first, second));
    assert_eq!(get_all(&open(&kept), &images), 0);
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_ends_the_filling_and_not_the_run() {
    let folder = tempfile::tempdir().expect("is made");
    let (kept, images) = (folder.path().join("cache"), samples(folder.path(), 3));
    get_all(&open(&kept), &images[..1]);
    let file = inner(&kept).join("images");
    let before = fs::read(&file).expect("reads");
    fs::remove_file(&file).expect("is removed");
    // Every write to it finds the disk full.
    std::os::unix::fs::symlink("/dev/full", &file).expect("is linked");
    let cache = open(&kept);
    assert_eq!(get_all(&cache, &images), 3);
    let warning = cache.take_warning().expect("is told");
    assert!(warning.contains("No space left"), "{warning}");
    assert!(cache.take_warning().is_none(), "once");
    assert_eq!(get_all(&cache, &images), 3, "decoded each time");
    drop(cache);
    fs::remove_file(&file).expect("is removed");
    fs::write(&file, before).expect("is written");
    assert_eq!(get_all(&open(&kept), &images), 2);
}

#[test]
fn what_cannot_fit_is_refused_before_it_begins() {
    let folder = tempfile::tempdir().expect("is made");
    let cache = open(folder.path());
    assert!(cache.check_room(10).is_ok());
    let error = cache.check_room(usize::MAX / 1000).expect_err("is refused");
    assert!(error.to_string().contains("GiB more, and"), "{error}");
    assert!(error.help().is_some_and(|help| help.contains("data.cache.disk.folder")));
}

/// Nothing of a cache is synced: any part of it may be found after a power loss, or none.
#[test]
fn after_a_power_loss_a_cache_serves_whole_images_only_and_is_filled_again() {
    let folder = tempfile::tempdir().expect("is made");
    let (disk, images) = (folder.path().join("disk"), samples(folder.path(), 5));
    fs::create_dir(&disk).expect("is made");
    let (watch, before) = (Watch::over(&disk), FileTree::of(&disk));
    get_all(&open(&disk.join("cache")), &images[..2]);
    get_all(&open(&disk.join("cache")), &images);
    let crashes = Crashes::new(&disk, before, &watch.log());
    crashes.assert_complete(&disk);
    let bound = Bound { random: Bound::asked().random * 8, ..Bound::asked() };
    let tried = crashes.check(bound, |found, _| {
        let kept = found.join("cache");
        get_all(&open(&kept), &images);
        match get_all(&open(&kept), &images) {
            0 => Ok(()),
            made => Err(format!("{made} images are not kept")),
        }
    });
    tried.assert_nothing_lost("a cache filled twice", 500);
}
