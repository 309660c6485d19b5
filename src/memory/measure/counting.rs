//! A global allocator that counts.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Blocks below this many bytes are not counted: they cost as much to count as to allocate, and all
/// of them together are little beside the tensors of a model.
const COUNTED_FROM: usize = 4096;

thread_local! {
    /// Whether what this thread allocates is none of the training's.
    static APART: Cell<bool> = const { Cell::new(false) };
}

/// Bytes in counted blocks.
#[derive(Debug, Default)]
pub(super) struct AllocationCounts {
    live: AtomicU64,
    peak: AtomicU64,
    /// Whether an allocator has written anything here.
    used: AtomicBool,
    /// Bytes beyond which nothing is given out; 0 where there is no limit.
    most: AtomicU64,
    /// Bytes that were asked for last and could not be had; 0 where all could.
    refused: AtomicU64,
}

/// The ledger of the process, which has one allocator. Replicas on the CPU share it as they share its
/// memory.
pub(super) static PROCESS: AllocationCounts = AllocationCounts::new();

impl AllocationCounts {
    const fn new() -> Self {
        let (live, peak) = (AtomicU64::new(0), AtomicU64::new(0));
        let (most, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { live, peak, used: AtomicBool::new(false), most, refused }
    }

    pub fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// The most since the peak was reset: the live bytes after every allocation go into it.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed).max(self.live())
    }

    pub fn reset_peak(&self) {
        self.peak.store(self.live(), Ordering::Relaxed);
    }

    /// Whether the program's allocator counts here.
    pub fn is_counting(&self) -> bool {
        drop(std::hint::black_box(Vec::<u8>::with_capacity(COUNTED_FROM)));
        self.used.load(Ordering::Relaxed)
    }

