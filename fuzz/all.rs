//! All targets in one program, `TRAINER_FUZZ=dicom all …`: small enough to be carried to a machine without Rust.

#![no_main]

use std::sync::LazyLock;

use trainer_fuzz::{TARGETS, Target};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("TRAINER_FUZZ").expect("TRAINER_FUZZ names a target");
    let target = TARGETS.into_iter().find(|(known, _)| *known == name);
    target.unwrap_or_else(|| panic!("no target is called {name}")).1
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (*TARGET)(bytes));
