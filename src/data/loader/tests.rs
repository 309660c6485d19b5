//! Tests of the loader on a small phantom: order, resuming, bad images, early ends.

use std::collections::BTreeSet;
use std::fs;
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::data::Resized;
use crate::data::resize::resize;
use crate::data::{Splits, open};

/// A phantom of some 40 small images and the folder it lives in.
fn phantom() -> (tempfile::TempDir, Splits) {
    let folder = tempfile::tempdir().expect("is made");
    let text = format!(
        "image = {{ size = [32, 32] }}\nvalidation = {{ fraction = 0.2 }}\n\
         [phantom]\nroot = {:?}\npatients = 24\nsize = 40\nseed = 2",
        folder.path().join("phantom")
    );
    let head = "name = 'h'\ntask = 'multilabel'\nlabels = ['Cardiomegaly', 'Consolidation']";
    let config = toml::from_str(&text).expect("reads");
    let heads = [toml::from_str(head).expect("reads")];
    let splits = open(&config, &heads, 1, crate::data::untold).expect("opens");
    (folder, splits)
}

static PHANTOM: LazyLock<(tempfile::TempDir, Arc<Dataset>)> = LazyLock::new(|| {
    let (folder, splits) = phantom();
    (folder, Arc::new(splits.train))
});

fn uncached() -> Arc<Cache> {
    Arc::new(Cache::off())
}

fn settings() -> LoaderConfig {
    LoaderConfig {
        image: toml::from_str("size = [32, 36]").expect("reads"),
        augment: Some(toml::from_str("rotate_degrees = 10\ntranslate = 0.1\nnoise = 0.1\nmixup = 1.0\ncutmix = 1.0\nrandom_erasing = {}").expect("reads")),
        view: View::default(),
        batch_size: 8,
        sampler: Sampler::Shuffle,
        drop_last: false,
        seed: 5,
        workers: 2,
        prefetch: 2,
        on_bad_image: OnBadImage::Stop,
        avoid_single: true,
    }
}

fn batches(config: LoaderConfig, epoch: u64, first: usize) -> Vec<Batch> {
    let loader = Loader::new(PHANTOM.1.clone(), config, uncached());
    loader.epoch(epoch, first).collect::<Result<_, _>>().expect("loads")
}

#[test]
fn batches_do_not_depend_on_the_number_of_workers_or_the_prefetch() {
    let alone = batches(LoaderConfig { workers: 1, prefetch: 1, ..settings() }, 3, 0);
    assert!(alone.len() > 3);
    for (workers, prefetch) in [(0, 2), (3, 2), (4, 1), (16, 100)] {
        assert!(batches(LoaderConfig { workers, prefetch, ..settings() }, 3, 0) == alone);
    }
}

#[test]
fn all_of_a_pass_has_begun_once_no_more_batches_are_left_than_are_prefetched() {
    for prefetch in [1, 2, 100] {
        let config = LoaderConfig { prefetch, ..settings() };
        let loader = Loader::new(PHANTOM.1.clone(), config, uncached());
        let (mut batches, all) = (loader.epoch(0, 0).shared(), loader.batches_per_epoch());
        assert!(all > 3);
        for left in (0..all).rev() {
            assert_eq!(loader.has_begun_all(&batches), left < prefetch, "{left} of {prefetch}");
            // One that has been looked at is still left.
            assert!(upcoming(&mut batches).is_some());
            assert_eq!(loader.has_begun_all(&batches), left < prefetch, "{left} of {prefetch}");
            batches.next().expect("comes").expect("loads");
        }
        assert!(loader.has_begun_all(&batches));
    }
}

#[test]
fn an_epoch_resumed_at_any_batch_goes_on_as_if_never_stopped() {
    let whole = batches(settings(), 1, 0);
    for first in 0..=whole.len() {
        assert!(batches(settings(), 1, first) == whole[first..], "from batch {first}");
    }
    assert!(batches(settings(), 1, whole.len() + 5).is_empty());
}

