//! What it costs to count a block of memory: nanoseconds to allocate it, touch it and free it.
//!
//!     cargo bench --no-default-features --features cpu --bench allocator

#![expect(clippy::print_stdout, reason = "a program that measures")]
#![expect(unsafe_code, reason = "an allocator is unsafe by its trait")]

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

use mimalloc::MiMalloc;
use trainer::memory::measure::Counting;

static PLAIN: MiMalloc = MiMalloc;
static COUNTING: Counting<MiMalloc> = Counting::new(MiMalloc);

fn main() {
    for threads in [1, 4] {
        for bytes in [64, 4095, 4096, 1 << 16, 1 << 20, 1 << 26] {
            let (plain, counting) = (time(&PLAIN, bytes, threads), time(&COUNTING, bytes, threads));
            println!("{threads} threads, {bytes:>8} bytes: {plain:8.1} ns, {counting:8.1} counted");
        }
    }
}

/// The fastest of five rounds.
fn time(allocator: &(dyn GlobalAlloc + Sync), bytes: usize, threads: usize) -> f64 {
    let blocks = (200_000_000 / (bytes + 2000)).max(20_000);
    let layout = Layout::from_size_align(bytes, 64).expect("a layout");
    let work = || {
        for _ in 0..blocks {
            // SAFETY: the layout has a size, and each block is freed once.
            unsafe {
                let block = allocator.alloc(layout);
                black_box(block).write(1);
                allocator.dealloc(block, layout);
            }
        }
    };
    let round = |_| {
        let begin = Instant::now();
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
        begin.elapsed().as_secs_f64() / blocks as f64 * 1e9
    };
    (0..5).map(round).fold(f64::INFINITY, f64::min)
}
