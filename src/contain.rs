//! Panics of others' code, turned into errors and kept off the screen.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is contained. Each thread has its own, so that replicas, and the
    /// loader's threads, do not silence each other.
    static CONTAINED: Cell<bool> = const { Cell::new(false) };
}

/// The hook is the process's and asks the thread that panics, so that it is set once and stays.
static HOOK: Once = Once::new();

/// Runs `work`; a panic in it becomes its message and prints nothing.
///
/// Whatever `work` changes must be dropped or overwritten by the caller after a panic.
pub(crate) fn contained<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !CONTAINED.get() {
                report(panic);
            }
        }));
    });
    let outer = CONTAINED.replace(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    CONTAINED.set(outer);
    outcome.map_err(|payload| message(payload.as_ref()))
}

fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(contained(|| 7), Ok(7));
        assert_eq!(contained(|| panic!("fixed")), Err::<(), _>("fixed".to_owned()));
        let number = std::hint::black_box(3);
        assert_eq!(contained(|| panic!("row {number}")), Err::<(), _>("row 3".to_owned()));
    }
}