#[test]
fn resuming_decodes_nothing_of_the_batches_before() {
    static READ: Mutex<Vec<std::path::PathBuf>> = Mutex::new(Vec::new());
    fn noting(sample: &Sample, image: &ImageConfig) -> Result<RawImage, String> {
        READ.lock().expect("no one panics").push(sample.path.clone());
        read_sample(sample, image)
    }
    let shared =
        Shared { dataset: PHANTOM.1.clone(), config: settings(), cache: uncached(), read: noting };
    let loader = Loader { shared: Arc::new(shared) };
    let images: usize = loader.epoch(1, 2).map(|batch| batch.expect("loads").indices.len()).sum();
    assert_eq!(images, PHANTOM.1.len() - 16);
    assert_eq!(READ.lock().expect("no one panics").len(), images);
}

#[test]
fn every_epoch_has_every_image_once_in_an_order_of_its_own() {
    let order = |epoch, shuffle| -> Vec<usize> {
        let sampler = if shuffle { Sampler::Shuffle } else { Sampler::Sequential };
        let config = LoaderConfig { sampler, ..settings() };
        batches(config, epoch, 0).iter().flat_map(|batch| batch.indices.clone()).collect()
    };
    let all: BTreeSet<usize> = (0..PHANTOM.1.len()).collect();
    for epoch in 0..3 {
        let order = order(epoch, true);
        assert_eq!(order.len(), all.len());
        assert_eq!(order.into_iter().collect::<BTreeSet<_>>(), all);
    }
    assert_ne!(order(0, true), order(1, true));
    assert!(order(1, false).is_sorted());
}

#[test]
fn images_and_targets_belong_together() {
    for batch in batches(LoaderConfig { augment: None, ..settings() }, 0, 0) {
        assert_eq!(batch.shape, [batch.indices.len(), 1, 32, 36]);
        assert_eq!(batch.images.len(), batch.shape[0]);
        assert_eq!(batch.targets, PHANTOM.1.targets(&batch.indices));
        for (place, &index) in batch.indices.iter().enumerate() {
            let path = &PHANTOM.1.samples()[index].path;
            let image = read_image(path, None, None, Colour::Luma).expect("reads");
            let plane = Resized::of(resize(&image, [32, 36], settings().image.fit)).levels;
            assert!(batch.images[place] == plane);
        }
    }
}

#[test]
fn three_channels_repeat_the_grey_plane() {
    let image: ImageConfig = toml::from_str("size = [32, 32]\nchannels = 3").expect("reads");
    let batch = &batches(LoaderConfig { image, ..settings() }, 0, 0)[0];
    assert_eq!(batch.shape[1..], [3, 32, 32]);
    for image in &batch.images {
        assert!(image[..1024] == image[1024..2048] && image[..1024] == image[2048..]);
    }
}

proptest! {
    #[test]
    fn batches_cover_the_order_and_no_last_one_holds_a_single_image(
        images in 1_usize..300,
        batch_size in 1_usize..40,
        avoid_single: bool,
    ) {
        let config = LoaderConfig { batch_size, avoid_single, ..settings() };
        let count = images.div_ceil(batch_size);
        let slices: Vec<Range<usize>> =
            (0..count).map(|number| slice(&config, images, number)).collect();
        prop_assert_eq!(slices.first().map(|slice| slice.start), Some(0));
        prop_assert_eq!(slices.last().map(|slice| slice.end), Some(images));
        prop_assert!(slices.windows(2).all(|pair| pair[0].end == pair[1].start));
        prop_assert!(slices.iter().all(|slice| (1..=batch_size).contains(&slice.len())));
        let single = slices.iter().any(|slice| slice.len() == 1);
        prop_assert!(!single || !avoid_single || batch_size <= 2 || images == 1);
        if !avoid_single {
            prop_assert!(slices[..count - 1].iter().all(|slice| slice.len() == batch_size));
        }
    }
}

/// A phantom with three images spoilt, and the places of those.
fn spoilt() -> (tempfile::TempDir, Arc<Dataset>, [usize; 3]) {
    let (folder, splits) = phantom();
    let places = [2, 9, 11];
    let path = |place: usize| &splits.train.samples()[place].path;
    fs::write(path(2), b"").expect("is written");
    fs::write(path(9), b"no image").expect("is written");
    fs::remove_file(path(11)).expect("is removed");
    (folder, Arc::new(splits.train), places)
}

