//! What the user wrote: loading, overrides, and errors that point at the line. Opens no device and
//! no data.

mod types;

pub use types::*;
