//! Protects against what fuzzing has found: each input that was a finding is opened again, and so is each of
//! the fixtures with a byte changed, cut off or put in. `docs/reliability.md` says how the targets are run with
//! libFuzzer, which goes far beyond.

#[path = "../fuzz/src/lib.rs"]
mod targets;

use std::fs;
use std::path::{Path, PathBuf};

use targets::{TARGETS, Target};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("lists").path()).collect();
    paths.sort();
    paths
}

#[test]
fn every_target_is_known_and_every_input_that_was_a_finding_is_opened() {
    let names: Vec<String> = listed(&root().join("fuzz/fuzz_targets"))
        .iter()
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    assert_eq!(names, TARGETS.map(|(name, _)| name));
    for folder in listed(&root().join("fuzz/findings")) {
        let name = folder.file_name().expect("a name").to_string_lossy().into_owned();
        let target = TARGETS.iter().find(|(known, _)| *known == name);
        let (_, target) = target.unwrap_or_else(|| panic!("no target is called {name}"));
        for path in listed(&folder) {
            target(&fs::read(path).expect("reads"));
        }
    }
}

/// What the readers take without a change must be taken with any; it is quick where a reader says no at once.
#[test]
fn fixtures_with_a_byte_changed_or_the_end_cut_off_are_read_or_refused() {
    let fixture = |name: &str| root().join("tests/fixtures").join(name);
    let files: [(Target, &str, usize); 7] = [
        (targets::npy, "arrays/u16.npy", 1),
        (targets::npz, "arrays/packed.npz", 1),
        (targets::csv, "tables/labels.csv", 1),
        (targets::csv, "tables/labels.csv.gz", 1),
        (targets::parquet, "tables/labels.zstd.parquet", 17),
        (targets::safetensors, "weights.safetensors", 3),
        (targets::pth, "weights_legacy.pth", 7),
    ];
    for (target, name, step) in files {
        let bytes = fs::read(fixture(name)).expect("reads");
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            target(&changed);
            target(&bytes[..at]);
        }
    }
}