    /// Gives out no more than `bytes` bytes in all from now on: the system has no more, and would end the
    /// process for want of them without a word.
    pub fn limit_to(&self, bytes: u64) {
        self.most.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that were asked for last and could not be had.
    pub fn refused(&self) -> Option<u64> {
        Some(self.refused.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Whether a block of so many bytes is more than there is, beside what is counted.
    fn is_too_much(&self, bytes: usize) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        most > 0 && is_large(bytes) && self.live().saturating_add(bytes as u64) > most
    }

    fn note_refused(&self, bytes: usize) {
        self.refused.store(bytes as u64, Ordering::Relaxed);
    }

    fn add(&self, bytes: usize) {
        let live = self.live.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        // A load where, nearly always, no write is needed: all threads write to the same line.
        if live > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(live, Ordering::Relaxed);
        }
    }

    fn remove(&self, bytes: usize) {
        self.live.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    fn note_use(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
}

/// An allocator that keeps count of the blocks of 4 KiB and more that `A` gives out; a program makes
/// it its `#[global_allocator]`.
///
/// Each counted block has one byte more than was asked for, which says whether it counts: blocks
/// allocated by a thread that is [apart](apart) do not, whoever frees them.
///
/// Measured over mimalloc (benches/allocator.rs, four cores): 1 ns a smaller block, 2 to 7 ns a
/// counted one, and up to 70 ns where four threads do nothing but allocate.
#[derive(Debug)]
pub struct Counting<A> {
    blocks: A,
    ledger: &'static AllocationCounts,
}

impl<A> Counting<A> {
    /// Counts the blocks of `blocks`.
    pub const fn new(blocks: A) -> Self {
        Self { blocks, ledger: &PROCESS }
    }
}

/// What the byte behind a block says.
const COUNTS: u8 = 1;
const APART_BLOCK: u8 = 0;

fn is_large(bytes: usize) -> bool {
    bytes >= COUNTED_FROM
}

/// `layout`, with room for the byte behind a large block; `None` when there is no such layout.
fn with_mark(layout: Layout) -> Option<Layout> {
    if !is_large(layout.size()) {
        return Some(layout);
    }
    Layout::from_size_align(layout.size() + 1, layout.align()).ok()
}

impl<A> Counting<A> {
    /// The layout of a new block; `None` where there is none, or more is asked for than there is.
    fn marked(&self, layout: Layout) -> Option<Layout> {
        let marked = with_mark(layout).filter(|_| !self.ledger.is_too_much(layout.size()));
        if marked.is_none() {
            self.ledger.note_refused(layout.size());
        }
        marked
    }

    /// Counts the new `block` of `bytes` bytes, and writes so behind it.
    ///
    /// # Safety
    ///
    /// `block` is null or has room for `bytes` bytes and the mark.
    #[expect(unsafe_code, reason = "the byte behind the block is ours")]
    unsafe fn enter(&self, block: *mut u8, bytes: usize) {
        if block.is_null() {
            self.ledger.note_refused(bytes);
        }
        if block.is_null() || !is_large(bytes) {
            return;
        }
        self.ledger.note_use();
        let counts = !APART.get();
        if counts {
            self.ledger.add(bytes);
        }
        // SAFETY: the block was asked for with room for this byte.
        unsafe { block.add(bytes).write(if counts { COUNTS } else { APART_BLOCK }) };
    }

    /// Whether the block of `bytes` bytes is counted.
    ///
    /// # Safety
    ///
    /// `block` went through [`Counting::enter`] with as many bytes.
    #[expect(unsafe_code, reason = "the byte behind the block is ours")]
    unsafe fn is_counted(&self, block: *mut u8, bytes: usize) -> bool {
        // SAFETY: a large block has a mark behind it, which `enter` has written.
        is_large(bytes) && unsafe { block.add(bytes).read() } == COUNTS
    }
}

// SAFETY: every block comes from and goes back to `blocks`, with the layout it was made with: the
// caller's, one byte longer where the block is large, which depends on the layout alone.
#[expect(unsafe_code, reason = "an allocator is unsafe by its trait")]
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(marked) = self.marked(layout) else { return std::ptr::null_mut() };
        // SAFETY: `marked` is as large as `layout`, whose size is not 0, or larger.
        unsafe {
            let block = self.blocks.alloc(marked);
            self.enter(block, layout.size());
            block
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(marked) = self.marked(layout) else { return std::ptr::null_mut() };
        // SAFETY: as in `alloc`; the mark lies behind what the caller sees.
        unsafe {
            let block = self.blocks.alloc_zeroed(marked);
            self.enter(block, layout.size());
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block was made for `layout`, so with its mark, and that layout is valid.
        unsafe {
            if self.is_counted(block, layout.size()) {
                self.ledger.remove(layout.size());
            }
            self.blocks.dealloc(block, with_mark(layout).unwrap_or(layout));
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let wanted = Layout::from_size_align(new_size, layout.align()).ok();
        let wanted = match new_size > layout.size() {
            true => wanted.and_then(|wanted| self.marked(wanted)),
            false => wanted.and_then(with_mark),
        };
        let (Some(made), Some(wanted)) = (with_mark(layout), wanted) else {
            return std::ptr::null_mut();
        };
        // SAFETY: as in `alloc` and `dealloc`. Where it fails the old block stays as it is, and
        // counted as it was.
        unsafe {
            let counted = self.is_counted(block, layout.size());
            let grown = self.blocks.realloc(block, made, wanted.size());
            if grown.is_null() {
                self.ledger.note_refused(new_size);
            } else {
                if counted {
                    self.ledger.remove(layout.size());
                }
                self.enter(grown, new_size);
            }
            grown
        }
    }
}

/// Makes what this thread allocates from now on count for nothing: a thread of the data loader, whose
/// batches are not the training step's until they are [handed over](hand_over).
pub fn apart() {
    APART.set(true);
}

/// Runs `work` on this thread with what it allocates counting for nothing, such as the files of a
/// saved state.
pub fn apart_while<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            APART.set(self.0);
        }
    }
    let _before = Before(APART.replace(true));
    work()
}

/// Counts the block of `values` from now on, if it was allocated [apart](apart): it becomes a part of
/// the training step's memory.
pub fn hand_over<T>(values: &mut Vec<T>) {
    if PROCESS.is_counting() {
        // SAFETY: the program's allocator counts in `PROCESS`, so it is `Counting`, and a vector's
        // block has the size of its capacity.
        #[expect(unsafe_code, reason = "the byte behind the block is ours")]
        unsafe {
            hand_over_to(&PROCESS, values.as_mut_ptr().cast(), values.capacity() * size_of::<T>());
        };
    }
}

/// # Safety
///
/// `block` was allocated with `bytes` bytes by a `Counting` of `ledger`.
#[expect(unsafe_code, reason = "the byte behind the block is ours")]
unsafe fn hand_over_to(ledger: &AllocationCounts, block: *mut u8, bytes: usize) {
    if !is_large(bytes) {
        return;
    }
    // SAFETY: a large block has a mark behind it.
    unsafe {
        let mark = block.add(bytes);
        if mark.read() == APART_BLOCK {
            mark.write(COUNTS);
            ledger.add(bytes);
        }
    }
}

#[cfg(test)]
#[expect(
    unsafe_code,
    clippy::undocumented_unsafe_blocks,
    reason = "an allocator is unsafe by its trait; blocks are freed as they were made"
)]
mod tests {
    use std::alloc::System;
    use std::thread;

    use super::*;

