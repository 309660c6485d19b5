//! The cards that a test needs, and numbers to compute with on them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use trainer::build::find_devices;

/// Tests take turns: a card that waits for another one is not to wait for another test.
static TURN: Mutex<()> = Mutex::new(());

/// The test's turn, and how many cards there are; none where there are too few.
pub fn cards(test: &str) -> Option<(MutexGuard<'static, ()>, usize)> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = find_devices().cards.map_or(0, |cards| cards.len());
    if count < 2 {
        println!("{test}: left out, there are {count} cards");
        return None;
    }
    Some((turn, count.min(4)))
}

/// Numbers between −1 and 1 that follow no pattern, the same everywhere.
pub fn noise(length: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    };
    (0..length).map(|_| draw()).collect()
}