#[test]
fn a_bad_image_stops_the_epoch_naming_file_row_and_reason() {
    let (_folder, dataset, places) = spoilt();
    let config = LoaderConfig { sampler: Sampler::Sequential, avoid_single: false, ..settings() };
    let mut epoch = Loader::new(dataset.clone(), config, uncached()).epoch(0, 0);
    let error = epoch.next().expect("comes").map(|batch| batch.indices).expect_err("is refused");
    let DataError::BadImage(bad) = &error else { panic!("{error}") };
    let sample = &dataset.samples()[places[0]];
    assert_eq!((&bad.path, bad.line), (&sample.path, sample.line));
    assert_eq!(bad.reason, "the file is empty");
    let expected = format!(
        "image `{}` ({}, line {}): the file is empty",
        sample.path.display(),
        sample.table.display(),
        sample.line
    );
    assert_eq!(error.to_string(), expected);
    assert!(epoch.next().is_none());
}

#[test]
fn skipped_images_are_left_out_and_listed() {
    let (_folder, dataset, places) = spoilt();
    let config = LoaderConfig { on_bad_image: OnBadImage::Skip, ..settings() };
    let loader = Loader::new(dataset.clone(), config, uncached());
    let batches: Vec<Batch> = loader.epoch(0, 0).collect::<Result<_, _>>().expect("loads");
    let lines: BTreeSet<u64> =
        batches.iter().flat_map(|batch| &batch.skipped).map(|bad| bad.line).collect();
    assert_eq!(lines, places.map(|place| dataset.samples()[place].line).into());
    let loaded: BTreeSet<usize> = batches.iter().flat_map(|batch| batch.indices.clone()).collect();
    assert_eq!(loaded.len(), dataset.len() - 3);
    assert!(places.iter().all(|place| !loaded.contains(place)));
    for batch in &batches {
        assert_eq!(batch.images.len(), batch.shape[0]);
        assert_eq!(batch.targets[0].values.len(), 2 * batch.shape[0]);
    }
}

/// Runs `work` on a thread and fails rather than hang.
fn within_seconds(work: impl FnOnce() + Send + 'static) {
    let (done, finished) = std::sync::mpsc::channel();
    thread::spawn(move || {
        work();
        done.send(()).expect("someone waits");
    });
    finished.recv_timeout(Duration::from_secs(60)).expect("ends");
}

#[test]
fn an_epoch_dropped_early_stops_its_threads() {
    within_seconds(|| {
        for taken in [0, 1, 2] {
            let loader = Loader::new(PHANTOM.1.clone(), settings(), uncached());
            let mut epoch = loader.epoch(0, 0);
            epoch.by_ref().take(taken).for_each(|batch| assert!(batch.is_ok()));
            drop(epoch);
            // The threads are gone: no one else holds what they shared.
            assert_eq!(Arc::strong_count(&loader.shared), 1);
        }
    });
}

#[test]
fn a_panic_in_a_worker_is_an_error_and_not_a_hang() {
    within_seconds(|| {
        fn failing(sample: &Sample, image: &ImageConfig) -> Result<RawImage, String> {
            assert!(sample.path != PHANTOM.1.samples()[9].path, "out of luck");
            read_sample(sample, image)
        }
        let config = LoaderConfig { sampler: Sampler::Sequential, ..settings() };
        let shared =
            Shared { dataset: PHANTOM.1.clone(), config, cache: uncached(), read: failing };
        let mut epoch = Loader { shared: Arc::new(shared) }.epoch(0, 0);
        assert!(epoch.next().expect("comes").is_ok());
        let error = epoch.next().expect("comes").map(|batch| batch.indices).expect_err("fails");
        assert!(error.to_string().contains("out of luck"), "{error}");
        assert!(epoch.next().is_none());
    });
}

#[test]
fn the_prefetch_bounds_what_is_decoded_ahead() {
    static READ: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
    fn counting(sample: &Sample, image: &ImageConfig) -> Result<RawImage, String> {
        READ.fetch_add(1, Ordering::Relaxed);
        read_sample(sample, image)
    }
    let config = LoaderConfig { batch_size: 4, prefetch: 2, ..settings() };
    let shared = Shared { dataset: PHANTOM.1.clone(), config, cache: uncached(), read: counting };
    let mut epoch = Loader { shared: Arc::new(shared) }.epoch(0, 0);
    epoch.next().expect("comes").expect("loads");
    // Two batches ahead of the one handed out, however long one waits.
    while READ.load(Ordering::Relaxed) < 12 {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(100));
    assert_eq!(READ.load(Ordering::Relaxed), 12);
}