    /// An allocator with a ledger of its own.
    fn counting() -> Counting<System> {
        Counting { blocks: System, ledger: Box::leak(Box::default()) }
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, 64).expect("a layout")
    }

    #[test]
    fn live_and_peak_are_those_of_the_blocks_there_were() {
        let counting = counting();
        let allocate = |bytes| unsafe { counting.alloc(layout(bytes)) };
        let (first, second) = (allocate(10_000), allocate(20_000));
        assert!([first, second].iter().all(|block| block.addr().is_multiple_of(64)));
        unsafe { counting.dealloc(first, layout(10_000)) };
        assert_eq!((counting.ledger.live(), counting.ledger.peak()), (20_000, 30_000));
        counting.ledger.reset_peak();
        let third = unsafe { counting.alloc_zeroed(layout(5_000)) };
        assert!((0..5_000).all(|at| unsafe { third.add(at).read() } == 0));
        unsafe { counting.dealloc(second, layout(20_000)) };
        unsafe { counting.dealloc(third, layout(5_000)) };
        assert_eq!((counting.ledger.live(), counting.ledger.peak()), (0, 25_000));
    }

    #[test]
    fn no_more_is_given_out_than_there_is_and_what_was_refused_is_known() {
        let counting = counting();
        let allocate = |bytes| unsafe { counting.alloc(layout(bytes)) };
        counting.ledger.limit_to(100_000);
        let first = allocate(60_000);
        assert!(!first.is_null() && counting.ledger.refused().is_none());
        assert!(allocate(50_000).is_null());
        assert_eq!(counting.ledger.refused(), Some(50_000));
        assert!(unsafe { counting.alloc_zeroed(layout(40_001)) }.is_null());
        assert_eq!(counting.ledger.refused(), Some(40_001));
        // The old block stays as it was.
        assert!(unsafe { counting.realloc(first, layout(60_000), 110_000) }.is_null());
        assert_eq!((counting.ledger.refused(), counting.ledger.live()), (Some(110_000), 60_000));
        let smaller = unsafe { counting.realloc(first, layout(60_000), 30_000) };
        let second = allocate(70_000);
        assert!(!second.is_null());
        // What small blocks take is not counted, and not refused.
        let small = allocate(100);
        assert!(!small.is_null());
        for (block, bytes) in [(smaller, 30_000), (second, 70_000), (small, 100)] {
            unsafe { counting.dealloc(block, layout(bytes)) };
        }
        assert_eq!(counting.ledger.live(), 0);
    }

    #[test]
    fn a_block_that_changes_its_size_keeps_its_bytes_and_is_counted_at_its_new_size() {
        let counting = counting();
        // Across the size from which blocks are counted, both ways.
        let sizes = [100, 4095, 4096, 4097, 1 << 20, 8192, 4096, 4095, 50];
        let mut block = unsafe { counting.alloc(layout(sizes[0])) };
        (0..50).for_each(|at| unsafe { block.add(at).write(at as u8) });
        for pair in sizes.windows(2) {
            block = unsafe { counting.realloc(block, layout(pair[0]), pair[1]) };
            let expected = if pair[1] >= 4096 { pair[1] as u64 } else { 0 };
            assert_eq!(counting.ledger.live(), expected, "{pair:?}");
            assert!((0..50).all(|at| unsafe { block.add(at).read() } == at as u8), "{pair:?}");
        }
        unsafe { counting.dealloc(block, layout(50)) };
        assert_eq!((counting.ledger.live(), counting.ledger.peak()), (0, 1 << 20));
    }

    #[test]
    fn blocks_of_a_thread_that_is_apart_count_once_handed_over_whoever_frees_them() {
        let counting = counting();
        let bytes = 1 << 16;
        let allocate = || {
            apart();
            unsafe { counting.alloc(layout(bytes)).expose_provenance() }
        };
        let allocated = || thread::scope(|scope| scope.spawn(allocate).join().expect("a block"));
        let block = || std::ptr::with_exposed_provenance_mut::<u8>(allocated());
        let (loaders, handed) = (block(), block());
        assert_eq!(counting.ledger.live(), 0);
        unsafe { hand_over_to(counting.ledger, handed, bytes) };
        unsafe { hand_over_to(counting.ledger, handed, bytes) };
        assert_eq!(counting.ledger.live(), bytes as u64);
        unsafe { counting.dealloc(loaders, layout(bytes)) };
        assert_eq!(counting.ledger.live(), bytes as u64);
        unsafe { counting.dealloc(handed, layout(bytes)) };
        assert_eq!((counting.ledger.live(), counting.ledger.peak()), (0, bytes as u64));
    }

    #[test]
    fn a_thread_is_apart_only_while_the_work_runs() {
        let counting = counting();
        let block = || unsafe { counting.alloc(layout(1 << 16)) };
        let inner =
            std::panic::catch_unwind(|| apart_while(|| std::panic::resume_unwind(Box::new(1))));
        assert!(inner.is_err());
        let (outside, inside) = (block(), apart_while(block));
        assert_eq!(counting.ledger.live(), 1 << 16);
        for block in [outside, inside] {
            unsafe { counting.dealloc(block, layout(1 << 16)) };
        }
        assert_eq!(counting.ledger.live(), 0);
    }

    #[test]
    fn threads_together_leave_nothing_and_the_peak_is_of_all() {
        let counting = counting();
        let barrier = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let block = unsafe { counting.alloc(layout(8192)) };
                        barrier.wait();
                        unsafe { counting.dealloc(block, layout(8192)) };
                        barrier.wait();
                    }
                });
            }
        });
        assert_eq!((counting.ledger.live(), counting.ledger.peak()), (0, 4 * 8192));
    }
}
