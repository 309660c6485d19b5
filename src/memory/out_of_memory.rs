//! Running out of device memory, as an error that a step can be tried again after.

use std::any::Any;
use std::error::Error;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::tensor::Tensor;

use super::DeviceLost;
#[cfg(feature = "cuda")]
use crate::ops::gpu::{Buffer, Gpu};

/// How CubeCL and the CUDA driver say that memory is exhausted.
const WORDS: [&str; 8] = [
    "out of device memory",
    "out-of-memory error",
    "CUDA_ERROR_OUT_OF_MEMORY",
    // A tensor of more than a quarter of the card, which its allocator never gives out.
    "can't allocate buffer of size",
    // Of the host, for copies to the card and back.
    "Unable to reserve pinned memory",
    "every page size the memory tracks still holds live allocations",
    // Buffers that were to be read or written, and whose allocation had failed.
    "the reservation behind it failed",
    "Memory location was never initialized",
];

/// The device had no memory left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device is out of memory{}", wanted.map_or(String::new(), |b| format!(" ({b} bytes were asked for)")))]
pub struct OutOfMemory {
    /// The bytes asked for, where they are known.
    pub wanted: Option<u64>,
}

impl OutOfMemory {
    /// What an error or panic that says `text` means, if it is about exhausted memory.
    pub fn in_text(text: &str) -> Option<Self> {
        let is_about_memory = WORDS.iter().any(|words| text.contains(words));
        // A lost card gives no memory either.
        (is_about_memory && DeviceLost::in_text(text).is_none())
            .then(|| Self { wanted: wanted(text) })
    }

    /// Unwinds to the nearest [`catch_out_of_memory`], and tells no one on the way.
    pub fn throw(self) -> ! {
        panic::resume_unwind(Box::new(self))
    }
}

/// How many [`catch_out_of_memory`] are under way. It counts those of all threads, because what fails on
/// the thread of a device unwinds there first, and nobody knows for which replica. It only decides what
/// is printed: where one replica catches, another that does not still unwinds, but says nothing.
static CATCHING: AtomicUsize = AtomicUsize::new(0);

/// Runs `work` and turns exhausted memory into an error, whether `work` panics with it or returns an
/// error that says so, itself or in a source. Other errors and panics pass.
///
/// What `work` has changed must be put back by the caller.
///
/// # Errors
///
/// When memory was exhausted.
pub fn catch_out_of_memory<T, E: Error>(
    work: impl FnOnce() -> Result<T, E>,
) -> Result<Result<T, E>, OutOfMemory> {
    silence();
    CATCHING.fetch_add(1, Ordering::SeqCst);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CATCHING.fetch_sub(1, Ordering::SeqCst);
    match outcome {
        Ok(Ok(value)) => Ok(Ok(value)),
        Ok(Err(error)) => in_error(&error).map_or(Ok(Err(error)), Err),
        Err(payload) => match in_payload(payload.as_ref()) {
            Some(out_of_memory) => Err(out_of_memory),
            None => panic::resume_unwind(payload),
        },
    }
}

/// Whether memory could be had for everything that computes `tensors` (without autodiff, of one
/// device). On CUDA a failed allocation is told to no one: what needs the memory is left out, and so
/// is all that needs that, until something is read. Asked here, nothing is waited for or copied.
///
/// # Errors
///
/// When it could not.
pub fn check_allocated(tensors: impl IntoIterator<Item = Tensor<1>>) -> Result<(), OutOfMemory> {
    #[cfg(feature = "cuda")]
    {
        let mut tensors = tensors.into_iter().peekable();
        if let Some(gpu) = tensors.peek().and_then(|first| Gpu::of(&first.device())) {
            let buffers: Vec<Buffer> = tensors.map(Buffer::of_tensor).collect();
            let failed = gpu.check(&buffers).err();
            return failed.and_then(|text| OutOfMemory::in_text(&text)).map_or(Ok(()), Err);
        }
    }
    #[cfg(not(feature = "cuda"))]
    let _ = tensors;
    Ok(())
}

/// Keeps panics about exhausted memory from the screen while they are caught. The hook is the process's
/// and is set once.
fn silence() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let caught = CATCHING.load(Ordering::SeqCst) > 0;
            if !caught || in_payload(panic.payload()).is_none() {
                report(panic);
            }
        }));
    });
}

fn in_error(error: &dyn Error) -> Option<OutOfMemory> {
    let mut errors = std::iter::successors(Some(error), |error| (*error).source());
    errors.find_map(|error| OutOfMemory::in_text(&error.to_string()))
}

/// What the payload of a panic says about exhausted memory.
pub fn in_payload(payload: &(dyn Any + Send)) -> Option<OutOfMemory> {
    let text = || {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        text.or_else(|| payload.downcast_ref::<&str>().copied())
    };
    payload.downcast_ref::<OutOfMemory>().copied().or_else(|| OutOfMemory::in_text(text()?))
}

/// The number in `out of device memory allocating 512 bytes` and the like.
fn wanted(text: &str) -> Option<u64> {
    let behind = |words: &str| {
        let (_, rest) = text.split_once(words)?;
        let digits = rest.trim_start().split(|sign: char| !sign.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    let phrases = ["device memory allocating", "buffer of size:", "Can't allocate"];
    phrases.into_iter().find_map(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Failed {
        #[error("a step failed: {0}")]
        Step(#[source] std::io::Error),
        #[error("the loss is not finite")]
        Loss,
    }

    fn caught(work: impl FnOnce() -> Result<u8, Failed>) -> Result<Option<u8>, OutOfMemory> {
        catch_out_of_memory(work).map(Result::ok)
    }

    #[test]
    fn exhausted_memory_is_caught_as_error_and_as_panic_with_what_was_wanted() {
        let says = |wanted| Err(OutOfMemory { wanted });
        let read =
            "An IO error happened\nCaused by:\n  out of device memory allocating 4096 bytes\n";
        assert_eq!(caught(|| Err(Failed::Step(std::io::Error::other(read)))), says(Some(4096)));
        assert_eq!(caught(|| panic!("{read}")), says(Some(4096)));
        let large = "can't allocate buffer of size: 21474836480\n";
        assert_eq!(caught(|| panic!("{large}")), says(Some(21_474_836_480)));
        let sizes = "Can't allocate 640 bytes: every page size the memory tracks still holds live \
                     allocations";
        assert_eq!(caught(|| panic!("{sizes}")), says(Some(640)));
        let launch = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")";
        assert_eq!(caught(|| panic!("{launch}")), says(None));
        assert_eq!(caught(|| OutOfMemory { wanted: Some(7) }.throw()), says(Some(7)));
    }

    #[test]
    fn anything_else_passes() {
        assert_eq!(caught(|| Ok(3)), Ok(Some(3)));
        assert!(matches!(
            catch_out_of_memory(|| Err::<(), _>(Failed::Loss)),
            Ok(Err(Failed::Loss))
        ));
        let panicked = panic::catch_unwind(|| caught(|| panic::resume_unwind(Box::new("index"))));
        let payload = panicked.expect_err("passes on");
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"index"));
    }
}