#[test]
fn three_channels_keep_colours_and_one_has_luma_from_one_cache_folder() {
    #[derive(serde::Deserialize)]
    struct Case {
        name: String,
        file: String,
        pixels: Vec<u32>,
    }
    let fixture = include_str!("../../../tests/fixtures/data_colours.json");
    let cases: Vec<Case> = serde_json::from_str(fixture).expect("the fixture reads");
    let case = cases.into_iter().find(|case| case.name == "png colour").expect("is there");
    let byte = |at: usize| u8::from_str_radix(&case.file[at..at + 2], 16).expect("hexadecimal");
    let file: Vec<u8> = (0..case.file.len()).step_by(2).map(byte).collect();
    let folder = tempfile::tempdir().expect("is made");
    fs::write(folder.path().join("a.png"), &file).expect("is written");
    fs::write(folder.path().join("b.png"), &file).expect("is written");
    let table = folder.path().join("t.csv");
    fs::write(&table, "image,h,use\na.png,1,train\nb.png,0,valid\n").expect("is written");
    let head = toml::from_str("name = 'h'\ntask = 'binary'\nlabels = ['h']").expect("reads");
    let seen = |channels: usize| -> Vec<f32> {
        let text = format!(
            "image = {{ size = [4, 6], channels = {channels} }}\n\
             csv = {{ table = {table:?}, image = 'image', split = 'use' }}"
        );
        let data: DataConfig = toml::from_str(&text).expect("reads");
        let train = Arc::new(
            open(&data, std::slice::from_ref(&head), 1, crate::data::untold).expect("opens").train,
        );
        let disk = format!("disk = {{ folder = {:?} }}", folder.path().join("cache"));
        let disk = Cache::open(&toml::from_str(&disk).expect("reads"), &data.image).expect("opens");
        let config = LoaderConfig::evaluation(&data, 1, 1);
        let mut of = [Cache::off(), disk].into_iter().map(|cache| {
            let loader = Loader::new(train.clone(), config.clone(), Arc::new(cache));
            let twice: Vec<_> = (0..2).map(|epoch| loader.images(epoch, vec![0]).next()).collect();
            let batches = twice.into_iter().map(|batch| batch.expect("one").expect("loads").images);
            let batches: Vec<Vec<Vec<f32>>> = batches.collect();
            assert_eq!(batches[0], batches[1]);
            batches[0].clone()
        });
        let (fresh, cached) = (of.next().expect("one"), of.next().expect("two"));
        assert_eq!(fresh, cached);
        fresh.concat()
    };
    let expected: Vec<f32> = case.pixels.iter().map(|&level| level as f32 / 255.0).collect();
    let colours = seen(3);
    assert_eq!(colours, expected);
    let grey = seen(1);
    assert_eq!(grey.len(), 4 * 6);
    for (place, grey) in grey.iter().enumerate() {
        let [red, green, blue] = [0, 1, 2].map(|plane| colours[plane * 24 + place]);
        let luma = 0.299 * red + 0.587 * green + 0.114 * blue;
        assert!((luma - grey).abs() < 1.0 / 255.0, "{luma} {grey}");
    }
}

#[test]
fn so_many_threads_are_started_as_the_cores_can_use() {
    let config = |workers: &str| -> DataConfig {
        let text = "image = { size = [32, 32] }\n[phantom]\nroot = 'p'\npatients = 4\nsize = 32\n";
        toml::from_str(&format!("{workers}\n{text}")).expect("reads")
    };
    let started = |workers| LoaderConfig::evaluation(&config(workers), 4, 1).workers;
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let wanted = ["", "workers = 0", "workers = 1", "workers = 1000000000000"];
    assert_eq!(wanted.map(started), [cores, 0, 1, 32 * cores]);
}

#[test]
fn a_thread_that_cannot_be_started_is_an_error_with_advice() {
    let loader = Loader::new(PHANTOM.1.clone(), settings(), uncached());
    let mut epoch = loader.epoch(0, 0);
    epoch.refused =
        Some("7 threads could be started, and no more (why); lower `data.workers`".into());
    let error = epoch.next().expect("an answer").expect_err("is refused").to_string();
    assert!(error.ends_with("no more (why); lower `data.workers`"), "{error}");
    assert!(epoch.next().is_none());
}
